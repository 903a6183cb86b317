"""Margin sets too large for the small ways: the numbers are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from svm.test_exactness import same

from forgetmem.arrays import FloatArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm import OneClassSVM, active_set, fresh, margin_factor
from forgetmem.svm.gradient import sensitivities
from forgetmem.svm.kernel import Kernel, gram, kernel_row
from forgetmem.svm.margin_factor import MarginFactor
from forgetmem.svm.margin_inverse import MarginInverse

X = np.random.default_rng(0).normal(size=(420, 8))


@pytest.fixture(scope="module", params=[1.0, 1 / 200])
def C(request: pytest.FixtureRequest) -> float:  # noqa: N802
    """Hard margin, and a box in which many rows are bounded."""
    return float(request.param)


@pytest.fixture(scope="module")
def by_inverse(C: float) -> OneClassSVM:
    """A fit with the inverse from the start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_set, "GROWN", 10**6)
        patch.setattr(active_set, "settle_by_factor", lambda *_: False)
        return OneClassSVM(gamma=0.6, C=C).fit(X)


def test_a_large_fit_needs_no_inverse(C: float, by_inverse: OneClassSVM) -> None:
    """The Cholesky factor leads to the same numbers; the inverse comes when needed."""
    svm = OneClassSVM(gamma=0.6, C=C).fit(X)
    assert same(by_inverse, svm, slice(None))
    optimum = svm._maintained.optimum
    assert optimum is not None and optimum.inverse.worn
    bar = np.random.default_rng(1).normal(size=420)
    ours = sensitivities(svm).adjoint(bar, 0.2)
    assert not optimum.inverse.worn
    assert np.abs(ours - sensitivities(by_inverse).adjoint(bar, 0.2)).max() < 1e-9


def test_large_fits_go_on_along_the_path(C: float, by_inverse: OneClassSVM) -> None:
    """Learning and unlearning after a fit by the factor, against fresh fits."""
    svm = OneClassSVM(gamma=0.6, C=C).fit(X[:418])
    svm.unlearn(int(svm.margin_[3])).learn(X[418:])
    fresh_fit = OneClassSVM(gamma=0.6, C=C).fit(svm.X_[::-1])
    assert same(svm, fresh_fit, slice(None, None, -1))


