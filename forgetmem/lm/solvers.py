"""Ways to the coefficients of all prefixes: compiled, and maintained.

All solve ``min a' (K + ridge I) a / 2`` over ``sum(a) = 1, 0 <= a <= C`` for each
problem and each prefix of its keys, and all answer for their own derivatives: `adjoint`
gives the v with which the loss has the derivative ``-v_i alpha_j`` for ``K_ij``.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.errors import InvalidInputError
from forgetmem.lm.adjoint import adjoint_prefixes
from forgetmem.lm.pivoting import (
    EXACT,
    UNGATED,
    UNSOLVED,
    Codes,
    mirror,
    solve_prefixes,
)
from forgetmem.svm import OneClassSVM
from forgetmem.svm.gradient import Sensitivities, sensitivities

#: Exponents below are raised to this: what is lost is far below the ridge, and products
#: of kernel values never underflow, which would be slow.
_LEAST = -80.0

#: Problems whose kernel matrices are made together: temporaries stay in the cache.
_SLICE = 8

Adjoint = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Prefixes:
    """Problems to solve.

    Parameters
    ----------
    keys : Tensor of shape (P, n, D)
    gamma : Tensor of shape (P,)
    ends : tuple of int
        Ascending lengths of the prefixes; the last is n.
    C, ridge : float
    """

    keys: Tensor
    gamma: Tensor
    ends: tuple[int, ...]
    C: float
    ridge: float

    def kernel(self) -> Tensor:
        """Kernel matrices in float64.

        Returns
        -------
        Tensor of shape (P, n, n), float64
            Symmetric, 1 on the diagonal. On the CPU only pairs within some prefix were
            computed from inner products; the others are their mirror images.
        """
        P, n, _ = self.keys.shape
        if self.keys.is_cuda:
            out = self.keys.new_empty(P, n, n, dtype=torch.float64)
            self._fill(out, 0, P)
            lower = out.tril(-1)
            return lower + lower.transpose(1, 2) + torch.eye(n, device=out.device)
        out = torch.from_numpy(np.empty((P, n, n)))  # huge pages, unlike torch's
        for first in range(0, P, _SLICE):
            self._fill(out, first, first + _SLICE)
        mirror(out.numpy())
        return out

    def _fill(self, out: Tensor, first: int, last: int) -> None:
        # The kernel of keys and all keys up to their prefix, for a slice of problems.
        gamma = self.gamma[first:last].detach().double()
        keys = self.keys[first:last].detach().double()
        keys = (2.0 * gamma).sqrt()[:, None, None] * keys
        half = -0.5 * (keys * keys).sum(-1, keepdim=True)
        ones = torch.ones_like(half)
        left = torch.cat([keys, half, ones], dim=-1)
        right = torch.cat([keys, ones, half], dim=-1).transpose(1, 2)
        start = 0
        for end in self.ends:
            part = torch.bmm(left[:, start:end], right[:, :, :end])
            part.clamp_(min=_LEAST, max=0.0).exp_()
            out[first:last, start:end, :end] = part
            start = end


@dataclass(frozen=True)
class Solved:
    """What a solver found.

    Parameters
    ----------
    alpha : Tensor of shape (P, len(ends), n), float64
        Zero beyond the end of a prefix, and for keys in reserve.
    rho : Tensor of shape (P, len(ends)), float64
    codes : ndarray of shape (P, len(ends)), int8
        How each was solved: a code of `pivoting`.
    adjoint : callable
        From the derivatives for alpha and rho to v, of the shape of alpha.
    """

    alpha: Tensor
    rho: Tensor
    codes: Codes
    adjoint: Adjoint


class Solver(Protocol):
    """Solves all prefixes, given their kernel matrices."""

    def __call__(self, problems: Prefixes, K: Tensor) -> Solved:
        """Solve `problems`, whose kernel matrices are `K`."""
        ...


def in_slices(count: int, work: Callable[[int, int], None]) -> None:
    """Call ``work(first, last)`` on slices of ``range(count)``, on torch's threads.

    Parameters
    ----------
    count : int
    work : callable
        Releases the interpreter lock; slices do not touch each other's results.
    """
    n_threads = min(torch.get_num_threads(), count)
    if n_threads <= 1:
        work(0, count)
        return
    bounds = np.linspace(0, count, n_threads + 1).astype(int).tolist()
    with ThreadPoolExecutor(n_threads) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))


def solve_by_pivoting(problems: Prefixes, K: Tensor) -> Solved:
    """Solve on the CPU, with the partitions of an exact solver.

    Parameters
    ----------
    problems : Prefixes
    K : Tensor of shape (P, n, n), float64

    Returns
    -------
    Solved
    """
    matrices: FloatArray = K.numpy()
    P, n, _ = matrices.shape
    ends: IntArray = np.array(problems.ends, dtype=np.int64)
    shape = (P, len(ends))
    alpha, rho = np.zeros((*shape, n)), np.zeros(shape)
    status = np.zeros((*shape, n), dtype=np.int8)
    codes = np.full(shape, UNSOLVED, dtype=np.int8)
    orders, sizes = np.zeros((*shape, n), np.int64), np.zeros(shape, np.int64)
    factors = np.empty((P, n, n))
    ridge, C = problems.ridge, problems.C

    def solve(first: int, last: int) -> None:
        solve_prefixes(
            matrices,
            ridge,
            C,
            ends,
            first,
            last,
            alpha,
            rho,
            status,
            orders,
            sizes,
            factors,
            codes,
        )

    in_slices(P, solve)
    sizes[unsound(problems)] = 0
    rescued = rescue(problems, codes, alpha, rho)
    kept = [True]

    def adjoint(alpha_bar: Tensor, rho_bar: Tensor) -> Tensor:
        bars, levels = alpha_bar.contiguous().numpy(), rho_bar.contiguous().numpy()
        v = np.zeros_like(alpha)

        def pull(first: int, last: int) -> None:
            adjoint_prefixes(
                matrices,
                ridge,
                first,
                last,
                orders,
                sizes,
                codes,
                kept[0],
                factors,
                alpha,
                rho,
                bars,
                levels,
                v,
            )

        in_slices(P, pull)
        kept[0] = False
        for (p, b), held in rescued.items():
            end = ends[b]
            v[p, b, :end] = held.adjoint(bars[p, b, :end], float(levels[p, b]))
        return torch.from_numpy(v)

    return Solved(torch.from_numpy(alpha), torch.from_numpy(rho), codes, adjoint)


def rescue(
    problems: Prefixes,
    codes: Codes,
    alpha: FloatArray,
    rho: FloatArray,
) -> dict[tuple[int, int], Sensitivities]:
    """Solve what is left by `OneClassSVM`; what even it cannot take stays ungated.

    Parameters
    ----------
    problems : Prefixes
    codes, alpha, rho : ndarray
        What a batched solver found; completed in place.

    Returns
    -------
    dict of Sensitivities
        By problem and prefix, of those that were solved.
    """
    codes[unsound(problems)] = UNSOLVED
    alpha[codes == UNSOLVED], rho[codes == UNSOLVED] = 0.0, 1.0
    rescued = {}
    for p, b in np.argwhere(codes == UNSOLVED).tolist():
        end = problems.ends[b]
        codes[p, b] = UNGATED
        try:
            svm = OneClassSVM(float(problems.gamma[p]), problems.C, problems.ridge)
            svm.fit(problems.keys[p, :end].detach().double().cpu().numpy())
        except InvalidInputError:
            continue
        codes[p, b] = EXACT
        alpha[p, b, :end], rho[p, b] = svm.dual_coef_, svm.rho_
        rescued[p, b] = sensitivities(svm)
    return rescued


def unsound(problems: Prefixes) -> BoolArray:
    """Find prefixes with keys that are not finite, or with such a bandwidth.

    Parameters
    ----------
    problems : Prefixes

    Returns
    -------
    ndarray of shape (P, len(ends)), bool
    """
    bad = ~problems.keys.detach().sum(-1).isfinite()
    first = torch.where(bad.any(-1), bad.to(torch.uint8).argmax(-1), bad.shape[1])
    gamma = problems.gamma.detach()
    first = torch.where(gamma.isfinite() & (gamma > 0.0), first, 0)
    ends = torch.tensor(problems.ends, device=first.device)
    found: BoolArray = (first[:, None] < ends).cpu().numpy()
    return found


def solve_maintained(problems: Prefixes, K: Tensor) -> Solved:
    """Solve by `OneClassSVM`, which learns the keys of one prefix after the other.

    Parameters
    ----------
    problems : Prefixes
    K : Tensor
        Not looked at: the solver computes its own, as sums of squares.

    Returns
    -------
    Solved
        `adjoint` multiplies by the inverses that the solver maintained.

    Raises
    ------
    InvalidInputError
        If a key or gamma is not finite: an audit does not pass over that.
    """
    P, n, _ = problems.keys.shape
    shape = (P, len(problems.ends))
    alpha, rho = np.zeros((*shape, n)), np.zeros(shape)
    held: list[list[Sensitivities]] = []
    for p, keys in enumerate(problems.keys.detach().double().cpu().numpy()):
        svm = OneClassSVM(float(problems.gamma[p]), problems.C, problems.ridge)
        states, start = [], 0
        for b, end in enumerate(problems.ends):
            svm.learn(keys[start:end])
            alpha[p, b, :end], rho[p, b], start = svm.dual_coef_, svm.rho_, end
            states.append(sensitivities(svm))
        held.append(states)

    def adjoint(alpha_bar: Tensor, rho_bar: Tensor) -> Tensor:
        bars, levels = alpha_bar.cpu().numpy(), rho_bar.cpu().numpy()
        v = np.zeros_like(alpha)
        for p, states in enumerate(held):
            for b, state in enumerate(states):
                end = problems.ends[b]
                v[p, b, :end] = state.adjoint(bars[p, b, :end], float(levels[p, b]))
        return torch.from_numpy(v).to(alpha_bar.device)

    device = problems.keys.device
    codes = np.full(shape, EXACT, dtype=np.int8)
    return Solved(
        torch.from_numpy(alpha).to(device),
        torch.from_numpy(rho).to(device),
        codes,
        adjoint,
    )
