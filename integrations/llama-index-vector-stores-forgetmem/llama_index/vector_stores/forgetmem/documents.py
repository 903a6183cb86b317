"""Forgetting a document of an index: from vector store and document store together.

An index keeps a hash of every document in its document store, also where the vector
store holds the text; nodes that refer to other objects or images are kept there as a
whole. Deleted from the vector store alone, a document leaves them behind, they are
persisted, and `refresh_ref_docs` never adds the document again.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from llama_index.core.indices.vector_store.base import VectorStoreIndex
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.storage.index_store import SimpleIndexStore
from llama_index.vector_stores.forgetmem.base import ForgetmemVectorStore

from forgetmem import ForgetProof, InvalidInputError, Verdict

#: How a proof names a document store.
SYSTEM = "llama_index document store"


def forget_document(
    index: VectorStoreIndex,
    ref_doc_id: str,
    *,
    persist_dir: str | Path | None = None,
) -> ForgetProof:
    """Erase a document and its nodes from an index, with one proof of all its stores.

    The document store comes first, so that a call that was interrupted can be
    repeated.

    Parameters
    ----------
    index : VectorStoreIndex
        Over a `ForgetmemVectorStore`.
    ref_doc_id : str
        If it is unknown, the proof counts nothing.
    persist_dir : str or Path, optional
        Where the storage context is persisted; its files are written again, without
        the document.

    Returns
    -------
    ForgetProof
        Of the vector store; ``elsewhere`` has the ids that the document store removed,
        as HMACs. Caches of an ingestion pipeline and backups are not looked into.

    Raises
    ------
    InvalidInputError
        If the index is over another vector store, the id is no string or empty, or
        the folder cannot be written or holds an index that this one was not
        loaded with: it would be lost. Nothing was forgotten.
    """
    store = _store_of(index)
    if not isinstance(ref_doc_id, str) or not ref_doc_id:
        raise InvalidInputError("expected the id of a document as a non-empty str")
    if persist_dir is not None:
        _check_folder(index, Path(persist_dir))
    node_ids = set(store.list_ids(ref_doc_id=ref_doc_id))
    removed = _forget_in_docstore(index.docstore, ref_doc_id, node_ids)
    struct = index.index_struct
    for text_id, node_id in list(struct.nodes_dict.items()):
        if node_ids.intersection((text_id, node_id)):
            struct.delete(text_id)
    index.storage_context.index_store.add_index_struct(struct)
    proof = store.forget(ref_doc_id=ref_doc_id)
    if persist_dir is not None:
        index.storage_context.persist(persist_dir)
    return proof.also_removed(SYSTEM, removed)


async def aforget_document(
    index: VectorStoreIndex,
    ref_doc_id: str,
    *,
    persist_dir: str | Path | None = None,
) -> ForgetProof:
    """Do what `forget_document` does, in a thread."""
    return await asyncio.to_thread(
        forget_document, index, ref_doc_id, persist_dir=persist_dir
    )


def verify_document(
    index: VectorStoreIndex,
    proof: ForgetProof | str | Path,
    key: bytes | str | Path | None = None,
) -> Verdict:
    """Check a proof against the index's vector store and document store.

    Parameters
    ----------
    index : VectorStoreIndex
        Freshly loaded from its folder, if the folder is what is to be checked: only
        the document store in hand is looked at.
    proof : ForgetProof, str or Path
    key : bytes, str or Path, optional
        The proof's key, or its file; without it the ids cannot be compared.

    Returns
    -------
    Verdict
        Not ok if the vector store's part fails, or the document store has an id again.
    """
    names = _names(index.docstore)
    return _store_of(index).verify(proof, key, elsewhere={SYSTEM: names})


async def averify_document(
    index: VectorStoreIndex,
    proof: ForgetProof | str | Path,
    key: bytes | str | Path | None = None,
) -> Verdict:
    """Do what `verify_document` does, in a thread."""
    return await asyncio.to_thread(verify_document, index, proof, key)


def _store_of(index: VectorStoreIndex) -> ForgetmemVectorStore:
    store = index.vector_store
    if not isinstance(store, ForgetmemVectorStore):
        raise InvalidInputError(
            "expected an index over a ForgetmemVectorStore, got one over a "
            f"{type(store).__name__}"
        )
    return store


def _check_folder(index: VectorStoreIndex, folder: Path) -> None:
    """Refuse to write over what the index in hand does not hold."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(
            f"{folder.name} is no folder that can be made: {error.strerror}"
        ) from error
    if not os.access(folder, os.W_OK):
        raise InvalidInputError(f"the folder {folder.name} cannot be written")
    if not (folder / "index_store.json").exists():
        return
    stored = SimpleIndexStore.from_persist_dir(str(folder)).index_structs()
    held = index.storage_context.index_store.index_structs()
    unknown = {one.index_id for one in stored} - {one.index_id for one in held}
    if unknown:
        raise InvalidInputError(
            f"the folder {folder.name} holds {len(unknown)} indexes that this one was "
            "not loaded with, and they and their documents would be lost; load it with "
            "load_index_from_storage first. Nothing was forgotten"
        )


def _names(docstore: BaseDocumentStore) -> set[str]:
    return {
        *docstore.docs,
        *(docstore.get_all_ref_doc_info() or {}),
        *docstore.get_all_document_hashes().values(),
    }


def _forget_in_docstore(
    docstore: BaseDocumentStore, ref_doc_id: str, node_ids: set[str]
) -> list[str]:
    """Remove every trace of a document; add its nodes there to `node_ids`."""
    info = docstore.get_ref_doc_info(ref_doc_id)
    if info is not None:
        node_ids.update(info.node_ids)
    names = [ref_doc_id, *sorted(node_ids)]
    known = [
        name
        for name in names
        if docstore.document_exists(name)
        or docstore.get_document_hash(name) is not None
        or docstore.get_ref_doc_info(name) is not None
    ]
    docstore.delete_ref_doc(ref_doc_id, raise_error=False)
    for name in known:
        docstore.delete_document(name, raise_error=False)
    return known
