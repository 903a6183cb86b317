"""Which records a search may find: a filter and a choice of ids say so."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Set

import numpy as np

from forgetmem.arrays import BoolArray, IntArray
from forgetmem.filters import Filter
from forgetmem.state import NamespaceState


class Matching:
    """The records that a `where` and a choice of ids let through; else all.

    Parameters
    ----------
    state : NamespaceState
    where : Filter or None
    among : set of str, optional
        Ids; unknown ones have no effect.
    """

    def __init__(
        self,
        state: NamespaceState,
        where: Filter | None,
        among: Set[str] | None = None,
    ) -> None:
        self._state = state
        self._where = where
        self._verdicts: dict[str, bool] = {}
        self._counts: IntArray | None = None
        self.rows: BoolArray | None = None
        self._ids: dict[int, list[str]] | None = None
        if among is not None:
            self._choose(among)
        elif where is not None:
            self._filter()

    def ids(self, row: int) -> list[str]:
        """Return the matching records with one vector, ascending.

        Parameters
        ----------
        row : int

        Returns
        -------
        list of str
        """
        if self._ids is not None:
            return self._ids.get(row, [])
        ids = self._state.ids(row)
        return ids if self._where is None else [id for id in ids if self._lets(id)]

    def first(self, row: int, count: int) -> list[str]:
        """Return the first of the matching records with one vector, ascending.

        Parameters
        ----------
        row : int
        count : int
            How many at most.

        Returns
        -------
        list of str
        """
        if self._ids is not None or self._where is None:
            return self.ids(row)[:count]
        matching = (id for id in self._state.ids(row) if self._lets(id))
        return list(itertools.islice(matching, count))

    def count(self, rows: IntArray) -> int:
        """Count the matching records with any of some vectors.

        Parameters
        ----------
        rows : ndarray of int64
            Distinct.

        Returns
        -------
        int
        """
        if self._counts is None:
            return self._state.count(rows)
        return int(self._counts[rows].sum())

    def name(self, row: int) -> str:
        """Return the id that speaks for a row.

        Parameters
        ----------
        row : int

        Returns
        -------
        str
        """
        return self.first(row, 1)[0]

    def all_ids(self) -> list[str]:
        """Return every matching id, ascending.

        Returns
        -------
        list of str
        """
        if self.rows is None:
            return sorted(self._state.entries)
        rows = np.flatnonzero(self.rows).tolist()
        return sorted(id for row in rows for id in self.ids(row))

    def _lets(self, id: str) -> bool:
        text = self._state.entries[id].metadata
        verdict = self._verdicts.get(text)
        if verdict is None:
            assert self._where is not None
            verdict = self._where.matches(self._state.metadata(text))
            self._verdicts[text] = verdict
        return verdict

    def _filter(self) -> None:
        """Look at every metadata text once."""
        assert self._where is not None
        column = self._state.column()
        verdicts = [self._where.matches(self._state.metadata(t)) for t in column.texts]
        self._verdicts = dict(zip(column.texts, verdicts, strict=True))
        size = len(self._state.table.X)
        self._counts = column.count(size, np.array(verdicts, dtype=np.bool_))
        self.rows = self._counts > 0

    def _choose(self, among: Iterable[str]) -> None:
        self._ids = {}
        for id in among:
            entry = self._state.entries.get(id)
            if entry is not None and (self._where is None or self._lets(id)):
                self._ids.setdefault(entry.row, []).append(id)
        self._counts = np.zeros(len(self._state.table.X), dtype=np.int64)
        for row, ids in self._ids.items():
            ids.sort()
            self._counts[row] = len(ids)
        self.rows = self._counts > 0
