"""The stored numbers are those of the exact optimum, rounded once, in every regime."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.svm
from svm.regimes import BOXES, by_quadprog, exact, regimes
from threadpoolctl import threadpool_limits

from forgetmem.arrays import FloatArray
from forgetmem.svm import OneClassSVM
from forgetmem.svm.kernel import Kernel, gram

CASES = [pytest.param(X, gamma, id=name) for name, X, gamma in regimes(0)]


def same(a: OneClassSVM, b: OneClassSVM, order: FloatArray | slice) -> bool:
    """Whether `b` has the numbers of `a` for its rows in this order."""
    return (
        np.array_equal(a.dual_coef_[order], b.dual_coef_)
        and np.array_equal(a.partition_[order], b.partition_)
        and np.array_equal(a.weights_[order], b.weights_)
        and (a.rho_, a.offset_) == (b.rho_, b.offset_)
    )


@pytest.mark.parametrize(("X", "gamma"), CASES)
def test_every_number_is_the_exact_one_rounded_once(
    X: FloatArray, gamma: float
) -> None:
    """Coefficients, rho and partition equal those of a rational solve."""
    for C in BOXES:
        if len(X) * C < 0.99:
            continue
        svm = OneClassSVM(gamma=gamma, C=C).fit(X)
        truth = exact(X, gamma, C, 1e-8, svm.dual_coef_)
        assert svm.dual_coef_.tolist() == [float(a) for a in truth.alpha]
        assert svm.rho_ == float(truth.rho)
        assert svm.partition_.tolist() == truth.partition


@pytest.mark.parametrize(("X", "gamma"), CASES)
def test_the_order_of_the_rows_does_not_show(X: FloatArray, gamma: float) -> None:
    """Permuted rows give permuted numbers, bit for bit, and so does a warm start."""
    rng = np.random.default_rng(1)
    for C in BOXES:
        svm = OneClassSVM(gamma=gamma, C=C).fit(X)
        for start in (None, rng.random(len(X)), np.eye(len(X))[0], svm.dual_coef_):
            order = rng.permutation(len(X))
            other = OneClassSVM(gamma=gamma, C=C).fit(X[order], start)
            assert same(svm, other, order)
            scores = svm.score_samples(X[::-1])[::-1]
            assert np.array_equal(other.score_samples(X), scores)


@pytest.mark.parametrize(("X", "gamma"), CASES)
def test_scores_agree_with_an_independent_qp(X: FloatArray, gamma: float) -> None:
    """Scores are within 1e-9 of those of quadprog on the same K.

    Its own residual bounds how far it is off; near-singular K let it stop early.
    """
    K = gram(Kernel.RBF, gamma, X)
    Q = K + 1e-8 * np.eye(len(X))
    for C in (1.0, 0.25, 1 / 6.4):
        svm = OneClassSVM(gamma=gamma, C=C).fit(X)
        theirs = by_quadprog(Q, C)
        assert np.abs(K @ (theirs - svm.dual_coef_)).max() < 1e-9
        ours = svm.dual_coef_ @ Q @ svm.dual_coef_
        assert ours <= theirs @ Q @ theirs + 1e-12  # it errs outside the box


@pytest.mark.parametrize("n", [130, 300])
@pytest.mark.parametrize("C", [1.0, 1 / 30])
def test_the_number_of_blas_threads_does_not_show(n: int, C: float) -> None:
    """One thread and two give the same bits, where BLAS itself does not."""
    X = np.random.default_rng(n).normal(size=(n, 8))
    fits = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            svm = OneClassSVM(gamma=0.1, C=C).fit(X)
            fits.append(svm.unlearn([5, n // 2]).learn(X[5:6]))
    assert same(fits[0], fits[1], slice(None))


@pytest.mark.parametrize("nu", [0.1, 0.5])
def test_the_scale_is_that_of_scikit_learn(nu: float) -> None:
    """Theirs sums to nu n, and stops near 1e-7; the decisions are the same."""
    X = np.random.default_rng(3).normal(size=(90, 4))
    theirs = sklearn.svm.OneClassSVM(gamma=0.3, nu=nu, tol=1e-10).fit(X)
    ours = OneClassSVM(gamma=0.3, C=1 / (nu * 90)).fit(X)
    difference = theirs.decision_function(X) / (nu * 90) - ours.decision_function(X)
    assert np.abs(difference).max() < 1e-6
    assert set(theirs.support_) == set(ours.support_)


def test_without_a_ridge_the_problem_is_met_to_the_letter() -> None:
    """With ridge 0 a unique optimum is found as exactly."""
    X = np.random.default_rng(4).normal(size=(14, 5))
    for C in (1.0, 0.2):
        svm = OneClassSVM(gamma=0.25, C=C, ridge=0.0).fit(X)
        truth = exact(X, 0.25, C, 0.0, svm.dual_coef_)
        assert svm.dual_coef_.tolist() == [float(a) for a in truth.alpha]
        order = np.random.default_rng(5).permutation(14)
        assert same(svm, OneClassSVM(0.25, C, 0.0).fit(X[order]), order)


@pytest.mark.parametrize(("X", "gamma"), CASES)
@pytest.mark.parametrize("ridge", [0.0, 1e-300, 1e-14])
def test_a_lost_ridge_never_fails_and_stays_a_function_of_the_set(
    X: FloatArray, gamma: float, ridge: float
) -> None:
    """Where K alone is singular there is still an answer, the same in any order."""
    order = np.random.default_rng(6).permutation(len(X))
    for C in (1.0, 0.25, 1 / 6):
        svm = OneClassSVM(gamma, C, ridge).fit(X)
        assert svm.dual_coef_.sum() == pytest.approx(1.0, abs=1e-14)
        assert svm.dual_coef_.min() >= 0.0 and svm.dual_coef_.max() <= C
        assert svm.certificate().bound < 1e-4
        assert same(svm, OneClassSVM(gamma, C, ridge).fit(X[order]), order)
        fewer = OneClassSVM(gamma, C, ridge).fit(X).unlearn([0, 3])
        keep = np.delete(np.arange(len(X)), [0, 3])
        assert same(fewer, OneClassSVM(gamma, C, ridge).fit(X[keep]), slice(None))
