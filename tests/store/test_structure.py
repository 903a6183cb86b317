"""Every byte is accounted for: what is planted anywhere is found, and cured."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from store.making import dump, erase, files_of, make_items, put

from forgetmem.errors import CorruptStoreError, ErasureError
from forgetmem.store import SQLiteStore
from forgetmem.store.files import HeldFile
from forgetmem.store.pages import page_table
from forgetmem.store.schema import PAGE_SIZE
from forgetmem.store.structure import Layout, read_layout, scan_pages

SECRET = b"the forgotten words that somebody has put back"


@pytest.fixture
def path(tmp_path) -> Path:
    """A memory with trees of several levels, overflow pages and free pages."""
    path = tmp_path / "notes.forgetmem"
    items = make_items(700, dimension=384, longest=50) + make_items(
        12, seed=1, longest=30_000
    )
    with SQLiteStore(path) as store:
        put(store, items)
        erase(store, sorted(items, key=lambda item: item.atom.key)[:90])
    return path


def layout_of(path: Path) -> Layout:
    """Look at a file that nobody has open."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, rootpage FROM sqlite_master")
        roots = {**dict(rows.fetchall()), "sqlite_schema": 1}
    connection.close()
    file = HeldFile(str(path))
    try:
        return read_layout(file, roots)
    finally:
        file.close()


def free_places(path: Path) -> dict[str, int]:
    """Return one offset of every kind of byte that belongs to nothing."""
    data = path.read_bytes()
    layout = layout_of(path)
    assert not layout.findings()
    places = {"header": 80}
    for page in range(1, layout.pages + 1):
        start = (page - 1) * PAGE_SIZE
        block = np.frombuffer(data[start : start + PAGE_SIZE], np.uint8)
        used = int(layout.used[page])
        if used == 0:
            places["free page"] = start + 5000
        elif 0 < used < PAGE_SIZE - 100 and page_is_list(data, page):
            places["list of free pages"] = start + used + 10
        elif 0 < used < PAGE_SIZE - 100:
            places["overflow tail"] = start + used
        elif used == -1 and page > 1:
            live = np.zeros(PAGE_SIZE, np.uint8)
            table = page_table(9999)
            scan_pages(block.copy(), page, table, live=live)
            kind = "interior page" if block[0] == 2 else "leaf"
            pointers = 2 * int.from_bytes(block[3:5].tobytes(), "big")
            gap = (12 if block[0] == 2 else 8) + pointers
            content = int.from_bytes(block[5:7].tobytes(), "big")
            if content - gap > 100:
                places[f"gap of a {kind}"] = start + content - 60
            free = int.from_bytes(block[1:3].tobytes(), "big")
            if (
                free
                and int.from_bytes(block[free + 2 : free + 4].tobytes(), "big") > 60
            ):
                places["free block"] = start + free + 4
    return places


def page_is_list(data: bytes, page: int) -> bool:
    """Tell whether a page is the first list of free pages."""
    return int.from_bytes(data[32:36], "big") == page


