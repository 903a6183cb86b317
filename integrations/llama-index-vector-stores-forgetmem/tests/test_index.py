"""`VectorStoreIndex` over the store: documents, refreshing, persisting, forgetting."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.indices.vector_store import VectorIndexRetriever
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import (
    Document,
    ImageNode,
    IndexNode,
    NodeRelationship,
    RelatedNodeInfo,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.vector_stores.forgetmem import (
    ForgetmemVectorStore,
    aforget_document,
    averify_document,
    forget_document,
    verify_document,
)

SECRET = "zq7-unique-phrase of Anna"


@pytest.fixture
def documents() -> list[Document]:
    """Three of them; one has a secret."""
    texts = {"secret": SECRET, "pump": "the pump failed", "valve": "a valve leaked"}
    return [
        Document(text=text, id_=f"doc-{name}", metadata={"about": name})
        for name, text in texts.items()
    ]


@pytest.fixture
def index(
    store: ForgetmemVectorStore, documents: list[Document], embed_model: BaseEmbedding
) -> Iterator[VectorStoreIndex]:
    """An index of them."""
    context = StorageContext.from_defaults(vector_store=store)
    yield VectorStoreIndex.from_documents(
        documents, storage_context=context, embed_model=embed_model
    )


def everything(*folders: Path) -> bytes:
    """Read every file of some folders."""
    files = [file for folder in folders for file in sorted(folder.rglob("*"))]
    return b"\x00".join(file.read_bytes() for file in files if file.is_file())


def about(index: VectorStoreIndex, question: str, **options: object) -> list[str]:
    """Ask, and return what the answers are about."""
    found = index.as_retriever(similarity_top_k=9, **options).retrieve(question)
    return [one.node.metadata["about"] for one in found]


async def test_index_works_over_the_store(
    index: VectorStoreIndex, store: ForgetmemVectorStore, embed_model: BaseEmbedding
) -> None:
    """Retrieving by every option, updating, deleting, and without a storage context."""
    assert about(index, "the pump")[0] == "pump"
    filters = MetadataFilters(filters=[MetadataFilter(key="about", value="valve")])
    assert about(index, "the pump", filters=filters) == ["valve"]
    assert about(index, "the pump", doc_ids=["doc-secret"]) == ["secret"]
    assert set(about(index, "pump", vector_store_query_mode="mmr")) == {
        "secret", "pump", "valve",
    }  # fmt: skip
    options = {"vector_store_kwargs": {"ranking": "support"}}
    assert about(index, "the pump", **options)[0] == "pump"
    found = await index.as_retriever(similarity_top_k=1).aretrieve("the pump failed")
    assert found[0].score == pytest.approx(1.0, abs=0.2)
    document = Document(text="the pump works", id_="doc-pump", metadata={"about": "p2"})
    index.update_ref_doc(document)
    assert about(index, "the pump works")[0] == "p2"
    await index.ainsert(
        Document(text="north", id_="doc-n", metadata={"about": "north"})
    )
    await index.adelete_ref_doc("doc-valve")
    again = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    assert sorted(about(again, "anything")) == ["north", "p2", "secret"]
    assert store.list_ref_doc_ids() == ["doc-n", "doc-pump", "doc-secret"]


def test_text_is_in_the_store_only(index: VectorStoreIndex, tmp_path: Path) -> None:
    """LlamaIndex persists none of it, before or after a deletion."""
    folder = tmp_path / "persisted"
    index.storage_context.persist(folder)
    assert SECRET.encode() not in everything(folder)
    assert not (folder / "default__vector_store.json").exists()
    index.delete_ref_doc("doc-secret", delete_from_docstore=True)
    index.storage_context.persist(folder)
    assert SECRET.encode() not in everything(folder)


def test_deleted_from_the_index_alone_leaves_a_hash(
    index: VectorStoreIndex, documents: list[Document], tmp_path: Path
) -> None:
    """What `forget_document` is for: refreshing never adds the document again."""
    index.delete_ref_doc("doc-secret", delete_from_docstore=True)
    index.storage_context.persist(tmp_path / "persisted")
    assert documents[0].hash.encode() in everything(tmp_path / "persisted")
    assert index.refresh_ref_docs(documents) == [False, False, False]


def test_forgotten_document_leaves_nothing_anywhere(
    index: VectorStoreIndex,
    documents: list[Document],
    path: Path,
    tmp_path: Path,
) -> None:
    """No hash, id or text in any file; refreshing adds it again only if asked."""
    folder = tmp_path / "persisted"
    index.storage_context.persist(folder)
    traces = [SECRET, "doc-secret", documents[0].hash]
    before = everything(folder, path.parent)
    assert all(trace.encode() in before for trace in traces)
    proof = forget_document(index, "doc-secret", persist_dir=folder)
    assert proof.forgotten == 1
    assert [len(one.removed) for one in proof.elsewhere] == [1]
    after = everything(folder, path.parent)
    assert not any(trace.encode() in after for trace in traces)
    assert index.docstore.get_document_hash("doc-secret") is None
    saved, key = proof.save(tmp_path / "proof.json")
    assert not any(trace in saved.read_text("utf-8") for trace in traces)
    assert verify_document(index, saved).ok
    assert sorted(about(index, SECRET)) == ["pump", "valve"]
    assert index.refresh_ref_docs(documents) == [True, False, False]
    verdict = verify_document(index, saved, key)
    assert not verdict.ok
    assert any("document store" in reason for reason in verdict.reasons)


def test_document_store_alone_fails_the_proof(index: VectorStoreIndex) -> None:
    """A hash that comes back is found, though the vector store is clean."""
    proof = forget_document(index, "doc-secret")
    index.docstore.set_document_hash("doc-secret", "0" * 64)
    store = index.vector_store
    assert isinstance(store, ForgetmemVectorStore)
    assert store.verify(proof).ok
    assert not verify_document(index, proof).ok


async def test_earlier_deletion_is_completed(
    index: VectorStoreIndex, documents: list[Document]
) -> None:
    """Also after the nodes have left the store; async, and for unknown documents."""
    index.delete_ref_doc("doc-secret")
    proof = await aforget_document(index, "doc-secret")
    assert proof.forgotten == 0
    assert [len(one.removed) for one in proof.elsewhere] == [1]
    assert (await averify_document(index, proof)).ok
    assert index.refresh_ref_docs(documents) == [True, False, False]
    unknown = forget_document(index, "no such document")
    assert unknown.forgotten == 0
    assert [len(one.removed) for one in unknown.elsewhere] == [0]


def test_nodes_kept_by_the_document_store_go_too(
    index: VectorStoreIndex, path: Path, tmp_path: Path
) -> None:
    """Index nodes and images stand in it as a whole, and in the index's structure."""
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc-secret")}
    nodes = [
        IndexNode(text=f"{SECRET} index", index_id="other", relationships=source),
        ImageNode(text=f"{SECRET} image", image="aGVsbG8=", relationships=source),
    ]
    index.insert_nodes(nodes)
    folder = tmp_path / "persisted"
    index.storage_context.persist(folder)
    traces = [SECRET, "doc-secret", *(node.node_id for node in nodes)]
    before = everything(folder)
    assert all(trace.encode() in before for trace in traces)
    proof = forget_document(index, "doc-secret", persist_dir=folder)
    assert proof.forgotten == 3
    assert [len(one.removed) for one in proof.elsewhere] == [3]
    after = everything(folder, path.parent)
    assert not any(trace.encode() in after for trace in traces)
    assert index.index_struct.nodes_dict == {}
    assert verify_document(index, proof).ok


