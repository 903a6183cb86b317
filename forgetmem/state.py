"""What one namespace holds, in memory: a function of its records, and their delta.

`change` and `remove_rows` alter the state and collect what differs from the file;
`write` puts that into one transaction. If anything fails in between, the caller throws
the state away and loads it again: the file is the truth.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from forgetmem.arrays import Float32Array, IntArray
from forgetmem.errors import CorruptStoreError
from forgetmem.groups import Grouping, GroupWeights, Horizons, PruneHorizon
from forgetmem.index import VectorTable
from forgetmem.metadata import Json, load_metadata
from forgetmem.settings import Settings
from forgetmem.store import (
    DigestTree,
    ReadTransaction,
    StoredAtom,
    StoredRecord,
    WriteTransaction,
    atom_key,
    leaf,
    record_content,
)


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record about to be stored; `vector` is normalised float32."""

    id: str
    text: str
    metadata: str
    source_id: str | None
    vector: Float32Array


@dataclass(slots=True)
class Entry:
    """What is kept in memory of one record; its text stays in the file."""

    source_id: str | None
    metadata: str
    row: int


@dataclass(slots=True)
class _Delta:
    erased: set[str] = field(default_factory=set)
    put: dict[str, StoredRecord] = field(default_factory=dict)
    gone_keys: set[bytes] = field(default_factory=set)
    new_rows: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)


