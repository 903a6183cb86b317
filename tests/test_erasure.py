"""After `forget` nothing is left in any file: looked for from outside."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store import tracing
from toy import WordEmbedder

from forgetmem import ErasureError, ForgettableMemory, StoreBusyError

WORDS = ["pump", "valve", "gate", "motor", "shaft", "relay", "crane", "boiler", "fuse"]
DRIVERS = ["sqlite3", "pysqlite3"]


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The standard SQLite, and one that is built without SECURE_DELETE."""
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not made for this machine")
    monkeypatch.setenv("FORGETMEM_SQLITE", request.param)
    return str(request.param)


def opened(path: Path | None, **options: Any) -> ForgettableMemory:
    """Open a memory with the toy embedder."""
    return ForgettableMemory(path, embedder=WordEmbedder(48), **options)


class Person:
    """One record that nobody shares anything with."""

    def __init__(self, number: int, length: int = 12) -> None:
        chance = random.Random(number)
        unique = f"{number:04d}" + "".join(chance.choices("qxzjkvwy", k=12))
        words = " ".join(
            f"{word}{number:04d}" for word in chance.choices(WORDS, k=length)
        )
        self.id = f"identity-{unique}"
        self.text = f'Ünsaid {unique} said "{words}"\nand left {unique[::-1]}.'
        self.metadata = {f"key-{unique}": [f"Value-{unique}", 10**15 + number]}
        self.source = f"source-of-{unique}"
        self.vector = np.random.default_rng(number).standard_normal(48)

    def traces(self) -> Iterator[bytes]:
        """Yield everything by which the record could be recognised."""
        strings = [self.id, self.text, self.source, *self.metadata]
        strings += [str(value) for value in self.metadata[next(iter(self.metadata))]]
        strings += [self.text[start : start + 20] for start in range(0, 60, 20)]
        for string in strings:
            for form in (string, string.lower(), string.upper(), json.dumps(string)):
                text = form.strip('"')
                yield text.encode()
                yield text.encode("utf-16-le")
                yield text.encode("utf-16-be")
        unit = self.vector / np.linalg.norm(self.vector)
        for vector in (self.vector, unit, unit.astype(np.float32).astype(float)):
            for dtype in ("<f2", "<f4", "<f8", ">f4", ">f8"):
                raw = vector.astype(dtype)
                for start in range(0, 48, 4):
                    yield raw[start : start + 4].tobytes()


def add(memory: ForgettableMemory, people: list[Person]) -> None:
    """Add people."""
    memory.add(
        [one.text for one in people],
        ids=[one.id for one in people],
        metadatas=[one.metadata for one in people],
        source_ids=[one.source for one in people],
        embeddings=[one.vector for one in people],
    )


def bytes_of(folder: Path) -> bytes:
    """Return all bytes of all files of a folder, with long runs of zeros cut short."""
    files = sorted(file for file in [folder, *folder.rglob("*")] if file.is_file())
    content = b"\n".join(file.read_bytes() for file in files)
    return re.sub(rb"\0{64,}", bytes(64), content)


def left_of(people: list[Person], folder: Path) -> list[bytes]:
    """Return the traces that are found in a folder."""
    content = bytes_of(folder)
    return [trace for one in people for trace in one.traces() if trace in content]


def test_what_is_stored_can_be_found_from_outside(tmp_path: Path, driver: str) -> None:
    """Else looking for it would show nothing."""
    with opened(tmp_path / "m.fm") as memory:
        add(memory, [Person(1)])
        found = set(left_of([Person(1)], tmp_path))
        for part in (Person(1).id, Person(1).text, Person(1).source):
            assert part.encode() in found
        unit = Person(1).vector / np.linalg.norm(Person(1).vector)
        assert unit.astype("<f4")[:4].tobytes() in found


