"""One byte a coordinate: inner products with a proved error, at a quarter of the bytes.

A row x is kept as ``step * c + r`` with integers ``-128 <= c <= 127`` and the length of
r; the step is a function of the dimension. So |x.q - step * (c.q)| <= |q| |r| by Cauchy
and Schwarz, for any q. A query that is compared with single rows is kept as
``width * p + s`` with integers of up to 15 bits; then ``c.p`` is an exact integer,
whatever the order in which it is summed.

The bytes are those of a FAISS scalar quantizer, never trained, that scans them.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from forgetmem.arrays import Float32Array, IntArray
from forgetmem.distances import DOT_ERROR
from forgetmem.jit import compiled

Codes: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]
QueryCodes: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int16]]
Verdicts: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int8]]

#: What `compare` says of a row.
NO, YES, UNSURE = 0, 1, 2

#: Coordinates of unit vectors rarely exceed this over the root of the dimension.
_RANGE = 6.0

#: Rows have norm 1 within rounding; allowed for with a margin.
_NORM = 1.01
#: Above the rounding of the few float64 operations of a bound, and above that of the
#: exact cosines that are compared with it.
_ROUNDING = 100.0 * DOT_ERROR


def step_of(dimension: int) -> float:
    """Return the value of one unit of a code.

    Parameters
    ----------
    dimension : int

    Returns
    -------
    float
        A float32, so that FAISS decodes with the same number.
    """
    reach = min(1.0, _RANGE / math.sqrt(max(dimension, 1)))
    return float(np.float32(reach / 127.0))


def empty_codes(dimension: int, capacity: int) -> tuple[Any, Codes]:
    """Make a FAISS index without rows, and the bytes that will be its codes.

    Parameters
    ----------
    dimension : int
    capacity : int
        Number of rows there is room for.

    Returns
    -------
    index : faiss.IndexScalarQuantizer
        Searches the first `ntotal` rows; to be set by the caller.
    codes : ndarray of shape (capacity, dimension), uint8
        A view of the memory of the index, zeros; lives as long as the index.
    """
    import faiss

    quantizer = faiss.ScalarQuantizer.QT_8bit_uniform
    index = faiss.IndexScalarQuantizer(dimension, quantizer, faiss.METRIC_INNER_PRODUCT)
    # FAISS decodes a byte b to low + (b + 0.5) / 255 * span: here step * (b - 128).
    step = step_of(dimension)
    trained = np.array([-128.5 * step, 255.0 * step], dtype=np.float32)
    faiss.copy_array_to_vector(trained, index.sq.trained)
    index.is_trained = True
    size = capacity * dimension
    index.codes.resize(size)
    flat = faiss.rev_swig_ptr(index.codes.data(), size) if size else np.empty(0, "u1")
    return index, flat.reshape(capacity, dimension)


@compiled
def encode(
    X: Float32Array,
    rows: IntArray,
    codes: Codes,
    step: float,
    errors: Float32Array,
) -> None:
    """Write the codes of some rows, and the lengths of what is left.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32
    rows : ndarray of int64
    codes : ndarray of shape (n, d), uint8
    step : float
        As `step_of` gives it.
    errors : ndarray of shape (n,), float32
        Rounded upwards.
    """
    d = X.shape[1]
    units = 1.0 / step
    for row in rows:
        total = 0.0
        for j in range(d):
            value = np.float64(X[row, j])
            code = min(max(np.rint(value * units), -128.0), 127.0)
            rest = value - code * step
            total += rest * rest
            codes[row, j] = np.uint8(code + 128.0)
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
    width : float
    length : float
        Of the query, rounded upwards.
    slack : float
        What the codes of the query and all rounding can add to an error.
    """
    d = len(q)
    # Small enough that an inner product of codes fits 32 bits.
    most = min(32767.0, np.floor(2147483647.0 / (128.0 * d)))
    largest = 0.0
    for j in range(d):
        largest = max(largest, abs(np.float64(q[j])))
    width = largest / most
    length = rest = 0.0
    for j in range(d):
        value = np.float64(q[j])
        code = np.rint(value / width) if width > 0.0 else 0.0
        code = min(max(code, -most), most)
        p[j] = np.int16(code)
        length += value * value
        rest += (value - code * width) ** 2
    up = 1.0 + 1e-9
    return width, np.sqrt(length) * up, np.sqrt(rest) * up * 2.0 * _NORM + _ROUNDING


@compiled
def _product(codes: Codes, row: int, p: QueryCodes) -> np.int32:
    # The sum fits 32 bits; saying so lets the compiler work with nothing wider.
    total = np.int32(0)
    for j in range(codes.shape[1]):
        total += (np.int32(codes[row, j]) - 128) * np.int32(p[j])
    return np.int32(total)


@compiled
def code_product(codes: Codes, a: int, b: int) -> np.int32:
    """Return the inner product of the codes of two rows; for compiled callers."""
    total = np.int32(0)
    for j in range(codes.shape[1]):
        total += (np.int32(codes[a, j]) - 128) * (np.int32(codes[b, j]) - 128)
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
def compare(
    codes: Codes,
    step: float,
    errors: Float32Array,
    rows: IntArray,
    p: QueryCodes,
    width: float,
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
    codes, step, errors
        As `encode` writes them.
    rows : ndarray of int64
    p, width, length, slack
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
        value = float(step * width * np.float64(_product(codes, row, p)))
        error = float(length * np.float64(errors[row]) + slack)
        if value - error < threshold <= value + error:
            value, error = narrow_product(X, row, q), narrow
        if value - error >= threshold:
            verdicts[place] = YES
        elif value + error < threshold:
            verdicts[place] = NO
        else:
            verdicts[place] = UNSURE
