"""The one resident float32 array: rows are added, overwritten and used again."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from forgetmem.arrays import BoolArray, Float32Array, IntArray
from forgetmem.index.codes import Codes, empty_codes, encode, step_of

#: The room for codes is resident, used or not.
_GROWTH = 1.25
#: Room for later rows when many are taken up at once.
_SPARE = 1.03

T = TypeVar("T", bound=np.generic)


class VectorTable:
    """Float32 vectors in rows that stay where they are, and their byte codes.

    A removed row is overwritten with zeros at once, its codes too, and taken by a later
    vector. When the arrays grow, the old ones are overwritten before they are released.
    No result may depend on which row a vector has.

    Parameters
    ----------
    dimension : int
        Length of the vectors.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._data: Float32Array = np.zeros((0, dimension), dtype=np.float32)
        self._step = step_of(dimension)
        self._index: Any = None
        self._codes: Codes = np.zeros((0, dimension), dtype=np.uint8)
        self._errors: Float32Array = np.zeros(0, dtype=np.float32)
        self._alive: BoolArray = np.zeros(0, dtype=np.bool_)
        self._free: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size - len(self._free)

    @property
    def X(self) -> Float32Array:  # noqa: N802
        """All rows up to the last one used, removed ones as zeros; not a copy."""
        return self._data[: self._size]

    @property
    def coded(self) -> tuple[Codes, float, Float32Array]:
        """Codes, their step, and errors of the rows of `X`; see `codes`."""
        return self._codes[: self._size], self._step, self._errors[: self._size]

    @property
    def index(self) -> Any:
        """FAISS's index over the codes of the rows of `X`; searched, never changed."""
        self._index.ntotal = self._size
        return self._index

    @property
    def alive(self) -> BoolArray:
        """Which rows of `X` hold a vector."""
        return self._alive[: self._size]

    @property
    def rows(self) -> IntArray:
        """The rows that hold a vector, ascending."""
        return np.flatnonzero(self.alive)

    def add(self, vectors: Float32Array) -> IntArray:
        """Store vectors.

        Parameters
        ----------
        vectors : ndarray of shape (n, dimension), float32

        Returns
        -------
        ndarray of shape (n,), int64
            The rows they were given.
        """
        reused = [self._free.pop() for _ in range(min(len(self._free), len(vectors)))]
        fresh = len(vectors) - len(reused)
        self._reserve(self._size + fresh)
        rows = np.array(
            [*reused, *range(self._size, self._size + fresh)], dtype=np.int64
        )
        self._size += fresh
        self._data[rows] = vectors
        self._alive[rows] = True
        encode(self._data, rows, self._codes, self._step, self._errors)
        return rows

    def room(self, size: int) -> Float32Array:
        """Return the first rows of an empty table, to be filled; then `take` them.

        Parameters
        ----------
        size : int

        Returns
        -------
        ndarray of shape (size, dimension), float32
            Not a copy.
        """
        self._reserve(int(size * _SPARE))
        return self._data[:size]

    def take(self, size: int) -> IntArray:
        """Take up the rows that were filled.

        Parameters
        ----------
        size : int
            As for `room`.

        Returns
        -------
        ndarray of shape (size,), int64
            Their numbers, from 0 on.
        """
        rows = np.arange(size)
        self._size = size
        self._alive[:size] = True
        encode(self._data, rows, self._codes, self._step, self._errors)
        return rows

    def remove(self, rows: IntArray) -> None:
        """Overwrite rows with zeros and free them.

        Parameters
        ----------
        rows : ndarray of int64
            Distinct rows that hold vectors.
        """
        for array in self._arrays():
            array[rows] = 0
        self._free.extend(int(row) for row in rows)

    def wipe(self) -> None:
        """Overwrite everything with zeros and forget all rows."""
        for array in self._arrays():
            array[:] = 0
        self.__init__(self.dimension)  # type: ignore[misc]

    def _arrays(self) -> tuple[Float32Array | Codes | BoolArray, ...]:
        return self._data, self._codes, self._errors, self._alive

    def _reserve(self, size: int) -> None:
        if size <= len(self._data):
            return
        capacity = max(size, int(len(self._data) * _GROWTH), 64)
        self._data = _grown(self._data, capacity)
        old, before = self._codes, self._index
        self._index, self._codes = empty_codes(self.dimension, capacity)
        self._codes[: len(old)] = old
        old[:] = 0
        del before  # the old codes are its memory: wiped, then released
        self._errors = _grown(self._errors, capacity)
        self._alive = _grown(self._alive, capacity)


def _grown(array: NDArray[T], capacity: int) -> NDArray[T]:
    """Copy an array into a larger one, and overwrite it."""
    larger = np.zeros((capacity, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    array[:] = 0
    return larger
