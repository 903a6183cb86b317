"""The exponential function and its inverse, with the same bits on every machine.

Those of `numpy` take another way on processors with wider registers, and their last
digits differ. A memory that is written on one machine and checked on another needs one.
"""

from __future__ import annotations

import math

import numpy as np

from forgetmem.arrays import FloatArray
from forgetmem.fused import fma
from forgetmem.jit import compiled

_LOG2_E = float.fromhex("0x1.71547652b82fep+0")
_LN2_HIGH = float.fromhex("0x1.62e42fefa39efp-1")
_LN2_LOW = float.fromhex("0x1.abc9e3b39803fp-56")
#: Added to a number up to 2**51, it rounds it to an integer, in the lowest bits.
_SHIFT = 1.5 * 2.0**52
_ROOT_HALF = math.sqrt(0.5)
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = (
    1.0 / math.factorial(k) for k in range(2, 14)
)


@compiled
def exp_into(x: FloatArray, out: FloatArray) -> None:
    """Write ``exp(x)`` of a contiguous vector to `out`, which may be `x`."""
    powers = np.empty(64)
    bits = powers.view(np.int64)
    for first in range(0, len(x), 64):
        width = min(64, len(x) - first)
        a = x[first : first + width]
        b = out[first : first + width]
        # exp(x) = 2**m exp(r) with |r| up to log(2) / 2, by its Taylor polynomial; what
        # is not a normal number is found 2**128 times too large first.
        for j in range(width):
            value = a[j]
            deep = value < -700.0
            shifted = fma(value, _LOG2_E, _SHIFT)
            m = shifted - _SHIFT
            r = fma(m, -_LN2_HIGH, value)
            r = fma(m, -_LN2_LOW, r)
            q = fma(_C13, r, _C12)
            q = fma(q, r, _C11)
            q = fma(q, r, _C10)
            q = fma(q, r, _C9)
            q = fma(q, r, _C8)
            q = fma(q, r, _C7)
            q = fma(q, r, _C6)
            q = fma(q, r, _C5)
            q = fma(q, r, _C4)
            q = fma(q, r, _C3)
            q = fma(q, r, _C2)
            found = 1.0 + fma(r * r, q, r)
            powers[j] = shifted + (128.0 if deep else 0.0)
            found *= 2.0**-128 if deep else 1.0
            b[j] = found if value > -746.0 else 0.0
        for j in range(width):
            bits[j] = (bits[j] + 1023) << 52
        for j in range(width):
            b[j] = b[j] * powers[j] if b[j] > 0.0 else 0.0


def exp(x: FloatArray) -> FloatArray:
    """``exp(x)`` for each entry.

    Parameters
    ----------
    x : ndarray of float64
        At most 0; infinite ones give 0.

    Returns
    -------
    ndarray of float64
        Of the same shape, within one unit in the last place, and a function of the
        entry alone; 1 for 0.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    out = np.empty_like(flat)
    exp_into(flat, out)
    return out.reshape(x.shape)


@compiled
def log_into(x: FloatArray, out: FloatArray) -> None:
    """Write the logarithms of a vector of normal numbers above 0 to `out`."""
    for i in range(len(x)):
        m, e = math.frexp(x[i])
        if m < _ROOT_HALF:
            m *= 2.0
            e -= 1
        # log(m) = 2 artanh(s), as a series; |s| is at most 0.172.
        s = (m - 1.0) / (m + 1.0)
        z = s * s
        series = 1.0 / 23.0
        for odd in range(21, 1, -2):
            series = fma(series, z, 1.0 / odd)
        found = fma(2.0 * s * z, series, e * _LN2_LOW) + 2.0 * s
        out[i] = fma(np.float64(e), _LN2_HIGH, found)


def log(x: FloatArray) -> FloatArray:
    """Natural logarithm of each entry.

    Parameters
    ----------
    x : ndarray of float64
        Normal numbers above 0.

    Returns
    -------
    ndarray of float64
        Of the same shape, within a few units in the last place, and a function of the
        entry alone; never above 0 for numbers up to 1, and 0 for 1.
    """
    flat = np.ascontiguousarray(x).reshape(-1)
    out = np.empty_like(flat)
    log_into(flat, out)
    return out.reshape(x.shape)
