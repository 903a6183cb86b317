"""Nodes come back as they were: class, relations, metadata, text."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.vector_stores.forgetmem import ForgetmemVectorStore

Embed = Callable[[str], list[float]]

RELATIONS: dict[NodeRelationship, Any] = {
    NodeRelationship.SOURCE: RelatedNodeInfo(
        node_id="doc", hash="h", metadata={"a": [1]}
    ),
    NodeRelationship.NEXT: RelatedNodeInfo(node_id="n2", node_type="1"),
    NodeRelationship.PREVIOUS: RelatedNodeInfo(node_id="n0"),
    NodeRelationship.PARENT: RelatedNodeInfo(node_id="p"),
    NodeRelationship.CHILD: [RelatedNodeInfo(node_id=f"c{n}") for n in range(2)],
}

NODES = [
    TextNode(
        text="plain é\n\ttext",
        metadata={
            "sub_dicts": [{"a": 1}, {"b": [None, True]}],
            "x": 0.5,
            "n": None,
            "a": "",
        },
        relationships=RELATIONS,
        excluded_embed_metadata_keys=["x"],
        excluded_llm_metadata_keys=["f"],
        metadata_separator=" | ",
        metadata_template="{key}={value}",
        text_template="{content} -- {metadata_str}",
        start_char_idx=7,
        end_char_idx=19,
        mimetype="text/markdown",
    ),
    TextNode(text="", metadata={}),
    IndexNode(text="refers", index_id="other", relationships=RELATIONS),
    IndexNode(text="holds", index_id="o", obj=TextNode(text="inner", id_="inner")),
    ImageNode(text="caption", image_url="https://example.com/a.png", image="aGVsbG8="),
    Node(
        text_resource=MediaResource(text="body", mimetype="text/html"),
        image_resource=MediaResource(url="https://example.com/b.png"),
        metadata={"k": "v"},
        relationships=RELATIONS,
    ),
    Node(image_resource=MediaResource(path="c.png")),
    Document(text="whole document", metadata={"file_name": "d.txt"}),
    Node(image_resource=MediaResource(data=b"\x89PNG\x00\xff raw bytes")),
    ImageDocument(
        text="seen", image_resource=MediaResource(url="https://example.com/e.png")
    ),
]


def comparable(node: BaseNode) -> dict[str, Any]:
    """Return everything but the embedding."""
    return node.model_dump(exclude={"embedding"})


@pytest.mark.parametrize("node", NODES, ids=lambda node: type(node).__name__)
def test_every_kind_of_node_comes_back(
    store: ForgetmemVectorStore, vector: Embed, node: BaseNode
) -> None:
    """From `get_nodes`, from a query and after reopening; the input is not changed."""
    given = node.model_copy(update={"embedding": vector("some text")})
    before = given.model_dump()
    assert store.add([given]) == [node.node_id]
    assert given.model_dump() == before
    result = store.query(VectorStoreQuery(query_embedding=vector("text")))
    store.close()
    with ForgetmemVectorStore(store.path) as again:
        found = [*store_nodes(again), *(result.nodes or [])]
        assert len(found) == 2
        for one in found:
            assert type(one) is type(node)
            assert comparable(one) == comparable(node)
            assert one.hash == node.hash
            assert one.ref_doc_id == node.ref_doc_id


def store_nodes(store: ForgetmemVectorStore) -> list[BaseNode]:
    """Return all nodes."""
    return store.get_nodes()


def test_split_documents_come_back(store: ForgetmemVectorStore, vector: Embed) -> None:
    """With the relations that LlamaIndex's splitter makes."""
    text = " ".join(f"Sentence number {n} of the text." for n in range(60))
    document = Document(text=text, metadata={"file": "a.txt"}, id_="doc")
    nodes = SentenceSplitter(chunk_size=80, chunk_overlap=0)([document])
    assert len(nodes) > 3
    for node in nodes:
        node.embedding = vector(node.get_content())
    ids = store.add(iter(nodes))  # type: ignore[arg-type]
    assert ids == [node.node_id for node in nodes]
    found = store.get_nodes(ids)
    assert [comparable(one) for one in found] == [comparable(one) for one in nodes]
    assert store.list_ref_doc_ids() == ["doc"]
    assert store.list_ids(ref_doc_id="doc") == sorted(ids)


