"""The byte codes propose; float64 decides, with a bound on what was not proposed.

FAISS scans them for the best of all rows. For some of the rows, for the best of them
again and again, and where FAISS would have to be asked for too many, they are scanned
here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, FloatArray, IntArray
from forgetmem.distances import dot_at_least
from forgetmem.index import codes
from forgetmem.index.candidates import Candidates, float32_error
from forgetmem.index.faiss_proposals import propose
from forgetmem.index.vectors import VectorTable
from forgetmem.jit import compiled

#: With more proposals than this many times the rows that are wanted, and a few more,
#: the codes give way to float32.
_MORE, _FEW = 2, 64
#: The best of so many rows stands for them while a cut is looked for.
_RUN = 32
#: From one row in so many on, all rows are read.
_DENSE = 4
#: Rows are multiplied with so many heads at a time.
_HEADS = 64


class Near(NamedTuple):
    """Rows that reach a threshold, and those of them that may be the nearest."""

    rows: IntArray
    closest: IntArray


class Scan:
    """Bounds on the inner products of some rows with one query.

    Parameters
    ----------
    table : VectorTable
    q : ndarray of shape (dimension,), float32
        Of norm at most about 1.
    rows : ndarray of int64
        Rows that are alive.
    """

    def __init__(self, table: VectorTable, q: Float32Array, rows: IntArray) -> None:
        self._table, self._q, self._rows = table, q, rows
        p = np.empty(len(q), dtype=np.int16)
        query = codes.encode_query(q, p)
        # Bytes that lie one behind the other are read so fast that gaps do not pay.
        whole = len(table.X) < _DENSE * len(rows) < _DENSE * len(table.X)
        read = np.arange(len(table.X)) if whole else rows
        lower, upper = np.empty(len(read)), np.empty(len(read))
        codes.bound(*table.coded, read, p, *query, lower, upper)
        self._lower: FloatArray = lower[rows] if whole else lower
        self._upper: FloatArray = upper[rows] if whole else upper

    def best(self, count: int) -> Candidates:
        """Propose at least `count` rows, all that may have the largest products.

        Parameters
        ----------
        count : int
            At least 1.

        Returns
        -------
        Candidates
            All rows if there are no more than `count`.
        """
        if len(self._rows) <= count:
            return Candidates(self._rows, -np.inf)
        cut, kept = self._cut(count)
        if len(kept) > _MORE * count + _FEW:
            narrow = float32_error(self._table.dimension)
            codes.refine(
                self._table.X,
                self._rows,
                kept,
                self._q,
                narrow,
                self._lower,
                self._upper,
            )
            cut, kept = self._cut(count)
        return Candidates(self._rows[kept], cut)

    def _cut(self, count: int) -> tuple[float, IntArray]:
        """Return what `count` rows reach at least, and all places that may reach it."""
        cut = _largest(self._lower, count)
        return cut, np.flatnonzero(self._upper >= cut)


class ScanIndex:
    """Exhaustive search over the resident arrays; nothing is trained.

    Parameters
    ----------
    table : VectorTable
        The rows to search; read, never changed.
    """

    def __init__(self, table: VectorTable) -> None:
        self._table = table

    def scan(self, q: Float32Array, among: BoolArray | None = None) -> Scan:
        """Look at the codes of rows once, to ask for the best of them several times.

        Parameters
        ----------
        q : ndarray of shape (dimension,), float32
            Of norm at most about 1.
        among : ndarray of bool, optional
            The rows to choose from, all of them alive; by default all that are.

        Returns
        -------
        Scan
        """
        rows = self._table.rows if among is None else np.flatnonzero(among)
        return Scan(self._table, q, rows)

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
        if among is None and len(self._table) > count:
            found = propose(self._table, q, count)
            if found is not None:
                return found
        return self.scan(q, among).best(count)

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

    def near(
        self, rows: IntArray, heads: IntArray, threshold: float, count: int
    ) -> list[Near]:
        """Find the rows near each of some heads, all in one pass over the rows.

        Parameters
        ----------
        rows, heads : ndarray of int64
            Rows that are alive.
        threshold : float
            Inner product from which a row is near, decided exactly; with -1 or less
            every row is.
        count : int
            How many of the nearest are wanted.

        Returns
        -------
        list of Near
            For each head: the rows that are near, without itself, and among them at
            least `count` (or all), which hold those with the largest inner products.
        """
        found: list[Near] = []
        for start in range(0, len(heads), _HEADS):
            some = heads[start : start + _HEADS]
            products = np.empty((len(some), len(rows)), dtype=np.float32)
            codes.narrow_products(self._table.X, rows, some, products)
            for head, line in zip(some.tolist(), products, strict=True):
                found.append(self._nearest(rows, head, line, threshold, count))
        return found

    def _nearest(
        self,
        rows: IntArray,
        head: int,
        products: Float32Array,
        threshold: float,
        count: int,
    ) -> Near:
        X, error = self._table.X, float32_error(self._table.dimension)
        # Twice the error: what is compared with it is rounded to float32 once more.
        reached: BoolArray = products >= np.float32(threshold + 2.0 * error)
        possible: BoolArray = products >= np.float32(threshold - 2.0 * error)
        if np.count_nonzero(possible) > np.count_nonzero(reached):
            unsure = np.flatnonzero(possible & ~reached)
            reached[unsure] = dot_at_least(X[rows[unsure]], X[head], threshold)
        if threshold <= -1.0:
            reached[:] = True
        reached &= rows != head
        near, values = rows[reached], products[reached]
        if len(near) <= count:
            return Near(near, near)
        cut = np.float32(_largest(values, count) - 4.0 * error)
        return Near(near, near[values >= cut])


def _largest(values: FloatArray | Float32Array, count: int) -> float:
    """Return the `count`-th largest of at least `count` values."""
    best = np.empty(-(-len(values) // _RUN), dtype=values.dtype)
    _largest_of_runs(values, best)
    if len(best) >= count:  # as many values are at least the least of these
        values = values[values >= np.partition(best, -count)[-count]]
    return float(np.partition(values, -count)[-count])


@compiled
def _largest_of_runs(
    values: FloatArray | Float32Array, best: FloatArray | Float32Array
) -> None:
    for run in range(len(best)):
        largest = values[run * _RUN]
        for value in values[run * _RUN : (run + 1) * _RUN]:
            largest = max(largest, value)
        best[run] = largest
