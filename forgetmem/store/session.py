"""The life of a store's connection: threads, forks, replaced files, transactions."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import TypeVar

from forgetmem.errors import StoreBusyError, StoreError
from forgetmem.store.connection import Connection, Stamp
from forgetmem.store.erasure import scrub, scrub_lists, scrub_pages
from forgetmem.store.files import inode_of
from forgetmem.store.structure import read_layout
from forgetmem.store.touched import before, touched
from forgetmem.store.transaction import ReadTransaction
from forgetmem.store.write_transaction import WriteTransaction

Version = tuple[int, int]
Transaction = TypeVar("Transaction", bound=ReadTransaction)

#: Seconds that a committed transaction waits for readers before it leaves the pages
#: that it changed to be scrubbed later.
_TIDY_WAIT = 1.0

#: Seconds that a fork waits for other threads to finish what they do.
_FORK_WAIT = 10.0

_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_held_still: list[threading.RLock] = []


class Session:
    """One connection at a time, and what outlives it.

    Parameters
    ----------
    path : str or None
        See `Connection`.
    read_only : bool
    timeout : float
    driver : module
    """

    def __init__(
        self, path: str | None, *, read_only: bool, timeout: float, driver: ModuleType
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.timeout = timeout
        self.driver = driver
        self.lock = threading.RLock()
        self._tx: ReadTransaction | None = None
        self._closed = False
        self._epoch = self._base = 0
        self._dirty: set[int] = set()
        self._all_dirty = False
        self._open_connections: list[Connection] = []
        self._finalizer = weakref.finalize(self, _close, self._open_connections)
        _sessions.add(self)
        self._open()

    def _open(self) -> Connection:
        connection = Connection(
            self.path,
            read_only=self.read_only,
            timeout=self.timeout,
            driver=self.driver,
        )
        self._open_connections.append(connection)
        self._base = connection.first_version
        return connection

    def drop(self) -> None:
        """Close the connection; the next operation opens another one."""
        _close(self._open_connections)
        self._epoch += 1

    @property
    def tx(self) -> ReadTransaction | None:
        """The transaction that is open, if there is one."""
        return self._tx if self._tx is not None and self._tx.is_open else None

    def connection(self) -> Connection:
        """Return the connection of this process, opened anew where that is needed.

        Returns
        -------
        Connection
            Not necessarily to the file that the path names now, see `begin`.
        """
        if self._closed:
            raise StoreError("this store is closed")
        if self._open_connections and self._open_connections[0].foreign:
            self.drop()  # pragma: no cover - only in a child of a fork
        return self._open_connections[0] if self._open_connections else self._open()

    @contextlib.contextmanager
    def using(self, *, alone: bool = False) -> Iterator[Connection]:
        """Hold the gate of the file that the path names now, see `Gate`.

        Parameters
        ----------
        alone : bool
            Whether the file is about to be replaced.

        Yields
        ------
        Connection
            To that file, as long as the block lasts.
        """
        while True:
            connection = self.connection()
            if self.has_wal() and not self.read_only:
                # SQLite would begin to use it; a new connection switches back first.
                self.drop()
                connection = self.connection()
            with connection.gate(alone=alone):
                if connection.is_current():
                    yield connection
                    return
            self.drop()

    def _begin(self, connection: Connection, statement: str) -> None:
        """Begin a transaction, and take its lock at once."""
        try:
            # An interrupt may have cut off the end of the one before.
            self._roll_back(connection)
            connection.execute(statement)
            connection.scalar("SELECT rootpage FROM sqlite_master LIMIT 1")
        except BaseException:
            self._roll_back(connection)
            raise

    def has_wal(self) -> bool:
        """Tell whether somebody has put a write-ahead log beside the file.

        Returns
        -------
        bool
            A memory never has one.
        """
        return self.path is not None and inode_of(f"{self.path}-wal") is not None

    @contextlib.contextmanager
    def transaction(
        self, statement: str, kind: type[Transaction]
    ) -> Iterator[Transaction]:
        """Run a block inside a transaction, and commit or roll back.

        Parameters
        ----------
        statement : str
            See `begin`.
        kind : type
            What the block gets.

        Yields
        ------
        ReadTransaction or WriteTransaction
            Valid until the block ends.
        """
        with self.using() as connection:
            tx = kind(connection)
            try:
                self._begin(connection, statement)
                changes = connection.raw.total_changes
                self._tx = tx
                yield tx
                tx.close()
                if not connection.foreign:  # pragma: no branch
                    # Even an empty commit would wait for all readers.
                    same = connection.raw.total_changes == changes
                    connection.execute("ROLLBACK" if same else "COMMIT")
            except BaseException:
                tx.close()
                self._roll_back(connection)
                raise
            finally:
                if self._tx is tx:  # pragma: no branch - else in a child of a fork
                    self._tx = None

    def _roll_back(self, connection: Connection) -> None:
        """Undo; where even that fails, the journal is played back at the next open."""
        if connection.foreign:
            return  # pragma: no cover - only in a child of a fork
        try:
            if connection.raw.in_transaction:
                connection.execute("ROLLBACK")
        except StoreError:
            self.drop()

    @contextlib.contextmanager
    def writing(self) -> Iterator[WriteTransaction]:
        """Run a block inside a writing transaction; scrub the pages that it changed.

        Yields
        ------
        WriteTransaction
            Valid until the block ends.
        """
        with self.transaction("BEGIN IMMEDIATE", WriteTransaction) as tx:
            connection = self.connection()
            held = connection.held
            was = None if held is None else before(held)
            yield tx
            if held is None or was is None or connection.foreign:
                return
            # Noted before the commit: nothing may be lost if it is interrupted.
            pages = touched(str(self.path), was)
            self._all_dirty |= pages is None
            if pages:
                size = connection.scalar("PRAGMA page_count")
                self._dirty |= pages | set(range(was.pages + 1, size + 1))
        with contextlib.suppress(StoreBusyError):
            self.tidy(_TIDY_WAIT)

    def tidy(self, wait: float) -> None:
        """Scrub the pages that were changed, and not scrubbed yet.

        Parameters
        ----------
        wait : float
            Seconds to wait for readers.

        Raises
        ------
        StoreBusyError
            If there are readers for longer.
        """
        if not (self._dirty or self._all_dirty):
            return
        with self.connection().waiting(wait), self.exclusive() as connection:
            assert connection.held is not None
            layout = (
                read_layout(connection.held, connection.roots())
                if self._all_dirty
                else None
            )
            if layout is None:
                scrub_pages(connection.held, sorted(self._dirty))
                scrub_lists(connection.held)
            elif not layout.damage:
                scrub(connection.held, layout)
            self._dirty.clear()
            self._all_dirty = False

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Connection]:
        """Lock all others out; what the block writes is no foreign change.

        Yields
        ------
        Connection
            In a transaction that is rolled back: the block writes to the file itself.
        """
        with self.using() as connection:
            self._begin(connection, "BEGIN EXCLUSIVE")
            version, stamp = self._version_of(connection), connection.stamp()
            try:
                yield connection
                now = connection.stamp()
            finally:
                self._roll_back(connection)
        if now != stamp:
            self._resume(version, now)

    @contextlib.contextmanager
    def replacing(self) -> Iterator[Connection]:
        """Lock all others out beyond a transaction, while the file is replaced.

        Yields
        ------
        Connection
            It is closed at the end.
        """
        with self.using(alone=True) as connection:
            try:
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
                self._begin(connection, "BEGIN EXCLUSIVE")
                connection.execute("COMMIT")
                version = self._version_of(connection)
                yield connection
                stamp = connection.stamp()
            finally:
                self.drop()
        self._resume(version, stamp)

    def _resume(self, version: Version, stamp: Stamp) -> None:
        """Keep the version across our own change, unless somebody else was faster."""
        with (
            contextlib.suppress(StoreBusyError),
            self.transaction("BEGIN", ReadTransaction),
        ):
            connection = self.connection()
            if connection.stamp() == stamp:
                self._epoch = version[0]
                self._base = connection.scalar("PRAGMA data_version") - version[1]

    def _version_of(self, connection: Connection) -> Version:
        return self._epoch, connection.scalar("PRAGMA data_version") - self._base

    def version(self) -> Version:
        """Return a value that changes when anyone else has changed the file.

        Returns
        -------
        tuple of (int, int)
            Equal before and after this session's own changes.
        """
        with self.lock:
            if self.tx is not None:
                return self._version_of(self.connection())
            with self.using() as connection:
                return self._version_of(connection)

    def check_idle(self) -> None:
        """Raise `StoreError` if this thread is inside a transaction."""
        if self.tx is not None:
            raise StoreError("a transaction is open; end it first")

    def close(self) -> None:
        """Close the connection for good."""
        with self.lock:
            self.check_idle()
            self._closed = True
            _close(self._open_connections)


def _close(connections: list[Connection]) -> None:
    while connections:
        connections.pop().close()


def _hold_still() -> None:
    """Before a fork, wait until no thread is inside a transaction.

    SQLite notes for the whole process which locks it has on a file, and a child has
    that note without the locks: it would read while others write.
    """
    end = time.monotonic() + _FORK_WAIT
    for session in list(_sessions):
        if session.lock.acquire(timeout=max(0.0, end - time.monotonic())):
            _held_still.append(session.lock)


def _go_on() -> None:
    while _held_still:
        _held_still.pop().release()


def _renew_locks() -> None:  # pragma: no cover - only in a child of a fork
    """Begin afresh in a child: a thread of the parent may have held the locks."""
    _held_still.clear()
    for session in list(_sessions):
        session.lock = threading.RLock()
        session._tx = None


if hasattr(os, "register_at_fork"):  # pragma: no branch
    os.register_at_fork(
        before=_hold_still, after_in_parent=_go_on, after_in_child=_renew_locks
    )
