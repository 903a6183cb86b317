"""One byte a coordinate: inner products with a proved error, at a quarter of the bytes.

A row x is kept as ``scale * c + r`` with integers ``-127 <= c <= 127`` and the length
of r; a query q as ``step * p + s`` with integers of up to 15 bits. Then

    |x.q - scale * step * (c.p)| <= |q| |r| + |s| (|x| + |r|)

by Cauchy and Schwarz, and ``c.p`` is an exact integer, whatever the order in which it
is summed. The scale of a row is a function of that row alone.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, FloatArray, IntArray
from forgetmem.distances import DOT_ERROR
from forgetmem.jit import compiled

Codes: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int8]]
QueryCodes: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int16]]
Verdicts: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int8]]

#: What `compare` says of a row.
NO, YES, UNSURE = 0, 1, 2

#: Rows have norm 1 within rounding; allowed for with a margin.
_NORM = 1.01
#: Above the rounding of the few float64 operations of a bound, and above that of the
#: exact cosines that are compared with it.
_ROUNDING = 100.0 * DOT_ERROR


@compiled
def encode(
    X: Float32Array,
    rows: IntArray,
    codes: Codes,
    scales: Float32Array,
    errors: Float32Array,
) -> None:
    """Write the codes of some rows, their scales and the lengths of what is left.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32
    rows : ndarray of int64
    codes : ndarray of shape (n, d), int8
    scales, errors : ndarray of shape (n,), float32
        `errors` is rounded upwards.
    """
    d = X.shape[1]
    for row in rows:
        largest = np.float32(0.0)
        for j in range(d):
            largest = max(largest, abs(X[row, j]))
        scale = np.float32(np.float64(largest) / 127.0)
        step = np.float64(scale)
        total = 0.0
        for j in range(d):
            value = np.float64(X[row, j])
            code = 0.0
            if step > 0.0:
                code = min(max(np.rint(value / step), -127.0), 127.0)
            rest = value - code * step
            total += rest * rest
            codes[row, j] = np.int8(code)
        scales[row] = scale
        errors[row] = np.float32(np.sqrt(total) * (1.0 + 1e-6) + 1e-37)


@compiled
def encode_query(q: Float32Array, p: QueryCodes) -> tuple[float, float, float]:
    """Write the codes of a query.

    Parameters
    ----------
    q : ndarray of shape (d,), float32
    p : ndarray of shape (d,), int16

    Returns
    -------
    step : float
    length : float
        Of the query, rounded upwards.
    slack : float
        What the codes of the query and all rounding can add to an error.
    """
    d = len(q)
    # Small enough that an inner product of codes fits 32 bits.
    most = min(32767.0, np.floor(2147483647.0 / (127.0 * d)))
    largest = 0.0
    for j in range(d):
        largest = max(largest, abs(np.float64(q[j])))
    step = largest / most
    length = rest = 0.0
    for j in range(d):
        value = np.float64(q[j])
        code = np.rint(value / step) if step > 0.0 else 0.0
        code = min(max(code, -most), most)
        p[j] = np.int16(code)
        length += value * value
        rest += (value - code * step) ** 2
    up = 1.0 + 1e-9
    return step, np.sqrt(length) * up, np.sqrt(rest) * up * 2.0 * _NORM + _ROUNDING


@compiled
def _product(codes: Codes, row: int, p: QueryCodes) -> np.int32:
    # The sum fits 32 bits; saying so lets the compiler work with nothing wider.
    total = np.int32(0)
    for j in range(codes.shape[1]):
        total += np.int32(codes[row, j]) * np.int32(p[j])
    return np.int32(total)


@compiled
def code_product(codes: Codes, a: int, b: int) -> np.int32:
    """Return the inner product of the codes of two rows; for compiled callers."""
    total = np.int32(0)
    for j in range(codes.shape[1]):
        total += np.int32(codes[a, j]) * np.int32(codes[b, j])
    return np.int32(total)


@compiled
def narrow_product(X: Float32Array, row: int, q: Float32Array) -> float:
    """Return an inner product by float32 operations; for compiled callers."""
    d = len(q)
    whole = d - d % 16
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = np.float32(0.0)
    b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = np.float32(0.0)
    for j in range(0, whole, 16):
        a0 += X[row, j] * q[j]
        a1 += X[row, j + 1] * q[j + 1]
        a2 += X[row, j + 2] * q[j + 2]
        a3 += X[row, j + 3] * q[j + 3]
        a4 += X[row, j + 4] * q[j + 4]
        a5 += X[row, j + 5] * q[j + 5]
        a6 += X[row, j + 6] * q[j + 6]
        a7 += X[row, j + 7] * q[j + 7]
        b0 += X[row, j + 8] * q[j + 8]
        b1 += X[row, j + 9] * q[j + 9]
        b2 += X[row, j + 10] * q[j + 10]
        b3 += X[row, j + 11] * q[j + 11]
        b4 += X[row, j + 12] * q[j + 12]
        b5 += X[row, j + 13] * q[j + 13]
        b6 += X[row, j + 14] * q[j + 14]
        b7 += X[row, j + 15] * q[j + 15]
    tail = np.float32(0.0)
    for j in range(whole, d):
        tail += X[row, j] * q[j]
    left = ((a0 + b0) + (a4 + b4)) + ((a2 + b2) + (a6 + b6))
    right = ((a1 + b1) + (a5 + b5)) + ((a3 + b3) + (a7 + b7))
    return float(np.float64((left + right) + tail))


@compiled
def _replace_smallest(heap: FloatArray, value: float) -> None:
    # The smallest of the heap stands first.
    place = 0
    while True:
        child = 2 * place + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value


@compiled
def best(
    codes: Codes,
    scales: Float32Array,
    errors: Float32Array,
    among: BoolArray,
    p: QueryCodes,
    step: float,
    length: float,
    slack: float,
    heap: FloatArray,
    upper: FloatArray,
    found: IntArray,
) -> int:
    """Find every row that may be one of the best.

    Parameters
    ----------
    codes, scales, errors
        As `encode` writes them.
    among : ndarray of shape (n,), bool
        The rows that are looked at.
    p, step, length, slack
        As `encode_query` gives them.
    heap : ndarray of shape (count,), float64
        Afterwards ``heap[0]`` is the largest value that `count` rows reach for sure,
        and no row that is not found reaches; -inf if there are fewer rows.
    upper : ndarray of shape (n,), float64
        Room for the upper bounds.
    found : ndarray of shape (n,), int64
        Room for the rows.

    Returns
    -------
    int
        How many rows were found, ascending.
    """
    heap[:] = -np.inf
    for row in range(len(among)):
        if not among[row]:
            continue
        value = step * np.float64(scales[row]) * np.float64(_product(codes, row, p))
        error = length * np.float64(errors[row]) + slack
        upper[row] = value + error
        if value - error > heap[0]:
            _replace_smallest(heap, value - error)
    size = 0
    for row in range(len(among)):
        if among[row] and upper[row] >= heap[0]:
            found[size] = row
            size += 1
    return size


@compiled
def refine(
    X: Float32Array,
    q: Float32Array,
    error: float,
    heap: FloatArray,
    upper: FloatArray,
    found: IntArray,
) -> int:
    """Look again at what `best` found, in float32.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32
    q : ndarray of shape (d,), float32
    error : float
        Bounds the error of a float32 inner product.
    heap, upper, found
        As for `best`; `found` holds the rows.

    Returns
    -------
    int
        How many rows are left.
    """
    heap[:] = -np.inf
    for place in range(len(found)):
        value = narrow_product(X, found[place], q)
        upper[place] = value + error
        if value - error > heap[0]:
            _replace_smallest(heap, value - error)
    size = 0
    for place in range(len(found)):
        if upper[place] >= heap[0]:
            found[size] = found[place]
            size += 1
    return size


@compiled
def compare(
    codes: Codes,
    scales: Float32Array,
    errors: Float32Array,
    rows: IntArray,
    p: QueryCodes,
    step: float,
    length: float,
    slack: float,
    X: Float32Array,
    q: Float32Array,
    narrow: float,
    threshold: float,
    verdicts: Verdicts,
) -> None:
    """Tell of rows whether their inner product reaches a threshold.

    Parameters
    ----------
    codes, scales, errors
        As `encode` writes them.
    rows : ndarray of int64
    p, step, length, slack
        As `encode_query` gives them.
    X : ndarray of shape (n, d), float32
    q : ndarray of shape (d,), float32
    narrow : float
        Bounds the error of a float32 inner product.
    threshold : float
    verdicts : ndarray of int8
        Room for one of `NO`, `YES` and `UNSURE` for each of `rows`.
    """
    for place in range(len(rows)):
        row = rows[place]
        product = np.float64(_product(codes, row, p))
        value = float(step * np.float64(scales[row]) * product)
        error = float(length * np.float64(errors[row]) + slack)
        if value - error < threshold <= value + error:
            value, error = narrow_product(X, row, q), narrow
        if value - error >= threshold:
            verdicts[place] = YES
        elif value + error < threshold:
            verdicts[place] = NO
        else:
            verdicts[place] = UNSURE
