"""The certificates of many small problems in one compiled pass.

The same bounds by the same steps as `forgetmem.svm.certificate`, where they are
explained; sums that are rounded exactly there are threefold here.
"""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.jit import compiled
from forgetmem.svm.extended import UNIT, accumulate, add, normal

#: Makes up for the rounding of sums of positive terms, and of the last operations.
_UP = 1.0 + 2.0**-40
#: Relative error of a kernel value, generously: of the sum of squares and of exp.
_KERNEL_ERROR = 64.0 * UNIT


@compiled
def _missing(high: FloatArray, low: FloatArray) -> float:
    a, b, c = 1.0, 0.0, 0.0
    for i in range(len(high)):
        a, b, c = add(a, b, c, -high[i])
        a, b, c = add(a, b, c, -low[i])
    a, b, c = normal(a, b, c)
    return a + (b + c)


@compiled
def _spread(high: FloatArray, low: FloatArray, most: float, inside: bool) -> bool:
    missing = _missing(high, low)
    room = np.zeros(len(high))
    total = 0.0
    for i in range(len(high)):
        if inside and not 0.0 < high[i] < most:
            continue
        value = high[i] + low[i]
        room[i] = value if missing < 0.0 else most - value
        total += room[i]
    if missing != 0.0 and total > 0.0:
        for i in range(len(high)):
            low[i] += missing * (room[i] / max(total, abs(missing)))
    return total >= abs(missing)


@compiled
def _point(
    alpha: FloatArray, C: float, second: float, high: FloatArray, low: FloatArray
) -> tuple[float, float]:
    """Write a feasible point; returns what its sum lacks, and how far it was moved."""
    most = min(C, 1.0)
    clipped = 0.0
    for i in range(len(alpha)):
        high[i] = min(max(alpha[i], 0.0), most)
        low[i] = second if alpha[i] >= C else 0.0
        clipped += abs(high[i] - alpha[i])
    if not _spread(high, low, most, True):
        _spread(high, low, most, False)
    # The sum itself is only known up to its own error.
    rest = abs(_missing(high, low)) + 2.0**-140
    return rest, (clipped + np.abs(low).sum() + rest) * _UP


@compiled
def _find_slacks(
    K: FloatArray,
    ridge: float,
    high: FloatArray,
    low: FloatArray,
    margin: BoolArray,
    bounded: BoolArray,
    h: FloatArray,
) -> int:
    """Write the slacks; returns the size of the support."""
    n = len(K)
    support = np.flatnonzero((high != 0.0) | (low != 0.0))
    x = np.zeros((len(support), 3))
    x[:, 0], x[:, 1] = high[support], low[support]
    sums = np.zeros((3, n))
    accumulate(K, support, x, 3, sums)
    own = np.zeros((3, n))
    pair = np.empty((2, n))
    pair[0], pair[1] = high, low
    factors = np.zeros((4, 3))
    factors[:, 0] = ridge
    accumulate(pair, np.arange(2), factors[:2], 3, own)
    raw = sums[0] + own[0]
    rho = raw[margin].mean() if margin.any() else raw[bounded].max()
    terms = np.ones((4, n))
    terms[:3] = own
    factors[:3, 0], factors[3, 0] = 1.0, -rho
    accumulate(terms, np.arange(4), factors, 3, sums)
    h[:] = sums[0] + (sums[1] + sums[2])
    if margin.any():
        h -= h[margin].mean()
    return len(support)


@compiled
def _norm(v: FloatArray) -> float:
    return float(np.sqrt((v * v).sum()) * _UP)


@compiled
def _factorised(Q: FloatArray, shift: float, L: FloatArray) -> bool:
    """Write the Cholesky factor of ``Q - shift``; False if there is none."""
    n = len(Q)
    for i in range(n):
        for j in range(i + 1):
            value = Q[i, j]
            if i == j:
                value -= shift
            for k in range(j):
                value -= L[i, k] * L[j, k]
            if i > j:
                L[i, j] = value / L[j, j]
            elif value > 0.0:
                L[i, i] = np.sqrt(value)
            else:
                return False
    return True


