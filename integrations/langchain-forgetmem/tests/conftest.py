"""A small deterministic embedder, and stores on disk and in RAM."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_forgetmem import ForgetmemVectorStore


class WordEmbeddings(Embeddings):
    """Sums one pseudo-random direction a word; texts that share words are similar."""

    def __init__(self, model: str = "words", dimension: int = 32) -> None:
        self.model = model
        self.dimension = dimension

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts one by one."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Embed one text."""
        total = np.full(self.dimension, 0.01)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
            total = total + np.random.default_rng(seed).standard_normal(self.dimension)
        values: list[float] = total.tolist()
        return values


@pytest.fixture
def embeddings() -> WordEmbeddings:
    """The same for every test."""
    return WordEmbeddings()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for one store, in a folder of its own."""
    folder = tmp_path / "store"
    folder.mkdir()
    return folder / "notes.forgetmem"


@pytest.fixture
def store(embeddings: WordEmbeddings, path: Path) -> Iterator[ForgetmemVectorStore]:
    """An empty store on disk."""
    with ForgetmemVectorStore(embeddings, path) as opened:
        yield opened
