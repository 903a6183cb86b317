"""Inner products and distances depend on the two vectors only."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from forgetmem.distances import dot_at_least, dots, squared_distances


def _units(n: int, d: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((n, d))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("d", [1, 3, 15, 16, 17, 64, 384])
def test_bits_do_not_depend_on_the_place_of_a_row(d: int) -> None:
    """Permuted, sliced and single rows give the same bits, in either order."""
    X = _units(200, d)
    q = X[7]
    order = np.random.default_rng(1).permutation(200)
    for function in (dots, squared_distances):
        whole = function(X, q)
        assert np.array_equal(function(np.ascontiguousarray(X[order]), q), whole[order])
        assert np.array_equal(function(X[50:60], q), whole[50:60])
        one = [function(X[7:8], x)[0] for x in X]
        assert np.array_equal(one, whole)


@pytest.mark.parametrize("d", [1, 17, 384])
def test_values_are_right(d: int) -> None:
    """Float64 inner products and squared distances agree with exact sums."""
    X = _units(20, d).astype(np.float64)
    X32 = X.astype(np.float32)
    for row, value in enumerate(dots(X32, X32[3])):
        exact = math.fsum(X32[row].astype(np.float64) * X32[3].astype(np.float64))
        assert abs(value - exact) < 1e-14
    for row, value in enumerate(squared_distances(X, X[3])):
        assert abs(value - math.fsum((X[row] - X[3]) ** 2)) < 1e-14


def test_equal_vectors_are_at_distance_zero() -> None:
    """A squared distance is a sum of squares, never 2 - 2 x.y."""
    X = _units(5, 384)
    assert squared_distances(X, X[2])[2] == 0.0


def test_threshold_is_decided_exactly() -> None:
    """At a threshold that rounding would turn, the exact sum decides."""
    X = _units(50, 384)
    for x in X[1:]:
        exact = sum(
            Fraction(float(a)) * Fraction(float(b))
            for a, b in zip(X[0], x, strict=True)
        )
        near = float(exact)
        for threshold in (near, np.nextafter(near, 2), np.nextafter(near, -2)):
            decided = dot_at_least(x[np.newaxis], X[0], float(threshold))[0]
            assert decided == (exact >= Fraction(float(threshold)))
