"""Deletion that does not delete: what users of vector stores met, and what is right.

Each test names the public threads; the symptom there is that a deleted record, or
a trace of it, was still to be had.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import (
    ForgettableMemory,
    Hit,
    InvalidInputError,
    RecordNotFoundError,
)


def opened(path: Path | None = None, **options: Any) -> ForgettableMemory:
    """Open a memory with the toy embedder."""
    return ForgettableMemory(path, **{"embedder": WordEmbedder(), **options})


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[ForgettableMemory]:
    """An empty memory in a file of its own folder."""
    folder = tmp_path / "store"
    folder.mkdir()
    with opened(folder / "m.fm") as memory:
        yield memory


def folder_of(memory: ForgettableMemory) -> Path:
    """Return the folder of a memory."""
    assert memory.path is not None
    return memory.path.parent


def bytes_of(folder: Path) -> bytes:
    """Return every byte of every file of a folder."""
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


def forms(text: str) -> list[bytes]:
    """Return the ways in which a text may stand in a file."""
    written = {text, text.lower(), text.upper(), json.dumps(text)[1:-1]}
    codecs = ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")
    return [form.encode(codec) for form in written for codec in codecs]


def test_text_is_in_no_file_after_forget(memory: ForgettableMemory) -> None:
    """Neither before nor after closing (chroma-core/chroma 3793, 7659)."""
    text = 'Zq7-unique-phrase: ünsaid, "quoted"\nand broken'
    memory.add([text, "another text"], ids=["x", "y"])
    assert text.encode() in bytes_of(folder_of(memory))
    memory.forget("x")
    for _ in range(2):
        content = bytes_of(folder_of(memory))
        assert not any(form in content for form in forms(text))
        assert not any(form in content for form in forms("Zq7-unique-phrase"))
        memory.close()


def test_vector_and_id_are_in_no_file_after_forget(memory: ForgettableMemory) -> None:
    """No run of four floats, raw or normalised (chroma-core/chroma 7662)."""
    vector = np.random.default_rng(3).standard_normal(16)
    id = "0c7a-identifier-of-the-record"
    memory.add(["a", "b"], ids=[id, "other"], embeddings=[vector, -vector[::-1]])
    unit = vector / np.linalg.norm(vector)
    stored = unit.astype("<f4")
    assert stored.tobytes() in bytes_of(folder_of(memory))
    memory.forget(id)
    content = bytes_of(folder_of(memory))
    for shape in (vector, unit, stored.astype(np.float64)):
        for dtype in ("<f2", "<f4", "<f8", ">f2", ">f4", ">f8"):
            raw = shape.astype(dtype)
            for start in range(13):
                assert raw[start : start + 4].tobytes() not in content
    assert id.encode() not in content


def test_metadata_and_words_are_in_no_file_after_forget(
    memory: ForgettableMemory,
) -> None:
    """Keys, values, tags, sources, a rare word (chroma-core/chroma 2063)."""
    memory.add(["an everyday text"], ids=["y"], metadatas=[{"note": "shared value"}])
    memory.add(
        ["with the rare word floccinaucinihilipilification in it"],
        ids=["x"],
        metadatas=[
            {
                "note": "qx-secret",
                "qx-unusual-key": ["qx-tag", {"qx-deep": "qx-deeper"}],
                "number": 73914628519,
                "note2": "shared value",
            }
        ],
        source_ids="qx-source-document",
    )
    memory.forget("x")
    content = bytes_of(folder_of(memory))
    for word in ("qx-", "floccinaucinihilipilification", "73914628519", "note2"):
        assert not any(form in content for form in forms(word))
    assert b"shared value" in content


def test_file_shrinks_to_what_is_left(tmp_path: Path) -> None:
    """1,000 in, 990 out: as long as one that had 10 (asg017/sqlite-vec 178, 220)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 64))
    texts = [f"text number {n}: " + "word " * 40 for n in range(1000)]
    ids = [f"record-{n:04d}" for n in range(1000)]
    sizes = []
    for name, first in (("all", 0), ("few", 990)):
        path = tmp_path / f"{name}.fm"
        with opened(path, embedder=WordEmbedder(64)) as memory:
            memory.add(texts[first:], ids=ids[first:], embeddings=X[first:])
            if not first:
                full = path.stat().st_size
                memory.forget(ids[:990])
            sizes.append(path.stat().st_size)
    page = 32768
    assert full > sizes[0] + 10 * page
    assert abs(sizes[0] - sizes[1]) <= page


