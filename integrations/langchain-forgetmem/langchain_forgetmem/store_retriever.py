"""What `ForgetmemVectorStore.as_retriever` returns."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStoreRetriever


class ForgetmemStoreRetriever(VectorStoreRetriever):
    """The retriever of `as_retriever`: LangChain's, which knows ``"support"`` too."""

    allowed_search_types: ClassVar[Collection[str]] = (
        *VectorStoreRetriever.allowed_search_types,
        "support",
    )

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        options = self.search_kwargs | kwargs
        return self.vectorstore.search(query, self.search_type, **options)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        **kwargs: Any,
    ) -> list[Document]:
        options = self.search_kwargs | kwargs
        return await self.vectorstore.asearch(query, self.search_type, **options)
