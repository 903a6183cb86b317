"""One quadratic programme, and a point with its partition."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.svm.margin_inverse import MarginInverse
from forgetmem.svm.partition import FREE, Box, Role, Statuses

#: A smaller ridge, relative to the largest entry of Q, may be lost in rounding. The
#: problem is tried as it stands, and if a margin system turns out to be singular to
#: working precision, it is solved with this ridge instead, or a larger one.
RIDGE_FLOOR = 2.0**-30


@dataclass(frozen=True)
class Problem:
    """One quadratic programme over some of the slots of a kernel matrix.

    Parameters
    ----------
    K : ndarray of shape (capacity, capacity), float64, C-contiguous
    rows : ndarray of int64
        The slots that hold samples: enough of them for the box.
    end : int
        All these slots are below it.
    ridge : float
    box : Box
    largest : float
        Bound on the entries of Q in absolute value.
    """

    K: FloatArray
    rows: IntArray
    end: int
    ridge: float
    box: Box
    largest: float

    @property
    def doubtful(self) -> bool:
        """Whether the ridge may be lost in the rounding of K."""
        return not self.ridge > RIDGE_FLOOR * self.largest


@dataclass
class Optimum:
    """A point with its partition; arrays are indexed by slot.

    Parameters
    ----------
    status : ndarray of int8
        A `Role`, or `FREE`.
    alpha : ndarray of float64
    slack : ndarray of float64
        ``Q alpha - rho`` up to rounding; 0 on the margin.
    rho : float
    inverse : MarginInverse
    blur : float
        Bound on the error of `slack`.
    ridge : float
        The one it was solved with: 0 until it is, and larger than the problem's where
        that was of no use.
    """

    status: Statuses
    alpha: FloatArray
    slack: FloatArray
    rho: float
    inverse: MarginInverse
    blur: float = np.inf
    ridge: float = 0.0

    def enlarge(self, capacity: int) -> None:
        """Follow a kernel matrix that has got more slots.

        Parameters
        ----------
        capacity : int
        """
        more = capacity - len(self.status)
        if more > 0:
            free = np.full(more, FREE, dtype=np.int8)
            self.status = np.concatenate([self.status, free])
            self.alpha = np.concatenate([self.alpha, np.zeros(more)])
            self.slack = np.concatenate([self.slack, np.zeros(more)])
            self.inverse.enlarge(capacity)

    def scatter(self, slots: IntArray, capacity: int) -> Optimum:
        """Move everything to other slots.

        Parameters
        ----------
        slots : ndarray of int64
            The new slot of each of the present ones.
        capacity : int
            Number of new slots.

        Returns
        -------
        Optimum
        """
        status = np.full(capacity, FREE, dtype=np.int8)
        alpha, h = np.zeros(capacity), np.zeros(capacity)
        status[slots], alpha[slots], h[slots] = self.status, self.alpha, self.slack
        inverse = self.inverse
        inverse.slots[: inverse.size] = slots[inverse.margin]
        inverse.enlarge(capacity)
        return replace(self, status=status, alpha=alpha, slack=h)

    def slots(self, role: Role) -> IntArray:
        """Slots of one set, ascending.

        Parameters
        ----------
        role : Role

        Returns
        -------
        ndarray of int64
        """
        return np.flatnonzero(self.status == role)
