"""One SQLite connection to a memory's file, opened in the one way that is safe here.

Rollback journal, never WAL: a reader with an open transaction then blocks the
commit of a writer, so no file can keep what a finished forget has erased.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from forgetmem.errors import (
    CorruptStoreError,
    SchemaVersionError,
    StoreError,
)
from forgetmem.store import schema
from forgetmem.store.creation import COUNTER
from forgetmem.store.driver import translated
from forgetmem.store.files import HeldFile, Inode, inode_of

if TYPE_CHECKING:
    import sqlite3

Stamp = tuple[Inode, int]

_ROOTS = "SELECT name, rootpage FROM sqlite_master"
_RAM_PRAGMAS = ("secure_delete", "temp_store")
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"
_FIXED = ("page_size", "auto_vacuum", "encoding")
_FIXED_VALUES = (schema.PAGE_SIZE, 0, "UTF-8")


@functools.cache
def _expected(driver: ModuleType) -> list[tuple[Any, ...]]:
    """Return what the schema of a memory says, from one made in RAM."""
    connection = driver.connect(":memory:", isolation_level=None)
    try:
        for statement in schema.creation():
            connection.execute(statement)
        return list(connection.execute(_SCHEMA))
    finally:
        connection.close()


class Connection:
    """One connection, checked to speak to a memory of a version we know.

    Parameters
    ----------
    path : str or None
        An absolute path without symbolic links; None for a memory in RAM.
    read_only : bool
        Whether SQLite may change the file.
    timeout : float
        Seconds to wait for another process or reader.
    driver : module
        See `load_driver`.
    """

    def __init__(
        self, path: str | None, *, read_only: bool, timeout: float, driver: ModuleType
    ) -> None:
        self.path = path
        self.timeout = timeout
        self.pid = os.getpid()
        self.held: HeldFile | None = None
        self.replaced_by: Inode | None = None
        self._driver = driver
        self._raw: sqlite3.Connection | None = None
        try:
            if path is None:
                self._connect(":memory:", timeout)
                self._set_pragmas()
                for statement in schema.creation():
                    self.execute(statement)
                return
            while not self._open_file(path, read_only):
                self.close()
        except BaseException:
            self.close()
            raise

    @property
    def raw(self) -> sqlite3.Connection:
        """The driver's connection."""
        assert self._raw is not None
        return self._raw

    def _connect(self, target: str, timeout: float) -> None:
        with self._translated():
            self._raw = self._driver.connect(
                target,
                timeout=timeout,
                isolation_level=None,
                check_same_thread=False,
                uri=target.startswith("file:"),
            )

    def _open_file(self, path: str, read_only: bool) -> bool:
        """Open the file at the path; tell whether it was not replaced meanwhile."""
        try:
            self.held = HeldFile(path, writable=not read_only)
        except OSError as error:
            raise StoreError(
                f"cannot open the memory at {path}: {error.strerror}"
            ) from error
        with self.gate():
            if not self.is_current():
                return False
            mode = "ro" if read_only else "rw"
            uri = f"file:{quote(os.fsencode(path))}?mode={mode}"
            self._connect(uri, self.timeout)
            self._recover(path, read_only)
            self._set_pragmas()
            self._migrate(path, read_only)
            self.check_schema()
        return True

    def gate(self, *, alone: bool = False) -> contextlib.AbstractContextManager[None]:
        """Hold the gate of the file, see `forgetmem.store.gate`.

        Parameters
        ----------
        alone : bool
            Whether the file is about to be replaced.

        Returns
        -------
        context manager
            Nothing to hold for a memory in RAM.
        """
        if self.held is None:
            return contextlib.nullcontext()
        if alone:
            return self.held.alone(self.timeout)
        return self.held.using(self.timeout)

    def _recover(self, path: str, read_only: bool) -> None:
        """Read the file for the first time, which rolls back a hot journal."""
        assert self.held is not None
        if self.held.size() == 0:
            raise CorruptStoreError(
                f"{path} is empty (0 bytes), which a memory never is; restore it, or "
                "remove it to begin a new memory"
            )
        application = self.scalar("PRAGMA application_id")
        if application != schema.APPLICATION_ID:
            raise CorruptStoreError(
                f"{path} is an SQLite file, but no memory of forgetmem"
            )
        wish = "" if read_only else "=DELETE"
        mode = self.scalar(f"PRAGMA journal_mode{wish}")
        if mode != "delete":
            raise StoreError(
                f"the memory at {path} is in journal mode {mode} and cannot be "
                "switched back; open it once with write access"
            )

    def _set_pragmas(self) -> None:
        for name, value, expected in schema.PRAGMAS:
            self.execute(f"PRAGMA {name}={value}")
            found = self.scalar(f"PRAGMA {name}")
            if found != expected and (self.path is not None or name in _RAM_PRAGMAS):
                raise StoreError(
                    f"this SQLite ({self._driver.sqlite_version}) refuses "
                    f"{name}={value}: it answers {found!r}"
                )
        self.execute(f"PRAGMA cache_spill=-{schema.SPILL_KIB}")

    def _migrate(self, path: str, read_only: bool) -> None:
        """Bring an older file to the version of this package, in one transaction."""
        found = self.scalar("PRAGMA user_version")
        if found > schema.VERSION:
            raise SchemaVersionError(found, schema.VERSION)
        if found < schema.VERSION and read_only:
            raise StoreError(
                f"{path} has the older schema version {found} and must be opened once "
                "with write access"
            )
        if found < schema.VERSION:
            self.execute("BEGIN IMMEDIATE")
            for statement in schema.migration(self.scalar("PRAGMA user_version")):
                self.execute(statement)
            self.execute("COMMIT")

    def check_schema(self) -> None:
        """Check what no digest covers: how the tables are defined.

        Raises
        ------
        CorruptStoreError
            If anyone has changed it.
        """
        settings = tuple(self.scalar(f"PRAGMA {name}") for name in _FIXED)
        if settings != _FIXED_VALUES or not self.is_defined():
            raise CorruptStoreError(
                f"the tables of {self.path} are not those of a memory: something else "
                "has changed them",
                table="sqlite_schema",
            )

    def is_defined(self) -> bool:
        """Tell whether the tables are defined as they should be.

        Returns
        -------
        bool
            False if anyone has changed the schema.
        """
        return self.rows(_SCHEMA) == _expected(self._driver)

    def forget_pages(self) -> None:
        """Drop cached pages, so that what is read next is what the file holds."""
        self.execute("PRAGMA shrink_memory")

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        name = "the memory in RAM" if self.path is None else self.path
        return translated(self._driver, name)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement.

        Parameters
        ----------
        sql : str
            The statement.
        parameters : sequence
            Its values.

        Returns
        -------
        cursor
            The driver's cursor.
        """
        with self._translated():
            return self.raw.execute(sql, parameters)

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        """Run one statement for many rows.

        Parameters
        ----------
        sql : str
            The statement.
        rows : sequence of sequences
            The values of each run.

        Returns
        -------
        int
            How many rows of the file were changed.
        """
        with self._translated():
            return max(self.raw.executemany(sql, rows).rowcount, 0)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows that a statement yields.

        Parameters
        ----------
        sql : str
            The statement.
        parameters : sequence
            Its values.

        Returns
        -------
        list of tuple
            The rows.
        """
        with self._translated():
            return list(self.raw.execute(sql, parameters))

    def fetch(self, cursor: sqlite3.Cursor, size: int) -> list[tuple[Any, ...]]:
        """Return the next rows of a cursor.

        Parameters
        ----------
        cursor : cursor
            What `execute` returned.
        size : int
            How many rows at most.

        Returns
        -------
        list of tuple
            Empty at the end.
        """
        with self._translated():
            return cursor.fetchmany(size)

    def scalar(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Return the first value of the first row, or None.

        Parameters
        ----------
        sql : str
            The statement.
        parameters : sequence
            Its values.

        Returns
        -------
        object
            The value.
        """
        found = self.rows(sql, parameters)
        return found[0][0] if found else None

    def roots(self) -> dict[str, int]:
        """Return the root page of each table.

        Returns
        -------
        dict of str to int
            Of the schema's own table too.
        """
        rows = self.rows(_ROOTS)
        return {**dict(rows), "sqlite_schema": 1}

    def roots_of(self, path: str) -> dict[str, int]:
        """Return the root page of each table of another file.

        Parameters
        ----------
        path : str
            A database that nobody has open.

        Returns
        -------
        dict of str to int
            Of the schema's own table too.
        """
        target = f"file:{quote(os.fsencode(path))}?immutable=1"
        with self._translated():
            other = self._driver.connect(target, uri=True)
            try:
                rows = list(other.execute(_ROOTS))
            finally:
                other.close()
        return {**dict(rows), "sqlite_schema": 1}

    def image(self) -> bytes:
        """Return the bytes of a memory in RAM.

        Returns
        -------
        bytes
            As its file would be.
        """
        if not hasattr(self.raw, "serialize"):
            raise StoreError(
                f"{self._driver.__name__} cannot show the bytes of a memory in RAM, so "
                "they cannot be checked; use the sqlite3 of the standard library"
            )
        with self._translated():
            return self.raw.serialize()

    def load(self, image: bytes | bytearray) -> None:
        """Replace the tables in RAM.

        Parameters
        ----------
        image : bytes
            What `image` returned, or a changed copy.
        """
        with self._translated():
            # Copied, because a deserialized database could not outgrow 1 GB.
            source = self._driver.connect(":memory:")
            source.deserialize(bytes(image))
            source.backup(self.raw)
            source.close()

    @contextlib.contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Wait for others for another time than usual.

        Parameters
        ----------
        seconds : float
            For as long as the block lasts.
        """
        usual = self.scalar("PRAGMA busy_timeout")
        self.execute(f"PRAGMA busy_timeout={round(1000 * seconds)}")
        try:
            yield
        finally:
            if self._raw is not None:
                self.execute(f"PRAGMA busy_timeout={usual}")

    @property
    def foreign(self) -> bool:
        """True in a child process, for the connection of its parent to a file."""
        return self.path is not None and self.pid != os.getpid()

    def is_current(self) -> bool:
        """Tell whether the path still names the file that this connection has open.

        Returns
        -------
        bool
            False once a compaction has replaced the file.

        Raises
        ------
        StoreError
            If there is no file at the path any more.
        """
        if self.path is None or self.held is None:
            return True
        inode = inode_of(self.path)
        if inode is None:
            raise StoreError(
                f"the memory at {self.path} was moved or removed while it was open"
            )
        return inode == self.held.inode

    def stamp(self) -> Stamp:
        """Return which file is open, and how often it was changed.

        Returns
        -------
        tuple of ((int, int), int)
            Inode and change counter; of the new file, once this one was replaced.
        """
        assert self.held is not None
        if self.replaced_by is not None:
            return self.replaced_by, COUNTER
        return self.held.inode, int.from_bytes(self.held.read(4, 24), "big")

    def close(self) -> None:
        """Close the connection, then the descriptor for raw reads.

        A connection that a fork carried into a child is left alone: closing it there
        could roll back what the parent is writing.
        """
        if self.foreign:  # pragma: no cover - only in a child of a fork
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._raw))
        elif self._raw is not None:
            self._raw.close()
        if self.held is not None:
            self.held.close()
        self._raw = self.held = None
