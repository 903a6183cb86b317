"""The rows and their kernel matrix, in slots that stay put when others come and go."""

from __future__ import annotations

import math

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.svm.kernel import Kernel, gram, kernel_row, scale_of


class Samples:
    """Rows in slots, with all their kernel values.

    Parameters
    ----------
    kernel : Kernel
    gamma : float
    ridge : float
    X : ndarray of shape (n_samples, n_features), float64, C-contiguous
        They take the first slots, in this order.

    Attributes
    ----------
    X : ndarray of shape (capacity, n_features), float64
        By slot; zeros in a free one.
    K : ndarray of shape (capacity, capacity), float64
        Kernel values over ``2**scale`` by slot; zeros in the line and column of a free
        one.
    ridge : float
        The ridge over ``2**scale``.
    scale : int
        Not 0 only for the linear kernel, and for a huge ridge.
    slots : ndarray of int64
        The slot of each sample, in the order in which they were learned.
    end : int
        All slots in use are below it.
    """

    def __init__(
        self, kernel: Kernel, gamma: float, ridge: float, X: FloatArray
    ) -> None:
        self._kernel, self._gamma = kernel, gamma
        self.K = gram(kernel, gamma, X)
        self.X = X.copy()
        self.slots: IntArray = np.arange(len(X))
        self.end = len(X)
        self._free: list[int] = []
        self.ridge, self.scale = ridge, 0
        self.scale = scale_of(self.largest)
        if self.scale:
            np.ldexp(self.K, -self.scale, out=self.K)
            self.ridge = math.ldexp(ridge, -self.scale)

    @property
    def largest(self) -> float:
        """Largest entry of the scaled Q in absolute value."""
        if self._kernel is Kernel.RBF:
            return math.ldexp(1.0, -self.scale) + self.ridge
        return float(self.K[self.slots, self.slots].max(initial=0.0)) + self.ridge

    @property
    def balanced(self) -> bool:
        """Whether the scale is the one that these samples would be given afresh."""
        if self._kernel is Kernel.RBF:
            return True
        return self.scale == scale_of(math.ldexp(self.largest, self.scale))

    @property
    def capacity(self) -> int:
        """Number of slots."""
        return len(self.X)

    @property
    def rows(self) -> FloatArray:
        """The samples, in the order in which they were learned (a copy)."""
        return self.X[self.slots]

    def put(self, x: FloatArray) -> int:
        """Add a row, in the lowest free slot.

        Parameters
        ----------
        x : ndarray of shape (n_features,), float64, C-contiguous

        Returns
        -------
        int
            Its slot.
        """
        if self._free:
            slot = self._free.pop()
        else:
            if self.end == self.capacity:
                self._enlarge()
            slot = self.end
            self.end += 1
        self.X[slot] = x
        used = self.X[: self.end]
        values = kernel_row(self._kernel, self._gamma, used, x)
        if self.scale:
            values = np.ldexp(values, -self.scale)
        for free in self._free:
            values[free] = 0.0
        self.K[slot, : self.end] = values
        self.K[: self.end, slot] = values
        self.slots = np.append(self.slots, slot)
        return slot

    def withdraw(self, places: list[int]) -> IntArray:
        """Remove samples, but keep what is in their slots until `wipe`.

        Parameters
        ----------
        places : list of int
            Distinct and valid, in the order in which the rows were learned.

        Returns
        -------
        ndarray of int64
            Their slots.
        """
        gone: IntArray = self.slots[places]
        self.slots = np.delete(self.slots, places)
        return gone

    def wipe(self, slots: IntArray) -> None:
        """Overwrite the slots of withdrawn samples, and free them.

        Parameters
        ----------
        slots : ndarray of int64
        """
        for slot in slots.tolist():
            self.X[slot] = 0.0
            self.K[slot, : self.end] = 0.0
            self.K[: self.end, slot] = 0.0
            self._free.append(slot)
        self._free.sort(reverse=True)

    def sorted_slots(self) -> IntArray:
        """Slots of the samples, in the order of the bytes of the rows.

        Returns
        -------
        ndarray of int64
        """
        keys = {slot: self.X[slot].tobytes() for slot in self.slots.tolist()}
        return np.array(sorted(keys, key=keys.__getitem__), dtype=np.int64)

    def _enlarge(self) -> None:
        capacity = self.capacity + self.capacity // 2 + 8
        X = np.zeros((capacity, self.X.shape[1]))
        K = np.zeros((capacity, capacity))
        X[: self.end] = self.X
        K[: self.end, : self.end] = self.K[: self.end, : self.end]
        self.X, self.K = X, K
