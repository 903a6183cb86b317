"""Certificates are never exceeded, and notice what was changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import lapack
from svm.regimes import BOXES, exact
from svm.test_exactness import CASES

from forgetmem.arrays import FloatArray
from forgetmem.svm import (
    Certificate,
    OneClassSVM,
    certificate,
    solution_certificate,
    solution_certificates,
)
from forgetmem.svm.kernel import Kernel, gram
from forgetmem.svm.reference import Exact


def deviations(
    K: FloatArray, ridge: float, alpha: FloatArray, truth: Exact
) -> tuple[float, float]:
    """Distance of `alpha` from the truth in the norm of Q and in the plain one."""
    d = [Fraction(a) - b for a, b in zip(alpha.tolist(), truth.alpha, strict=True)]
    rows = [[Fraction(k) for k in row] for row in K.tolist()]
    inner = sum(
        x * sum(k * y for k, y in zip(row, d, strict=True))
        for x, row in zip(d, rows, strict=True)
    )
    plain = sum(x * x for x in d)
    return math.sqrt(inner + Fraction(ridge) * plain), math.sqrt(plain)


def holds(stated: Certificate, away: tuple[float, float]) -> bool:
    """Whether no bound is exceeded."""
    in_q, plain = away
    return in_q <= min(stated.sharp_bound, stated.bound) and plain <= stated.coef_bound


def swap(alpha: FloatArray) -> FloatArray:
    """The coefficients with the largest and the smallest exchanged."""
    out = alpha.copy()
    first, last = int(alpha.argmax()), int(alpha.argmin())
    out[[first, last]] = alpha[[last, first]]
    return out


def shift(size: float) -> Callable[[FloatArray], FloatArray]:
    """Move mass of this size from the largest coefficient to the first."""

    def change(alpha: FloatArray) -> FloatArray:
        out = alpha.copy()
        out[int(alpha.argmax())] -= size
        out[0] += size
        return out

    return change


CHANGES: list[Callable[[FloatArray], FloatArray]] = [
    lambda alpha: alpha,
    lambda alpha: np.nextafter(alpha, 1.0),
    shift(1e-15),
    shift(1e-12),
    shift(1e-6),
    swap,
    lambda alpha: 0.7 * alpha,
    lambda alpha: alpha + 0.1,
    lambda alpha: 0.0 * alpha,
    lambda alpha: -alpha,
]


@pytest.mark.parametrize(("X", "gamma"), CASES)
def test_no_bound_is_ever_exceeded(X: FloatArray, gamma: float) -> None:
    """For the stored numbers and for corrupted ones, against a rational solution."""
    K = gram(Kernel.RBF, gamma, X)
    for C in (1.0, 0.25, 1 / 6, 1.0001 / 16):
        svm = OneClassSVM(gamma=gamma, C=C).fit(X)
        if not svm.box.feasible(len(X)):
            continue
        truth = exact(X, gamma, C, 1e-8, svm.dual_coef_)
        stated = svm.certificate()
        for change in CHANGES:
            alpha = change(svm.dual_coef_)
            found = solution_certificate(X, alpha, gamma=gamma, C=C)
            away = deviations(K, 1e-8, alpha, truth)
            assert holds(found, away)
            if away[0] > stated.sharp_bound:
                assert found.sharp_bound > stated.sharp_bound


@pytest.mark.parametrize("C", BOXES)
def test_the_sharp_bound_is_sharp_where_nothing_is_singular(C: float) -> None:
    """On Gaussian rows it is near 1e-16, and the bound from the gap near 1e-8."""
    X = np.random.default_rng(0).normal(size=(16, 6))
    found = OneClassSVM(gamma=0.25, C=C).fit(X).certificate()
    assert 0.0 < found.sharp_bound < 1e-14
    assert 0.0 < found.kkt_residual < 1e-15
    assert 0.0 <= found.bound < 1e-6
    assert found.duality_gap < 1e-13


def test_a_solver_and_its_certificate_agree_with_one_from_outside() -> None:
    """The certificate needs the rows and the coefficients, not the solver."""
    X = np.random.default_rng(1).normal(size=(20, 3))
    svm = OneClassSVM(gamma=0.3, C=0.2).fit(X).unlearn([4, 9])
    outside = solution_certificate(svm.X_, svm.dual_coef_, gamma=0.3, C=0.2)
    assert svm.certificate() == outside


def test_without_a_ridge_the_eigenvalue_is_proved_or_the_bound_is_infinite() -> None:
    """With ridge 0, K itself must be shown to be positive definite."""
    X = np.random.default_rng(2).normal(size=(12, 5))
    svm = OneClassSVM(gamma=0.25, ridge=0.0).fit(X)
    found = svm.certificate()
    truth = exact(X, 0.25, 1.0, 0.0, svm.dual_coef_)
    K = gram(Kernel.RBF, 0.25, X)
    assert holds(found, deviations(K, 0.0, svm.dual_coef_, truth))
    assert found.sharp_bound < 1e-14
    copies = OneClassSVM(ridge=0.0).fit(np.ones((5, 2))).certificate()
    assert copies.sharp_bound == math.inf
    assert copies.bound < 1e-6


@pytest.mark.parametrize("first", [0, 1])
def test_an_eigenvalue_that_cannot_be_proved_is_not_used(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no shifted matrix, or not even Q, is factorised, the ridge alone counts."""

    class Stubborn:
        calls = 0

        def dpotrf(self, a: FloatArray, lower: int) -> tuple[FloatArray, int]:
            self.calls += 1
            failed = first or self.calls % 4 != 1
            return lapack.dpotrf(a, lower=lower)[0], int(failed)

        dpotrs = staticmethod(lapack.dpotrs)

    X = np.random.default_rng(3).normal(size=(12, 5))
    svm = OneClassSVM(gamma=0.25).fit(X)
    monkeypatch.setattr(certificate, "SMALL", 0)
    proved = svm.certificate()
    monkeypatch.setattr(certificate, "lapack", Stubborn())
    found = svm.certificate()
    assert found.coef_bound > 100 * proved.coef_bound
    assert found.sharp_bound >= proved.sharp_bound


