"""RBF and linear kernels, evaluated so that a pair gives the same bits anywhere.

`distances` and `exponential` define the numbers. So K is a function of the pair of rows
alone, on every machine: it is symmetric bit for bit, and does not know the order of the
rows.
"""

from __future__ import annotations

import enum
import math

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.distances import dots, dots_into, squared_distances
from forgetmem.errors import InvalidInputError
from forgetmem.exponential import exp_into
from forgetmem.fused import fma
from forgetmem.jit import compiled

#: So many columns of the kernel matrix are filled side by side.
_WIDTH = 128


#: An exponent of the largest entry of Q up to this, either way, is left as it is.
_BALANCED = 8


class Kernel(enum.Enum):
    """The kernels of `OneClassSVM`."""

    RBF = "rbf"
    LINEAR = "linear"


def as_kernel(name: object) -> Kernel:
    """Return the kernel of this name.

    Parameters
    ----------
    name : object
        ``"rbf"`` or ``"linear"``.

    Returns
    -------
    Kernel

    Raises
    ------
    InvalidInputError
        If there is none.
    """
    try:
        return Kernel(name)
    except ValueError:
        names = ", ".join(repr(kernel.value) for kernel in Kernel)
        raise InvalidInputError(
            f"expected a kernel out of {names}, got {name!r}"
        ) from None


def check_lengths(kernel: Kernel, X: FloatArray) -> None:
    """Refuse rows whose inner products could overflow in what follows.

    Parameters
    ----------
    kernel : Kernel
        The values of the RBF kernel are never above 1.
    X : ndarray of shape (n_samples, n_features), float64

    Raises
    ------
    InvalidInputError
        If a row is longer than 2**250 and the kernel is linear.
    """
    if kernel is Kernel.LINEAR and np.abs(X).max(initial=0.0) > 2.0**250:
        raise InvalidInputError(
            "expected rows with entries up to 2**250 for the linear kernel; "
            "scale them down"
        )


def scale_of(largest: float) -> int:
    """Exponent of the power of 2 by which a badly scaled problem is divided.

    Parameters
    ----------
    largest : float
        Largest entry of Q in absolute value.

    Returns
    -------
    int
        Even, so that its square root is a power of 2 too; 0 if nothing need be done.
    """
    _, exponent = math.frexp(largest)
    return 0 if abs(exponent) <= _BALANCED else exponent - exponent % 2


def kernel_row(
    kernel: Kernel, gamma: float, X: FloatArray, x: FloatArray
) -> FloatArray:
    """Kernel values of the rows of `X` with one vector.

    Parameters
    ----------
    kernel : Kernel
    gamma : float
        Of the RBF kernel ``exp(-gamma * squared_distance)``; the linear one ignores it.
    X : ndarray of shape (n_samples, n_features), float64, C-contiguous
    x : ndarray of shape (n_features,), float64, C-contiguous

    Returns
    -------
    ndarray of shape (n_samples,), float64
    """
    if kernel is Kernel.LINEAR:
        return dots(X, x)
    return rbf(gamma, squared_distances(X, x))


def rbf(gamma: float, squared: FloatArray) -> FloatArray:
    """``exp(-gamma * squared)``, overwriting `squared`.

    Parameters
    ----------
    gamma : float
    squared : ndarray of float64, C-contiguous
        Squared distances, infinite where they overflow.

    Returns
    -------
    ndarray of float64
        `squared` itself, between 0 and 1.
    """
    _rbf(gamma, squared.reshape(-1))
    return squared


@compiled
def _rbf(gamma: float, squared: FloatArray) -> None:
    for i in range(len(squared)):
        squared[i] *= -gamma
    exp_into(squared, squared)


