"""`ForgetmemVectorStore`: LangChain's vector store on a `ForgettableMemory`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import run_in_executor
from langchain_core.vectorstores import VectorStore, VectorStoreRetriever

from forgetmem import (
    Embedder,
    ForgetProof,
    ForgettableMemory,
    Hit,
    InvalidInputError,
    Verdict,
)
from langchain_forgetmem.documents import HitDocument, to_document, to_hit_document
from langchain_forgetmem.embeddings import LangChainEmbedder
from langchain_forgetmem.mmr import most_relevant_and_diverse
from langchain_forgetmem.store_retriever import ForgetmemStoreRetriever

#: A condition on the metadata, or a function that tells whether a document is meant.
Filter: TypeAlias = Mapping[str, Any] | Callable[[Document], bool]

#: Stored vectors are float32: digits beyond these are not the documents' own.
_RELEVANCE_DIGITS = 6


class ForgetmemVectorStore(VectorStore):
    """A vector store whose documents can be forgotten exactly, with a proof.

    Parameters
    ----------
    embedding : Embeddings, Embedder, str or Path, optional
        LangChain embeddings, or anything that `ForgettableMemory` takes. By default the
        packaged all-MiniLM-L6-v2. Its name is stored in the file and checked.
    path : str or Path, optional
        One file, created if there is none. Without it the store lives in RAM.
    memory : ForgettableMemory, optional
        A memory to be used instead of opening one.
    source_id_key : str or None
        The metadata key that names the document a chunk came from, for
        ``forget(source=...)``; LangChain's loaders fill in ``"source"``.
    embedding_name : str, optional
        The name of LangChain embeddings that do not tell their model.
    **options : Any
        ``namespace``, ``gamma``, ``link``, ``timeout``, ...; see `ForgettableMemory`.

    Notes
    -----
    Every method may be called from any thread; the async ones run in a thread, so the
    event loop is free. A cancelled call is either not begun or completed.

    A search is exact, and a filter chooses before the ranking. ``k`` of 0 or less
    finds nothing. An unknown option is an error, never a search without it.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> store = ForgetmemVectorStore(DeterministicFakeEmbedding(size=8))
    >>> store.add_texts(["a note", "another"], ids=["a", "b"])
    ['a', 'b']
    >>> proof = store.forget("b")
    >>> store.verify(proof).ok
    True
    >>> [document.id for document in store.similarity_search("another")]
    ['a']
    """

    def __init__(
        self,
        embedding: Embeddings | Embedder | str | Path | None = None,
        path: str | Path | None = None,
        *,
        memory: ForgettableMemory | None = None,
        source_id_key: str | None = "source",
        embedding_name: str | None = None,
        **options: Any,
    ) -> None:
        if memory is not None and (embedding, path, options) != (None, None, {}):
            raise InvalidInputError("give either a memory, or what to open one with")
        self._embeddings = embedding if isinstance(embedding, Embeddings) else None
        if memory is None:
            embedder = (
                LangChainEmbedder(embedding, name=embedding_name)
                if isinstance(embedding, Embeddings)
                else embedding
            )
            memory = ForgettableMemory(path, embedder=embedder, **options)
        self.memory = memory
        self._source_id_key = source_id_key

    @property
    def embeddings(self) -> Embeddings | None:
        """The LangChain embeddings, if the store was made with any."""
        return self._embeddings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the memory; nothing is left to be saved."""
        self.memory.close()

    @classmethod
    def from_texts(
        cls,
        texts: Iterable[str],
        embedding: Embeddings | Embedder | str | Path | None = None,
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Open a store and add texts to it.

        Parameters
        ----------
        texts, metadatas, ids
            As for `add_texts`.
        embedding : Embeddings, optional
        **kwargs : Any
            As for the constructor, for example ``path``.

        Returns
        -------
        ForgetmemVectorStore
        """
        store = cls(embedding, **kwargs)
        try:
            store.add_texts(texts, metadatas, ids=ids)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        embedding: Embeddings | Embedder | str | Path | None = None,
        **kwargs: Any,
    ) -> Self:
        """Open a store and add documents to it.

        Parameters
        ----------
        documents : iterable of Document
        embedding : Embeddings, optional
        **kwargs : Any
            ``ids``, and what the constructor takes, for example ``path``.

        Returns
        -------
        ForgetmemVectorStore
        """
        texts, metadatas, ids = _columns(documents, kwargs.pop("ids", None))
        return cls.from_texts(texts, embedding, metadatas, ids=ids, **kwargs)

    @classmethod
    async def afrom_documents(
        cls,
        documents: Iterable[Document],
        embedding: Embeddings | Embedder | str | Path | None = None,
        **kwargs: Any,
    ) -> Self:
        """Do what `from_documents` does, in a thread."""
        return await run_in_executor(
            None, cls.from_documents, documents, embedding, **kwargs
        )

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add texts, all or none; a document whose id is there is overwritten.

        Parameters
        ----------
        texts : iterable of str
        metadatas : sequence of dict or None, optional
            JSON values that come back exactly; copied.
        ids : sequence of str or None, optional
            None and the empty string get a random id.
        **kwargs : Any
            ``batch_size`` has no effect: a call is one batch.

        Returns
        -------
        list of str
            The ids, in the order of the texts.

        Raises
        ------
        InvalidInputError
            If lengths differ, an id occurs twice or a value cannot be stored; nothing
            was changed. It is a `ValueError`.
        """
        _refuse(kwargs, but={"batch_size"})
        for name, one in (("texts", texts), ("ids", ids), ("metadatas", metadatas)):
            if isinstance(one, str | bytes | Mapping):
                raise InvalidInputError(
                    f"expected {name} as a list, got one {type(one).__name__}"
                )
        given = list(texts)
        values = [{}] * len(given) if metadatas is None else list(metadatas)
        return self.memory.add(
            given,
            ids=None if ids is None else [id or None for id in ids],
            metadatas=values,
            source_ids=[self._source_of(metadata) for metadata in values],
        )

    def add_documents(
        self,
        documents: Iterable[Document],
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents, all or none; one whose id is there is overwritten.

        Parameters
        ----------
        documents : iterable of Document
            They are not changed.
        ids : sequence of str or None, optional
            Instead of the documents' own ids.
        **kwargs : Any
            As for `add_texts`.

        Returns
        -------
        list of str
            The ids, in the order of the documents.
        """
        texts, metadatas, ids = _columns(documents, ids)
        return self.add_texts(texts, metadatas, ids=ids, **kwargs)

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Do what `add_texts` does, in a thread."""
        return await run_in_executor(
            None, self.add_texts, texts, metadatas, ids=ids, **kwargs
        )

    async def aadd_documents(
        self,
        documents: Iterable[Document],
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Do what `add_documents` does, in a thread."""
        return await run_in_executor(None, self.add_documents, documents, ids, **kwargs)

    def list_ids(
        self, *, source: str | None = None, filter: Filter | None = None
    ) -> list[str]:
        """Return the ids of documents, all or those that are meant.

        Parameters
        ----------
        source : str, optional
            Only those with this value under `source_id_key`.
        filter : dict or callable, optional
            As for `similarity_search`.

        Returns
        -------
        list of str
            Ascending.
        """
        if filter is None or isinstance(filter, Mapping):
            return self.memory.ids(source_id=source, where=filter)
        if not callable(filter):
            raise InvalidInputError(
                "expected filter as a dict or a function of a document, got "
                f"{type(filter).__name__}"
            )
        records = self.memory.get(self.memory.ids(source_id=source))
        return [record.id for record in records if filter(to_document(record))]

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents by id.

        Parameters
        ----------
        ids : sequence of str

        Returns
        -------
        list of Document
            Those that are there, each once, in the order given.
        """
        return [to_document(record) for record in self.memory.get(ids)]

    def delete(self, ids: Sequence[str] | None = None, **kwargs: Any) -> bool:
        """Forget documents by id, without keeping the proof.

        Parameters
        ----------
        ids : sequence of str
            Unknown ones are passed over. None is refused: LangChain's base class says
            that it means everything, its in-memory store takes it as nothing.
        **kwargs : Any
            None is known.

        Returns
        -------
        bool
            True.

        Raises
        ------
        InvalidInputError
            If no ids are given; nothing was changed.
        """
        _refuse(kwargs)
        if ids is None:
            raise InvalidInputError(
                "delete() needs ids; to empty the store say "
                "store.delete(store.list_ids())"
            )
        if ids:
            self.forget(ids)
        return True

    def forget(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        source: str | None = None,
        filter: Filter | None = None,
        missing: Literal["raise", "ignore"] = "ignore",
        audit: Literal["rebuild"] | None = None,
    ) -> ForgetProof:
        """Erase documents as if they had never been added, and prove it.

        Exactly one of `ids`, `source` and `filter` says which. A record manager has
        traces of its own: use `forget_indexed` if the documents came by `index()`.

        Parameters
        ----------
        ids : str or iterable of str, optional
        source : str, optional
            Every document with this value under `source_id_key`.
        filter : dict or callable, optional
            As for a search; an empty dict is refused.
        missing : {"ignore", "raise"}
            Whether the proof lists unknown ids, or they are an error.
        audit : "rebuild", optional
            Also compare with an independent rebuild from the survivors.

        Returns
        -------
        ForgetProof
            With its key; save both.
        """
        if filter is not None and not isinstance(filter, Mapping):
            if ids is not None or source is not None:
                raise InvalidInputError("give exactly one of ids, source and filter")
            ids, filter = self.list_ids(filter=filter), None
        return self.memory.forget(
            ids, source_id=source, where=filter, missing=missing, audit=audit
        )

    async def aforget(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        source: str | None = None,
        filter: Filter | None = None,
        missing: Literal["raise", "ignore"] = "ignore",
        audit: Literal["rebuild"] | None = None,
    ) -> ForgetProof:
        """Do what `forget` does, in a thread."""
        return await run_in_executor(
            None,
            self.forget,
            ids,
            source=source,
            filter=filter,
            missing=missing,
            audit=audit,
        )

    def verify(
        self,
        proof: ForgetProof | str | Path,
        key: bytes | str | Path | None = None,
        **kwargs: Any,
    ) -> Verdict:
        """Check a proof against the store as it is now.

        Parameters
        ----------
        proof : ForgetProof, str or Path
            A proof, or its file.
        key : bytes, str or Path, optional
            The proof's key, or its file.
        **kwargs : Any
            ``public_key``, ``elsewhere``; see `ForgettableMemory.verify`.

        Returns
        -------
        Verdict
        """
        return self.memory.verify(proof, key, **kwargs)

    async def averify(
        self,
        proof: ForgetProof | str | Path,
        key: bytes | str | Path | None = None,
        **kwargs: Any,
    ) -> Verdict:
        """Do what `verify` does, in a thread."""
        return await run_in_executor(None, self.verify, proof, key, **kwargs)

    def similarity_search(
        self, query: str, k: int = 4, filter: Filter | None = None, **kwargs: Any
    ) -> list[Document]:
        """Find the documents with the largest cosine.

        Parameters
        ----------
        query : str
        k : int
        filter : dict or callable, optional
            A condition on the metadata, such as ``{"team": "ops"}`` or
            ``{"year": {"$gte": 2020}}`` (see `forgetmem.filters`), or a function that
            tells whether a document is meant; a function is shown every document.
        **kwargs : Any
            ``fetch_k`` has no effect: the search is exact.

        Returns
        -------
        list of Document
            Best first; ties go by id.
        """
        return [to_document(hit) for hit in self._nearest(query, k, filter, kwargs)]

    def similarity_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        filter: Filter | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Find the documents with the largest cosine to a vector.

        Parameters
        ----------
        embedding : list of float
        k, filter, **kwargs
            As for `similarity_search`.

        Returns
        -------
        list of Document
        """
        return [to_document(hit) for hit in self._nearest(embedding, k, filter, kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Find the documents with the largest cosine, with that cosine.

        Parameters
        ----------
        query, k, filter, **kwargs
            As for `similarity_search`.

        Returns
        -------
        list of (Document, float)
            The cosine is in [-1, 1]; larger is better.
        """
        hits = self._nearest(query, k, filter, kwargs)
        return [(to_document(hit), hit.score) for hit in hits]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return _relevance

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Find documents that are relevant and unlike each other.

        Parameters
        ----------
        query : str
        k : int
        fetch_k : int
            How many of the most similar ones are candidates.
        lambda_mult : float
            1 asks for relevance only, 0 for diversity only.
        filter : dict or callable, optional
            As for `similarity_search`.
        **kwargs : Any
            None is known.

        Returns
        -------
        list of Document
        """
        return self._diverse(query, k, fetch_k, lambda_mult, filter, kwargs)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Find documents that are relevant to a vector and unlike each other.

        Parameters
        ----------
        embedding : list of float
        k, fetch_k, lambda_mult, filter, **kwargs
            As for `max_marginal_relevance_search`.

        Returns
        -------
        list of Document
        """
        return self._diverse(embedding, k, fetch_k, lambda_mult, filter, kwargs)

    def hits(
        self,
        query: str | list[float],
        k: int = 4,
        filter: Filter | None = None,
        ranking: Literal["support", "similarity"] = "support",
    ) -> list[Hit]:
        """Find what the memory finds; every search of the store goes through here.

        Parameters
        ----------
        query : str or list of float
            A text, or its vector.
        k, filter
            As for `similarity_search`.
        ranking : {"support", "similarity"}
            See `ForgettableMemory.search`.

        Returns
        -------
        list of Hit
        """
        if isinstance(k, bool) or not isinstance(k, int):
            raise InvalidInputError(f"expected k as an integer, got {k!r}")
        if not isinstance(query, str | Sequence | np.ndarray):
            raise InvalidInputError(
                f"expected a query as a text or a vector, got {type(query).__name__}"
            )
        if k <= 0:
            return []
        if filter is None or filter == {}:
            return self.memory.search(query, k, ranking=ranking)
        if isinstance(filter, Mapping):
            return self.memory.search(query, k, where=filter, ranking=ranking)
        among = self.list_ids(filter=filter)
        return self.memory.search(query, k, among=among, ranking=ranking)

    def support_search(
        self, query: str, k: int = 4, filter: Filter | None = None, **kwargs: Any
    ) -> list[HitDocument]:
        """Find documents so that look-alikes do not crowd the answer.

        Parameters
        ----------
        query, k, filter
            As for `similarity_search`.
        **kwargs : Any
            None is known.

        Returns
        -------
        list of HitDocument
            Best first; ``document.hit`` has score, weight and look-alikes.
        """
        _refuse(kwargs)
        hits = self.hits(query, k, filter, "support")
        return [to_hit_document(hit) for hit in hits]

    async def asupport_search(
        self, query: str, k: int = 4, filter: Filter | None = None, **kwargs: Any
    ) -> list[HitDocument]:
        """Do what `support_search` does, in a thread."""
        return await run_in_executor(
            None, self.support_search, query, k, filter, **kwargs
        )

    def search(self, query: str, search_type: str, **kwargs: Any) -> list[Document]:
        """Find documents by one of the kinds of search.

        Parameters
        ----------
        query : str
        search_type : str
            ``"support"``, or one of LangChain's: ``"similarity"``, ``"mmr"``,
            ``"similarity_score_threshold"``.
        **kwargs : Any
            As that kind of search takes them.

        Returns
        -------
        list of Document
        """
        if search_type == "support":
            return [*self.support_search(query, **kwargs)]
        return super().search(query, search_type, **kwargs)

    async def asearch(
        self, query: str, search_type: str, **kwargs: Any
    ) -> list[Document]:
        """Do what `search` does, in a thread."""
        return await run_in_executor(None, self.search, query, search_type, **kwargs)

    def as_retriever(self, **kwargs: Any) -> VectorStoreRetriever:
        """Return a retriever over this store.

        Parameters
        ----------
        **kwargs : Any
            ``search_type`` as for `search`, ``search_kwargs``, ``tags``.

        Returns
        -------
        VectorStoreRetriever
        """
        tags = kwargs.pop("tags", None) or self._get_retriever_tags()
        return ForgetmemStoreRetriever(vectorstore=self, tags=tags, **kwargs)

    def _source_of(self, metadata: Mapping[str, Any] | None) -> str | None:
        if self._source_id_key is None or not isinstance(metadata, Mapping):
            return None
        source = metadata.get(self._source_id_key)
        return source if isinstance(source, str) else None

    def _nearest(
        self,
        query: str | list[float],
        k: int,
        filter: Filter | None,
        kwargs: Mapping[str, Any],
    ) -> list[Hit]:
        _refuse(kwargs, but={"fetch_k"})
        return self.hits(query, k, filter, "similarity")

    def _diverse(
        self,
        query: str | list[float],
        k: int,
        fetch_k: int,
        lambda_mult: float,
        filter: Filter | None,
        kwargs: Mapping[str, Any],
    ) -> list[Document]:
        _refuse(kwargs)
        if not isinstance(lambda_mult, int | float) or not 0.0 <= lambda_mult <= 1.0:
            raise InvalidInputError(
                f"expected lambda_mult between 0 and 1, got {lambda_mult!r}"
            )
        hits = self.hits(query, fetch_k, filter, "similarity")
        records = {record.id: record for record in self.memory.get(h.id for h in hits)}
        hits = [hit for hit in hits if hit.id in records]
        if not hits:
            return []
        X = np.array([records[hit.id].embedding for hit in hits], dtype=np.float64)
        relevance = [hit.score for hit in hits]
        rows = most_relevant_and_diverse(relevance, X, k, lambda_mult)
        return [to_document(records[hits[row].id]) for row in rows]


def _columns(
    documents: Iterable[Document], ids: Sequence[str | None] | None
) -> tuple[list[str], list[dict[str, Any]], Sequence[str | None]]:
    """Walk through the documents once: they may come from a generator."""
    given = list(documents)
    for place, one in enumerate(given):
        if not isinstance(one, Document):
            raise InvalidInputError(
                f"expected documents, got {type(one).__name__} at position {place}"
            )
    return (
        [document.page_content for document in given],
        [document.metadata for document in given],
        [document.id for document in given] if ids is None else ids,
    )


def _relevance(cosine: float) -> float:
    return min(1.0, max(0.0, round(cosine, _RELEVANCE_DIGITS)))


def _refuse(kwargs: Mapping[str, Any], but: Collection[str] = ()) -> None:
    unknown = sorted(set(kwargs).difference(but))
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
