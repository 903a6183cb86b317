"""Inverse of the bordered margin matrix ``[[0, 1'], [1, Q_MM]]``, kept up to date.

Its entries are the sensitivities of ``[-rho; alpha_M]``. Row and column 0 belong to the
sum constraint, row ``1 + p`` to the margin sample at place ``p``.

References
----------
.. [1] Cauwenberghs and Poggio, "Incremental and Decremental Support Vector Machine
   Learning", NIPS 2000, section 2.2.
"""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.jit import compiled
from forgetmem.svm.extended import accumulate, add, block, fma

#: Up to this size a rebuild grows the inverse row by row, in compiled code.
_GROWN = 96
#: A pivot that is smaller than this times the largest sensitivity loses so many digits
#: that the new column is refined first.
_CLOSE = 2.0**-20


@compiled
def _sharpen(
    R: FloatArray,
    K: FloatArray,
    ridge: float,
    slots: IntArray,
    column: FloatArray,
    b: FloatArray,
) -> None:
    # Refine b = -R [1; column] once, with a residual in twofold precision.
    s = len(slots)
    x = np.zeros((3, s))
    x[0] = b[1:]
    sums = np.zeros((3, s))
    accumulate(block(K, slots, slots), np.arange(s), x, 2, sums)
    residual = np.empty(s + 1)
    first, second, third = -1.0, 0.0, 0.0
    for p in range(s):
        first, second, third = add(first, second, third, -b[p + 1])
    residual[0] = first + (second + third)
    for p in range(s):
        product = ridge * b[p + 1]
        first, second, third = add(sums[0, p], sums[1, p], 0.0, product)
        first, second, third = add(first, second, third, fma(ridge, b[p + 1], -product))
        first, second, third = add(first, second, third, b[0])
        first, second, third = add(first, second, third, column[p])
        residual[p + 1] = -(first + (second + third))
    for j in range(s + 1):
        value = residual[j]
        for i in range(s + 1):
            b[i] += R[j, i] * value


@compiled
def grow(
    R: FloatArray, K: FloatArray, ridge: float, slots: IntArray, s: int, slot: int
) -> float:
    """Take in a sample after the first `s` of `slots`.

    Returns the pivot (the Schur complement); if it is not positive, R is as before.
    """
    diagonal = K[slot, slot] + ridge
    if s == 0:
        R[0, 0] = -diagonal
        R[0, 1] = R[1, 0] = 1.0
        R[1, 1] = 0.0
        return np.inf
    column = np.empty(s)
    for p in range(s):
        column[p] = K[slot, slots[p]]
    b = -R[0, : s + 1]
    for j in range(s):
        value = column[j]
        for i in range(s + 1):
            b[i] -= R[j + 1, i] * value
    pivot = 0.0
    for turn in range(2):
        pivot = diagonal + b[0]
        top = 0.0
        for j in range(s):
            pivot += column[j] * b[j + 1]
            top = max(top, R[j + 1, j + 1])
        if turn == 1 or pivot > _CLOSE * top:
            break
        _sharpen(R, K, ridge, slots[:s], column, b)
    if not 0.0 < pivot < np.inf:
        return pivot
    for j in range(s + 1):
        factor = b[j] / pivot
        for i in range(s + 1):
            R[j, i] += factor * b[i]
        R[j, s + 1] = factor
        R[s + 1, j] = factor
    R[s + 1, s + 1] = 1.0 / pivot
    return pivot


@compiled
def shrink(R: FloatArray, s: int, place: int) -> bool:
    """Drop the sample at `place`; the last one moves there.

    Returns False, with R as before, if the pivot is not positive.
    """
    k = place + 1
    pivot = R[k, k]
    if s == 1:
        return True
    if not 0.0 < pivot < np.inf:
        return False
    v = R[k, : s + 1].copy()
    for j in range(s + 1):
        factor = v[j] / pivot
        for i in range(s + 1):
            R[j, i] -= factor * v[i]
    if k != s:
        for i in range(s + 1):
            R[k, i] = R[s, i]
        for i in range(s + 1):
            R[i, k] = R[i, s]
        R[k, k] = R[s, s]
    return True


