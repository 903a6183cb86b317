"""The tables, the pragmas and the numbered migrations of a memory's file.

The schema is written in one fixed way and order, because the compacted file is
meant to be a function of the records alone. ``WITHOUT ROWID`` keeps the order of
insertion out of the file, the vectors have a table of their own so that a page
holds many of them, and no index repeats what a record holds.
"""

from __future__ import annotations

#: Written to the file's header: "FgMm".
APPLICATION_ID = 0x46674D6D

#: Large enough that vectors of up to 2,040 dimensions need no overflow page.
PAGE_SIZE = 32768

#: Statements that lead from schema version ``i`` to ``i + 1``.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE setting (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
        " WITHOUT ROWID",
        "CREATE TABLE record (namespace TEXT NOT NULL, id TEXT NOT NULL,"
        " source_id TEXT, metadata TEXT NOT NULL, atom BLOB NOT NULL,"
        " text_digest BLOB NOT NULL, seal BLOB NOT NULL, text TEXT NOT NULL,"
        " PRIMARY KEY (namespace, id)) WITHOUT ROWID",
        "CREATE TABLE atom (namespace TEXT NOT NULL, key BLOB NOT NULL,"
        " state BLOB NOT NULL, PRIMARY KEY (namespace, key)) WITHOUT ROWID",
        "CREATE TABLE vector (namespace TEXT NOT NULL, key BLOB NOT NULL,"
        " vector BLOB NOT NULL, PRIMARY KEY (namespace, key)) WITHOUT ROWID",
        "CREATE TABLE root (namespace TEXT NOT NULL PRIMARY KEY,"
        " digest BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE certificate (namespace TEXT NOT NULL,"
        " group_key BLOB NOT NULL, payload TEXT NOT NULL,"
        " PRIMARY KEY (namespace, group_key)) WITHOUT ROWID",
    ),
)

VERSION = len(MIGRATIONS)

#: How each file is opened: the pragma, what is set, what must then be read back.
#: ``synchronous=EXTRA`` syncs the folder after the journal is unlinked, else a
#: power cut could bring the journal back and with it what was forgotten. The cache
#: is small, so that pages do not stay in memory beside the resident vectors, but
#: changed pages may fill a quarter of a gigabyte before they are written early,
#: because an early write locks all readers out.
PRAGMAS: tuple[tuple[str, str, object], ...] = (
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("mmap_size", "0", 0),
    ("temp_store", "MEMORY", 2),
    ("synchronous", "EXTRA", 3),
    ("secure_delete", "ON", 1),
    ("cache_size", "-2048", -2048),
    ("locking_mode", "NORMAL", "normal"),
)

#: Changed pages kept in memory before SQLite writes them early, in KiB.
SPILL_KIB = 262144


def creation() -> list[str]:
    """Return the statements that make an empty memory, in their one order.

    Returns
    -------
    list of str
        Pragmas, then every migration from the first version on.
    """
    return [
        f"PRAGMA page_size={PAGE_SIZE}",
        "PRAGMA auto_vacuum=NONE",
        "PRAGMA encoding='UTF-8'",
        f"PRAGMA application_id={APPLICATION_ID}",
        "BEGIN",
        *migration(0),
        "COMMIT",
    ]


def migration(version: int) -> list[str]:
    """Return the statements that lead from a version to the one of this package.

    Parameters
    ----------
    version : int
        What the file has; 0 is an empty database.

    Returns
    -------
    list of str
        To be run in one transaction.
    """
    steps = [statement for step in MIGRATIONS[version:] for statement in step]
    return [*steps, f"PRAGMA user_version={len(MIGRATIONS)}"]
