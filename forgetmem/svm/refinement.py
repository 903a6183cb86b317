"""The solution of a margin system far beyond float64, and its one rounding.

The residual of the bordered system is summed in extended precision, an approximate
inverse turns it into a correction, and this is repeated until the solution, held as a
sum of two or three float64 numbers, is known far better than it will be stored. Then
each number is rounded to the nearest float64, once it is sure which that is [1]_.

References
----------
.. [1] Ziv, "Fast evaluation of elementary mathematical functions with correctly rounded
   last bit", ACM Trans. Math. Softw. 17 (1991).
"""

from __future__ import annotations

import math

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.fused import fma
from forgetmem.jit import compiled
from forgetmem.svm.extended import (
    UNIT,
    accumulate,
    add,
    copy_block,
    multiply,
    noise,
    normal,
    two_sum,
)

#: The least share of the largest bound of a row's error that each row is given.
_SHARED = 2.0**-20


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
def subtract(
    B: FloatArray, ridge: float, d: FloatArray, largest: float, r: FloatArray
) -> float:
    """Take ``M d`` from `r` in float64; returns a bound on the rounding error."""
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
def bound_errors(
    R: FloatArray,
    left: float,
    rate: float,
    level: int,
    x: FloatArray,
    sharp: bool,
    out: FloatArray,
) -> None:
    """Bound the error of each row of `x` by ``2 |R| left``, and by its last digit.

    Unless `sharp`, by ``|R_ij|**2 <= R_ii R_jj`` on the margin, where R is positive. R
    is off by its contraction `rate`, so a small row of it may hold nothing but errors:
    a share of the largest bound is added to each.
    """
    n = len(out)
    total = 0.0
    edge = abs(R[0, 0])
    for i in range(1, n):
        total += math.sqrt(max(R[i, i], 0.0))
        edge += abs(R[0, i])
    for i in range(1, n):
        out[i] = math.sqrt(max(R[i, i], 0.0)) * total + abs(R[0, i])
    out[0] = edge
    if sharp:
        out[:] = 0.0
        for j in range(n):
            line = R[j]
            for i in range(n):
                out[i] += abs(line[i])
    shared = max(16.0 * rate, _SHARED) * out.max()
    for i in range(n):
        out[i] += shared
        digit = 2.0**-104 if level == 2 else 2.0**-157
        out[i] = 2.0 * left * out[i] + digit * abs(x[i, 0])


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
) -> tuple[float, float]:
    """Refine ``x = [-rho; alpha_margin]``, held in `level` parts.

    It solves ``[[0, 1'], [1, Q_MM]] x = [rest; -C Q_MB 1]``, where `B` holds K on the
    margin, `largest` bounds the entries of Q and `R` is about the inverse. Returns the
    contraction, 1 if R is no inverse, and a bound on the residual that is left.
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
            break
        before = step
        if step <= (2.0**-32 if level == 2 else 2.0**-98) * scale:
            size = 0.0
            for i in range(s + 1):
                size = max(size, abs(r[0, i]))
            slip = subtract(B, ridge, d, largest, r)
            for i in range(s + 1):
                left = max(left, abs(r[0, i]))
            rate = left / size if size > 0.0 else 0.0
            left += slip
            break
    if not rate < 0.25:
        return 1.0, np.inf
    weight = nb * parts[0]
    for i in range(s):
        weight += abs(x[i + 1, 0])
    terms = (largest + 1.0) * weight + abs(x[0, 0]) + 1.0
    return rate, left + noise(s + nb, level) * terms


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
