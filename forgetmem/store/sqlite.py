"""SQLiteStore: put, get and erase, each inside one transaction."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TypeVar

from forgetmem.errors import CorruptStoreError, ErasureError, StoreBusyError, StoreError
from forgetmem.store.connection import Connection, Stamp, load_driver
from forgetmem.store.creation import create_file
from forgetmem.store.erasure import (
    Look,
    look,
    mend_in_place,
    remove_side_files,
    rewrite,
    rewrite_ram,
)
from forgetmem.store.files import inode_of
from forgetmem.store.integrity import check_rows, root_of
from forgetmem.store.structure import StructureReport
from forgetmem.store.transaction import ReadTransaction, WriteTransaction

Version = tuple[int, int]
Transaction = TypeVar("Transaction", bound=ReadTransaction)


@dataclass(frozen=True)
class Pending:
    """An erasure that left bytes behind.

    Attributes
    ----------
    store : SQLiteStore
        The store, which must still be open.
    needles : dict of str to bytes
        What must not be found; kept out of the `repr`, because it is content.
    """

    store: SQLiteStore
    needles: dict[str, bytes] = field(repr=False)

    def retry(self) -> None:
        """Clean again; raises `ErasureError` if bytes are still left."""
        self.store.clean(self.needles)


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
        if self.path is not None:
            self._recover()

    def _prepare(self, path: str) -> None:
        """Create the file if there is none; find out whether it can be written."""
        if inode_of(path) is None:
            if self.read_only:
                raise StoreError(f"there is no memory at {path} to be read")
            create_file(path, self.driver)
        folder = Path(path).parent
        if not (os.access(path, os.W_OK) and os.access(folder, os.W_OK)):
            self.read_only = True

    def _recover(self) -> None:
        """Clean up what a killed process left; give way where others are at work."""
        try:
            self._current().execute("PRAGMA busy_timeout=0")
            if not self.read_only:
                self.clean()
            elif damage := self._look({}).layout.damage:
                raise CorruptStoreError(f"{self.path} is damaged: {damage[0]}")
        except (ErasureError, StoreBusyError):
            pass
        except BaseException:
            self.close()
            raise
        timeout = round(1000 * self.timeout)
        self._current().execute(f"PRAGMA busy_timeout={timeout}")

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

    def _begin(self, statement: str, *, lasting: bool = False) -> Connection:
        """Begin a transaction on the file that the path names now.

        A compaction replaces the file while it holds an exclusive lock on the old one.
        So once we hold a lock and the path still names our file, it stays so.
        """
        while True:
            connection = self._current()
            if lasting:
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
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
            self._check_idle()
            self._check_writable()
            with self._transaction("BEGIN IMMEDIATE", WriteTransaction) as tx:
                yield tx

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreError(
                f"the memory at {self.path} is open for reading only (or its file or "
                "folder cannot be written); nothing was changed"
            )

    def version(self) -> Version:
        """Return a value that changes when anyone else has changed the file.

        Returns
        -------
        tuple of (int, int)
            Hashable; equal before and after this store's own changes.
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

    def check_structure(self) -> StructureReport:
        """Account for every byte of every file of the memory.

        Returns
        -------
        StructureReport
            Findings name pages and files, never what the bytes say.

        Raises
        ------
        StoreBusyError
            If a writer holds the file for longer than the timeout.
        """
        return self._look({}).report

    def find(self, needles: Mapping[str, bytes]) -> list[str]:
        """Look for byte strings outside live cells, in every file of the memory.

        Parameters
        ----------
        needles : mapping of str to bytes
            By label; those shorter than 12 bytes are passed over.

        Returns
        -------
        list of str
            Where, and the label. What live rows hold is not found.
        """
        return list(self._look(needles).hits)

    def check_digest(self, namespace: str) -> bool:
        """Tell whether the stored root is the one that follows from the rows.

        Parameters
        ----------
        namespace : str
            Its name.

        Returns
        -------
        bool
            True for an empty namespace without a root.
        """
        with self.reading() as tx:
            return root_of(tx, namespace) == tx.root(namespace)

    def check_rows(self) -> None:
        """Read every row, and compare it with every digest.

        Raises
        ------
        CorruptStoreError
            If a row is damaged, missing or too many.
        """
        with self.reading() as tx:
            check_rows(tx)

    def _look(self, needles: Mapping[str, bytes], *, lazy: bool = False) -> Look:
        with self._lock:
            self._check_idle()
            statement = "BEGIN" if self.read_only else "BEGIN IMMEDIATE"
            with self._transaction(statement, ReadTransaction):
                return look(self._current(), needles, lazy=lazy)

    def clean(self, needles: Mapping[str, bytes] | None = None) -> StructureReport:
        """Make sure that no file of the memory holds what belongs to no record.

        Parameters
        ----------
        needles : mapping of str to bytes, optional
            What must not be found outside live cells.

        Returns
        -------
        StructureReport
            Of the files as they are now; its `ok` is true.

        Raises
        ------
        ErasureError
            If bytes are left; its `pending` can be retried.
        StoreBusyError
            If others hold the file for longer than the timeout.
        CorruptStoreError
            If the file is damaged and rows are lost.

        Notes
        -----
        0.06 s for a look at 200 MB, 0.1 s more for the needles.
        """
        wanted = dict(needles or {})
        with self._lock:
            self._check_idle()
            self._check_writable()
            seen = self._look(wanted, lazy=True)
            if seen.wasteful or not seen.clean:
                seen = self._mend(wanted)
            if not seen.clean:
                where = (*seen.report.findings, *seen.hits)
                raise ErasureError(where, Pending(self, wanted))
            return seen.report

    def _mend(self, needles: Mapping[str, bytes]) -> Look:
        """Overwrite, and if that is not enough write anew; return the last look."""
        if self.path is None:
            rewrite_ram(self._current())
            return self._look(needles)
        with self._exclusive() as connection:
            seen = mend_in_place(connection, needles)
            if seen.clean and not seen.wasteful:
                return seen
            if seen.layout.damage:
                check_rows(ReadTransaction(connection))
            rewrite(connection, self.path)
        return self._look(needles)

    def compact(self) -> None:
        """Write the file anew as a function of its records; drop certificates.

        Raises
        ------
        StoreBusyError
            If others hold the file for longer than the timeout.
        StoreError
            If the store is read-only or there is no room; the old file stays.
        """
        with self._lock:
            self._check_idle()
            self._check_writable()
            if self.path is None:
                self._current().execute("DELETE FROM certificate")
                rewrite_ram(self._current())
                return
            with self._exclusive() as connection:
                remove_side_files(self.path)
                connection.execute("DELETE FROM certificate")
                rewrite(connection, self.path)

    def _check_idle(self) -> None:
        if self._tx is not None:
            raise StoreError("a transaction is open; end it first")

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[Connection]:
        """Lock all others out of the file; what the block does is no foreign change.

        The connection is closed at the end, because what it has cached is stale.
        """
        stamp = None
        try:
            connection = self._begin("BEGIN EXCLUSIVE", lasting=True)
            connection.execute("COMMIT")
            version = self.version()
            yield connection
            stamp = connection.stamp()
        finally:
            self._drop()
        self._resume(version, stamp)

    def _resume(self, version: Version, stamp: Stamp) -> None:
        """Open the file again; keep the version if nobody else was faster."""
        with self._transaction("BEGIN", ReadTransaction):
            connection = self._current()
            if connection.stamp() == stamp:
                seen = connection.scalar("PRAGMA data_version")
                self._epoch, self._base = version[0], seen - version[1]

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
