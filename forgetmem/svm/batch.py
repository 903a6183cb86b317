"""Many small problems at once, and certificates of coefficients from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from forgetmem.arrays import BoolArray, FloatArray, IntArray, as_matrix, as_vector
from forgetmem.jit import compiled
from forgetmem.svm.certificate import SMALL, Certificate, certify, certify_many
from forgetmem.svm.kernel import Kernel, check_lengths, grams, scale_of
from forgetmem.svm.margin_inverse import invert
from forgetmem.svm.one_class import OneClassSVM, weights
from forgetmem.svm.partition import BOUNDED, Statuses
from forgetmem.svm.pivoting import DONE, members, pivot
from forgetmem.svm.problem import RIDGE_FLOOR
from forgetmem.svm.samples import Samples
from forgetmem.svm.settling import settle

#: A problem with more rows is solved on its own.
_SMALL = 96
#: So many kernel values are held at a time (8 bytes each).
_CHUNK = 4_000_000


@dataclass(frozen=True)
class Solution:
    """What `fit_many` finds for one set of rows.

    Parameters
    ----------
    dual_coef : ndarray of shape (n_samples,), float64
    rho : float
    weights : ndarray of shape (n_samples,), float64
        ``dual_coef / rho``; all 1 in the warm-up.
    partition : ndarray of shape (n_samples,), int8
        0 reserve, 1 margin, 2 bounded.
    """

    dual_coef: FloatArray
    rho: float
    weights: FloatArray
    partition: Statuses


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
    rows = [as_matrix(X) for X in many]
    for X in rows:
        check_lengths(svm.kernel, X)
    found: list[Solution | None] = [None] * len(rows)
    small = [
        place
        for place, X in enumerate(rows)
        if svm.box.feasible(len(X)) and len(X) <= _SMALL
    ]
    for width in sorted({rows[place].shape[1] for place in small}):
        same = [place for place in small if rows[place].shape[1] == width]
        for chunk in _chunks(rows, same):
            _solve_chunk(svm, rows, chunk, found)
    return [
        _alone(svm, X) if solution is None else solution
        for X, solution in zip(rows, found, strict=True)
    ]


def _alone(svm: OneClassSVM, X: FloatArray) -> Solution:
    svm.fit(X)
    return Solution(svm.dual_coef_, svm.rho_, svm.weights_, svm.partition_)


def _chunks(rows: list[FloatArray], places: list[int]) -> list[list[int]]:
    chunks: list[list[int]] = []
    values = _CHUNK
    for place in places:
        values += len(rows[place]) ** 2
        if values > _CHUNK:
            chunks.append([])
            values = len(rows[place]) ** 2
        chunks[-1].append(place)
    return chunks


def _solve_chunk(
    svm: OneClassSVM,
    rows: list[FloatArray],
    places: list[int],
    found: list[Solution | None],
) -> None:
    starts = np.cumsum([0, *(len(rows[place]) for place in places)])
    X = np.vstack([rows[place] for place in places])
    K = grams(svm.kernel, svm.gamma, X, starts)
    largest = max(len(rows[place]) for place in places)
    most = min(largest, int(1 / svm.box.exact))  # no more can be bounded
    rests = np.array([svm.box.rest_parts(count) for count in range(most + 1)])
    alpha, rho = np.zeros(len(X)), np.zeros(len(places))
    status = np.ones(len(X), dtype=np.int8)
    sure = np.zeros(len(places), dtype=np.bool_)
    _solve_many(
        K,
        starts,
        svm.ridge,
        svm.C,
        svm.box.parts,
        rests,
        svm.box.tie,
        RIDGE_FLOOR,
        alpha,
        rho,
        status,
        sure,
    )
    for number, place in enumerate(places):
        if sure[number]:
            part = slice(starts[number], starts[number + 1])
            level = float(rho[number])
            found[place] = Solution(
                alpha[part].copy(),
                level,
                weights(alpha[part], level),
                status[part].copy(),
            )


@compiled
def _solve_many(
    values: FloatArray,
    starts: IntArray,
    ridge: float,
    C: float,
    parts: FloatArray,
    rests: FloatArray,
    tie: float,
    floor: float,
    alphas: FloatArray,
    rhos: FloatArray,
    statuses: Statuses,
    sure: BoolArray,
) -> None:
    # Solve each problem in one go; `sure` where no sign and no rounding was in doubt.
    place = 0
    for number in range(len(starts) - 1):
        n = starts[number + 1] - starts[number]
        K = values[place : place + n * n].reshape(n, n)
        place += n * n
        alpha = alphas[starts[number] : starts[number + 1]]
        status = statuses[starts[number] : starts[number + 1]]
        largest = 0.0
        for i in range(n):
            largest = max(largest, K[i, i] + ridge)
        if ridge < floor * largest or not 2.0**-39 < largest < 2.0**39:
            continue
        R = np.zeros((n + 1, n + 1))
        B = np.zeros((n, n))
        slots = np.arange(n)
        h = np.zeros(n)
        if not invert(R, B, K, ridge, slots):
            continue
        end, size, rho = pivot(K, ridge, C, status, alpha, h, n, R, B, slots, n, n)
        if end != DONE:
            continue
        n_bounded = len(members(status, BOUNDED, n))
        sure[number], rhos[number], _, _ = settle(
            K,
            B,
            ridge,
            C,
            largest,
            tie,
            parts,
            rests[n_bounded],
            status,
            alpha,
            h,
            rho,
            np.inf,
            n,
            R,
            slots,
            size,
        )


def solution_certificates(
    many: Sequence[ArrayLike],
    dual_coefs: Sequence[ArrayLike],
    *,
    gamma: float = 8.0,
    C: float = 1.0,
    ridge: float = 1e-8,
    kernel: str = "rbf",
) -> list[Certificate]:
    """Bound the distance of given coefficients from the optimum of many problems.

    Parameters
    ----------
    many : sequence of array_like of shape (n_samples, n_features)
    dual_coefs : sequence of array_like of shape (n_samples,)
    gamma, C, ridge, kernel
        As for `OneClassSVM`.

    Returns
    -------
    list of Certificate
        Each is what `solution_certificate` returns.

    Raises
    ------
    InvalidInputError
        If an argument is bad.
    """
    svm = OneClassSVM(gamma, C, ridge, kernel=kernel)
    rows = [as_matrix(X) for X in many]
    alphas = [
        np.ascontiguousarray(as_vector(alpha, len(X)))
        for X, alpha in zip(rows, dual_coefs, strict=True)
    ]
    found: list[Certificate | None] = [None] * len(rows)
    # A huge ridge or the linear kernel may have to be scaled, each problem by itself.
    if svm.kernel is Kernel.RBF and scale_of(1.0 + ridge) == 0:
        small = [
            place
            for place, X in enumerate(rows)
            if svm.box.feasible(len(X)) and len(X) <= SMALL
        ]
        for width in sorted({rows[place].shape[1] for place in small}):
            same = [place for place in small if rows[place].shape[1] == width]
            for chunk in _chunks(rows, same):
                starts = np.cumsum([0, *(len(rows[place]) for place in chunk)])
                X = np.vstack([rows[place] for place in chunk])
                K = grams(svm.kernel, svm.gamma, X, starts)
                alpha = np.concatenate([alphas[place] for place in chunk])
                stated = certify_many(K, starts, alpha, ridge, svm.box)
                for place, one in zip(chunk, stated, strict=True):
                    found[place] = one
    return [
        one
        or solution_certificate(X, alpha, gamma=gamma, C=C, ridge=ridge, kernel=kernel)
        for one, X, alpha in zip(found, rows, alphas, strict=True)
    ]


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
    settings = OneClassSVM(gamma, C, ridge, kernel=kernel)
    rows = as_matrix(X)
    check_lengths(settings.kernel, rows)
    alpha = np.ascontiguousarray(as_vector(dual_coef, len(rows)))
    samples = Samples(settings.kernel, settings.gamma, settings.ridge, rows)
    found = certify(samples.K, alpha, samples.ridge, settings.box)
    return found.scaled(samples.scale)
