"""The rounding of a margin system's solution where threefold precision cannot tell.

A coefficient that is tiny beside the others, as an integer grid under the linear kernel
can have, is known to few digits when they are known to all of theirs. In rational
numbers the residual has no error, so refinement goes on until every digit is sure.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.svm.problem import Problem

#: Each turn adds about as many digits as the inverse has. Values whose rounding is not
#: sure after so many are half way between two float64.
_TURNS = 24


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
    """
    Q = _exact(problem.K[np.ix_(margin, margin)])
    for place, line in enumerate(Q):
        line[place] += Fraction(problem.ridge)
    push = _exact(problem.K[np.ix_(margin, bounded)])
    unit = max(value.denominator for line in Q for value in line)
    lines = [[int(value * unit) for value in line] for line in Q]
    pushed = [problem.box.exact * sum(line) for line in push]
    rest = problem.box.rest(len(bounded))
    spread = [2 * Fraction(value) for value in np.abs(R).sum(axis=1).tolist()]
    values = [sum(map(Fraction, parts)) for parts in x.tolist()]
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
        low = [float(v - s * left) for v, s in zip(values, spread, strict=True)]
        high = [float(v + s * left) for v, s in zip(values, spread, strict=True)]
        if low == high:
            return np.array(low)
        step = R @ np.array(list(map(float, residual)))
        values = [v + Fraction(d) for v, d in zip(values, step.tolist(), strict=True)]
    even = np.array(low).view(np.int64) % 2 == 0
    return np.where(even, low, high)


def _exact(matrix: FloatArray) -> list[list[Fraction]]:
    return [list(map(Fraction, row)) for row in matrix.tolist()]
