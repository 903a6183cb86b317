"""Inverse of the bordered margin matrix ``[[0, 1'], [1, Q_MM]]``, kept up to date.

Its entries are the sensitivities of ``[-rho; alpha_M]``. Row and column 0 belong to the
sum constraint, row ``1 + p`` to the margin sample at place ``p``.

References
----------
.. [1] Cauwenberghs and Poggio, "Incremental and Decremental Support Vector Machine
   Learning", NIPS 2000, section 2.2.
"""

from __future__ import annotations

import math

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.fused import fma
from forgetmem.jit import compiled
from forgetmem.svm.extended import (
    TWOFOLD,
    UNIT,
    accumulate,
    add,
    copy_block,
    multiply,
)
from forgetmem.svm.margin_factor import MarginFactor

#: Up to this size an inverse is built in compiled code: the threads of BLAS take longer
#: to wake up.
GROWN = 256
#: A pivot that is smaller than this times the largest sensitivity loses so many digits
#: that the new column is refined first.
_CLOSE = 2.0**-20
#: An inverse that contracts so much worse than when it was new, and worse than the
#: second number, is rebuilt before it is used again.
_WORN = (2.0**10, 2.0**-20)


@compiled
def _sharpen(R: FloatArray, B: FloatArray, ridge: float, s: int, b: FloatArray) -> None:
    # Refine b = -R [1; column] once, with a residual in twofold precision.
    column = B[s]
    x = np.zeros((s, 3))
    x[:, 0] = b[1:]
    sums = np.zeros((3, s))
    accumulate(B, np.arange(s), x, TWOFOLD, sums)
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
    multiply(R, residual, b)


@compiled
def attach(R: FloatArray, s: int, b: FloatArray, pivot: float) -> None:
    """Extend R by a sample with sensitivities `b` and this pivot."""
    for j in range(s + 1):
        factor = b[j] / pivot
        line = R[j]
        for i in range(s + 1):
            line[i] += factor * b[i]
        line[s + 1] = factor
        R[s + 1, j] = factor
    R[s + 1, s + 1] = 1.0 / pivot


@compiled
def grow(
    R: FloatArray,
    B: FloatArray,
    K: FloatArray,
    ridge: float,
    slots: IntArray,
    s: int,
    slot: int,
) -> float:
    """Take in a sample after the first `s` of `slots`.

    Returns the pivot (the Schur complement); if it is not positive, nothing is taken
    in.
    """
    line = K[slot]
    column = B[s]
    for p in range(s):
        value = line[slots[p]]
        column[p] = value
        B[p, s] = value
    column[s] = line[slot]
    slots[s] = slot
    diagonal = float(line[slot]) + ridge
    if s == 0:
        R[0, 0] = -diagonal
        R[0, 1] = R[1, 0] = 1.0
        R[1, 1] = 0.0
        return np.inf
    q = np.empty(s + 1)
    q[0] = -1.0
    top = 0.0
    for p in range(s):
        q[p + 1] = -column[p]
        top = max(top, R[p + 1, p + 1])
    b = np.zeros(s + 1)
    multiply(R, q, b)
    pivot = diagonal + float(b[0])
    for p in range(s):
        pivot += float(column[p] * b[p + 1])
    if pivot <= _CLOSE * top:
        _sharpen(R, B, ridge, s, b)
        pivot = diagonal + float(b[0])
        for p in range(s):
            pivot += float(column[p] * b[p + 1])
    if 0.0 < pivot < np.inf:
        attach(R, s, b, pivot)
    return pivot


@compiled
def shrink(R: FloatArray, B: FloatArray, slots: IntArray, s: int, place: int) -> bool:
    """Drop the sample at `place`; the last of the `s` samples moves there.

    Returns False, with nothing changed, if the pivot is not positive.
    """
    k = place + 1
    pivot = R[k, k]
    if s > 1:
        if not 0.0 < pivot < np.inf:
            return False
        v = R[k, : s + 1].copy()
        for j in range(s + 1):
            factor = v[j] / pivot
            line = R[j]
            for i in range(s + 1):
                line[i] -= factor * v[i]
        if k != s:
            for i in range(s + 1):
                R[k, i] = R[s, i]
            for i in range(s + 1):
                R[i, k] = R[i, s]
            R[k, k] = R[s, s]
    last = s - 1
    if place != last:
        for i in range(s):
            B[place, i] = B[last, i]
        for i in range(s):
            B[i, place] = B[i, last]
        B[place, place] = B[last, last]
        slots[place] = slots[last]
    return True


@compiled
def _factorise(B: FloatArray, ridge: float, U: FloatArray) -> bool:
    # U'U = B + ridge I with U upper triangular, along contiguous rows.
    s = len(U)
    for i in range(s):
        U[i, i:] = B[i, i:s]
        U[i, i] += ridge
    for k in range(s):
        if not 0.0 < U[k, k] < np.inf:
            return False
        row = U[k]
        root = math.sqrt(row[k])
        for j in range(k, s):
            row[j] /= root
        for i in range(k + 1, s):
            factor = row[i]
            target = U[i]
            for j in range(i, s):
                target[j] -= factor * row[j]
    return True


