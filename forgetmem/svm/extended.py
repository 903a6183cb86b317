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

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numba import types
from numba.extending import intrinsic

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.jit import compiled

#: Unit roundoff of float64.
UNIT = 2.0**-53


def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), generate


#: ``a * b + c``, rounded once; for compiled code only.
fma = cast(Callable[[float, float, float], float], intrinsic(_fma))


@compiled
def add(a: float, b: float, c: float, v: float) -> tuple[float, float, float]:
    """Add `v` to the sum of three numbers."""
    s = a + v
    z = s - a
    e = (a - (s - z)) + (v - z)
    t = b + e
    z = t - b
    return s, t, c + ((b - (t - z)) + (e - z))


@compiled
def normal(a: float, b: float, c: float) -> tuple[float, float, float]:
    """Write a sum of three numbers so that none overlaps the next."""
    t = b + c
    f = c - (t - b)
    s = a + t
    e = t - (s - a)
    t = e + f
    return s, t, f - (t - e)


@compiled
def accumulate(
    A: FloatArray, lines: IntArray, x: FloatArray, level: int, sums: FloatArray
) -> None:
    """Add ``sum over j of A[lines[j]] * (x[0, j] + x[1, j] + x[2, j])`` to `sums`.

    The loop runs along the contiguous rows of a symmetric matrix, in vector registers.
    """
    m = sums.shape[1]
    s = sums[0]
    t = sums[1]
    u = sums[2]
    for j in range(len(lines)):
        line = A[lines[j]]
        x0 = x[0, j]
        x1 = x[1, j]
        x2 = x[2, j]
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
def block(A: FloatArray, lines: IntArray, places: IntArray) -> FloatArray:
    """Copy the entries of some lines at some places, contiguously."""
    out = np.empty((len(lines), len(places)))
    for j in range(len(lines)):
        for i in range(len(places)):
            out[j, i] = A[lines[j], places[i]]
    return out


@compiled
def _coefficients(x: FloatArray, parts: FloatArray, nb: int) -> FloatArray:
    s = x.shape[1] - 1
    out = np.empty((3, s + nb))
    for part in range(3):
        out[part, :s] = x[part, 1:]
        out[part, s:] = parts[part]
    return out


@compiled
def refine(
    K: FloatArray,
    ridge: float,
    margin: IntArray,
    bounded: IntArray,
    parts: FloatArray,
    rest: FloatArray,
    R: FloatArray,
    level: int,
    x: FloatArray,
    error: FloatArray,
) -> float:
    """Refine ``x = [-rho; alpha_margin]``, in `level` parts, until it stands still.

    It solves ``[[0, 1'], [1, Q_MM]] x = [rest; -C Q_MB 1]``. `error` bounds what is
    left, entry by entry. Returns the contraction of the last step: from 1 on, R is no
    inverse.
    """
    s = len(margin)
    nb = len(bounded)
    A = block(K, margin, margin)
    base = np.zeros((3, s))
    if nb:
        box = np.empty((3, nb))
        for part in range(3):
            box[part, :] = parts[part]
        accumulate(block(K, bounded, margin), np.arange(nb), box, level, base)
    largest = 0.0
    for i in range(s):
        largest = max(largest, A[i, i])
    scale = 0.0
    before = np.inf
    step = np.inf
    rate = 1.0
    residual = np.empty(s + 1)
    d = np.empty(s + 1)
    for turn in range(40):
        sums = base.copy()
        accumulate(A, np.arange(s), x[:, 1:], level, sums)
        a, b, c = rest[0], rest[1], rest[2]
        for i in range(s):
            for part in range(level):
                a, b, c = add(a, b, c, -x[part, i + 1])
        residual[0] = a + (b + c)
        for i in range(s):
            a, b, c = sums[0, i], sums[1, i], sums[2, i]
            for part in range(level):
                value = x[part, i + 1]
                product = ridge * value
                a, b, c = add(a, b, c, product)
                a, b, c = add(a, b, c, fma(ridge, value, -product))
                a, b, c = add(a, b, c, x[part, 0])
            residual[i + 1] = -(a + (b + c))
        d[:] = 0.0
        for j in range(s + 1):
            value = residual[j]
            for i in range(s + 1):
                d[i] += R[j, i] * value
        before = step
        step = 0.0
        scale = 0.0
        for i in range(s + 1):
            a, b, c = add(x[0, i], x[1, i], x[2, i], d[i])
            a, b, c = normal(a, b, c)
            x[0, i], x[1, i] = a, b
            x[2, i] = c if level == 3 else 0.0
            scale = max(scale, abs(a))
            step = max(step, abs(d[i]))
        if not step < np.inf:
            return np.inf
        if turn > 0 and step > 0.0:
            rate = step / before
        elif step == 0.0:
            rate = 0.0
        goal = 2.0**-96 if level == 2 else 2.0**-145
        if turn > 0 and (rate * step <= goal * scale or rate > 0.25):
            break
    weight = 0.0
    for i in range(s):
        weight += abs(x[0, i + 1])
    weight += nb * parts[0]
    noise = ((s + nb + 8) * UNIT) ** level * (
        (largest + ridge) * weight + abs(x[0, 0]) + 1.0
    )
    keep = 2.0**-104 if level == 2 else 2.0**-157
    settled = min(rate, 1.0) * step
    error[:] = 0.0
    for j in range(s + 1):
        for i in range(s + 1):
            error[i] += abs(R[j, i])
    for i in range(s + 1):
        error[i] = 2.0 * (error[i] * noise + settled) + keep * abs(x[0, i])
    if settled <= 2.0**-60 * scale:
        return min(rate, 0.5)
    return max(rate, 1.0)


@compiled
def round_off(x: FloatArray, error: FloatArray, out: FloatArray) -> bool:
    """Round ``x[0] + x[1] + x[2]``, known up to `error`, to the nearest float64.

    Returns False if the error leaves two candidates; then the value is taken for the
    tie it seems to be, and the even one is written.
    """
    sure = True
    for i in range(len(out)):
        low = x[0, i] + (x[1, i] + (x[2, i] - error[i]))
        high = x[0, i] + (x[1, i] + (x[2, i] + error[i]))
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
    """Find ``sum over j of K[lines[j], places[i]] * x[:, j] - rho`` for each i."""
    sums = np.zeros((3, len(places)))
    accumulate(block(K, lines, places), np.arange(len(lines)), x, level, sums)
    for i in range(len(places)):
        a, b, c = sums[0, i], sums[1, i], sums[2, i]
        for part in range(len(rho)):
            a, b, c = add(a, b, c, -rho[part])
        out[i] = a + (b + c)
