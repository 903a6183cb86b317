"""SQLiteStore: put, get and erase, each inside one transaction."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Hashable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TypeVar

from forgetmem.errors import StoreError
from forgetmem.store.connection import Connection, load_driver
from forgetmem.store.creation import create_file, set_counters
from forgetmem.store.files import (
    inode_of,
    is_leftover,
    siblings,
    sync_file,
    sync_folder,
)
from forgetmem.store.transaction import ReadTransaction, WriteTransaction

Transaction = TypeVar("Transaction", bound=ReadTransaction)


class SQLiteStore:
    """The file of a memory, or the same tables in RAM.

    Usable from any thread (one operation at a time) and after a fork. Several stores,
    in one process or in many, may read while one writes.

    Parameters
    ----------
    path : str or path-like, optional
        The file; created if there is none. None for a memory in RAM.
    timeout : float
        Seconds to wait for another process or an open reader.
    read_only : bool
        Never change the file. A file or folder that cannot be written is opened so by
        itself.
    driver : module, optional
        The module that speaks to SQLite; the standard library's by default.

    Raises
    ------
    StoreError
        If the file cannot be opened or created.
    CorruptStoreError
        If it is damaged, or no memory.
    SchemaVersionError
        If a newer version of forgetmem wrote it.
    StoreBusyError
        If another process holds it for longer than `timeout`.

    Examples
    --------
    >>> with SQLiteStore() as store:
    ...     with store.writing() as tx:
    ...         tx.put_settings({"gamma": 8.0})
    ...     with store.reading() as tx:
    ...         tx.settings()
    {'gamma': 8.0}
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        timeout: float = 10.0,
        read_only: bool = False,
        driver: ModuleType | None = None,
    ) -> None:
        self.path = None if path is None else os.path.realpath(path)
        self.timeout = timeout
        self.driver = load_driver() if driver is None else driver
        self._lock = threading.RLock()
        self._tx: ReadTransaction | None = None
        self._closed = False
        self._epoch = 0
        self._base = 0
        self._connection: Connection | None = None
        self.read_only = read_only
        if self.path is not None:
            self._prepare(self.path)
        self._open()

    def _prepare(self, path: str) -> None:
        """Create the file if there is none; find out whether it can be written."""
        if inode_of(path) is None:
            if self.read_only:
                raise StoreError(f"there is no memory at {path} to be read")
            create_file(path, self.driver)
        folder = Path(path).parent
        if not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)):
            self.read_only = True

    def _open(self) -> Connection:
        self._connection = Connection(
            self.path,
            read_only=self.read_only,
            timeout=self.timeout,
            driver=self.driver,
        )
        self._base = self._connection.scalar("PRAGMA data_version")
        return self._connection

    def _drop(self) -> None:
        """Close the connection; the next operation opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._epoch += 1

    def _current(self) -> Connection:
        """Return the connection of this process, opened again where that is needed."""
        if self._closed:
            raise StoreError("this store is closed")
        connection = self._connection
        if connection is not None and connection.pid != os.getpid():
            self._drop()
            connection = None
        return connection or self._open()

    def _begin(self, statement: str) -> Connection:
        """Begin a transaction on the file that the path names now.

        A compaction replaces the file while it holds an exclusive lock on the old one.
        So once we hold a lock and the path still names our file, it stays so.
        """
        while True:
            connection = self._current()
            connection.execute(statement)
            try:
                connection.scalar("PRAGMA data_version")
                connection.rows("SELECT rootpage FROM sqlite_master LIMIT 1")
                if connection.is_current():
                    return connection
            except BaseException:
                self._drop()
                raise
            self._drop()

    @contextlib.contextmanager
    def _transaction(
        self, statement: str, tx_type: type[Transaction]
    ) -> Iterator[Transaction]:
        connection = self._begin(statement)
        tx = tx_type(connection)
        self._tx = tx
        try:
            yield tx
            tx.close()
            if connection.pid == os.getpid():
                connection.execute("COMMIT")
        except BaseException:
            tx.close()
            self._roll_back(connection)
            raise
        finally:
            self._tx = None

    def _roll_back(self, connection: Connection) -> None:
        """Undo; where even that fails, the journal is played back at the next open."""
        if connection.pid != os.getpid():
            return
        try:
            if connection.raw.in_transaction:
                connection.execute("ROLLBACK")
        except StoreError:
            self._drop()

    @contextlib.contextmanager
    def reading(self) -> Iterator[ReadTransaction]:
        """Open one consistent view of the file.

        Inside another transaction of the same thread it is that transaction.

        Yields
        ------
        ReadTransaction
            Valid until the block ends.

        Raises
        ------
        StoreBusyError
            If a writer holds the file for longer than the timeout.
        """
        with self._lock:
            if self._tx is not None:
                yield self._tx
            else:
                with self._transaction("BEGIN", ReadTransaction) as tx:
                    yield tx

    @contextlib.contextmanager
    def writing(self) -> Iterator[WriteTransaction]:
        """Open a transaction that is committed as a whole, or not at all.

        Yields
        ------
        WriteTransaction
            Valid until the block ends; any exception rolls back.

        Raises
        ------
        StoreBusyError
            If another writer, or at the end an open reader, holds the file for longer
            than the timeout; nothing was changed.
        StoreError
            If the store is read-only, or the disk is full; nothing was changed.
        """
        with self._lock:
            if self._tx is not None:
                raise StoreError("a transaction is open; end it before you write")
            self._check_writable()
            with self._transaction("BEGIN IMMEDIATE", WriteTransaction) as tx:
                yield tx

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreError(
                f"the memory at {self.path} is open for reading only (or its file or "
                "folder cannot be written); nothing was changed"
            )

    def version(self) -> Hashable:
        """Return a value that changes when anyone else has changed the file.

        Returns
        -------
        hashable
            Equal before and after this store's own changes.
        """
        with self._lock:
            if self._tx is None:
                connection = self._current()
                if not connection.is_current():
                    self._drop()
                    connection = self._current()
            else:
                connection = self._current()
            return self._epoch, connection.scalar("PRAGMA data_version") - self._base

    def compact(self) -> None:
        """Write the file anew as a function of its records; drop certificates."""
        with self._lock:
            if self._tx is not None:
                raise StoreError("a transaction is open; end it before you compact")
            self._check_writable()
            if self.path is None:
                connection = self._current()
                connection.execute("DELETE FROM certificate")
                connection.execute("VACUUM")
                return
            with self._exclusive() as connection:
                connection.execute("DELETE FROM certificate")
                self._rewrite(connection, self.path)
            self._open()

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[Connection]:
        """Lock all others out of the file; closes the connection at the end."""
        connection = self._begin("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        try:
            connection = self._begin("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
            yield connection
        finally:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _rewrite(self, connection: Connection, path: str) -> None:
        fresh = f"{path}-compact"
        self._remove_leftovers(path)
        connection.execute("VACUUM INTO ?", (fresh,))
        set_counters(fresh)
        shutil.copymode(path, fresh)
        sync_file(fresh)
        Path(fresh).replace(path)
        sync_folder(path)

    def _remove_leftovers(self, path: str) -> None:
        for sibling in siblings(path):
            if is_leftover(path, sibling):
                sibling.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; all handles are released."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __enter__(self) -> SQLiteStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
