"""Odd arguments: refused by name before anything happens, or kept exactly."""

from __future__ import annotations

import enum
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import ForgetmemError, ForgettableMemory, InvalidInputError, StoreError

BAD_SETTINGS: list[tuple[str, Any]] = [
    *(("gamma", value) for value in (0, -1, float("nan"), float("inf"), "scale", True)),
    *(("C", value) for value in (0, -1, float("nan"), float("inf"), "0.1", True)),
    *(("link", value) for value in (1.1, -1.1, float("nan"), None)),
    *(("diminish", value) for value in (-0.1, 1.1, float("nan"))),
    *(("ridge", value) for value in (-1e-9, float("nan"), "0")),
    *(("alike", value) for value in (2, -2, float("nan"))),
    *(("max_group", value) for value in (1, 0, -1, 2.0, "2", True)),
    *(("namespace", value) for value in ("", 5, None, "a\ud800")),
    *(
        ("timeout", value)
        for value in (-1, float("nan"), float("inf"), "1", None, True)
    ),
    *(("embedder", value) for value in (5, "", " ", object())),
]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[ForgettableMemory]:
    """Two records in a file."""
    with ForgettableMemory(tmp_path / "m.fm", embedder=WordEmbedder()) as memory:
        memory.add(["the pump stopped", "anna left"], ids=["a", "b"])
        yield memory


@pytest.mark.parametrize(("name", "value"), BAD_SETTINGS)
def test_bad_setting_is_refused_before_any_file_exists(
    tmp_path: Path, name: str, value: object
) -> None:
    """A wrong setting costs nothing and leaves nothing (scikit-learn 9494)."""
    options: dict[str, Any] = {"embedder": WordEmbedder(), name: value}
    with pytest.raises(InvalidInputError):
        ForgettableMemory(tmp_path / "m.fm", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [5, b"m.fm", "a\0b", 1.5, ["m.fm"]])
def test_path_that_is_no_path_is_refused(path: Any) -> None:
    """A path is a str or a path-like object."""
    with pytest.raises(InvalidInputError, match="path"):
        ForgettableMemory(path, embedder=WordEmbedder())


def test_folder_in_place_of_a_file_is_a_store_error(tmp_path: Path) -> None:
    """Neither a folder, nor a file in a folder that is not there, can be opened."""
    for path in (tmp_path, "", tmp_path / "none" / "m.fm"):
        with pytest.raises(StoreError):
            ForgettableMemory(path, embedder=WordEmbedder())


