"""Opening: on disk and in RAM, under the right model, and never by pickle."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_forgetmem import ForgetmemVectorStore, LangChainEmbedder

from forgetmem import (
    EmbedderMismatchError,
    ForgettableMemory,
    SettingsMismatchError,
    StoreError,
)


class Named(DeterministicFakeEmbedding):
    """Embeddings that tell their model, as most do."""

    model_name: str


def test_what_was_added_is_there_after_reopening(
    store: ForgetmemVectorStore, embeddings: Embeddings, path: Path
) -> None:
    """Nothing has to be saved."""
    store.add_documents([Document("text", id="x", metadata={"a": [1]})])
    store.close()
    store.close()
    with ForgetmemVectorStore(embeddings, path) as again:
        found = again.similarity_search("text")
        assert found == [Document("text", id="x", metadata={"a": [1]})]


def test_two_stores_on_one_file_see_each_other(
    store: ForgetmemVectorStore, embeddings: Embeddings, path: Path
) -> None:
    """What one forgot, the other does not find."""
    with ForgetmemVectorStore(embeddings, path) as other:
        store.add_texts(["alpha", "beta"], ids=["a", "b"])
        assert len(other.similarity_search("alpha")) == 2
        store.forget("a")
        assert [document.id for document in other.similarity_search("alpha")] == ["b"]


def test_namespaces_are_separate(embeddings: Embeddings, path: Path) -> None:
    """Tenants of one file do not see each other."""
    with (
        ForgetmemVectorStore(embeddings, path, namespace="one") as one,
        ForgetmemVectorStore(embeddings, path, namespace="two") as two,
    ):
        one.add_texts(["alpha"], ids=["a"])
        two.add_texts(["alpha"], ids=["a"])
        one.delete(["a"])
        assert one.list_ids() == []
        assert two.list_ids() == ["a"]


def test_another_model_is_refused(tmp_path: Path) -> None:
    """By the name of the model; the name can also be given."""
    path = tmp_path / "x.forgetmem"
    with ForgetmemVectorStore(Named(size=4, model_name="m-1"), path) as store:
        store.add_texts(["x"])
    with pytest.raises(EmbedderMismatchError, match=r"m-1.*m-2"):
        ForgetmemVectorStore(Named(size=4, model_name="m-2"), path)
    with pytest.raises(EmbedderMismatchError):
        ForgetmemVectorStore(DeterministicFakeEmbedding(size=4), path)
    ForgetmemVectorStore(Named(size=4, model_name="m-1"), path).close()
    name = LangChainEmbedder(Named(size=4, model_name="m-1")).name
    fake = DeterministicFakeEmbedding(size=4)
    with ForgetmemVectorStore(fake, path, embedding_name=name) as store:
        assert len(store.similarity_search("x")) == 1
    with pytest.raises(ValueError, match="dimension"):
        wrong = Named(size=5, model_name="m-1")
        with ForgetmemVectorStore(wrong, path) as store:
            store.add_texts(["y"])


def test_settings_are_passed_on(embeddings: Embeddings, path: Path) -> None:
    """And fixed in the file; an unknown one is an error."""
    with ForgetmemVectorStore(embeddings, path, link=0.8, gamma=4.0) as store:
        assert store.memory.settings.link == 0.8
    with pytest.raises(SettingsMismatchError, match="link"):
        ForgetmemVectorStore(embeddings, path, link=0.9)
    with pytest.raises(TypeError):
        ForgetmemVectorStore(embeddings, distance="cosine")


def test_a_memory_can_be_given(path: Path) -> None:
    """With any embedder that a memory takes."""

    def lengths(texts: list[str]) -> list[list[float]]:
        return [[1.0, float(len(text))] for text in texts]

    memory = ForgettableMemory(path, embedder=lengths)
    with ForgetmemVectorStore(memory=memory) as store:
        store.add_texts(["abc", "defghi"], ids=["a", "b"])
        assert store.embeddings is None
        assert memory.ids() == ["a", "b"]
        assert [d.id for d in store.similarity_search("xyz", k=1)] == ["a"]
    with pytest.raises(ValueError, match="memory"):
        ForgetmemVectorStore(memory=memory, path=path)


class Marker:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_planted_pickles_are_never_read(embeddings: Embeddings, tmp_path: Path) -> None:
    """In place of the store's file, and beside it."""
    marker = tmp_path / "marker"
    planted = pickle.dumps(Marker(marker))
    folder = tmp_path / "store"
    folder.mkdir()
    path = folder / "x.forgetmem"
    path.write_bytes(planted)
    with pytest.raises(StoreError):
        ForgetmemVectorStore(embeddings, path)
    path.unlink()
    for name in ("index.pkl", "x.forgetmem.pkl", "index.faiss"):
        (folder / name).write_bytes(planted)
    with ForgetmemVectorStore(embeddings, path) as store:
        store.add_texts(["x"])
        store.similarity_search("x")
        store.forget(store.list_ids())
    assert not marker.exists()
    pickle.loads(planted)
    assert marker.exists()
