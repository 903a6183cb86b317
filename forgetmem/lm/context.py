"""What one head remembers of a context: frozen keys and values behind an exact gate.

Keys can be unlearned, and reserve keys can be dropped. A dropped key could come back
when later keys change the gate, so each leaves a `Horizon`: a lower bound on its slack
that is brought up to date with every change and says when nothing is promised any more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.lm.attention import GateConfig, Multiplier
from forgetmem.lm.gate import warm_up
from forgetmem.svm import Certificate, OneClassSVM, solution_certificate

#: Far above the rounding of a slack and of its changes.
_ROUNDING = 1e-12


@dataclass
class Horizon:
    """Lower bounds on the slacks of dropped keys.

    A dropped key j has the slack ``f(x_j) - rho``, with f the kernel mean. When f
    changes by d, the slack of j changes by at least ``d(x_s) - |d| leash_j`` less the
    change of rho, where s is a key that is still there and the leash is its distance
    from j in feature space.

    Parameters
    ----------
    anchors : ndarray of int64
        Row of s for each dropped key.
    leashes, slacks : ndarray of float64
    """

    anchors: IntArray
    leashes: FloatArray
    slacks: FloatArray

    @classmethod
    def empty(cls) -> Horizon:
        """Return the horizon of a context from which nothing was dropped.

        Returns
        -------
        Horizon
        """
        return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))

    @property
    def valid(self) -> bool:
        """Whether no dropped key can have come back."""
        return bool((self.slacks > 0.0).all())

    def follow(self, K: FloatArray, change: FloatArray, rise: float) -> None:
        """Bring the bounds up to date.

        Parameters
        ----------
        K : ndarray of shape (n, n), float64
            Kernel matrix of the keys that are there.
        change : ndarray of shape (n,), float64
            Of their coefficients.
        rise : float
            Of rho.
        """
        moved = K @ change
        length = math.sqrt(max(float(change @ moved), 0.0)) + _ROUNDING
        self.slacks += moved[self.anchors] - length * self.leashes - rise - _ROUNDING

    def leave(self, K: FloatArray, gone: BoolArray, slacks: FloatArray) -> None:
        """Note that keys are dropped.

        Parameters
        ----------
        K : ndarray of shape (n, n), float64
        gone : ndarray of shape (n,), bool
            Which; at least one key stays.
        slacks : ndarray of shape (n,), float64
        """
        stay = np.flatnonzero(~gone)
        nearest = stay[K[:, stay].argmax(axis=1)]
        away = np.sqrt(np.maximum(2.0 - 2.0 * K[np.arange(len(K)), nearest], 0.0))
        away[stay] = 0.0
        nearest[stay] = stay
        leashes = self.leashes + away[self.anchors]
        anchors = nearest[self.anchors]
        rank = np.cumsum(~gone) - 1
        dropped = np.flatnonzero(gone)
        self.anchors = rank[np.concatenate([anchors, nearest[dropped]])]
        self.leashes = np.concatenate([leashes, away[dropped]])
        self.slacks = np.concatenate([self.slacks, slacks[dropped]])


class HeadContext:
    """Frozen keys and values of one head, and the exact gate on them.

    Parameters
    ----------
    gamma : float
    config : GateConfig

    Attributes
    ----------
    svm : OneClassSVM
        On the gate keys, in float64.
    keys, values : Tensor of shape (n, D)
    owners : ndarray of shape (n,), int64
        Number of the span that each key belongs to.
    horizon : Horizon
        Of the keys that were dropped.
    """

    def __init__(self, gamma: float, config: GateConfig) -> None:
        self.config = config
        self.svm = OneClassSVM(gamma, config.C, config.ridge)
        self.keys = self.values = torch.zeros(0, 0)
        self.owners: IntArray = np.zeros(0, dtype=np.int64)
        self.horizon = Horizon.empty()

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.owners)

    def learn(
        self, gate_keys: Tensor, keys: Tensor, values: Tensor, owner: int
    ) -> None:
        """Take in the keys of a chunk.

        Parameters
        ----------
        gate_keys, keys, values : Tensor of shape (t, D)
        owner : int
            Number of the span.
        """
        before, rho = self.svm.dual_coef_, self.svm.rho_
        self.svm.learn(gate_keys.detach().double().cpu().numpy())
        if len(self):
            keys = torch.cat([self.keys, keys])
            values = torch.cat([self.values, values])
        self.keys, self.values = keys, values
        more = len(keys) - len(self.owners)
        self.owners = np.append(self.owners, np.full(more, owner))
        if len(self.horizon.slacks):
            old = np.append(before, np.zeros(more))
            change = self.svm.dual_coef_ - old
            self.horizon.follow(self.kernel(), change, self.svm.rho_ - rho)

    def unlearn(self, owner: int) -> tuple[Tensor, Tensor]:
        """Remove the keys of a span; the optimum of the others is exact again.

        What was promised about dropped keys expires.

        Parameters
        ----------
        owner : int

        Returns
        -------
        keys, values : Tensor of shape (t, D)
            What was removed.
        """
        gone = self.owners == owner
        self.svm.unlearn(np.flatnonzero(gone).tolist())
        mask = torch.from_numpy(gone)
        removed = self.keys[mask], self.values[mask]
        self.horizon.slacks[:] = -np.inf
        self._keep(~gone)
        return removed

    def drop_reserve(self, margin: float = 0.0) -> int:
        """Remove reserve keys, which no query reads, and remember their horizon.

        Parameters
        ----------
        margin : float
            Only those whose slack is more than this share of rho; the others may soon
            be needed.

        Returns
        -------
        int
            How many.
        """
        alpha, rho = self.svm.dual_coef_, self.svm.rho_
        K = self.kernel()
        slacks = K @ alpha - rho - _ROUNDING
        gone = (alpha == 0.0) & (slacks > margin * rho)
        if not self.gated or not gone.any():
            return 0
        self.horizon.leave(K, gone, slacks)
        self.svm.unlearn(np.flatnonzero(gone).tolist())
        self._keep(~gone)
        return int(gone.sum())

    def _keep(self, rows: BoolArray) -> None:
        mask = torch.from_numpy(rows)
        self.keys, self.values = self.keys[mask], self.values[mask]
        self.owners = self.owners[rows]

    @property
    def gated(self) -> bool:
        """Whether there are enough keys for a gate, dropped ones included."""
        n_read = len(self) + len(self.horizon.slacks)
        return n_read >= warm_up(self.config.C)

    def kernel(self) -> FloatArray:
        """Kernel matrix of the gate keys.

        Returns
        -------
        ndarray of shape (n, n), float64
        """
        X = self.svm.X_
        apart = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
        K: FloatArray = np.exp(-self.svm.gamma * apart)
        return K

    def open_rows(self) -> tuple[IntArray, FloatArray]:
        """Find what queries read.

        Returns
        -------
        rows : ndarray of int64
            Of the keys that are not in reserve.
        logs : ndarray of float64
            Logarithms of their multipliers.
        """
        if not self.gated:
            return np.arange(len(self)), np.zeros(len(self))
        rows = self.svm.support_
        alpha = self.svm.dual_coef_[rows]
        scale = {
            Multiplier.ALPHA.value: 1.0,
            Multiplier.SHARE.value: self.config.C,
            Multiplier.WEIGHT.value: self.svm.rho_,
        }[self.config.multiplier]
        return rows, np.log(alpha) - math.log(scale)

    def certificate(self) -> Certificate:
        """Bound the distance of the gate from a refit on the keys that are there.

        Returns
        -------
        Certificate
            From keys and coefficients alone.
        """
        svm = self.svm
        return solution_certificate(
            svm.X_, svm.dual_coef_, gamma=svm.gamma, C=svm.C, ridge=svm.ridge
        )