@pytest.mark.parametrize("name", ["refine", "__init__"])
def test_a_factor_that_fails_leaves_it_to_the_inverse(
    name: str, C: float, by_inverse: OneClassSVM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it cannot be computed or does not lead to the solution."""

    def fail(*_: object) -> None:
        raise IllConditionedMarginError(1e20)

    monkeypatch.setattr(fresh.MarginFactor, name, fail)
    assert same(by_inverse, OneClassSVM(gamma=0.6, C=C).fit(X), slice(None))


def test_doubt_leaves_it_to_the_active_set(
    C: float, by_inverse: OneClassSVM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rounding in doubt, and a partition that is never right."""
    with monkeypatch.context() as patch:
        patch.setattr(fresh, "round_off", lambda *_: False)
        assert same(by_inverse, OneClassSVM(gamma=0.6, C=C).fit(X), slice(None))
    monkeypatch.setattr(fresh, "_improve", lambda *_: False)
    assert same(by_inverse, OneClassSVM(gamma=0.6, C=C).fit(X), slice(None))


def test_a_poor_guess_is_mended_by_exchanges(
    C: float, by_inverse: OneClassSVM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started from all rows on the margin, the factor finds the partition itself."""
    monkeypatch.setattr(active_set, "smo", lambda *_: None)
    assert same(by_inverse, OneClassSVM(gamma=0.6, C=C).fit(X), slice(None))


def arc(n: int, seed: int) -> FloatArray:
    """Rows on an arc: their kernel matrix has hardly more than 30 eigenvalues."""
    angles = np.sort(np.random.default_rng(seed).random(n)) * 5.0
    return np.column_stack([np.cos(angles), np.sin(angles)])


def spread(rng: np.random.Generator, n: int) -> FloatArray:
    """Rows in pairs of near copies."""
    half = rng.normal(size=(n // 2, 6))
    return np.vstack([half, half + 1e-9])


@pytest.mark.parametrize("n", [2, 40, 184, 300])
@pytest.mark.parametrize("kind", ["arc", "near", "constant"])
def test_inverses_contract_although_the_matrix_is_near_singular(
    n: int, kind: str
) -> None:
    """With a ridge of 1e-8, by the compiled factor and by LAPACK's."""
    rng = np.random.default_rng(n)
    rows = {"arc": arc(n, 0), "near": spread(rng, n), "constant": np.ones((n, 2))}
    K = gram(Kernel.RBF, 8.0, rows[kind])
    M = np.ones((n + 1, n + 1))
    M[0, 0] = 0.0
    M[1:, 1:] = K + 1e-8 * np.eye(n)
    for reproducible in (False, True):
        inverse = MarginInverse(n, reproducible=reproducible)
        inverse.rebuild(K, 1e-8, np.arange(n))
        product = M @ inverse.R[: n + 1, : n + 1]
        assert np.linalg.norm(product - np.eye(n + 1), 2) < 1e-4


@pytest.mark.parametrize("seed", range(12))
def test_long_arcs_are_solved_exactly_in_any_order(seed: int) -> None:
    """Chains that wander are optimal, and go on so when rows come and go."""
    rows = arc(300, seed)
    one = OneClassSVM(gamma=8.0).fit(rows)
    two = OneClassSVM(gamma=8.0).fit(rows[::-1])
    assert same(one, two, slice(None, None, -1))
    assert one.certificate().kkt_residual < 1e-15
    rng = np.random.default_rng(seed)
    for _ in range(4):
        gone = int(rng.choice(one.support_))
        kept = np.delete(one.X_, gone, axis=0)
        one.unlearn(gone)
        assert same(OneClassSVM(gamma=8.0).fit(kept), one, slice(None))
    one.learn(rows[:2])
    assert same(OneClassSVM(gamma=8.0).fit(one.X_), one, slice(None))


def test_a_factor_that_does_not_contract_is_refused() -> None:
    """Refinement with the factor of another matrix ends in an error."""
    K = gram(Kernel.RBF, 0.15, X[:20])
    factor = MarginFactor(K, 1e-3)
    factor._factor *= 0.1
    empty = np.zeros(0, dtype=np.int64)
    one, half = np.array([1.0, 0, 0]), np.array([0.5, 0, 0])
    with pytest.raises(IllConditionedMarginError):
        factor.refine(K, np.arange(20), empty, half, one, np.zeros((21, 3)))


@pytest.mark.parametrize("n", [1, 63, 64, 65, 255, 256, 300])
@pytest.mark.parametrize("d", [1, 7, 8, 31, 32, 45])
def test_kernel_matrices_have_the_bits_of_their_rows(n: int, d: int) -> None:
    """Every way to evaluate the kernel of a pair gives the same bits."""
    Y = np.random.default_rng(n + d).normal(size=(n, d))
    for kernel in (Kernel.RBF, Kernel.LINEAR):
        K: FloatArray = gram(kernel, 0.05, Y)
        for row in {0, n // 2, n - 1}:
            assert np.array_equal(K[row], kernel_row(kernel, 0.05, Y, Y[row]))
        assert np.array_equal(K, K.T)


@pytest.mark.parametrize("width", [2.0, 0.05])
def test_conjugate_gradients_and_the_factor_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, width: float
) -> None:
    """Unlike rows, for which gradients are enough, and rows for which they are not."""
    X = np.random.default_rng(21).normal(size=(400, 24))
    gradients, factors = fit_with(monkeypatch, X, width, 1), []
    build = margin_factor.MarginFactor.__init__

    def counted(self: Any, *args: Any) -> None:
        factors.append(len(args[0]))
        build(self, *args)

    monkeypatch.setattr(margin_factor.MarginFactor, "__init__", counted)
    again = fit_with(monkeypatch, X, width, 1)
    assert bool(factors) == (width < 1.0)
    by_factor = fit_with(monkeypatch, X, width, 10_000)
    for other in (again, by_factor):
        assert np.array_equal(gradients.dual_coef_, other.dual_coef_)
        assert gradients.rho_ == other.rho_


def fit_with(
    monkeypatch: pytest.MonkeyPatch, X: FloatArray, width: float, large: int
) -> OneClassSVM:
    """Fit with gradients tried from so many margin samples on."""
    monkeypatch.setattr(fresh, "_LARGE", large)
    monkeypatch.setattr(active_set, "GROWN", 16)
    return OneClassSVM(gamma=width).fit(X)
