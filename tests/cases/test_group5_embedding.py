"""A sentence-transformers model inside a store: what others met, and what is right.

The embedders themselves are tested in `tests/embedding`; here is what becomes of
their vectors in a memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import EmbeddingError, ForgettableMemory, InvalidInputError
from forgetmem.embedding import minilm

needs_weights = pytest.mark.skipif(
    minilm.packaged_folder() is None, reason="the extra forgetmem[minilm] is missing"
)

NOTES = [
    "Who is on call tonight?",
    "The card machine swallowed my card.",
    "Кто сегодня дежурит?",
    "Paging 🚨 the database team.",
]
LONG = "It goes on and on about nothing in particular. " * 40


@needs_weights
@pytest.mark.filterwarnings("ignore:the embedder reads only the beginning")
def test_neighbours_in_a_batch_leave_no_trace() -> None:
    """With a very long text that is forgotten, without it, one by one in another order.

    In a padded batch the same text gets other bits (sentence-transformers 2312, 1839).
    """
    digests, answers = [], []
    for parts in ([[*NOTES, LONG]], [NOTES], [[note] for note in NOTES[::-1]]):
        with ForgettableMemory() as memory:
            for part in parts:
                memory.add(part, ids=[part_id(text) for text in part])
            if LONG in parts[0]:
                memory.forget(part_id(LONG))
            digests.append(memory.digest())
            answers.append([memory.search(note, 4) for note in NOTES])
            answers[-1].append(memory.read("a card in the machine"))
    assert len(set(digests)) == 1
    assert all(one == answers[0] for one in answers)


def part_id(text: str) -> str:
    """Return an id that does not depend on the order."""
    return f"note-{NOTES.index(text)}" if text in NOTES else "long"


@needs_weights
def test_text_beyond_the_window_is_stored_whole_and_can_be_forgotten(
    tmp_path: Path,
) -> None:
    """A warning names the ids; same heads, same vector, two records (4060, 181)."""
    head = "the pump of unit seven reported a small leak and was watched. " * 250
    texts = [head + "the end of the first", head + "the end of the second"]
    path = tmp_path / "m.fm"
    with ForgettableMemory(path) as memory:
        with pytest.warns(UserWarning, match="'first', 'second'") as caught:
            memory.add([*texts, "short"], ids=["first", "second", "third"])
        assert len(caught) == 1
        assert "third" not in str(caught[0].message)
        assert [record.text for record in memory.get(["first", "second"])] == texts
        (hit,) = [h for h in memory.search("leak of the pump", 3) if h.id == "first"]
        assert hit.same == ("second",)
        proof = memory.forget("first")
        assert {one.kind: one.survivors for one in proof.commitments}["vector"] == 1
        assert memory.verify(proof).ok
        assert memory.get("second")[0].text == texts[1]
        memory.forget("second")
    content = path.read_bytes()
    assert b"reported a small leak" not in content


@needs_weights
def test_sixteen_threads_share_one_model() -> None:
    """No "Already borrowed", and the result of a serial run (tokenizers 537, 187)."""
    texts = [f"{note} {n}" for n in range(12) for note in NOTES]
    with ForgettableMemory() as memory, ForgettableMemory() as serial:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda n: memory.add(texts[n], ids=[str(n)]), range(48)))
            answers = pool.map(
                lambda t: memory.search(t, 1, ranking="similarity"), texts
            )
            found = [hit.text for (hit,) in answers]
        serial.add(texts, ids=[str(n) for n in range(48)])
        assert memory.digest() == serial.digest()
        assert found == texts


FORK = """
import os, sys, time
from forgetmem import ForgettableMemory
memory = ForgettableMemory(sys.argv[1])
memory.add(["before the fork"], ids=["a"])
pid = os.fork()
if pid == 0:
    memory.add(["in the child"], ids=["b"])
    os._exit(0 if memory.search("in the child", 1)[0].id == "b" else 3)
end = time.monotonic() + 20
while time.monotonic() < end:
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        break
    time.sleep(0.02)
else:
    os.kill(pid, 9)
    sys.exit("the child hangs")
