"""Opening: any path, any state of the file, always a named error or a whole memory."""

from __future__ import annotations

import os
import pickle
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from store.making import Item, dump, erase, files_of, make_items, put

import forgetmem
from forgetmem.errors import (
    CorruptStoreError,
    SchemaVersionError,
    StoreBusyError,
    StoreError,
)
from forgetmem.store import SQLiteStore, schema
from forgetmem.store.connection import Connection

ROOT = Path(forgetmem.__file__).parents[1]


@pytest.fixture
def path(tmp_path) -> Path:
    """A small memory that is closed."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, make_items(30, longest=300))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "notes",
        "мой склад/データ é #1%20.forgetmem",
        "with space/a?b=c&d.forgetmem",
        "file:notes",
        "a'b\"c/;x",
        ":memory:",
    ],
)
def test_any_name_will_do(tmp_path, name):
    """Non-ASCII, spaces, quotes and what means something in a URI."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for target in (path, str(path)):
        with SQLiteStore(target) as store:
            put(store, [Item("a", "text")])
            store.compact()
            assert store.path == os.path.realpath(path)
    assert [name for name, _ in files_of(path)] == [path.name]


def test_relative_paths_and_links(path, monkeypatch):
    """A relative path is fixed at opening; a link stays a link when compacting."""
    monkeypatch.chdir(path.parent)
    link = path.parent / "link"
    link.symlink_to(path)
    with SQLiteStore("link") as store:
        monkeypatch.chdir("/")
        put(store, [Item("b", "text")])
        store.compact()
        assert store.path == str(path)
    assert link.is_symlink()
    with SQLiteStore(path) as store, store.reading() as tx:
        assert tx.count("default") == 31


def test_a_plain_locale_will_do(tmp_path):
    """With LC_ALL=C a name with other letters still works."""
    path = tmp_path / "мой склад.forgetmem"
    code = (
        "import sys; from forgetmem.store import SQLiteStore\n"
        "with SQLiteStore(sys.argv[1]) as store:\n"
        "    store.compact()\n"
    )
    environment = {**os.environ, "LC_ALL": "C", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code, path], check=True, env=environment)
    assert path.exists()


def test_the_environment_chooses_the_driver(monkeypatch):
    """One seam for another build of SQLite."""
    monkeypatch.setenv("FORGETMEM_SQLITE", "sqlite3.dbapi2")
    with SQLiteStore() as store:
        assert store._session.driver.__name__ == "sqlite3.dbapi2"


def test_all_handles_are_released(path):
    """After `close` the folder can be removed, and no descriptor is left."""
    before = descriptors()
    with SQLiteStore(path) as store, SQLiteStore(path) as other:
        put(store, [Item("b", "text")])
        store.compact()
        dump(other)
    assert descriptors() == before
    moved = path.parent.rename(path.parent.with_name("moved"))
    (moved / path.name).unlink()
    moved.rmdir()


def descriptors() -> int | None:
    """Count this process's open files, where the system tells."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.exists() else None


def test_a_store_that_is_dropped_closes_itself(path):
    """Forgetting `close` leaks no descriptor."""
    before = descriptors()
    store = SQLiteStore(path)
    put(store, [Item("b", "text")])
    del store
    assert descriptors() == before


def test_a_folder_or_a_missing_folder_is_an_error(tmp_path):
    """Named, and nothing is created."""
    for target in (tmp_path, tmp_path / "no" / "notes", ""):
        with pytest.raises(StoreError):
            SQLiteStore(target)
    assert list(tmp_path.iterdir()) == []


def test_reading_only_needs_a_file(tmp_path):
    """There is nothing to read where there is no memory."""
    with pytest.raises(StoreError, match="no memory"):
        SQLiteStore(tmp_path / "notes", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_store_reads_and_refuses_to_write(path):
    """No byte of the folder changes."""
    before = list(files_of(path))
    with SQLiteStore(path, read_only=True) as store:
        assert len(dump(store)["default"][0]) == 30
        assert store.check_structure().ok
        assert store.check_digest("default")
        for change in (
            lambda: put(store, [Item("b", "b")]),
            store.compact,
            store.clean,
        ):
            with pytest.raises(StoreError, match="reading only"):
                change()
    assert list(files_of(path)) == before


def test_what_cannot_be_written_is_opened_for_reading(path, monkeypatch):
    """A read-only folder or file: search works, changes are refused."""
    monkeypatch.setattr(os, "access", lambda target, mode: target != path.parent)
    with SQLiteStore(path) as store:
        assert store.read_only
        assert len(dump(store)["default"][0]) == 30
        with pytest.raises(StoreError, match="cannot be written"):
            erase(store, make_items(1))


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write all")
def test_a_read_only_folder(path):  # pragma: no cover - the tests may run as root
    """The same without pretending."""
    path.parent.chmod(0o555)
    try:
        with SQLiteStore(path) as store:
            assert store.read_only
            dump(store)
        with pytest.raises(StoreError):
            SQLiteStore(path.parent / "new")
    finally:
        path.parent.chmod(0o755)


@pytest.mark.parametrize("part", range(10))
def test_a_cut_file_is_a_named_error(path, part):
    """Never a memory with fewer records."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * part // 10])
    with pytest.raises(CorruptStoreError):
        SQLiteStore(path)


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_byte_never_gives_a_wrong_answer(path, seed):
    """Either the memory is what it was, or somebody says that it is damaged."""
    with SQLiteStore(path) as store:
        before = dump(store)
    chance = random.Random(seed)
    data = bytearray(path.read_bytes())
    places = [number for number, byte in enumerate(data) if byte] if seed % 2 else None
    place = chance.choice(places) if places else chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    try:
        with SQLiteStore(path) as store:
            store.check_rows()
            assert dump(store) == before
    except StoreError as error:
        assert "Text" not in str(error)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"garbage" * 9999, pickle.dumps(["x"]), b"SQLite format 3\0"],
    ids=["empty", "zeros", "garbage", "pickle", "head"],
)
def test_other_files_are_refused(tmp_path, content):
    """They are no memory, and are left as they are."""
    path = tmp_path / "notes.forgetmem"
    path.write_bytes(content)
    with pytest.raises(CorruptStoreError):
        SQLiteStore(path)
    assert path.read_bytes() == content


