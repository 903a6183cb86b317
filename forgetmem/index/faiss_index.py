"""FAISS proposes; float64 decides, with a bound on what was not proposed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, FloatArray, IntArray
from forgetmem.distances import dot_at_least
from forgetmem.index import codes
from forgetmem.index.candidates import Candidates, float32_error
from forgetmem.index.vectors import VectorTable

#: FAISS is asked for this many times the rows that are wanted, and a few more.
_MORE, _FEW = 4, 256
#: From so many proposals on, the codes give way to float32.
_MANY = 2048

#: Inner products and rows, best first, each of shape (1, size).
Proposals: TypeAlias = tuple[Float32Array, IntArray]


class FaissIndex:
    """Exhaustive FAISS search over the resident arrays; nothing is trained.

    The byte codes are scanned first; where they cannot tell enough rows apart, float32.

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
        import faiss

        table = self._table
        among = table.alive if among is None else among
        total = int(np.count_nonzero(among))
        if total <= count:
            return Candidates(np.flatnonzero(among), -np.inf)
        chosen = None if total == len(among) else _only(among)
        query = np.ascontiguousarray(q[np.newaxis, :])
        error = 2.0 * float32_error(table.dimension)
        length = 1.01 * float(np.sqrt(np.sum(q.astype(np.float64) ** 2)))
        by_codes = length * table.coded[2].astype(np.float64) + error

        def in_float32(size: int) -> Proposals:
            if chosen is None:
                return faiss.knn(
                    query, table.X, size, metric=faiss.METRIC_INNER_PRODUCT
                )
            rows = np.flatnonzero(among)
            scores, places = faiss.knn(
                query, table.X[rows], size, metric=faiss.METRIC_INNER_PRODUCT
            )
            return scores, rows[places]

        with _one_thread():
            found = _best(
                lambda size: table.index.search(query, size, params=chosen),
                by_codes,
                count,
                min(total, max(_MANY, 8 * count)),
                total,
            )
            if found is None:
                plain = np.full(len(among), error)
                found = _best(in_float32, plain, count, total, total)
        assert found is not None
        return found

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


def _best(
    search: Callable[[int], Proposals],
    errors: FloatArray,
    count: int,
    limit: int,
    total: int,
) -> Candidates | None:
    """Ask for more and more proposals, until no other row can be among the best.

    Parameters
    ----------
    search : callable
        Makes as many proposals as it is asked for.
    errors : ndarray of float64
        By how much the inner product of each row may be off.
    count : int
        How many rows are wanted, fewer than `total`.
    limit : int
        With more proposals than this it is given up.
    total : int
        Number of rows there are.

    Returns
    -------
    Candidates or None
    """
    worst = float(errors.max())
    asked = _MORE * count + _FEW
    while True:
        asked = min(asked, limit)
        scores, rows = (array[0] for array in search(asked))
        values, slack = scores.astype(np.float64), errors[rows]
        reached = float(np.partition(values - slack, -count)[-count])
        if asked == total or values[-1] + worst < reached:
            return Candidates(rows[values + slack >= reached], reached)
        if asked == limit:
            return None
        asked *= 4


def _only(among: BoolArray) -> Any:
    """Make FAISS's parameters of a search among some rows."""
    import faiss

    tools: Any = faiss
    bits = np.packbits(among, bitorder="little")
    return tools.SearchParameters(sel=tools.IDSelectorBitmap(bits))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let FAISS use one thread: for one query a second one only makes it slower."""
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)
