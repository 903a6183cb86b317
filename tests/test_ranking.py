"""Both rankings equal their definition, computed over all records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import ForgettableMemory, Hit, InvalidInputError, Record
from forgetmem.distances import squared_distances
from forgetmem.ranking import SupportRanking


def filled(seed: int, **options: Any) -> ForgettableMemory:
    """Make a memory with look-alikes, exact copies and single records."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.standard_normal((15, 12)), 8, axis=0)
    X = X + 0.2 * rng.standard_normal(X.shape)
    X[5:8] = X[4]
    X = np.concatenate([X, rng.standard_normal((40, 12))])
    memory = ForgettableMemory(embedder=WordEmbedder(12), **options)
    order = rng.permutation(len(X))
    memory.add(
        [f"text {row}" for row in order],
        ids=[f"r{row:03d}" for row in order],
        metadatas=[{"part": int(row % 3)} for row in order],
        embeddings=X[order],
    )
    return memory


def unit(q: np.ndarray) -> np.ndarray:
    """Normalise a query as a memory does."""
    return (q / np.linalg.norm(q)).astype(np.float32).astype(np.float64)


def log_factor(settings: Any, x: np.ndarray, y: np.ndarray) -> float:
    """What a chosen record leaves of another one."""
    width = 2.0 * (2.0 - 2.0 * settings.alike)
    likeness = math.exp(-math.fsum((x - y) ** 2) / width) if width else 0.0
    return math.log(max(1.0 - (1.0 - settings.diminish) * likeness, 2.0**-52))


def reference(
    memory: ForgettableMemory, q: np.ndarray, k: int, part: int | None = None
) -> list[str]:
    """The greedy definition over all records, one a vector."""
    settings = memory.settings
    records = memory.get(memory.ids())
    if part is not None:
        records = [record for record in records if record.metadata["part"] == part]
    leaders: dict[bytes, Record] = {}
    for record in records:
        leaders.setdefault(record.embedding.tobytes(), record)
    vectors = {r.id: r.embedding.astype(np.float64) for r in leaders.values()}
    distance = {id: math.fsum((x - unit(q)) ** 2) for id, x in vectors.items()}
    phases = [list(leaders.values())]
    if part is None:
        support = [r for r in phases[0] if r.role != "reserve"]
        phases = [support, [r for r in phases[0] if r.role == "reserve"]]
    answer: list[str] = []
    for candidates in phases:
        left = {record.id for record in candidates}
        while left and len(answer) < k:
            keys = {}
            for id in left:
                keys[id] = -settings.gamma * distance[id]
                for chosen in answer:
                    keys[id] += log_factor(settings, vectors[id], vectors[chosen])
            best = min(left, key=lambda id: (-keys[id], id))
            answer.append(best)
            left.discard(best)
    return answer