def test_folder_does_not_grow_with_history(memory: ForgettableMemory) -> None:
    """20 in, 20 out: the same size, the same files (chroma 5520, lancedb 518)."""
    memory.add([f"stays {n}" for n in range(50)], ids=[f"s{n}" for n in range(50)])
    seen = set()
    for cycle in range(12):
        ids = [f"c{cycle}-{n}" for n in range(20)]
        memory.add([f"passing text {id} " + "word " * 30 for id in ids], ids=ids)
        memory.forget(ids)
        files = sorted(folder_of(memory).iterdir())
        seen.add(tuple((file.name, file.stat().st_size) for file in files))
    assert len(seen) == 1


def test_forgotten_neighbours_take_no_place_in_the_answer(
    memory: ForgettableMemory,
) -> None:
    """Five live ones come, although five nearer ones were there (mem0ai/mem0 3787)."""
    query = "the broken pump in the cellar"
    live = [f"the valve on floor {n}" for n in range(5)]
    near = [f"{query} {n}" for n in range(5)]
    memory.add(live + near, ids=[*"abcde", *"vwxyz"])
    first = memory.search(query, 5, ranking="similarity")
    assert sum(hit.id in "vwxyz" for hit in first) >= 3
    memory.forget(list("vwxyz"))
    for ranking in ("support", "similarity"):
        hits = memory.search(query, 5, ranking=ranking)  # type: ignore[arg-type]
        assert sorted(hit.id for hit in hits) == list("abcde")
    stats = memory.stats()
    assert stats["records"] == len(memory) == 5
    assert stats["vectors"] == stats["support"] + stats["reserve"] == 5


@pytest.mark.parametrize("victim", [0, 2, 4])
def test_positions_never_shift(memory: ForgettableMemory, victim: int) -> None:
    """Each hit keeps its own id and text (langchain PR 9023, chatchat 645)."""
    texts = dict(
        zip("abcde", ["alpha", "beta", "gamma", "delta", "epsilon"], strict=True)
    )
    memory.add(list(texts.values()), ids=list(texts))
    gone = list(texts)[victim]
    memory.forget(gone)
    del texts[gone]
    for id, text in texts.items():
        (hit,) = memory.search(text, 1)
        assert (hit.id, hit.text) == (id, text)
        assert hit.score == pytest.approx(1.0, abs=1e-6)
        assert memory.get(id)[0].text == text


def test_one_id_may_come_and_go(memory: ForgettableMemory) -> None:
    """Five times, then last: right text and vector (chroma 1265, hnswlib 309)."""
    for round in range(5):
        memory.add([f"the text of round {round}"], ids=["x"])
        memory.forget("x")
        assert len(memory) == 0
    memory.add(["last"], ids=["x"])
    with opened() as fresh:
        fresh.add(["last"], ids=["x"])
        assert memory.digest() == fresh.digest()
        assert memory.get("x") == fresh.get("x")
    assert memory.search("last", 1)[0].text == "last"
    expected = WordEmbedder().encode(["last"])[0].astype(np.float64)
    expected /= np.linalg.norm(expected)
    assert np.array_equal(memory.get("x")[0].embedding, expected.astype(np.float32))


@pytest.mark.parametrize("in_file", [True, False], ids=["file", "RAM"])
def test_emptied_memory_is_as_new(tmp_path: Path, in_file: bool) -> None:
    """All out in any order, again in in any order (unum-cloud/USearch 355, 445)."""
    count = 14 if in_file else 50
    rows = {f"r{n:02d}": f"the pump number {n % 7} again {n % 3}" for n in range(count)}
    with opened() as new:
        empty = new.digest()
    digests = set()
    with opened(tmp_path / "m.fm" if in_file else None) as memory:
        for seed in range(3):
            order = random.Random(seed).sample(sorted(rows), count)
            for id in order:
                memory.add([rows[id]], ids=[id])
            digests.add(memory.digest())
            for id in random.Random(seed + 10).sample(order, count):
                memory.forget(id)
            assert len(memory) == 0
            assert memory.digest() == empty
            assert memory.search("pump") == []
            assert memory.namespaces() == []
    assert len(digests) == 1