class NamespaceState:
    """Records, vectors, groups, weights and the digest of one namespace.

    Parameters
    ----------
    settings : Settings
    dimension : int
        Length of the vectors.
    """

    def __init__(self, settings: Settings, dimension: int) -> None:
        self.settings = settings
        self.table = VectorTable(dimension)
        self.keys: list[bytes] = []
        self.grouping = Grouping(
            self.table, self.keys, settings.link, settings.max_group
        )
        self.weights = GroupWeights(
            self.table, settings.gamma, settings.C, settings.ridge
        )
        self.entries: dict[str, Entry] = {}
        self.tree = DigestTree()
        self._row_of: dict[bytes, int] = {}
        self.horizons = Horizons(
            self.table, self._row_of, self.grouping, self.weights, settings.gamma
        )
        self._stored_horizons: dict[bytes, PruneHorizon] = {}
        self._ids_at: dict[int, set[str] | str] = {}
        self._written: dict[int, tuple[bytes, bytes, float, int]] = {}
        self._parsed: dict[str, dict[str, Json]] = {}
        self._delta = _Delta()
        self.changed = False

    def __len__(self) -> int:
        return len(self.entries)

    @classmethod
    def load(
        cls,
        tx: ReadTransaction,
        namespace: str,
        settings: Settings,
        dimension: int,
    ) -> NamespaceState:
        """Read a namespace from the file, without joining or solving anything.

        Parameters
        ----------
        tx : ReadTransaction
        namespace : str
        settings : Settings
        dimension : int

        Returns
        -------
        NamespaceState

        Raises
        ------
        CorruptStoreError
            If the tables do not fit together.
        """
        state = cls(settings, dimension)
        try:
            state._read(tx, namespace, dimension)
        except KeyError as error:
            raise CorruptStoreError(
                "a vector or what belongs to it is missing: the file is damaged",
                table="atom",
            ) from error
        return state

    def _read(self, tx: ReadTransaction, namespace: str, dimension: int) -> None:
        keys, vectors = tx.matrix(namespace, dimension)
        rows = self._add_atoms(keys, vectors)
        atoms = {
            key: (component, part, weight, role)
            for key, component, part, weight, role in tx.atoms(namespace)
        }
        stored = [atoms[key] for key in keys]
        self._written = dict(zip(rows.tolist(), stored, strict=True))
        if len(rows):
            components, parts, weights, roles = zip(*stored, strict=True)
            self.grouping.restore(rows, list(components), list(parts))
            self.weights.restore(rows, np.array(weights), np.array(roles))
        for id, source_id, metadata, key, content in tx.records(namespace):
            self._enter(id, source_id, metadata, self._row_of[key], content)
        self.load_horizons(tx, namespace)

    def load_horizons(self, tx: ReadTransaction, namespace: str) -> None:
        """Read the horizons of pruned groups, which are no part of the state.

        Parameters
        ----------
        tx : ReadTransaction
        namespace : str
        """
        self._stored_horizons = {
            name: PruneHorizon.from_json(payload)
            for name, payload in tx.certificates(namespace).items()
        }
        self.horizons.by_key = dict(self._stored_horizons)

    def change(self, erase: Iterable[str], put: Sequence[NewRecord]) -> None:
        """Erase records, store others, and solve the groups that this touches.

        Parameters
        ----------
        erase : iterable of str
            Ids that are there.
        put : sequence of NewRecord
            An id that is there is overwritten.
        """
        self.changed = True
        overwritten = [record.id for record in put if record.id in self.entries]
        loose = {self._leave(id) for id in [*erase, *overwritten]}
        affected = self._put_all(put)
        orphans = sorted(row for row in loose if row not in self._ids_at)
        affected |= self._remove_atoms(np.array(orphans, dtype=np.int64))
        self._solve(affected.difference(orphans))
        self.horizons.after_add(np.array(sorted(self._delta.new_rows), dtype=np.int64))

    def remove_rows(self, rows: IntArray) -> list[str]:
        """Erase all records of some vectors whose absence changes no weight.

        Parameters
        ----------
        rows : ndarray of int64

        Returns
        -------
        list of str
            The ids that are gone.
        """
        self.changed = True
        ids = [id for row in rows for id in self.ids(int(row))]
        for id in ids:
            self._leave(id)
        self._remove_atoms(rows, forgotten=False)
        return ids

    def holds(self, record: NewRecord) -> bool:
        """Tell whether a record is there already, equal in every field.

        Parameters
        ----------
        record : NewRecord

        Returns
        -------
        bool
        """
        old = self.tree.get(record.id)
        return old is not None and old[:-1] == _content(record)

    def write(self, tx: WriteTransaction, namespace: str, settings: bytes) -> bytes:
        """Put everything that differs from the file into a transaction.

        Parameters
        ----------
        tx : WriteTransaction
        namespace : str
        settings : bytes
            Digest of the settings.

        Returns
        -------
        bytes
            The new root of the digest.
        """
        delta, self._delta = self._delta, _Delta()
        erased = sorted(delta.erased - delta.put.keys())
        found = tx.erase_records(namespace, erased)
        tx.put_records(namespace, [delta.put[id] for id in sorted(delta.put)])
        gone = {key for key in delta.gone_keys if key not in self._row_of}
        found += tx.erase_atoms(namespace, sorted(gone))
        if found != len(erased) + len(gone):
            raise CorruptStoreError(
                "what is to be erased cannot be found: the file is damaged",
                table="record",
            )
        tx.put_atoms(namespace, self._stored_atoms(delta.new_rows))
        tx.update_atoms(namespace, self._updates(delta))
        self._write_horizons(tx, namespace)
        root = self.tree.root(settings)
        tx.put_root(namespace, root if self.entries else None)
        return root

    def ids(self, row: int) -> list[str]:
        """Return the ids of the records with one vector, ascending.

        Parameters
        ----------
        row : int

        Returns
        -------
        list of str
        """
        at = self._ids_at[row]
        return [at] if isinstance(at, str) else sorted(at)

    def metadata(self, id: str) -> dict[str, Json]:
        """Return the metadata of a record, parsed; shared, not to be changed.

        Parameters
        ----------
        id : str

        Returns
        -------
        dict
        """
        text = self.entries[id].metadata
        parsed = self._parsed.get(text)
        if parsed is None:
            parsed = self._parsed[text] = load_metadata(text)
        return parsed

    def companions(self, ids: Iterable[str]) -> IntArray:
        """Return the rows that are solved together with some records.

        Parameters
        ----------
        ids : iterable of str
            Ids that are there.

        Returns
        -------
        ndarray of int64
            Ascending, the records' own rows included.
        """
        rows = {self.entries[id].row for id in ids}
        members = [self.grouping.group(row) for row in rows]
        return np.unique(np.concatenate(members)) if members else np.empty(0, np.int64)

    def groups_of(self, rows: IntArray) -> list[IntArray]:
        """Return the groups that hold any of some rows, each once.

        Parameters
        ----------
        rows : ndarray of int64
            Rows that no longer hold a vector are passed over.

        Returns
        -------
        list of ndarray of int64
        """
        seen: set[int] = set()
        groups = []
        for row in rows[self.table.alive[rows]].tolist():
            if row not in seen:
                group = self.grouping.group(row)
                seen.update(group.tolist())
                groups.append(group)
        return groups

    def atoms_by_key(self) -> Mapping[bytes, int]:
        """Return the row of every vector's key.

        Returns
        -------
        mapping of bytes to int
        """
        return self._row_of

    def wipe(self) -> None:
        """Overwrite the vectors before the state is thrown away."""
        self.table.wipe()

    def _put_all(self, put: Sequence[NewRecord]) -> set[int]:
        keys = [atom_key(record.vector.tobytes()) for record in put]
        unknown = dict.fromkeys(key for key in keys if key not in self._row_of)
        first = {key: position for position, key in reversed(list(enumerate(keys)))}
        affected: set[int] = set()
        if unknown:
            vectors = np.stack([put[first[key]].vector for key in unknown])
            rows = self._add_atoms(list(unknown), vectors)
            affected = self._regrouped(self.grouping.add(rows))
            self._delta.new_rows |= set(rows.tolist())
        for record, key in zip(put, keys, strict=True):
            self._put(record, key)
        return affected

    def _put(self, record: NewRecord, key: bytes) -> None:
        content = _content(record)
        row = self._row_of[key]
        self._enter(record.id, record.source_id, record.metadata, row, content)
        self._delta.put[record.id] = StoredRecord(
            record.id, record.text, record.metadata, record.source_id, key, content
        )

    def _enter(
        self, id: str, source_id: str | None, metadata: str, row: int, content: bytes
    ) -> None:
        source = None if source_id is None else sys.intern(source_id)
        self.entries[id] = Entry(source, sys.intern(metadata), row)
        at = self._ids_at.get(row)
        if at is None:
            self._ids_at[row] = id
        elif isinstance(at, str):
            self._ids_at[row] = {at, id}
        else:
            at.add(id)
        self.tree.put(id, leaf(content, int(self.weights.role[row])))

    def _leave(self, id: str) -> int:
        entry = self.entries.pop(id)
        at = self._ids_at[entry.row]
        if isinstance(at, str):
            del self._ids_at[entry.row]
        else:
            at.discard(id)
            if len(at) == 1:
                self._ids_at[entry.row] = at.pop()
        self.tree.discard(id)
        self._delta.erased.add(id)
        self._delta.put.pop(id, None)
        self._parsed.pop(entry.metadata, None)
        return entry.row

    def _add_atoms(self, keys: list[bytes], vectors: Float32Array) -> IntArray:
        rows = self.table.add(vectors)
        self.keys.extend([b""] * (len(self.table.X) - len(self.keys)))
        for row, key in zip(rows.tolist(), keys, strict=True):
            self.keys[row] = key
            self._row_of[key] = row
        return rows

    def _remove_atoms(self, rows: IntArray, *, forgotten: bool = True) -> set[int]:
        if not len(rows):
            return set()
        change = self.grouping.remove(rows)
        affected = self._regrouped(change)
        gone = [self.keys[row] for row in rows.tolist()]
        if forgotten:
            self.horizons.after_forget(gone, change[1])
        else:
            self.horizons.after_prune(gone)
        self.weights.clear(rows)
        self.table.remove(rows)
        for row in rows.tolist():
            key, self.keys[row] = self.keys[row], b""
            self._delta.gone_keys.add(key)
            self._delta.new_rows.discard(row)
            self._delta.touched.discard(row)
            del self._row_of[key]
            self._written.pop(row, None)
        return affected

    def _regrouped(self, change: tuple[list[IntArray], IntArray]) -> set[int]:
        groups, touched = change
        self._delta.touched |= set(touched.tolist())
        return {int(row) for rows in groups for row in rows}

    def _solve(self, affected: set[int]) -> None:
        groups = self.groups_of(np.array(sorted(affected), dtype=np.int64))
        before = {row: int(self.weights.role[row]) for row in affected}
        self.weights.solve(groups)
        self._delta.touched |= affected
        for row, role in before.items():
            if int(self.weights.role[row]) != role:
                for id in self.ids(row):
                    content = self.tree.get(id)
                    assert content is not None
                    new = leaf(content[:-1], int(self.weights.role[row]))
                    self.tree.put(id, new)

    def _write_horizons(self, tx: WriteTransaction, namespace: str) -> None:
        for name, horizon in self.horizons.by_key.items():
            if self._stored_horizons.get(name) != horizon:
                tx.put_certificate(namespace, name, horizon.to_json())
        self._stored_horizons = dict(self.horizons.by_key)

    def _current(self, rows: set[int]) -> dict[int, tuple[bytes, bytes, float, int]]:
        """Return what the file should say of rows, in the order of their keys."""
        ordered = sorted(rows, key=lambda row: self.keys[row])
        labels = self.grouping.labels(np.array(ordered, dtype=np.int64))
        weight, role = self.weights.weight, self.weights.role
        return {
            row: (*label, float(weight[row]), int(role[row]))
            for row, label in zip(ordered, labels, strict=True)
        }

    def _stored_atoms(self, rows: set[int]) -> list[StoredAtom]:
        current = self._current(rows)
        self._written.update(current)
        return [
            StoredAtom(self.keys[row], self.table.X[row].tobytes(), *values)
            for row, values in current.items()
        ]

    def _updates(self, delta: _Delta) -> list[tuple[bytes, bytes, bytes, float, int]]:
        current = self._current(delta.touched - delta.new_rows)
        changed = {
            row: values
            for row, values in current.items()
            if self._written.get(row) != values
        }
        self._written.update(changed)
        return [(self.keys[row], *values) for row, values in changed.items()]


def _content(record: NewRecord) -> bytes:
    vector = record.vector.tobytes()
    return record_content(
        record.id, record.text, record.metadata, record.source_id, vector
    )
