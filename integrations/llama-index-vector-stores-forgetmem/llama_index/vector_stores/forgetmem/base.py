"""`ForgetmemVectorStore`: LlamaIndex's vector store on a `ForgettableMemory`."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.vector_stores.forgetmem.embedder import LlamaIndexEmbedder
from llama_index.vector_stores.forgetmem.filters import matches
from llama_index.vector_stores.forgetmem.mmr import most_relevant_and_diverse
from llama_index.vector_stores.forgetmem.nodes import (
    metadata_of,
    neighbours_of,
    source_of,
    text_of,
    to_node,
    without_relations_to,
)

from forgetmem import (
    ForgetProof,
    ForgettableMemory,
    Hit,
    InvalidInputError,
    Record,
    Verdict,
)

_MMR_THRESHOLD = 0.5
_MMR_PREFETCH_FACTOR = 4.0


class ForgetmemVectorStore(BasePydanticVectorStore):
    """A vector store whose nodes can be forgotten exactly, with a proof.

    Parameters
    ----------
    path : str or Path, optional
        One file, created if there is none. Without it the store lives in RAM.
    memory : ForgettableMemory, optional
        A memory to be used instead of opening one.
    embed_model : BaseEmbedding, optional
        The model that embeds the nodes. Its name is stored in the file, and opening it
        with another one is an error; vectors come from the index all the same.
    **options : Any
        ``namespace``, ``gamma``, ``link``, ``timeout``, ...; see `ForgettableMemory`.

    Notes
    -----
    Every method may be called from any thread; the async ones run in a thread, so the
    event loop is free. A cancelled call is either not begun or completed.

    All writes are on the disk when they return. What is forgotten leaves the store and
    the relations of other nodes to it; an index's document store has traces of its
    own, so forget documents with `forget_document`.

    Examples
    --------
    >>> from llama_index.core.schema import TextNode
    >>> store = ForgetmemVectorStore()
    >>> store.add([TextNode(text="a note", id_="a", embedding=[1.0, 0.0])])
    ['a']
    >>> proof = store.forget("a")
    >>> store.verify(proof).ok
    True
    >>> store.list_ids()
    []
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    path: str | None = None
    namespace: str = "default"

    _memory: ForgettableMemory = PrivateAttr()

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        memory: ForgettableMemory | None = None,
        embed_model: BaseEmbedding | None = None,
        **options: Any,
    ) -> None:
        if memory is None:
            embedder = None if embed_model is None else LlamaIndexEmbedder(embed_model)
            memory = ForgettableMemory(path, embedder=embedder, **options)
        elif (path, embed_model, options) != (None, None, {}):
            raise InvalidInputError("give either a memory, or what to open one with")
        super().__init__(
            stores_text=True,
            path=None if memory.path is None else str(memory.path),
            namespace=memory.namespace,
        )
        self._memory = memory

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class."""
        return "ForgetmemVectorStore"

    @classmethod
    def from_persist_path(
        cls, persist_path: str | Path, fs: fsspec.AbstractFileSystem | None = None
    ) -> Self:
        """Open the file of a store.

        Parameters
        ----------
        persist_path : str or Path
            The file that the store was made with.
        fs : AbstractFileSystem, optional
            The local one.

        Returns
        -------
        ForgetmemVectorStore

        Raises
        ------
        InvalidInputError
            If there is no such file, or `fs` is not local.
        """
        _check_local(fs)
        if not Path(persist_path).exists():
            raise InvalidInputError(f"there is no store at {persist_path}")
        return cls(persist_path)

    @property
    def client(self) -> ForgettableMemory:
        """The memory that holds everything."""
        return self._memory

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
        self._memory.close()

    def persist(
        self, persist_path: str = "", fs: fsspec.AbstractFileSystem | None = None
    ) -> None:
        """Do nothing: everything is in the store's own file already.

        A copy at `persist_path` would outlive what is forgotten.

        Parameters
        ----------
        persist_path : str
            Not used.
        fs : AbstractFileSystem, optional
            Not used.

        Warns
        -----
        UserWarning
            If the store lives in RAM and will be gone.
        """
        if self.path is None:
            warnings.warn(
                "this ForgetmemVectorStore lives in RAM and is not persisted; give it "
                "a path to keep it",
                stacklevel=2,
            )

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes with their embeddings, all or none; a known id is overwritten.

        Parameters
        ----------
        nodes : sequence of BaseNode
            Metadata is JSON and comes back exactly; nodes are not changed.
        **kwargs : Any
            Not used: an index gives its transformations' options to the store too.

        Returns
        -------
        list of str
            The ids, in the order of the nodes.

        Raises
        ------
        InvalidInputError
            If an id occurs twice or a value cannot be stored; nothing was changed. It
            is a `ValueError`.
        """
        given = list(nodes)
        for place, node in enumerate(given):
            if not isinstance(node, BaseNode):
                raise InvalidInputError(
                    f"expected nodes, got {type(node).__name__} at position {place}"
                )
        return self._memory.add(
            [text_of(node) for node in given],
            ids=[node.node_id for node in given],
            metadatas=[metadata_of(node) for node in given],
            source_ids=[node.ref_doc_id for node in given],
            embeddings=[node.get_embedding() for node in given],
        )

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Do what `add` does, in a thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    def list_ids(
        self, *, ref_doc_id: str | None = None, filters: MetadataFilters | None = None
    ) -> list[str]:
        """Return the ids of nodes, all or those that are meant.

        Parameters
        ----------
        ref_doc_id : str, optional
            Only nodes of this document.
        filters : MetadataFilters, optional
            Only nodes that match.

        Returns
        -------
        list of str
            Ascending.
        """
        return self._memory.ids(source_id=ref_doc_id, where=_where(filters))

    def list_ref_doc_ids(self) -> list[str]:
        """Return the ids of the documents that nodes came from.

        Returns
        -------
        list of str
            Ascending.
        """
        records = self._memory.get(self._memory.ids())
        return sorted({one.source_id for one in records if one.source_id is not None})

    def get_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[BaseNode]:
        """Return nodes, without their embeddings.

        Parameters
        ----------
        node_ids : list of str, optional
            By default all, by id.
        filters : MetadataFilters, optional
            Only nodes that match.

        Returns
        -------
        list of BaseNode
            Those that are there, each once, in the order given.
        """
        return [_node(record) for record in self._records(node_ids, filters)]

    async def aget_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[BaseNode]:
        """Do what `get_nodes` does, in a thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Forget all nodes of a document, without keeping the proof.

        Parameters
        ----------
        ref_doc_id : str
            If no node came from it, nothing happens.
        **delete_kwargs : Any
            None is known.
        """
        _refuse(delete_kwargs)
        self.forget(ref_doc_id=ref_doc_id)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Do what `delete` does, in a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Forget nodes, without keeping the proof.

        Parameters
        ----------
        node_ids : list of str, optional
            Unknown ones are passed over.
        filters : MetadataFilters, optional
            Only nodes that match; with `node_ids`, only those of them.
        **delete_kwargs : Any
            None is known.

        Raises
        ------
        InvalidInputError
            If neither says which nodes; to empty the store, use `clear`.
        """
        _refuse(delete_kwargs)
        if node_ids is None and _where(filters) is None:
            raise InvalidInputError(
                "delete_nodes() needs node_ids or filters; to empty the store use "
                "clear()"
            )
        ids = [record.id for record in self._records(node_ids, filters)]
        if ids:
            self.forget(ids)

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Do what `delete_nodes` does, in a thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    def clear(self) -> None:
        """Forget everything, without keeping the proof."""
        if ids := self._memory.ids():
            self._memory.forget(ids, missing="ignore")

    async def aclear(self) -> None:
        """Do what `clear` does, in a thread."""
        await asyncio.to_thread(self.clear)

    def forget(
        self,
        node_ids: str | Iterable[str] | None = None,
        *,
        ref_doc_id: str | None = None,
        filters: MetadataFilters | None = None,
        missing: Literal["raise", "ignore"] = "ignore",
        audit: Literal["rebuild"] | None = None,
    ) -> ForgetProof:
        """Erase nodes as if they had never been added, and prove it.

        Exactly one of `node_ids`, `ref_doc_id` and `filters` says which. Relations of
        the nodes that are left to a forgotten one are dropped with it: LlamaIndex
        keeps a copy of metadata and a hash of the text in them. An index's document
        store is not touched: for documents of an index use `forget_document`.

        Parameters
        ----------
        node_ids : str or iterable of str, optional
        ref_doc_id : str, optional
            Every node of this document.
        filters : MetadataFilters, optional
            Every node that matches; must not be empty.
        missing : {"ignore", "raise"}
            Whether the proof lists unknown ids, or they are an error.
        audit : "rebuild", optional
            Also compare with an independent rebuild from the survivors.

        Returns
        -------
        ForgetProof
            With its key; save both.
        """
        if filters is not None and _where(filters) is None:
            raise InvalidInputError(
                "empty filters would forget everything; use clear()"
            )
        if node_ids is not None and not isinstance(node_ids, str):
            node_ids = list(node_ids)
        self._drop_relations_to(
            node_ids
            if node_ids is not None
            else self.list_ids(ref_doc_id=ref_doc_id, filters=filters)
        )
        return self._memory.forget(
            node_ids,
            source_id=ref_doc_id,
            where=_where(filters),
            missing=missing,
            audit=audit,
        )

    async def aforget(
        self,
        node_ids: str | Iterable[str] | None = None,
        *,
        ref_doc_id: str | None = None,
        filters: MetadataFilters | None = None,
        missing: Literal["raise", "ignore"] = "ignore",
        audit: Literal["rebuild"] | None = None,
    ) -> ForgetProof:
        """Do what `forget` does, in a thread."""
        return await asyncio.to_thread(
            self.forget,
            node_ids,
            ref_doc_id=ref_doc_id,
            filters=filters,
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
        return self._memory.verify(proof, key, **kwargs)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the nodes that answer a query.

        Parameters
        ----------
        query : VectorStoreQuery
            With an embedding, in mode ``default`` or ``mmr``. Filters, ``doc_ids`` and
            ``node_ids`` choose before the ranking; an empty list is no restriction.
        **kwargs : Any
            ``ranking="support"`` ranks so that look-alikes do not crowd the answer, see
            `ForgettableMemory.search`. For ``mmr``: ``mmr_threshold`` (before the
            query's own; 1 asks for relevance only, 0 for diversity only; default 0.5),
            and how many candidates there are, as ``mmr_prefetch_k`` or as a multiple
            ``mmr_prefetch_factor`` (4) of the answers.

        Returns
        -------
        VectorStoreQueryResult
            Nodes, cosines and ids, best first; ties go by id.

        Raises
        ------
        InvalidInputError
            For another mode, or a query without an embedding.
        """
        options = {
            "ranking": "similarity",
            "mmr_threshold": None,
            "mmr_prefetch_k": None,
            "mmr_prefetch_factor": _MMR_PREFETCH_FACTOR,
        }
        _refuse(kwargs, but=options)
        options |= kwargs
        if query.query_embedding is None:
            raise InvalidInputError("a query needs a query_embedding")
        if query.mode == VectorStoreQueryMode.DEFAULT:
            return _result(self._find(query, query.similarity_top_k, options))
        if query.mode == VectorStoreQueryMode.MMR:
            return _result(self._diverse(query, options))
        raise InvalidInputError(
            f"the query mode {query.mode.value!r} is not supported; use 'default' or "
            "'mmr'"
        )

    async def aquery(
        self, query: VectorStoreQuery, **kwargs: Any
    ) -> VectorStoreQueryResult:
        """Do what `query` does, in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    def _records(
        self, node_ids: list[str] | None, filters: MetadataFilters | None
    ) -> list[Record]:
        if node_ids is None:
            return self._memory.get(self.list_ids(filters=filters))
        where = _where(filters)
        records = self._memory.get(node_ids)
        return [one for one in records if where is None or where(one.metadata)]

    def _find(
        self, query: VectorStoreQuery, k: int, options: Mapping[str, Any]
    ) -> list[Hit]:
        if k <= 0:
            return []
        return self._memory.search(
            np.asarray(query.query_embedding, dtype=np.float64),
            k,
            where=_where(query.filters, query.doc_ids),
            among=query.node_ids or None,
            ranking=options["ranking"],
        )

    def _diverse(
        self, query: VectorStoreQuery, options: Mapping[str, Any]
    ) -> list[Hit]:
        k = query.similarity_top_k
        prefetch = options["mmr_prefetch_k"]
        if prefetch is None:
            prefetch = int(k * options["mmr_prefetch_factor"])
        threshold = options["mmr_threshold"]
        if threshold is None:
            threshold = query.mmr_threshold
        if threshold is None:
            threshold = _MMR_THRESHOLD
        if not isinstance(threshold, int | float) or not 0.0 <= threshold <= 1.0:
            raise InvalidInputError(
                f"expected mmr_threshold between 0 and 1, got {threshold!r}"
            )
        hits = self._find(query, prefetch, options)
        records = {one.id: one for one in self._memory.get(hit.id for hit in hits)}
        hits = [hit for hit in hits if hit.id in records]
        if not hits:
            return []
        X = np.array([records[hit.id].embedding for hit in hits], dtype=np.float64)
        relevance = [hit.score for hit in hits]
        rows = most_relevant_and_diverse(relevance, X, k, threshold)
        return [hits[row] for row in rows]

    def _drop_relations_to(self, ids: str | list[str]) -> None:
        forgotten = self._memory.get(ids)
        gone = {record.id for record in forgotten}
        near: set[str] = set()
        near.update(*(neighbours_of(record.metadata) for record in forgotten))
        left = [
            record
            for record in self._memory.get(sorted(near - gone))
            if neighbours_of(record.metadata) & gone
        ]
        if left:
            self._memory.add(
                [record.text for record in left],
                ids=[record.id for record in left],
                metadatas=[without_relations_to(one.metadata, gone) for one in left],
                source_ids=[record.source_id for record in left],
                embeddings=np.array([record.embedding for record in left]),
            )


def _where(
    filters: MetadataFilters | None, doc_ids: Collection[str] | None = None
) -> Callable[[Mapping[str, Any]], bool] | None:
    documents = set(doc_ids or ())
    if filters is not None and not isinstance(filters, MetadataFilters):
        raise InvalidInputError(
            f"expected filters as MetadataFilters, got {type(filters).__name__}"
        )
    if (filters is None or not filters.filters) and not documents:
        return None

    def is_meant(metadata: Mapping[str, Any]) -> bool:
        if documents and source_of(metadata) not in documents:
            return False
        return filters is None or matches(filters, metadata)

    return is_meant


def _node(found: Record | Hit) -> BaseNode:
    return to_node(found.id, found.text, found.metadata)


def _result(hits: list[Hit]) -> VectorStoreQueryResult:
    return VectorStoreQueryResult(
        nodes=[_node(hit) for hit in hits],
        similarities=[hit.score for hit in hits],
        ids=[hit.id for hit in hits],
    )


def _check_local(fs: fsspec.AbstractFileSystem | None) -> None:
    if fs is not None and not isinstance(fs, LocalFileSystem):
        raise InvalidInputError("a ForgetmemVectorStore lives on a local file system")


def _refuse(kwargs: Mapping[str, Any], but: Collection[str] = ()) -> None:
    unknown = sorted(set(kwargs).difference(but))
    if unknown:
        raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