assert status == 0, status
assert memory.ids() == ["a", "b"]
assert memory.search("in the child", 1)[0].id == "b"
"""


@needs_weights
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_fork_after_encoding_does_not_hang(tmp_path: Path) -> None:
    """Parent and child go on embedding (huggingface/transformers 47085)."""
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path / "m.fm")],
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_importing_and_opening_load_no_model(tmp_path: Path) -> None:
    """Only embedding does; forget, get, verify and audit do without (3199, 1211)."""
    path = tmp_path / "m.fm"
    with ForgettableMemory(path) as memory:
        memory.add(["a", "b"], ids=["a", "b"], embeddings=np.eye(384)[:2])
    code = (
        "import sys, numpy as np\n"
        "import forgetmem\n"
        "assert 'numba' not in sys.modules and 'numpy' in sys.modules\n"
        "from forgetmem import ForgettableMemory\n"
        "with ForgettableMemory(sys.argv[1]) as memory:\n"
        "    assert memory.search(np.eye(384)[0], 1)[0].id == 'a'\n"
        "    assert memory.verify(memory.forget('a')).ok\n"
        "    assert memory.audit().ok\n"
        "    assert memory.get('b')[0].text == 'b'\n"
        "    assert memory.read(np.eye(384)[1]).ids == ('b',)\n"
        "for name in ('torch', 'transformers', 'sentence_transformers'):\n"
        "    assert name not in sys.modules, name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr.decode()


class Words(WordEmbedder):
    """The toy embedder with a window of three words."""

    def overlong(self, texts: list[str]) -> list[int]:
        """Find the texts with more words."""
        return [at for at, text in enumerate(texts) if len(text.split()) > 3]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[ForgettableMemory]:
    """An empty memory with a window."""
    with ForgettableMemory(tmp_path / "m.fm", embedder=Words()) as memory:
        yield memory


def test_only_overlong_texts_are_warned_of(memory: ForgettableMemory) -> None:
    """By id, at most five by name, and the text itself is never quoted."""
    with pytest.warns(UserWarning) as caught:
        memory.add(
            ["a secret text of many words"] * 9 + ["short"],
            ids=[f"id{n}" for n in range(10)],
        )
    message = str(caught[0].message)
    assert "'id4'" in message and "'id5'" not in message and "4 more" in message
    assert "secret" not in message
    assert len(memory) == 10


@pytest.mark.filterwarnings("error")
def test_empty_and_blank_texts_keep_count_and_order(memory: ForgettableMemory) -> None:
    """In, out and as a query (sentence-transformers 462, openai-python 576)."""
    texts = ["", "  ", "x", "\n\t", ""]
    ids = memory.add(texts, ids=list("abcde"))
    assert [record.text for record in memory.get(ids)] == texts
    for query in ("", " ", "x"):
        assert len(memory.search(query, 9, ranking="similarity")) == 5
        assert memory.read(query).n_support >= 1
    assert memory.search("x", 1)[0].id == "c"
    assert memory.verify(memory.forget(["a", "d"])).ok


def test_short_answer_of_an_embedder_is_never_zipped_short(tmp_path: Path) -> None:
    """A vector too few or too many is an error before any write (openai-python 576)."""
    for change in (
        lambda v: v[:-1],
        lambda v: v[:0],
        lambda v: np.repeat(v, 2, axis=0),
    ):

        def odd(texts: list[str], change: Any = change) -> Any:
            return change(np.ones((len(texts), 4)))

        odd.name = "odd"  # type: ignore[attr-defined]
        path = tmp_path / "m.fm"
        with ForgettableMemory(path, embedder=odd) as memory:
            content = path.read_bytes()
            with pytest.raises(EmbeddingError, match="vectors for 3"):
                memory.add(["a", "b", "c"])
            assert len(memory) == 0
            assert path.read_bytes() == content
        path.unlink()


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, -np.inf, 1e300, 1e-300])
def test_unfit_vectors_are_refused_or_kept_as_directions(
    memory: ForgettableMemory, value: float
) -> None:
    """Zero, NaN, infinity: an error; huge and tiny: a direction (haystack PR 11628)."""
    memory.add(["first"], ids=["first"])
    before = memory.digest()
    vector = np.zeros((1, 16))
    vector[0, 3] = value
    if np.isfinite(value) and value:
        memory.add(["odd"], ids=["odd"], embeddings=vector)
        assert memory.get("odd")[0].embedding.tolist() == np.eye(16)[3].tolist()
        (hit,) = memory.search(vector[0], 1)
        assert (hit.id, hit.score) == ("odd", 1.0)
    else:
        with pytest.raises(InvalidInputError):
            memory.add(["odd"], ids=["odd"], embeddings=vector)
        assert memory.digest() == before
        if not np.isfinite(value):
            with pytest.raises(InvalidInputError):
                memory.search(vector[0])


def test_embedding_is_done_outside_of_all_locks(tmp_path: Path) -> None:
    """A slow embedder holds up neither readers nor other writers."""
    started, go_on = threading.Event(), threading.Event()

    class Slow(WordEmbedder):
        def encode(self, texts: list[str]) -> np.ndarray:
            if "slow" in texts[0]:
                started.set()
                assert go_on.wait(30)
            return super().encode(texts)

    with ForgettableMemory(tmp_path / "m.fm", embedder=Slow()) as memory:
        memory.add(["quick"], ids=["a"])
        thread = threading.Thread(target=memory.add, args=(["slow"], ["s"]))
        thread.start()
        assert started.wait(30)
        begun = time.monotonic()
        assert memory.search("quick", 1)[0].id == "a"
        memory.add(["another"], ids=["b"])
        memory.forget("a")
        assert time.monotonic() - begun < 10.0
        go_on.set()
        thread.join()
        assert memory.ids() == ["b", "s"]