@compiled
def grow_all(R: FloatArray, K: FloatArray, ridge: float, slots: IntArray) -> float:
    """Build R for `slots` one by one; returns the smallest pivot."""
    smallest = np.inf
    for s in range(len(slots)):
        smallest = min(smallest, grow(R, K, ridge, slots, s, slots[s]))
        if not smallest > 0.0:
            break
    return smallest


class MarginInverse:
    """The margin samples in their places, and the inverse that belongs to them.

    Parameters
    ----------
    capacity : int
        Largest number of margin samples.
    reproducible : bool
        Whether a rebuild must give the same bits whatever BLAS does.

    Attributes
    ----------
    R : ndarray of shape (capacity + 1, capacity + 1), float64
        The inverse, in its upper left corner.
    slots : ndarray of shape (capacity,), int64
        The margin samples by place.
    size : int
        Number of margin samples.
    worn : bool
        Whether it has lost digits and should be rebuilt.
    """

    def __init__(self, capacity: int, *, reproducible: bool = False) -> None:
        self._reproducible = reproducible
        self.R: FloatArray = np.zeros((capacity + 1, capacity + 1))
        self.slots: IntArray = np.zeros(capacity, dtype=np.int64)
        self.size = 0
        self.worn = False

    @property
    def margin(self) -> IntArray:
        """Slots of the margin samples, in the order of their places."""
        return self.slots[: self.size]

    def enlarge(self, capacity: int) -> None:
        """Make room for more margin samples.

        Parameters
        ----------
        capacity : int
        """
        larger = MarginInverse(capacity)
        used = self.size + 1
        larger.R[:used, :used] = self.R[:used, :used]
        larger.slots[: self.size] = self.margin
        self.R, self.slots = larger.R, larger.slots

    def rebuild(self, K: FloatArray, ridge: float, slots: IntArray) -> None:
        """Invert afresh for the given margin samples.

        Parameters
        ----------
        K : ndarray of float64
            Kernel matrix of all slots.
        ridge : float
        slots : ndarray of int64

        Raises
        ------
        IllConditionedMarginError
            If the matrix is singular to working precision.
        """
        s = len(slots)
        self.slots[:s] = slots
        self.size = s
        self.worn = False
        if s <= _GROWN or self._reproducible:
            if s and not grow_all(self.R, K, ridge, self.margin) > 0.0:
                raise IllConditionedMarginError(np.inf)
            return
        bordered = np.ones((s + 1, s + 1))
        bordered[0, 0] = 0.0
        bordered[1:, 1:] = K[np.ix_(slots, slots)]
        bordered.flat[s + 2 :: s + 2] += ridge
        try:
            inverse = np.linalg.inv(bordered)
        except np.linalg.LinAlgError as error:
            raise IllConditionedMarginError(np.inf) from error
        self.R[: s + 1, : s + 1] = (inverse + inverse.T) / 2

    def grow(self, K: FloatArray, ridge: float, slot: int) -> bool:
        """Take in the sample at `slot`.

        Parameters
        ----------
        K : ndarray of float64
        ridge : float
        slot : int

        Returns
        -------
        bool
            False, with nothing changed, if its pivot is not positive.
        """
        if not grow(self.R, K, ridge, self.slots, self.size, slot) > 0.0:
            return False
        self.slots[self.size] = slot
        self.size += 1
        return True

    def shrink(self, slot: int) -> bool:
        """Drop the sample at `slot`.

        Parameters
        ----------
        slot : int

        Returns
        -------
        bool
            False, with nothing changed, if its pivot is not positive.
        """
        place = int(np.flatnonzero(self.margin == slot)[0])
        if not shrink(self.R, self.size, place):
            return False
        self.size -= 1
        self.slots[place] = self.slots[self.size]
        return True
