"""Searching: scores, filters, diversity, retrievers; exact and never cut short."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from langchain_core._api import LangChainBetaWarning
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.load import dumps, loads
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_forgetmem import (
    ForgetmemRetriever,
    ForgetmemVectorStore,
    HitDocument,
)


class Given(Embeddings):
    """Embeds a text to the numbers that it lists."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Read each text."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Read one text."""
        return [float(number) for number in text.split()]


@pytest.fixture
def filled(embeddings: Embeddings) -> ForgetmemVectorStore:
    """Make a store of 60 documents of three users."""
    store = ForgetmemVectorStore(embeddings)
    words = ["pump", "valve", "anna", "north", "leak", "night"]
    texts = [f"{words[n % 6]} {words[n % 5]} {n}" for n in range(60)]
    store.add_texts(
        texts,
        [{"u": "abc"[n % 3], "n": n} for n in range(60)],
        ids=[f"d{n:02d}" for n in range(60)],
    )
    return store


def ids(documents: list[Document]) -> list[str | None]:
    """List the ids."""
    return [document.id for document in documents]


def test_scores_are_cosines_and_relevance_is_in_the_unit_interval() -> None:
    """Identical text 1.0, any length; opposite 0; larger is better."""
    store = ForgetmemVectorStore(Given())
    store.add_texts(["1 2 3", "10 20 30", "-1 -2 -3", "3 2 1"], ids=list("abcd"))
    scored = store.similarity_search_with_score("1 2 3", k=4)
    assert [document.id for document, _ in scored] == ["a", "b", "d", "c"]
    assert [score for _, score in scored] == pytest.approx([1, 1, 10 / 14, -1])
    relevant = store.similarity_search_with_relevance_scores("1 2 3", k=4)
    assert [score for _, score in relevant] == [1.0, 1.0, round(10 / 14, 6), 0.0]
    above = store.similarity_search_with_relevance_scores(
        "1 2 3", k=4, score_threshold=1.0
    )
    assert [document.id for document, _ in above] == ["a", "b"]


def test_identical_text_has_relevance_one_for_any_embedding() -> None:
    """The last digits of float32 do not show."""
    store = ForgetmemVectorStore(DeterministicFakeEmbedding(size=384))
    texts = [f"text {n}" for n in range(200)]
    store.add_texts(texts)
    for text in texts[::10]:
        ((_, score),) = store.similarity_search_with_relevance_scores(text, k=1)
        assert score == 1.0


def test_order_is_that_of_brute_force(
    filled: ForgetmemVectorStore, embeddings: Embeddings
) -> None:
    """As the framework's own exact store ranks, for every k."""
    reference = InMemoryVectorStore(embeddings)
    reference.add_documents(filled.get_by_ids(filled.list_ids()))
    for query in ("pump leak", "anna north night", "something else"):
        for k in (1, 5, 60, 100):
            expected = reference.similarity_search_with_score(query, k)
            found = filled.similarity_search_with_score(query, k)
            assert [score for _, score in found] == pytest.approx(
                [score for _, score in expected], abs=1e-6
            )
            apart = np.diff([score for _, score in expected[: k + 1]])
            if (np.abs(apart) > 1e-6).all():
                assert ids([d for d, _ in found]) == ids([d for d, _ in expected])


def test_filter_chooses_before_the_ranking(embeddings: Embeddings) -> None:
    """A small user gets full answers beside a large one that is nearer."""
    store = ForgetmemVectorStore(embeddings)
    store.add_texts([f"who is on call {n}" for n in range(200)], [{"u": "a"}] * 200)
    store.add_texts(["lunch", "the pump", "a valve"], [{"u": "b"}] * 3)
    for options in ({}, {"fetch_k": 5}):
        found = store.similarity_search(
            "who is on call", k=3, filter={"u": "b"}, **options
        )
        assert {document.metadata["u"] for document in found} == {"b"}
        assert len(found) == 3
    diverse = store.max_marginal_relevance_search(
        "who is on call", k=3, fetch_k=5, filter={"u": "b"}
    )
    assert {document.metadata["u"] for document in diverse} == {"b"}


def test_filters_of_both_forms_agree(filled: ForgetmemVectorStore) -> None:
    """Dict and function find the same, in every kind of search and by id."""
    pairs: list[tuple[dict[str, Any], Any]] = [
        ({"u": "b"}, lambda d: d.metadata["u"] == "b"),
        ({"n": {"$gte": 40}}, lambda d: d.metadata["n"] >= 40),
        (
            {"$or": [{"u": "c"}, {"n": 3}]},
            lambda d: d.metadata["u"] == "c" or d.id == "d03",
        ),
        ({"u": "nobody"}, lambda d: "nobody" in d.page_content),
    ]
    for where, predicate in pairs:
        assert filled.list_ids(filter=where) == filled.list_ids(filter=predicate)
        for search in (
            filled.similarity_search,
            filled.support_search,
            filled.max_marginal_relevance_search,
        ):
            expected = search("pump leak", k=7, filter=where)
            assert ids(search("pump leak", k=7, filter=predicate)) == ids(expected)
            assert all(predicate(document) for document in expected)


