"""Sums and a linear solve in two- and threefold float64 precision.

A number is held as an unevaluated sum of float64 numbers. The error of an addition is
found by Knuth's two-sum, that of a product by a fused multiply-add, which is the one
operation asked for by name: nothing here is contracted or reassociated by a compiler,
so the numbers are the same bits everywhere.

References
----------
.. [1] Ogita, Rump and Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26
   (2005), algorithms 3.1, 5.3 and 4.8.
.. [2] Ziv, "Fast evaluation of elementary mathematical functions with correctly rounded
   last bit", ACM Trans. Math. Softw. 17 (1991).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import intrinsic

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.jit import compiled

#: Unit roundoff of float64.
UNIT = 2.0**-53
#: The precision to work in, for compiled code: the number of float64 in a sum.
TWOFOLD = cast(int, np.int64(2))


def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:  # pragma: no cover
    # Runs while numba compiles, not when it loads what is cached.
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), generate


#: ``a * b + c``, rounded once; for compiled code only.
fma = cast(Callable[[float, float, float], float], intrinsic(_fma))


@compiled
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Add two numbers; returns the rounded sum and its error."""
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


@compiled
def add(a: float, b: float, c: float, v: float) -> tuple[float, float, float]:
    """Add `v` to the sum of three numbers."""
    a, e = two_sum(a, v)
    b, e = two_sum(b, e)
    return a, b, c + e


@compiled
def normal(a: float, b: float, c: float) -> tuple[float, float, float]:
    """Write the sum of three numbers so that none overlaps the next."""
    b, c = two_sum(b, c)
    a, b = two_sum(a, b)
    b, c = two_sum(b, c)
    a, b = two_sum(a, b)
    b, c = two_sum(b, c)
    return a, b, c


@compiled
def accumulate(
    A: FloatArray, lines: IntArray, x: FloatArray, level: int, sums: FloatArray
) -> None:
    """Add ``sum over j of A[lines[j]] * (x[j, 0] + x[j, 1] + x[j, 2])`` to `sums`.

    The loop runs along the contiguous rows of a symmetric matrix, in vector registers.
    """
    m = sums.shape[1]
    s = sums[0]
    t = sums[1]
    u = sums[2]
    for j in range(len(lines)):
        line = A[lines[j]]
        x0 = x[j, 0]
        x1 = x[j, 1]
        x2 = x[j, 2]
        if level == 2:
            for i in range(m):
                k = line[i]
                p = k * x0
                old = s[i]
                new = old + p
                z = new - old
                s[i] = new
                t[i] += (fma(k, x0, -p) + k * x1) + ((old - (new - z)) + (p - z))
        else:
            for i in range(m):
                k = line[i]
                p = k * x0
                h = fma(k, x0, -p)
                q = k * x1
                rest = fma(k, x1, -q) + k * x2
                old = s[i]
                new = old + p
                z = new - old
                s[i] = new
                e = (old - (new - z)) + (p - z)
                old = t[i]
                new = old + e
                z = new - old
                rest += (old - (new - z)) + (e - z)
                old = new
                new = old + h
                z = new - old
                rest += (old - (new - z)) + (h - z)
                old = new
                new = old + q
                z = new - old
                rest += (old - (new - z)) + (q - z)
                t[i] = new
                u[i] += rest


@compiled
def copy_block(
    A: FloatArray, lines: IntArray, places: IntArray, out: FloatArray
) -> None:
    """Copy the entries of some lines of a matrix at some places."""
    for j in range(len(lines)):
        line = A[lines[j]]
        target = out[j]
        for i in range(len(places)):
            target[i] = line[places[i]]


@compiled
def multiply(A: FloatArray, x: FloatArray, out: FloatArray) -> None:
    """Add ``A x`` to `out` for a symmetric matrix whose corner is of the size of x."""
    n = len(x)
    whole = n - n % 4
    for j in range(0, whole, 4):
        a, b, c, d = x[j], x[j + 1], x[j + 2], x[j + 3]
        p = A[j]
        q = A[j + 1]
        r = A[j + 2]
        s = A[j + 3]
        for i in range(n):
            out[i] += (a * p[i] + b * q[i]) + (c * r[i] + d * s[i])
    for j in range(whole, n):
        a = x[j]
        p = A[j]
        for i in range(n):
            out[i] += a * p[i]


