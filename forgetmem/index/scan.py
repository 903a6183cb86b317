"""Byte codes propose; float64 decides, with a bound on what was not proposed."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, IntArray
from forgetmem.distances import dot_at_least
from forgetmem.index import codes
from forgetmem.index.candidates import Candidates, float32_error
from forgetmem.index.vectors import VectorTable

#: With more candidates than this for each that is asked for, float32 looks again.
_MANY = 8


class ScanIndex:
    """Exhaustive search over the codes of the resident array; nothing is trained.

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
        """Propose at least `count` rows, all that may have the largest inner products.

        Parameters
        ----------
        q : ndarray of shape (dimension,), float32
            Of norm at most about 1.
        count : int
            At least 1.
        among : ndarray of bool, optional
            The rows to choose from, all of them alive; by default all that are.

        Returns
        -------
        Candidates
            All rows if there are no more than `count`.
        """
        table = self._table
        among = table.alive if among is None else among
        heap = np.empty(min(count, len(among)) + 1)
        upper = np.empty(len(among))
        found = np.empty(len(among), dtype=np.int64)
        p = np.empty(len(q), dtype=np.int16)
        query = codes.encode_query(q, p)
        size = codes.best(*table.coded, among, p, *query, heap, upper, found)
        found, bound = found[:size], float(heap[0])
        if size > _MANY * len(heap):
            error = float32_error(table.dimension)
            size = codes.refine(table.X, q, error, heap, upper, found)
            found, bound = found[:size], max(bound, float(heap[0]))
        return Candidates(found.copy(), bound)

    def within(self, q: Float32Array, threshold: float) -> IntArray:
        """Find every row whose inner product with `q` is at least `threshold`.

        Parameters
        ----------
        q : ndarray of shape (dimension,), float32
            Of norm at most about 1.
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
        return rows[self.reach(rows, q, threshold)]

    def reach(self, rows: IntArray, q: Float32Array, threshold: float) -> BoolArray:
        """Tell of some rows whether their inner product is at least `threshold`.

        Parameters
        ----------
        rows : ndarray of int64
            Rows that are alive.
        q : ndarray of shape (dimension,), float32
            Of norm at most about 1.
        threshold : float
            Decided exactly.

        Returns
        -------
        ndarray of bool
            One for each of `rows`.
        """
        table = self._table
        verdicts = np.empty(len(rows), dtype=np.int8)
        p = np.empty(len(q), dtype=np.int16)
        query = codes.encode_query(q, p)
        narrow = float32_error(table.dimension)
        codes.compare(
            *table.coded, rows, p, *query, table.X, q, narrow, threshold, verdicts
        )
        unsure = np.flatnonzero(verdicts == codes.UNSURE)
        reached: BoolArray = verdicts == codes.YES
        reached[unsure] = dot_at_least(table.X[rows[unsure]], q, threshold)
        return reached
