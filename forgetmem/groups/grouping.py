"""Groups: components, linked again when they are large, then halved by their keys."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import BoolArray, IntArray
from forgetmem.groups.components import Components
from forgetmem.groups.keys import KeyTable, Words, smallest
from forgetmem.index import VectorTable


class Grouping:
    """Assigns every row to one group, as a function of the set of vectors.

    A group is a connected component at `link`. A component of more than `max_group`
    rows is linked again within itself at ``1 - (1 - link) / 2``; a part that is still
    larger is halved by the bits of its members' keys until no leaf is larger.

    Parameters
    ----------
    table : VectorTable
        The vectors.
    keys : KeyTable
        Key of each row, uniform (a hash of the vector); shared with the caller, who
        keeps it as long as the table.
    link : float
        Cosine that links two vectors; -1 or less makes one component.
    max_group : int or None
        Largest number of rows of one group; None for no limit.
    """

    def __init__(
        self,
        table: VectorTable,
        keys: KeyTable,
        link: float,
        max_group: int | None,
    ) -> None:
        self._table = table
        self._keys = keys
        self.link = link
        self.max_group = max_group
        self.components = Components(table, link)
        self.parts = Components(table, 1.0 - (1.0 - link) / 2.0)
        self._divided: BoolArray = np.zeros(0, dtype=np.bool_)
        self._groups: dict[int, IntArray] = {}
        self._group_of: IntArray = np.empty(0, dtype=np.int64)
        self._next = 0

    def restore(self, rows: IntArray, components: Words, parts: Words) -> None:
        """Take over stored components, without joining anything.

        Parameters
        ----------
        rows : ndarray of int64
            All rows of the table, ascending.
        components, parts : ndarray of shape (n, 2), uint64
            The stored label of each row; parts count only in divided components.
        """
        self._reserve()
        self.components.restore(rows, components)
        whole = self.components.several()
        for members in whole:
            if self._is_divided(members):
                self._divided[members] = True
        divided = self._divided[rows]
        self.parts.restore(rows[divided], parts[divided])
        self._number([group for members in whole for group in self._divide(members)])

    def add(self, rows: IntArray) -> tuple[list[IntArray], IntArray]:
        """Take up new rows.

        Parameters
        ----------
        rows : ndarray of int64
            Rows that the table holds since the last call; at least one.

        Returns
        -------
        groups : list of ndarray of int64
            Every group whose members are not those of a group before.
        touched : ndarray of int64
            Rows of all components that changed, whose labels may have changed.
        """
        self._reserve()
        changed = self.components.add(rows)
        for row in changed:
            members = self.components.members(row)
            if self._is_divided(members):
                new = members[~self._divided[members]]
                self._divided[new] = True
                self.parts.add(new, members)
        return self._rebuild(changed, rows[:0])

    def remove(self, rows: IntArray) -> tuple[list[IntArray], IntArray]:
        """Leave out rows; the caller removes them from the table afterwards.

        Parameters
        ----------
        rows : ndarray of int64
            Rows that the table still holds; at least one.

        Returns
        -------
        groups : list of ndarray of int64
            Every group whose members are not those of a group before.
        touched : ndarray of int64
            Rows that are left of the components that held the rows.
        """
        divided = rows[self._divided[rows]]
        self.parts.remove(divided)
        self._divided[divided] = False
        left = self.components.remove(rows)
        for row in left:
            members = self.components.members(row)
            if self._divided[row] and not self._is_divided(members):
                self.parts.drop(members)
                self._divided[members] = False
        return self._rebuild(left, rows)

    def group(self, row: int) -> IntArray:
        """Return the rows of the group that holds `row`, ascending.

        Parameters
        ----------
        row : int

        Returns
        -------
        ndarray of int64
        """
        number = int(self._group_of[row])
        return np.array([row]) if number < 0 else self._groups[number]

    def groups(self) -> list[IntArray]:
        """Return all groups of two or more rows.

        Returns
        -------
        list of ndarray of int64
        """
        return list(self._groups.values())

    def labels(self, rows: IntArray) -> tuple[Words, Words]:
        """Name the component and the part of each row, as functions of the set.

        Parameters
        ----------
        rows : ndarray of int64

        Returns
        -------
        components, parts : ndarray of shape (n, 2), uint64
            The smallest key of the component, and of the part; a component that is
            not divided is its own only part.
        """
        components = self._smallest_keys(self.components, rows)
        parts = components.copy()
        divided = self._divided[rows]
        parts[divided] = self._smallest_keys(self.parts, rows[divided])
        return components, parts

    def is_whole_component(self, rows: IntArray) -> bool:
        """Tell whether a group is a component of its own, undivided.

        Parameters
        ----------
        rows : ndarray of int64
            The rows of one group.

        Returns
        -------
        bool
        """
        return len(self.components.members(int(rows[0]))) == len(rows)

    def _is_divided(self, members: IntArray) -> bool:
        return self.max_group is not None and len(members) > self.max_group

    def _reserve(self) -> None:
        size = len(self._table.X)
        if size > len(self._group_of):
            capacity = max(size, len(self._group_of) * 3 // 2)
            numbers = np.full(capacity, -1, dtype=np.int64)
            numbers[: len(self._group_of)] = self._group_of
            divided = np.zeros(capacity, dtype=np.bool_)
            divided[: len(self._divided)] = self._divided
            self._group_of, self._divided = numbers, divided

    def _rebuild(
        self, components: list[int], gone: IntArray
    ) -> tuple[list[IntArray], IntArray]:
        touched = [self.components.members(row) for row in components]
        rows = np.concatenate([gone[:0], *touched])
        before = self._drop(np.concatenate([gone, rows]))
        changed = []
        for members in touched:
            changed += [g for g in self._regroup(members) if g.tobytes() not in before]
        return changed, rows

    def _drop(self, rows: IntArray) -> set[bytes]:
        numbers = self._group_of[rows]
        self._group_of[rows] = -1
        numbers = np.unique(numbers[numbers >= 0])
        return {self._groups.pop(number).tobytes() for number in numbers.tolist()}

    def _regroup(self, members: IntArray) -> list[IntArray]:
        groups = self._divide(members)
        self._number(groups)
        return groups

    def _number(self, groups: list[IntArray]) -> None:
        """Take up groups; a row alone is none."""
        several = [group for group in groups if len(group) > 1]
        if several:
            numbers = np.arange(self._next, self._next + len(several))
            self._groups.update(zip(numbers.tolist(), several, strict=True))
            sizes = [len(group) for group in several]
            self._group_of[np.concatenate(several)] = np.repeat(numbers, sizes)
            self._next += len(several)

    def _divide(self, members: IntArray) -> list[IntArray]:
        if not self._is_divided(members):
            return [members]
        groups: list[IntArray] = []
        _, first = np.unique(self.parts.roots(members), return_index=True)
        for row in members[np.sort(first)].tolist():
            groups += self._leaves(self.parts.members(row), 0)
        return groups

    def _leaves(self, rows: IntArray, bit: int) -> list[IntArray]:
        if self.max_group is None or len(rows) <= self.max_group or bit == 128:
            return [rows] if len(rows) else []
        word, shift = divmod(bit, 64)
        ones = self._keys.words[rows, word] >> np.uint64(63 - shift) & np.uint64(1) > 0
        return self._leaves(rows[~ones], bit + 1) + self._leaves(rows[ones], bit + 1)

    def _smallest_keys(self, components: Components, rows: IntArray) -> Words:
        """Return the smallest key among the members of each row's component."""
        roots, inverse = np.unique(components.roots(rows), return_inverse=True)
        names = self._keys.words[roots]
        places, shared = components.shared(roots)
        if len(places):
            ends = np.cumsum([len(members) for members in shared])
            least = np.empty_like(ends)
            smallest(self._keys.words, np.concatenate(shared), ends, least)
            names[places] = self._keys.words[least]
        return names[inverse]
