"""Whatever goes wrong in the middle: before or after, never between."""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
from collections.abc import Callable
from dis import opname
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from toy import WordEmbedder

import forgetmem
from forgetmem import (
    EmbeddingError,
    ErasureError,
    ForgetProof,
    ForgettableMemory,
    StoreError,
)
from forgetmem.groups import Grouping, GroupWeights
from forgetmem.index import VectorTable
from forgetmem.state import NamespaceState
from forgetmem.store import DigestTree, SQLiteStore, WriteTransaction, files

PACKAGE = str(Path(forgetmem.__file__).parent)
TEXTS = [f"the pump number {n % 5} was replaced {n}" for n in range(14)]


def opened(path: Path | None) -> ForgettableMemory:
    """Open a memory that does not wait long."""
    return ForgettableMemory(path, embedder=WordEmbedder(), gamma=2.0, timeout=0.5)


def filled(path: Path | None) -> ForgettableMemory:
    """Open a memory with look-alikes in it."""
    memory = opened(path)
    memory.add(TEXTS, ids=[f"r{n:02}" for n in range(len(TEXTS))])
    return memory


class Interrupt(KeyboardInterrupt):
    """What Ctrl-C raises, from our own hand."""


def _leaves_a_block(frame: FrameType) -> bool:
    """Tell whether a frame is about to call ``__exit__`` at the end of a `with` block.

    Python handles no signal there, and an exception would leave a lock taken for ever.
    """
    code = frame.f_code.co_code
    return opname[code[frame.f_lasti]] == "LOAD_CONST" and any(
        opname[code[at]] == "BEFORE_WITH"
        for start, end, line in frame.f_code.co_lines()
        if line == frame.f_lineno
        for at in range(start, end, 2)
    )