@compiled
def residual(
    B: FloatArray,
    ridge: float,
    base: FloatArray,
    rest: FloatArray,
    x: FloatArray,
    level: int,
    out: FloatArray,
) -> None:
    """Write ``[rest; -base] - [[0, 1'], [1, B + ridge I]] x`` as sums of two."""
    s = len(x) - 1
    sums = base.copy()
    accumulate(B, np.arange(s), x[1:], level, sums)
    a, b, c = rest[0], rest[1], rest[2]
    for i in range(s):
        for part in range(level):
            a, b, c = add(a, b, c, -x[i + 1, part])
    a, b, c = normal(a, b, c)
    out[0, 0] = a
    out[1, 0] = b + c
    for i in range(s):
        a, b, c = sums[0, i], sums[1, i], sums[2, i]
        for part in range(level):
            value = x[i + 1, part]
            product = ridge * value
            a, b, c = add(a, b, c, product)
            a, b, c = add(a, b, c, fma(ridge, value, -product))
            a, b, c = add(a, b, c, x[0, part])
        a, b, c = normal(a, b, c)
        out[0, i + 1] = -a
        out[1, i + 1] = -(b + c)


@compiled
def base_sums(
    K: FloatArray, margin: IntArray, bounded: IntArray, parts: FloatArray, level: int
) -> FloatArray:
    """Sum K times the bound over the bounded samples, for each margin sample."""
    base = np.zeros((3, len(margin)))
    box = np.empty((len(bounded), 3))
    for i in range(len(bounded)):
        box[i] = parts
    lines = np.empty((len(bounded), len(margin)))
    copy_block(K, bounded, margin, lines)
    accumulate(lines, np.arange(len(bounded)), box, level, base)
    return base


@compiled
def advance(x: FloatArray, d: FloatArray, level: int) -> tuple[float, float]:
    """Add `d` to `x`; returns the largest of both, infinite if `d` is not finite."""
    scale = 0.0
    step = 0.0
    total = 0.0
    for i in range(len(d)):
        a, b, c = add(x[i, 0], x[i, 1], x[i, 2], d[i])
        a, b, c = normal(a, b, c)
        x[i, 0], x[i, 1] = a, b
        x[i, 2] = c if level == 3 else 0.0
        scale = max(scale, abs(a))
        step = max(step, abs(d[i]))
        total += abs(d[i])
    if not total < np.inf:
        step = np.inf
    return step, scale


@compiled
def _subtract(
    B: FloatArray, ridge: float, d: FloatArray, largest: float, r: FloatArray
) -> float:
    # r -= M d in float64; returns a bound on the rounding error.
    s = len(d) - 1
    y = np.zeros(s)
    multiply(B, d[1:], y)
    total = 0.0
    weight = 0.0
    for i in range(s):
        total += d[i + 1]
        weight += abs(d[i + 1])
        y[i] += ridge * d[i + 1] + d[0]
        r[0, i + 1] = (r[0, i + 1] - y[i]) + r[1, i + 1]
    r[0, 0] = (r[0, 0] - total) + r[1, 0]
    return (s + 8) * UNIT * ((largest + 1.0) * weight + abs(float(d[0])))


@compiled
def _error(R: FloatArray, left: float, error: FloatArray) -> None:
    # error = |R| * left, with |R_ij|^2 <= R_ii R_jj on the margin, where R is positive.
    total = 0.0
    edge = abs(R[0, 0])
    n = len(error)
    for i in range(1, n):
        total += math.sqrt(max(R[i, i], 0.0))
        edge += abs(R[0, i])
    error[0] = edge * left
    for i in range(1, n):
        error[i] = (math.sqrt(max(R[i, i], 0.0)) * total + abs(R[0, i])) * left


