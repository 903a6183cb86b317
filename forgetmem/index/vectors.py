"""The one resident float32 array: rows are added, overwritten and used again."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, IntArray

_GROWTH = 1.5


class VectorTable:
    """Float32 vectors in rows that stay where they are.

    A removed row is overwritten with zeros at once and taken by a later vector. When
    the array grows, the old one is overwritten before it is released. No result may
    depend on which row a vector has.

    Parameters
    ----------
    dimension : int
        Length of the vectors.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._data: Float32Array = np.zeros((0, dimension), dtype=np.float32)
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
        return rows

    def remove(self, rows: IntArray) -> None:
        """Overwrite rows with zeros and free them.

        Parameters
        ----------
        rows : ndarray of int64
            Distinct rows that hold vectors.
        """
        self._data[rows] = 0.0
        self._alive[rows] = False
        self._free.extend(int(row) for row in rows)

    def wipe(self) -> None:
        """Overwrite everything with zeros and forget all rows."""
        self._data[:] = 0.0
        self.__init__(self.dimension)  # type: ignore[misc]

    def _reserve(self, size: int) -> None:
        if size <= len(self._data):
            return
        capacity = max(size, int(len(self._data) * _GROWTH), 64)
        grown = np.zeros((capacity, self.dimension), dtype=np.float32)
        grown[: self._size] = self.X
        self._data[:] = 0.0
        self._data = grown
        alive = np.zeros(capacity, dtype=np.bool_)
        alive[: self._size] = self.alive
        self._alive = alive
