"""Exhaustive search in float64: the truth that the other indexes are tested against."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, IntArray
from forgetmem.distances import dot_at_least, dots
from forgetmem.index.candidates import Candidates
from forgetmem.index.vectors import VectorTable


class FlatIndex:
    """Looks at every row.

    Parameters
    ----------
    table : VectorTable
        The rows to search; read, never changed.
    """

    def __init__(self, table: VectorTable) -> None:
        self._table = table

    def search(
        self, q: Float32Array, count: int, among: BoolArray | None = None
    ) -> Candidates:
        """Propose the `count` rows with the largest inner products.

        Parameters
        ----------
        q : ndarray of shape (dimension,), float32
        count : int
            How many rows to propose, at least 1.
        among : ndarray of bool, optional
            The rows to choose from, all of them alive; by default all that are.

        Returns
        -------
        Candidates
            At most `count` rows; the bound is reached.
        """
        rows = self._table.rows if among is None else np.flatnonzero(among)
        cosines = dots(self._table.X, q)[rows]
        if count >= len(rows):
            return Candidates(rows, -np.inf)
        order = np.argsort(-cosines, kind="stable")
        return Candidates(rows[order[:count]], float(cosines[order[count]]))

    def within(self, q: Float32Array, threshold: float) -> IntArray:
        """Find every row whose inner product with `q` is at least `threshold`.

        Parameters
        ----------
        q : ndarray of shape (dimension,), float32
        threshold : float
            Decided exactly; -1 or less means every row.

        Returns
        -------
        ndarray of int64
            Ascending.
        """
        rows = self._table.rows
        if threshold <= -1.0:
            return rows
        return rows[dot_at_least(self._table.X, q, threshold)[rows]]
