"""Many small problems, and certificates of coefficients that come from anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from forgetmem.arrays import as_matrix, as_vector
from forgetmem.svm.certificate import Certificate, certify
from forgetmem.svm.kernel import as_kernel, check_lengths, gram
from forgetmem.svm.one_class import OneClassSVM, Solution, positive
from forgetmem.svm.partition import Box


def fit_many(
    many: Sequence[ArrayLike],
    *,
    gamma: float = 8.0,
    C: float = 1.0,
    ridge: float = 1e-8,
    kernel: str = "rbf",
) -> list[Solution]:
    """Solve many problems, each with its own rows.

    Parameters
    ----------
    many : sequence of array_like of shape (n_samples, n_features)
    gamma, C, ridge, kernel
        As for `OneClassSVM`.

    Returns
    -------
    list of Solution
        The same numbers, bit for bit, as one `OneClassSVM` for each.

    Raises
    ------
    InvalidInputError
        If a setting is bad or one of the matrices is no finite matrix.
    """
    svm = OneClassSVM(gamma, C, ridge, kernel=kernel)
    out = []
    for X in many:
        svm.fit(X)
        partition = svm.partition_
        out.append(Solution(svm.dual_coef_, svm.rho_, svm.weights_, partition))
    return out


def solution_certificate(
    X: ArrayLike,
    dual_coef: ArrayLike,
    *,
    gamma: float = 8.0,
    C: float = 1.0,
    ridge: float = 1e-8,
    kernel: str = "rbf",
) -> Certificate:
    """Bound the distance of given coefficients from the optimum for given rows.

    Parameters
    ----------
    X : array_like of shape (n_samples, n_features)
    dual_coef : array_like of shape (n_samples,)
    gamma, C, ridge, kernel
        As for `OneClassSVM`.

    Returns
    -------
    Certificate
        It trusts nothing but its arguments.

    Raises
    ------
    InvalidInputError
        If an argument is bad.
    """
    rows = as_matrix(X)
    alpha = as_vector(dual_coef, len(rows))
    shape = as_kernel(kernel)
    check_lengths(shape, rows)
    width, box = positive("gamma", gamma), Box(positive("C", C))
    K = gram(shape, width, rows)
    return certify(
        K, np.ascontiguousarray(alpha), positive("ridge", ridge, zero=True), box
    )
