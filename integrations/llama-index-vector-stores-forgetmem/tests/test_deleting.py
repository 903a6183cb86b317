"""Deleting: exactly what is named, from every read path, file and state."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import Document, NodeRelationship, TextNode
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.vector_stores.forgetmem import ForgetmemVectorStore

from forgetmem import ForgetProof, RecordNotFoundError

Make = Callable[..., TextNode]
Embed = Callable[[str], list[float]]

SECRET = "zq7-unique-phrase of Anna"
NOTE = "qx-secret-note"
U1 = MetadataFilters(filters=[MetadataFilter(key="u", value="u1")])


@pytest.fixture
def filled(store: ForgetmemVectorStore, make_node: Make) -> ForgetmemVectorStore:
    """A secret among other nodes, near to it and far from it; one has no source."""
    store.add(
        [
            make_node("secret-id-0001", SECRET, source="doc-1", note=NOTE, u="u1"),
            make_node("b", f"{SECRET} again", source="doc-1", u="u2"),
            make_node("c", "the pump failed", source="doc-2", u="u2"),
            make_node("d", "the valve leaked", u="u1"),
        ]
    )
    return store


def bytes_of(path: Path) -> bytes:
    """Read every file of the store's folder, side files included."""
    files = sorted(path.parent.iterdir())
    return b"\x00\xff\x00".join(file.read_bytes() for file in files)


def test_deletion_takes_exactly_what_is_named(filled: ForgetmemVectorStore) -> None:
    """By id, by filter, by both; nothing named is refused; unknown is passed over."""
    filled.delete_nodes(["c", "unknown"])
    assert filled.list_ids() == ["b", "d", "secret-id-0001"]
    filled.delete_nodes(["b", "d"], filters=U1)
    assert filled.list_ids() == ["b", "secret-id-0001"]
    filled.delete_nodes([])
    filled.delete_nodes(["unknown"])
    with pytest.raises(ValueError, match="clear"):
        filled.delete_nodes()
    with pytest.raises(TypeError, match="ids"):
        filled.delete_nodes(ids=["b"])  # a misspelt name deletes nothing
    assert filled.list_ids() == ["b", "secret-id-0001"]
    filled.delete_nodes(filters=U1)
    assert filled.list_ids() == ["b"]


def test_documents_are_deleted_with_all_their_nodes(
    filled: ForgetmemVectorStore,
) -> None:
    """An unknown document is no error, and "None" is not the name of orphans."""
    filled.delete("unknown")
    filled.delete("None")
    filled.delete("")
    assert len(filled.list_ids()) == 4
    with pytest.raises(TypeError, match="filters"):
        filled.delete("doc-1", filters=U1)
    filled.delete("doc-1")
    assert filled.list_ids() == ["c", "d"]
    filled.clear()
    assert filled.list_ids() == []
    filled.clear()


async def test_async_deletion_is_the_same(filled: ForgetmemVectorStore) -> None:
    """Every async method does what its twin does, keywords included."""
    await filled.adelete("None")
    await filled.adelete_nodes(["b", "d"], filters=U1)
    assert filled.list_ids() == ["b", "c", "secret-id-0001"]
    assert [node.node_id for node in await filled.aget_nodes(["c"])] == ["c"]
    with pytest.raises(ValueError, match="clear"):
        await filled.adelete_nodes()
    with pytest.raises(TypeError, match="filters"):
        await filled.adelete("doc-1", filters=U1)
    await filled.adelete("doc-1")
    assert filled.list_ids() == ["c"]
    await filled.aclear()
    assert filled.list_ids() == []


async def test_forgotten_is_absent_from_every_read_path(
    filled: ForgetmemVectorStore, vector: Embed
) -> None:
    """Queries in both modes, with filters and ids, listings, sync and async."""

    async def found() -> set[str]:
        seen: set[str] = set(filled.list_ids())
        note = MetadataFilters(filters=[MetadataFilter(key="note", value=NOTE)])
        for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
            for options in (
                {},
                {"filters": note},
                {"doc_ids": ["doc-1"]},
                {"node_ids": ["secret-id-0001", "b"]},
            ):
                query = VectorStoreQuery(
                    query_embedding=vector(SECRET),
                    similarity_top_k=9,
                    mode=mode,
                    **options,
                )
                for result in (
                    filled.query(query),
                    await filled.aquery(query),
                    filled.query(query, ranking="support"),
                ):
                    seen.update(result.ids or [])
                    seen.update(node.node_id for node in result.nodes or [])
        for nodes in (
            filled.get_nodes(),
            filled.get_nodes(["secret-id-0001", "b"]),
            await filled.aget_nodes(filters=note),
        ):
            seen.update(node.node_id for node in nodes)
        return seen

    assert "secret-id-0001" in await found()
    filled.forget("secret-id-0001")
    assert await found() == {"b", "c", "d"}
    assert "doc-1" in filled.list_ref_doc_ids()
    filled.forget(["b"])
    assert filled.list_ref_doc_ids() == ["doc-2"]


def test_nothing_of_it_is_left_in_any_file(
    filled: ForgetmemVectorStore, path: Path
) -> None:
    """Id, metadata, document id and vector, before and after closing."""
    x = filled.client.get("secret-id-0001")[0].embedding
    assert NOTE.encode() in bytes_of(path)
    filled.delete("doc-1")
    for _ in range(2):
        content = bytes_of(path)
        for word in (NOTE, SECRET, SECRET.lower(), "secret-id-0001", "doc-1"):
            assert word.encode() not in content
            assert word.encode("utf-16-le") not in content
        for dtype in (np.float16, np.float32, np.float64):
            words = x.astype(dtype)
            assert not any(
                words[n : n + 4].tobytes() in content for n in range(len(x) - 3)
            )
        filled.close()