def test_databases_of_others_are_refused(tmp_path):
    """An SQLite file that is no memory is never touched."""
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(CorruptStoreError, match="no memory of forgetmem"):
        SQLiteStore(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    ["CREATE TABLE extra (x)", "CREATE INDEX i ON record (text)", "DROP TABLE root"],
)
def test_other_tables_are_refused(path, change):
    """An index on texts would keep what is erased."""
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(CorruptStoreError, match="tables"):
        SQLiteStore(path)


def test_a_newer_file_is_refused(path):
    """The error names both versions."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SchemaVersionError) as caught:
        SQLiteStore(path)
    assert (caught.value.found, caught.value.supported) == (99, schema.VERSION)


NEXT = ("CREATE TABLE extra (name TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID",)


@pytest.fixture
def next_version(monkeypatch):
    """A later version of the package, which has one table more."""
    from forgetmem.store import preparation, rows, structure

    def upgrade():
        monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, NEXT))
        monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
        fixed = [
            (o, s, schema.VERSION if o == 60 else v) for o, s, v in structure._FIXED
        ]
        monkeypatch.setattr(structure, "_FIXED", tuple(fixed))
        columns = {**dict(list(structure.COLUMNS.items())[:-1]), "extra": (1,)}
        columns["sqlite_schema"] = structure.COLUMNS["sqlite_schema"]
        for module in ("structure", "rows"):
            monkeypatch.setattr(f"forgetmem.store.{module}.COLUMNS", columns)
        preparation._expected.cache_clear()
        rows.shapes.cache_clear()

    yield upgrade
    monkeypatch.undo()
    preparation._expected.cache_clear()
    rows.shapes.cache_clear()


def test_an_older_file_is_migrated(path, tmp_path, next_version):
    """In one transaction; then it compacts to what a new file would be."""
    with SQLiteStore(path) as store:
        before = dump(store)
    next_version()
    with pytest.raises(StoreError, match="older schema"):
        SQLiteStore(path, read_only=True)
    with SQLiteStore(path) as store:
        assert dump(store) == before
        assert store.check_structure().ok
        store.compact()
    fresh = tmp_path / "fresh.forgetmem"
    with SQLiteStore(fresh) as store:
        put(store, make_items(30, longest=300))
        store.compact()
    assert path.read_bytes() == fresh.read_bytes()


def test_a_file_in_wal_mode_is_switched_back(path):
    """What is in the log is kept, and no side file stays."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("UPDATE setting SET value = '9.5' WHERE name = 'gamma'")
        connection.commit()
        with pytest.raises(StoreError, match="write access"):
            SQLiteStore(path, read_only=True)
        with pytest.raises(StoreBusyError):
            SQLiteStore(path, timeout=0.1)
    connection.close()
    with SQLiteStore(path) as store:
        with store.reading() as tx:
            assert tx.settings()["gamma"] == 9.5
        assert [name for name, _ in files_of(path)] == [path.name]
        assert store.check_structure().ok


