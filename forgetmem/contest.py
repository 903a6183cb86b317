"""A greedy choice among many rows that looks closely only at those that may win.

The value of a row is a key plus, for each row in the answer, the logarithm of what that
row leaves of it, added in the order of the answer. No logarithm is above 0, so a value
to which some have not yet been added is an upper bound, and so is one with logarithms
that are too large. Rows are brought up to date only while their bounds say that they
could be the best: a few exactly, many first by float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from forgetmem.arrays import Float32Array, FloatArray, IntArray
from forgetmem.distances import squares_into
from forgetmem.index import VectorTable, float32_error
from forgetmem.index.codes import narrow_product
from forgetmem.jit import compiled

#: Stored vectors and queries have norm 1 within this, so that ``2 - 2 * cosine`` and
#: the squared distance differ by no more.
NORM_SLACK = 4e-6

#: So many rows at most are brought up to date exactly at a time.
_EXACTLY = 64
#: So many are looked at first, to have something that others must reach.
_FIRST = 24
#: Far above the rounding of a logarithm and of an exponential.
_ROUNDING = 1e-12


@compiled
def _measure(
    X: Float32Array,
    rows: IntArray,
    since: IntArray,
    chosen: IntArray,
    nearly: bool,
    error: float,
    out: FloatArray,
) -> None:
    """Write squared distances of rows from the chosen ones that are new to them.

    Or, if `nearly` is enough, upper bounds on them.
    """
    at = 0
    for place in range(len(rows)):
        row = rows[place]
        for number in range(since[place], len(chosen)):
            other = X[chosen[number]]
            if nearly:
                out[at] = 2.0 - 2.0 * narrow_product(X, row, other) + error
            else:
                squares_into(X[row : row + 1], other, out[at : at + 1])
            at += 1


@compiled
def _add(
    values: FloatArray, places: IntArray, since: IntArray, size: int, logs: FloatArray
) -> None:
    at = 0
    for number in range(len(places)):
        total = values[places[number]]
        for _ in range(since[number], size):
            total += logs[at]
            at += 1
        values[places[number]] = total


@compiled
def _best(values: FloatArray, added: IntArray, size: int) -> float:
    """Return the best value that is up to date."""
    best = -np.inf
    for place in range(len(values)):
        if added[place] == size and values[place] > best:
            best = values[place]
    return float(best)


@compiled
def _open(
    bounds: FloatArray, added: IntArray, size: int, best: float, floor: float
) -> IntArray:
    """Return the places not up to date that may be the best, or equal to it."""
    found = np.empty(len(bounds), dtype=np.int64)
    count = 0
    for place in range(len(bounds)):
        bound = bounds[place]
        if bound >= best and bound > floor and added[place] < size:
            found[count] = place
            count += 1
    return found[:count]


class Contest:
    """Rows that compete for the next places of an answer.

    Parameters
    ----------
    table : VectorTable
    name : callable
        The id that speaks for a row: it settles ties.
    logs : callable
        From squared distances between rows to the logarithms of what is left: never
        above 0, rising with the distance, each depending on its distance alone.
    answer : list of int
        Rows that were chosen before.
    """

    def __init__(
        self,
        table: VectorTable,
        name: Callable[[int], str],
        logs: Callable[[FloatArray], FloatArray],
        answer: list[int],
    ) -> None:
        self._table, self._name, self._logs = table, name, logs
        self.answer = list(answer)
        self._known = np.zeros(len(table.X), dtype=np.bool_)
        self._known[answer] = True
        self._rows: IntArray = np.empty(0, dtype=np.int64)
        self._value: FloatArray = np.empty(0)
        self._added: IntArray = self._rows
        self._bound: FloatArray = np.empty(0)
        self._bounded: IntArray = self._rows

    def new(self, rows: IntArray) -> IntArray:
        """Return those of some rows that do not compete and were not chosen.

        Parameters
        ----------
        rows : ndarray of int64

        Returns
        -------
        ndarray of int64
        """
        return rows[~self._known[rows]]

    def enter(self, rows: IntArray, keys: FloatArray) -> None:
        """Let rows compete.

        Parameters
        ----------
        rows : ndarray of int64
            New ones.
        keys : ndarray of float64
            Their values beside an empty answer.
        """
        self._known[rows] = True
        none = np.zeros(len(rows), dtype=np.int64)
        self._rows = np.concatenate([self._rows, rows])
        self._value = np.concatenate([self._value, keys])
        self._added = np.concatenate([self._added, none])
        self._bound = np.concatenate([self._bound, keys])
        self._bounded = np.concatenate([self._bounded, none])

    def run(self, size: int, floor: float) -> None:
        """Choose until the answer has a size, or none left is above the floor.

        Parameters
        ----------
        size : int
        floor : float
            What rows that do not compete may be worth.
        """
        while len(self.answer) < size:
            place = self._winner(floor)
            if place is None:
                return
            self.answer.append(int(self._rows[place]))
            self._value[place] = self._bound[place] = -math.inf

    def _winner(self, floor: float) -> int | None:
        """Return the place of the best row, by name among equals."""
        size = len(self.answer)
        while True:
            best = _best(self._value, self._added, size)
            places = _open(self._bound, self._added, size, best, floor)
            if not len(places):
                break
            if len(places) > _EXACTLY and best > -math.inf:
                behind = places[self._bounded[places] < size]
                if len(behind):
                    self._tighten(behind)
                    continue
            self._settle(self._first(places, _FIRST if best == -math.inf else _EXACTLY))
        if best <= floor:
            return None
        equal = np.flatnonzero((self._added == size) & (self._value == best))
        return min(equal.tolist(), key=lambda place: self._name(int(self._rows[place])))

    def _first(self, places: IntArray, count: int) -> IntArray:
        if len(places) <= count:
            return places
        return places[np.argpartition(self._bound[places], -count)[-count:]]

    def _settle(self, places: IntArray) -> None:
        """Add to some values what is missing."""
        self._update(places, self._added, self._value, nearly=False)
        self._bound[places] = self._value[places]
        self._bounded[places] = self._added[places]

    def _tighten(self, places: IntArray) -> None:
        """Add to some bounds what is missing, or more."""
        self._update(places, self._bounded, self._bound, nearly=True)

    def _update(
        self,
        places: IntArray,
        counted: IntArray,
        values: FloatArray,
        *,
        nearly: bool,
    ) -> None:
        size, since = len(self.answer), counted[places]
        out = np.empty(int((size - since).sum()))
        error = 2.0 * float32_error(self._table.dimension) + NORM_SLACK
        chosen = np.array(self.answer, dtype=np.int64)
        rows = self._rows[places]
        _measure(self._table.X, rows, since, chosen, nearly, error, out)
        logs = self._logs(out)
        if nearly:
            logs = np.minimum(logs + _ROUNDING, 0.0)
        _add(values, places, since, size, logs)
        counted[places] = size
