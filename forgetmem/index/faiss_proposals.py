"""FAISS proposes from the byte codes; what it did not propose is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from forgetmem.arrays import Float32Array
from forgetmem.index.candidates import Candidates, float32_error
from forgetmem.index.vectors import VectorTable

#: FAISS is asked for this many times the rows that are wanted, and a few more.
_MORE, _FEW = 4, 256


def propose(table: VectorTable, q: Float32Array, count: int) -> Candidates | None:
    """Ask FAISS for the best rows by their codes.

    Parameters
    ----------
    table : VectorTable
        With more than `count` rows that are alive.
    q : ndarray of shape (dimension,), float32
        Of norm at most about 1.
    count : int

    Returns
    -------
    Candidates or None
        None if a row that was not proposed may be among the best: the codes cannot tell
        enough rows apart.
    """
    error = 2.0 * float32_error(table.dimension)
    length = 1.01 * float(np.sqrt(np.sum(q.astype(np.float64) ** 2)))
    errors = length * table.coded[2].astype(np.float64) + error
    worst, total = float(errors.max()), len(table)
    query = np.ascontiguousarray(q[np.newaxis, :])
    alive = None if total == len(table.X) else _alive(table)
    asked = min(_MORE * count + _FEW, total)
    with _one_thread():
        found = table.index.search(query, asked, params=alive)
    scores, rows = found[0][0].astype(np.float64), found[1][0]
    slack = errors[rows]
    reached = float(np.partition(scores - slack, -count)[-count])
    if asked < total and scores[-1] + worst >= reached:
        return None
    return Candidates(rows[scores + slack >= reached], reached)


def _alive(table: VectorTable) -> Any:
    """Make FAISS's parameters of a search among the rows that are alive."""
    import faiss

    tools: Any = faiss
    bits = np.packbits(table.alive, bitorder="little")
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
