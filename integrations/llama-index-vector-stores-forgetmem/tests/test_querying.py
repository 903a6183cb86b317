"""Queries: exact, never cut short, never without a restriction that was given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.vector_stores.forgetmem import ForgetmemVectorStore

Embed = Callable[[str], list[float]]


@pytest.fixture
def nodes(make_node: Callable[..., TextNode]) -> list[TextNode]:
    """Sixty nodes of three documents and two users."""
    words = ["pump", "valve", "anna", "north", "leak", "night"]
    return [
        make_node(
            f"n{n:02d}",
            f"{words[n % 6]} {words[n % 5]} {n}",
            source=f"doc{n % 3}",
            user=f"u{n % 2}",
        )
        for n in range(60)
    ]


@pytest.fixture
def filled(nodes: list[TextNode]) -> ForgetmemVectorStore:
    """A store of them."""
    store = ForgetmemVectorStore()
    store.add(nodes)
    return store


def check_whole(result: VectorStoreQueryResult) -> list[str]:
    """Check that the three lists belong together, and return the ids."""
    assert result.ids is not None
    assert result.nodes is not None
    assert result.similarities is not None
    assert [node.node_id for node in result.nodes] == result.ids
    assert len(result.similarities) == len(result.ids)
    return result.ids


def test_answers_are_those_of_the_in_memory_store(
    filled: ForgetmemVectorStore, nodes: list[TextNode], vector: Embed
) -> None:
    """Order and cosines, for several k and filters."""
    reference = SimpleVectorStore()
    reference.add(nodes)
    user = MetadataFilters(filters=[MetadataFilter(key="user", value="u1")])
    for text in ("pump leak", "anna north", "something else"):
        for k in (1, 5, 99):
            for filters in (None, user):
                query = VectorStoreQuery(
                    query_embedding=vector(text), similarity_top_k=k, filters=filters
                )
                wanted, found = reference.query(query), filled.query(query)
                ids = check_whole(found)
                assert found.similarities == pytest.approx(
                    wanted.similarities, abs=1e-6
                )
                apart = np.diff(wanted.similarities or [0.0])
                if (np.abs(apart) > 1e-6).all():
                    assert ids == wanted.ids


def test_restrictions_choose_before_the_ranking(
    filled: ForgetmemVectorStore, vector: Embed
) -> None:
    """By document, by node, by metadata and by all of them; empty lists are none."""

    def ask(**options: Any) -> list[str]:
        query = VectorStoreQuery(
            query_embedding=vector("pump leak"), similarity_top_k=99, **options
        )
        return check_whole(filled.query(query))

    everything = ask()
    assert len(everything) == 60
    assert ask(node_ids=[], doc_ids=[]) == everything
    assert ask(node_ids=None, doc_ids=None) == everything
    by_document = ask(doc_ids=["doc1", "unknown"])
    assert by_document == [id for id in everything if int(id[1:]) % 3 == 1]
    by_node = ask(node_ids=["n07", "n03", "unknown"])
    assert by_node == [id for id in everything if id in ("n03", "n07")]
    user = MetadataFilters(filters=[MetadataFilter(key="user", value="u1")])
    assert ask(doc_ids=["doc1"], filters=user, node_ids=["n07", "n03", "n04"]) == [
        "n07"
    ]
    assert ask(doc_ids=["unknown"]) == []


def test_no_answer_is_empty_lists(vector: Embed) -> None:
    """Not None, which an index would take for an error."""
    store = ForgetmemVectorStore()
    for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
        query = VectorStoreQuery(query_embedding=vector("x"), mode=mode)
        assert check_whole(store.query(query)) == []
        query.similarity_top_k = 0
        assert check_whole(store.query(query)) == []


def reference_mmr(
    scores: list[float], X: np.ndarray, k: int, threshold: float
) -> list[int]:
    """Choose as the definition says."""
    chosen = [0]
    while len(chosen) < min(k, len(scores)):
        gains = {
            row: threshold * scores[row]
            - (1 - threshold) * max(math.fsum(X[row] * X[one]) for one in chosen)
            for row in range(len(scores))
            if row not in chosen
        }
        chosen.append(max(gains, key=lambda row: gains[row]))
    return chosen


def test_diversity_is_maximal_marginal_relevance(
    filled: ForgetmemVectorStore, vector: Embed
) -> None:
    """The threshold comes from the call or from the query; 0 is a value too."""
    q = vector("pump leak")

    def diverse(
        k: int, threshold: float | None, **options: float
    ) -> VectorStoreQueryResult:
        return filled.query(
            VectorStoreQuery(
                query_embedding=q,
                similarity_top_k=k,
                mode=VectorStoreQueryMode.MMR,
                mmr_threshold=threshold,
            ),
            **options,
        )

    for k, prefetch in ((1, 4), (5, 20), (8, 60)):
        best = filled.query(
            VectorStoreQuery(query_embedding=q, similarity_top_k=prefetch)
        )
        ids = check_whole(best)
        records = {one.id: one for one in filled.client.get(ids)}
        X = np.array([records[id].embedding for id in ids], dtype=np.float64)
        for threshold in (0.0, 0.3, 1.0, None):
            scores = best.similarities or []
            rows = reference_mmr(scores, X, k, 0.5 if threshold is None else threshold)
            wanted = [ids[row] for row in rows]
            found = diverse(k, threshold, mmr_prefetch_k=prefetch)
            assert check_whole(found) == wanted
            assert found.similarities == [scores[row] for row in rows]
            if threshold is not None:
                for other in (None, 0.9):
                    found = diverse(
                        k, other, mmr_threshold=threshold, mmr_prefetch_k=prefetch
                    )
                    assert check_whole(found) == wanted
    assert check_whole(diverse(5, 0.3)) == check_whole(
        diverse(5, 0.3, mmr_prefetch_factor=4)
    )


def test_support_ranking_can_be_asked_for(
    filled: ForgetmemVectorStore, make_node: Callable[..., TextNode], vector: Embed
) -> None:
    """Copies do not crowd the answer."""
    filled.add([make_node(f"copy{n}", "the pump failed") for n in range(20)])
    query = VectorStoreQuery(
        query_embedding=vector("the pump failed"), similarity_top_k=5
    )
    plain = check_whole(filled.query(query))
    support = check_whole(filled.query(query, ranking="support"))
    assert plain == [f"copy{n}" for n in (0, 1, 10, 11, 12)]
    assert support[0] == "copy0"
    assert not any(id.startswith("copy") for id in support[1:])


def test_what_is_not_supported_is_an_error(
    filled: ForgetmemVectorStore, vector: Embed
) -> None:
    """Other modes, no embedding, another dimension, misspelt options."""
    for mode in VectorStoreQueryMode:
        query = VectorStoreQuery(query_embedding=vector("x"), mode=mode)
        if mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
            check_whole(filled.query(query))
        else:
            with pytest.raises(ValueError, match="not supported"):
                filled.query(query)
    with pytest.raises(ValueError, match="query_embedding"):
        filled.query(VectorStoreQuery(query_str="x"))
    with pytest.raises(ValueError, match="dimension"):
        filled.query(VectorStoreQuery(query_embedding=[1.0, 2.0]))
    with pytest.raises(TypeError, match="mmr_treshold"):
        filled.query(VectorStoreQuery(query_embedding=vector("x")), mmr_treshold=1)
    diverse = VectorStoreQuery(
        query_embedding=vector("x"), mode=VectorStoreQueryMode.MMR, mmr_threshold=1.5
    )
    with pytest.raises(ValueError, match="mmr_threshold"):
        filled.query(diverse)
    with pytest.raises(ValueError, match="MetadataFilters"):
        filled.get_nodes(filters={"user": "u1"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="MetadataFilters"):
        filled.delete_nodes(filters={"user": "u1"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="position 0"):
        filled.add(["a text"])  # type: ignore[list-item]
    assert len(filled.list_ids()) == 60


def test_nodes_are_got_in_the_order_asked(filled: ForgetmemVectorStore) -> None:
    """Each once, unknown ones left out; by filter too."""
    found = filled.get_nodes(["n07", "n01", "nope", "n01"])
    assert [node.node_id for node in found] == ["n07", "n01"]
    assert [node.get_content().split()[-1] for node in found] == ["7", "1"]
    assert filled.get_nodes([]) == []
    user = MetadataFilters(filters=[MetadataFilter(key="user", value="u1")])
    assert [node.node_id for node in filled.get_nodes(["n04", "n05"], user)] == ["n05"]
    assert len(filled.get_nodes(filters=user)) == 30
    assert len(filled.get_nodes()) == 60