@pytest.mark.parametrize("length", [4, 200, 9000], ids=["short", "long", "overflow"])
def test_nothing_is_left_of_what_was_forgotten(
    tmp_path: Path, driver: str, length: int
) -> None:
    """One by one, in blocks, by source, by filter, overwritten; open and closed."""
    count = 12 if length > 1000 else 60
    people = [Person(number, length) for number in range(count)]
    memory = opened(tmp_path / "m.fm")
    for start in range(0, count, 10):
        add(memory, people[start : start + 10])
    assert left_of(people, tmp_path)
    gone: list[Person] = []

    def check(step: list[Person]) -> None:
        gone.extend(step)
        assert left_of(gone, tmp_path) == []

    for one in people[:2]:
        memory.forget(one.id)
        check([one])
    memory.forget([one.id for one in people[2:5]])
    check(people[2:5])
    memory.forget(source_id=people[5].source)
    check(people[5:6])
    key = next(iter(people[6].metadata))
    memory.forget(where={key: {"$exists": True}})
    check(people[6:7])
    memory.add(["overwritten"], ids=[people[7].id])
    memory.forget(people[7].id)
    check(people[7:8])
    memory.compact()
    check([])
    memory.close()
    check([])
    with opened(tmp_path / "m.fm") as memory:
        memory.forget([one.id for one in people[8:]])
        check(people[8:])
        assert len(memory) == 0
    check([])


def test_overwriting_leaves_nothing_of_the_old_record(
    tmp_path: Path, driver: str
) -> None:
    """Text, metadata, source and vector of before; its id stays."""
    with opened(tmp_path / "m.fm") as memory:
        people = [Person(number, 60) for number in range(20)]
        add(memory, people)
        for one in people[:10]:
            memory.add(["another"], ids=[one.id])
        content = bytes_of(tmp_path)
        for one in people[:10]:
            own = {one.id, one.id.lower(), one.id.upper()}
            own_forms = {
                id.encode(form)
                for id in own
                for form in ("utf-8", "utf-16-le", "utf-16-be")
            }
            for trace in set(one.traces()) - own_forms:
                assert trace not in content


def test_reembedding_leaves_no_old_vector(tmp_path: Path, driver: str) -> None:
    """The vectors of the former embedder are gone from the file."""
    people = [Person(number) for number in range(30)]
    with opened(tmp_path / "m.fm") as memory:
        add(memory, people)
        memory.reembed(WordEmbedder(48, name="another"))
        content = bytes_of(tmp_path)
        for one in people:
            unit = (one.vector / np.linalg.norm(one.vector)).astype("<f4")
            assert all(unit[at : at + 4].tobytes() not in content for at in range(44))
        assert memory.audit(deep=True).ok


def test_pruned_records_are_erased_too(tmp_path: Path, driver: str) -> None:
    """Whatever `prune` removes leaves as little behind as a forget."""
    with opened(tmp_path / "m.fm", gamma=1.0) as memory:
        people = [Person(number) for number in range(60)]
        centre = people[0].vector
        for one in people:
            one.vector = centre + 0.02 * one.vector
        add(memory, people)
        memory.prune()
        gone = [one for one in people if one.id not in memory]
        assert gone
        # The vectors are close together, so single halves of them may well be shared.
        for one in gone:
            content = bytes_of(tmp_path)
            assert one.text.encode() not in content
            assert one.id.encode() not in content
            unit = (one.vector / np.linalg.norm(one.vector)).astype("<f4")
            assert unit[:8].tobytes() not in content


def test_a_long_history_leaves_nothing(tmp_path: Path, driver: str) -> None:
    """Adds, overwrites and forgets in random order, many pages, several tenants."""
    chance = random.Random(5)
    people = {
        number: Person(number, chance.choice([3, 30, 900])) for number in range(90)
    }
    memories = [
        opened(tmp_path / "m.fm", namespace=name) for name in ("default", "other")
    ]
    living: dict[int, int] = {}
    gone: list[Person] = []
    for number, one in people.items():
        tenant = chance.randrange(2)
        add(memories[tenant], [one])
        living[number] = tenant
        if len(living) > 25:
            for victim in chance.sample(sorted(living), chance.choice([1, 2, 12])):
                memories[living.pop(victim)].forget(people[victim].id)
                gone.append(people[victim])
    assert len(gone) > 30
    assert left_of(gone, tmp_path) == []
    for memory in memories:
        assert memory.audit().ok
        memory.close()
    assert left_of(gone, tmp_path) == []
    assert [file.name for file in tmp_path.iterdir()] == ["m.fm"]


