"""What one namespace holds, in memory: a function of its records, and their delta.

`change` and `remove_rows` alter the state and collect what differs from the file;
`write` puts that into one transaction. If anything fails in between, the caller throws
the state away and loads it again: the file is the truth.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from forgetmem.arrays import Float32Array, IntArray
from forgetmem.column import MetadataColumn
from forgetmem.counts import DigestCounts
from forgetmem.errors import CorruptStoreError
from forgetmem.groups import (
    Grouping,
    GroupWeights,
    Horizons,
    KeyTable,
    PruneHorizon,
    as_keys,
    as_words,
)
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
    many_leaves,
    record_content,
    text_digest,
)
from forgetmem.written import Written


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
    touched: list[IntArray] = field(default_factory=list)


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
        self.keys = KeyTable()
        self.grouping = Grouping(
            self.table, self.keys, settings.link, settings.max_group
        )
        self.weights = GroupWeights(
            self.table, settings.gamma, settings.C, settings.ridge
        )
        self.entries: dict[str, Entry] = {}
        self.tree = DigestTree()
        self.texts = DigestCounts()
        self.horizons = Horizons(
            self.table, self.keys, self.grouping, self.weights, settings.gamma
        )
        self._stored_horizons: dict[bytes, PruneHorizon] = {}
        self._ids_at: list[set[str] | str | None] = []
        self._shared: set[int] = set()  # rows with two or more records
        self._written = Written()
        self._parsed: dict[str, dict[str, Json]] = {}
        self._column: MetadataColumn | None = None
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
            with _collector_paused():
                state._read(tx, namespace, dimension)
        except KeyError as error:
            raise CorruptStoreError(
                "a vector or what belongs to it is missing: the file is damaged",
                table="atom",
            ) from error
        return state

    def _read(self, tx: ReadTransaction, namespace: str, dimension: int) -> None:
        keys, vectors = tx.matrix(namespace, dimension, self.table.room)
        rows = self.table.take(len(vectors))
        self.keys.put(rows, keys)
        self._ids_at = [None] * len(rows)
        del keys  # before anything that stays is allocated behind it
        self._restore(tx, namespace, rows)
        for some, contents in tx.many_records(namespace):
            ids, sources, metadatas, atoms, texts, _ = zip(*some, strict=True)
            places = self.keys.rows_of(atoms)
            if (places < 0).any():
                raise KeyError
            self._enter(ids, sources, metadatas, places.tolist())
            roles = self.weights.role[places].tolist()
            self.tree.fill(ids, many_leaves(contents, roles))
            self.texts.add(texts)
        self.load_horizons(tx, namespace)
        _give_back()

    def _enter(
        self,
        ids: Sequence[str],
        sources: Sequence[str | None],
        metadatas: Sequence[str],
        rows: Sequence[int],
    ) -> None:
        """Note which row each of many records has, as `_stand` does for one."""
        named = [one if one is None else sys.intern(one) for one in sources]
        entries = map(Entry, named, map(sys.intern, metadatas), rows)
        self.entries.update(zip(ids, entries, strict=True))
        at = self._ids_at
        for id, row in zip(ids, rows, strict=True):
            if at[row] is None:
                at[row] = id
            else:
                self._name(id, row)

    def _restore(self, tx: ReadTransaction, namespace: str, rows: IntArray) -> None:
        keys, states = tx.states(namespace)
        if not np.array_equal(as_words(keys), self.keys.words[rows]):
            raise KeyError
        labels = (
            as_words(states["component"].tobytes()),
            as_words(states["part"].tobytes()),
        )
        found = states["weight"].astype(np.float64), states["role"].astype(np.int8)
        self._written.note(rows, labels, *found)
        self.grouping.restore(rows, *labels)
        self.weights.restore(rows, *found)

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

    def change(self, gone: Sequence[StoredRecord], put: Sequence[NewRecord]) -> None:
        """Erase records, store others, and solve the groups that this touches.

        Parameters
        ----------
        gone : sequence of StoredRecord
            What is there now and is to be erased or overwritten.
        put : sequence of NewRecord
            An id that is there must be among those that are gone.
        """
        self.changed = True
        loose = self._leave_all(gone)
        rows, affected = self._make_rows(put)
        empty = [row for row in loose.difference(rows) if self._ids_at[row] is None]
        orphans = np.array(sorted(empty), dtype=np.int64)
        affected = np.union1d(affected, self._remove_atoms(orphans))
        self._solve(np.setdiff1d(affected, orphans))
        for record, row in zip(put, rows, strict=True):
            self._put(record, row)
        self.texts.add(text_digest(record.text) for record in put)
        self.horizons.after_add(np.array(sorted(self._delta.new_rows), dtype=np.int64))

    def remove_rows(self, rows: IntArray, gone: Sequence[StoredRecord]) -> None:
        """Erase all records of some vectors whose absence changes no weight.

        Parameters
        ----------
        rows : ndarray of int64
        gone : sequence of StoredRecord
            Those records.
        """
        self.changed = True
        self._leave_all(gone)
        self._remove_atoms(rows, forgotten=False)

    def survivors(self, records: Sequence[StoredRecord]) -> Counter[bytes]:
        """Count the other records that have a text or a vector of some records.

        Parameters
        ----------
        records : sequence of StoredRecord
            Records that are there.

        Returns
        -------
        Counter of bytes
            By `text_digest` of each text, and by the key of each vector.
        """
        texts = Counter(text_digest(record.text) for record in records)
        rows = Counter(self.entries[record.id].row for record in records)
        found = Counter({one: self.texts.count(one) - n for one, n in texts.items()})
        for row, n in rows.items():
            found[self.keys.key(row)] = self.count(np.array([row])) - n
        return found

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
        gone = sorted(key for key in delta.gone_keys if key not in self.keys)
        found += tx.erase_atoms(namespace, gone)
        if found != len(erased) + len(gone):
            raise CorruptStoreError(
                "what is to be erased cannot be found: the file is damaged",
                table="record",
            )
        new, old = self._atoms_to_write(delta)
        tx.put_atoms(namespace, new)
        tx.update_atoms(namespace, old)
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
        if at is None:
            return []
        return [at] if isinstance(at, str) else sorted(at)

    def count(self, rows: IntArray) -> int:
        """Count the records with any of some vectors.

        Parameters
        ----------
        rows : ndarray of int64
            Distinct.

        Returns
        -------
        int
        """
        shared = self._shared.intersection(rows.tolist()) if self._shared else ()
        return len(rows) + sum(len(self.ids(row)) - 1 for row in shared)

    def metadata(self, text: str) -> dict[str, Json]:
        """Return the metadata of records, parsed; shared, not to be changed.

        Parameters
        ----------
        text : str
            As in an `Entry`.

        Returns
        -------
        dict
        """
        parsed = self._parsed.get(text)
        if parsed is None:
            parsed = self._parsed[text] = load_metadata(text)
        return parsed

    def column(self) -> MetadataColumn:
        """Return the metadata of all rows by number.

        Returns
        -------
        MetadataColumn
        """
        if self._column is None:
            entries = self.entries.values()
            rows = np.array([entry.row for entry in entries], dtype=np.int64)
            texts = [entry.metadata for entry in entries]
            self._column = MetadataColumn(rows, texts)
        return self._column

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

    def wipe(self) -> None:
        """Overwrite vectors and digests before the state is thrown away."""
        self.table.wipe()
        self.texts.wipe()

    def _make_rows(self, put: Sequence[NewRecord]) -> tuple[list[int], IntArray]:
        """Return the row of each record's vector, and the rows to be solved."""
        keys = [atom_key(record.vector.tobytes()) for record in put]
        rows = self.keys.rows_of(keys)
        affected = rows[:0]
        first = {keys[at]: at for at in np.flatnonzero(rows < 0)[::-1].tolist()}
        if first:
            unknown = dict(sorted(first.items(), key=lambda one: one[1]))
            vectors = np.stack([put[at].vector for at in unknown.values()])
            new = self.table.add(vectors)
            self.keys.put(new, list(unknown))
            missing = len(self.table.X) - len(self._ids_at)
            self._ids_at += [None] * missing
            affected = self._regrouped(self.grouping.add(new))
            self._delta.new_rows |= set(new.tolist())
            rows = self.keys.rows_of(keys)
        return rows.tolist(), affected

    def _put(self, record: NewRecord, row: int) -> None:
        content, key = _content(record), self.keys.key(row)
        self._stand(record.id, record.source_id, record.metadata, row)
        self.tree.put(record.id, leaf(content, self.weights.role_of(row)))
        self._delta.put[record.id] = StoredRecord(
            record.id, record.text, record.metadata, record.source_id, key, content
        )

    def _stand(self, id: str, source_id: str | None, metadata: str, row: int) -> None:
        """Note which row a record has."""
        source = None if source_id is None else sys.intern(source_id)
        self.entries[id] = Entry(source, sys.intern(metadata), row)
        if self._column is not None:
            self._column.put(row, metadata)
        self._name(id, row)

    def _name(self, id: str, row: int) -> None:
        at = self._ids_at[row]
        if at is None:
            self._ids_at[row] = id
        elif isinstance(at, str):
            self._ids_at[row] = {at, id}
            self._shared.add(row)
        else:
            at.add(id)

    def _leave_all(self, gone: Sequence[StoredRecord]) -> set[int]:
        self.texts.discard(text_digest(record.text) for record in gone)
        return {self._leave(record.id) for record in gone}

    def _leave(self, id: str) -> int:
        entry = self.entries.pop(id)
        at = self._ids_at[entry.row]
        if isinstance(at, set):
            at.discard(id)
            if len(at) == 1:
                self._ids_at[entry.row] = at.pop()
                self._shared.discard(entry.row)
        else:
            self._ids_at[entry.row] = None
        self.tree.discard(id)
        self._delta.erased.add(id)
        self._delta.put.pop(id, None)
        self._parsed.pop(entry.metadata, None)
        self._column = None  # it would keep the metadata of what is gone
        return entry.row

    def _remove_atoms(self, rows: IntArray, *, forgotten: bool = True) -> IntArray:
        if not len(rows):
            return rows
        change = self.grouping.remove(rows)
        affected = self._regrouped(change)
        gone = [self.keys.key(row) for row in rows.tolist()]
        if forgotten:
            self.horizons.after_forget(gone, change[1])
        else:
            self.horizons.after_prune(gone)
        self.weights.clear(rows)
        self.table.remove(rows)
        self.keys.remove(rows)
        self._written.clear(rows)
        self._delta.gone_keys.update(gone)
        self._delta.new_rows.difference_update(rows.tolist())
        return affected

    def _regrouped(self, change: tuple[list[IntArray], IntArray]) -> IntArray:
        groups, touched = change
        self._delta.touched.append(touched)
        return np.concatenate([touched[:0], *groups])

    def _solve(self, affected: IntArray) -> None:
        before = self.weights.role[affected]
        self.weights.solve(self.groups_of(affected))
        self._delta.touched.append(affected)
        role = self.weights.role
        for row in affected[role[affected] != before].tolist():
            for id in self.ids(row):
                content = self.tree.get(id)
                assert content is not None
                self.tree.put(id, leaf(content[:-1], int(role[row])))

    def _write_horizons(self, tx: WriteTransaction, namespace: str) -> None:
        for name, horizon in self.horizons.by_key.items():
            if self._stored_horizons.get(name) != horizon:
                tx.put_certificate(namespace, name, horizon.to_json())
        self._stored_horizons = dict(self.horizons.by_key)

    def _atoms_to_write(
        self, delta: _Delta
    ) -> tuple[list[StoredAtom], list[tuple[bytes, bytes, bytes, float, int]]]:
        """Return the atoms that are new, and those of which something has changed."""
        new = np.array(sorted(delta.new_rows), dtype=np.int64)
        touched = np.unique(np.concatenate([new, *delta.touched]))
        rows = touched[self.table.alive[touched]]
        labels = self.grouping.labels(rows)
        weight, role = self.weights.weight[rows], self.weights.role[rows]
        differs = self._written.note(rows, labels, weight, role)
        fresh = np.isin(rows, new)
        at = np.flatnonzero(differs | fresh)
        found = zip(
            as_keys(self.keys.words[rows[at]]),
            *(as_keys(one[at]) for one in labels),
            weight[at].tolist(),
            role[at].tolist(),
            strict=True,
        )
        atoms: list[StoredAtom] = []
        old = []
        for row, is_new, values in zip(
            rows[at].tolist(), fresh[at].tolist(), found, strict=True
        ):
            if is_new:
                vector = self.table.X[row].tobytes()
                atoms.append(StoredAtom(values[0], vector, *values[1:]))
            else:
                old.append(values)
        return atoms, old


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Make many objects that stay without being searched for cycles in between."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _give_back() -> None:
    """Return to the system what was freed while a namespace was read (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _content(record: NewRecord) -> bytes:
    vector = record.vector.tobytes()
    return record_content(
        record.id, record.text, record.metadata, record.source_id, vector
    )
