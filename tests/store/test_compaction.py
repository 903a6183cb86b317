"""The compacted file is a function of what it holds."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store.making import Item, dump, erase, files_of, make_items, put

from forgetmem.errors import StoreError
from forgetmem.store import SQLiteStore
from forgetmem.store.structure import Layout


def compacted(path: Path) -> str:
    """Compact the memory at a path and hash its only file."""
    with SQLiteStore(path) as store:
        store.compact()
    ((_, data),) = files_of(path)
    return hashlib.sha256(data).hexdigest()


def built(folder: Path, items: list[Item], *, batch: int = 10**6) -> str:
    """Build a memory in a new folder and hash it."""
    folder.mkdir()
    path = folder / "notes.forgetmem"
    with SQLiteStore(path) as store:
        for start in range(0, max(len(items), 1), batch):
            put(store, items[start : start + batch])
    return compacted(path)


def test_other_orders_and_batches_give_the_same_bytes(tmp_path):
    """Sorted, reversed, shuffled, in one transaction or in many."""
    items = make_items(250, longest=800)
    shuffled = random.Random(1).sample(items, len(items))
    hashes = {
        built(tmp_path / "a", items),
        built(tmp_path / "b", items[::-1], batch=7),
        built(tmp_path / "c", shuffled, batch=61),
    }
    assert len(hashes) == 1


def test_what_was_erased_leaves_no_trace(tmp_path):
    """Thousands of rows more, overwritten and erased again, change no byte."""
    items = make_items(100, longest=900)
    others = make_items(400, seed=1, longest=900)
    expected = built(tmp_path / "never", items)
    path = tmp_path / "was" / "notes.forgetmem"
    path.parent.mkdir()
    with SQLiteStore(path) as store:
        for start in range(0, 400, 40):
            put(store, others[start : start + 40])
            put(store, items[start // 4 : start // 4 + 20])
        put(store, [Item(item.record.id, "other") for item in items[:20]])
        erase(store, others[:200])
        erase(store, [Item(item.record.id, "other") for item in items[:20]])
        store.compact()
        put(store, items)
        erase(store, others[200:])
        store.clean()
    assert compacted(path) == expected


pool = make_items(12, seed=3, dimension=900, longest=6000)
choices = st.sampled_from(range(12))
histories = st.lists(
    st.tuples(st.sampled_from(["put", "erase", "compact", "reopen"]), st.sets(choices)),
    max_size=8,
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(histories)
def test_any_history_compacts_to_the_fresh_file(tmp_path_factory, history):
    """Any puts, erases, compactions and restarts, then the bytes of a new memory."""
    folder = tmp_path_factory.mktemp("history")
    path = folder / "notes.forgetmem"
    store, left = SQLiteStore(path), set()
    put(store, [])
    for verb, numbers in history:
        chosen = [pool[number] for number in sorted(numbers)]
        if verb == "put":
            put(store, chosen)
            left |= numbers
        elif verb == "erase":
            erase(store, chosen)
            left -= numbers
        elif verb == "compact":
            store.compact()
        else:
            store.close()
            store = SQLiteStore(path)
        assert store.check_structure().ok
    store.close()
    fresh = built(folder / "fresh", [pool[number] for number in sorted(left)])
    assert compacted(path) == fresh


def test_compacting_drops_certificates_and_keeps_the_rest(tmp_path):
    """Certificates are the one thing beside the state; the version stands."""
    for path in (None, tmp_path / "notes.forgetmem"):
        with SQLiteStore(path) as store:
            put(store, make_items(30))
            with store.writing() as tx:
                tx.put_certificate("default", b"group", "{}" * 50_000)
            before, version = dump(store), store.version()
            store.compact()
            assert dump(store) == before
            assert store.version() == version
            with store.reading() as tx:
                assert tx.certificates("default") == {}
            assert store.check_structure().ok
    assert [name for name, _ in files_of(tmp_path / "x")] == ["notes.forgetmem"]


def test_an_empty_memory_has_one_form(tmp_path):
    """New, or emptied and compacted: the same file."""
    path = tmp_path / "notes.forgetmem"
    new = built(tmp_path / "new", [])
    with SQLiteStore(path) as store:
        put(store, make_items(300))
        erase(store, make_items(300))
    assert compacted(path) == new


def test_cleaning_gives_back_space(tmp_path):
    """After erasing 990 of 1,000 the file is that of the ten, within one page."""
    items = make_items(1000, dimension=384)
    path, few = tmp_path / "a" / "x.forgetmem", tmp_path / "b" / "x.forgetmem"
    path.parent.mkdir()
    few.parent.mkdir()
    with SQLiteStore(path) as store, SQLiteStore(few) as other:
        put(store, items)
        with store.writing() as tx:
            tx.put_certificate("default", b"group", "{}")
        erase(store, items[10:])
        assert store.clean().ok
        put(other, items[:10])
        assert abs(path.stat().st_size - few.stat().st_size) <= 32768
        with store.reading() as tx:
            assert tx.certificates("default") == {b"group": "{}"}
        assert dump(store) == dump(other)


def test_cycles_of_adding_and_erasing_do_not_grow_the_folder(tmp_path):
    """Thirty times twenty records: the same files, of the same size."""
    path = tmp_path / "notes.forgetmem"
    seen = set()
    with SQLiteStore(path) as store:
        put(store, make_items(40, dimension=384))
        for cycle in range(30):
            items = make_items(20, seed=100 + cycle, dimension=384)
            put(store, items)
            erase(store, items)
            store.clean()
            seen.add(tuple((name, len(data)) for name, data in files_of(path)))
    assert len({tuple(name for name, _ in files) for files in seen}) == 1
    sizes = [sum(size for _, size in files) for files in seen]
    assert max(sizes) - min(sizes) <= 2 * 32768


def test_other_permissions_are_kept(tmp_path):
    """The new file may be read by whoever could read the old one, and by no more."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        path.chmod(0o640)
        store.compact()
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_failed_compaction_leaves_the_old_file(tmp_path, monkeypatch):
    """An error of the system is a named error; nothing is left beside."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, make_items(20))
        before = dump(store)

        def refuse(self, target):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", refuse)
            with pytest.raises(StoreError, match="cannot compact"):
                store.compact()
        assert dump(store) == before
        assert [name for name, _ in files_of(path)] == [path.name]
        store.compact()
        assert dump(store) == before


def test_a_damaged_draft_is_never_put_into_place(tmp_path, monkeypatch):
    """What was just written is checked before it replaces anything."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, make_items(5))
        before = dump(store)
        damaged = Layout(damage=["page 2 is no page of a memory"])
        with monkeypatch.context() as patch:
            patch.setattr(
                "forgetmem.store.compaction.read_layout", lambda *args: damaged
            )
            with pytest.raises(StoreError, match="damaged"):
                store.compact()
        assert dump(store) == before
        assert [name for name, _ in files_of(path)] == [path.name]
