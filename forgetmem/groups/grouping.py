"""Groups: components, linked again when they are large, then halved by their keys."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import IntArray
from forgetmem.groups.components import Components
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
    keys : list of bytes
        Key of each row, 16 bytes, uniform (a hash of the vector); shared with the
        caller, who keeps it as long as the table.
    link : float
        Cosine that links two vectors; -1 or less makes one component.
    max_group : int or None
        Largest number of rows of one group; None for no limit.
    """

    def __init__(
        self,
        table: VectorTable,
        keys: list[bytes],
        link: float,
        max_group: int | None,
    ) -> None:
        self._table = table
        self._keys = keys
        self.link = link
        self.max_group = max_group
        self.components = Components(table, link)
        self.parts = Components(table, 1.0 - (1.0 - link) / 2.0)
        self._groups: dict[int, IntArray] = {}
        self._group_of: dict[int, int] = {}
        self._next = 0

    def restore(
        self, rows: IntArray, components: list[bytes], parts: list[bytes]
    ) -> None:
        """Take over stored components, without joining anything.

        Parameters
        ----------
        rows : ndarray of int64
            All rows of the table.
        components, parts : list of bytes
            The stored label of each row.
        """
        self.components.restore(rows, components)
        if self._divides:
            self.parts.restore(rows, parts)
        seen: set[int] = set()
        for row in rows:
            if int(row) not in seen:
                members = self.components.members(int(row))
                if len(members) > 1:
                    seen.update(members.tolist())
                    self._regroup(members)

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
        changed = self.components.add(rows)
        if self._divides:
            self.parts.add(rows, self.components)
        return self._rebuild(changed, set())

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
        if self._divides:
            self.parts.remove(rows)
        gone = {int(row) for row in rows}
        return self._rebuild(self.components.remove(rows), gone)

    def group(self, row: int) -> IntArray:
        """Return the rows of the group that holds `row`, ascending.

        Parameters
        ----------
        row : int

        Returns
        -------
        ndarray of int64
        """
        number = self._group_of.get(row)
        if number is None:
            return np.array([row], dtype=np.int64)
        return self._groups[number]

    def groups(self) -> list[IntArray]:
        """Return all groups of two or more rows.

        Returns
        -------
        list of ndarray of int64
        """
        return list(self._groups.values())

    def labels(self, rows: IntArray) -> list[tuple[bytes, bytes]]:
        """Name the component and the part of each row, as functions of the set.

        Parameters
        ----------
        rows : ndarray of int64

        Returns
        -------
        list of (bytes, bytes)
            The smallest key of the component, and of the part.
        """
        names = _smallest_keys(self.components, rows, self._keys)
        if not self._divides:
            return [(name, name) for name in names]
        return list(
            zip(names, _smallest_keys(self.parts, rows, self._keys), strict=True)
        )

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

    @property
    def _divides(self) -> bool:
        return self.max_group is not None

    def _rebuild(
        self, components: list[int], gone: set[int]
    ) -> tuple[list[IntArray], IntArray]:
        before: set[bytes] = set()
        for row in gone:
            self._drop(row, before)
        touched = [self.components.members(row) for row in components]
        for members in touched:
            for row in members:
                self._drop(int(row), before)
        changed = []
        for members in touched:
            changed += [g for g in self._regroup(members) if g.tobytes() not in before]
        rows = np.concatenate(touched) if touched else np.empty(0, dtype=np.int64)
        return changed, rows

    def _drop(self, row: int, before: set[bytes]) -> None:
        number = self._group_of.pop(row, None)
        group = self._groups.pop(number, None) if number is not None else None
        if group is not None:
            before.add(group.tobytes())

    def _regroup(self, members: IntArray) -> list[IntArray]:
        groups = self._divide(members)
        for group in groups:
            if len(group) > 1:
                self._groups[self._next] = group
                self._group_of.update((int(row), self._next) for row in group)
                self._next += 1
        return groups

    def _divide(self, members: IntArray) -> list[IntArray]:
        if self.max_group is None or len(members) <= self.max_group:
            return [members]
        groups: list[IntArray] = []
        seen: set[int] = set()
        for row in members:
            if int(row) not in seen:
                part = self.parts.members(int(row))
                seen.update(part.tolist())
                groups += self._leaves(part, 0)
        return groups

    def _leaves(self, rows: IntArray, bit: int) -> list[IntArray]:
        if self.max_group is None or len(rows) <= self.max_group or bit == 128:
            return [rows] if len(rows) else []
        ones = np.array(
            [self._keys[row][bit >> 3] >> (7 - (bit & 7)) & 1 for row in rows],
            dtype=np.bool_,
        )
        return self._leaves(rows[~ones], bit + 1) + self._leaves(rows[ones], bit + 1)


def _smallest_keys(
    components: Components, rows: IntArray, keys: list[bytes]
) -> list[bytes]:
    names: dict[int, bytes] = {}
    for row in rows:
        if int(row) not in names:
            members = components.members(int(row)).tolist()
            name = min(keys[member] for member in members)
            names.update((member, name) for member in members)
    return [names[int(row)] for row in rows]