def test_neighbours_keep_no_trace_of_a_forgotten_node(
    store: ForgetmemVectorStore, path: Path, vector: Embed
) -> None:
    """Relations to it go: they hold its metadata and a hash of its text."""
    document = Document(
        text=" ".join(f"Sentence number {n} of the text." for n in range(60)), id_="d"
    )
    nodes = SentenceSplitter(chunk_size=80, chunk_overlap=0)([document])
    for position, node in enumerate(nodes):
        node.metadata["part"] = f"part-number-{position:04d}"
        node.embedding = vector(node.get_content())
    for before, after in itertools.pairwise(nodes):
        before.relationships[NodeRelationship.NEXT] = after.as_related_node_info()
        after.relationships[NodeRelationship.PREVIOUS] = before.as_related_node_info()
    store.add(nodes)
    gone = nodes[1]
    traces = [gone.hash, gone.node_id, "part-number-0001"]
    assert all(trace.encode() in bytes_of(path) for trace in traces)
    vectors = {one.id: one.embedding for one in store.client.get(store.list_ids())}
    proof = store.forget(gone.node_id)
    assert store.verify(proof).ok
    assert not any(trace.encode() in bytes_of(path) for trace in traces)
    first, third = store.get_nodes([nodes[0].node_id, nodes[2].node_id])
    assert first.next_node is None
    assert third.prev_node is None
    assert third.next_node == nodes[2].next_node
    assert first.source_node == nodes[0].source_node
    for record in store.client.get(store.list_ids()):
        assert np.array_equal(record.embedding, vectors[record.id])


async def test_proof_counts_what_was_there(filled: ForgetmemVectorStore) -> None:
    """By id, by document, by filter; unknown ids are listed or an error."""
    proof = filled.forget(["b", "nope"])
    assert (proof.forgotten, proof.not_found, proof.n_records_after) == (1, 1, 3)
    assert proof.not_found_ids == ("nope",)
    with pytest.raises(RecordNotFoundError, match="nope"):
        filled.forget(["c", "nope"], missing="raise")
    rebuilt = filled.forget(filters=U1, audit="rebuild")
    assert rebuilt.forgotten == 2
    assert rebuilt.digest_rebuilt == rebuilt.digest_after
    assert filled.forget(ref_doc_id="unknown").forgotten == 0
    proof = await filled.aforget(ref_doc_id="doc-2")
    assert proof.forgotten == 1
    assert filled.verify(proof).ok
    assert filled.list_ids() == []
    for wrong in ({}, {"node_ids": ["b"], "ref_doc_id": "doc-1"}):
        with pytest.raises(ValueError):
            filled.forget(**wrong)


VERIFY = """
import sys
from llama_index.vector_stores.forgetmem import ForgetmemVectorStore
store = ForgetmemVectorStore.from_persist_path(sys.argv[1])
sys.exit(0 if store.verify(sys.argv[2]).ok else 1)
"""


def test_proof_holds_in_another_process(
    filled: ForgetmemVectorStore, make_node: Make, path: Path, tmp_path: Path
) -> None:
    """With folder and proof only; not after the node was added again."""
    saved, _ = filled.forget(ref_doc_id="doc-1").save(tmp_path / "proof.json")
    content = saved.read_text("utf-8")
    assert not any(word in content for word in (SECRET, NOTE, "secret-id", "doc-1"))
    filled.close()
    command = [sys.executable, "-c", VERIFY, str(path), str(saved)]
    assert subprocess.run(command, check=False).returncode == 0
    with ForgetmemVectorStore(path) as again:
        altered = ForgetProof.load(saved).model_copy(update={"forgotten": 1})
        assert not again.verify(altered).ok
        again.add([make_node("other", SECRET)])
        assert not again.verify(saved).ok


def test_history_leaves_no_trace_in_state_or_answers(
    make_node: Make, vector: Embed, tmp_path: Path
) -> None:
    """A store that forgot equals one that never knew, bit for bit."""
    nodes = [
        make_node(f"n{n:02d}", f"note {n} on pump {n % 7}", source=f"d{n % 5}", n=n)
        for n in range(40)
    ]
    others = [make_node(f"x{n}", f"note {n} on pump", source="x") for n in range(8)]
    with (
        ForgetmemVectorStore(tmp_path / "plain.forgetmem") as plain,
        ForgetmemVectorStore(tmp_path / "walked.forgetmem") as walked,
    ):
        plain.add(nodes)
        walked.add(nodes[20:])
        for other in others:
            walked.add([other])
            walked.delete_nodes([other.node_id])
            walked.add([other])
        walked.add(nodes[:20])
        walked.delete("x")
        assert walked.client.digest() == plain.client.digest()
        for n in range(20):
            for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
                query = VectorStoreQuery(
                    query_embedding=vector(f"note {n} on the pump"),
                    similarity_top_k=30,
                    mode=mode,
                )
                assert walked.query(query) == plain.query(query)
        walked.client.compact()
        plain.client.compact()
    files = [tmp_path / f"{name}.forgetmem" for name in ("walked", "plain")]
    assert files[0].read_bytes() == files[1].read_bytes()