def plant(path: Path, offset: int, secret: bytes = SECRET) -> None:
    """Write bytes into a file that nobody has open."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(secret)


def test_an_ordinary_memory_is_clean(path):
    """After any put and erase, without cleaning first."""
    layout = layout_of(path)
    assert layout.findings() == []
    assert layout.free > 0
    with SQLiteStore(path) as store:
        report = store.check_structure()
    assert report.ok
    assert report.files == (path.name,)
    assert report.bytes_checked == path.stat().st_size


def test_planted_bytes_are_found_wherever_they_are(path):
    """In each kind of place that belongs to nothing; opening cures it."""
    places = free_places(path)
    assert len(places) == 7
    places["past the end"] = path.stat().st_size
    original = path.read_bytes()
    for where, offset in places.items():
        path.write_bytes(original)
        plant(path, offset, SECRET[:12] if where == "header" else SECRET)
        layout = layout_of(path)
        assert layout.findings() and not layout.damage, where
        with SQLiteStore(path) as store:
            assert not store.opening.ok, where
            assert store.check_structure().ok, where
        assert not layout_of(path).findings(), where
        assert SECRET[:12] not in path.read_bytes(), where


def test_an_open_store_sees_what_is_planted(path):
    """`check_structure` and `find` report it, `clean` removes it."""
    places = free_places(path)
    with SQLiteStore(path) as store:
        before = dump(store)
        for where, offset in places.items():
            if where == "header":
                continue  # too short for a needle
            raw_write(path, SECRET, offset)
            assert not store.check_structure().ok, where
            assert store.find({"secret": SECRET}), where
            assert store.clean({"secret": SECRET}).ok, where
            assert store.find({"secret": SECRET}) == [], where
        assert dump(store) == before


def test_planted_side_files_are_found(path):
    """Journals are removed, unknown files reported; other memories are not ours."""
    with SQLiteStore(path) as store:
        for ending in ("-journal", "-wal", "-shm", "-compact", "-create-17"):
            side = Path(f"{path}{ending}")
            side.write_bytes(b"\0" + SECRET)
            report = store.check_structure()
            assert report.findings == (f"side file {side.name} holds 47 bytes",)
            side.write_bytes(b"\0" + SECRET)
            assert store.find({"secret": SECRET}) == [f"{side.name}: secret"]
            side.write_bytes(b"\0" + SECRET)
            assert store.clean().ok
            assert not side.exists()
        stray = Path(f"{path}-notes of mine")
        stray.write_bytes(SECRET)
        with pytest.raises(ErasureError) as caught:
            store.clean({"secret": SECRET})
        assert any(stray.name in where for where in caught.value.where)
        stray.unlink()
        caught.value.pending.retry()
        with SQLiteStore(f"{path}-2"):
            Path(f"{path}-2-journal").touch()
            assert store.check_structure().ok
        Path(f"{path}-folder").mkdir()
        assert not store.check_structure().ok


def test_page_splits_leave_residue_that_each_commit_removes(tmp_path, monkeypatch):
    """Rows of 16 to 32 kB in random order: without our scrubbing there is some."""
    items = make_items(120, longest=1)
    chance = random.Random(5)
    big = [
        type(item)(
            item.record.id,
            chance.randbytes(chance.randint(2000, 8000)).hex(),
            vector=item.atom.vector,
        )
        for item in items
    ]
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr("forgetmem.store.session.Session.tidy", lambda *args: None)
            for start in range(0, 120, 3):
                put(store, big[start : start + 3])
            erase(store, big[:60])
        store._session._dirty.clear()
        report = store.check_structure()
        assert not report.ok
        assert all("belong to nothing" in finding for finding in report.findings)
        assert store.clean().ok
        for start in range(0, 60, 3):
            put(store, big[start : start + 3])
            assert store.check_structure().ok
        erase(store, big[60:])
        assert store.check_structure().ok


def header(offset: int, value: int, size: int = 4):
    """Return an edit of a header field."""

    def edit(data: bytearray) -> None:
        data[offset : offset + size] = value.to_bytes(size, "big")

    return edit


def first_page(data: bytearray, kind: int) -> int:
    """Return the offset of the last page of a kind."""
    return max(
        start for start in range(PAGE_SIZE, len(data), PAGE_SIZE) if data[start] == kind
    )


def leaf_byte(offset: int, value: int):
    """Return an edit of a leaf page."""

    def edit(data: bytearray) -> None:
        data[first_page(data, 10) + offset] = value

    return edit


def overlapping(data: bytearray) -> None:
    """Let two cells of a leaf be one."""
    start = first_page(data, 10)
    data[start + 8 : start + 10] = data[start + 10 : start + 12]


def cut_cell(data: bytearray) -> None:
    """Let a cell of a leaf begin at the end of the page."""
    start = first_page(data, 10)
    data[start + 8 : start + 10] = (PAGE_SIZE - 3).to_bytes(2, "big")


def long_cell(data: bytearray) -> None:
    """Let a cell of a leaf be longer than the page."""
    start = first_page(data, 10)
    cell = start + int.from_bytes(data[start + 8 : start + 10], "big")
    data[cell : cell + 2] = b"\xbf\x7f"


def bad_child(data: bytearray) -> None:
    """Let an interior page refer to a page that is not there."""
    start = first_page(data, 2)
    data[start + 8 : start + 12] = b"\x00\xff\xff\xff"


def child_twice(data: bytearray) -> None:
    """Let an interior page refer to one child twice."""
    start = first_page(data, 2)
    cell = start + int.from_bytes(data[start + 12 : start + 14], "big")
    data[start + 8 : start + 12] = data[cell : cell + 4]


def bad_type(data: bytearray) -> None:
    """Let a row of the last leaf hold a number where a blob belongs."""
    start = first_page(data, 10)
    cell = start + int.from_bytes(data[start + 8 : start + 10], "big")
    position = data.index(b"\x02", cell) if data[cell + 1] == 2 else cell + 3
    data[position] = 7


def chain(value: int):
    """Return an edit of the next page that an overflow page names."""

    def edit(data: bytearray) -> None:
        pages = len(data) // PAGE_SIZE
        for start in range(PAGE_SIZE, len(data), PAGE_SIZE):
            following = int.from_bytes(data[start : start + 4], "big")
            if data[start] == 0 and 2 <= following <= pages and data[start + 9] > 31:
                data[start : start + 4] = value.to_bytes(4, "big")
                return
        raise AssertionError("no chain")

    return edit


def chain_goes_on(data: bytearray) -> None:
    """Let the last page of a chain name another one."""
    trunk = int.from_bytes(data[32:36], "big")
    for start in range(PAGE_SIZE, len(data), PAGE_SIZE):
        ends = not any(data[start : start + 4]) and data[start + 5] > 31
        if data[start] == 0 and ends and start != (trunk - 1) * PAGE_SIZE:
            data[start + 3] = 2
            return
    raise AssertionError("no chain")


def freelist(offset: int, value: int):
    """Return an edit of the list of free pages."""

    def edit(data: bytearray) -> None:
        start = (int.from_bytes(data[32:36], "big") - 1) * PAGE_SIZE + offset
        data[start : start + 4] = value.to_bytes(4, "big")

    return edit


DAMAGE = {
    "magic": header(0, 0),
    "page size": header(16, 4096, 2),
    "write format": header(18, 2, 1),
    "fractions": header(21, 65, 1),
    "schema format": header(44, 1),
    "cache size": header(48, 7),
    "autovacuum": header(52, 3),
    "encoding": header(56, 2),
    "version": header(60, 9),
    "application": header(68, 9),
    "counters": header(24, 99),
    "no pages": header(28, 0),
    "more pages": header(28, 1 << 20),
    "first list of free pages": header(32, 1 << 20),
    "count of free pages": header(36, 1),
    "list names a page that is not there": freelist(8, 1 << 20),
    "list is too long": freelist(4, PAGE_SIZE),
    "list names itself": freelist(0, 2),
    "page kind": leaf_byte(0, 9),
    "cell count": leaf_byte(4, 1),
    "cell count past the content": leaf_byte(3, 0x7F),
    "content start": leaf_byte(5, 0xFF),
    "fragments": leaf_byte(7, 9),
    "free block": leaf_byte(1, 0x7F),
    "overlap": overlapping,
    "cut cell": cut_cell,
    "long cell": long_cell,
    "child is not there": bad_child,
    "child twice": child_twice,
    "type": bad_type,
    "chain leads nowhere": chain(0),
    "chain leads out": chain(1 << 20),
    "chain leads into a tree": chain(2),
    "chain goes on": chain_goes_on,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found(path, damage):
    """Whatever is wrong with the structure itself is reported as damage."""
    data = bytearray(path.read_bytes())
    roots = roots_of(path)
    DAMAGE[damage](data)
    path.write_bytes(data)
    file = HeldFile(str(path))
    layout = read_layout(file, roots)
    file.close()
    assert layout.damage


def roots_of(path: Path) -> dict[str, int]:
    """Read the roots before the damage is done."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT name, rootpage FROM sqlite_master").fetchall()
    connection.close()
    return {**dict(rows), "sqlite_schema": 1}


