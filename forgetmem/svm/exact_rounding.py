"""A margin system's solution where threefold precision cannot tell.

A coefficient that is tiny beside the others, as an integer grid under the linear kernel
can have, is known to few digits when they are known to all of theirs; and where the
ridge is nearly lost beside the kernel, no sum of three can decide what is a tie. In
rational numbers the residual has no error, so refinement goes on until all is sure.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.partition import triple
from forgetmem.svm.problem import Problem

#: What `sharpen` leaves of the error, and how many turns it takes at most.
SHARP = Fraction(1, 2**300)
_PATIENCE = 40

#: A value whose rounding is not sure by then is half way between two float64.
_NEVER = Fraction(1, 2**1200)
#: Each turn adds about as many digits as the inverse has; two bits at the least.
_TURNS = 700


def round_exactly(
    problem: Problem, margin: IntArray, bounded: IntArray, R: FloatArray, x: FloatArray
) -> FloatArray:
    """Round ``[-rho; alpha_margin]`` to the nearest float64 each, ties to even.

    Parameters
    ----------
    problem : Problem
    margin, bounded : ndarray of int64
        Slots.
    R : ndarray of shape (size + 1, size + 1), float64
        About the inverse of the bordered margin matrix.
    x : ndarray of shape (size + 1, 3), float64
        The solution as far as it is known, as sums of three.

    Returns
    -------
    ndarray of shape (size + 1,), float64

    Raises
    ------
    IllConditionedMarginError
        If R does not lead to the solution.
    """
    for values, error in _approach(problem, margin, bounded, R, x):
        low = [float(value - error) for value in values]
        high = [float(value + error) for value in values]
        if low == high or error < _NEVER:
            even = np.array(low).view(np.int64) % 2 == 0
            return np.where(even, low, high)
    raise IllConditionedMarginError(np.inf)


def sharpen(
    problem: Problem, margin: IntArray, bounded: IntArray, R: FloatArray, x: FloatArray
) -> FloatArray:
    """Make a solution as good as sums of three float64 can be.

    Parameters
    ----------
    problem, margin, bounded, R, x
        As for `round_exactly`.

    Returns
    -------
    ndarray of shape (size + 1, 3), float64
        Each value up to 2**-157 of itself, and 2**-300.

    Raises
    ------
    IllConditionedMarginError
        If R does not lead to the solution, or only slowly.
    """
    for turn, (values, error) in enumerate(_approach(problem, margin, bounded, R, x)):
        if error < SHARP:
            return np.array([triple(value) for value in values])
        if turn == _PATIENCE:
            break
    raise IllConditionedMarginError(np.inf)


def _approach(
    problem: Problem, margin: IntArray, bounded: IntArray, R: FloatArray, x: FloatArray
) -> Iterator[tuple[list[Fraction], Fraction]]:
    # Better and better solutions, each with a bound on its error.
    Q = _exact(problem.K[np.ix_(margin, margin)])
    for place, line in enumerate(Q):
        line[place] += Fraction(problem.ridge)
    push = _exact(problem.K[np.ix_(margin, bounded)])
    unit = max(value.denominator for line in Q for value in line)
    lines = [[int(value * unit) for value in line] for line in Q]
    pushed = [problem.box.exact * sum(line) for line in push]
    rest = problem.box.rest(len(bounded))
    spread = 2 * Fraction(float(np.abs(R).sum(axis=1).max()))
    values = [sum(map(Fraction, parts), Fraction(0)) for parts in x.tolist()]
    for _ in range(_TURNS):
        # Floats are whole numbers over powers of 2; these are sums of them.
        below = max(value.denominator for value in values)
        level, *alpha = [int(value * below) for value in values]
        found = [sum(map(int.__mul__, line, alpha)) + unit * level for line in lines]
        residual = [rest - Fraction(sum(alpha), below)]
        residual += [
            -p - Fraction(f, unit * below) for p, f in zip(pushed, found, strict=True)
        ]
        left = max(map(abs, residual))
        yield values, spread * left
        if not left:
            continue
        scale = Fraction(2) ** (
            left.denominator.bit_length() - left.numerator.bit_length()
        )
        step = R @ np.array([float(r * scale) for r in residual])
        values = [
            v + Fraction(d) / scale for v, d in zip(values, step.tolist(), strict=True)
        ]


def _exact(matrix: FloatArray) -> list[list[Fraction]]:
    return [list(map(Fraction, row)) for row in matrix.tolist()]
