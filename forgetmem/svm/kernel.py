"""RBF and linear kernels, evaluated so that a pair gives the same bits anywhere.

`distances` defines the sums; `numpy.exp` is applied to C-contiguous arrays, where its
result does not depend on the position of an entry. So K is a function of the pair of
rows alone: it is symmetric bit for bit, and does not know the order of the rows.
"""

from __future__ import annotations

import enum

import numpy as np

from forgetmem.arrays import FloatArray
from forgetmem.distances import dots, squared_distances
from forgetmem.errors import InvalidInputError


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
    with np.errstate(over="ignore", under="ignore"):
        np.multiply(squared, -gamma, out=squared)
        return np.exp(squared, out=squared)


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
    K = np.empty((len(X), len(X)))
    for row in range(len(X)):
        K[row, row:] = kernel_row(kernel, gamma, X[row:], X[row])
        K[row:, row] = K[row, row:]
    return K
