"""A small deterministic embedder, nodes, and stores on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.vector_stores.forgetmem import ForgetmemVectorStore

DIMENSION = 32


def embed(text: str) -> list[float]:
    """Sum one pseudo-random direction a word; texts that share words are similar."""
    total = np.full(DIMENSION, 0.01)
    for word in text.lower().split():
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
        total = total + np.random.default_rng(seed).standard_normal(DIMENSION)
    values: list[float] = total.tolist()
    return values


class WordEmbedding(BaseEmbedding):
    """LlamaIndex's view of `embed`."""

    model_name: str = "words"

    def _get_text_embedding(self, text: str) -> list[float]:
        return embed(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return embed(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return embed(query)


@pytest.fixture
def embed_model() -> WordEmbedding:
    """The same for every test."""
    return WordEmbedding()


@pytest.fixture
def vector() -> Callable[[str], list[float]]:
    """The function that embeds."""
    return embed


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for one store, in a folder of its own."""
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "notes.forgetmem"


@pytest.fixture
def store(path: Path) -> Iterator[ForgetmemVectorStore]:
    """An empty store on disk."""
    with ForgetmemVectorStore(path) as opened:
        yield opened


@pytest.fixture
def make_node() -> Callable[..., TextNode]:
    """A function that makes a node with its embedding."""

    def make(
        id: str, text: str, source: str | None = None, **metadata: Any
    ) -> TextNode:
        node = TextNode(text=text, id_=id, metadata=metadata, embedding=embed(text))
        if source is not None:
            info = RelatedNodeInfo(node_id=source)
            node.relationships[NodeRelationship.SOURCE] = info
        return node

    return make