def test_filters_are_never_ignored(filled: ForgetmemVectorStore) -> None:
    """What is not understood is an error; an empty dict has no condition."""
    assert filled.similarity_search("pump", filter={"u": "z"}) == []
    filled.add_texts(["tagged"], [{"tags": ["x", "y"]}], ids=["t"])
    assert ids(filled.similarity_search("q", filter={"tags": ["x", "y"]})) == ["t"]
    assert len(filled.similarity_search("pump", k=3, filter={})) == 3
    for bad in ({"u": {"$foo": 1}}, {"$foo": 1}, "u = 'b'", [("u", "b")], 7):
        with pytest.raises(ValueError):
            filled.similarity_search("pump", filter=bad)
        with pytest.raises(ValueError):
            filled.max_marginal_relevance_search("pump", filter=bad)
    for misspelt in ({"filters": {"u": "b"}}, {"where": {"u": "b"}}, {"lambda": 1}):
        with pytest.raises(TypeError, match="unexpected"):
            filled.similarity_search("pump", **misspelt)
        with pytest.raises(TypeError, match="unexpected"):
            filled.max_marginal_relevance_search("pump", **misspelt)
        with pytest.raises(TypeError, match="unexpected"):
            filled.support_search("pump", **misspelt)
        with pytest.raises(TypeError, match="unexpected"):
            ForgetmemRetriever(vectorstore=filled).invoke("pump", None, **misspelt)


@pytest.mark.parametrize("k", [0, -1, -50])
async def test_no_answers_are_asked_for(filled: ForgetmemVectorStore, k: int) -> None:
    """A k of 0 or less finds nothing, everywhere."""
    assert filled.similarity_search("pump", k=k) == []
    assert filled.similarity_search_with_score("pump", k=k) == []
    assert filled.similarity_search_by_vector([1.0] * 32, k=k) == []
    assert filled.max_marginal_relevance_search("pump", k=k) == []
    assert filled.max_marginal_relevance_search("pump", fetch_k=k) == []
    assert filled.support_search("pump", k=k) == []
    assert await filled.asimilarity_search("pump", k=k) == []


def test_vector_of_another_dimension_is_refused(filled: ForgetmemVectorStore) -> None:
    """Never an answer by accident."""
    with pytest.raises(ValueError, match="dimension"):
        filled.similarity_search_by_vector([1.0, 2.0])


def reference_mmr(
    scores: list[float], X: np.ndarray, k: int, lambda_mult: float
) -> list[int]:
    """Choose as the definition says."""
    chosen = [0]
    while len(chosen) < min(k, len(scores)):
        gains = {
            row: lambda_mult * scores[row]
            - (1 - lambda_mult) * max(math.fsum(X[row] * X[one]) for one in chosen)
            for row in range(len(scores))
            if row not in chosen
        }
        chosen.append(max(gains, key=lambda row: gains[row]))
    return chosen


@pytest.mark.parametrize("lambda_mult", [0.0, 0.3, 0.5, 1.0])
async def test_diversity_is_maximal_marginal_relevance(
    filled: ForgetmemVectorStore, embeddings: Embeddings, lambda_mult: float
) -> None:
    """By text and by vector, sync and async, for several sizes."""
    for k, fetch_k in ((1, 20), (4, 20), (9, 5), (70, 70)):
        best = filled.similarity_search_with_score("pump leak", fetch_k)
        names = [document.id or "" for document, _ in best]
        records = {record.id: record for record in filled.memory.get(names)}
        X = np.array([records[id].embedding for id in names], dtype=np.float64)
        rows = reference_mmr([score for _, score in best], X, k, lambda_mult)
        expected = [names[row] for row in rows]
        vector = embeddings.embed_query("pump leak")
        options = {"k": k, "fetch_k": fetch_k, "lambda_mult": lambda_mult}
        assert (
            ids(filled.max_marginal_relevance_search("pump leak", **options))
            == expected
        )
        assert (
            ids(filled.max_marginal_relevance_search_by_vector(vector, **options))
            == expected
        )
        assert (
            ids(await filled.amax_marginal_relevance_search("pump leak", **options))
            == expected
        )