BAD_CALLS: dict[str, Callable[[ForgettableMemory], object]] = {
    "texts None": lambda m: m.add(None),  # type: ignore[arg-type]
    "texts int": lambda m: m.add(5),  # type: ignore[arg-type]
    "text bytes": lambda m: m.add([b"x"]),  # type: ignore[list-item]
    "text surrogate": lambda m: m.add(["x\ud800"]),
    "ids int": lambda m: m.add(["x"], ids=5),  # type: ignore[arg-type]
    "ids str": lambda m: m.add(["x", "y"], ids="ab"),
    "id int": lambda m: m.add(["x"], ids=[7]),  # type: ignore[list-item]
    "id empty": lambda m: m.add(["x"], ids=[""]),
    "id surrogate": lambda m: m.add(["x"], ids=["\udfff"]),
    "id twice": lambda m: m.add(["x", "y"], ids=["d", "d"]),
    "too few ids": lambda m: m.add(["x", "y", "z"], ids=["d"]),
    "too many metadatas": lambda m: m.add(["x"], metadatas=[{}, {}]),
    "metadatas int": lambda m: m.add(["x"], metadatas=5),  # type: ignore[arg-type]
    "sources int": lambda m: m.add(["x"], source_ids=5),  # type: ignore[arg-type]
    "source int": lambda m: m.add(["x"], source_ids=[5]),  # type: ignore[list-item]
    "embeddings too few": lambda m: m.add(["x", "y"], embeddings=np.ones((1, 16))),
    "embeddings 1-D": lambda m: m.add(["x"], embeddings=np.ones(16)),
    "embeddings narrow": lambda m: m.add(["x"], embeddings=np.ones((1, 15))),
    "embeddings empty": lambda m: m.add(["x"], embeddings=np.ones((1, 0))),
    "embeddings zero": lambda m: m.add(["x"], embeddings=np.zeros((1, 16))),
    "embeddings nan": lambda m: m.add(["x"], embeddings=np.full((1, 16), np.nan)),
    "embeddings inf": lambda m: m.add(["x"], embeddings=np.full((1, 16), np.inf)),
    "embeddings text": lambda m: m.add(["x"], embeddings=[["1"] * 16]),
    "forget nothing": lambda m: m.forget(),
    "forget two ways": lambda m: m.forget("a", source_id="s"),
    "forget int": lambda m: m.forget(5),  # type: ignore[arg-type]
    "forget ints": lambda m: m.forget([5]),  # type: ignore[list-item]
    "forget empty id": lambda m: m.forget(""),
    "forget empty ids": lambda m: m.forget(["", ""]),
    "forget source int": lambda m: m.forget(source_id=5),  # type: ignore[arg-type]
    "forget empty where": lambda m: m.forget(where={}),
    "forget where operator": lambda m: m.forget(where={"u": {"$foo": 1}}),
    "forget missing": lambda m: m.forget("a", missing="skip"),  # type: ignore[arg-type]
    "forget audit": lambda m: m.forget("a", audit="yes"),  # type: ignore[arg-type]
    "get int": lambda m: m.get(5),  # type: ignore[arg-type]
    "get None": lambda m: m.get(None),  # type: ignore[arg-type]
    "get ints": lambda m: m.get(["a", 5]),  # type: ignore[list-item]
    "search None": lambda m: m.search(None),  # type: ignore[arg-type]
    "search matrix": lambda m: m.search(np.ones((1, 16))),
    "search narrow": lambda m: m.search(np.ones(15)),
    "search nan": lambda m: m.search(np.full(16, np.nan)),
    "search words": lambda m: m.search(["x"] * 16),
    "search surrogate": lambda m: m.search("\ud800"),
    "search k": lambda m: m.search("x", -1),
    "search k bool": lambda m: m.search("x", True),
    "search k float": lambda m: m.search("x", 2.0),  # type: ignore[arg-type]
    "search ranking": lambda m: m.search("x", ranking="mmr"),  # type: ignore[arg-type]
    "search where": lambda m: m.search("x", where={"u": {"$foo": 1}}),
    "read m": lambda m: m.read("x", -1),
    "read values": lambda m: m.read("x", values={}),
    "verify key": lambda m: m.verify(m.forget([]), b"short"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_argument_is_refused_and_changes_nothing(
    memory: ForgettableMemory, name: str
) -> None:
    """The error is ours, and a ValueError; the file keeps its bytes."""
    assert memory.path is not None
    digest, content = memory.digest(), memory.path.read_bytes()
    with pytest.raises(ForgetmemError) as caught:
        BAD_CALLS[name](memory)
    assert isinstance(caught.value, ValueError)
    assert memory.digest() == digest
    assert memory.path.read_bytes() == content
    assert memory.search("pump", 1)[0].id == "a"


class Colour(str, enum.Enum):  # noqa: UP042 - the older kind is meant
    """A str subclass whose `str()` is not its value."""

    RED = "red"


def test_subclasses_of_str_are_stored_as_their_characters(
    memory: ForgettableMemory,
) -> None:
    """Numpy strings and enums are ids, texts and sources like any other."""
    ids = memory.add(
        [np.str_("one"), Colour.RED],
        ids=[np.str_("n"), Colour.RED],
        source_ids=[np.str_("s"), Colour.RED],
    )
    assert [type(id) for id in ids] == [str, str]
    found = memory.get([Colour.RED, np.str_("n")])
    assert [(r.id, r.text, r.source_id) for r in found] == [
        ("red", "red", "red"),
        ("n", "one", "s"),
    ]
    assert memory.forget(source_id=Colour.RED).erased_ids == ("red",)
    assert memory.forget(np.str_("n")).erased_ids == ("n",)


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n", "\0", "a\0b", "\ufeff", "\u202e!", "\U0001f984", "x" * 200_000],
)
def test_any_unicode_text_comes_back_exactly(
    memory: ForgettableMemory, text: str
) -> None:
    """As text, id, source, metadata key and value; and it can be forgotten."""
    before = memory.digest()
    name = text or "empty"
    memory.add([text], ids=[name], metadatas=[{text: [text]}], source_ids=[text])
    (record,) = memory.get(name)
    assert (record.id, record.text, record.source_id) == (name, text, text)
    assert record.metadata == {text: [text]}
    assert name in [hit.id for hit in memory.search(text, 3, where={text: [text]})]
    with ForgettableMemory(memory.path, embedder=WordEmbedder()) as other:
        assert other.get(name) == [record]
    proof = memory.forget(source_id=text)
    assert proof.forgotten == 1
    assert memory.verify(proof).ok
    assert memory.digest() == before


def test_unicode_forms_are_different_ids(memory: ForgettableMemory) -> None:
    """Nothing is normalised: a composed and a decomposed id are two records."""
    composed = unicodedata.normalize("NFC", "é")
    decomposed = unicodedata.normalize("NFD", "é")
    memory.add(["one", "two"], ids=[composed, decomposed])
    proof = memory.forget(composed)
    assert [record.text for record in memory.get([composed, decomposed])] == ["two"]
    assert memory.verify(proof).ok


def test_ids_with_nul_are_told_apart(memory: ForgettableMemory) -> None:
    """An id ends where it ends, not at a NUL; another tenant may have it too."""
    memory.add(["t1", "t2", "t3"], ids=["n", "n\0", "n\0b"])
    with ForgettableMemory(
        memory.path, embedder=WordEmbedder(), namespace="other"
    ) as other:
        other.add(["something else"], ids=["n\0b"])
    proof = memory.forget("n\0b")
    assert [one.survivors for one in proof.commitments if one.kind == "id"] == [1]
    assert memory.verify(proof).ok
    assert memory.ids() == ["a", "b", "n", "n\0"]


def test_huge_ids_and_namespaces_work(tmp_path: Path) -> None:
    """An id longer than a page is stored, found, erased and proved."""
    long = "i" * 100_000
    with ForgettableMemory(
        tmp_path / "m.fm", embedder=WordEmbedder(), namespace="n" * 70_000
    ) as memory:
        memory.add(["one", "two"], ids=[long, long + "2"], source_ids=long)
        proof = memory.forget(long)
        assert memory.verify(proof).ok
        assert memory.ids() == [long + "2"]
    assert b"one" not in (tmp_path / "m.fm").read_bytes()


@pytest.mark.parametrize("k", [0, 1, 3, 10**6, 10**30, np.int64(2)])
@pytest.mark.parametrize("ranking", ["support", "similarity"])
def test_k_may_be_larger_than_the_memory(
    memory: ForgettableMemory, k: int, ranking: Any
) -> None:
    """As many hits as there are records, and never more than k."""
    assert len(memory.search("pump", k, ranking=ranking)) == min(int(k), 2)
    assert len(memory.read("pump", k).ids) == min(int(k), 2)


def test_empty_memory_answers_with_nothing(tmp_path: Path) -> None:
    """Every question can be asked before the first record and after the last."""
    with ForgettableMemory(tmp_path / "m.fm", embedder=WordEmbedder()) as memory:
        for _ in range(2):
            assert memory.search("x") == []
            assert memory.search("x", where={"u": "a"}, ranking="similarity") == []
            assert memory.read("x").novelty == 1.0
            assert memory.get(["a"]) == []
            assert memory.ids() == [] and memory.namespaces() == []
            assert memory.prune() == []
            assert memory.forget([]).forgotten == 0
            assert memory.forget(source_id="s").forgotten == 0
            assert memory.forget(where={"u": "a"}).forgotten == 0
            assert memory.forget("a", missing="ignore").not_found == 1
            assert memory.audit().ok
            memory.compact()
            memory.add(["x"], ids=["a"])
            memory.forget("a")


def test_calls_with_nothing_do_nothing(memory: ForgettableMemory) -> None:
    """No texts, no ids: the file keeps its bytes (langchain 5476)."""
    assert memory.path is not None
    content = memory.path.read_bytes()
    assert memory.add([]) == []
    assert memory.add((), ids=[], metadatas=[], source_ids=[]) == []
    assert memory.get([]) == []
    assert memory.forget([]).forgotten == 0
    assert memory.path.read_bytes() == content


def test_generators_are_read_once_and_whole(memory: ForgettableMemory) -> None:
    """Texts, ids, metadatas, sources and what is to be forgotten may be generators."""
    ids = memory.add(
        (f"text {n}" for n in range(3)),
        ids=(f"g{n}" for n in range(3)),  # type: ignore[arg-type]
        metadatas=({"n": n} for n in range(3)),  # type: ignore[arg-type]
        source_ids=(None for _ in range(3)),  # type: ignore[arg-type]
    )
    assert ids == ["g0", "g1", "g2"]
    assert [r.metadata["n"] for r in memory.get(id for id in ids)] == [0, 1, 2]
    assert memory.forget(id for id in ids).forgotten == 3


def test_get_returns_each_record_once_in_the_order_given(
    memory: ForgettableMemory,
) -> None:
    """Unknown ids are passed over, repeated ones named once (LightRAG PR 2195)."""
    found = memory.get(["b", "a", "nope", "b"])
    assert [(record.id, record.text) for record in found] == [
        ("b", "anna left"),
        ("a", "the pump stopped"),
    ]


def test_anything_may_be_asked_for_membership(memory: ForgettableMemory) -> None:
    """`in` answers for any object."""
    assert "a" in memory
    for other in ("A", "", None, 5, ["a"], {"a"}):
        assert other not in memory


def test_returned_values_share_nothing_with_the_memory(
    memory: ForgettableMemory,
) -> None:
    """Changing what was given or returned changes no later answer."""
    given: dict[str, Any] = {"tags": ["x"], "deep": {"n": 1}}
    memory.add(["with tags"], ids=["t"], metadatas=[given])
    given["tags"].append("later")
    where: dict[str, Any] = {"tags": ["x"]}
    (hit,) = memory.search("tags", 5, where=where)
    (record,) = memory.get("t")
    readout, digest, ids = memory.read("tags"), memory.digest(), memory.ids()
    hit.metadata["tags"].append("y")
    record.metadata["deep"]["n"] = 2
    record.embedding[:] = 0.0
    readout.value[:] = 0.0
    readout.masses[:] = 0.0
    ids.clear()
    memory.stats()["settings"]["gamma"] = -1.0
    memory.namespaces().clear()
    (again,) = memory.get("t")
    assert again.metadata == {"tags": ["x"], "deep": {"n": 1}}
    assert again.embedding.any()
    assert memory.read("tags").value.any()
    assert memory.search("tags", 5, where=where)[0].metadata["tags"] == ["x"]
    assert memory.digest() == digest
    assert memory.ids() == ["a", "b", "t"]
    assert memory.stats()["settings"]["gamma"] == 8.0
    assert memory.audit().ok


CLOSED: dict[str, Callable[[ForgettableMemory], object]] = {
    "len": len,
    "in": lambda m: "a" in m,
    "ids": lambda m: m.ids(),
    "namespaces": lambda m: m.namespaces(),
    "add": lambda m: m.add("x"),
    "search": lambda m: m.search("x"),
    "search vector": lambda m: m.search(np.ones(16)),
    "read": lambda m: m.read("x"),
    "get": lambda m: m.get("a"),
    "forget": lambda m: m.forget("a"),
    "prune": lambda m: m.prune(),
    "audit": lambda m: m.audit(),
    "compact": lambda m: m.compact(),
    "digest": lambda m: m.digest(),
    "stats": lambda m: m.stats(),
    "reembed": lambda m: m.reembed(WordEmbedder(name="other")),
}


@pytest.mark.parametrize("in_file", [True, False], ids=["file", "RAM"])
@pytest.mark.parametrize("name", CLOSED)
def test_use_after_close_is_a_clear_error(
    tmp_path: Path, name: str, in_file: bool
) -> None:
    """Closing twice is harmless; whatever is asked afterwards says "closed"."""
    memory = ForgettableMemory(
        tmp_path / "m.fm" if in_file else None, embedder=WordEmbedder()
    )
    memory.add("x", ids=["a"])
    memory.close()
    memory.close()
    with pytest.raises(StoreError, match="closed"):
        CLOSED[name](memory)
    assert "ForgettableMemory" in repr(memory)
