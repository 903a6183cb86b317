"""RBF and linear kernels, evaluated so that a pair gives the same bits anywhere.

`distances` defines the sums; `numpy.exp` is applied to C-contiguous arrays, where its
result does not depend on the position of an entry. So K is a function of the pair of
rows alone: it is symmetric bit for bit, and does not know the order of the rows.
"""

from __future__ import annotations

import enum
import math

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.distances import dots, dots_into, squared_distances
from forgetmem.errors import InvalidInputError
from forgetmem.jit import compiled

#: From so many rows on, exp is applied to the upper triangle only, in slabs of rows.
_LARGE = 256


#: An exponent of the largest entry of Q up to this, either way, is left as it is.
_BALANCED = 40


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
    squared : ndarray of float64, with contiguous rows
        Squared distances, infinite where they overflow.

    Returns
    -------
    ndarray of float64
        `squared` itself, between 0 and 1.
    """
    with np.errstate(over="ignore", under="ignore"):
        np.multiply(squared, -gamma, out=squared)
        return np.exp(squared, out=squared)


@compiled
def _all_squares(X: FloatArray, out: FloatArray) -> None:
    # Squared distances of all pairs, in the upper triangle. `squares_into` fixes the
    # order of the additions for a pair; here 64 pairs go through it side by side.
    n, d = X.shape
    columns = np.ascontiguousarray(X.T)
    whole = d - d % 8
    long = d - d % 32
    sums = np.empty((9, 64))
    tail = sums[8]
    for first in range(0, n, 64):
        end = min(first + 64, n)
        width = end - first
        for i in range(end):
            sums[:] = 0.0
            for k in range(0, long, 32):
                for m in range(k, k + 8):
                    w, x, y, z = X[i, m], X[i, m + 8], X[i, m + 16], X[i, m + 24]
                    p = columns[m, first:end]
                    q = columns[m + 8, first:end]
                    r = columns[m + 16, first:end]
                    s = columns[m + 24, first:end]
                    line = sums[m - k]
                    for j in range(width):
                        t = line[j]
                        e = p[j] - w
                        t += e * e
                        e = q[j] - x
                        t += e * e
                        e = r[j] - y
                        t += e * e
                        e = s[j] - z
                        line[j] = t + e * e
            for k in range(long, whole, 8):
                for m in range(k, k + 8):
                    x = X[i, m]
                    p = columns[m, first:end]
                    line = sums[m - k]
                    for j in range(width):
                        e = p[j] - x
                        line[j] += e * e
            for m in range(whole, d):
                x = X[i, m]
                p = columns[m, first:end]
                for j in range(width):
                    e = p[j] - x
                    tail[j] += e * e
            target = out[i, first:end]
            for j in range(width):
                left = (sums[0, j] + sums[4, j]) + (sums[2, j] + sums[6, j])
                right = (sums[1, j] + sums[5, j]) + (sums[3, j] + sums[7, j])
                target[j] = (left + right) + tail[j]


@compiled
def _mirror(matrix: FloatArray) -> None:
    # Copy the upper triangle to the lower one, in tiles that fit the cache.
    n = len(matrix)
    for top in range(0, n, 32):
        for left in range(0, top + 1, 32):
            for i in range(top, min(top + 32, n)):
                for j in range(left, min(left + 32, i)):
                    matrix[i, j] = matrix[j, i]


@compiled
def _pairs(X: FloatArray, starts: IntArray, linear: bool, out: FloatArray) -> None:
    # Inner products or squared distances of all pairs within each run of rows, as
    # matrices one after the other.
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
        _mirror(matrix)


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
    _pairs(X, starts, kernel is Kernel.LINEAR, out)
    return out if kernel is Kernel.LINEAR else rbf(gamma, out)


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
    if kernel is Kernel.LINEAR or n < _LARGE:
        return grams(kernel, gamma, X, np.array([0, n])).reshape(n, n)
    K = np.empty((n, n))
    _all_squares(X, K)
    for row in range(0, n, 32):
        rbf(gamma, K[row : row + 32, row:])
    _mirror(K)
    return K