@compiled
def invert(
    R: FloatArray, B: FloatArray, K: FloatArray, ridge: float, slots: IntArray
) -> bool:
    """Build R and B for `slots` by a Cholesky factor.

    Returns False if the matrix is not positive definite to working precision.
    """
    s = len(slots)
    if s == 1:
        grow(R, B, K, ridge, slots, 0, slots[0])
        return True
    copy_block(K, slots, slots, B)
    U = np.empty((s, s))
    if not _factorise(B, ridge, U):
        return False
    # z = Q^-1 1, and W with UW = I: solved for by rows, so that this residual is small;
    # with that of WU instead, digits would be lost. Then WW' is the inverse.
    z = np.ones(s)
    for i in range(s):
        z[i] /= U[i, i]
        for k in range(i + 1, s):
            z[k] -= U[i, k] * z[i]
    W = np.zeros((s, s))
    for i in range(s - 1, -1, -1):
        row = U[i]
        target = W[i]
        target[i] = 1.0
        for k in range(i + 1, s):
            factor = row[k]
            z[i] -= factor * z[k]
            below = W[k]
            for j in range(k, s):
                target[j] -= factor * below[j]
        z[i] /= row[i]
        for j in range(i, s):
            target[j] /= row[i]
    V = np.ascontiguousarray(W.T)
    total = z.sum()
    R[0, 0] = -1.0 / total
    for i in range(s):
        R[0, i + 1] = R[i + 1, 0] = z[i] / total
        factor = z[i] / total
        target = R[i + 1]
        for j in range(s):
            target[j + 1] = -factor * z[j]
    for k in range(s):
        row = V[k]
        for i in range(k + 1):
            factor = row[i]
            target = R[i + 1]
            for j in range(k + 1):
                target[j + 1] += factor * row[j]
    return True


class MarginInverse:
    """The margin samples in their places, with their kernel matrix and its inverse.

    Parameters
    ----------
    capacity : int
        Largest number of margin samples.
    reproducible : bool
        Whether a rebuild must give the same bits whatever BLAS does.

    Attributes
    ----------
    R : ndarray of shape (capacity + 1, capacity + 1), float64
        The bordered inverse, in its upper left corner.
    B : ndarray of shape (capacity, capacity), float64
        The kernel matrix of the margin samples, likewise.
    slots : ndarray of shape (capacity,), int64
        The margin samples by place.
    size : int
        Number of margin samples.
    worn : bool
        Whether it has lost digits, or was never built, and should be rebuilt.
    """

    def __init__(self, capacity: int, *, reproducible: bool = False) -> None:
        self._reproducible = reproducible
        self.R: FloatArray = np.zeros((capacity + 1, capacity + 1))
        self.B: FloatArray = np.zeros((capacity, capacity))
        self.slots: IntArray = np.zeros(capacity, dtype=np.int64)
        self.size = 0
        self.worn = False
        self._new_rate: float | None = None

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
        s = self.size
        larger.R[: s + 1, : s + 1] = self.R[: s + 1, : s + 1]
        larger.B[:s, :s] = self.B[:s, :s]
        larger.slots[:s] = self.margin
        self.R, self.B, self.slots = larger.R, larger.B, larger.slots

    def observe(self, rate: float) -> None:
        """Note how well the inverse contracts, and so whether it is worn.

        Parameters
        ----------
        rate : float
            What `refine` returned.
        """
        if self._new_rate is None:
            self._new_rate = rate
        self.worn = rate > max(_WORN[0] * self._new_rate, _WORN[1])

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
        self._new_rate = None
        if self._reproducible or s <= GROWN:
            if s and not invert(self.R, self.B, K, ridge, self.margin):
                raise IllConditionedMarginError(np.inf)
            return
        B = np.empty((s, s))
        copy_block(K, slots, slots, B)
        self.B[:s, :s] = B
        try:
            self.R[: s + 1, : s + 1] = MarginFactor(B, ridge).inverse()
        except IllConditionedMarginError:
            if not invert(self.R, self.B, K, ridge, self.margin):
                raise

    def holds(self, ridge: float) -> bool:
        """Whether R is proved to be near the inverse, whatever it is applied to.

        Parameters
        ----------
        ridge : float

        Returns
        -------
        bool
            False also where float64 cannot tell: if the ridge is lost beside the
            kernel values, copies make the matrix singular, and no residual shows it.
        """
        n = self.size + 1
        M = np.ones((n, n))
        M[0, 0] = 0.0
        M[1:, 1:] = self.B[: n - 1, : n - 1] + np.diag(np.full(n - 1, ridge))
        R = self.R[:n, :n]
        off = np.abs(R @ M - np.eye(n))
        off += 4.0 * (n + 8) * UNIT * (np.abs(R) @ np.abs(M))
        return bool(off.sum(axis=1).max() < 0.25)

    def defer(self, slots: IntArray) -> None:
        """Take the given margin samples, and leave their inverse to a later rebuild.

        Parameters
        ----------
        slots : ndarray of int64
        """
        self.size = len(slots)
        self.slots[: self.size] = slots
        self.worn = True

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
            False, with nothing taken in, if its pivot is not positive.
        """
        pivot = grow(self.R, self.B, K, ridge, self.slots, self.size, slot)
        self.size += pivot > 0.0
        return pivot > 0.0

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
        done = shrink(self.R, self.B, self.slots, self.size, place)
        self.size -= done
        return done
