"""Inner products and squared distances whose bits depend on the two vectors only.

A BLAS result depends on where a row stands, on the shape of the batch and on the
number of threads. Whatever decides, is compared or is shown goes through the
routines here instead: accumulators in a fixed order, in float64, fused where it says
so and nowhere else. So the same pair gives the same bits wherever it stands, in either
order of its members, and on every machine.

A comparison with a threshold that rounding could turn is settled by an exactly
rounded sum (`dot_at_least`).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, FloatArray, IntArray
from forgetmem.fused import fma
from forgetmem.jit import compiled

Vectors: TypeAlias = Float32Array | FloatArray

#: Above the rounding error of a float64 inner product of unit vectors, in any
#: dimension up to 2**16: (d + 1) * 2**-53 * sum|x_i y_i| <= 7.3e-12.
DOT_ERROR = 1e-11


@compiled
def dots_into(X: Vectors, q: Vectors, out: FloatArray) -> None:
    """Write `dots` to `out`; for compiled callers."""
    n, d = X.shape
    whole = d - d % 16
    for i in range(n):
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = 0.0
        for j in range(0, whole, 16):
            a0 += np.float64(X[i, j]) * np.float64(q[j])
            a1 += np.float64(X[i, j + 1]) * np.float64(q[j + 1])
            a2 += np.float64(X[i, j + 2]) * np.float64(q[j + 2])
            a3 += np.float64(X[i, j + 3]) * np.float64(q[j + 3])
            a4 += np.float64(X[i, j + 4]) * np.float64(q[j + 4])
            a5 += np.float64(X[i, j + 5]) * np.float64(q[j + 5])
            a6 += np.float64(X[i, j + 6]) * np.float64(q[j + 6])
            a7 += np.float64(X[i, j + 7]) * np.float64(q[j + 7])
            b0 += np.float64(X[i, j + 8]) * np.float64(q[j + 8])
            b1 += np.float64(X[i, j + 9]) * np.float64(q[j + 9])
            b2 += np.float64(X[i, j + 10]) * np.float64(q[j + 10])
            b3 += np.float64(X[i, j + 11]) * np.float64(q[j + 11])
            b4 += np.float64(X[i, j + 12]) * np.float64(q[j + 12])
            b5 += np.float64(X[i, j + 13]) * np.float64(q[j + 13])
            b6 += np.float64(X[i, j + 14]) * np.float64(q[j + 14])
            b7 += np.float64(X[i, j + 15]) * np.float64(q[j + 15])
        tail = 0.0
        for j in range(whole, d):
            tail += np.float64(X[i, j]) * np.float64(q[j])
        left = ((a0 + b0) + (a4 + b4)) + ((a2 + b2) + (a6 + b6))
        right = ((a1 + b1) + (a5 + b5)) + ((a3 + b3) + (a7 + b7))
        out[i] = (left + right) + tail


@compiled
def squares_into(X: Vectors, q: Vectors, out: FloatArray) -> None:
    """Write `squared_distances` to `out`; for compiled callers."""
    n, d = X.shape
    whole = d - d % 8
    for i in range(n):
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
        for j in range(0, whole, 8):
            e0 = np.float64(X[i, j]) - np.float64(q[j])
            e1 = np.float64(X[i, j + 1]) - np.float64(q[j + 1])
            e2 = np.float64(X[i, j + 2]) - np.float64(q[j + 2])
            e3 = np.float64(X[i, j + 3]) - np.float64(q[j + 3])
            e4 = np.float64(X[i, j + 4]) - np.float64(q[j + 4])
            e5 = np.float64(X[i, j + 5]) - np.float64(q[j + 5])
            e6 = np.float64(X[i, j + 6]) - np.float64(q[j + 6])
            e7 = np.float64(X[i, j + 7]) - np.float64(q[j + 7])
            a0 = fma(e0, e0, a0)
            a1 = fma(e1, e1, a1)
            a2 = fma(e2, e2, a2)
            a3 = fma(e3, e3, a3)
            a4 = fma(e4, e4, a4)
            a5 = fma(e5, e5, a5)
            a6 = fma(e6, e6, a6)
            a7 = fma(e7, e7, a7)
        tail = 0.0
        for j in range(whole, d):
            rest = np.float64(X[i, j]) - np.float64(q[j])
            tail = fma(rest, rest, tail)
        out[i] = (((a0 + a4) + (a2 + a6)) + ((a1 + a5) + (a3 + a7))) + tail


def dots(X: Vectors, q: Vectors) -> FloatArray:
    """Inner products of the rows of `X` with `q`, in float64.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64, C-contiguous
    q : ndarray of shape (d,), of the same dtype, C-contiguous

    Returns
    -------
    ndarray of shape (n,), float64
        Each entry depends on its row and on `q` only.
    """
    out = np.empty(len(X), dtype=np.float64)
    dots_into(X, q, out)
    return out


def squared_distances(X: Vectors, q: Vectors) -> FloatArray:
    """Squared Euclidean distances of the rows of `X` from `q`, as sums of squares.

    Parameters
    ----------
    X : ndarray of shape (n, d), float64 or float32, C-contiguous
    q : ndarray of shape (d,), of the same dtype, C-contiguous

    Returns
    -------
    ndarray of shape (n,), float64
        Never ``2 - 2 x.y``: exactly 0 for equal vectors, and symmetric.
    """
    out = np.empty(len(X), dtype=np.float64)
    squares_into(X, q, out)
    return out


@compiled
def _squares_at(X: Vectors, rows: IntArray, q: Vectors, out: FloatArray) -> None:
    for place in range(len(rows)):
        row = rows[place]
        squares_into(X[row : row + 1], q, out[place : place + 1])


def squared_distances_at(X: Vectors, rows: IntArray, q: Vectors) -> FloatArray:
    """Squared Euclidean distances of some rows of `X` from `q`, without a copy of them.

    Parameters
    ----------
    X : ndarray of shape (n, d), float64 or float32, C-contiguous
    rows : ndarray of shape (m,), int64
    q : ndarray of shape (d,), of the same dtype, C-contiguous

    Returns
    -------
    ndarray of shape (m,), float64
        The bits of ``squared_distances(X[rows], q)``.
    """
    out = np.empty(len(rows), dtype=np.float64)
    _squares_at(X, rows, q, out)
    return out


def dot_at_least(X: Float32Array, q: Float32Array, threshold: float) -> BoolArray:
    """Decide ``x.q >= threshold`` for each row, exactly.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32, C-contiguous
        Rows of norm at most about 1.
    q : ndarray of shape (d,), float32, C-contiguous
        Of norm at most about 1.
    threshold : float

    Returns
    -------
    ndarray of shape (n,), bool
        As if the inner products had been summed without rounding: products of two
        float32 are exact in float64, and where float64 summation could err the
        exactly rounded sum decides.
    """
    values = dots(X, q)
    decided = values >= threshold
    for row in np.flatnonzero(np.abs(values - threshold) <= DOT_ERROR):
        products = X[row].astype(np.float64) * q.astype(np.float64)
        decided[row] = math.fsum([*products, -threshold]) >= 0.0
    return decided