def test_roots_must_be_there(path):
    """A table without a root page is damage, and so is a page that leads nowhere."""
    file = HeldFile(str(path))
    layout = read_layout(file, {"sqlite_schema": 1, "record": 1 << 20})
    file.close()
    assert any("has no root" in finding for finding in layout.damage)
    assert any("leads nowhere" in finding for finding in layout.damage)


def test_the_page_with_the_locks_is_left_alone():
    """Past one gigabyte one page is never used; it must be zero, and is no leak."""
    from forgetmem.store.structure import _check_owners

    pages = 0x40000000 // PAGE_SIZE + 1
    for dirty in (0, 1):
        layout, table = Layout(pages=pages), page_table(pages)
        owned = np.ones(pages + 1, dtype=np.int64)
        owned[pages] = 0
        table.extent[pages] = dirty
        _check_owners(layout, table, owned)
        assert layout.damage == []
        assert layout.tails == [(pages, 0)] * dirty


def test_damage_that_loses_no_row_is_mended_by_compaction(path):
    """A page that belongs to nothing: rows are compared with digests first."""
    with SQLiteStore(path) as store:
        before = dump(store)
    data = bytearray(path.read_bytes())
    data[28:32] = (len(data) // PAGE_SIZE + 1).to_bytes(4, "big")
    path.write_bytes(data + bytes([10, 0, 0, 0, 0, 128, 0, 0]) + bytes(PAGE_SIZE - 8))
    with SQLiteStore(path) as store:
        assert store.check_structure().ok
        assert dump(store) == before
    assert [name for name, _ in files_of(path)] == [path.name]


def test_damage_that_loses_rows_is_never_mended(path):
    """A leaf that says it has fewer cells: an error, and the file stays as it is."""
    data = bytearray(path.read_bytes())
    start = first_page(data, 10)
    data[start + 4] -= 1
    path.write_bytes(data)
    with pytest.raises(CorruptStoreError):
        SQLiteStore(path)
    assert path.read_bytes() == data


def test_what_somebody_writes_into_live_rows_is_seen(tmp_path):
    """Also while the store has the page in its cache: the schema, and a text."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, make_items(5))
        dump(store)
        offset = path.read_bytes().index(b"CREATE TABLE root")
        raw_write(path, b"CREATE TABLE roof", offset)
        report = store.check_structure()
        assert any("definition" in finding for finding in report.findings)
        with pytest.raises(CorruptStoreError):
            store.clean()
        raw_write(path, b"CREATE TABLE root", offset)
        assert store.check_structure().ok
        words = make_items(5)[0].record.text[:20].encode()
        offset = path.read_bytes().index(words)
        raw_write(path, words.upper(), offset)
        with pytest.raises(CorruptStoreError):
            store.check_rows()
        raw_write(path, words, offset)
        store.check_rows()
        raw_write(path, bytes([99]), 100)
        assert not store.check_structure().ok
        raw_write(path, bytes([13]), 100)
        assert store.check_structure().ok
        raw_write(path, bytes([99]), 105)
        assert not store.check_structure().ok


def raw_write(path: Path, data: bytes, offset: int) -> None:
    """Write without closing a descriptor, which would drop the process's locks."""
    file = HeldFile(str(path), writable=True)
    file.write(data, offset)
    file.close()
