"""Data that break solvers, and independent ways to solve."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import quadprog

from forgetmem.arrays import FloatArray
from forgetmem.svm.kernel import Kernel, gram
from forgetmem.svm.partition import Box
from forgetmem.svm.reference import Exact, solve_exactly

GRID = [[i, j] for i in range(4) for j in range(4)]
RING = [[1, 0], [0, 1], [-1, 0], [0, -1], [2, 0], [0, 2], [-2, 0], [0, -2], [0, 0]]
#: nu = 0.4 and nu n = 6, n C just above 1, n C = 1, hard margin and less.
BOXES = [1.0, 0.5, 0.25, 0.3, 1 / 6, 1 / 6.4, 1.0001 / 16, 1 / 16, 2.0]


def regimes(seed: int) -> Iterator[tuple[str, FloatArray, float]]:
    """Sets of 9 to 16 rows with a gamma: from well behaved to singular."""
    rng = np.random.default_rng(seed)
    n = 16
    yield "gaussian", rng.normal(size=(n, 6)), 0.25
    centres = np.repeat(rng.normal(size=(4, 6)), 4, axis=0)
    yield "redundant", centres + 0.02 * rng.normal(size=(n, 6)), 0.25
    for distance in (1e-3, 1e-6, 1e-9, 1e-12, 0.0):
        half = rng.normal(size=(n // 2, 6))
        near = half + distance * rng.normal(size=half.shape)
        yield f"near {distance}", np.vstack([half, near]), 0.25
    yield "collinear", np.outer(rng.normal(size=n), rng.normal(size=6)), 0.25
    yield "constant", np.ones((n, 6)), 0.25
    yield "grid", np.array(GRID, dtype=np.float64), 0.25
    yield "ring", np.array(RING, dtype=np.float64), 0.25
    yield "walk", np.cumsum(rng.normal(size=(n, 6)), axis=0), 0.25
    for gamma in (1e-6, 1e-3, 1e2, 1e6):
        yield f"gamma {gamma}", rng.normal(size=(n, 6)), gamma
    for scale in (1e-8, 1e-4, 1e4):
        yield f"scale {scale}", scale * rng.normal(size=(n, 6)), 0.25


def exact(
    X: FloatArray, gamma: float, C: float, ridge: float, start: FloatArray | None = None
) -> Exact:
    """The optimum in rational numbers."""
    return solve_exactly(gram(Kernel.RBF, gamma, X), ridge, Box(C).exact, start)


def by_quadprog(Q: FloatArray, C: float) -> FloatArray:
    """The coefficients by an independent dual active-set method."""
    n = len(Q)
    sides = np.column_stack([np.ones(n), np.eye(n), -np.eye(n)])
    bounds = np.concatenate([[1.0], np.zeros(n), np.full(n, -C)])
    return np.asarray(quadprog.solve_qp(Q, np.zeros(n), sides, bounds, 1)[0])
