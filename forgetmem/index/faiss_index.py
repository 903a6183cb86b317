"""FAISS proposes in float32; float64 decides, with a bound on what was not proposed."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import Float32Array, IntArray
from forgetmem.distances import dot_at_least, dots
from forgetmem.index.candidates import Candidates, float32_error
from forgetmem.index.vectors import VectorTable


class FaissIndex:
    """Exhaustive FAISS search over the resident array, nothing trained, nothing kept.

    Parameters
    ----------
    table : VectorTable
        The rows to search; read, never changed.
    """

    def __init__(self, table: VectorTable) -> None:
        self._table = table
        self._error = float32_error(table.dimension)

    def search(self, q: Float32Array, count: int) -> Candidates:
        """Propose about `count` rows with the largest inner products.

        Parameters
        ----------
        q : ndarray of shape (dimension,), float32
            Of norm at most about 1.
        count : int
            How many rows to ask FAISS for, at least 1.

        Returns
        -------
        Candidates
            Fewer than `count` rows where removed rows were among the proposals.
        """
        X, alive = self._table.X, self._table.alive
        asked = min(count, len(X))
        if asked == 0:
            return Candidates(np.empty(0, np.int64), np.empty(0), -np.inf)
        scores, proposed = _knn(X, q, asked)
        rows = proposed[alive[proposed]]
        complete = asked == len(X)
        bound = -np.inf if complete else float(scores[-1]) + self._error
        return Candidates(rows, dots(X[rows], q), bound)

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
        if threshold <= -1.0:
            return self._table.rows
        X = self._table.X
        possible = (X @ q >= threshold - self._error) & self._table.alive
        rows = np.flatnonzero(possible)
        return rows[dot_at_least(X[rows], q, threshold)]


def _knn(X: Float32Array, q: Float32Array, count: int) -> tuple[Float32Array, IntArray]:
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # one query: a second thread only makes it slower
    try:
        scores, rows = faiss.knn(
            q[np.newaxis, :], X, count, metric=faiss.METRIC_INNER_PRODUCT
        )
    finally:
        faiss.omp_set_num_threads(threads)
    return scores[0], rows[0]
