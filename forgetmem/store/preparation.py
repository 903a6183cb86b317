"""What is set, migrated and checked before a connection is used."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, Any

from forgetmem.errors import CorruptStoreError, SchemaVersionError, StoreError
from forgetmem.store import schema

if TYPE_CHECKING:
    from forgetmem.store.connection import Connection
    from forgetmem.store.files import HeldFile

_RAM_PRAGMAS = ("secure_delete", "temp_store")
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid"
_FIXED = ("page_size", "auto_vacuum", "encoding")
_FIXED_VALUES = (schema.PAGE_SIZE, 0, "UTF-8")


def prepare_ram(connection: Connection) -> None:
    """Make a new memory in RAM.

    Parameters
    ----------
    connection : Connection
        To an empty database.
    """
    _set_pragmas(connection, _RAM_PRAGMAS)
    for statement in schema.creation():
        connection.execute(statement)


def prepare_file(
    connection: Connection, path: str, held: HeldFile, read_only: bool
) -> None:
    """Recover a file from a crash, bring it up to date, and check that it is a memory.

    Parameters
    ----------
    connection : Connection
        That has not read the file yet.
    path : str
        How messages call it.
    held : HeldFile
        The same file.
    read_only : bool
        Whether it may be changed.

    Raises
    ------
    CorruptStoreError, SchemaVersionError, StoreError
        If it is no memory that can be used.
    """
    if held.size() == 0:
        raise CorruptStoreError(
            f"{path} is empty (0 bytes), which a memory never is; restore it, or "
            "remove it to begin a new memory"
        )
    # The first read rolls back what a killed process had begun.
    if connection.scalar("PRAGMA application_id") != schema.APPLICATION_ID:
        raise CorruptStoreError(f"{path} is an SQLite file, but no memory of forgetmem")
    _leave_wal(connection, path, read_only)
    _set_pragmas(connection, tuple(name for name, _, _ in schema.PRAGMAS))
    _migrate(connection, path, read_only)
    check_schema(connection)


def _leave_wal(connection: Connection, path: str, read_only: bool) -> None:
    wish = "" if read_only else "=DELETE"
    mode = connection.scalar(f"PRAGMA journal_mode{wish}")
    if mode != "delete":
        raise StoreError(
            f"the memory at {path} is in journal mode {mode} and cannot be switched "
            "back; open it once with write access"
        )


def _set_pragmas(connection: Connection, checked: tuple[str, ...]) -> None:
    for name, value, expected in schema.PRAGMAS:
        connection.execute(f"PRAGMA {name}={value}")
        found = connection.scalar(f"PRAGMA {name}")
        if found != expected and name in checked:
            raise StoreError(
                f"this SQLite ({connection.driver.sqlite_version}) refuses "
                f"{name}={value}: it answers {found!r}"
            )
    connection.execute(f"PRAGMA cache_spill=-{schema.SPILL_KIB}")


def _migrate(connection: Connection, path: str, read_only: bool) -> None:
    """Bring an older file to the version of this package, in one transaction."""
    found = connection.scalar("PRAGMA user_version")
    if found > schema.VERSION:
        raise SchemaVersionError(found, schema.VERSION)
    if found < schema.VERSION and read_only:
        raise StoreError(
            f"{path} has the older schema version {found} and must be opened once with "
            "write access"
        )
    if found < schema.VERSION:
        connection.execute("BEGIN IMMEDIATE")
        for statement in schema.migration(connection.scalar("PRAGMA user_version")):
            connection.execute(statement)
        connection.execute("COMMIT")


def check_schema(connection: Connection) -> None:
    """Check what no digest covers: how the tables are defined.

    Parameters
    ----------
    connection : Connection
        To the file.

    Raises
    ------
    CorruptStoreError
        If anyone has changed it.
    """
    settings = tuple(connection.scalar(f"PRAGMA {name}") for name in _FIXED)
    if settings != _FIXED_VALUES or not is_defined(connection):
        raise CorruptStoreError(
            f"the tables of {connection.path} are not those of a memory: something "
            "else has changed them",
            table="sqlite_schema",
        )


def is_defined(connection: Connection) -> bool:
    """Tell whether the tables are defined as they should be.

    Parameters
    ----------
    connection : Connection
        To the file.

    Returns
    -------
    bool
        False if anyone has changed the schema.
    """
    return connection.rows(_SCHEMA) == _expected(connection.driver)


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
