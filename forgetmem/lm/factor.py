"""Cholesky factors ``U'U = Q`` that grow by keys and lose them, compiled, in float64.

While keys only come, each entry is computed by the same operations whatever the factor
grew from: going on from a part of it gives the same bits as starting anew.
"""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.jit import compiled


@compiled
def extend(
    K: FloatArray,
    ridge: float,
    order: IntArray,
    start: int,
    count: int,
    U: FloatArray,
) -> bool:
    """Continue ``U'U = Q[order, order]`` from row `start` to `count`.

    Returns False if a pivot is not positive.
    """
    for j in range(count):
        low = max(j, start)
        row = U[j]
        line = K[order[j]]
        for i in range(low, count):
            row[i] = line[order[i]]
        if low == j:
            row[j] += ridge
        whole = j - j % 4
        for k in range(0, whole, 4):
            a, b, c, d = U[k, j], U[k + 1, j], U[k + 2, j], U[k + 3, j]
            r0, r1, r2, r3 = U[k], U[k + 1], U[k + 2], U[k + 3]
            for i in range(low, count):
                row[i] -= (a * r0[i] + b * r1[i]) + (c * r2[i] + d * r3[i])
        for k in range(whole, j):
            a = U[k, j]
            r0 = U[k]
            for i in range(low, count):
                row[i] -= a * r0[i]
        if low == j:
            if not row[j] > 0.0:
                return False
            row[j] = np.sqrt(row[j])
            low += 1
        scale = 1.0 / row[j]
        for i in range(low, count):
            row[i] *= scale
    return True


@compiled
def cut(U: FloatArray, count: int, place: int) -> None:
    """Take the key at `place` out of the factor, by plane rotations."""
    for j in range(count):
        row = U[j]
        for i in range(max(j - 1, place), count - 1):
            row[i] = row[i + 1]
    for j in range(place, count - 1):
        upper, lower = U[j], U[j + 1]
        length = np.hypot(upper[j], lower[j])
        c, s = upper[j] / length, lower[j] / length
        for i in range(j, count - 1):
            x, y = upper[i], lower[i]
            upper[i] = c * x + s * y
            lower[i] = c * y - s * x


@compiled
def substitute(U: FloatArray, count: int, x: FloatArray) -> None:
    """Overwrite `x` with ``Q^-1 x``, for the first `count` rows of the factor."""
    for j in range(count):
        row = U[j]
        x[j] /= row[j]
        value = x[j]
        for i in range(j + 1, count):
            x[i] -= value * row[i]
    for j in range(count - 1, -1, -1):
        row = U[j]
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        end = count - (count - j - 1) % 8
        for i in range(j + 1, end, 8):
            a0 += row[i] * x[i]
            a1 += row[i + 1] * x[i + 1]
            a2 += row[i + 2] * x[i + 2]
            a3 += row[i + 3] * x[i + 3]
            a4 += row[i + 4] * x[i + 4]
            a5 += row[i + 5] * x[i + 5]
            a6 += row[i + 6] * x[i + 6]
            a7 += row[i + 7] * x[i + 7]
        for i in range(end, count):
            a0 += row[i] * x[i]
        total = ((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))
        x[j] = (x[j] - total) / row[j]
