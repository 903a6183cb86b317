"""Needles: what they are, and that each is found wherever no live row holds it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store.making import Item, erase, make_items, put

from forgetmem.store import SQLiteStore, StoredRecord, needles_of
from forgetmem.store.files import HeldFile
from forgetmem.store.needles import PIECE, SHORTEST, prepare
from forgetmem.store.schema import PAGE_SIZE


def test_needles_cover_all_fields_in_all_forms():
    """Text, id, source, metadata keys and values, vectors; never the short ones."""
    text = 'Größere Frühstücke »für Anna« und "alle" anderen'
    metadata = json.dumps(
        {"note on a person": ["x" * 20, {"short": 1234567890123.5}], "n": 1},
        ensure_ascii=False,
    )
    record = StoredRecord("the-id-of-anna", text, metadata, "source-document", b"", b"")
    vector = np.arange(8, dtype="<f4").tobytes()
    found = set(needles_of([record], [vector]).values())
    for needle in [
        text.encode(),
        text.lower().encode(),
        text.encode("utf-16-le"),
        text.encode("utf-16-be"),
        json.dumps(text)[1:-1].encode(),
        json.dumps(text, ensure_ascii=False)[1:-1].encode(),
        b"the-id-of-anna",
        b"source-document",
        b"note on a person",
        b"x" * 20,
        b"1234567890123.5",
        metadata.encode(),
        vector,
    ]:
        assert needle in found
    assert b"short" not in found
    deep = set(needles_of([], [vector], deep=True).values())
    for form in ("<f8", "<f2", ">f4"):
        assert np.arange(8).astype(form).tobytes() in deep


def test_labels_never_quote():
    """They count and name."""
    items = make_items(3)
    labels = needles_of(
        [item.record for item in items], [item.atom.vector for item in items]
    )
    words = "".join(labels)
    for item in items:
        assert item.record.id not in words
        assert "says" not in words


@settings(deadline=None)
@given(st.binary(min_size=SHORTEST, max_size=200))
def test_pieces_cover_a_needle(data):
    """Every byte is in a piece, and each piece is 12 to 16 bytes long."""
    haystack, needle_of = prepare([b"\1" + data])
    lengths = haystack.lengths.tolist()
    assert all(SHORTEST <= length <= PIECE for length in lengths)
    assert set(needle_of) == {0}
    pieces = {
        bytes(piece[:size])
        for piece, size in zip(haystack.pieces, lengths, strict=True)
    }
    whole = b"\1" + data
    for start in range(0, len(whole), PIECE):
        piece = whole[start : start + PIECE]
        assert not any(piece) or any(piece in other for other in pieces | {whole[-16:]})


@pytest.mark.parametrize("size", [12, 13, 16, 17, 31, 200, 5000])
def test_a_needle_is_found_at_any_offset(tmp_path, size):
    """Also half of a long one; all eight alignments, in the file and past its end."""
    path = tmp_path / "notes.forgetmem"
    needle = np.random.default_rng(size).bytes(size)
    with SQLiteStore(path) as store:
        put(store, make_items(3))
        free = free_offset(store)
        for shift in range(8):
            file = HeldFile(str(path), writable=True)
            file.write(needle, free + shift)
            file.close()
            page = free // PAGE_SIZE + 1
            assert store.find({"it": needle}) == [f"page {page}: it"]
            assert store.find({"it": needle[:-1] + b"?"}) == (
                [] if size <= PIECE else [f"page {page}: it"]
            )
            assert store.clean({"it": needle}).ok
        end = path.stat().st_size
        for shift in range(4):
            file = HeldFile(str(path), writable=True)
            file.write(needle + bytes(4), end + shift)
            file.close()
            assert store.find({"it": needle})
            assert store.clean({"it": needle}).ok


def free_offset(store: SQLiteStore) -> int:
    """Return where a page of a tree has room for 5,100 bytes."""
    with open(store.path, "rb", opener=None) as file:  # noqa: PTH123
        data = file.read()
    for start in range(PAGE_SIZE, len(data), PAGE_SIZE):
        if data[start] == 10 and not any(data[start + 1000 : start + 7000]):
            return start + 1000
    raise AssertionError("no room")


def test_short_needles_are_passed_over(tmp_path):
    """Fewer than twelve bytes say nothing."""
    with SQLiteStore(tmp_path / "notes.forgetmem") as store:
        put(store, make_items(3))
        assert store.find({"short": b"CREATE TABL"}) == []


def test_what_survivors_hold_is_not_found(tmp_path):
    """The same text, vector, source or metadata elsewhere, in any namespace."""
    for path in (None, tmp_path / "notes.forgetmem"):
        long = "The same words again and again, in a text that needs many pages. " * 900
        gone = Item("the-first-of-two", long, '{"team":"operations"}', "document-seven")
        stays = Item(
            "the-other-of-two", long, '{"team":"operations"}', "document-seven"
        )
        with SQLiteStore(path) as store:
            put(store, make_items(50))
            put(store, [gone])
            put(store, [stays], "other")
            put(store, [Item("a", gone.record.text + " and more")], "third")
            erase(store, [gone])
            needles = needles_of([gone.record], [gone.atom.vector])
            assert store.clean(needles).ok
            assert store.find(needles) == []


def test_many_needles_at_once(tmp_path):
    """A block of 300 records, and one of them planted again."""
    path = tmp_path / "notes.forgetmem"
    items = make_items(400)
    with SQLiteStore(path) as store:
        put(store, items)
        erase(store, items[:300])
        needles = needles_of(
            [item.record for item in items[:300]],
            [item.atom.vector for item in items[:300]],
        )
        assert store.clean(needles).ok
        file = HeldFile(store.path, writable=True)
        file.write(items[123].record.text.encode(), free_offset(store))
        file.close()
        assert any("record 124: text" in where for where in store.find(needles))


def test_more_hits_than_can_be_told(tmp_path):
    """A file full of them is reported, and the list stays short."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, make_items(3))
        file = HeldFile(store.path, writable=True)
        file.write(b"a needle of mine" * 100_000, file.size())
        file.close()
        assert 1 <= len(store.find({"it": b"a needle of mine"})) <= 256
        assert store.clean().ok
