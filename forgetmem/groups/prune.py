"""Which reserve vectors can go without changing the grouping of the others."""

from __future__ import annotations

from collections import Counter

import numpy as np

from forgetmem.arrays import BoolArray, IntArray
from forgetmem.distances import dot_at_least
from forgetmem.groups.grouping import Grouping
from forgetmem.groups.keys import KeyTable
from forgetmem.groups.weights import GroupWeights
from forgetmem.index import VectorTable
from forgetmem.jit import compiled
from forgetmem.svm import Role

#: A larger component is left alone: its links would not fit in memory.
MAX_COMPONENT = 8192

#: Deeper than any leaf: keys are uniform, so 2**32 vectors would be needed.
_DEPTH = 33


@compiled
def _holds_without(
    links: BoolArray, alive: BoolArray, seen: BoolArray, queue: IntArray, gone: int
) -> bool:
    """Tell whether the neighbours of `gone` stay connected without it."""
    n = len(alive)
    waiting = 0
    start = -1
    for j in range(n):
        seen[j] = False
        if alive[j] and j != gone and links[gone, j]:
            waiting += 1
            start = j
    if waiting <= 1:
        return waiting == 1 or n == 1
    head, tail = 0, 1
    queue[0] = start
    seen[start] = True
    waiting -= 1
    while head < tail and waiting > 0:
        row = queue[head]
        head += 1
        for j in range(n):
            if alive[j] and j != gone and not seen[j] and links[row, j]:
                seen[j] = True
                queue[tail] = j
                tail += 1
                if links[gone, j]:
                    waiting -= 1
    return waiting == 0


class _Graph:
    """The links of some rows, from which rows are taken one by one."""

    def __init__(self, table: VectorTable, rows: IntArray, threshold: float) -> None:
        X = np.ascontiguousarray(table.X[rows])
        self._links = (
            np.ones((len(rows), len(rows)), dtype=np.bool_)
            if threshold <= -1.0
            else np.array([dot_at_least(X, x, threshold) for x in X])
        )
        self._position = {int(row): at for at, row in enumerate(rows)}
        self._alive = np.ones(len(rows), dtype=np.bool_)
        self._seen = np.zeros(len(rows), dtype=np.bool_)
        self._queue = np.zeros(len(rows), dtype=np.int64)

    def spares(self, row: int) -> bool:
        at = self._position[row]
        return bool(
            _holds_without(self._links, self._alive, self._seen, self._queue, at)
        )

    def take(self, row: int) -> None:
        self._alive[self._position[row]] = False


class _Division:
    """The counts that decide how a component is divided."""

    def __init__(self, grouping: Grouping, keys: KeyTable, rows: IntArray) -> None:
        self._grouping = grouping
        self._keys = keys
        self._limit = grouping.max_group
        self._total = len(rows)
        self._counts: Counter[tuple[int, str]] = Counter()
        for row in rows.tolist():
            self._counts.update(self._nodes(row))

    def spares(self, row: int) -> bool:
        """Tell whether every count above the limit stays above it."""
        if self._limit is None:
            return True
        turning = self._limit + 1
        return self._total > turning and all(
            self._counts[node] != turning for node in self._nodes(row)
        )

    def take(self, row: int) -> None:
        self._total -= 1
        self._counts.subtract(self._nodes(row))

    def _nodes(self, row: int) -> list[tuple[int, str]]:
        part = int(self._grouping.parts.members(row)[0])
        bits = f"{int.from_bytes(self._keys.key(row), 'big'):0128b}"
        return [(part, bits[:depth]) for depth in range(_DEPTH)]


def removable(
    table: VectorTable, keys: KeyTable, grouping: Grouping, weights: GroupWeights
) -> list[IntArray]:
    """Choose the reserve rows that can go, component by component.

    They are tried in the order of their bytes; one is taken if the components, the
    parts and the leaves of all others stay as they are.

    Parameters
    ----------
    table : VectorTable
    keys : KeyTable
        Key of each row.
    grouping : Grouping
    weights : GroupWeights

    Returns
    -------
    list of ndarray of int64
        For each group that loses rows, those rows.
    """
    reserve = np.flatnonzero(table.alive & (weights.role == Role.RESERVE))
    chosen: list[IntArray] = []
    seen: set[int] = set()
    for first in reserve.tolist():
        if first not in seen:
            component = grouping.components.members(first)
            candidates = component[weights.role[component] == Role.RESERVE].tolist()
            seen.update(candidates)
            if len(component) <= MAX_COMPONENT:
                candidates.sort(key=lambda row: table.X[row].tobytes())
                chosen += _of_component(table, keys, grouping, component, candidates)
    return chosen


def _of_component(
    table: VectorTable,
    keys: KeyTable,
    grouping: Grouping,
    component: IntArray,
    candidates: list[int],
) -> list[IntArray]:
    guards: list[_Graph | _Division] = [
        _Graph(table, component, grouping.components.threshold)
    ]
    if not grouping.is_whole_component(grouping.group(int(component[0]))):
        guards += [
            _Division(grouping, keys, component),
            _Graph(table, component, grouping.parts.threshold),
        ]
    groups: dict[int, list[int]] = {}
    for row in candidates:
        if all(guard.spares(row) for guard in guards):
            for guard in guards:
                guard.take(row)
            groups.setdefault(int(grouping.group(row)[0]), []).append(row)
    return [np.array(rows, dtype=np.int64) for rows in groups.values()]
