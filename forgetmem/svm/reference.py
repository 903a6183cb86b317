"""Slow and exact: the optimum in rational numbers, the truth that tests compare with.

A primal active set like the one in `active_set`, in Python's fractions, on plain lists.
It shares no code with the fast path and needs no tolerance: ties are ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from forgetmem.arrays import FloatArray
from forgetmem.errors import IllConditionedMarginError

Vector = list[Fraction]


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
    Q = [[Fraction(value) for value in row] for row in K.tolist()]
    for i in range(n):
        Q[i][i] += Fraction(ridge)
    alpha = _feasible(n, C, start)
    state = [2 if a == C else 1 if a > 0 else 0 for a in alpha]
    while True:
        margin = [i for i in range(n) if state[i] == 1]
        if margin:
            target, rho = _equality(Q, C, state, margin)
            if _advance(alpha, state, margin, target, C):
                continue
        g = [sum((q * a for q, a in zip(row, alpha, strict=True)), _ZERO) for row in Q]
        if not margin:
            rho = max(g[i] for i in range(n) if state[i] == 2)
        wrong = [rho - g[i] if state[i] == 0 else g[i] - rho for i in range(n)]
        wrong = [w if state[i] != 1 else _ZERO for i, w in enumerate(wrong)]
        worst = max(range(n), key=wrong.__getitem__)
        if wrong[worst] <= 0:
            return Exact(alpha, rho, state)
        if not margin:
            state[g.index(rho)] = 1
        state[worst] = 1


_ZERO = Fraction(0)


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
    Q: list[Vector], C: Fraction, state: list[int], margin: list[int]
) -> tuple[Vector, Fraction]:
    # The minimum over the margin coefficients, the others at their bounds.
    bounded = [i for i, s in enumerate(state) if s == 2]
    rows = [
        [Q[i][j] for j in margin]
        + [Fraction(-1), -C * sum((Q[i][b] for b in bounded), _ZERO)]
        for i in margin
    ]
    rows.append([Fraction(1)] * len(margin) + [_ZERO, 1 - len(bounded) * C])
    solution = _eliminate(rows)
    return solution[:-1], solution[-1]


def _eliminate(rows: list[Vector]) -> Vector:
    # Bareiss' elimination without fractions, then back substitution.
    whole = []
    for row in rows:
        scale = 1
        for value in row:
            scale = max(scale, value.denominator)
        if any(scale % value.denominator for value in row):
            for value in row:
                scale *= value.denominator // _gcd(scale, value.denominator)
        whole.append([int(value * scale) for value in row])
    n = len(whole)
    before = 1
    for k in range(n):
        pivot = next((i for i in range(k, n) if whole[i][k]), None)
        if pivot is None:
            raise IllConditionedMarginError(float("inf"))
        whole[k], whole[pivot] = whole[pivot], whole[k]
        top = whole[k]
        for i in range(k + 1, n):
            line, factor = whole[i], whole[i][k]
            whole[i] = [0] * (k + 1) + [
                (top[k] * line[j] - factor * top[j]) // before
                for j in range(k + 1, n + 1)
            ]
        before = top[k]
    solution = [_ZERO] * n
    for k in reversed(range(n)):
        known = sum((whole[k][j] * solution[j] for j in range(k + 1, n)), _ZERO)
        solution[k] = (whole[k][n] - known) / whole[k][k]
    return solution


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


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
        alpha[i] += t * (x - alpha[i])
    met = [i for i in margin if alpha[i] <= 0 or alpha[i] >= C]
    for i in met:
        state[i] = 0 if alpha[i] <= 0 else 2
    return bool(met)
