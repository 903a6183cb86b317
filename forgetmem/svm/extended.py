"""Sums and products in two- and threefold float64 precision.

A number is held as an unevaluated sum of float64 numbers. The error of an addition is
found by Knuth's two-sum, that of a product by a fused multiply-add, which is the one
operation asked for by name: nothing here is contracted or reassociated by a compiler,
so the numbers are the same bits everywhere.

References
----------
.. [1] Ogita, Rump and Oishi, "Accurate sum and dot product", SIAM J. Sci. Comput. 26
   (2005), algorithms 3.1, 5.3 and 4.8.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.fused import fma
from forgetmem.jit import compiled

#: Unit roundoff of float64.
UNIT = 2.0**-53
#: The precision to work in, for compiled code: the number of float64 in a sum.
TWOFOLD = cast(int, np.int64(2))


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
def _twofold(A: FloatArray, lines: IntArray, x: FloatArray, sums: FloatArray) -> None:
    # Two lines at a time. What is held back in t is moved to s every 16 lines: then t
    # stays below 20 roundoffs of s, and the error below n * 16 UNIT**2 of all terms.
    n = len(lines)
    m = sums.shape[1]
    s = sums[0]
    t = sums[1]
    for j in range(0, n, 2):
        line = A[lines[j]]
        x0 = x[j, 0]
        x1 = x[j, 1]
        if j + 1 == n:
            for i in range(m):
                p = line[i] * x0
                new, e = two_sum(s[i], p)
                s[i] = new
                t[i] += (fma(line[i], x0, -p) + line[i] * x1) + e
            break
        other = A[lines[j + 1]]
        y0 = x[j + 1, 0]
        y1 = x[j + 1, 1]
        for i in range(m):
            p = line[i] * x0
            q = other[i] * y0
            new, e = two_sum(s[i], p)
            held = t[i] + ((fma(line[i], x0, -p) + line[i] * x1) + e)
            new, e = two_sum(new, q)
            s[i] = new
            t[i] = held + ((fma(other[i], y0, -q) + other[i] * y1) + e)
        if j % 16 == 14:
            for i in range(m):
                s[i], t[i] = two_sum(s[i], t[i])


@compiled
def _threefold(A: FloatArray, lines: IntArray, x: FloatArray, sums: FloatArray) -> None:
    m = sums.shape[1]
    s = sums[0]
    t = sums[1]
    u = sums[2]
    for j in range(len(lines)):
        line = A[lines[j]]
        x0 = x[j, 0]
        x1 = x[j, 1]
        x2 = x[j, 2]
        for i in range(m):
            k = line[i]
            p = k * x0
            q = k * x1
            new, e = two_sum(s[i], p)
            s[i] = new
            new, e = two_sum(t[i], e)
            new, f = two_sum(new, fma(k, x0, -p))
            new, g = two_sum(new, q)
            t[i] = new
            u[i] += (fma(k, x1, -q) + k * x2) + ((e + f) + g)


@compiled
def accumulate(
    A: FloatArray, lines: IntArray, x: FloatArray, level: int, sums: FloatArray
) -> None:
    """Add ``sum over j of A[lines[j]] * (x[j, 0] + x[j, 1] + x[j, 2])`` to `sums`.

    The loops run along the contiguous rows of a symmetric matrix, in vector registers.
    `level` is the number of parts of `x` and `sums` that are used, 2 or 3; `noise`
    bounds the error.
    """
    if level == 2:
        _twofold(A, lines, x, sums)
    else:
        _threefold(A, lines, x, sums)


@compiled
def noise(count: int, level: int) -> float:
    """Bound the error of `accumulate`, relative to the sum of the absolute terms."""
    if level == 2:
        return 16.0 * (count + 8) * UNIT * UNIT
    return ((count + 8) * UNIT) ** 3


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