@compiled
def _divided(L: FloatArray, r: FloatArray) -> FloatArray:
    z = r.copy()
    n = len(z)
    for i in range(n):
        for k in range(i):
            z[i] -= L[i, k] * z[k]
        z[i] /= L[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            z[i] -= L[k, i] * z[k]
        z[i] /= L[i, i]
    return z


@compiled
def _proved(Q: FloatArray, L: FloatArray) -> float:
    """Return a proved lower bound of the smallest eigenvalue."""
    size = len(Q)
    v = 1.0 / (1.0 + np.arange(size))
    for _ in range(4):
        v = _divided(L, v / np.sqrt((v * v).sum()))
    estimate = 1.0 / np.sqrt((v * v).sum())
    error = 4.0 * (size + 4.0) * UNIT * np.trace(Q)
    room = np.zeros((size, size))
    for share in (0.9, 0.5, 0.1):
        if _factorised(Q, share * estimate, room):
            return float(max(share * estimate - error, 0.0))
    return 0.0


@compiled
def _length(
    Q: FloatArray, L: FloatArray, r: FloatArray, least: float, largest: float
) -> float:
    """Bound the square root of ``r' Q^-1 r``."""
    size = len(Q)
    z = _divided(L, r)
    rounding = 2.0 * (size + 4.0) * UNIT * largest
    left = r.copy()
    for i in range(size):
        for j in range(size):
            left[i] -= Q[i, j] * z[j]
    off = _norm(left) + np.sqrt(size) * rounding * np.abs(z).sum()
    a = b = c = spread = 0.0
    for i in range(size):
        a, b, c = add(a, b, c, r[i] * z[i])
        spread += abs(r[i] * z[i])
    a, b, c = normal(a, b, c)
    value = a + (b + c) + 4.0 * UNIT * spread
    return float(np.sqrt(max(value + off * _norm(r) / least, 0.0)) * _UP)


@compiled
def _gap(
    h: FloatArray, high: FloatArray, low: FloatArray, lowest: FloatArray, slip: float
) -> float:
    order = np.sort(h)
    a = b = c = spread = 0.0
    for i in range(len(h)):
        for term in (high[i] * h[i], low[i] * h[i]):
            a, b, c = add(a, b, c, term)
            spread += abs(term)
    for i in range(min(len(h), len(lowest))):
        term = lowest[i] * order[i]
        a, b, c = add(a, b, c, -term)
        spread += abs(term)
    a, b, c = normal(a, b, c)
    return (max(a + (b + c), 0.0) + 4.0 * UNIT * spread) * _UP + 2.0 * slip


@compiled
def _certify_one(
    K: FloatArray,
    alpha: FloatArray,
    ridge: float,
    C: float,
    second: float,
    lowest: FloatArray,
    out: FloatArray,
) -> None:
    n = len(K)
    largest = 0.0
    for i in range(n):
        largest = max(largest, abs(K[i, i]))
    largest += ridge
    high, low, h = np.empty(n), np.empty(n), np.empty(n)
    rest, moved = _point(alpha, C, second, high, low)
    reserve = (high == 0.0) & (low == 0.0)
    bounded = (high == C) & (low == second)
    margin = ~(reserve | bounded)
    support = _find_slacks(K, ridge, high, low, margin, bounded, h)
    slip = 8.0 * UNIT * np.abs(h) + largest * (rest + (support + 8.0) * 2.0**-105)
    r = np.where(margin, h, 0.0)
    r = np.where(reserve, np.minimum(h, 0.0), r)
    r = np.where(bounded, np.maximum(h, 0.0), r)
    norm = _norm(np.abs(r) + slip)
    least = ridge - n * _KERNEL_ERROR * (largest - ridge)
    ball = norm / np.sqrt(least) * _UP if least > 0.0 else np.inf
    sphere = norm / least * _UP if least > 0.0 else np.inf
    value = high + low
    loose = np.zeros(n, dtype=np.bool_)
    for _ in range(2):
        safe = margin & (value > sphere) & (C - value > sphere)
        reach = np.inf
        if safe.any():
            reach = 2.0 * np.sqrt(largest) * ball + slip.max()
            reach = (reach + np.abs(h[safe]).min()) * _UP
        loose = (reserve & (h <= reach)) | (bounded & (h >= -reach))
        among = np.flatnonzero(loose | margin)
        size = len(among)
        Q, L = np.empty((size, size)), np.zeros((size, size))
        for i in range(size):
            for j in range(size):
                Q[i, j] = K[among[i], among[j]]
            Q[i, i] += ridge
        whole = _factorised(Q, 0.0, L)
        least = max(least, _proved(Q, L) if whole else 0.0)
        if least > 0.0:
            root = np.sqrt(least)
            length = _length(Q, L, r[among], least, largest) if whole else np.inf
            ball = min(ball, norm / root, length + _norm(slip[among]) / root)
            sphere = min(sphere, ball / root)
    tied = bool(loose.any())
    for i in range(n):
        if margin[i] and min(value[i], C - value[i]) <= sphere + moved:
            tied = True
    gap = _gap(h, high, low, lowest, slip.max())
    shift = moved * np.sqrt(largest)
    out[0] = (np.abs(r) + slip).max() * _UP
    out[1] = gap
    out[2] = (np.sqrt(gap) + shift) * _UP
    out[3] = (ball + shift) * _UP
    out[4] = (sphere + moved) * _UP
    out[5] = 1.0 if tied else 0.0


@compiled
def certify_runs(
    values: FloatArray,
    starts: IntArray,
    alphas: FloatArray,
    ridge: float,
    C: float,
    second: float,
    lowest: FloatArray,
    out: FloatArray,
) -> None:
    """Certify the coefficients of several problems, all large enough to be feasible.

    Parameters
    ----------
    values : ndarray of float64
        Their kernel matrices one after the other, as `grams` returns them.
    starts : ndarray of int64
        The first coefficient of each, and the end of the last.
    alphas : ndarray of float64
        The coefficients.
    ridge, C : float
    second : float
        What the box lacks to its `C`: the second of its parts.
    lowest : ndarray of float64
        The largest coefficients that a feasible point can have, whose sum is 1.
    out : ndarray of shape (n_problems, 6), float64
        Residual, gap, bound, sharp bound, bound on the coefficients, and 1 if tied.
    """
    place = 0
    for number in range(len(starts) - 1):
        first, end = starts[number], starts[number + 1]
        n = end - first
        K = values[place : place + n * n].reshape(n, n)
        place += n * n
        _certify_one(K, alphas[first:end], ridge, C, second, lowest, out[number])
