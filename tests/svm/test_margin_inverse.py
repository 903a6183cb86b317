"""The bordered inverse follows its samples."""

from __future__ import annotations

import numpy as np
import pytest

from forgetmem.arrays import FloatArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.kernel import Kernel, gram
from forgetmem.svm.margin_inverse import MarginInverse


def off(inverse: MarginInverse, K: FloatArray, ridge: float) -> float:
    """Largest entry of ``R M - I``."""
    s, margin = inverse.size, inverse.margin
    M = np.ones((s + 1, s + 1))
    M[0, 0] = 0.0
    M[1:, 1:] = K[np.ix_(margin, margin)] + ridge * np.eye(s)
    assert np.array_equal(inverse.B[:s, :s], K[np.ix_(margin, margin)])
    product = inverse.R[: s + 1, : s + 1] @ M
    return float(np.abs(product - np.eye(s + 1)).max())


def test_growing_and_shrinking_keep_the_inverse() -> None:
    """After any sequence R is the inverse, and symmetric bit for bit but for a few."""
    rng = np.random.default_rng(0)
    K = gram(Kernel.RBF, 0.3, rng.normal(size=(25, 3)))
    inverse = MarginInverse(25)
    inside: list[int] = []
    for _ in range(200):
        slot = int(rng.integers(25))
        if slot in inside:
            assert inverse.shrink(slot)
            inside.remove(slot)
        else:
            assert inverse.grow(K, 1e-8, slot)
            inside.append(slot)
        assert sorted(inverse.margin.tolist()) == sorted(inside)
        if inside:
            assert off(inverse, K, 1e-8) < 1e-7


@pytest.mark.parametrize("size", [1, 40, 280])
@pytest.mark.parametrize("reproducible", [False, True])
def test_rebuilding_finds_the_inverse(size: int, reproducible: bool) -> None:
    """By the compiled factor, or by LAPACK's."""
    K = gram(Kernel.RBF, 0.3, np.random.default_rng(1).normal(size=(280, 4)))
    inverse = MarginInverse(280, reproducible=reproducible)
    inverse.rebuild(K, 1e-6, np.arange(size))
    assert off(inverse, K, 1e-6) < 1e-7


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9, 0.0])
def test_close_pairs_lose_few_digits(distance: float) -> None:
    """With a ridge of 1e-8 the inverse of near copies still contracts well."""
    half = np.random.default_rng(2).normal(size=(30, 4))
    K = gram(Kernel.RBF, 0.3, np.vstack([half, half + distance]))
    inverse = MarginInverse(60)
    inverse.rebuild(K, 1e-8, np.arange(60))
    assert off(inverse, K, 1e-8) < 1e-6


@pytest.mark.parametrize("size", [2, 120, 300])
def test_singular_matrices_are_refused(size: int) -> None:
    """Copies without a ridge have no inverse, and a copy is not taken in."""
    K = np.ones((size, size))
    inverse = MarginInverse(size)
    with pytest.raises(IllConditionedMarginError):
        inverse.rebuild(K, 0.0, np.arange(size))
    inverse.rebuild(K, 0.0, np.arange(1))
    assert not inverse.grow(K, 0.0, 1)
    assert inverse.size == 1


def test_a_sample_without_a_positive_pivot_is_not_dropped() -> None:
    """A damaged inverse is left as it is, for the caller to rebuild."""
    K = gram(Kernel.RBF, 1.0, np.eye(3))
    inverse = MarginInverse(3)
    inverse.rebuild(K, 1e-8, np.arange(3))
    inverse.R[2, 2] = -1.0
    before = inverse.R.copy()
    assert not inverse.shrink(1)
    assert inverse.size == 3 and np.array_equal(inverse.R, before)


def test_wear_is_noticed_against_the_rate_when_new() -> None:
    """Only a rate that is bad, and worse than the first one, asks for a rebuild."""
    inverse = MarginInverse(1)
    rates = {1e-12: False, 1e-8: False, 1e-5: True, 1e-9: False}
    for rate, worn in rates.items():
        inverse.observe(rate)
        assert inverse.worn is worn
    inverse.rebuild(np.ones((1, 1)), 1e-8, np.arange(1))
    inverse.observe(1e-5)
    assert not inverse.worn
    inverse.observe(1e-3)
    assert not inverse.worn
    inverse.observe(0.1)
    assert inverse.worn


def test_enlarging_keeps_samples_and_inverse() -> None:
    """Room is made without touching what is there."""
    K = gram(Kernel.RBF, 1.0, np.eye(6))
    inverse = MarginInverse(3)
    inverse.rebuild(K, 1e-8, np.array([4, 0, 2]))
    inverse.enlarge(6)
    assert inverse.grow(K, 1e-8, 5)
    assert off(inverse, K, 1e-8) < 1e-12
