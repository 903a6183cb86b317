"""Many problems at once have the numbers of each alone."""

from __future__ import annotations

import numpy as np
import pytest
from svm.regimes import regimes

from forgetmem.arrays import FloatArray
from forgetmem.svm import OneClassSVM, Solution, batch, fit_many


def equals(solution: Solution, svm: OneClassSVM) -> bool:
    """Whether a solution has the numbers of a solver, bit for bit."""
    return (
        np.array_equal(solution.dual_coef, svm.dual_coef_)
        and solution.rho == svm.rho_
        and np.array_equal(solution.weights, svm.weights_)
        and np.array_equal(solution.partition, svm.partition_)
    )


@pytest.mark.parametrize("C", [1.0, 0.25, 1 / 8])
@pytest.mark.parametrize(
    ("ridge", "kernel"), [(1e-8, "rbf"), (0.0, "rbf"), (1e-8, "linear")]
)
def test_fit_many_equals_fitting_each(C: float, ridge: float, kernel: str) -> None:
    """All regimes, sizes from none to beyond the small, and widths mixed."""
    rng = np.random.default_rng(0)
    many: list[FloatArray] = [X for _, X, _ in regimes(1)]
    many += [rng.normal(size=(n, 3)) for n in (0, 1, 2, 3, 4, 5, 9, 30, 96, 97, 130)]
    solutions = fit_many(many, gamma=0.3, C=C, ridge=ridge, kernel=kernel)
    for X, solution in zip(many, solutions, strict=True):
        svm = OneClassSVM(0.3, C, ridge, kernel=kernel).fit(X)
        assert equals(solution, svm)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many kernel values are held at a time, the numbers are the same."""
    rng = np.random.default_rng(1)
    many = [rng.normal(size=(n, 2)) for n in (12, 3, 25, 7, 7, 18)]
    whole = fit_many(many, gamma=0.5)
    monkeypatch.setattr(batch, "_CHUNK", 200)
    for X, solution in zip(many, fit_many(many, gamma=0.5), strict=True):
        assert equals(solution, OneClassSVM(gamma=0.5).fit(X))
    assert len(whole) == 6 and fit_many([]) == []