@pytest.mark.parametrize("C", [1.0, 0.25, 1.0001 / 16])
@pytest.mark.parametrize("ridge", [1e-8, 1e-3, 0.0])
def test_many_at_once_are_those_one_by_one(
    C: float, ridge: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiled pass and the factorisations by LAPACK state the same bounds."""
    rng = np.random.default_rng(4)
    many, coefs = [], []
    for size in (1, 2, 3, 5, 17, 18, 40, 95, 96, 97, 130):
        X = rng.normal(size=(size, 4))
        X[size // 2 :] = X[: size - size // 2] + 0.05 * rng.normal(
            size=X[size // 2 :].shape
        )
        alpha = OneClassSVM(gamma=0.5, C=C, ridge=ridge).fit(X).dual_coef_
        for change in CHANGES[:7]:
            many.append(X)
            coefs.append(change(alpha))
    options = {"gamma": 0.5, "C": C, "ridge": ridge}
    found = solution_certificates(many, coefs, **options)
    one_by_one = [
        solution_certificate(X, alpha, **options)
        for X, alpha in zip(many, coefs, strict=True)
    ]
    assert found == one_by_one
    monkeypatch.setattr(certificate, "SMALL", 0)
    for X, alpha, one in zip(many, coefs, found, strict=True):
        other = solution_certificate(X, alpha, **options)
        assert one.tied == other.tied
        for name in (
            "kkt_residual",
            "duality_gap",
            "bound",
            "sharp_bound",
            "coef_bound",
        ):
            # The order in which rho is averaged moves the slacks by a roundoff.
            close = pytest.approx(getattr(other, name), rel=1e-2, abs=1e-18)
            assert getattr(one, name) == close, (len(X), name)


def test_certificates_of_the_linear_kernel_are_scaled_one_by_one() -> None:
    """Problems of very different size in one call."""
    rng = np.random.default_rng(5)
    many = [scale * rng.normal(size=(6, 3)) for scale in (1e-12, 1.0, 1e15)]
    coefs = [np.full(6, 1 / 6)] * 3
    found = solution_certificates(many, coefs, kernel="linear")
    assert found == [
        solution_certificate(X, alpha, kernel="linear")
        for X, alpha in zip(many, coefs, strict=True)
    ]


def test_warm_up_certificates_speak_of_one_over_n() -> None:
    """There is no optimum to be near; the state is 1/n by definition."""
    X = np.eye(3)
    found = solution_certificate(X, [1 / 3, 1 / 3, 1 / 3 + 1e-9], C=0.3)
    assert 1e-9 <= found.coef_bound < 1.01e-9
    assert (found.kkt_residual, found.tied) == (0.0, False)


@settings(max_examples=50, deadline=None)
@given(
    alpha=st.lists(st.floats(-2, 2), min_size=6, max_size=6),
    C=st.sampled_from([1.0, 0.25, 1 / 6, 3.0]),
    ridge=st.sampled_from([1e-8, 1e-3]),
)
def test_bounds_hold_for_any_coefficients(
    alpha: list[float], C: float, ridge: float
) -> None:
    """Even for numbers that have nothing to do with the rows."""
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [0, 0]], dtype=np.float64)
    given = np.array(alpha)
    found = solution_certificate(X, given, gamma=0.4, C=C, ridge=ridge)
    truth = exact(X, 0.4, C, ridge)
    assert holds(found, deviations(gram(Kernel.RBF, 0.4, X), ridge, given, truth))
