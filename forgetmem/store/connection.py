"""One SQLite connection to a memory's file, opened in the one way that is safe here.

Rollback journal, never WAL: a reader with an open transaction then blocks the
commit of a writer, so no file can keep what a finished forget has erased.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from forgetmem.errors import (
    StoreError,
)
from forgetmem.store.creation import COUNTER
from forgetmem.store.driver import translated
from forgetmem.store.files import HeldFile, Inode, inode_of
from forgetmem.store.preparation import prepare_file, prepare_ram

if TYPE_CHECKING:
    import sqlite3

Stamp = tuple[Inode, int]

_ROOTS = "SELECT name, rootpage FROM sqlite_master"


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

    Attributes
    ----------
    first_version : int
        SQLite's own count of changes by others, when the file was opened.
    """

    def __init__(
        self, path: str | None, *, read_only: bool, timeout: float, driver: ModuleType
    ) -> None:
        self.path = path
        self.timeout = timeout
        self.pid = os.getpid()
        self.held: HeldFile | None = None
        self.replaced_by: Inode | None = None
        self.first_version = 0
        self.driver = driver
        self._raw: sqlite3.Connection | None = None
        try:
            if path is None:
                self._connect(":memory:", timeout)
                prepare_ram(self)
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
            self._raw = self.driver.connect(
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
            prepare_file(self, path, self.held, read_only)
            self.first_version = self.scalar("PRAGMA data_version")
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

    def forget_pages(self) -> None:
        """Drop cached pages, so that what is read next is what the file holds."""
        self.execute("PRAGMA shrink_memory")

    def _translated(self) -> contextlib.AbstractContextManager[None]:
        name = "the memory in RAM" if self.path is None else self.path
        return translated(self.driver, name)

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
            other = self.driver.connect(target, uri=True)
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
                f"{self.driver.__name__} cannot show the bytes of a memory in RAM, so "
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
            source = self.driver.connect(":memory:")
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