@compiled
def refine(
    K: FloatArray,
    B: FloatArray,
    ridge: float,
    largest: float,
    margin: IntArray,
    bounded: IntArray,
    parts: FloatArray,
    rest: FloatArray,
    R: FloatArray,
    level: int,
    x: FloatArray,
    error: FloatArray,
) -> float:
    """Refine ``x = [-rho; alpha_margin]``, held in `level` parts.

    It solves ``[[0, 1'], [1, Q_MM]] x = [rest; -C Q_MB 1]``, where `B` holds K on the
    margin, `largest` bounds the entries of Q and `R` is about the inverse. `error`
    bounds what is left, entry by entry. Returns the contraction: if it is not small, R
    is no inverse, and the bound does not hold.
    """
    s = len(margin)
    nb = len(bounded)
    base = base_sums(K, margin, bounded, parts, level)
    r = np.empty((2, s + 1))
    d = np.empty(s + 1)
    before = np.inf
    left = 0.0
    rate = 1.0
    for _ in range(40):
        residual(B, ridge, base, rest, x, level, r)
        d[:] = 0.0
        multiply(R, r[0], d)
        step, scale = advance(x, d, level)
        if not step < np.inf or step > before:
            return 1.0
        before = step
        if step <= (2.0**-32 if level == 2 else 2.0**-98) * scale:
            size = 0.0
            for i in range(s + 1):
                size = max(size, abs(r[0, i]))
            noise = _subtract(B, ridge, d, largest, r)
            for i in range(s + 1):
                left = max(left, abs(r[0, i]))
            rate = left / size if size > 0.0 else 0.0
            left += noise
            break
    if not rate < 0.25:
        return 1.0
    weight = nb * parts[0]
    for i in range(s):
        weight += abs(x[i + 1, 0])
    left += ((s + nb + 8) * UNIT) ** level * (
        (largest + 1.0) * weight + abs(x[0, 0]) + 1.0
    )
    _error(R[: s + 1, : s + 1], 2.0 * left, error)
    for i in range(s + 1):
        error[i] += (2.0**-104 if level == 2 else 2.0**-157) * abs(x[i, 0])
    return rate


@compiled
def _odd_sum(a: float, b: float) -> float:
    # a + b; if it must be rounded, to the odd neighbour, which no later rounding takes
    # for half way between two numbers.
    s, e = two_sum(a, b)
    if e != 0.0 and np.float64(s).view(np.int64) % 2 == 0:
        return float(np.nextafter(s, math.copysign(np.inf, e)))
    return s


@compiled
def round_off(x: FloatArray, error: FloatArray, out: FloatArray) -> bool:
    """Round the sums of the rows of `x`, known up to `error`, to the nearest float64.

    Returns False if the error leaves two candidates; then the value is taken for the
    tie it seems to be, and the even one is written.
    """
    sure = True
    for i in range(len(out)):
        low = x[i, 0] + _odd_sum(x[i, 1], x[i, 2] - error[i])
        high = x[i, 0] + _odd_sum(x[i, 1], x[i, 2] + error[i])
        if low == high:
            out[i] = low
            continue
        sure = False
        out[i] = low if np.float64(low).view(np.int64) % 2 == 0 else high
    return sure


@compiled
def slacks(
    K: FloatArray,
    lines: IntArray,
    x: FloatArray,
    rho: FloatArray,
    places: IntArray,
    level: int,
    out: FloatArray,
) -> None:
    """Find ``sum over j of K[lines[j], places[i]] * x[j] - rho`` for each i."""
    sums = np.zeros((3, len(places)))
    values = np.empty((len(lines), len(places)))
    copy_block(K, lines, places, values)
    accumulate(values, np.arange(len(lines)), x, level, sums)
    for i in range(len(places)):
        a, b, c = sums[0, i], sums[1, i], sums[2, i]
        for part in range(len(rho)):
            a, b, c = add(a, b, c, -rho[part])
        a, b, c = normal(a, b, c)
        out[i] = a + (b + c)
