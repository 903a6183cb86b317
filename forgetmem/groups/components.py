"""Connected components of the graph that links vectors of at least some cosine."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import Float32Array, IntArray
from forgetmem.groups.join import find, join, unite
from forgetmem.groups.keys import Words, order_of
from forgetmem.index import ScanIndex, VectorTable
from forgetmem.jit import compiled

#: Up to this many members a component is joined anew; a larger one is first walked.
_SMALL = 1024
#: One in so many members at most is asked for its links; then what was not reached is
#: joined anew.
_WALK = 4
#: From this many new rows on, all pairs are looked at in blocks.
_MANY = 24


@compiled
def _roots(parent: IntArray, rows: IntArray, roots: IntArray) -> None:
    """Write the root of each row, and hang the row under it."""
    for number in range(len(rows)):
        roots[number] = find(parent, rows[number])
        parent[rows[number]] = roots[number]


class Components:
    """Keeps the components while vectors come and go.

    Links are not stored: a component of identical lines has too many. Adding unites
    components, removing looks again at the members that are left.

    Parameters
    ----------
    table : VectorTable
        The vectors; rows are added there first and removed there afterwards.
    threshold : float
        Cosine from which two vectors are linked, decided exactly; -1 or less links
        everything.
    """

    def __init__(self, table: VectorTable, threshold: float) -> None:
        self._table = table
        self._index = ScanIndex(table)
        self.threshold = threshold
        self._parent: IntArray = np.empty(0, dtype=np.int64)
        self._members: dict[int, IntArray] = {}

    def restore(self, rows: IntArray, labels: Words) -> None:
        """Take over components that were stored.

        Parameters
        ----------
        rows : ndarray of int64
            Distinct rows of the table, ascending.
        labels : ndarray of shape (n, 2), uint64
            Rows with equal labels are one component.
        """
        self._reserve()
        self._members.clear()
        order = order_of(labels)
        ordered = labels[order]
        new = np.ones(len(rows), dtype=np.bool_)
        new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        starts = np.flatnonzero(new)
        sizes = np.diff(starts, append=len(rows))
        first = rows[order[starts]]
        self._parent[rows[order]] = np.repeat(first, sizes)
        members = rows[order[np.repeat(sizes > 1, sizes)]]  # ascending within each
        first, ends = first[sizes > 1], np.cumsum(sizes[sizes > 1])
        self._members.update(
            zip(first.tolist(), np.split(members, ends[:-1]), strict=False)
        )

    def drop(self, rows: IntArray) -> None:
        """Forget whole components, as if their rows had never been added.

        Parameters
        ----------
        rows : ndarray of int64
            All members of some components.
        """
        for row in rows.tolist():
            self._members.pop(row, None)
        self._parent[rows] = rows

    def members(self, row: int) -> IntArray:
        """Return the rows of the component that holds `row`, ascending.

        Parameters
        ----------
        row : int

        Returns
        -------
        ndarray of int64
        """
        root = int(self._parent[row])
        if root in self._members:
            return self._members[root]
        return np.array([row], dtype=np.int64)

    def several(self) -> list[IntArray]:
        """Return all components of two or more rows.

        Returns
        -------
        list of ndarray of int64
        """
        return list(self._members.values())

    def roots(self, rows: IntArray) -> IntArray:
        """Return one member of each row's component, the same for all its rows.

        Parameters
        ----------
        rows : ndarray of int64

        Returns
        -------
        ndarray of int64
        """
        return self._parent[rows]

    def shared(self, roots: IntArray) -> tuple[IntArray, list[IntArray]]:
        """Find out which components have two or more rows.

        Parameters
        ----------
        roots : ndarray of int64
            As `roots` gives them.

        Returns
        -------
        places : ndarray of int64
            Their positions among `roots`.
        members : list of ndarray of int64
            The rows of each of them.
        """
        found = [
            (place, self._members[root])
            for place, root in enumerate(roots.tolist())
            if root in self._members
        ]
        places = np.array([place for place, _ in found], dtype=np.int64)
        return places, [members for _, members in found]

    def add(self, rows: IntArray, among: IntArray | None = None) -> list[int]:
        """Take up new rows and unite what they link.

        Parameters
        ----------
        rows : ndarray of int64
            Rows that the table holds since the last call.
        among : ndarray of int64, optional
            All rows that the new ones can be linked to, themselves included; by
            default those of the table.

        Returns
        -------
        list of int
            One row of each component that changed.
        """
        self._reserve()
        self._parent[rows] = rows
        among = self._table.rows if among is None else among
        if self.threshold <= -1.0:
            merges = self._unite(int(rows[0]), among)
        elif len(rows) < _MANY:
            merges = [
                merge for row in rows for merge in self._neighbours(int(row), among)
            ]
        else:
            merges = self._join(rows, among)
        self._merge(merges)
        return sorted({int(self._parent[row]) for row in rows})

    def remove(self, rows: IntArray) -> list[int]:
        """Leave out rows and find out whether their components hold together.

        Parameters
        ----------
        rows : ndarray of int64
            Rows that the table still holds.

        Returns
        -------
        list of int
            One row of each component that is left of those that held the rows.
        """
        pieces: list[int] = []
        for root in np.unique(self._parent[rows]).tolist():
            members = self.members(root)
            self._members.pop(root, None)
            left = np.setdiff1d(members, rows, assume_unique=True)
            self._parent[left] = left
            if len(left):
                self._reconnect(left)
                pieces += np.unique(self._parent[left]).tolist()
        return pieces

    def _reserve(self) -> None:
        size = len(self._table.X)
        if size > len(self._parent):
            grown = np.arange(max(size, len(self._parent) * 3 // 2), dtype=np.int64)
            grown[: len(self._parent)] = self._parent
            self._parent = grown

    def _neighbours(self, row: int, among: IntArray) -> list[tuple[int, int]]:
        linked = self._index.reach(among, self._table.X[row], self.threshold)
        return self._unite(row, among[linked])

    def _unite(self, row: int, linked: IntArray) -> list[tuple[int, int]]:
        return unite(np.column_stack([np.full_like(linked, row), linked]), self._parent)

    def _join(self, rows: IntArray, among: IntArray) -> list[tuple[int, int]]:
        right = np.concatenate([rows, np.setdiff1d(among, rows)])
        return join(self._table, rows, right, self.threshold, self._parent)

    def _reconnect(self, left: IntArray) -> None:
        """Unite what is linked among rows that are all alone."""
        if self.threshold <= -1.0:
            self._make(left)
        elif len(left) <= _SMALL:
            self._merge(join(self._table, left, left, self.threshold, self._parent))
        else:
            unseen = self._walk(left)
            if len(unseen):
                self._merge(self._join(unseen, left))

    def _walk(self, left: IntArray) -> IntArray:
        """Unite what links from one row on lead to; returns what was not reached."""
        X: Float32Array = self._table.X
        reached, frontier, unseen = [left[:1]], [int(left[0])], left[1:]
        for _ in range(len(left) // _WALK):
            if not frontier or not len(unseen):
                break
            near = self._index.reach(unseen, X[frontier.pop()], self.threshold)
            reached.append(unseen[near])
            frontier.extend(unseen[near].tolist())
            unseen = unseen[~near]
        self._make(np.sort(np.concatenate(reached)))
        return unseen

    def _make(self, members: IntArray) -> None:
        """Make a component of rows that are alone, given in order."""
        if len(members) > 1:
            self._parent[members] = members[0]
            self._members[int(members[0])] = members

    def _merge(self, merges: list[tuple[int, int]]) -> None:
        if not merges:
            return
        united = np.unique(np.array(merges, dtype=np.int64))
        roots = [root for root in united.tolist() if root in self._members]
        alone = np.setdiff1d(united, np.array(roots, dtype=np.int64))
        rows = np.concatenate([alone, *(self._members.pop(root) for root in roots)])
        names = np.empty_like(rows)
        _roots(self._parent, rows, names)
        order = np.lexsort((rows, names))
        starts = np.flatnonzero(np.diff(names[order])) + 1
        for members in np.split(rows[order], starts):
            self._members[int(self._parent[members[0]])] = members