@compiled
def _all_squares(X: FloatArray, out: FloatArray) -> None:
    # Squared distances of all pairs, in the upper triangle. `squares_into` fixes the
    # order of the additions for a pair; here two rows meet up to 128 others side by
    # side.
    n, d = X.shape
    columns = np.ascontiguousarray(X.T)
    whole = d - d % 8
    long = d - d % 32
    sums = np.empty((2, 9, _WIDTH))
    for first in range(0, n, _WIDTH):
        end = min(first + _WIDTH, n)
        width = end - first
        for i in range(0, end, 2):
            sums[:] = 0.0
            X0 = X[i]
            X1 = X[min(i + 1, n - 1)]
            for k in range(0, long, 32):
                for m in range(k, k + 8):
                    s0 = sums[0, m - k]
                    s1 = sums[1, m - k]
                    w0, x0, y0, z0 = X0[m], X0[m + 8], X0[m + 16], X0[m + 24]
                    w1, x1, y1, z1 = X1[m], X1[m + 8], X1[m + 16], X1[m + 24]
                    p = columns[m, first:end]
                    q = columns[m + 8, first:end]
                    r = columns[m + 16, first:end]
                    s = columns[m + 24, first:end]
                    for j in range(width):
                        a, b, c, e = p[j] - w0, q[j] - x0, r[j] - y0, s[j] - z0
                        total = fma(b, b, fma(a, a, s0[j]))
                        s0[j] = fma(e, e, fma(c, c, total))
                        a, b, c, e = p[j] - w1, q[j] - x1, r[j] - y1, s[j] - z1
                        total = fma(b, b, fma(a, a, s1[j]))
                        s1[j] = fma(e, e, fma(c, c, total))
            for m in range(long, d):
                place = (m - long) % 8 if m < whole else 8
                s0 = sums[0, place]
                s1 = sums[1, place]
                w0, w1 = X0[m], X1[m]
                p = columns[m, first:end]
                for j in range(width):
                    a = p[j] - w0
                    s0[j] = fma(a, a, s0[j])
                    a = p[j] - w1
                    s1[j] = fma(a, a, s1[j])
            for row in range(min(2, n - i)):
                t = sums[row]
                target = out[i + row, first:end]
                for j in range(width):
                    left = (t[0, j] + t[4, j]) + (t[2, j] + t[6, j])
                    right = (t[1, j] + t[5, j]) + (t[3, j] + t[7, j])
                    target[j] = (left + right) + t[8, j]


@compiled
def _mirror(matrix: FloatArray) -> None:
    # Copy the upper triangle to the lower one, by way of tiles that stay in the cache.
    n = len(matrix)
    tile = np.empty((32, 32))
    for top in range(0, n, 32):
        rows = min(32, n - top)
        for left in range(0, top + 1, 32):
            columns = min(32, n - left)
            for j in range(columns):
                line = matrix[left + j, top : top + rows]
                for i in range(rows):
                    tile[i, j] = line[i]
            for i in range(rows):
                width = min(columns, top + i - left)
                target = matrix[top + i, left : left + width]
                for j in range(width):
                    target[j] = tile[i, j]


@compiled
def _pairs(
    X: FloatArray, starts: IntArray, linear: bool, gamma: float, out: FloatArray
) -> None:
    # Kernel values of all pairs within each run of rows, as matrices one after the
    # other.
    place = 0
    for run in range(len(starts) - 1):
        rows = X[starts[run] : starts[run + 1]]
        n = len(rows)
        matrix = out[place : place + n * n].reshape(n, n)
        place += n * n
        if linear:
            for i in range(n):
                dots_into(rows[i:], rows[i], matrix[i, i:])
        else:
            _all_squares(rows, matrix)
        if not linear and n > _WIDTH:
            for i in range(n):
                _rbf(gamma, matrix[i, i:])
        _mirror(matrix)
        if not linear and n <= _WIDTH:
            _rbf(gamma, matrix.reshape(n * n))


def grams(kernel: Kernel, gamma: float, X: FloatArray, starts: IntArray) -> FloatArray:
    """Kernel matrices of several runs of rows.

    Parameters
    ----------
    kernel : Kernel
    gamma : float
        Of the RBF kernel.
    X : ndarray of shape (n_samples, n_features), float64, C-contiguous
    starts : ndarray of int64
        The first row of each run, and the end of the last.

    Returns
    -------
    ndarray of float64
        The matrices one after the other, each symmetric bit for bit.
    """
    sizes = np.diff(starts)
    out = np.empty(int((sizes * sizes).sum()))
    _pairs(X, starts, kernel is Kernel.LINEAR, gamma, out)
    return out


def gram(kernel: Kernel, gamma: float, X: FloatArray) -> FloatArray:
    """Kernel matrix of the rows of `X`.

    Parameters
    ----------
    kernel : Kernel
    gamma : float
        Of the RBF kernel.
    X : ndarray of shape (n_samples, n_features), float64, C-contiguous

    Returns
    -------
    ndarray of shape (n_samples, n_samples), float64
        Symmetric bit for bit.
    """
    n = len(X)
    return grams(kernel, gamma, X, np.array([0, n])).reshape(n, n)
