"""Killed at any write, sync, rename, link or unlink: before or after, never between."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from store import tracing
from store.making import (
    Item,
    dump,
    erase,
    files_of,
    found_in_files,
    make_items,
    put,
    root,
)

from forgetmem.store import SQLiteStore, needles_of

pytestmark = pytest.mark.skipif(bool(tracing.why_not()), reason=tracing.why_not())

ITEMS = make_items(24, longest=400)
LONG = make_items(6, seed=1, dimension=600, longest=9000)


def overwrite(store: SQLiteStore) -> None:
    """Replace texts that were long by short ones."""
    short = [Item(item.record.id, "short") for item in LONG[:3]]
    with store.writing() as tx:
        tx.put_atoms("default", [item.atom for item in short])
        tx.put_records("default", [item.record for item in short])
        tx.erase_atoms("default", [item.atom.key for item in LONG[:3]])
        tx.put_root("default", root(tx, "default"))


def forget(items: list[Item]) -> Callable[[SQLiteStore], None]:
    """Return an action that erases items and makes sure of it."""

    def action(store: SQLiteStore) -> None:
        erase(store, items)
        store.clean(
            needles_of(
                [item.record for item in items], [item.atom.vector for item in items]
            )
        )

    return action


def same_under_another_id(item: Item) -> Item:
    """Return an item whose id is not in the file."""
    record = item.record
    return Item(record.id[::-1], record.text, record.metadata, None, item.atom.vector)


#: What is done, and which items must be gone once it is.
ACTIONS: dict[str, tuple[Callable[[SQLiteStore], object], list[Item]]] = {
    "put": (lambda store: put(store, make_items(6, seed=2, longest=2000)), []),
    "overwrite": (overwrite, [same_under_another_id(item) for item in LONG[:3]]),
    "erase": (forget([ITEMS[3], LONG[5]]), [ITEMS[3], LONG[5]]),
    "erase and shrink": (forget(LONG), LONG),
    "compact": (SQLiteStore.compact, []),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    """A memory that each run copies."""
    path = tmp_path_factory.mktemp("base") / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, ITEMS)
        put(store, LONG)
        with store.writing() as tx:
            tx.put_certificate("default", b"group", "{}")
    return path


def check_kills(base: Path, path: Path, verb: str, *, every: bool) -> None:
    """Kill the action at its calls, one after the other, and look at what is left."""
    action, gone = ACTIONS[verb]
    shutil.copy(base, path)
    with SQLiteStore(path) as store:
        before = dump(store)
        action(store)
        after = dump(store)
    shutil.copy(base, path)
    names, killed = tracing.run(lambda: action(SQLiteStore(path)), None)
    assert not killed and len(names) > 5
    assert dict(files_of(path)).keys() == {path.name}
    for step in range(1, len(names) + 1) if every else chosen(names):
        shutil.copy(base, path)
        done, killed = tracing.run(lambda: action(SQLiteStore(path)), step)
        assert killed
        with SQLiteStore(path) as store:
            state = dump(store)
            assert state in (before, after), (step, done)
            assert store.check_structure().ok, (step, done)
            store.check_rows()
        if state == after:
            assert found_in_files(path, gone) == [], (step, done)
        assert [name for name, _ in files_of(path)] == [path.name]


def chosen(names: list[str]) -> list[int]:
    """Return the steps at and after all but plain writes, and some of these."""
    rare = {step for step, name in enumerate(names, 1) if name != "pwrite64"}
    steps = rare | {step + 1 for step in rare} | set(range(1, len(names), 9))
    return sorted(step for step in steps if step <= len(names))


@pytest.mark.parametrize("verb", ACTIONS)
def test_a_killed_process_leaves_before_or_after(base, tmp_path, verb):
    """Whatever it was doing, at every sync, rename and unlink and at some writes."""
    check_kills(base, tmp_path / "notes.forgetmem", verb, every=False)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ACTIONS)
def test_a_process_killed_at_any_write(base, tmp_path, verb):
    """The same at every single write."""
    check_kills(base, tmp_path / "notes.forgetmem", verb, every=True)


def test_a_killed_creation_leaves_a_whole_memory_or_none(tmp_path):
    """And whoever comes next removes the draft."""
    path = tmp_path / "notes.forgetmem"
    step, killed = 0, True
    while killed:
        step += 1
        for _, file in [(name, tmp_path / name) for name, _ in files_of(path)]:
            file.unlink()
        names, killed = tracing.run(lambda: SQLiteStore(path), step)
        whole = path.exists()
        with SQLiteStore(path) as store:
            assert dump(store) == {"settings": None}
            assert store.check_structure().ok
        if whole:
            assert [name for name, _ in files_of(path)] == [path.name], (step, names)
    assert step > 5
