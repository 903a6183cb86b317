"""The slow reference is itself right: its answer meets every condition exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from svm.regimes import by_quadprog, regimes

from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.kernel import Kernel, gram
from forgetmem.svm.reference import solve_exactly


@pytest.mark.parametrize(
    "C", [Fraction(1), Fraction(1, 4), Fraction(1, 9), Fraction(3)]
)
def test_conditions_hold_without_any_tolerance(C: Fraction) -> None:
    """Sum, box and the signs of the slacks, in rational numbers."""
    for name, X, gamma in list(regimes(3))[:4]:
        K = gram(Kernel.RBF, gamma, X[:10])
        found = solve_exactly(K, 1e-8, C)
        assert sum(found.alpha) == 1, name
        for i, (a, role) in enumerate(zip(found.alpha, found.partition, strict=True)):
            row = zip(K[i].tolist(), found.alpha, strict=True)
            g = sum(Fraction(k) * b for k, b in row) + Fraction(1e-8) * a
            assert (a == 0, 0 < a < C, a == C)[role]
            assert (g >= found.rho, g == found.rho, g <= found.rho)[role]
        near = by_quadprog(K + 1e-8 * np.eye(10), float(C))
        assert (
            np.abs(K @ (near - np.array([float(a) for a in found.alpha]))).max() < 1e-9
        )


def test_a_start_changes_nothing() -> None:
    """Wherever it starts, the end is the optimum."""
    K = gram(Kernel.RBF, 0.2, np.random.default_rng(0).normal(size=(8, 3)))
    plain = solve_exactly(K, 1e-8, Fraction(1, 3))
    for start in (np.zeros(8), np.full(8, 5.0), np.eye(8)[2], np.arange(8) / 28):
        assert solve_exactly(K, 1e-8, Fraction(1, 3), start) == plain


def test_singular_systems_are_refused() -> None:
    """Copies without a ridge have no unique optimum."""
    with pytest.raises(IllConditionedMarginError):
        solve_exactly(np.ones((3, 3)), 0.0, Fraction(1))
