"""Look-alikes of the rows of an answer: how many there are, and the nearest."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from forgetmem.arrays import IntArray
from forgetmem.distances import dots
from forgetmem.index import ScanIndex
from forgetmem.matching import Matching
from forgetmem.state import NamespaceState

#: At most so many ids of look-alikes are named.
NAMED = 20

#: Ids of the nearest look-alikes, and the number of all.
LookAlikes: TypeAlias = tuple[tuple[str, ...], int]


def look_alikes(
    state: NamespaceState, matching: Matching, rows: IntArray
) -> dict[int, LookAlikes]:
    """Find the matching records that resemble those of some rows.

    Parameters
    ----------
    state : NamespaceState
    matching : Matching
    rows : ndarray of int64

    Returns
    -------
    dict of int to LookAlikes
        By row.
    """
    index, alike = ScanIndex(state.table), state.settings.alike
    found: dict[int, LookAlikes] = {}
    for heads, among in _places(state, np.unique(rows)):
        if matching.rows is not None:
            among = among[matching.rows[among]]
        for head, near in zip(
            heads.tolist(), index.near(among, heads, alike, NAMED), strict=True
        ):
            named = _nearest(state, matching, head, near.closest)
            found[head] = named, matching.count(near.rows)
    return found


def _places(
    state: NamespaceState, rows: IntArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield rows, and all rows among which their look-alikes are."""
    if state.settings.alike < state.grouping.link:
        yield rows, state.table.rows
        return
    components = state.grouping.components
    roots = components.roots(rows)
    for root in np.unique(roots).tolist():
        yield rows[roots == root], components.members(root)


def _nearest(
    state: NamespaceState, matching: Matching, row: int, closest: IntArray
) -> tuple[str, ...]:
    X = state.table.X
    cosines = dots(X[closest], X[row])
    named = heapq.nsmallest(
        NAMED,
        (
            (-cosine, id)
            for other, cosine in zip(closest.tolist(), cosines, strict=True)
            for id in matching.first(other, NAMED)
        ),
    )
    return tuple(id for _, id in named)
