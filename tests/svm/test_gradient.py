"""The derivatives that reuse the maintained inverse, against differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from forgetmem.arrays import FloatArray
from forgetmem.svm import OneClassSVM
from forgetmem.svm.active_set import Problem, solve
from forgetmem.svm.gradient import sensitivities
from forgetmem.svm.kernel import Kernel, gram
from forgetmem.svm.partition import Box

Loss = Callable[[FloatArray, float], float]


def differences(problem: Problem, loss: Loss, step: float) -> FloatArray:
    """Central differences of a loss with respect to pairs of entries of K."""
    n = len(problem.K)
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            values = []
            for sign in (1.0, -1.0):
                K = problem.K.copy()
                K[i, j] += sign * step
                K[j, i] = K[i, j]
                found = solve(replace(problem, K=K))
                values.append(loss(found.alpha, found.rho))
            out[i, j] = out[j, i] = (values[0] - values[1]) / (2 * step)
    return out


@pytest.mark.parametrize("C", [1.0, 0.13])
def test_the_adjoint_gives_the_derivative_for_every_kernel_value(C: float) -> None:
    """Coefficients, rho, decision values and a readout, with rows of all three sets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(14, 3))
    svm = OneClassSVM(gamma=0.25, C=C, ridge=1e-3).fit(X)
    roles = set(svm.partition_.tolist())
    assert roles == ({0, 1} if C == 1.0 else {0, 1, 2})
    K = gram(Kernel.RBF, 0.25, X)
    query, values = rng.random(14), rng.normal(size=14)

    def decision(alpha: FloatArray, rho: float) -> float:
        return float(query @ alpha - rho)

    def readout(alpha: FloatArray, rho: float) -> float:
        masses = query * alpha
        return float(masses @ values / masses.sum())

    alpha = svm.dual_coef_
    mean = readout(alpha, 0.0)
    toward = query * (values - mean) / float(query @ alpha)
    problem = Problem(K, np.arange(14), 14, 1e-3, Box(C), 1.001)
    held = sensitivities(svm)
    for loss, alpha_bar, rho_bar in (
        (decision, query, -1.0),
        (readout, toward, 0.0),
        (lambda a, _: float(a[svm.margin_[0]]), np.eye(14)[svm.margin_[0]], 0.0),
    ):
        v = held.adjoint(alpha_bar, rho_bar)
        derivative = -(np.outer(v, alpha) + np.outer(alpha, v))
        derivative[np.diag_indices(14)] /= 2
        expected = differences(problem, loss, 1e-6)
        assert np.abs(derivative - expected).max() < 1e-7
        assert not v[svm.reserve_].any() and not v[svm.bounded_].any()


def test_the_inverse_is_reused_after_changes_of_the_rows() -> None:
    """After learning and unlearning the adjoint is that of a fresh fit."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20, 3))
    svm = OneClassSVM(gamma=0.25, C=0.2).fit(X[:15]).unlearn([3, 8]).learn(X[15:])
    fresh = OneClassSVM(gamma=0.25, C=0.2).fit(svm.X_)
    bar = rng.normal(size=18)
    ours = sensitivities(svm).adjoint(bar, 0.3)
    assert np.abs(ours - sensitivities(fresh).adjoint(bar, 0.3)).max() < 1e-9


def test_at_a_vertex_and_in_the_warm_up_nothing_answers() -> None:
    """Without margin samples all derivatives are 0."""
    for svm in (OneClassSVM(C=0.25).fit(np.eye(4)), OneClassSVM(C=0.1).fit(np.eye(4))):
        assert not sensitivities(svm).adjoint(np.ones(4), 1.0).any()


def test_the_inverse_of_a_scaled_problem_is_that_of_the_problem_itself() -> None:
    """A kernel matrix 2**80 times as large has an answer as much smaller."""
    X = np.random.default_rng(2).normal(size=(9, 12))
    bar = np.random.default_rng(3).normal(size=9)
    plain = OneClassSVM(C=0.3, ridge=0.0, kernel="linear").fit(X)
    large = OneClassSVM(C=0.3, ridge=0.0, kernel="linear").fit(2.0**40 * X)
    for rho_bar in (0.0, 1.0):
        ours = sensitivities(large).adjoint(bar, rho_bar * 2.0**-80)
        theirs = sensitivities(plain).adjoint(bar, rho_bar)
        assert np.abs(ours * 2.0**80 - theirs).max() < 1e-12 * np.abs(theirs).max()