def test_forgotten_record_is_absent_on_every_path(memory: ForgettableMemory) -> None:
    """One path that forgot to check is enough (weaviate 3868, laurus PR 772)."""
    text, meta = "the pump in hall nine", {"u": "anna", "n": 9}
    memory.add(
        [text, text, text + " x", "other"],
        ids=["gone", "twin", "near", "far"],
        metadatas=[meta, meta, meta, {}],
        source_ids=["s", "s", "s", "t"],
    )
    vector = memory.get("gone")[0].embedding
    memory.forget("gone")
    filters: list[Any] = [None, {"u": "anna"}, {"n": {"$gte": 9}}, {"u": {"$ne": "b"}}]
    hits: list[Hit] = []
    for where in filters:
        for ranking in ("support", "similarity"):
            for query in (text, vector, "far", np.zeros(16)):
                for k in (1, 4, 100):
                    hits += memory.search(
                        query,
                        k,
                        where=where,
                        ranking=ranking,  # type: ignore[arg-type]
                    )
    shown = {id for hit in hits for id in (hit.id, *hit.same, *hit.similar)}
    assert shown == {"twin", "near", "far"}
    assert all(hit.n_same == 0 for hit in hits)
    assert memory.get(["gone"]) == []
    assert "gone" not in memory and "gone" not in memory.ids()
    assert "gone" not in memory.read(text, 100).ids
    for values in ({},):
        with pytest.raises(InvalidInputError, match="support records"):
            memory.read(text, values=values)
    asked: list[str] = []

    def value(ids: list[str]) -> np.ndarray:
        asked.extend(ids)
        return np.ones((len(ids), 2))

    memory.read(text, values=value)
    assert "gone" not in asked
    assert memory.forget(source_id="s").erased_ids == ("near", "twin")
    assert memory.forget(where={"u": "anna"}).forgotten == 0
    with pytest.raises(RecordNotFoundError):
        memory.forget("gone")


def test_answers_after_many_deletions_are_those_of_brute_force(
    memory: ForgettableMemory,
) -> None:
    """500 in, 490 out: the ten, in order (nmslib/hnswlib 321, ruvnet/RuVector 679)."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 16))
    ids = [f"r{n:03d}" for n in range(500)]
    memory.add(ids, ids=ids, embeddings=X)
    kept = sorted(random.Random(2).sample(ids, 10))
    memory.forget([id for id in ids if id not in kept])
    unit = np.array([record.embedding for record in memory.get(kept)], dtype=np.float64)
    for q in rng.standard_normal((20, 16)):
        direction = (q / np.linalg.norm(q)).astype(np.float32).astype(np.float64)
        order = sorted(range(10), key=lambda n: (-float(unit[n] @ direction), kept[n]))
        hits = memory.search(q, 10, ranking="similarity")
        assert [hit.id for hit in hits] == [kept[n] for n in order]
        assert all(np.isfinite(hit.score) for hit in hits)


@pytest.mark.filterwarnings("error")
def test_unknown_ids_are_named_and_leave_no_mark(memory: ForgettableMemory) -> None:
    """Found and not found are told apart, once (chroma-core/chroma 2841, 989)."""
    memory.add(["a", "b"], ids=["a", "b"])
    before = memory.digest()
    with pytest.raises(RecordNotFoundError) as caught:
        memory.forget(["a", "nope"])
    assert caught.value.id == "nope"
    assert memory.digest() == before
    proof = memory.forget(["a", "nope"], missing="ignore")
    assert proof.erased_ids == ("a",)
    assert proof.not_found_ids == ("nope",)
    assert (proof.forgotten, proof.not_found) == (1, 1)
    assert memory.verify(proof).ok
    assert [hit.id for hit in memory.search("a", 5)] == ["b"]
    memory.add(["something"], ids=["nope"])
    assert memory.verify(proof).ok


def test_everything_of_a_person_is_forgotten_by_filter(
    memory: ForgettableMemory,
) -> None:
    """One call, one proof (langchain-postgres 271, mastra-ai/mastra 9712)."""
    users = ["u1", "u2", "u1", "u2", "u1"]
    memory.add(
        [f"note {n}" for n in range(5)],
        ids=[f"n{n}" for n in range(5)],
        metadatas=[{"user": user} for user in users],
    )
    before = memory.digest()
    none = memory.forget(where={"user": "u3"})
    assert none.forgotten == 0
    assert memory.digest() == before
    with pytest.raises(InvalidInputError, match="empty"):
        memory.forget(where={})
    assert memory.digest() == before
    proof = memory.forget(where={"user": "u1"})
    assert proof.forgotten == 3
    assert proof.erased_ids == ("n0", "n2", "n4")
    assert memory.ids() == ["n1", "n3"]
    assert memory.verify(proof).ok and memory.verify(none).ok


def test_receipt_holds_nothing_and_fails_when_content_is_back(
    memory: ForgettableMemory, tmp_path: Path
) -> None:
    """Acknowledge only what is gone (semantica PR 1027, weaviate 1814, hudi 2135)."""
    text = "call anna on 555-0134"
    memory.add([text, "other"], ids=["anna", "o"])
    proof = memory.forget("anna")
    path, _ = proof.save(tmp_path / "receipt.json")
    shown = path.read_text()
    assert "anna" not in shown and "555-0134" not in shown
    assert memory.verify(path).ok
    memory.add([text], ids=["renamed"])
    assert not memory.verify(path).ok
    memory.forget("renamed")
    assert memory.verify(path).ok


def test_no_query_can_tell_that_a_record_was_there(tmp_path: Path) -> None:
    """200 probes: ids, scores, weights, ties, bit for bit (ruvnet/RuVector 1013)."""
    rng = np.random.default_rng(4)
    centres = rng.standard_normal((8, 16))
    base = np.concatenate([c + 0.1 * rng.standard_normal((12, 16)) for c in centres])
    ids = [f"b{n:03d}" for n in range(len(base))]
    target = base[5] + 0.02
    for options in (
        {},
        {"link": -1.0, "max_group": None},
        {"link": 0.7, "max_group": 5},
    ):
        with opened(tmp_path / "m.fm", **options) as one, opened(**options) as two:
            one.add(ids, ids=ids, embeddings=base)
            one.add(["target"], ids=["t"], embeddings=[target])
            one.forget("t")
            two.add(ids, ids=ids, embeddings=base)
            probes = target + 0.3 * rng.standard_normal((200, 16))
            for probe in [target, *probes]:
                assert one.search(probe, 7) == two.search(probe, 7)
                assert one.read(probe) == two.read(probe)
            assert one.search(target, 99, ranking="similarity") == two.search(
                target, 99, ranking="similarity"
            )
            assert one.get(ids) == two.get(ids)
            assert one.digest() == two.digest()
        os.unlink(tmp_path / "m.fm")  # noqa: PTH108


def test_ids_that_are_made_are_random(memory: ForgettableMemory) -> None:
    """Never a hash of the text: nobody can test a guess with them."""
    first = memory.add(["the same text"] * 3)
    assert len(set(first)) == 3
    memory.forget(first)
    second = memory.add(["the same text"] * 3)
    assert set(first).isdisjoint(second)
    assert all(
        re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", id) for id in first
    )


def test_writing_a_record_again_changes_nothing(memory: ForgettableMemory) -> None:
    """The same in every field: digest, answers and the file's bytes stay."""
    rows: dict[str, Any] = {
        "ids": ["a", "b", "c"],
        "metadatas": [{"n": 1, "m": [1.0, None]}, {}, None],
        "source_ids": ["s", None, ""],
    }
    texts = ["the pump", "the pump", "the valve"]
    memory.add(texts, **rows)
    digest, content = memory.digest(), bytes_of(folder_of(memory))
    answers = memory.search("pump", 5)
    for _ in range(2):
        assert memory.add(texts, **rows) == ["a", "b", "c"]
        assert memory.digest() == digest
        assert memory.search("pump", 5) == answers
        assert bytes_of(folder_of(memory)) == content


