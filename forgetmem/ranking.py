"""The two rankings of `search`, exact: what FAISS proposes is only where to look first.

Keys compared are ``-gamma * d2 + r * log(diminish)``, so an underflowing kernel never
decides; ties go by id.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, FloatArray, IntArray
from forgetmem.distances import dot_at_least, dots, squared_distances
from forgetmem.index import FaissIndex, VectorTable

#: Stored vectors and queries have norm 1 within this, so that
#: ``d2 >= 2 - 2 * cosine - _NORM_SLACK``.
_NORM_SLACK = 4e-6

#: Squared distance of everything from a zero query.
_ZERO_QUERY_DISTANCE = 1.0


def query_distances(X: Float32Array, q: Float32Array) -> FloatArray:
    """Squared distances of rows from a query; all equal for a zero query.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32
    q : ndarray of shape (d,), float32
        Normalised, or zero.

    Returns
    -------
    ndarray of shape (n,), float64
    """
    if not q.any():
        return np.full(len(X), _ZERO_QUERY_DISTANCE)
    return squared_distances(X, q)


@dataclass(frozen=True, slots=True)
class Pool:
    """The rows a ranking chooses from.

    Attributes
    ----------
    table : VectorTable
    eligible : ndarray of bool or None
        Rows that may be answers; None for all that are alive.
    name : callable
        The id that speaks for a row: it settles ties.
    """

    table: VectorTable
    eligible: BoolArray | None
    name: Callable[[int], str]

    def rows(self) -> IntArray:
        """Return the eligible rows, ascending.

        Returns
        -------
        ndarray of int64
        """
        alive = self.table.alive
        return np.flatnonzero(alive if self.eligible is None else self.eligible)


def _examine(
    pool: Pool, q: Float32Array, count: int
) -> tuple[IntArray, FloatArray, float]:
    """Return the nearest eligible rows, their d2, and a lower bound on all others'."""
    table = pool.table
    if q.any() and (pool.eligible is None or 2 * pool.eligible.sum() > len(table)):
        found = FaissIndex(table).search(q, count)
        keep = found.rows
        if pool.eligible is not None:
            keep = keep[pool.eligible[keep]]
        distances = query_distances(table.X[keep], q)
        return keep, distances, 2.0 - 2.0 * found.bound - _NORM_SLACK
    rows = pool.rows()
    distances = query_distances(table.X[rows], q)
    if count >= len(rows):
        return rows, distances, math.inf
    cut = np.partition(distances, count)[count]
    near = distances < cut
    if near.any():
        return rows[near], distances[near], float(cut)
    return rows, distances, math.inf


def nearest(pool: Pool, q: Float32Array, k: int) -> list[int]:
    """Rank by cosine: the exact top `k`, ties by id.

    Parameters
    ----------
    pool : Pool
    q : ndarray of shape (d,), float32
    k : int

    Returns
    -------
    list of int
        Rows, best first.
    """
    count = 2 * k + 16
    while True:
        rows, _, bound = _examine(pool, q, count)
        cosines = dots(pool.table.X[rows], q)
        order = smallest(-cosines, rows, pool.name, k)
        worst = cosines[order[-1]] if len(order) == k else -math.inf
        if math.isinf(bound) or worst > 1.0 - bound / 2.0 + _NORM_SLACK:
            return [int(rows[position]) for position in order]
        count *= 4


def smallest(
    keys: FloatArray, rows: IntArray, name: Callable[[int], str], k: int
) -> list[int]:
    """Find the positions of the `k` smallest keys, equal keys by name.

    Parameters
    ----------
    keys : ndarray of float64
    rows : ndarray of int64
        One for each key.
    name : callable
        The name of a row.
    k : int

    Returns
    -------
    list of int
        In order.
    """
    if 0 < k < len(keys):
        cut = np.partition(keys, k - 1)[k - 1]
        positions = np.flatnonzero(keys <= cut)
    else:
        positions = np.arange(len(keys))
    ranked = sorted(positions, key=lambda p: (keys[p], name(int(rows[p]))))
    return [int(position) for position in ranked[:k]]


@dataclass(frozen=True, slots=True)
class SupportRanking:
    """Greedy choice of ``diminish**r * kernel``, r = look-alikes already chosen.

    Attributes
    ----------
    gamma : float
        Of the RBF kernel.
    alike : float
        Cosine from which two rows are look-alikes, decided exactly.
    diminish : float
        In [0, 1]; 0 means no look-alike twice.
    """

    gamma: float
    alike: float
    diminish: float

    def choose(
        self, pool: Pool, q: Float32Array, k: int, chosen: list[int]
    ) -> list[int]:
        """Continue an answer until it has `k` rows or nothing is left to choose.

        Parameters
        ----------
        pool : Pool
        q : ndarray of shape (d,), float32
        k : int
        chosen : list of int
            Rows already in the answer, which count as look-alikes.

        Returns
        -------
        list of int
            `chosen` and what was added, in order.
        """
        answer = list(chosen)
        count = 4 * k + 32
        while len(answer) < k:
            rows, distances, bound = _examine(pool, q, count)
            keys = -self.gamma * distances
            floor = -self.gamma * bound
            answer = self._greedy(pool, rows, keys, floor, k, answer)
            if math.isinf(bound):
                break
            count *= 4
        return answer

    def _greedy(
        self,
        pool: Pool,
        rows: IntArray,
        keys: FloatArray,
        floor: float,
        k: int,
        answer: list[int],
    ) -> list[int]:
        """Choose as long as no unexamined row could have been better."""
        X = np.ascontiguousarray(pool.table.X[rows])
        step = math.log(self.diminish) if self.diminish > 0.0 else -math.inf
        value = keys.copy()
        value[np.isin(rows, answer)] = -math.inf
        for row in answer:
            self._diminish(value, X, pool.table.X[row], step)
        answer = list(answer)
        while len(answer) < k:
            best = value.max(initial=-math.inf)
            if best == -math.inf or best <= floor:
                break
            ties = np.flatnonzero(value == best)
            position = min(ties, key=lambda p: pool.name(int(rows[p])))
            answer.append(int(rows[position]))
            value[position] = -math.inf
            self._diminish(value, X, X[position], step)
        return answer

    def _diminish(
        self, value: FloatArray, X: Float32Array, x: Float32Array, step: float
    ) -> None:
        open_ = np.flatnonzero(value > -math.inf)
        alike = open_[dot_at_least(X[open_], x, self.alike)]
        value[alike] += step