async def test_stock_retrievers_know_every_search_type(
    filled: ForgetmemVectorStore,
) -> None:
    """Options of the constructor and of the call are merged; sync equals async."""
    expected = {
        "similarity": ids(
            filled.similarity_search("pump leak", k=5, filter={"u": "b"})
        ),
        "mmr": ids(
            filled.max_marginal_relevance_search("pump leak", k=5, filter={"u": "b"})
        ),
        "support": ids([*filled.support_search("pump leak", k=5, filter={"u": "b"})]),
    }
    for search_type, wanted in expected.items():
        options = {"k": 3, "filter": {"u": "b"}}
        retriever = filled.as_retriever(search_type=search_type, search_kwargs=options)
        assert ids(retriever.invoke("pump leak", None, k=5)) == wanted
        assert ids(await retriever.ainvoke("pump leak", None, k=5)) == wanted
        assert len(retriever.invoke("pump leak")) == 3
        assert (
            ids(filled.search("pump leak", search_type, k=5, filter={"u": "b"}))
            == wanted
        )
        assert (
            ids(await filled.asearch("pump leak", search_type, k=5, filter={"u": "b"}))
            == wanted
        )
    threshold = filled.as_retriever(
        search_type="similarity_score_threshold",
        search_kwargs={"score_threshold": 0.5, "k": 60},
    )
    scored = filled.similarity_search_with_relevance_scores("pump leak", k=60)
    above = [document.id for document, score in scored if score >= 0.5]
    assert 0 < len(above) < 60
    assert ids(threshold.invoke("pump leak")) == above
    assert ids(await threshold.ainvoke("pump leak")) == above
    with pytest.raises(ValueError, match="search_type"):
        filled.as_retriever(search_type="nearest")
    with pytest.raises(ValueError, match="search_type"):
        filled.search("pump", "nearest")
    assert "WordEmbeddings" in (filled.as_retriever().tags or [])


async def test_retriever_finds_what_the_memory_finds(
    filled: ForgetmemVectorStore,
) -> None:
    """Each document carries its hit, and exactly the stored metadata."""
    filled.add_texts(["pump leak 9"] * 3, [{"u": "b"}] * 3, ids=["x", "y", "z"])
    retriever = ForgetmemRetriever(vectorstore=filled, k=4, filter={"u": "b"})
    found = retriever.invoke("pump leak 9")
    hits = filled.memory.search("pump leak 9", 4, where={"u": "b"})
    assert [
        document.hit for document in found if isinstance(document, HitDocument)
    ] == hits
    assert [document.metadata for document in found] == [hit.metadata for hit in hits]
    first = found[0]
    assert isinstance(first, HitDocument)
    assert first.hit.same == ("y", "z")
    assert 0.0 < first.hit.weight <= 1.0
    assert ids(await retriever.ainvoke("pump leak 9")) == ids(found)
    plain = retriever.invoke("pump leak 9", None, ranking="similarity", k=3)
    assert ids(plain) == ["x", "y", "z"]
    other = await retriever.ainvoke("pump leak 9", None, filter={"u": "a"}, k=2)
    assert {document.metadata["u"] for document in other} == {"a"}


def test_hit_documents_are_plain_once_serialised(filled: ForgetmemVectorStore) -> None:
    """Caches and tracers see a `Document`; the hit stays behind."""
    (found,) = filled.support_search("pump leak", k=1)
    plain = Document(found.page_content, id=found.id, metadata=found.metadata)
    assert found.model_dump() == plain.model_dump()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangChainBetaWarning)
        assert loads(dumps(found), allowed_objects=[Document]) == plain
    assert str(found) == str(plain)


def test_copies_do_not_crowd_the_answer(filled: ForgetmemVectorStore) -> None:
    """Support ranking names copies instead of repeating them."""
    filled.add_texts(["the pump failed"] * 20)
    similar = filled.similarity_search("the pump failed", k=5)
    support = filled.support_search("the pump failed", k=5)
    assert {document.page_content for document in similar} == {"the pump failed"}
    assert len({document.page_content for document in support}) == 5


def test_get_by_ids_answers_in_the_order_asked(filled: ForgetmemVectorStore) -> None:
    """Each once, unknown ones left out, each with its own text."""
    found = filled.get_by_ids(["d07", "d01", "nope", "d01"])
    assert ids(found) == ["d07", "d01"]
    assert [document.metadata["n"] for document in found] == [7, 1]
    assert [document.page_content.split()[-1] for document in found] == ["7", "1"]


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan, "x", None], ids=str)
def test_diversity_out_of_range_is_refused(
    filled: ForgetmemVectorStore, wrong: Any
) -> None:
    """An error that names the argument."""
    with pytest.raises(ValueError, match="lambda_mult"):
        filled.max_marginal_relevance_search("pump", lambda_mult=wrong)


def test_wrong_types_are_named(filled: ForgetmemVectorStore) -> None:
    """Instead of an error from somewhere inside."""
    with pytest.raises(ValueError, match="expected k"):
        filled.similarity_search("pump", k="3")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected a query"):
        filled.similarity_search(None)  # type: ignore[arg-type]