# What is ordinary must not stand in the way.

SHARED = "one text that several records have, word for word"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a", id="one letter"),
        pytest.param("", id="empty"),
        pytest.param("survivor text 1", id="part of a survivor's text"),
        pytest.param(SHARED, id="a survivor's text"),
        pytest.param("SQLite format 3", id="the file's first bytes"),
        pytest.param("SQLite format 3\0", id="the file's magic"),
        pytest.param("CREATE TABLE setting (name TEXT", id="schema"),
        pytest.param("toy-words", id="the embedder's name"),
        pytest.param("max_group512ridge1e-08", id="settings"),
        pytest.param("\0" * 100, id="zeros"),
        pytest.param("\0" * 12 + "A", id="zeros and a letter"),
        pytest.param("A" + "\0" * 12, id="a letter and zeros"),
        pytest.param("ab" * 30_000, id="a long repetition"),
        pytest.param(" " * 5000, id="spaces"),
        pytest.param("=" * 80 + "\n" + "-" * 80, id="rules"),
        pytest.param("FgMm" + "\0" * 12, id="the application's mark"),
    ],
)
def test_ordinary_records_never_block_a_forget(tmp_path: Path, text: str) -> None:
    """Short ids, common values, shared texts and vectors, whatever the text says."""
    with opened(tmp_path / "m.fm") as memory:
        memory.add(
            [f"survivor text {n}" for n in range(20)],
            ids=[str(n) for n in range(20)],
            metadatas=[{"team": "operations and support", "n": n} for n in range(20)],
            source_ids="one document of many pages",
        )
        with opened(tmp_path / "m.fm", namespace="other") as other:
            other.add([text, SHARED, "x" + text + "y"], ids=["1", "v", "record"])
            memory.add([SHARED], ids=["twin"])
            before = memory.digest()
            memory.add(
                [text, text],
                ids=["v", "default"],
                metadatas=[{"team": "operations and support", "n": 3}] * 2,
                source_ids="one document of many pages",
            )
            for id in ("v", "default"):
                started = time.perf_counter()
                proof = memory.forget(id)
                assert memory.verify(proof).ok
                assert time.perf_counter() - started < 120.0  # no search gone astray
            assert memory.digest() == before
            assert [one.text for one in other.get(["1", "v"])] == [text, SHARED]


# A reader in the way, and processes that are killed.


def test_reader_in_the_way_of_a_forget_is_waited_for(tmp_path: Path) -> None:
    """Too long, and nothing is changed and no proof is made; else it goes through."""
    path = tmp_path / "m.fm"
    memory = opened(path, timeout=0.4)
    add(memory, [Person(1), Person(2)])
    before, content = memory.digest(), path.read_bytes()
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM record").fetchone()
    for change in (
        lambda: memory.forget(Person(1).id),
        lambda: add(memory, [Person(3)]),
        lambda: memory.add(["other"], ids=[Person(1).id]),
        memory.compact,
    ):
        started = time.perf_counter()
        with pytest.raises(StoreBusyError) as caught:
            change()
        assert 0.3 <= time.perf_counter() - started < 5.0
        assert 0.3 <= caught.value.waited < 5.0
        assert memory.digest() == before
        assert path.read_bytes() == content
        assert memory.search("pump", 2)
    with opened(path, timeout=10.0) as patient:
        timer = threading.Timer(0.3, lambda: reader.execute("COMMIT"))
        timer.start()
        proof = patient.forget(Person(1).id)
        timer.join()
    reader.close()
    assert memory.verify(proof).ok
    assert left_of([Person(1)], tmp_path) == []
    memory.close()