def test_mixed_index_is_searched_as_a_whole_by_its_own_retriever(
    index: VectorStoreIndex,
) -> None:
    """Which restricts nothing, as the README says."""
    index.insert_nodes(
        [IndexNode(text="a pump", index_id="o", metadata={"about": "i"})]
    )
    assert about(index, "the pump") == ["i"]
    found = VectorIndexRetriever(index, similarity_top_k=9).retrieve("the pump")
    assert len(found) == 4


def test_ingestion_pipeline_keeps_the_store_up_to_date(
    store: ForgetmemVectorStore, embed_model: BaseEmbedding, path: Path
) -> None:
    """Changed documents replace what was there, missing ones are deleted."""
    pipeline = IngestionPipeline(
        transformations=[SentenceSplitter(), embed_model],
        vector_store=store,
        docstore=SimpleDocumentStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        disable_cache=True,
    )
    pipeline.run(
        documents=[Document(text=SECRET, id_="a"), Document(text="b", id_="b")]
    )
    pipeline.run(documents=[Document(text="new", id_="a")])
    assert [node.get_content() for node in store.get_nodes()] == ["new"]
    assert store.list_ref_doc_ids() == ["a"]
    assert SECRET.encode() not in everything(path.parent)


def test_interrupted_forget_can_be_repeated(
    index: VectorStoreIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document store comes first, so the vector store still says what is meant."""

    def broken(*args: object, **kwargs: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(ForgetmemVectorStore, "forget", broken)
        with pytest.raises(OSError, match="space"):
            forget_document(index, "doc-secret")
    assert forget_document(index, "doc-secret").forgotten == 1


def test_other_vector_stores_are_refused(embed_model: BaseEmbedding) -> None:
    """They cannot prove anything."""
    index = VectorStoreIndex.from_documents(
        [Document(text="x", id_="d")], embed_model=embed_model
    )
    with pytest.raises(ValueError, match="SimpleVectorStore"):
        forget_document(index, "d")


def test_persisted_index_is_loaded_over_the_same_file(
    index: VectorStoreIndex, path: Path, tmp_path: Path, embed_model: BaseEmbedding
) -> None:
    """`persist` writes no copy; the file is the store."""
    folder = tmp_path / "persisted"
    index.storage_context.persist(folder)
    again = ForgetmemVectorStore.from_persist_path(str(path))
    context = StorageContext.from_defaults(vector_store=again, persist_dir=str(folder))
    loaded = load_index_from_storage(context, embed_model=embed_model)
    assert isinstance(loaded, VectorStoreIndex)
    assert about(loaded, "the pump")[0] == "pump"
    forget_document(loaded, "doc-secret")
    assert "secret" not in about(index, SECRET)
    again.close()


def test_store_in_ram_says_that_it_is_not_persisted(tmp_path: Path) -> None:
    """Instead of losing everything without a word."""
    with pytest.warns(UserWarning, match="RAM"):
        ForgetmemVectorStore().persist(str(tmp_path / "x.json"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = ForgetmemVectorStore(tmp_path / "x.forgetmem")
        store.persist(str(tmp_path / "x.json"))
        store.close()
    assert [file.name for file in tmp_path.glob("x.json*")] == []


def test_folder_of_another_index_is_not_written_over(
    index: VectorStoreIndex,
    store: ForgetmemVectorStore,
    embed_model: BaseEmbedding,
    tmp_path: Path,
) -> None:
    """An index made from the store alone has no documents: persisting it would lose."""
    folder = tmp_path / "storage"
    index.storage_context.persist(folder)
    before = everything(folder)
    bare = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    for id in ("doc-secret", "nope"):
        with pytest.raises(ValueError, match="would be lost"):
            forget_document(bare, id, persist_dir=folder)
    assert everything(folder) == before
    assert store.list_ids(ref_doc_id="doc-secret")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="no folder"):
        forget_document(index, "doc-secret", persist_dir=file)
    with pytest.raises(ValueError, match="non-empty"):
        forget_document(index, "")
    assert store.list_ids(ref_doc_id="doc-secret")
    assert forget_document(index, "doc-secret", persist_dir=folder).forgotten == 1
