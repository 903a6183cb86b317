"""LangChain's standard suites, offline; none is skipped or overridden."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.vectorstores import VectorStore
from langchain_forgetmem import ForgetmemRetriever, ForgetmemVectorStore
from langchain_tests.integration_tests import (
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)


class TestStoreOnDisk(VectorStoreIntegrationTests):
    """The vector store suite on a file."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[VectorStore]:
        """An empty store."""
        embeddings = self.get_embeddings()
        with ForgetmemVectorStore(embeddings, tmp_path / "x.forgetmem") as store:
            yield store


class TestStoreInRam(VectorStoreIntegrationTests):
    """The vector store suite without a file."""

    @pytest.fixture
    def vectorstore(self) -> Iterator[VectorStore]:
        """An empty store."""
        with ForgetmemVectorStore(self.get_embeddings()) as store:
            yield store


class TestRetriever(RetrieversIntegrationTests):
    """The retriever suite."""

    ranking = "support"

    @property
    def retriever_constructor(self) -> type[ForgetmemRetriever]:
        """Ours."""
        return ForgetmemRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        """A store with enough documents."""
        embeddings = VectorStoreIntegrationTests.get_embeddings()
        texts = [f"document {number}" for number in range(8)]
        store = ForgetmemVectorStore.from_texts(texts, embeddings)
        return {"vectorstore": store, "ranking": self.ranking}

    @property
    def retriever_query_example(self) -> str:
        """Any text."""
        return "document 3"


class TestSimilarityRetriever(TestRetriever):
    """The retriever suite with plain cosine."""

    ranking = "similarity"