class Interruption:
    """Runs something and raises at the n-th line of the package that it comes to."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.lines = 0
        self.where = ""

    def __call__(self, operation: Callable[[], object]) -> bool:
        """Tell whether it was interrupted."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            operation()
        except Interrupt:
            return True
        finally:
            sys.settrace(before)
        return False

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._step if frame.f_code.co_filename.startswith(PACKAGE) else None

    def _step(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines >= self._at > 0 and not _leaves_a_block(frame):
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                raise Interrupt
        return self._step


OPERATIONS: dict[str, Callable[[ForgettableMemory], object]] = {
    "add": lambda m: m.add(["a new text", "the pump again"], ids=["n1", "n2"]),
    "overwrite": lambda m: m.add(["the pump was repaired"], ids=["r03"]),
    "forget": lambda m: m.forget(["r03", "r07"]),
    "prune": lambda m: m.prune(),
    "compact": lambda m: m.compact(),
    "search": lambda m: m.search("pump", 5),
    "reembed": lambda m: m.reembed(WordEmbedder(name="toy-words")),
}


def interrupted_anywhere(folder: Path, name: str, in_file: bool, points: int) -> None:
    """Interrupt an operation at many lines, each time in a new memory."""
    base, path = folder / "base.fm", folder / "m.fm" if in_file else None
    filled(base).close()
    operation = OPERATIONS[name]

    def begin() -> ForgettableMemory:
        if path is None:
            return filled(None)
        shutil.copy(base, path)
        memory = opened(path)
        memory.ids()
        return memory

    with begin() as memory:
        before = memory.digest()
        whole = Interruption(0)
        whole(lambda: operation(memory))
        after = memory.digest()
    chance = random.Random(name)
    for at in chance.sample(range(1, whole.lines), min(points, whole.lines - 1)):
        memory = begin()
        interruption = Interruption(at)
        if not interruption(lambda memory=memory: operation(memory)):
            memory.close()
            continue
        try:
            check(memory, path, (before, after))
        except Exception as error:
            error.add_note(f"interrupted at {interruption.where} (line {at})")
            raise
        finally:
            memory.close()


def check(
    memory: ForgettableMemory, path: Path | None, states: tuple[str, str]
) -> None:
    """Check that a memory is whole, the same for others, and can go on."""
    digest = memory.digest()
    assert digest in states
    assert memory.audit().ok
    if path is not None:
        with opened(path) as other:
            assert other.digest() == digest
            assert other.audit().ok
    memory.add(["afterwards"], ids=["later"])
    assert memory.verify(memory.forget("later")).ok
    assert memory.digest() == digest


@pytest.mark.parametrize("in_file", [True, False], ids=["file", "RAM"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_interrupt_leaves_before_or_after(
    tmp_path: Path, name: str, in_file: bool
) -> None:
    """Ctrl-C at any line: the memory goes on as if before or after the operation."""
    interrupted_anywhere(tmp_path, name, in_file, 8)


@pytest.mark.slow
@pytest.mark.parametrize("in_file", [True, False], ids=["file", "RAM"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_interrupt_at_many_lines_leaves_before_or_after(
    tmp_path: Path, name: str, in_file: bool
) -> None:
    """The same at many more lines."""
    interrupted_anywhere(tmp_path, name, in_file, 250)


FAILING: list[tuple[type, str, int]] = [
    (Grouping, "add", 0),
    (Grouping, "remove", 0),
    (GroupWeights, "solve", 0),
    (GroupWeights, "clear", 0),
    (DigestTree, "put", 1),
    (DigestTree, "discard", 1),
    (NamespaceState, "write", 0),
    (WriteTransaction, "erase_records", 0),
    (WriteTransaction, "put_records", 0),
    (WriteTransaction, "erase_atoms", 0),
    (WriteTransaction, "put_atoms", 0),
    (WriteTransaction, "update_atoms", 0),
    (WriteTransaction, "put_root", 0),
]


CHANGES: list[Callable[[ForgettableMemory], object]] = [
    lambda m: m.add(["the pump number 3 stopped", "new"], ids=["r03", "new"]),
    lambda m: m.forget(["r03", "r04"]),
]


@pytest.mark.parametrize("error", [MemoryError, Interrupt])
@pytest.mark.parametrize(("kind", "name", "after"), FAILING)
def test_failing_step_of_a_change_undoes_it_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type,
    name: str,
    after: int,
    error: type[BaseException],
) -> None:
    """Nothing of it is in the file or left in RAM, and trying again works."""
    honest = getattr(kind, name)
    calls = 0

    def failing(self: object, *arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise error("on purpose")
        return honest(self, *arguments, **options)

    for number, change in enumerate(CHANGES):
        calls = 0
        memory = filled(tmp_path / f"{number}.fm")
        before, hits = memory.digest(), memory.search("pump", 20)
        with monkeypatch.context() as patch, contextlib.suppress(error):
            patch.setattr(kind, name, failing)
            change(memory)
        if calls > after:
            assert memory.digest() == before
            assert memory.search("pump", 20) == hits
            assert memory.audit().ok
            change(memory)
        with filled(None) as fresh:
            change(fresh)
            assert memory.digest() == fresh.digest()
        memory.close()


class Moody:
    """An embedder that misbehaves when a text says so."""

    name = "moody"
    dimension = 16

    def __init__(self) -> None:
        self.calls = 0

    def encode(self, texts: list[str]) -> Any:
        """Encode, or do what the text asks for."""
        self.calls += 1
        vectors: Any = WordEmbedder().encode(texts)
        for position, text in enumerate(texts):
            if "raise" in text:
                raise OSError("the model is gone")
            if "stop" in text:
                raise Interrupt
            for word, value in (("nan", np.nan), ("inf", np.inf), ("zero", 0.0)):
                if word in text:
                    vectors[position] = value
        if any("short" in text for text in texts):
            return vectors[:-1]
        if any("long" in text for text in texts):
            return np.concatenate([vectors, vectors[:1]])
        if any("wide" in text for text in texts):
            return np.column_stack([vectors, vectors[:, :1]])
        if any("flat" in text for text in texts):
            return vectors.ravel()
        if any("words" in text for text in texts):
            return [["a"] * 16 for _ in texts]
        if any("none" in text for text in texts):
            return None
        return vectors


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("raise", OSError),
        ("stop", Interrupt),
        *((word, EmbeddingError) for word in ("nan", "inf", "zero", "short", "long")),
        *((word, EmbeddingError) for word in ("wide", "flat", "words", "none")),
    ],
)
@pytest.mark.parametrize("position", [0, 2, 70])
def test_embedder_that_fails_midway_stores_nothing(
    tmp_path: Path, word: str, error: type[BaseException], position: int
) -> None:
    """At item 3 of 5 or in the second chunk: nothing (deepset-ai/haystack 11628)."""
    path = tmp_path / "m.fm"
    with ForgettableMemory(path, embedder=Moody()) as memory:
        memory.add(["the pump", "the valve"], ids=["a", "b"])
        before, content = memory.digest(), path.read_bytes()
        texts = [f"text number {n}" for n in range(max(5, position + 3))]
        texts[position] = f"now {word}"
        with pytest.raises(error):
            memory.add(texts, ids=["a", *(f"n{n}" for n in range(1, len(texts)))])
        assert memory.digest() == before
        assert path.read_bytes() == content
        if word != "zero":
            with pytest.raises(error):
                memory.search(f"now {word}")
        assert memory.search("pump", 1)[0].id == "a"


def test_zero_query_is_answered_in_a_defined_order() -> None:
    """Cosine 0 with everything, ties by id, finite numbers."""
    with ForgettableMemory(embedder=Moody()) as memory:
        memory.add([f"text {n}" for n in range(9)], ids=[f"t{n}" for n in range(9)])
        for query in ("zero", np.zeros(16)):
            for ranking in ("support", "similarity"):
                hits = memory.search(query, 9, ranking=ranking)
                assert [hit.id for hit in hits] == [f"t{n}" for n in range(9)]
                assert all(hit.score == 0.0 for hit in hits)
                assert all(np.isfinite(hit.mass) for hit in hits)
            readout = memory.read(query)
            assert np.isfinite(readout.masses).all()
            assert np.isfinite(readout.value).all()
            assert 0.0 <= readout.novelty <= 1.0


class Another(Moody):
    """The same under another name."""

    name = "another"


@pytest.mark.parametrize("word", ["raise", "nan", "short", "wide"])
def test_reembedding_that_fails_changes_nothing(tmp_path: Path, word: str) -> None:
    """All namespaces, or none."""
    path = tmp_path / "m.fm"
    with ForgettableMemory(path, embedder=WordEmbedder(name="moody")) as memory:
        memory.add(["the pump", f"now {word}"], ids=["a", "b"])
        with ForgettableMemory(
            path, embedder=WordEmbedder(name="moody"), namespace="other"
        ) as other:
            other.add(["the valve"], ids=["c"])
        before, content = memory.digest(), path.read_bytes()
        with pytest.raises((OSError, EmbeddingError)):
            memory.reembed(Another())
        assert memory.digest() == before
        assert path.read_bytes() == content
        memory.add(["another"], ids=["d"])
        memory.forget(["b", "d"])
        memory.reembed(Another())
        assert memory.stats()["embedder"] == "another"
        assert memory.audit().ok
        assert memory.search("pump", 1)[0].id == "a"


@pytest.mark.parametrize("error", [OSError("no room"), MemoryError("no room")])
def test_cleaning_that_fails_leaves_a_forget_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The records are gone from the memory; the proof comes when the bytes are, too."""
    honest = SQLiteStore.clean
    with filled(tmp_path / "m.fm") as memory:
        after = filled(None)
        after.forget("r03")

        def failing(self: SQLiteStore, needles: Any = None) -> Any:
            if isinstance(error, OSError):
                raise StoreError("no room") from error
            raise error

        monkeypatch.setattr(SQLiteStore, "clean", failing)
        with pytest.raises((ErasureError, MemoryError)) as caught:
            memory.forget("r03")
        assert "r03" not in memory
        assert memory.digest() == after.digest()
        if isinstance(caught.value, ErasureError):
            assert caught.value.pending is not None
            with pytest.raises(ErasureError):
                caught.value.pending.retry()
            monkeypatch.setattr(SQLiteStore, "clean", honest)
            proof = caught.value.pending.retry()
            assert isinstance(proof, ForgetProof)
            assert memory.verify(proof).ok


def test_collector_may_close_a_store_anywhere() -> None:
    """Whatever lock a thread holds, a finalizer that runs in it may take it again."""
    for _ in range(2):
        assert files._guard.acquire(timeout=1.0)
    for _ in range(2):
        files._guard.release()


def test_wiped_state_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between wiping the vectors and dropping them does no harm."""
    memory = filled(None)
    before = memory.search("pump", 5)

    def stopped(self: VectorTable) -> None:
        self._data[:] = 0.0
        raise Interrupt

    with monkeypatch.context() as patch:
        patch.setattr(VectorTable, "wipe", stopped)
        with pytest.raises(Interrupt):
            memory.reembed(WordEmbedder(name="toy-words"))
    assert memory.search("pump", 5) == before
    assert memory.audit().ok
