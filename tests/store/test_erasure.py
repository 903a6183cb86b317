"""After `clean`, what was erased is in no file: checked from outside."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from store.making import (
    Item,
    dump,
    erase,
    files_of,
    found_in_files,
    make_items,
    put,
)

from forgetmem.errors import ErasureError, StoreBusyError, StoreError
from forgetmem.store import SQLiteStore, needles_of
from forgetmem.store.erasure import scrub, scrub_lists
from forgetmem.store.schema import PAGE_SIZE
from forgetmem.store.source import Image
from forgetmem.store.structure import Layout
from forgetmem.store.touched import trunks

try:
    import pysqlite3
except ImportError:
    pysqlite3 = None

needs_other_build = pytest.mark.skipif(
    pysqlite3 is None, reason="needs pysqlite3-binary, made for Linux on x86-64"
)


@pytest.fixture(
    params=[sqlite3, pytest.param(pysqlite3, marks=needs_other_build)],
    ids=["sqlite3", "pysqlite3"],
)
def driver(request):
    """The standard library's SQLite, and one built without SECURE_DELETE."""
    return request.param


@needs_other_build
def test_the_other_build_has_no_secure_delete():
    """Else testing with it would show nothing."""
    options = pysqlite3.connect(":memory:").execute("PRAGMA compile_options").fetchall()
    assert ("SECURE_DELETE",) not in options


@pytest.mark.parametrize("longest", [5, 300, 3000])
def test_nothing_of_an_erased_record_is_left(tmp_path, driver, longest):
    """Short, inline and overflowing texts; before and after `close`."""
    path = tmp_path / "notes.forgetmem"
    items = make_items(60, dimension=384, longest=longest)
    with SQLiteStore(path, driver=driver) as store:
        for start in range(0, 60, 10):
            put(store, items[start : start + 10])
        before = found_in_files(path, items)
        assert before
        for start in range(0, 30, 10):
            gone = items[start : start + 10]
            erase(store, gone)
            assert found_in_files(path, items[: start + 10]) == []
            needles = needles_of(
                [item.record for item in gone], [item.atom.vector for item in gone]
            )
            report = store.clean(needles)
            assert report.ok
            assert found_in_files(path, items[: start + 10]) == []
            overwritten = Item(
                items[40].record.id, f"replaced {start}", vector=b"1" * 16
            )
            put(store, [overwritten])
        with store.writing() as tx:
            tx.erase_atoms("default", [items[40].atom.key])
    assert found_in_files(path, items[:30]) == []
    assert [name for name, _ in files_of(path)] == [path.name]
    with SQLiteStore(path, driver=driver) as store:
        assert len(dump(store)["default"][0]) == 30


def test_ids_metadata_and_shared_vectors(tmp_path, driver):
    """An atom that a survivor shares stays, the erased record's own words go."""
    path = tmp_path / "notes.forgetmem"
    vector = make_items(1)[0].atom.vector
    gone = Item("qx-secret-id", "tags", '{"note":"qx-secret-note"}', "qx-doc", vector)
    stays = Item("another-id-here", "others", vector=vector)
    with SQLiteStore(path, driver=driver) as store:
        put(store, [gone, stays, *make_items(40, seed=5)])
        with store.writing() as tx:
            tx.erase_records("default", [gone.record.id])
        store.clean(needles_of([gone.record], []))
        data = path.read_bytes()
        assert b"qx-secret" not in data
        assert vector in data


def test_a_reader_in_the_way_is_waited_for(tmp_path):
    """The erasing transaction waits; when the reader is done, it goes on."""
    path = tmp_path / "notes.forgetmem"
    items = make_items(20)
    with SQLiteStore(path) as store, SQLiteStore(path) as other:
        put(store, items)
        entered, leave = threading.Event(), threading.Event()

        def read():
            with other.reading() as tx:
                rows = tx.records("default")
                next(rows)
                entered.set()
                leave.wait()

        reader = threading.Thread(target=read)
        reader.start()
        entered.wait()
        threading.Timer(0.3, leave.set).start()
        erase(store, items[:5])
        reader.join()
        assert store.clean().ok
        assert found_in_files(path, items[:5]) == []


def test_a_reader_that_stays_stops_the_erasing(tmp_path):
    """A named error within the timeout; nothing was changed, and a retry works."""
    path = tmp_path / "notes.forgetmem"
    items = make_items(20)
    with SQLiteStore(path, timeout=0.2) as store, SQLiteStore(path) as other:
        put(store, items)
        before, version = dump(store), store.version()
        with other.reading() as tx:
            list(tx.records("default"))
            with pytest.raises(StoreBusyError) as caught:
                erase(store, items[:5])
            assert 0.1 < caught.value.waited < 5
            assert len(list(tx.texts("default"))) == 20
        assert dump(store) == before
        assert store.version() == version
        erase(store, items[:5])
        assert store.clean().ok
        assert found_in_files(path, items[:5]) == []


def test_a_reader_in_the_way_of_cleaning_leaves_it_pending(tmp_path, monkeypatch):
    """The records are gone, bytes may be left: an error says so, and can be retried."""
    path = tmp_path / "notes.forgetmem"
    items = make_items(40, longest=2000)
    with SQLiteStore(path, timeout=0.2) as store, SQLiteStore(path) as other:
        with monkeypatch.context() as patch:
            patch.setattr("forgetmem.store.session.Session.tidy", lambda *args: None)
            for item in items:
                put(store, [item])
            erase(store, items[:20])
        needles = needles_of([item.record for item in items[:20]], [])
        with other.reading() as tx:
            tx.settings()
            with pytest.raises(ErasureError) as caught:
                store.clean(needles)
            assert "reader" in caught.value.where[0]
            assert "Text" not in repr(caught.value.pending)
            with pytest.raises(ErasureError):
                caught.value.pending.retry()
        caught.value.pending.retry()
        assert found_in_files(path, items[:20]) == []