@pytest.mark.parametrize(
    "change",
    [
        {"texts": ["the valve"]},
        {"metadatas": [{"n": 2}]},
        {"metadatas": [{"n": 1.0}]},
        {"metadatas": [{"n": True}]},
        {"source_ids": ["other"]},
        {"source_ids": [None]},
        {"embeddings": [np.arange(1.0, 17.0)]},
    ],
    ids=["text", "value", "float", "bool", "source", "no source", "vector"],
)
def test_overwriting_is_forgetting_and_adding(
    memory: ForgettableMemory, change: dict[str, Any]
) -> None:
    """Also where vector and neighbours are shared with others."""
    rows: dict[str, Any] = {"metadatas": [{"n": 1}], "source_ids": ["s"]}
    memory.add(["the pump"] * 3, ids=["twin", "x", "y"])
    memory.add(["the pump"], ids=["x"], **rows)
    new = {"texts": ["the pump"], **rows, **change}
    memory.add(new.pop("texts"), ids=["x"], **new)
    with opened() as fresh:
        new = {"texts": ["the pump"], **rows, **change}
        fresh.add(new.pop("texts"), ids=["x"], **new)
        fresh.add(["the pump"] * 2, ids=["y", "twin"])
        assert memory.digest() == fresh.digest()
        assert memory.get(["x", "y", "twin"]) == fresh.get(["x", "y", "twin"])
        assert memory.search("the pump", 5) == fresh.search("the pump", 5)
    assert memory.audit().ok
