"""`index()` with a record manager, and forgetting from both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import (
    IndexingResult,
    InMemoryRecordManager,
    aindex,
    index,
)
from langchain_forgetmem import (
    ForgetmemVectorStore,
    aforget_indexed,
    averify_indexed,
    forget_indexed,
    verify_indexed,
)


def documents(*sources: str, note: str = "") -> list[Document]:
    """Make two documents a source."""
    return [
        Document(f"page {page} of {source} {note}".strip(), metadata={"source": source})
        for source in sources
        for page in (1, 2)
    ]


@pytest.fixture
def manager() -> InMemoryRecordManager:
    """Make an empty record manager."""
    return InMemoryRecordManager("notes")


def run(
    found: list[Document],
    manager: InMemoryRecordManager,
    store: ForgetmemVectorStore,
    cleanup: Any = None,
) -> IndexingResult:
    """Index with a strong hash."""
    return index(
        found,
        manager,
        store,
        cleanup=cleanup,
        source_id_key="source",
        key_encoder="sha256",
    )


def counts(result: IndexingResult) -> tuple[int, int, int]:
    """Return how many were added, skipped and deleted."""
    return result["num_added"], result["num_skipped"], result["num_deleted"]


def texts(store: ForgetmemVectorStore) -> set[str]:
    """Return all texts."""
    found = store.get_by_ids(store.list_ids())
    return {document.page_content for document in found}


@pytest.mark.parametrize(
    ("cleanup", "deleted", "left"),
    [
        (None, 0, {"a", "b", "a new"}),
        ("incremental", 2, {"b", "a new"}),
        ("scoped_full", 2, {"b", "a new"}),
        ("full", 4, {"a new"}),
    ],
)
def test_every_cleanup_mode_works(
    store: ForgetmemVectorStore,
    manager: InMemoryRecordManager,
    cleanup: Any,
    deleted: int,
    left: set[str],
) -> None:
    """Added, skipped and deleted as LangChain promises; keys are the store's ids."""
    assert counts(run(documents("a", "b"), manager, store, cleanup)) == (4, 0, 0)
    assert counts(run(documents("a", "b"), manager, store, cleanup)) == (0, 4, 0)
    changed = documents("a", note="new")
    assert counts(run(changed, manager, store, cleanup)) == (2, 0, deleted)
    expected = {f"page {page} of {name}" for page in (1, 2) for name in left}
    assert texts(store) == expected
    assert sorted(manager.list_keys()) == store.list_ids()


async def test_async_indexing_is_the_same(
    store: ForgetmemVectorStore, manager: InMemoryRecordManager
) -> None:
    """`aindex` adds, skips and cleans up."""
    options: dict[str, Any] = {"source_id_key": "source", "key_encoder": "sha256"}
    for cleanup, expected in ((None, (4, 0, 0)), ("full", (0, 4, 0))):
        result = await aindex(
            documents("a", "b"), manager, store, cleanup=cleanup, **options
        )
        assert counts(result) == expected
    result = await aindex([], manager, store, cleanup="full", **options)
    assert counts(result) == (0, 0, 4)
    assert store.list_ids() == []


def test_cleanup_passes_over_what_is_gone_already(
    store: ForgetmemVectorStore, manager: InMemoryRecordManager
) -> None:
    """A direct forget does not break the next clean-up."""
    run(documents("a", "b"), manager, store)
    store.forget(store.list_ids()[0])
    assert counts(run([], manager, store, "full")) == (0, 0, 4)
    assert store.list_ids() == []


def test_forgotten_from_both_can_be_indexed_again(
    store: ForgetmemVectorStore, manager: InMemoryRecordManager, tmp_path: Path
) -> None:
    """No key is left that would make the next run skip the document for ever."""
    run(documents("a", "b"), manager, store)
    keys = set(store.list_ids(source="a"))
    proof = forget_indexed(store, manager, source="a")
    assert proof.forgotten == 2
    assert [len(one.removed) for one in proof.elsewhere] == [2]
    assert not keys.intersection(manager.list_keys())
    assert not keys.intersection(store.list_ids())
    saved, key = proof.save(tmp_path / "proof.json")
    content = saved.read_text("utf-8")
    assert not any(id in content for id in keys)
    assert verify_indexed(store, manager, saved).ok
    assert counts(run(documents("a", "b"), manager, store)) == (2, 2, 0)
    verdict = verify_indexed(store, manager, saved, key)
    assert not verdict.ok
    assert any("record manager" in reason for reason in verdict.reasons)


def test_key_left_in_the_record_manager_fails_the_proof(
    store: ForgetmemVectorStore, manager: InMemoryRecordManager
) -> None:
    """The store alone is not enough."""
    run(documents("a"), manager, store)
    id = store.list_ids()[0]
    proof = forget_indexed(store, manager, id)
    assert verify_indexed(store, manager, proof).ok
    manager.update([id])
    assert store.verify(proof).ok
    assert not verify_indexed(store, manager, proof).ok


def test_keys_without_a_document_go_with_their_source(
    store: ForgetmemVectorStore, manager: InMemoryRecordManager
) -> None:
    """An earlier direct forget is completed."""
    run(documents("a", "b"), manager, store)
    store.forget(source="a")
    assert len(manager.list_keys(group_ids=["a"])) == 2
    assert counts(run(documents("a"), manager, store)) == (0, 2, 0)
    proof = forget_indexed(store, manager, source="a")
    assert (proof.forgotten, proof.not_found) == (0, 2)
    assert manager.list_keys(group_ids=["a"]) == []
    assert counts(run(documents("a"), manager, store)) == (2, 0, 0)


async def test_ids_and_filters_choose_too(
    store: ForgetmemVectorStore, manager: InMemoryRecordManager
) -> None:
    """Sync and async, by dict and by function; exactly one choice."""
    run(documents("a", "b", "c"), manager, store)
    first = store.list_ids(source="a")
    assert forget_indexed(store, manager, first).forgotten == 2
    proof = await aforget_indexed(store, manager, filter={"source": "b"})
    assert proof.forgotten == 2
    assert (await averify_indexed(store, manager, proof)).ok
    proof = await aforget_indexed(
        store, manager, filter=lambda document: "page 1" in document.page_content
    )
    assert proof.forgotten == 1
    assert (await aforget_indexed(store, manager, source="c")).forgotten == 1
    assert manager.list_keys() == []
    assert forget_indexed(store, manager, []).forgotten == 0
    for wrong in ({}, {"ids": [], "source": "a"}, {"filter": {}}):
        with pytest.raises(ValueError):
            forget_indexed(store, manager, **wrong)


def test_interrupted_forget_can_be_repeated(
    store: ForgetmemVectorStore,
    manager: InMemoryRecordManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The record manager comes first, so the store still says what is meant."""
    run(documents("a", "b"), manager, store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "forget", lambda ids: (_ for _ in ()).throw(OSError()))
        with pytest.raises(OSError):
            forget_indexed(store, manager, source="a")
    assert len(store.list_ids(source="a")) == 2
    assert forget_indexed(store, manager, source="a").forgotten == 2
    assert manager.list_keys(group_ids=["a"]) == []
