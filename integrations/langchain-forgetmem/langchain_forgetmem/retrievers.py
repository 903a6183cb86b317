"""`ForgetmemRetriever`: answers in which look-alikes do not crowd each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor

from langchain_forgetmem.documents import to_hit_document
from langchain_forgetmem.vectorstores import ForgetmemVectorStore


class ForgetmemRetriever(BaseRetriever):
    """Retrieve from a `ForgetmemVectorStore`, by support or by similarity.

    Attributes
    ----------
    vectorstore : ForgetmemVectorStore
    k : int
        How many documents at most.
    ranking : {"support", "similarity"}
        See `ForgettableMemory.search`.
    filter : dict or callable, optional
        As for `ForgetmemVectorStore.similarity_search`.

    Notes
    -----
    ``k``, ``ranking`` and ``filter`` can also be given to `invoke`. What comes back
    are `HitDocument`: the stored metadata, and score, weight and look-alikes under
    ``document.hit``.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> store = ForgetmemVectorStore(DeterministicFakeEmbedding(size=8))
    >>> ids = store.add_texts(["a note", "another"])
    >>> retriever = ForgetmemRetriever(vectorstore=store, k=1)
    >>> [document] = retriever.invoke("another")
    >>> document.page_content, round(document.hit.score, 3), document.hit.similar
    ('another', 1.0, ())
    """

    vectorstore: ForgetmemVectorStore
    k: int = 4
    ranking: Literal["support", "similarity"] = "support"
    filter: dict[str, Any] | Callable[[Document], bool] | None = None

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        **kwargs: Any,
    ) -> list[Document]:
        return self._retrieve(query, **kwargs)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        **kwargs: Any,
    ) -> list[Document]:
        return await run_in_executor(None, self._retrieve, query, **kwargs)

    def _retrieve(self, query: str, **kwargs: Any) -> list[Document]:
        options = {"k": self.k, "ranking": self.ranking, "filter": self.filter}
        unknown = sorted(set(kwargs).difference(options))
        if unknown:
            raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
        hits = self.vectorstore.hits(query, **(options | kwargs))
        return [to_hit_document(hit) for hit in hits]