def test_a_commit_that_could_not_tidy_is_tidied_later(tmp_path, monkeypatch):
    """A reader that slips in after the commit does not make the write fail."""
    path = tmp_path / "notes.forgetmem"
    monkeypatch.setattr("forgetmem.store.session._TIDY_WAIT", 0.05)
    with SQLiteStore(path) as store, SQLiteStore(path) as other:
        exclusive = type(store._session).exclusive

        def slowly(session):
            monkeypatch.undo()
            with other.reading() as tx:
                tx.settings()
                with exclusive(session) as connection:
                    yield connection

        for item in make_items(30, longest=3000):
            put(store, [item])
        monkeypatch.setattr("forgetmem.store.session._TIDY_WAIT", 0.05)
        import contextlib

        monkeypatch.setattr(
            type(store._session), "exclusive", contextlib.contextmanager(slowly)
        )
        put(store, make_items(10, seed=1, longest=3000))
        assert store._session._dirty
        assert store.check_structure().ok
        assert not store._session._dirty


def test_a_transaction_that_fills_the_cache_is_tidied_whole(tmp_path, monkeypatch):
    """SQLite writes such a transaction early; then the whole file is scrubbed."""
    monkeypatch.setattr("forgetmem.store.schema.SPILL_KIB", 64)
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        store._session.connection().execute("PRAGMA cache_size=4")
        put(store, make_items(300, dimension=384, longest=900))
        put(store, make_items(300, seed=1, dimension=384, longest=900))
        erase(store, make_items(300, seed=1, dimension=384, longest=900))
        assert store.check_structure().ok
        store.check_rows()


def test_files_that_are_not_ours_are_never_removed(tmp_path):
    """The error names them, and the records are gone all the same."""
    path = tmp_path / "notes.forgetmem"
    stray = tmp_path / "notes.forgetmem-old"
    items = make_items(5)
    with SQLiteStore(path) as store:
        put(store, items)
        stray.write_bytes(items[0].record.text.encode())
        erase(store, items[:1])
        with pytest.raises(ErasureError) as caught:
            store.clean(needles_of([items[0].record], []))
        assert stray.exists()
        text = str(caught.value)
        assert stray.name in text
        assert items[0].record.text not in text


def test_compaction_that_fails_for_want_of_room_is_no_failure_to_erase(
    tmp_path, monkeypatch
):
    """What is clean, and only large, stays so."""
    path = tmp_path / "notes.forgetmem"
    items = make_items(300, dimension=384)
    with SQLiteStore(path) as store:
        put(store, items)

        def full(connection, path):
            raise StoreError("no room")

        erase(store, items[:250])
        size = path.stat().st_size
        with monkeypatch.context() as patch:
            patch.setattr("forgetmem.store.sqlite.rewrite", full)
            assert store.clean().ok
        assert path.stat().st_size == size
        assert store.clean().ok
        assert path.stat().st_size < size


def test_in_ram_stale_copies_go_too():
    """The same two witnesses look at the tables in RAM."""
    with SQLiteStore() as store:
        items = make_items(60, longest=3000)
        for start in range(0, 60, 4):
            put(store, items[start : start + 4])
        erase(store, items[:30])
        needles = needles_of(
            [item.record for item in items[:30]],
            [item.atom.vector for item in items[:30]],
        )
        before, version = dump(store), store.version()
        report = store.clean(needles)
        assert report.ok and report.files == ("memory in RAM",)
        image = store._session.connection().image()
        for item in items[:30]:
            assert not [secret for secret in item.secrets() if secret in image]
        assert dump(store) == before
        assert store.version() == version
        put(store, items[:30])
        assert store.find(needles) == []


def test_what_is_damaged_is_not_scrubbed(tmp_path, monkeypatch):
    """After a large transaction the whole file is read; damage is left for a check."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, make_items(5))
        before = path.read_bytes()
        damaged = Layout(damage=["page 2 is no page of a memory"], residue=[2])
        monkeypatch.setattr(
            "forgetmem.store.session.read_layout", lambda *args: damaged
        )
        store._session._all_dirty = True
        store._session.tidy(1.0)
        assert path.read_bytes() == before


def test_stale_entries_of_the_list_of_free_pages_are_zeroed():
    """Page numbers behind the end of the list, and lists that make no sense."""
    image = Image(bytes(4 * PAGE_SIZE))
    image.write((4).to_bytes(4, "big"), 28)
    image.write((3).to_bytes(4, "big"), 32)
    image.write((2).to_bytes(4, "big") + (1).to_bytes(4, "big"), 2 * PAGE_SIZE)
    image.write(b"\0\0\0\4" + b"stale", 2 * PAGE_SIZE + 8)
    image.write((PAGE_SIZE).to_bytes(4, "big"), PAGE_SIZE + 4)
    assert trunks(image) == [(3, [4])]
    scrub_lists(image)
    assert b"stale" not in image.data
    assert trunks(image) == [(3, [4])]


def test_bytes_past_the_end_of_an_image_are_cut_off():
    """As they are of a file."""
    image = Image(bytes(PAGE_SIZE) + b"planted")
    scrub(image, Layout(pages=1, trailing=7))
    assert image.size() == PAGE_SIZE


@needs_other_build
def test_a_driver_that_cannot_show_ram_says_so():
    """A memory in RAM cannot be checked with it."""
    with SQLiteStore(driver=pysqlite3) as store:
        put(store, make_items(3))
        with pytest.raises(StoreError, match="cannot show"):
            store.clean()
