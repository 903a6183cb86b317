"""Answers that are known beforehand, and states at the edge."""

from __future__ import annotations

import numpy as np
import pytest

from forgetmem.svm import OneClassSVM

TRIANGLE = [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.9]]


def test_three_points_keep_the_apex_in_reserve() -> None:
    """The published example: the two ends share the mass, the apex has none."""
    svm = OneClassSVM(gamma=1 / 25, ridge=0.0).fit(TRIANGLE)
    assert svm.dual_coef_.tolist() == [0.5, 0.5, 0.0]
    assert svm.reserve_.tolist() == [2]


def test_a_far_point_brings_the_apex_back() -> None:
    """A row in reserve can return: that it is there is a fact about now."""
    svm = OneClassSVM(gamma=1 / 25, ridge=0.0).fit(TRIANGLE).learn([[0.0, -10.0]])
    expected = [0.24302447, 0.24302447, 0.03327001, 0.48068105]
    assert svm.dual_coef_ == pytest.approx(expected, abs=5e-9)
    assert svm.unlearn(3).dual_coef_.tolist() == [0.5, 0.5, 0.0]


def test_an_empty_solver_scores_nothing_and_holds_nothing_inside() -> None:
    """With no samples every score is 0, below the offset."""
    svm = OneClassSVM()
    assert (svm.n_samples, svm.rho_, svm.offset_) == (0, 1.0, 1.0)
    assert svm.fit(np.zeros((0, 3))).decision_function([[1, 2, 3]]).tolist() == [-1.0]
    assert svm.weights_.tolist() == []
    assert svm.certificate().bound == 0.0


def test_one_sample_is_its_own_support() -> None:
    """With C = 1 it is at its bound; with a larger box it is on the margin."""
    svm = OneClassSVM(ridge=1e-8).fit([[3.0, 4.0]])
    assert (svm.dual_coef_.tolist(), svm.rho_) == ([1.0], 1.0 + 1e-8)
    assert svm.bounded_.tolist() == [0]
    assert OneClassSVM(C=2.0).fit([[3.0, 4.0]]).margin_.tolist() == [0]


@pytest.mark.parametrize("C", [0.3, 0.25 - 1e-12])
def test_in_the_warm_up_all_weights_are_one(C: float) -> None:
    """While n C < 1 all coefficients are 1/n and nothing is gated."""
    svm = OneClassSVM(gamma=0.1, C=C).fit([[0.0], [1.0], [5.0]])
    assert svm.dual_coef_.tolist() == [1 / 3] * 3
    assert (svm.weights_.tolist(), svm.rho_) == ([1.0] * 3, 1 / 3)
    assert (svm.decision_function(svm.X_) >= 0).all()
    assert svm.certificate().sharp_bound < 1e-15


@pytest.mark.parametrize("n", [2, 3, 5, 7, 10, 49])
def test_one_over_n_means_that_all_are_bounded(n: int) -> None:
    """C = 1/n is the number itself, whatever float64 makes of it."""
    X = np.arange(n, dtype=np.float64)[:, np.newaxis]
    svm = OneClassSVM(gamma=0.5, C=1 / n).fit(X)
    assert svm.bounded_.tolist() == list(range(n))
    g = np.exp(-0.5 * (X - X.T) ** 2).sum(axis=1) / n + 1e-8 / n
    assert svm.rho_ == pytest.approx(g.max(), abs=1e-15)


@pytest.mark.parametrize("n", [1, 2, 10])
def test_copies_of_one_vector_are_inside(n: int) -> None:
    """Constant data shares the mass equally, and its own vector scores inside."""
    svm = OneClassSVM().fit(np.ones((n, 4)))
    assert svm.dual_coef_.tolist() == [1 / n] * n
    assert svm.decision_function(np.ones((1, 4)))[0] >= 0.0
    for left in range(n - 1, 0, -1):
        assert svm.unlearn(0).dual_coef_.tolist() == [1 / left] * left
    assert svm.unlearn(0).n_samples == 0


def test_symmetric_ties_are_reserve_and_bounded() -> None:
    """A coefficient of 0 with g = rho is reserve, one of C with g = rho is bounded."""
    cross = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
    svm = OneClassSVM(gamma=0.3, C=0.25).fit(cross)
    assert svm.bounded_.tolist() == [0, 1, 2, 3]
    assert svm.certificate().tied
    for C, role in ((1.0, 2), (2.0, 1)):
        line = OneClassSVM(C=C, ridge=1.0, kernel="linear").fit([[1.0], [2.0]])
        assert line.dual_coef_.tolist() == [1.0, 0.0]
        assert line.partition_.tolist() == [role, 0]
        assert line.certificate().tied
