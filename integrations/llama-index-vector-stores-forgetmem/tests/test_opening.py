"""Opening: on disk and in RAM, under the right model, as a package of LlamaIndex's."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Callable
from pathlib import Path

import fsspec
import llama_index.vector_stores.forgetmem as package
import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.vector_stores.forgetmem import (
    ForgetmemVectorStore,
    LlamaIndexEmbedder,
)

from forgetmem import (
    EmbedderMismatchError,
    ForgettableMemory,
    SettingsMismatchError,
)

Make = Callable[..., TextNode]

ROOT = Path(__file__).parent.parent


def test_package_has_the_shape_that_llama_hub_expects() -> None:
    """A namespace package, a declared import path, types, one version."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hub = settings["tool"]["llamahub"]
    assert hub["import_path"] == package.__name__
    assert set(hub["class_authors"]) == {"ForgetmemVectorStore"}
    folder = ROOT / "llama_index"
    assert not (folder / "__init__.py").exists()
    assert not (folder / "vector_stores" / "__init__.py").exists()
    assert (folder / "vector_stores" / "forgetmem" / "py.typed").exists()
    for name in ("llama_index", "llama_index.vector_stores"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is None
    assert issubclass(ForgetmemVectorStore, BasePydanticVectorStore)
    assert ForgetmemVectorStore.class_name() == "ForgetmemVectorStore"
    assert ForgetmemVectorStore().stores_text is True
    assert ForgetmemVectorStore().is_embedding_query is True


def test_what_was_added_is_there_after_reopening(
    store: ForgetmemVectorStore, make_node: Make, path: Path
) -> None:
    """Nothing has to be saved; a missing file is an error where one is expected."""
    store.add([make_node("a", "text")])
    store.close()
    store.close()
    for again in (
        ForgetmemVectorStore(path),
        ForgetmemVectorStore.from_persist_path(str(path)),
        ForgetmemVectorStore.from_persist_path(path, fs=fsspec.filesystem("file")),
    ):
        assert again.list_ids() == ["a"]
        assert again.path == str(path)
        again.close()
    with pytest.raises(ValueError, match="no store"):
        ForgetmemVectorStore.from_persist_path(path.with_name("other"))
    with pytest.raises(ValueError, match="local"):
        ForgetmemVectorStore.from_persist_path(path, fs=fsspec.filesystem("memory"))


def test_two_stores_on_one_file_see_each_other(
    store: ForgetmemVectorStore, make_node: Make, path: Path
) -> None:
    """What one forgot, the other does not find; namespaces are separate."""
    with (
        ForgetmemVectorStore(path) as other,
        ForgetmemVectorStore(path, namespace="tenant") as tenant,
    ):
        store.add([make_node("a", "alpha"), make_node("b", "beta")])
        tenant.add([make_node("a", "alpha")])
        assert other.list_ids() == ["a", "b"]
        store.forget("a")
        assert other.list_ids() == ["b"]
        assert tenant.list_ids() == ["a"]
        assert tenant.namespace == "tenant"


def test_another_model_is_refused(
    embed_model: BaseEmbedding, make_node: Make, path: Path
) -> None:
    """If the store is told which one embeds the nodes."""
    with ForgetmemVectorStore(path, embed_model=embed_model) as store:
        store.add([make_node("a", "alpha one")])
        assert [hit.id for hit in store.client.search("alpha one")] == ["a"]
    other = embed_model.model_copy(update={"model_name": "other"})
    with pytest.raises(EmbedderMismatchError, match=r"words.*other"):
        ForgetmemVectorStore(path, embed_model=other)
    ForgetmemVectorStore(path).close()
    embedder = LlamaIndexEmbedder(embed_model)
    assert embedder.dimension == 32
    assert embedder.encode(["x", "y"]).shape == (2, 32)


def test_settings_and_memories_are_passed_on(path: Path) -> None:
    """Settings are fixed in the file; an unknown one is an error."""
    with ForgetmemVectorStore(path, link=0.8) as store:
        assert store.client.settings.link == 0.8
    with pytest.raises(SettingsMismatchError, match="link"):
        ForgetmemVectorStore(path, link=0.9)
    with pytest.raises(TypeError):
        ForgetmemVectorStore(path, distance="cosine")
    with ForgettableMemory(path) as memory:
        store = ForgetmemVectorStore(memory=memory)
        assert store.client is memory
        assert store.path == str(path)
        with pytest.raises(ValueError, match="memory"):
            ForgetmemVectorStore(path, memory=memory)
