"""Adding: ids, generators, metadata, and what is refused before anything is written."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_forgetmem import ForgetmemVectorStore

TEXTS = ["alpha one", "beta two", "gamma three"]


def documents() -> Iterator[Document]:
    """Yield each document once, as a lazy loader does."""
    yield from (Document(text, metadata={"n": n}) for n, text in enumerate(TEXTS))


def contents(store: ForgetmemVectorStore) -> list[tuple[str, int]]:
    """List texts and numbers of what is stored."""
    found = store.get_by_ids(store.list_ids())
    return sorted((document.page_content, document.metadata["n"]) for document in found)


async def test_generators_are_not_lost(embeddings: Embeddings) -> None:
    """Every way in takes an iterable that can be walked through only once."""
    expected = [(text, n) for n, text in enumerate(TEXTS)]
    numbers = [{"n": n} for n in range(3)]
    stores = [ForgetmemVectorStore(embeddings) for _ in range(4)]
    assert len(stores[0].add_documents(documents())) == 3
    assert len(stores[1].add_texts(iter(TEXTS), numbers)) == 3
    assert len(await stores[2].aadd_documents(documents())) == 3
    assert len(await stores[3].aadd_texts(iter(TEXTS), numbers)) == 3
    stores += [
        ForgetmemVectorStore.from_documents(documents(), embeddings),
        ForgetmemVectorStore.from_texts(iter(TEXTS), embeddings, numbers),
        await ForgetmemVectorStore.afrom_documents(documents(), embeddings),
        await ForgetmemVectorStore.afrom_texts(iter(TEXTS), embeddings, numbers),
    ]
    assert [contents(store) for store in stores] == [expected] * 8
    assert len({store.memory.digest() for store in stores}) == 8  # random ids


async def test_empty_lists_are_fine(
    store: ForgetmemVectorStore, embeddings: Embeddings
) -> None:
    """A loader that found nothing leaves an empty store that works."""
    assert ForgetmemVectorStore.from_documents([], embeddings).list_ids() == []
    assert store.add_texts([]) == []
    assert store.add_documents([]) == []
    assert await store.aadd_documents([]) == []
    assert store.delete([]) is True
    assert store.get_by_ids([]) == []
    assert store.similarity_search("anything") == []
    assert store.max_marginal_relevance_search("anything") == []
    assert store.add_texts(["x"], ids=["x"]) == ["x"]


def test_given_ids_are_kept_and_missing_ones_made(store: ForgetmemVectorStore) -> None:
    """None and the empty string get an id; an argument beats the document's own."""
    ids = store.add_texts(TEXTS, ids=["7", None, ""])
    assert ids[0] == "7"
    assert all(ids) and len(set(ids)) == 3
    given = [Document("x", id=8), Document("y", id="own"), Document("z")]
    ids = store.add_documents(given)
    assert ids[:2] == ["8", "own"]
    assert ids[2]
    assert [document.id for document in given] == ["8", "own", None]
    assert store.add_documents(given[:2], ids=["a", "b"]) == ["a", "b"]
    for odd in ["../x", "ид", "with space", "sha256:00", "x" * 2000]:
        assert store.add_texts(["odd"], ids=[odd]) == [odd]
        assert [found.id for found in store.get_by_ids([odd])] == [odd]


def test_random_ids_tell_nothing_of_the_text(embeddings: Embeddings) -> None:
    """The same text gets another id each time."""
    made = {ForgetmemVectorStore(embeddings).add_texts(["same"])[0] for _ in range(5)}
    assert len(made) == 5


def test_one_id_twice_in_a_call_is_refused(
    store: ForgetmemVectorStore, path: Path
) -> None:
    """Never an orphan: nothing of the call is stored."""
    with pytest.raises(ValueError, match="more than once"):
        store.add_texts(["alpha-unique-phrase", "beta"], ids=["d", "d"])
    assert store.list_ids() == []
    assert all(
        b"alpha-unique-phrase" not in f.read_bytes() for f in path.parent.iterdir()
    )


@pytest.mark.parametrize(
    "options",
    [{"ids": ["a"]}, {"ids": []}, {"metadatas": [{}]}, {"ids": ["a", "b", "c", "d"]}],
)
def test_lengths_must_agree(
    store: ForgetmemVectorStore, options: dict[str, Any]
) -> None:
    """No text is dropped because a list is short."""
    with pytest.raises(ValueError, match="one a text"):
        store.add_texts(TEXTS, **options)
    with pytest.raises(ValueError, match="one a text"):
        ForgetmemVectorStore.from_texts(TEXTS, store.embeddings, **options)
    assert store.list_ids() == []


