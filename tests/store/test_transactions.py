"""What goes in comes out, in the stated order, checked on its way."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from store.making import SETTINGS, Item, dump, erase, make_items, put

from forgetmem.errors import CorruptStoreError, InvalidInputError, StoreError
from forgetmem.store import SQLiteStore, StoredRecord, text_digest


@pytest.fixture(params=["file", "ram"])
def store(request, tmp_path):
    """A store on disk, and one in RAM."""
    path = tmp_path / "notes.forgetmem" if request.param == "file" else None
    with SQLiteStore(path) as store:
        yield store


def test_a_new_store_is_empty(store):
    """No settings, no namespaces, no root."""
    with store.reading() as tx:
        assert tx.settings() is None
        assert tx.namespaces() == []
        assert tx.count("default") == 0
        assert tx.root("default") is None
        assert tx.matrix("default", 4)[1].shape == (0, 4)


def test_records_come_back_as_they_were_put(store):
    """All fields, the vectors bit for bit, in id and key order."""
    items = make_items(200)
    put(store, items)
    with store.reading() as tx:
        by_id = sorted(items, key=lambda item: item.record.id)
        assert list(tx.records("default")) == [
            (r.id, r.source_id, r.metadata, r.atom, text_digest(r.text), r.content)
            for r in (item.record for item in by_id)
        ]
        assert list(tx.texts("default")) == [
            (item.record.id, item.record.text) for item in by_id
        ]
        by_key = sorted(items, key=lambda item: item.atom.key)
        assert list(tx.vectors("default")) == [
            (item.atom.key, item.atom.vector) for item in by_key
        ]
        assert list(tx.atoms("default")) == [
            (a.key, a.component, a.part, a.weight, a.role)
            for a in (item.atom for item in by_key)
        ]
        keys, matrix = tx.matrix("default", 48)
        assert keys == [item.atom.key for item in by_key]
        assert matrix.tobytes() == b"".join(item.atom.vector for item in by_key)
        assert matrix.dtype == np.float32
        assert tx.settings() == SETTINGS


def test_get_returns_what_is_there_in_the_order_given(store):
    """Unknown ids are left out."""
    items = make_items(5)
    put(store, items)
    ids = [items[3].record.id, "nobody", items[0].record.id]
    with store.reading() as tx:
        found = tx.get("default", ids)
        assert list(found.values()) == [items[3].record, items[0].record]
        keys = [items[1].atom.key, bytes(16)]
        assert tx.get_vectors("default", keys) == {keys[0]: items[1].atom.vector}


def test_an_existing_id_is_overwritten(store):
    """The last record of an id is the one that stays."""
    put(store, [Item("a", "first text", source_id="s")])
    put(store, [Item("a", "second text")])
    with store.reading() as tx:
        assert tx.get("default", ["a"])["a"].text == "second text"
        assert tx.count("default") == 1


def test_namespaces_keep_apart(store):
    """The same id in two namespaces is two records; empty namespaces vanish."""
    put(store, [Item("a", "one")], "first")
    put(store, [Item("a", "two"), Item("b", "three")], "second")
    with store.reading() as tx:
        assert tx.namespaces() == ["first", "second"]
        assert tx.get("first", ["a", "b"]).keys() == {"a"}
    erase(store, [Item("a", "one")], "first")
    with store.reading() as tx:
        assert tx.namespaces() == ["second"]
        assert tx.root("first") is None
        assert tx.count("second") == 2


def test_erasing_counts_what_was_there(store):
    """Unknown ids and keys are passed over."""
    items = make_items(3)
    put(store, items)
    with store.writing() as tx:
        assert tx.erase_records("default", [items[0].record.id, "nobody"]) == 1
        assert tx.erase_atoms("default", [items[0].atom.key, bytes(16)]) == 1
        assert tx.erase_records("default", []) == 0


def test_atoms_can_be_updated_without_their_vectors(store):
    """Labels, weight and role change; an unknown key is an error and rolls back."""
    items = make_items(2)
    put(store, items)
    key = items[0].atom.key
    with store.writing() as tx:
        tx.update_atoms("default", [(key, b"c" * 16, b"p" * 16, 0.25, 2)])
    with store.reading() as tx:
        assert (key, b"c" * 16, b"p" * 16, 0.25, 2) in list(tx.atoms("default"))
    before = dump(store)
    with pytest.raises(StoreError), store.writing() as tx:
        tx.update_atoms(
            "default", [(key, key, key, 0.5, 1), (bytes(16), *[key] * 2, 0, 1)]
        )
    assert dump(store) == before


def test_any_exception_rolls_back(store):
    """Nothing of a broken block is kept."""
    put(store, make_items(3))
    before = dump(store)
    with pytest.raises(KeyboardInterrupt), store.writing() as tx:
        tx.put_settings({"gamma": 1.0})
        tx.erase_records("default", [id for id, *_ in tx.records("default")])
        raise KeyboardInterrupt
    assert dump(store) == before


def test_what_does_not_belong_together_is_refused(store):
    """A wrong content digest or key is never stored."""
    item = Item("a", "text")
    wrong = StoredRecord(
        "a", "other", "{}", None, item.record.atom, item.record.content
    )
    with pytest.raises(InvalidInputError), store.writing() as tx:
        tx.put_records("default", [wrong])
    with pytest.raises(InvalidInputError), store.writing() as tx:
        other = make_items(1)[0].atom
        tx.put_atoms(
            "default",
            [type(other)(item.atom.key, other.vector, *[other.key] * 2, 1, 1)],
        )


def test_certificates_live_until_they_are_erased(store):
    """By namespace and group."""
    with store.writing() as tx:
        tx.put_certificate("default", b"group 1", "{}")
        tx.put_certificate("default", b"group 2", "[]")
        tx.put_certificate("other", b"group 1", "1")
        tx.erase_certificate("default", b"group 1")
    with store.reading() as tx:
        assert tx.certificates("default") == {b"group 2": "[]"}
        assert tx.certificates("other") == {b"group 1": "1"}


def test_sharing_names_all_records_that_share_something(store):
    """By id, vector or text, in the namespaces that are named."""
    put(store, [Item("a", "same text"), Item("b", "b", vector=b"1234" * 4)], "x")
    put(store, [Item("a", "unlike"), Item("c", "same text", vector=b"12345678")], "y")
    with store.reading() as tx:
        first = Item("a", "same text").record
        features = [first.id], [first.atom], [text_digest(first.text)]
        rows = tx.sharing(["x", "y"], *features)
        elsewhere = tx.sharing(["y"], *features)
    assert sorted(row[0] for row in rows) == ["a", "a", "c"]
    assert sorted(row[0] for row in elsewhere) == ["a", "c"]


def test_odd_strings_survive(store):
    """NUL, emoji, quotes, combining marks and very long texts."""
    texts = ["\0", "a\0b", "🌲" * 9, "'; DROP TABLE record; --", "é\u0301", "x" * 10**6]
    items = [
        Item(text[:50], text, source_id=text[:9], vector=bytes([number] * 8))
        for number, text in enumerate(texts)
    ]
    put(store, items, "имя \0 spaces")
    with store.reading() as tx:
        found = tx.get("имя \0 spaces", [item.record.id for item in items])
    assert list(found.values()) == [item.record for item in items]
    assert store.check_structure().ok


def test_a_transaction_that_is_over_cannot_be_used(store):
    """Neither it, nor what it was still reading."""
    put(store, make_items(3000, dimension=1, longest=1))
    with store.reading() as tx:
        rows = tx.records("default")
        next(rows)
    with pytest.raises(StoreError):
        list(rows)
    with pytest.raises(StoreError):
        tx.settings()
    put(store, make_items(1, seed=1))


def test_transactions_nest_only_for_reading(store):
    """A read joins the transaction that is open; a write inside one is refused."""
    with store.writing() as tx:
        tx.put_settings(SETTINGS)
        with store.reading() as inner:
            assert inner is tx
        with pytest.raises(StoreError), store.writing():
            pass
        with pytest.raises(StoreError):
            store.check_structure()
        with pytest.raises(StoreError):
            store.close()
    with store.reading() as tx, pytest.raises(StoreError):
        store.compact()


def test_a_closed_store_says_so(store):
    """Closing twice is fine."""
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"), store.reading():
        pass


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE record SET text = 'other'",
        "UPDATE record SET metadata = '{\"a\":1}'",
        "UPDATE record SET id = 'other'",
        "UPDATE record SET source_id = 'other'",
        "UPDATE record SET atom = zeroblob(16)",
        "UPDATE record SET text_digest = zeroblob(32)",
        "UPDATE record SET seal = zeroblob(8)",
        "UPDATE vector SET vector = zeroblob(64)",
        "UPDATE vector SET key = zeroblob(16)",
        "UPDATE atom SET state = zeroblob(45)",
        "UPDATE atom SET key = zeroblob(16)",
        "UPDATE setting SET value = '{' WHERE name = 'gamma'",
        "UPDATE setting SET value = '9.0' WHERE name = 'gamma'",
        "DELETE FROM record",
        "DELETE FROM vector",
        "DELETE FROM atom",
        "DELETE FROM root",
        "UPDATE root SET digest = zeroblob(32)",
        "INSERT INTO vector VALUES ('ghost', zeroblob(16), zeroblob(64))",
    ],
)
def test_a_changed_row_is_never_returned(tmp_path, damage):
    """Whoever changes a row with SQL is found out when it is read, or by the check."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, [Item("a", "text", vector=b"1" * 64)])
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    connection.close()
    with SQLiteStore(path) as store, pytest.raises(CorruptStoreError):
        store.check_rows()


def test_a_vector_of_another_dimension_is_damage(store):
    """A matrix is never filled with something else."""
    put(store, make_items(2, dimension=8))
    with store.reading() as tx, pytest.raises(CorruptStoreError):
        tx.matrix("default", 9)


def test_check_digest_compares_with_the_stored_root(store):
    """True for what belongs together, false for another root."""
    put(store, make_items(5))
    assert store.check_digest("default")
    assert store.check_digest("empty")
    store.check_rows()
    with store.writing() as tx:
        tx.put_root("default", bytes(32))
    assert not store.check_digest("default")
