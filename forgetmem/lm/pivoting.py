"""Prefix problems of one sequence by block principal pivoting, compiled, in float64.

Each problem is a kernel matrix of keys and a list of prefixes. The partition of one
prefix is the guess for the next; its Cholesky factor is kept as far as the order of the
margin keys has not changed. Rows with a wrong sign are exchanged all at once, and one
by one as soon as that stops helping [1]_. Coefficients above `C` are dealt with only
where they occur.

References
----------
.. [1] Júdice and Pires, "A block principal pivoting algorithm for large-scale strictly
   monotone linear complementarity problems", Comput. Oper. Res. 21 (1994).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.jit import compiled
from forgetmem.lm.factor import cut, extend, substitute

Codes: TypeAlias = NDArray[np.int8]

#: What `solve_prefixes` says of a problem: no coefficient met `C`, some may have, or it
#: is not solved. `EXACT` and `UNGATED` are for callers to say what they did then.
FREE, BOXED, UNSOLVED, EXACT, UNGATED = 0, 1, 2, 3, 4

#: Most rounds of `_sweep`; each costs much less than a factorisation.
SWEEPS = 8

#: Roles of a key.
RESERVE, MARGIN, BOUNDED = 0, 1, 2


@compiled
def mirror(K: FloatArray) -> None:
    """Copy the lower triangles to the upper ones, and put 1 on the diagonals."""
    problems, n, _ = K.shape
    for p in range(problems):
        for top in range(0, n, 32):
            for left in range(0, top + 1, 32):
                for i in range(top, min(top + 32, n)):
                    for j in range(left, min(left + 32, i)):
                        K[p, j, i] = K[p, i, j]
        for i in range(n):
            K[p, i, i] = 1.0


@compiled
def leave(
    status: Codes, order: IntArray, count: int, factored: int, U: FloatArray
) -> tuple[int, int]:
    """Close the gaps of keys that are no longer margin.

    The factor is either rotated or given up from the first gap on, whatever costs less.
    Returns the number of keys that are left and the rows of the factor that are valid.
    """
    first, rotate = factored, 0.0
    for p in range(factored):
        if status[order[p]] != MARGIN:
            first = min(first, p)
            rotate += 10.0 * (factored - p) ** 2
    if rotate < (float(factored) ** 3 - float(first) ** 3) * 2.0 / 3.0:
        size = factored
        for p in range(factored - 1, first - 1, -1):
            if status[order[p]] != MARGIN:
                cut(U, size, p)
                size -= 1
        factored = size
    else:
        factored = first
    kept = 0
    for p in range(count):
        if status[order[p]] == MARGIN:
            order[kept] = order[p]
            kept += 1
    return kept, factored


@compiled
def _scores(
    K: FloatArray, lines: IntArray, values: FloatArray, low: int, g: FloatArray
) -> None:
    # Add sum_j values[j] K[lines[j], i] to g[i], for i from low to the end of g.
    count = len(lines)
    n = len(g)
    whole = count - count % 4
    for j in range(0, whole, 4):
        a, b, c, d = values[j], values[j + 1], values[j + 2], values[j + 3]
        r0, r1 = K[lines[j]], K[lines[j + 1]]
        r2, r3 = K[lines[j + 2]], K[lines[j + 3]]
        for i in range(low, n):
            g[i] += (a * r0[i] + b * r1[i]) + (c * r2[i] + d * r3[i])
    for j in range(whole, count):
        a = values[j]
        r0 = K[lines[j]]
        for i in range(low, n):
            g[i] += a * r0[i]


@compiled
def _members(status: Codes, role: int, n: int) -> IntArray:
    out = np.empty(n, dtype=np.int64)
    count = 0
    for i in range(n):
        if status[i] == role:
            out[count] = i
            count += 1
    return out[:count]


@compiled
def _point(
    K: FloatArray,
    ridge: float,
    C: float,
    order: IntArray,
    count: int,
    bounded: IntArray,
    U: FloatArray,
    n: int,
    alpha: FloatArray,
    g: FloatArray,
) -> float:
    # Coefficients of the margin keys for this partition, Q alpha of all, and rho.
    ones = np.ones(count)
    substitute(U, count, ones)
    g[:n] = 0.0
    shift = np.zeros(count)
    if len(bounded):
        _scores(K, bounded, np.full(len(bounded), C), 0, g[:n])
        for p in range(count):
            shift[p] = -g[order[p]]
        substitute(U, count, shift)
    rho: float = (1.0 - C * len(bounded) - shift.sum()) / ones.sum()
    for p in range(count):
        shift[p] += rho * ones[p]
        alpha[order[p]] = shift[p]
    outside = n - count
    if 16 * outside > n:
        _scores(K, order[:count], shift, 0, g[:n])
    elif outside > 0:
        inner = np.zeros(n, dtype=np.bool_)
        inner[order[:count]] = True
        for i in range(n):
            if not inner[i]:
                line = K[i]
                for p in range(count):
                    g[i] += shift[p] * line[order[p]]
    return rho


@compiled
def _pivot(
    K: FloatArray,
    ridge: float,
    C: float,
    n: int,
    order: IntArray,
    count: int,
    factored: int,
    U: FloatArray,
    status: Codes,
    alpha: FloatArray,
    g: FloatArray,
) -> tuple[int, int, int, float]:
    # From a guess to the optimum. Returns what it came to, the number of margin keys,
    # the rows of the factor that are valid, and rho.
    fewest, patience = n + 1, 3
    inside = C * (1.0 - 1e-13)
    boxed = len(_members(status, BOUNDED, n)) > 0
    wrong = np.empty(n, dtype=np.int64)
    for _ in range(60 + n):
        if count == 0:
            return UNSOLVED, count, factored, 0.0
        if factored < count and not extend(K, ridge, order, factored, count, U):
            return UNSOLVED, count, 0, 0.0
        factored = count
        bounded = _members(status, BOUNDED, n)
        rho = _point(K, ridge, C, order, count, bounded, U, n, alpha, g)
        slop = 1e-13 * (abs(rho) + ridge)
        found = 0
        above = False
        for i in range(n):
            role = status[i]
            if role == MARGIN:
                above = above or alpha[i] > C
                bad = not alpha[i] > 0.0 or (boxed and not alpha[i] < inside)
            elif role == RESERVE:
                bad = g[i] - rho < -slop
            else:
                bad = g[i] + ridge * C - rho > slop
            if bad:
                wrong[found] = i
                found += 1
        if found == 0:
            if not above:
                return BOXED if boxed else FREE, count, factored, rho
            boxed, fewest, patience = True, n + 1, 3
            for i in range(n):
                if status[i] == MARGIN and alpha[i] > C:
                    wrong[found] = i
                    found += 1
        if found < fewest:
            fewest, patience = found, 3
        elif patience > 0:
            patience -= 1
        else:
            wrong[0] = wrong[found - 1]
            found = 1
        for w in range(found):
            i = wrong[w]
            if status[i] != MARGIN:
                status[i] = MARGIN
                alpha[i] = -1.0
            elif boxed and alpha[i] >= inside:
                status[i] = BOUNDED
                alpha[i] = C
            else:
                status[i] = RESERVE
                alpha[i] = 0.0
        count, factored = leave(status, order, count, factored, U)
        for w in range(found):
            if status[wrong[w]] == MARGIN:
                order[count] = wrong[w]
                count += 1
    return UNSOLVED, count, 0, 0.0


@compiled
def _sweep(
    K: FloatArray, ridge: float, rho: float, n: int, w: FloatArray, g: FloatArray
) -> None:
    # Move w towards Q w = rho, w >= 0, key by key; g = K w. A guess at the support.
    scale = 1.0 / (1.0 + ridge)
    for _ in range(SWEEPS):
        flips = 0
        for i in range(n):
            value = max(w[i] + (rho - g[i] - ridge * w[i]) * scale, 0.0)
            step = value - w[i]
            if step == 0.0:
                continue
            flips += (value > 0.0) != (w[i] > 0.0)
            w[i] = value
            line = K[i]
            for j in range(n):
                g[j] += step * line[j]
        if 16 * flips <= n:
            break


@compiled
def _adopt(
    alpha: FloatArray,
    n: int,
    status: Codes,
    order: IntArray,
    count: int,
    factored: int,
    U: FloatArray,
) -> tuple[int, int]:
    # Make the keys with positive coefficients the margin, in an order that begins like
    # the present one. Returns their number and the rows of the factor that are valid.
    for p in range(count):
        if not alpha[order[p]] > 0.0:
            status[order[p]] = RESERVE
    count, factored = leave(status, order, count, factored, U)
    for i in range(n):
        if alpha[i] > 0.0 and status[i] != MARGIN:
            status[i] = MARGIN
            order[count] = i
            count += 1
    return count, factored


@compiled
def solve_prefixes(
    K: FloatArray,
    ridge: float,
    C: float,
    ends: IntArray,
    first: int,
    last: int,
    alphas: FloatArray,
    rhos: FloatArray,
    statuses: Codes,
    orders: IntArray,
    sizes: IntArray,
    factors: FloatArray,
    codes: Codes,
) -> None:
    """Solve all prefixes of the problems from `first` to `last`.

    `K` holds their kernel matrices. For each problem and prefix: the coefficients, rho,
    the role of each key, the margin keys in the order of the factor, their number and
    what it came to; for each problem the factor of its last prefix.
    """
    n_keys = K.shape[1]
    g = np.empty(n_keys)
    for p in range(first, last):
        order = np.arange(n_keys)
        status = np.zeros(n_keys, dtype=np.int8)
        alpha = np.zeros(n_keys)
        count = factored = before = 0
        rho = 0.0
        code = UNSOLVED
        for b in range(len(ends)):
            n = ends[b]
            g[:n] = 0.0
            support = np.flatnonzero(alpha[:before] > 0.0)
            _scores(K[p], support, alpha[support], 0, g[:n])
            if code == BOXED:
                for i in range(before, n):
                    if g[i] < rho:
                        status[i] = MARGIN
                        order[count] = i
                        count += 1
            else:
                if code == UNSOLVED:
                    status[:n] = RESERVE
                    alpha[:n] = 0.0
                    g[:n] = 0.0
                    count = factored = 0
                    rho = 1.0
                _sweep(K[p], ridge, rho, n, alpha, g)
                count, factored = _adopt(
                    alpha, n, status, order, count, factored, factors[p]
                )
            code, count, factored, rho = _pivot(
                K[p],
                ridge,
                C,
                n,
                order,
                count,
                factored,
                factors[p],
                status,
                alpha,
                g,
            )
            before = n
            codes[p, b] = code
            if code == UNSOLVED:
                sizes[p, b] = 0
                continue
            rhos[p, b] = rho
            sizes[p, b] = count
            orders[p, b, :count] = order[:count]
            for i in range(n):
                statuses[p, b, i] = status[i]
                if status[i] != RESERVE:
                    alphas[p, b, i] = alpha[i]
