"""The two rankings of `search`, exact: what the index proposes is only where to look.

Keys compared are ``-gamma * d2`` plus the logarithms of what the chosen rows leave of a
row, so an underflowing kernel never decides; ties go by id.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array, FloatArray, IntArray
from forgetmem.contest import NORM_SLACK, Contest
from forgetmem.distances import dots, squared_distances_at
from forgetmem.exponential import exp, log
from forgetmem.index import ScanIndex, VectorTable

#: What is left at least of a record beside a chosen one: keys stay finite.
_LEAST = 2.0**-52

#: Squared distance of everything from a zero query.
_ZERO_QUERY_DISTANCE = 1.0


def query_distances(X: Float32Array, rows: IntArray, q: Float32Array) -> FloatArray:
    """Squared distances of some rows from a query; all equal for a zero query.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32
    rows : ndarray of shape (m,), int64
    q : ndarray of shape (d,), float32
        Normalised, or zero.

    Returns
    -------
    ndarray of shape (m,), float64
    """
    if not q.any():
        return np.full(len(rows), _ZERO_QUERY_DISTANCE)
    return squared_distances_at(X, rows, q)


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
    count, X = k, pool.table.X
    while True:
        found = ScanIndex(pool.table).search(q, count, pool.eligible)
        cosines = dots(X[found.rows], q)
        order = smallest(-cosines, found.rows, pool.name, k)
        worst = cosines[order[-1]] if len(order) == k else -math.inf
        if math.isinf(found.bound) or worst > found.bound:
            return [int(found.rows[position]) for position in order]
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
    """Greedy choice: kernel with the query, times a factor for each chosen row.

    The factor is ``1 - (1 - diminish) * exp(-d2 / (2 * d2_alike))``, where d2_alike is
    the squared distance at a cosine of `alike`: `diminish` for a copy, about 0.45 at
    the edge of look-alikes, nearly 1 far away. It is smooth, so no answer hangs on a
    last digit, and depends on the two rows alone, so a chain of look-alikes is no
    shield.

    Attributes
    ----------
    gamma : float
        Of the RBF kernel.
    alike : float
        Cosine from which two rows are look-alikes.
    diminish : float
        In [0, 1]: 0 leaves hardly anything of a copy, 1 does not diminish.
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
        if not q.any():  # nothing is nearer than anything else
            left = np.setdiff1d(pool.rows(), chosen)
            first = smallest(np.zeros(len(left)), left, pool.name, k - len(chosen))
            return chosen + [int(row) for row in left[first]]
        scan = ScanIndex(pool.table).scan(q, pool.eligible)
        contest = Contest(pool.table, pool.name, self.log_factors, chosen)
        count = 4 * k + 32
        while len(contest.answer) < k:
            found = scan.best(count)
            rows = contest.new(found.rows)
            distances = query_distances(pool.table.X, rows, q)
            contest.enter(rows, -self.gamma * distances)
            # A lower bound on the distance of all others.
            bound = 2.0 - 2.0 * found.bound - NORM_SLACK
            contest.run(k, -self.gamma * bound)
            if math.isinf(bound):
                break
            count *= 4
        return contest.answer

    def log_factors(self, distances: FloatArray) -> FloatArray:
        """Return the logarithms of what chosen rows leave of others.

        Parameters
        ----------
        distances : ndarray of float64
            Squared, between a row and a chosen one.

        Returns
        -------
        ndarray of float64
            Not above 0; each depends on its distance alone.
        """
        width = 2.0 * (2.0 - 2.0 * self.alike)
        if width == 0.0 or self.diminish == 1.0:
            return np.zeros(len(distances))
        likeness = exp(distances / -width)
        left = 1.0 - (1.0 - self.diminish) * likeness
        return log(np.maximum(left, _LEAST))
