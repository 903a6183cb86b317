"""Array aliases, and the one place where arrays and ids from outside are checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetmem.errors import (
    DimensionMismatchError,
    DuplicateIdError,
    InvalidInputError,
)

FloatArray: TypeAlias = NDArray[np.float64]
Float32Array: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


def as_matrix(X: ArrayLike, dimension: int | None = None) -> FloatArray:
    """Return `X` as a C-contiguous float64 matrix of finite numbers.

    Parameters
    ----------
    X : array_like of shape (n_samples, n_features)
        Any real numbers; ``(0, d)`` is a valid shape.
    dimension : int, optional
        The number of columns that is required.

    Returns
    -------
    ndarray of shape (n_samples, n_features), float64
        A copy or `X` itself, C-contiguous.

    Raises
    ------
    InvalidInputError
        If `X` is not a numeric matrix, or holds NaN or infinity.
    DimensionMismatchError
        If it has another number of columns than `dimension`.
    """
    try:
        raw = np.asarray(X)
        if raw.dtype.kind not in "fiub":
            raise TypeError(f"dtype {raw.dtype}")
        matrix = np.ascontiguousarray(raw, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"expected a matrix of real numbers, got {type(X).__name__} ({error})"
        ) from error
    if matrix.ndim != 2:
        raise InvalidInputError(
            f"expected an array of shape (n_samples, n_features), got {matrix.shape}"
        )
    if dimension is not None and matrix.shape[1] != dimension:
        raise DimensionMismatchError(dimension, matrix.shape[1])
    if not np.isfinite(matrix).all():
        rows = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        raise InvalidInputError(
            f"expected finite numbers, got NaN or infinity in {len(rows)} of "
            f"{len(matrix)} rows, first in row {rows[0]}"
        )
    return matrix


def as_vector(x: ArrayLike, dimension: int | None = None) -> FloatArray:
    """Return `x` as a float64 vector of finite numbers.

    Parameters
    ----------
    x : array_like of shape (n_features,)
        Any real numbers.
    dimension : int, optional
        The length that is required.

    Returns
    -------
    ndarray of shape (n_features,), float64
        A copy or `x` itself, C-contiguous.

    Raises
    ------
    InvalidInputError
        If `x` is not a numeric vector, or holds NaN or infinity.
    DimensionMismatchError
        If it has another length than `dimension`.
    """
    if np.ndim(x) != 1:
        raise InvalidInputError(
            f"expected one vector of shape (n_features,), got shape {np.shape(x)}"
        )
    vector: FloatArray = as_matrix(np.asarray(x)[np.newaxis, :], dimension)[0]
    return vector


def as_list(values: object, what: str) -> list[Any]:
    """Return one string, or the items of an iterable, as a list.

    Parameters
    ----------
    values : str or iterable
        What the caller gave.
    what : str
        How the error names it, for example ``"ids"``.

    Returns
    -------
    list

    Raises
    ------
    InvalidInputError
        If it is neither a string nor iterable.
    """
    if isinstance(values, str):
        return [values]
    if not isinstance(values, Iterable):
        raise InvalidInputError(
            f"expected {what} as a str or an iterable, got {type(values).__name__}"
        )
    return list(values)


def as_ids(ids: str | Iterable[str]) -> list[str]:
    """Return `ids` as a list of distinct, non-empty strings.

    Parameters
    ----------
    ids : str or iterable of str
        One id or several.

    Returns
    -------
    list of str
        In the order given.

    Raises
    ------
    InvalidInputError
        If an id is no string, is empty, or cannot be encoded as UTF-8.
    DuplicateIdError
        If an id occurs twice.
    """
    given = [check_text(id, "an id") for id in as_list(ids, "ids")]
    seen: set[str] = set()
    for id in given:
        if not id:
            raise InvalidInputError("an id must not be the empty string")
        if id in seen:
            raise DuplicateIdError(id)
        seen.add(id)
    return given


def check_text(text: object, what: str) -> str:
    """Return `text` if it is a string that UTF-8 can hold.

    Parameters
    ----------
    text : object
        What the caller gave.
    what : str
        How the error names it, for example ``"an id"``.

    Returns
    -------
    str
        `text` itself; of a subclass of str, its characters.

    Raises
    ------
    InvalidInputError
        If it is no string, or has lone surrogates.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"expected {what} as str, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{what} holds a lone surrogate at position {error.start} and cannot be "
            "stored as UTF-8"
        ) from error
    return str.__str__(text)