def test_reader_that_comes_after_the_commit_delays_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is gone, the error says so, and `retry` gives the proof."""
    path = tmp_path / "m.fm"
    memory = opened(path, timeout=0.3)
    add(memory, [Person(number, 40) for number in range(30)])
    store = memory._collection.store
    readers: list[sqlite3.Connection] = []
    clean = store.clean

    def late(*arguments: Any) -> Any:
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM record").fetchone()
        readers.append(reader)
        with path.open("r+b") as file:  # something to be cleaned up, not only looked at
            file.seek(path.read_bytes().index(bytes(4096)) + 2048)
            file.write(b"belongs to nothing")
        return clean(*arguments)

    monkeypatch.setattr(store, "clean", late)
    with pytest.raises(ErasureError) as caught:
        memory.forget(Person(1).id)
    assert Person(1).id not in memory
    assert caught.value.pending is not None
    for reader in readers:
        reader.close()
    monkeypatch.undo()
    proof: Any = caught.value.pending.retry()
    assert proof.forgotten == 1
    assert memory.verify(proof).ok
    assert left_of([Person(1)], tmp_path) == []
    memory.close()


OPERATIONS: dict[str, Callable[[ForgettableMemory], object]] = {
    "add": lambda m: add(m, [Person(number, 200) for number in range(40, 60)]),
    "overwrite": lambda m: m.add(["another"] * 3, ids=[Person(n).id for n in range(3)]),
    "forget": lambda m: m.forget([Person(number).id for number in range(25)]),
    "prune": lambda m: m.prune(),
    "compact": lambda m: m.compact(),
}


def crowd(path: Path) -> list[Person]:
    """Fill a memory with people of whom many are reserve."""
    people = [Person(number, 200) for number in range(30)]
    for one in people[10:]:
        one.vector = people[9].vector + 0.03 * one.vector
    with opened(path, gamma=1.0) as memory:
        add(memory, people)
    return people


def killed_anywhere(folder: Path, name: str, points: int) -> None:
    """Kill an operation at many of its calls to the system, each in a new file."""
    if reason := tracing.why_not():
        pytest.skip(reason)
    base, path = folder / "base" / "m.fm", folder / "m.fm"
    base.parent.mkdir()
    people = crowd(base)

    def operate() -> None:
        with opened(path) as memory:
            OPERATIONS[name](memory)

    def again() -> None:
        for file in folder.glob("m.fm*"):
            file.unlink()
        shutil.copy(base, path)

    again()
    calls, _ = tracing.run(operate, None)
    assert calls is not None
    with opened(base) as memory:
        before = (memory.digest(), memory.ids())
    with opened(path) as memory:
        after = (memory.digest(), memory.ids())
    seen = set()
    steps = np.linspace(1, len(calls), min(points, len(calls)), dtype=int)
    for at in steps.tolist():
        again()
        _, killed = tracing.run(operate, at)
        assert killed
        with opened(path) as memory:
            now = (memory.digest(), memory.ids())
            assert now in (before, after), f"killed at call {at}: {calls[at - 1]}"
            seen.add(now[0])
            report = memory.audit()
            assert report.ok, report.reasons
            gone = [one for one in people if one.id not in now[1]]
            for one in gone:
                assert one.text.encode() not in bytes_of(folder / "m.fm")
            assert [file.name for file in folder.glob("m.fm*")] == ["m.fm"]
    assert seen == {before[0], after[0]}


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_process_leaves_before_or_after(tmp_path: Path, name: str) -> None:
    """After the next opening; the structure is clean and the gone are gone."""
    killed_anywhere(tmp_path, name, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_process_killed_at_any_call_leaves_before_or_after(
    tmp_path: Path, name: str
) -> None:
    """The same at every write, sync, rename, link and unlink."""
    killed_anywhere(tmp_path, name, 1000)
