"""Slow and exact: the optimum in rational numbers, the truth that tests compare with.

A primal active set like the one in `active_set`, but in whole numbers, on plain lists.
It shares no code with the fast path and needs no tolerance: ties are ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from forgetmem.arrays import FloatArray
from forgetmem.errors import IllConditionedMarginError

Vector = list[Fraction]
_ZERO = Fraction(0)


@dataclass(frozen=True)
class Exact:
    """The optimum, without any rounding.

    Parameters
    ----------
    alpha : list of Fraction
    rho : Fraction
    partition : list of int
        0 reserve, 1 margin, 2 bounded; on a tie the coefficient decides.
    """

    alpha: Vector
    rho: Fraction
    partition: list[int]


def solve_exactly(
    K: FloatArray, ridge: float, C: Fraction, start: FloatArray | None = None
) -> Exact:
    """Minimise ``a' (K + ridge I) a / 2`` over ``sum(a) = 1, 0 <= a <= C``.

    Parameters
    ----------
    K : ndarray of shape (n_samples, n_samples), float64
        Symmetric; its entries are taken for the numbers they are.
    ridge : float
    C : Fraction
        At least ``1 / n_samples``.
    start : ndarray of shape (n_samples,), float64, optional
        A guess that makes it faster.

    Returns
    -------
    Exact

    Raises
    ------
    IllConditionedMarginError
        If a margin system is singular, which a positive ridge excludes.

    Notes
    -----
    O(n_samples**4) operations on numbers of thousands of digits: for some 40 samples.
    """
    n = len(K)
    Q, unit = _whole(K, ridge)
    alpha = _feasible(n, C, start)
    state = [2 if a == C else 1 if a > 0 else 0 for a in alpha]
    while True:
        margin = [i for i in range(n) if state[i] == 1]
        bounded = [i for i in range(n) if state[i] == 2]
        push = [C.numerator * sum(row[b] for b in bounded) for row in Q]
        target, level, scale = _equality(Q, C, margin, len(bounded), push)
        found = [Fraction(x, scale * C.denominator) for x in target]
        if _advance(alpha, state, margin, found, C):
            continue
        # g and rho times C.denominator * scale * unit are whole numbers.
        g = [
            scale * p + sum(row[j] * x for j, x in zip(margin, target, strict=True))
            for row, p in zip(Q, push, strict=True)
        ]
        if not margin:
            level = max(g[i] for i in bounded)
        excess = [value - level for value in g]
        wrong = [e * (-1, 0, 1)[s] for e, s in zip(excess, state, strict=True)]
        worst = max(range(n), key=wrong.__getitem__)
        if wrong[worst] <= 0:
            rho = Fraction(level, scale * C.denominator * unit)
            return Exact(alpha, rho, state)
        if not margin:
            state[g.index(level)] = 1
        state[worst] = 1


def _whole(K: FloatArray, ridge: float) -> tuple[list[list[int]], int]:
    # Q as whole numbers, and what they are multiples of the reciprocal of.
    rows = [[Fraction(value) for value in row] for row in K.tolist()]
    for i, row in enumerate(rows):
        row[i] += Fraction(ridge)
    unit = max(value.denominator for row in rows for value in row)
    return [[int(value * unit) for value in row] for row in rows], unit


def _feasible(n: int, C: Fraction, start: FloatArray | None) -> Vector:
    alpha = [Fraction(1, n)] * n
    if start is not None:
        alpha = [min(max(Fraction(a), _ZERO), C) for a in start.tolist()]
    missing = 1 - sum(alpha, _ZERO)
    for i in sorted(range(n), key=lambda i: -min(alpha[i], C - alpha[i])):
        change = min(max(missing, -alpha[i]), C - alpha[i])
        alpha[i] += change
        missing -= change
    return alpha


def _equality(
    Q: list[list[int]], C: Fraction, margin: list[int], n_bounded: int, push: list[int]
) -> tuple[list[int], int, int]:
    # The minimum over the margin coefficients, the others at their bounds; times
    # C.denominator, and as whole numbers over the last value.
    if not margin:
        return [], 0, 1
    rows = [[*(Q[i][j] for j in margin), -1, -push[i]] for i in margin]
    total = C.denominator - n_bounded * C.numerator
    rows.append([*(1 for _ in margin), 0, total])
    *target, level, scale = _eliminate(rows)
    return target, level, scale


def _eliminate(rows: list[list[int]]) -> list[int]:
    # Bareiss' elimination, in which every division is exact. The solution over the
    # determinant, made positive, which comes last.
    n = len(rows)
    before = 1
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k]), None)
        if pivot is None:
            raise IllConditionedMarginError(float("inf"))
        rows[k], rows[pivot] = rows[pivot], rows[k]
        top = rows[k]
        for i in range(k + 1, n):
            line, factor = rows[i], rows[i][k]
            rows[i] = [0] * (k + 1) + [
                (top[k] * line[j] - factor * top[j]) // before
                for j in range(k + 1, n + 1)
            ]
        before = top[k]
    solution = [0] * n
    for k in reversed(range(n)):
        line = rows[k]
        known = sum(line[j] * solution[j] for j in range(k + 1, n))
        solution[k] = (line[n] * before - known) // line[k]
    sign = 1 if before > 0 else -1
    return [sign * x for x in (*solution, before)]


def _advance(
    alpha: Vector, state: list[int], margin: list[int], target: Vector, C: Fraction
) -> bool:
    # Go to the target, or to the first bound on the way. True if a row met its bound.
    t = Fraction(1)
    for i, x in zip(margin, target, strict=True):
        if x <= 0 and alpha[i] > x:
            t = min(t, alpha[i] / (alpha[i] - x))
        elif x >= C and alpha[i] < x:
            t = min(t, (C - alpha[i]) / (x - alpha[i]))
    for i, x in zip(margin, target, strict=True):
        alpha[i] = x if t == 1 else alpha[i] + t * (x - alpha[i])
    met = [i for i in margin if alpha[i] <= 0 or alpha[i] >= C]
    for i in met:
        state[i] = 0 if alpha[i] <= 0 else 2
    return bool(met)
