"""Sums in extended precision, against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetmem.arrays import FloatArray
from forgetmem.svm.extended import accumulate, add, noise, normal, slacks, two_sum
from forgetmem.svm.reference import _eliminate
from forgetmem.svm.refinement import bound_errors, refine, round_off

numbers = st.floats(-1e30, 1e30, allow_nan=False)


def total(values: object) -> Fraction:
    """The exact sum."""
    return sum(map(Fraction, np.asarray(values).tolist()), Fraction(0))


@settings(deadline=None)
@given(numbers, numbers)
def test_two_sum_loses_nothing(a: float, b: float) -> None:
    """Sum and error together are the exact sum."""
    assert total(two_sum(a, b)) == Fraction(a) + Fraction(b)


@settings(deadline=None)
@given(st.lists(numbers, min_size=4, max_size=4))
def test_adding_to_three_numbers_loses_only_the_last_digits(v: list[float]) -> None:
    """What is lost is below 2**-150 of the largest."""
    exact = total(v)
    found = normal(*add(*normal(*v[:3]), v[3]))
    largest = max(abs(Fraction(x)) for x in v)
    assert abs(total(found) - exact) <= largest / 2**150
    out = np.empty(1)
    round_off(np.array([found]), np.zeros(1), out)
    assert out[0] == float(total(found))


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 33, 200])
def test_products_are_accumulated_within_the_noise(level: int, count: int) -> None:
    """The sum of rows times coefficients of two or three parts."""
    rng = np.random.default_rng(level)
    A = rng.normal(size=(200, 7))
    x = rng.normal(size=(count, 3)) * [1.0, 2.0**-54, 2.0**-108]
    lines = rng.permutation(200)[:count]
    sums = np.zeros((3, 7))
    accumulate(A, lines, x, level, sums)
    for place in range(7):
        terms = [
            Fraction(A[line, place]) * total(row[:level])
            for line, row in zip(lines, x, strict=True)
        ]
        off = abs(total(sums[:, place]) - sum(terms))
        assert off <= Fraction(noise(count, level)) * sum(map(abs, terms))


def test_slacks_subtract_all_parts_of_rho() -> None:
    """The small difference of large numbers is right to its last digits."""
    rng = np.random.default_rng(2)
    K = rng.normal(size=(6, 6))
    x = rng.normal(size=(4, 3)) * [1.0, 2.0**-54, 2.0**-108]
    lines, places = np.array([0, 2, 3, 5]), np.array([1, 4])
    exact = [
        sum(Fraction(K[j, i]) * total(row) for j, row in zip(lines, x, strict=True))
        for i in places.tolist()
    ]
    rho = np.array([float(exact[0]), 1e-20, 1e-40])
    out = np.empty(2)
    slacks(K, lines, x, rho, places, 3, out)
    assert out[0] == float(exact[0] - total(rho))
    assert out[1] == float(exact[1] - total(rho))


def test_rounding_goes_to_the_nearest_and_a_tie_to_the_even_one() -> None:
    """With an error that leaves two candidates the even one is written."""
    ulp = 2.0**-52
    rows = [
        [1.0, ulp / 2 - 1e-25, 0.0],
        [1.0, ulp / 2 + 1e-25, 0.0],
        [1.0, ulp / 2, 0.0],
        [1.0 + ulp, ulp / 2, 0.0],
        [1.0, -ulp / 4, 0.0],
    ]
    x, out = np.array(rows), np.empty(5)
    assert round_off(x[:2], np.full(2, 1e-27), out[:2])
    assert out[:2].tolist() == [1.0, 1.0 + ulp]
    assert not round_off(x, np.full(5, 1e-20), out)
    assert out.tolist() == [1.0, 1.0, 1.0, 1.0 + 2 * ulp, 1.0]


def refined(R: FloatArray, level: int) -> tuple[float, float, FloatArray]:
    """Refine a system of three with the bound coefficient of a fourth."""
    K = np.array([[1, 0.3, 0.2, 0.1], [0.3, 1, 0.4, 0.2], [0.2, 0.4, 1, 0.3], [0] * 4])
    x = np.zeros((4, 3))
    rate, left = refine(
        K,
        np.ascontiguousarray(K[:3, :3]),
        0.25,
        1.25,
        np.arange(3),
        np.array([3]),
        np.array([0.25, 0.0, 0.0]),
        np.array([0.75, 0.0, 0.0]),
        R,
        level,
        x,
    )
    return rate, left, x


@pytest.mark.parametrize("level", [2, 3])
def test_refinement_ends_within_its_error_bound(level: int) -> None:
    """Against the solution in fractions; the crude bound is above the sharp one."""
    M = [[0, 1, 1, 1], [1, 1.25, 0.3, 0.2], [1, 0.3, 1.25, 0.4], [1, 0.2, 0.4, 1.25]]
    R = np.linalg.inv(np.array(M))
    rate, left, x = refined(R, level)
    assert rate < 1e-12
    unit = 2**60
    rows = [[int(Fraction(m) * unit) for m in row] for row in M]
    for row, b in zip(rows, [3, 0, 0, 0], strict=True):
        row.append(b * unit // 4)
    *whole, determinant = _eliminate([rows[1], rows[2], rows[3], rows[0]])
    exact = [Fraction(x, determinant) for x in whole]
    error, crude = np.empty(4), np.empty(4)
    bound_errors(R, left, 0.0, level, x, True, error)
    bound_errors(R, left, 0.0, level, x, False, crude)
    for row, truth, bound in zip(x, exact, error, strict=True):
        assert abs(total(row) - truth) <= Fraction(bound)
    assert (error <= crude * (1 + 1e-12)).all()
    assert crude.max() < (1e-28, 1e-43)[level - 2]


@pytest.mark.parametrize("factor", [np.nan, 1e308, -1.0, 1e-3, 3.0])
def test_a_wrong_inverse_is_noticed(factor: float) -> None:
    """Whatever is no inverse is reported by a rate of 1."""
    assert refined(factor * np.eye(4), 2)[0] == 1.0