class Invoice(TextNode):
    """A user's own kind of node."""

    total: int = 0

    @classmethod
    def class_name(cls) -> str:
        """Name it."""
        return "Invoice"


def test_users_own_kinds_become_their_base(
    store: ForgetmemVectorStore, vector: Embed
) -> None:
    """With text, metadata and relations; a field of their own is not kept."""
    node = Invoice(text="42 euro", metadata={"a": 1}, total=42, embedding=vector("x"))
    store.add([node])
    (found,) = store.get_nodes()
    assert type(found) is TextNode
    assert found.text == "42 euro"
    assert found.metadata == {"a": 1}


def test_records_of_a_plain_memory_are_nodes_too(store: ForgetmemVectorStore) -> None:
    """A file that was filled otherwise can be read."""
    store.client.add(["text"], ids=["x"], metadatas=[{"a": 1}], embeddings=[[1.0] * 32])
    (found,) = store.get_nodes()
    assert comparable(found) == comparable(
        TextNode(text="text", id_="x", metadata={"a": 1})
    )
    assert store.client.search([1.0] * 32, where={"a": 1})[0].id == "x"


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2026, 1, 1),
        np.float32(0.5),
        (1, 2),
        {1: 2},
        float("nan"),
        {1, 2},
    ],
    ids=lambda value: type(value).__name__,
)
def test_metadata_that_is_not_json_is_refused_by_name(
    store: ForgetmemVectorStore,
    make_node: Callable[..., TextNode],
    value: object,
) -> None:
    """Before anything is written, also where a relation holds a copy of it."""
    good, bad = make_node("a", "fine"), make_node("b", "bad", when=value)
    copied = make_node("c", "bad", source="doc", when=value)
    info = RelatedNodeInfo(node_id="doc", metadata={"when": value})
    copied.relationships[NodeRelationship.SOURCE] = info
    for nodes in ([good, bad], [good, copied]):
        with pytest.raises(ValueError, match="when"):
            store.add(nodes)
    with pytest.raises(ValueError, match="reserved"):
        store.add([make_node("d", "x", _node={})])
    assert store.list_ids() == []


def test_later_changes_of_a_node_have_no_effect(
    store: ForgetmemVectorStore, make_node: Callable[..., TextNode]
) -> None:
    """What was given in and what came out are copies."""
    node = make_node("a", "text", tags=["x"])
    store.add([node])
    node.metadata["tags"].append("y")
    found = store.get_nodes()[0]
    found.metadata["tags"].append("z")
    assert store.get_nodes()[0].metadata == {"tags": ["x"]}


def test_adding_again_overwrites(
    store: ForgetmemVectorStore, make_node: Callable[..., TextNode], path: Path
) -> None:
    """One node an id; the old text is gone from the file."""
    store.add([make_node("a", "zq7-old-phrase here", source="one", v=1)])
    store.add([make_node("a", "a new text", source="two", v=2)])
    (found,) = store.get_nodes()
    assert (found.get_content(), found.ref_doc_id) == ("a new text", "two")
    assert found.metadata == {"v": 2}
    assert store.list_ids(ref_doc_id="one") == []
    assert all(b"zq7-old" not in file.read_bytes() for file in path.parent.iterdir())


def test_nodes_that_cannot_be_stored_are_refused(
    store: ForgetmemVectorStore, make_node: Callable[..., TextNode]
) -> None:
    """Twice in a call, without embedding, or with one of another length."""
    with pytest.raises(ValueError, match="more than once"):
        store.add([make_node("a", "x"), make_node("a", "y")])
    with pytest.raises(ValueError, match="embedding"):
        store.add([make_node("a", "x"), TextNode(text="no embedding")])
    assert store.add([]) == []
    store.add([make_node("a", "x")])
    with pytest.raises(ValueError, match="dimension"):
        store.add([TextNode(text="x", embedding=[1.0, 2.0])])
    assert store.list_ids() == ["a"]