def test_leftovers_are_removed_at_opening(path):
    """Unfinished compactions and creations, and their journals."""
    for ending in ("-compact", "-compact-journal", "-create-12345", "-journal"):
        Path(f"{path}{ending}").write_bytes(b"\0 words of a memory")
    with SQLiteStore(path, read_only=True) as store:
        assert not store.check_structure().ok
    with SQLiteStore(path) as store:
        assert not store.opening.ok
        assert store.check_structure().ok
    assert [name for name, _ in files_of(path)] == [path.name]


def test_a_file_that_vanishes_is_an_error(path):
    """Moved or removed while it is open: named, and nothing is created anew."""
    with SQLiteStore(path) as store:
        path.unlink()
        with pytest.raises(StoreError, match="moved or removed"):
            dump(store)
        with pytest.raises(StoreError, match="moved or removed"):
            put(store, [Item("b", "b")])
    assert list(path.parent.iterdir()) == []


def test_a_file_that_is_replaced_is_opened_anew(path, tmp_path):
    """By a backup that is moved into place, say; a broken one is an error."""
    other = tmp_path / "other.forgetmem"
    with SQLiteStore(other) as store:
        put(store, [Item("only", "one")])
    with SQLiteStore(path) as store:
        version = store.version()
        other.rename(path)
        assert store.version() != version
        with store.reading() as tx:
            assert tx.count("default") == 1
        (tmp_path / "bad").write_bytes(b"no memory")
        (tmp_path / "bad").rename(path)
        with pytest.raises(CorruptStoreError):
            dump(store)


def test_creation_is_whole_or_not_at_all(tmp_path, monkeypatch):
    """A folder that cannot be written, and a process that was faster."""
    path = tmp_path / "notes.forgetmem"

    def refuse(*args):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("forgetmem.store.creation._build", refuse)
        with pytest.raises(StoreError, match="cannot create"):
            SQLiteStore(path)
    assert list(tmp_path.iterdir()) == []

    def without_links(draft, target):
        raise OSError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", without_links)
        with SQLiteStore(path) as store:
            put(store, [Item("a", "a")])
    from forgetmem.store import creation

    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(creation, "_build", refuse)
        creation.create_file(str(path), sqlite3)
    creation.create_file(str(path), sqlite3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", without_links)
        creation.create_file(str(path), sqlite3)
    assert path.read_bytes() == before
    assert [name for name, _ in files_of(path)] == [path.name]


def test_a_driver_that_refuses_a_pragma_is_refused(tmp_path, monkeypatch):
    """A build without what erasing needs is no silent exception."""
    wrong = (*schema.PRAGMAS, ("cache_size", "-100", 17))
    monkeypatch.setattr(schema, "PRAGMAS", wrong)
    with pytest.raises(StoreError, match="refuses cache_size"):
        SQLiteStore(tmp_path / "notes.forgetmem")


def test_a_file_that_is_replaced_while_it_is_opened(path, monkeypatch):
    """The opening begins again, with the file that the path names then."""
    answers = iter([False, True, True])
    is_current = Connection.is_current

    def once_replaced(connection):
        return next(answers, True) and is_current(connection)

    monkeypatch.setattr(Connection, "is_current", once_replaced)
    with SQLiteStore(path) as store:
        assert len(dump(store)["default"][0]) == 30


def test_a_damaged_file_is_no_file_to_read(path):
    """Also where nothing can be mended, because it is open for reading only."""
    data = bytearray(path.read_bytes())
    data[28:32] = (len(data) // schema.PAGE_SIZE + 1).to_bytes(4, "big")
    path.write_bytes(data + bytes(schema.PAGE_SIZE))
    with pytest.raises(CorruptStoreError, match="damaged"):
        SQLiteStore(path, read_only=True)


def test_a_text_that_is_no_text_is_damage(path):
    """Bytes that are no UTF-8 are reported as such, not as an error of Python."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE record SET text = CAST(x'ff' || text AS TEXT)")
    connection.close()
    with SQLiteStore(path) as store, pytest.raises(CorruptStoreError, match="UTF-8"):
        store.check_rows()


def test_a_record_without_its_vector_is_damage(path):
    """The digest cannot be computed, and says why."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM atom")
    connection.close()
    with SQLiteStore(path) as store, pytest.raises(CorruptStoreError, match="missing"):
        store.check_digest("default")


def test_other_errors_of_sqlite_are_store_errors():
    """With what SQLite says."""
    with SQLiteStore() as store, pytest.raises(StoreError, match="syntax error"):
        store._session.connection().execute("SELECT * FROM nothing")
