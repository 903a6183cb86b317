"""One namespace of a file, kept in step with what other processes write.

Every operation runs inside one transaction and begins by looking whether the file
was changed by anyone else. A failure in the middle of a change throws the state in
memory away; the file still holds what was there before.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from forgetmem.errors import (
    CorruptStoreError,
    DimensionMismatchError,
    EmbedderMismatchError,
    StoreBusyError,
)
from forgetmem.settings import Settings
from forgetmem.state import NamespaceState, NewRecord
from forgetmem.store import (
    ReadTransaction,
    SQLiteStore,
    StoredRecord,
    WriteTransaction,
    settings_digest,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The embedder that a file's vectors come from.

    Attributes
    ----------
    name : str
    dimension : int
    """

    name: str
    dimension: int

    def check(self, given: Identity) -> None:
        """Compare with the embedder of new vectors.

        Parameters
        ----------
        given : Identity

        Raises
        ------
        EmbedderMismatchError, DimensionMismatchError
            If they differ.
        """
        if given.name != self.name:
            raise EmbedderMismatchError(
                f"{self.name!r} (dimension {self.dimension})",
                f"{given.name!r} (dimension {given.dimension})",
            )
        if given.dimension != self.dimension:
            raise DimensionMismatchError(self.dimension, given.dimension)


