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

from forgetmem.arrays import Float32Array, FloatArray, IntArray
from forgetmem.distances import DOT_ERROR
from forgetmem.jit import compiled, compiled_for_bounds

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
def _told(
    codes: Codes,
    step: float,
    errors: Float32Array,
    row: int,
    p: QueryCodes,
    width: float,
    length: float,
    slack: float,
) -> tuple[float, float]:
    # The inner product of a row with the query by their codes, and by how much it errs.
    value = float(step * width * np.float64(_product(codes, row, p)))
    return value, float(length * np.float64(errors[row]) + slack)


@compiled
def code_product(codes: Codes, a: int, b: int) -> np.int32:
    """Return the inner product of the codes of two rows; for compiled callers."""
    total = np.int32(0)
    for j in range(codes.shape[1]):
        total += (np.int32(codes[a, j]) - 128) * (np.int32(codes[b, j]) - 128)
    return np.int32(total)


@compiled_for_bounds
def narrow_product(X: Float32Array, row: int, q: Float32Array) -> float:
    """Return an inner product by float32 operations; for compiled callers."""
    total = np.float32(0.0)
    for j in range(len(q)):
        total += X[row, j] * q[j]
    return float(np.float64(total))


@compiled_for_bounds
def narrow_products(
    X: Float32Array, rows: IntArray, heads: IntArray, out: Float32Array
) -> None:
    """Write inner products of rows with some others, by float32 operations.

    Each row is read once for all heads, four of which are taken together.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32
    rows, heads : ndarray of int64
    out : ndarray of shape (len(heads), len(rows)), float32
    """
    last = len(heads) - 1
    for place in range(len(rows)):
        x = X[rows[place]]
        for first in range(0, len(heads), 4):
            a, b = X[heads[first]], X[heads[min(first + 1, last)]]
            c, d = X[heads[min(first + 2, last)]], X[heads[min(first + 3, last)]]
            s0 = s1 = s2 = s3 = np.float32(0.0)
            for j in range(X.shape[1]):
                s0 += x[j] * a[j]
                s1 += x[j] * b[j]
                s2 += x[j] * c[j]
                s3 += x[j] * d[j]
            out[min(first + 3, last), place] = s3
            out[min(first + 2, last), place] = s2
            out[min(first + 1, last), place] = s1
            out[first, place] = s0


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
        value, error = _told(codes, step, errors, row, p, width, length, slack)
        if value - error < threshold <= value + error:
            value, error = narrow_product(X, row, q), narrow
        if value - error >= threshold:
            verdicts[place] = YES
        elif value + error < threshold:
            verdicts[place] = NO
        else:
            verdicts[place] = UNSURE


@compiled
def bound(
    codes: Codes,
    step: float,
    errors: Float32Array,
    rows: IntArray,
    p: QueryCodes,
    width: float,
    length: float,
    slack: float,
    lower: FloatArray,
    upper: FloatArray,
) -> None:
    """Bound the inner products of rows from below and above, by their codes.

    Parameters
    ----------
    codes, step, errors
        As `encode` writes them.
    rows : ndarray of int64
    p, width, length, slack
        As `encode_query` gives them.
    lower, upper : ndarray of float64
        Room for one bound for each of `rows`.
    """
    for place in range(len(rows)):
        row = rows[place]
        value, error = _told(codes, step, errors, row, p, width, length, slack)
        lower[place] = value - error
        upper[place] = value + error


@compiled
def refine(
    X: Float32Array,
    rows: IntArray,
    places: IntArray,
    q: Float32Array,
    narrow: float,
    lower: FloatArray,
    upper: FloatArray,
) -> None:
    """Tighten some of the bounds by float32 products.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32
    rows : ndarray of int64
    places : ndarray of int64
        Positions in `rows`.
    q : ndarray of shape (d,), float32
    narrow : float
        Bounds the error of a float32 inner product.
    lower, upper : ndarray of float64
        One bound for each of `rows`.
    """
    for place in places:
        value = narrow_product(X, rows[place], q)
        lower[place] = max(lower[place], value - narrow)
        upper[place] = min(upper[place], value + narrow)