OPTIONS = [
    pytest.param({}, id="default"),
    pytest.param({"diminish": 0.0}, id="no copy twice"),
    pytest.param({"diminish": 1.0, "gamma": 300.0}, id="narrow"),
    pytest.param({"alike": 0.7}, id="alike below link"),
    pytest.param({"alike": 1.0}, id="nothing alike"),
    pytest.param({"alike": -1.0, "diminish": 0.5}, id="all alike"),
    pytest.param({"link": -1.0, "max_group": None, "gamma": 1.0}, id="one group"),
    pytest.param({"C": 0.3}, id="soft"),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_support_ranking_is_the_greedy_rule(options: dict[str, Any]) -> None:
    """Support first, then reserve, what is like an answer counting less."""
    memory = filled(0, **options)
    rng = np.random.default_rng(1)
    for k in (1, 3, 10, 60, 200):
        q = rng.standard_normal(12)
        assert [hit.id for hit in memory.search(q, k)] == reference(memory, q, k)


@pytest.mark.parametrize("options", OPTIONS[:6])
def test_filtered_ranking_is_that_of_the_matching_records(
    options: dict[str, Any],
) -> None:
    """With where, others neither hide nor diminish a match."""
    memory = filled(2, **options)
    rng = np.random.default_rng(3)
    for k in (1, 5, 40, 100):
        q = rng.standard_normal(12)
        found = memory.search(q, k, where={"part": 1})
        assert [hit.id for hit in found] == reference(memory, q, k, part=1)
        assert all(hit.metadata == {"part": 1} for hit in found)
        matching = {r.id for r in memory.get(memory.ids()) if r.metadata["part"] == 1}
        assert all(set(hit.same) | set(hit.similar) <= matching for hit in found)


@pytest.mark.parametrize("ranking", ["support", "similarity"])
def test_chosen_ids_are_ranked_as_if_no_others_were_there(ranking: Any) -> None:
    """`among` and a function as `where` find what a dict finds."""
    memory = filled(2)
    matching = [r.id for r in memory.get(memory.ids()) if r.metadata["part"] == 1]
    for k in (1, 5, 40, 100):
        q = np.random.default_rng(k).standard_normal(12)
        expected = memory.search(q, k, where={"part": 1}, ranking=ranking)
        among = iter([*matching, "unknown", *matching[:3]])
        assert memory.search(q, k, among=among, ranking=ranking) == expected
        by_function = memory.search(
            q, k, where=lambda metadata: metadata["part"] == 1, ranking=ranking
        )
        assert by_function == expected
        both = memory.search(
            q, k, where={"part": 1}, among=memory.ids(), ranking=ranking
        )
        assert both == expected
    assert memory.search(q, 5, among=[], ranking=ranking) == []
    with pytest.raises(InvalidInputError, match="among"):
        memory.search(q, 5, among="r001", ranking=ranking)


def test_ids_can_be_chosen_by_source_and_metadata() -> None:
    """Both conditions hold together; no condition means all."""
    memory = ForgettableMemory(embedder=WordEmbedder())
    memory.add(
        ["one", "two", "three", "four"],
        ids=["d", "c", "b", "a"],
        metadatas=[{"n": 1}, {"n": 2}, {"n": 3}, None],
        source_ids=["x", "x", "y", None],
    )
    assert memory.ids() == ["a", "b", "c", "d"]
    assert memory.ids(source_id="x") == ["c", "d"]
    assert memory.ids(source_id="z") == []
    assert memory.ids(where={"n": {"$gte": 2}}) == ["b", "c"]
    assert memory.ids(where={"n": {"$gte": 2}}, source_id="x") == ["c"]
    assert memory.ids(where=lambda metadata: not metadata) == ["a"]
    with pytest.raises(InvalidInputError, match="empty"):
        memory.ids(where={})


def test_error_of_a_filter_function_passes_through() -> None:
    """Nothing is changed, and the memory goes on."""
    memory = filled(3)
    before = memory.digest()

    def broken(metadata: Mapping[str, Any]) -> bool:
        raise KeyError("part of a stranger")

    with pytest.raises(KeyError, match="stranger"):
        memory.search(np.ones(12), where=broken)
    with pytest.raises(KeyError, match="stranger"):
        memory.forget(where=broken)
    assert memory.digest() == before
    gone = memory.forget(where=lambda metadata: metadata["part"] == 2)
    assert gone.forgotten == 53
    assert {r.metadata["part"] for r in memory.get(memory.ids())} == {0, 1}


def test_similarity_is_exact_cosine_over_all_records() -> None:
    """Every record is ranked by cosine; copies are separate answers; ties go by id."""
    memory = filled(4)
    records = memory.get(memory.ids())
    for k in (1, 7, 50, 500):
        q = np.random.default_rng(k).standard_normal(12)
        cosines = {
            r.id: math.fsum(r.embedding.astype(np.float64) * unit(q)) for r in records
        }
        found = memory.search(q, k, ranking="similarity")
        expected = sorted(cosines, key=lambda id: (-round(cosines[id], 12), id))[:k]
        assert [hit.id for hit in found] == expected
        assert np.allclose([hit.score for hit in found], [cosines[i] for i in expected])


def test_copies_do_not_crowd_the_answer() -> None:
    """One hit stands for identical vectors, and names them."""
    memory = ForgettableMemory(embedder=WordEmbedder())
    memory.add(["the pump failed"] * 30, ids=[f"c{n:02d}" for n in range(30)])
    memory.add(["the pump failed again", "something else"], ids=["x", "y"])
    first, *rest = memory.search("the pump failed", 3)
    assert first.id == "c00"
    assert first.n_same == 29
    assert first.same == tuple(f"c{n:02d}" for n in range(1, 21))
    assert {hit.id for hit in rest} == {"x", "y"}


def test_similar_names_the_look_alikes() -> None:
    """Look-alikes by direct similarity, nearest first, not by group."""
    angles = np.arange(6) * 0.3
    X = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    memory = ForgettableMemory(embedder=WordEmbedder(2), link=0.9, alike=0.9)
    memory.add([f"t{n}" for n in range(6)], ids=list("abcdef"), embeddings=X)
    assert memory.stats()["groups"] == 1
    hit = next(hit for hit in memory.search(X[2], 6) if hit.id == "c")
    assert set(hit.similar) == {"b", "d"}
    assert hit.n_similar == 2


@pytest.mark.parametrize("ranking", ["support", "similarity"])
def test_zero_query_has_a_defined_order(ranking: Any) -> None:
    """A zero query has cosine 0 with everything; ties go by id; scores are finite."""
    memory = filled(5, link=1.0)
    found = memory.search(np.zeros(12), 6, ranking=ranking)
    assert all(hit.score == 0.0 and math.isfinite(hit.mass) for hit in found)
    ids = [hit.id for hit in found]
    assert ids == sorted(ids)
    assert ids[0] == min(memory.ids())


@pytest.mark.parametrize("shift", [1, 3, 4, 7])
def test_place_of_a_candidate_does_not_change_its_key(shift: int) -> None:
    """Other neighbours in the array, other alignment: the same bits."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((203, 12)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1)[:, np.newaxis]
    ranking = SupportRanking(8.0, 0.3, 0.1)
    whole = ranking.log_factors(squared_distances(X, X[0]))
    moved = squared_distances(np.ascontiguousarray(X[shift:]), X[0])
    assert (whole[shift:] == ranking.log_factors(moved)).all()
    order = rng.permutation(203)
    mixed = squared_distances(X[order], X[0])
    assert (ranking.log_factors(mixed) == whole[order]).all()


def test_far_query_does_not_underflow() -> None:
    """A kernel of zero everywhere still ranks by distance, and reads."""
    memory = filled(6, gamma=1e5)
    q = np.random.default_rng(0).standard_normal(12)
    assert [hit.id for hit in memory.search(q, 12)] == reference(memory, q, 12)
    view = memory.read(q)
    assert math.isclose(math.fsum(view.masses), 1.0, rel_tol=1e-9)
    assert view.novelty == 1.0


def test_readout_is_the_weighted_mean_of_the_support() -> None:
    """Masses, value and novelty equal their formulas."""
    memory = filled(7)
    records = [r for r in memory.get(memory.ids()) if r.role != "reserve"]
    leaders = {r.embedding.tobytes(): r for r in reversed(records)}
    q = np.random.default_rng(1).standard_normal(12)
    names = sorted(r.id for r in leaders.values())
    by_id = {r.id: r for r in leaders.values()}
    X = np.array([by_id[id].embedding for id in names], dtype=np.float64)
    w = np.array([by_id[id].weight for id in names])
    mass = w * np.exp(-8.0 * ((X - unit(q)) ** 2).sum(axis=1))
    view = memory.read(q, len(names))
    assert view.n_support == len(names)
    assert sorted(view.ids) == names
    assert np.allclose(sorted(view.masses), sorted(mass / mass.sum()), atol=1e-14)
    assert np.allclose(view.value, (mass / mass.sum()) @ X, atol=1e-14)
    assert (np.diff(view.masses) <= 0).all()
    table = {id: [float(n), 1.0] for n, id in enumerate(names)}
    other = memory.read(q, values=table)
    assert np.allclose(other.value, (mass / mass.sum()) @ [table[id] for id in names])
    with pytest.raises(InvalidInputError, match="lacks"):
        memory.read(q, values={})


def test_novelty_tells_the_unknown() -> None:
    """A stored text is not new; something unrelated is."""
    memory = ForgettableMemory(embedder=WordEmbedder(64))
    memory.add(["the pump failed in march", "valve seven leaked"])
    assert memory.read("valve seven leaked").novelty < 1e-6
    assert memory.read("quarterly tax report").novelty > 0.9
    empty = ForgettableMemory(embedder=WordEmbedder(64)).read("anything")
    assert empty.novelty == 1.0
    assert empty.ids == ()


@pytest.mark.parametrize("k", [-1, 1.5, "3", True, None])
def test_bad_k_is_refused(k: Any) -> None:
    """K is an integer of at least 0; 0 gives nothing."""
    memory = filled(8)
    with pytest.raises(InvalidInputError, match="k must be"):
        memory.search(np.ones(12), k)
    assert memory.search(np.ones(12), 0) == []


def test_hits_are_equal_in_every_field_for_equal_memories() -> None:
    """Hit compares by value."""
    one: list[Hit] = filled(9).search(np.ones(12), 5)
    assert one == filled(9).search(np.ones(12), 5)
    assert one != filled(10).search(np.ones(12), 5)
