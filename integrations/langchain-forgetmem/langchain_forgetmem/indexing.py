"""Forgetting what came by LangChain's `index()`: from store and record manager.

`index()` keeps a hash of every document in a record manager and never looks into the
store. Forgotten from the store alone, a document leaves its hash behind, and the next
run skips it for ever; forgotten here, both are gone and one proof says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from langchain_core.indexing import RecordManager
from langchain_core.runnables import run_in_executor

from forgetmem import ForgetProof, InvalidInputError, Verdict
from langchain_forgetmem.vectorstores import Filter, ForgetmemVectorStore

#: How a proof names a record manager.
SYSTEM = "langchain record manager"


def forget_indexed(
    store: ForgetmemVectorStore,
    record_manager: RecordManager,
    ids: str | Iterable[str] | None = None,
    *,
    source: str | None = None,
    filter: Filter | None = None,
) -> ForgetProof:
    """Erase documents from a store and its record manager, with one proof of both.

    Exactly one of `ids`, `source` and `filter` says which. The record manager comes
    first, so that a call that was interrupted can be repeated.

    Parameters
    ----------
    store : ForgetmemVectorStore
    record_manager : RecordManager
    ids : str or iterable of str, optional
        Ids of documents, which are the record manager's keys.
    source : str, optional
        Every document of this source. Keys of the record manager's group of that name
        go too, also where the store has no such document any more.
    filter : dict or callable, optional
        As for `ForgetmemVectorStore.forget`.

    Returns
    -------
    ForgetProof
        Of the store; ``elsewhere`` has the keys that the record manager removed, as
        HMACs. A backup or an SQL record manager's file is not looked into.
    """
    meant, group = _chosen(store, ids, source, filter)
    if group is not None:
        keys = record_manager.list_keys(group_ids=[group])
        meant = list(dict.fromkeys([*meant, *keys]))
    known = _known(meant, record_manager.exists(meant))
    if known:
        record_manager.delete_keys(known)
    return store.forget(meant).also_removed(SYSTEM, known)


async def aforget_indexed(
    store: ForgetmemVectorStore,
    record_manager: RecordManager,
    ids: str | Iterable[str] | None = None,
    *,
    source: str | None = None,
    filter: Filter | None = None,
) -> ForgetProof:
    """Do what `forget_indexed` does, with the record manager's async methods."""
    meant, group = await run_in_executor(None, _chosen, store, ids, source, filter)
    if group is not None:
        keys = await record_manager.alist_keys(group_ids=[group])
        meant = list(dict.fromkeys([*meant, *keys]))
    known = _known(meant, await record_manager.aexists(meant))
    if known:
        await record_manager.adelete_keys(known)
    return (await store.aforget(meant)).also_removed(SYSTEM, known)


def verify_indexed(
    store: ForgetmemVectorStore,
    record_manager: RecordManager,
    proof: ForgetProof | str | Path,
    key: bytes | str | Path | None = None,
) -> Verdict:
    """Check a proof against store and record manager as they are now.

    Parameters
    ----------
    store : ForgetmemVectorStore
    record_manager : RecordManager
    proof : ForgetProof, str or Path
    key : bytes, str or Path, optional
        The proof's key, or its file; without it the keys cannot be compared.

    Returns
    -------
    Verdict
        Not ok if the store's part fails, or a removed key is there again.
    """
    return store.verify(proof, key, elsewhere={SYSTEM: record_manager.list_keys()})


async def averify_indexed(
    store: ForgetmemVectorStore,
    record_manager: RecordManager,
    proof: ForgetProof | str | Path,
    key: bytes | str | Path | None = None,
) -> Verdict:
    """Do what `verify_indexed` does, with the record manager's async methods."""
    keys = await record_manager.alist_keys()
    return await store.averify(proof, key, elsewhere={SYSTEM: keys})


def _chosen(
    store: ForgetmemVectorStore,
    ids: str | Iterable[str] | None,
    source: str | None,
    filter: Filter | None,
) -> tuple[list[str], str | None]:
    """Return the ids that are meant, and the group they stand for."""
    if sum(choice is not None for choice in (ids, source, filter)) != 1:
        raise InvalidInputError("give exactly one of ids, source and filter")
    if source is not None:
        return store.list_ids(source=source), source
    if filter is not None:
        return store.list_ids(filter=filter), None
    return [ids] if isinstance(ids, str) else list(dict.fromkeys(ids or [])), None


def _known(ids: list[str], exist: list[bool]) -> list[str]:
    return [id for id, there in zip(ids, exist, strict=True) if there]
