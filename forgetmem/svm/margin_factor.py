"""A large margin system solved without its inverse, at an eighth of the cost or less.

A fit from scratch needs the solution, not the inverse; that is built when a row comes
or goes. With z = Q^-1 1 the bordered system ``[[0, 1'], [1, Q]] [d0; d] = [r0; r]`` has
the solution ``d0 = (z'r - r0) / z'1`` and ``d = Q^-1 r - d0 z``.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import lapack

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.extended import noise
from forgetmem.svm.refinement import advance, base_sums, residual, subtract

_LEVEL = 3
#: Conjugate gradients end when this share of the right side is left; each step has to
#: leave no more than the second share of what there was.
_EXACT, _SHARE, _STEPS = 2.0**-44, 2.0**-4, 12


class MarginSystem:
    """The bordered system of some samples, for a way to divide by Q.

    Parameters
    ----------
    B : ndarray of shape (size, size), float64
        Their kernel matrix.
    ridge : float

    Raises
    ------
    IllConditionedMarginError
        If Q cannot be divided by.
    """

    def __init__(self, B: FloatArray, ridge: float) -> None:
        self._B, self._ridge = B, ridge
        self._largest = float(B.diagonal().max()) + ridge
        self._z = self._divide(np.ones(len(B)))
        self._total = float(self._z.sum())

    def _divide(self, r: FloatArray) -> FloatArray:
        raise NotImplementedError

    def solve(self, right: FloatArray) -> FloatArray:
        """Solve the bordered system in float64.

        Parameters
        ----------
        right : ndarray of shape (size + 1,), float64

        Returns
        -------
        ndarray of shape (size + 1,), float64
        """
        y = self._divide(right[1:])
        first = (float(y.sum()) - right[0]) / self._total
        return np.append(first, y - first * self._z)

    def refine(
        self,
        K: FloatArray,
        margin: IntArray,
        bounded: IntArray,
        parts: FloatArray,
        rest: FloatArray,
        x: FloatArray,
    ) -> FloatArray:
        """Refine ``x = [-rho; alpha_margin]`` in threefold precision.

        Parameters
        ----------
        K : ndarray of float64
            Kernel matrix of all slots.
        margin, bounded : ndarray of int64
            Slots.
        parts, rest : ndarray of shape (3,), float64
            The bound, and what the margin coefficients sum to.
        x : ndarray of shape (size + 1, 3), float64
            A first solution; refined in place.

        Returns
        -------
        ndarray of shape (size + 1,), float64
            Bound on what is left of the error.

        Raises
        ------
        IllConditionedMarginError
            If the factor does not lead to the solution.
        """
        base = base_sums(K, margin, bounded, parts, _LEVEL)
        r = np.empty((2, len(x)))
        before = math.inf
        while True:
            residual(self._B, self._ridge, base, rest, x, _LEVEL, r)
            d = self.solve(r[0])
            step, scale = advance(x, d, _LEVEL)
            if not step < 0.25 * before:
                raise IllConditionedMarginError(before)
            if step <= 2.0**-70 * scale:
                slip = subtract(self._B, self._ridge, d, float(self._largest), r)
                return self._error(r[0], slip, len(bounded), x)
            before = step

    def _error(
        self, r: FloatArray, slip: float, n_bounded: int, x: FloatArray
    ) -> FloatArray:
        # |d|_2 <= |r| / ridge for r0 = 0, and r0 is spread as z; half the ridge makes
        # up for rounding.
        s = len(x) - 1
        weight = float(np.abs(x).sum()) + 1.0
        loss = noise(s + n_bounded, _LEVEL) * (self._largest + 2.0) * weight
        left = float(np.abs(r).max()) + slip + loss
        error = np.abs(self._z) * (2.0 * left / self._total)
        error += math.sqrt(s) * left / (0.5 * self._ridge)
        spread = float(np.abs(self._z).sum()) + 1.0
        error = np.append(2.0 * left * spread / self._total, error)
        return error + 2.0**-157 * np.abs(x[:, 0])


class MarginFactor(MarginSystem):
    """Division by the Cholesky factor of Q; see `MarginSystem`."""

    def __init__(self, B: FloatArray, ridge: float) -> None:
        Q = B.copy().T
        Q[np.diag_indices(len(B))] += ridge
        self._factor, failed = lapack.dpotrf(Q, lower=1, clean=0, overwrite_a=1)
        if failed:
            raise IllConditionedMarginError(np.inf)
        super().__init__(B, ridge)

    def _divide(self, r: FloatArray) -> FloatArray:
        solution, _ = lapack.dpotrs(self._factor, r, lower=1)
        return np.asarray(solution, dtype=np.float64)

    def inverse(self) -> FloatArray:
        """Invert the bordered matrix; the factor is lost.

        Returns
        -------
        ndarray of shape (size + 1, size + 1), float64
        """
        half, _ = lapack.dpotri(self._factor, lower=1, overwrite_c=1)
        s = len(half)
        R = np.empty((s + 1, s + 1))
        R[1:, 1:] = np.tril(half)
        R[1:, 1:] += np.tril(half, -1).T
        R[1:, 1:] -= np.outer(self._z, self._z / self._total)
        R[0, 1:] = R[1:, 0] = self._z / self._total
        R[0, 0] = -1.0 / self._total
        return R


class MarginGradients(MarginSystem):
    """Division by conjugate gradients, by a factor once they would take many steps.

    With unlike samples Q is close to a multiple of the identity, and a step costs a
    hundredth of a large factor. See `MarginSystem`.
    """

    def __init__(self, B: FloatArray, ridge: float) -> None:
        self._instead: MarginFactor | None = None
        super().__init__(B, ridge)

    def _divide(self, r: FloatArray) -> FloatArray:
        x = None if self._instead else self._descend(r)
        if x is None:
            self._instead = self._instead or MarginFactor(self._B, self._ridge)
            return self._instead._divide(r)
        return x

    def _descend(self, r: FloatArray) -> FloatArray | None:
        x, left, way = np.zeros(len(r)), r.copy(), r.copy()
        size = start = float(r @ r)
        for _ in range(_STEPS):
            if size <= _EXACT**2 * start:
                return x
            change = self._B @ way + self._ridge * way
            length = size / float(way @ change)
            x += length * way
            left -= length * change
            before, size = size, float(left @ left)
            if not size <= _SHARE**2 * before:
                return None
            way = left + (size / before) * way
        return None
