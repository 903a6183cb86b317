"""A large margin system solved by its Cholesky factor, an eighth of an inverse's cost.

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


class MarginFactor:
    """The Cholesky factor of Q on some samples.

    Parameters
    ----------
    B : ndarray of shape (size, size), float64
        Their kernel matrix.
    ridge : float

    Raises
    ------
    IllConditionedMarginError
        If it is not positive definite to working precision.
    """

    def __init__(self, B: FloatArray, ridge: float) -> None:
        Q = B.copy().T
        Q[np.diag_indices(len(B))] += ridge
        self._factor, failed = lapack.dpotrf(Q, lower=1, clean=0, overwrite_a=1)
        if failed:
            raise IllConditionedMarginError(np.inf)
        self._B, self._ridge = B, ridge
        self._z = self._divide(np.ones(len(B)))
        self._total = float(self._z.sum())
        self._largest = float(B.diagonal().max()) + ridge

    def _divide(self, r: FloatArray) -> FloatArray:
        solution, _ = lapack.dpotrs(self._factor, r, lower=1)
        return np.asarray(solution, dtype=np.float64)

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