def test_overwriting_replaces_text_metadata_and_vector(
    store: ForgetmemVectorStore, path: Path
) -> None:
    """The old content is gone from the answers and from the file."""
    store.add_texts(["zq7-old-phrase here"], [{"note": "zq7-old-note"}], ids=["d"])
    store.add_texts(["the new text"], [{"note": "new"}], ids=["d"])
    expected = Document("the new text", id="d", metadata={"note": "new"})
    assert store.get_by_ids(["d"]) == [expected]
    assert store.similarity_search("zq7-old-phrase here", k=5) == [expected]
    assert all(b"zq7-old" not in f.read_bytes() for f in path.parent.iterdir())


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -1.5, 2**80, "", "é\u0000", [], [1, [None]], {"a": {"b": []}}, {}],
)
def test_json_metadata_comes_back_exactly(
    store: ForgetmemVectorStore, value: object
) -> None:
    """With its types, from every read path."""
    metadata = {"key": value, "other": 1}
    store.add_documents([Document("text", metadata=metadata)], ids=["x"])
    for found in (*store.get_by_ids(["x"]), *store.similarity_search("text")):
        assert found.metadata == metadata
        assert type(found.metadata["key"]) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2026, 1, 1),
        np.float32(0.5),
        (1, 2),
        {1: "int key"},
        float("nan"),
        {1, 2},
        b"bytes",
    ],
    ids=lambda value: type(value).__name__,
)
async def test_other_metadata_is_refused_by_name(
    store: ForgetmemVectorStore, value: object
) -> None:
    """Before anything is written: the good document of the call is not stored."""
    bad = [Document("fine"), Document("bad", metadata={"when": value})]
    with pytest.raises((TypeError, ValueError), match="when"):
        store.add_documents(bad)
    with pytest.raises((TypeError, ValueError), match="when"):
        await store.aadd_documents(bad)
    assert store.list_ids() == []


def test_later_changes_of_the_callers_objects_have_no_effect(
    store: ForgetmemVectorStore,
) -> None:
    """What was given in and what came out are copies."""
    metadata = {"tags": ["a"]}
    document = Document("text", metadata=metadata)
    store.add_documents([document], ids=["x"])
    metadata["tags"].append("b")
    document.metadata["new"] = 1
    (found,) = store.get_by_ids(["x"])
    found.metadata["tags"].append("c")
    (hit,) = store.similarity_search("text")
    hit.metadata["tags"].append("d")
    assert store.get_by_ids(["x"])[0].metadata == {"tags": ["a"]}
    assert store.similarity_search("text", filter={"tags": ["a"]})


def test_unknown_options_are_refused(store: ForgetmemVectorStore) -> None:
    """`batch_size`, which `index()` gives, is known; a misspelt one is not."""
    assert len(store.add_documents([Document("x")], batch_size=100)) == 1
    with pytest.raises(TypeError, match="bach_size"):
        store.add_texts(["y"], bach_size=3)
    with pytest.raises(TypeError, match="idz"):
        store.add_documents([Document("y")], idz=["a"])
    assert len(store.list_ids()) == 1


class Failing(Embeddings):
    """Raises, or returns what cannot be stored, for some texts."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed as the texts say."""
        if "short" in texts:
            return [[1.0, 2.0]]
        if "raise" in texts:
            raise RuntimeError("the service is down")
        special = {"zero": [0.0, 0.0], "nan": [float("nan"), 1.0]}
        return [special.get(text, [1.0, float(len(text))]) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Embed one text."""
        return self.embed_documents([text])[0]


@pytest.mark.parametrize("text", ["short", "raise", "zero", "nan"])
def test_failing_embeddings_store_nothing(tmp_path: Path, text: str) -> None:
    """All or nothing, also after a few good ones."""
    with ForgetmemVectorStore(Failing(), tmp_path / "x.forgetmem") as store:
        store.add_texts(["good"], ids=["good"])
        before = store.memory.digest()
        with pytest.raises(RuntimeError):
            store.add_texts(["one", "two", text, "four"])
        assert store.memory.digest() == before
        store.add_texts(["five"])


@pytest.mark.parametrize(
    "given",
    [
        {"texts": "abc"},
        {"texts": ["x", "y"], "ids": "ab"},
        {"texts": ["x"], "metadatas": {"a": 1}},
        {"texts": ["x"], "metadatas": ["a"]},
    ],
    ids=["one text", "one id", "one dict", "no dict"],
)
def test_one_value_in_place_of_a_list_stores_nothing(
    embeddings: Embeddings, given: dict[str, Any]
) -> None:
    """A text is no list of its letters."""
    store = ForgetmemVectorStore(embeddings)
    with pytest.raises(ValueError, match="expected"):
        store.add_texts(**given)
    with pytest.raises(ValueError, match="position 1"):
        store.add_documents([Document("a"), "b"])
    assert store.list_ids() == []