class Collection:
    """The records of one namespace, in memory and in the file.

    Parameters
    ----------
    store : SQLiteStore
    namespace : str
    settings : Settings
        As stored in the file.
    """

    def __init__(self, store: SQLiteStore, namespace: str, settings: Settings) -> None:
        self.store = store
        self.namespace = namespace
        self.settings = settings
        self.lock = threading.RLock()
        self._state: NamespaceState | None = None
        self._identity: Identity | None = None
        self._root: bytes | None = None
        self._version: Hashable = None
        _collections.add(self)

    @contextmanager
    def reading(self) -> Iterator[tuple[ReadTransaction, NamespaceState]]:
        """Begin to read, with a state that is what the file says now.

        Yields
        ------
        tuple of (ReadTransaction, NamespaceState)
        """
        with self.lock, self.store.reading() as tx:
            yield tx, self._fresh(tx)

    @contextmanager
    def changing(
        self, identity: Identity | None = None
    ) -> Iterator[tuple[WriteTransaction, NamespaceState]]:
        """Begin a change; on leaving, what changed is written and committed.

        Parameters
        ----------
        identity : Identity, optional
            The embedder of vectors that are about to be added.

        Yields
        ------
        tuple of (WriteTransaction, NamespaceState)

        Raises
        ------
        EmbedderMismatchError, DimensionMismatchError
            If the file's vectors come from another embedder.
        """
        with self.lock:
            try:
                with self.store.writing() as tx:
                    state = self._fresh(tx)
                    if identity is not None:
                        state = self._admit(identity, state)
                    yield tx, state
                    if state.changed:
                        self._write(tx, state)
            except BaseException:
                self._discard()
                raise
            if self._state is not None:
                self._state.changed = False

    def identity(self, tx: ReadTransaction) -> Identity | None:
        """Return the embedder of the file's vectors; None while there are none.

        Parameters
        ----------
        tx : ReadTransaction

        Returns
        -------
        Identity or None
        """
        stored = tx.settings() or {}
        name, dimension = stored.get("embedder"), stored.get("dimension")
        if name is None and dimension is None:
            return None
        if not isinstance(name, str) or not isinstance(dimension, int):
            raise CorruptStoreError(
                "the embedder in the file cannot be read", table="setting"
            )
        return Identity(name, dimension)

    def digest(self, state: NamespaceState) -> bytes:
        """Return the digest of a state under the file's settings and embedder.

        Parameters
        ----------
        state : NamespaceState

        Returns
        -------
        bytes of length 32
        """
        identity = self._identity if len(state) else None
        return state.tree.root(settings_digest(self._stored_settings(identity)))

    def forget_state(self) -> None:
        """Overwrite the vectors in memory; they are read again when needed."""
        state, self._state = self._state, None  # an interrupted wipe is never seen
        if state is not None:
            state.wipe()

    def compact(self) -> None:
        """Rewrite the file as a function of its records; drop prune certificates."""
        with self.lock:
            self.store.compact()
            if self._state is not None:
                with self.store.reading() as tx:
                    self._state.load_horizons(tx, self.namespace)

    def replace(
        self,
        identity: Identity,
        roots: Mapping[str, bytes | None],
        records: Mapping[str, Sequence[NewRecord]],
    ) -> None:
        """Replace all records of the file by others with other vectors.

        Parameters
        ----------
        identity : Identity
            The embedder of the new vectors.
        roots : mapping of str to bytes
            Digest root of each namespace when its records were read.
        records : mapping of str to sequence of NewRecord
            By namespace.

        Raises
        ------
        StoreBusyError
            If another process changed the file since; nothing was changed.
        """
        with self.lock, self.store.writing() as tx:
            stored = self._stored_settings(identity)
            now = {name: tx.root(name) for name in tx.namespaces()}
            if now != dict(roots):
                raise StoreBusyError(0.0)
            for namespace, new in records.items():
                tx.erase_records(namespace, [id for id, *_ in tx.records(namespace)])
                tx.erase_atoms(namespace, [key for key, *_ in tx.atoms(namespace)])
                for name in tx.certificates(namespace):
                    tx.erase_certificate(namespace, name)
                state = NamespaceState(self.settings, identity.dimension)
                state.change([], new)
                state.write(tx, namespace, settings_digest(stored))
            tx.put_settings(stored)
            self.forget_state()

    def _fresh(self, tx: ReadTransaction) -> NamespaceState:
        version = self.store.version()
        if self._state is not None and version == self._version:
            return self._state
        identity, root = self.identity(tx), tx.root(self.namespace)
        if self._state is None or (identity, root) != (self._identity, self._root):
            self.forget_state()
            self._state = NamespaceState.load(
                tx, self.namespace, self.settings, identity.dimension if identity else 0
            )
            self._identity, self._root = identity, root
            if root != (self.digest(self._state) if len(self._state) else None):
                self._state = None
                raise CorruptStoreError(
                    "the records of the namespace do not match its digest: the file "
                    "is damaged",
                    table="root",
                    digest=root.hex() if root else None,
                )
        else:
            self._state.load_horizons(tx, self.namespace)
        self._version = version
        return self._state

    def _admit(self, identity: Identity, state: NamespaceState) -> NamespaceState:
        if self._identity is not None:
            self._identity.check(identity)
            return state
        self._identity = identity
        self._state = NamespaceState(self.settings, identity.dimension)
        return self._state

    def _write(self, tx: WriteTransaction, state: NamespaceState) -> None:
        rooted = settings_digest(self._stored_settings(self._identity))
        root = state.write(tx, self.namespace, rooted)
        self._root = root if len(state) else None
        if not tx.namespaces():
            self._identity = None
        stored = self._stored_settings(self._identity)
        if stored != tx.settings():
            tx.put_settings(stored)

    def _stored_settings(self, identity: Identity | None) -> dict[str, object]:
        stored: dict[str, object] = self.settings.model_dump()
        if identity is not None:
            stored |= {"embedder": identity.name, "dimension": identity.dimension}
        return stored

    def _discard(self) -> None:
        if self._state is not None and (self._state.changed or not len(self._state)):
            self.forget_state()

    def renew(self) -> None:
        """Begin afresh in a child, if another thread of the parent was at work."""
        if self.lock.acquire(blocking=False):
            self.lock.release()
        else:
            self.lock, self._state = threading.RLock(), None


def fetch(
    tx: ReadTransaction, namespace: str, ids: Sequence[str]
) -> dict[str, StoredRecord]:
    """Read records that must be there.

    Parameters
    ----------
    tx : ReadTransaction
    namespace : str
    ids : sequence of str
        Distinct.

    Returns
    -------
    dict of str to StoredRecord
        In the order given.

    Raises
    ------
    CorruptStoreError
        If the file does not find one of them.
    """
    found: dict[str, StoredRecord] = tx.get(namespace, ids)
    if len(found) != len(ids):
        raise CorruptStoreError(
            "records of the namespace cannot be found by their ids: the file is "
            "damaged",
            table="record",
        )
    return found


_collections: weakref.WeakSet[Collection] = weakref.WeakSet()


def _renew_all() -> None:
    for collection in list(_collections):
        collection.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
