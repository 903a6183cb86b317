"""What users of stores with embedding models reported, and what is right."""

from __future__ import annotations

import os
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem.embedding.minilm import packaged_folder
from forgetmem.encoding import OverlongTextWarning
from forgetmem.errors import EmbeddingError
from forgetmem.memory import ForgettableMemory

needs_weights = pytest.mark.skipif(
    packaged_folder() is None, reason="the extra forgetmem[minilm] is not installed"
)


@needs_weights
def test_neighbours_in_a_batch_leave_no_trace_in_the_digest() -> None:
    """Beside a long text that is forgotten, without it, one at a time: one digest."""
    short = {"a": "Who is on call?", "b": "The pump on deck two is loud."}
    long = "The inspection went on and on. " * 30
    together, apart, single = (ForgettableMemory() for _ in range(3))
    together.add([*short.values(), long], ids=[*short, "long"])
    together.forget("long")
    apart.add(list(short.values()), ids=list(short))
    for id in reversed(short):
        single.add(short[id], ids=[id])
    assert together.digest() == apart.digest() == single.digest()


@needs_weights
def test_long_texts_that_differ_at_their_end_are_kept_whole(tmp_path: Path) -> None:
    """A warning names them; both are stored, told apart, and forgettable."""
    head = "the same three thousand words " * 600
    texts = [head + "end of the first", head + "end of the second"]
    with ForgettableMemory(tmp_path / "m.forgetmem") as memory:
        with pytest.warns(OverlongTextWarning, match=r"'one'.*'two'"):
            memory.add([*texts, "short"], ids=["one", "two", "three"])
        assert [record.text for record in memory.get(["one", "two"])] == texts
        (hit,) = memory.search(head, k=1)
        assert (hit.id, hit.same) == ("one", ("two",))
        proof = memory.forget("one")
        assert memory.verify(proof).ok
        assert memory.search(head, k=1)[0].text == texts[1]
    content = (tmp_path / "m.forgetmem").read_bytes()
    assert b"end of the first" not in content
    assert b"end of the second" in content


@needs_weights
def test_blank_texts_and_queries_are_ordinary() -> None:
    """Empty and blank texts keep their place, and can be asked for."""
    with ForgettableMemory() as memory:
        ids = memory.add(["", "  ", "x"], ids=["empty", "blank", "x"])
        assert ids == ["empty", "blank", "x"]
        assert {record.text for record in memory.get(ids)} == {"", "  ", "x"}
        (hit, *_) = memory.search("", k=3)
        assert hit.score == pytest.approx(1.0)
        memory.forget(ids)
        assert len(memory) == 0


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_vectors_without_direction_are_refused_before_any_write(
    tmp_path: Path, bad: float
) -> None:
    """Zeros, NaN and infinity: nothing is stored; a zero query is in order."""

    class Faulty(WordEmbedder):
        def encode(self, texts: list[str]) -> np.ndarray:
            vectors = super().encode(texts)
            vectors[[text == "bad" for text in texts]] = bad
            return vectors

    with ForgettableMemory(tmp_path / "m", embedder=Faulty()) as memory:
        memory.add("good", ids=["good"])
        before = memory.digest()
        with pytest.raises(EmbeddingError, match="position 1"):
            memory.add(["fine", "bad", "fine too"])
        assert memory.digest() == before
        if bad == 0.0:
            assert [hit.score for hit in memory.search("bad")] == [0.0]
        else:
            with pytest.raises(EmbeddingError, match="NaN or infinity"):
                memory.search("bad")


def test_too_few_vectors_are_an_error_and_never_shift_the_rest() -> None:
    """An embedder that drops empty texts does not pair texts with wrong vectors."""

    class Dropping(WordEmbedder):
        def encode(self, texts: list[str]) -> np.ndarray:
            return super().encode([text for text in texts if text])

    with ForgettableMemory(embedder=Dropping()) as memory:
        with pytest.raises(EmbeddingError, match="2 vectors for 3 texts"):
            memory.add(["one", "", "three"])
        assert len(memory) == 0


def test_error_in_the_middle_of_a_batch_stores_nothing(tmp_path: Path) -> None:
    """The caller's own exception comes out; what was there before still is."""

    class Failing(WordEmbedder):
        def encode(self, texts: list[str]) -> np.ndarray:
            if "third" in texts:
                raise ConnectionError("the service is down")
            return super().encode(texts)

    with ForgettableMemory(tmp_path / "m", embedder=Failing()) as memory:
        memory.add("old", ids=["kept"])
        texts = [f"text {n}" for n in range(600)]
        with pytest.raises(ConnectionError, match="the service is down"):
            memory.add([*texts, "third"], ids=None)
        assert memory.ids() == ["kept"]


@needs_weights
def test_many_threads_add_and_search_at_once() -> None:
    """Sixteen threads share one model and one memory; the result is the serial one."""
    texts = [f"report {n}: valve {n % 7} was {'very ' * (n % 5)}hot" for n in range(64)]
    shared, serial = ForgettableMemory(), ForgettableMemory()

    def work(n: int) -> int:
        shared.add(texts[n], ids=[str(n)])
        return len(shared.search(texts[n], k=1))

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(work, range(len(texts)))) == {1}
    serial.add(texts, ids=[str(n) for n in range(len(texts))])
    assert shared.digest() == serial.digest()


@needs_weights
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_memory_can_be_used_in_a_forked_child(tmp_path: Path) -> None:
    """A child forked after an encode opens, adds and searches without hanging."""
    path = tmp_path / "m.forgetmem"
    with ForgettableMemory(path) as memory:
        memory.add("before the fork", ids=["a"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:  # pragma: no cover
        code = 1
        try:
            signal.alarm(20)
            with ForgettableMemory(path) as memory:
                memory.add("in the child", ids=["b"])
                code = 0 if memory.search("in the child", k=1)[0].id == "b" else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with ForgettableMemory(path) as memory:
        assert memory.ids() == ["a", "b"]
