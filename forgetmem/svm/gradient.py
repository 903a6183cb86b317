"""How the optimum answers to changes of the kernel matrix, by the maintained inverse.

Within a partition ``[-rho; alpha_M]`` solves the bordered system of the margin samples.
So a loss with the derivatives ``alpha_bar`` and ``rho_bar`` has the derivative ``-v_i
alpha_j`` for ``K_ij`` (before symmetrising), where ``Q_MM v + mu 1 = alpha_bar_M`` and
``sum(v) = -rho_bar``. The inverse that `OneClassSVM` maintains gives v by one product;
nothing is solved again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.svm.one_class import OneClassSVM


@dataclass(frozen=True)
class Sensitivities:
    """The inverse of the bordered margin matrix at one state of a solver.

    Parameters
    ----------
    n_samples : int
    margin : ndarray of int64
        Rows of the margin samples, in the order of the inverse.
    inverse : ndarray of shape (len(margin) + 1, len(margin) + 1), float64
        Of ``[[0, 1'], [1, Q_MM]]``.
    """

    n_samples: int
    margin: IntArray
    inverse: FloatArray

    def adjoint(self, dual_coef_bar: FloatArray, rho_bar: float = 0.0) -> FloatArray:
        """Find v: the loss has the derivative ``-v_i dual_coef_j`` for ``K_ij``.

        Parameters
        ----------
        dual_coef_bar : ndarray of shape (n_samples,), float64
            Derivative of the loss for each coefficient; those of reserve and bounded
            samples do not matter.
        rho_bar : float
            Derivative of the loss for `rho_`.

        Returns
        -------
        ndarray of shape (n_samples,), float64
            Exactly 0 outside the margin set.

        Notes
        -----
        O(margin**2).
        """
        out = np.zeros(self.n_samples)
        if len(self.margin):
            right = np.concatenate([[-rho_bar], dual_coef_bar[self.margin]])
            out[self.margin] = (self.inverse @ right)[1:]
        return out


def sensitivities(svm: OneClassSVM) -> Sensitivities:
    """Take the maintained inverse of `svm` as it stands.

    Parameters
    ----------
    svm : OneClassSVM

    Returns
    -------
    Sensitivities
        A copy; without margin samples (the warm-up, or all at a bound) it is empty, and
        all derivatives are 0.
    """
    samples, optimum = svm._maintained.samples, svm._maintained.optimum
    size = 0 if optimum is None else optimum.inverse.size
    if optimum is not None and optimum.inverse.worn:
        margin = optimum.inverse.margin.copy()
        optimum.inverse.rebuild(samples.K, samples.ridge, margin)
    margin = np.zeros(0, dtype=np.int64)
    inverse = np.zeros((1, 1))
    if optimum is not None and size:
        row_of = np.empty(samples.capacity, dtype=np.int64)
        row_of[samples.slots] = np.arange(len(samples.slots))
        margin = row_of[optimum.inverse.margin]
        inverse = optimum.inverse.R[: size + 1, : size + 1].copy()
        if samples.scale:
            inverse[1:, 1:] = np.ldexp(inverse[1:, 1:], -samples.scale)
            inverse[0, 0] = math.ldexp(inverse[0, 0], samples.scale)
    return Sensitivities(svm.n_samples, margin, inverse)
