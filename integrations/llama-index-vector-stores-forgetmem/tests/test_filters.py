"""Filters mean what LlamaIndex's in-memory store means by them, and may be nested."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn
from llama_index.vector_stores.forgetmem import ForgetmemVectorStore
from pydantic import ValidationError

MISSING = object()

#: Stored under the key "x", one node each.
STORED: list[object] = [
    MISSING, None, "", "a", "abc", "ABC", "5", 5, 5.0, 7, 0, -1.5, True, False,
    [], ["a"], ["a", "b"], [5, 7], {"a": 1}, {},
]  # fmt: skip

#: Given with every operator, where LlamaIndex lets them through.
GIVEN: list[object] = [
    None, "", "a", "bc", "5", 5, 5.0, 7, 0, [], ["a"], ["a", "b"], [5], [5.0, 7.5],
]  # fmt: skip

NODES = 8


def leaf(key: str, value: Any, operator: FilterOperator) -> MetadataFilter | None:
    """Make a filter, unless LlamaIndex refuses its value."""
    try:
        return MetadataFilter(key=key, value=value, operator=operator)
    except ValidationError:
        return None


@pytest.fixture
def odd(make_node: Callable[..., TextNode]) -> ForgetmemVectorStore:
    """A store with a node for every stored value."""
    store = ForgetmemVectorStore()
    store.add(
        [
            make_node(
                f"n{position:02d}",
                f"text {position}",
                source="doc" if position % 2 else None,
                **({} if value is MISSING else {"x": value}),
            )
            for position, value in enumerate(STORED)
        ]
    )
    return store


def expected(store: ForgetmemVectorStore, filters: MetadataFilters) -> Any:
    """Ask LlamaIndex's own function, node by node."""
    metadata = {node.node_id: node.metadata for node in store.get_nodes()}
    decide = build_metadata_filter_fn(lambda id: metadata[id], filters)
    try:
        return [id for id in sorted(metadata) if decide(id)]
    except TypeError:
        return TypeError


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or the error that LlamaIndex has too."""
    try:
        return call()
    except TypeError as error:
        assert "cannot be applied" in str(error)
        return TypeError


@pytest.mark.parametrize("operator", FilterOperator, ids=lambda one: one.name)
def test_every_operator_agrees_with_the_in_memory_store(
    odd: ForgetmemVectorStore, operator: FilterOperator
) -> None:
    """On missing keys, None, empty values, and types that do not fit together."""
    agreed = 0
    for value in GIVEN:
        filter = leaf("x", value, operator)
        if filter is None:
            continue
        for condition in FilterCondition:
            filters = MetadataFilters(filters=[filter], condition=condition)
            wanted = expected(odd, filters)
            assert outcome(lambda f=filters: odd.list_ids(filters=f)) == wanted
            agreed += 1
    assert agreed == 3 * len([v for v in GIVEN if leaf("x", v, operator)])


def test_booleans_are_refused_by_llama_index_itself() -> None:
    """They never reach a store."""
    with pytest.raises(ValidationError):
        MetadataFilter(key="x", value=True)  # type: ignore[arg-type]


def trees(rng: random.Random, depth: int) -> MetadataFilters:
    """Make a random tree of conditions over keys a (int), b (str), c (list)."""
    choices: list[Callable[[], MetadataFilter | MetadataFilters]] = [
        lambda: MetadataFilter(
            key="a",
            value=rng.randrange(4),
            operator=rng.choice([">", "<", ">=", "<=", "==", "!="]),
        ),
        lambda: MetadataFilter(
            key="b", value=rng.sample("uvw", 2), operator=rng.choice(["in", "nin"])
        ),
        lambda: MetadataFilter(
            key="c", value=rng.choice("xyz"), operator=FilterOperator.CONTAINS
        ),
        lambda: MetadataFilter(
            key="c", value=rng.sample("xyz", 2), operator=rng.choice(["any", "all"])
        ),
        lambda: MetadataFilter(key="b", value=None, operator=FilterOperator.IS_EMPTY),
    ]
    if depth > 0:
        choices += [lambda: trees(rng, depth - 1)] * 5
    return MetadataFilters(
        filters=[rng.choice(choices)() for _ in range(rng.randrange(1, 4))],
        condition=rng.choice(list(FilterCondition)),
    )


def oracle(filters: MetadataFilters, metadata: dict[str, Any]) -> bool:
    """Read a tree plainly."""

    def one(filter: MetadataFilter | MetadataFilters) -> bool:
        if isinstance(filter, MetadataFilters):
            return oracle(filter, metadata)
        stored, value = metadata.get(filter.key), filter.value
        operator = filter.operator.value
        if operator == "is_empty":
            return stored in (None, "", [])
        if stored is None:
            return operator in ("!=", "nin")
        plain: dict[str, Callable[[Any, Any], bool]] = {
            ">": lambda s, v: s > v,
            "<": lambda s, v: s < v,
            ">=": lambda s, v: s >= v,
            "<=": lambda s, v: s <= v,
            "==": lambda s, v: s == v,
            "!=": lambda s, v: s != v,
            "in": lambda s, v: s in v,
            "nin": lambda s, v: s not in v,
            "contains": lambda s, v: v in s,
            "any": lambda s, v: bool(set(s) & set(v)),
            "all": lambda s, v: set(v) <= set(s),
        }
        return plain[operator](stored, value)

    verdicts = [one(filter) for filter in filters.filters]
    if filters.condition == FilterCondition.AND:
        return all(verdicts)
    return any(verdicts) == (filters.condition == FilterCondition.OR)


def some_metadata(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Make metadata with some keys left out."""
    for _ in range(NODES):
        whole = {
            "a": rng.randrange(4),
            "b": rng.choice(["u", "v", "w", None, ""]),
            "c": rng.sample("xyz", rng.randrange(3)),
        }
        yield {key: value for key, value in whole.items() if rng.random() < 0.8}


def test_nested_filters_agree_with_a_plain_reading(
    make_node: Callable[..., TextNode], vector: Callable[[str], list[float]]
) -> None:
    """Thirty random trees of depth three, in queries, listings and deletions."""
    rng = random.Random(7)
    metadata = dict(zip("ABCDEFGH", some_metadata(rng), strict=True))
    nodes = [make_node(id, f"text {id}", **own) for id, own in metadata.items()]
    sizes = set()
    for _ in range(30):
        filters = trees(rng, 3)
        wanted = {id for id, own in metadata.items() if oracle(filters, own)}
        with ForgetmemVectorStore() as store:
            store.add(nodes)
            result = store.query(
                VectorStoreQuery(
                    query_embedding=vector("text B"),
                    similarity_top_k=99,
                    filters=filters,
                )
            )
            assert set(result.ids or []) == wanted
            assert {node.node_id for node in store.get_nodes(filters=filters)} == wanted
            store.delete_nodes(filters=filters)
            assert set(store.list_ids()) == set(metadata) - wanted
        sizes.add(len(wanted))
    assert len(sizes) > 4


def test_source_and_class_can_be_filtered(
    odd: ForgetmemVectorStore, vector: Callable[[str], list[float]]
) -> None:
    """Under the names that LlamaIndex's stores use; orphans have no source."""
    reference = SimpleVectorStore()
    nodes = [
        node.model_copy(update={"embedding": vector("x")}) for node in odd.get_nodes()
    ]
    reference.add(nodes)
    for key in ("ref_doc_id", "doc_id", "document_id", "_node_type"):
        for value in ("doc", "nope", "TextNode"):
            filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value)])
            query = VectorStoreQuery(
                query_embedding=vector("x"), similarity_top_k=99, filters=filters
            )
            assert sorted(odd.query(query).ids or []) == sorted(
                reference.query(query).ids or []
            )
    none = MetadataFilters(filters=[MetadataFilter(key="doc_id", value="None")])
    assert odd.list_ids(filters=none) == []
    inner = MetadataFilters(filters=[MetadataFilter(key="_node", value="x")])
    assert odd.list_ids(filters=inner) == []


def test_no_filters_are_no_restriction(
    odd: ForgetmemVectorStore, vector: Callable[[str], list[float]]
) -> None:
    """In a query; a deletion is refused instead."""
    empty = MetadataFilters(filters=[])
    query = VectorStoreQuery(
        query_embedding=vector("x"), similarity_top_k=99, filters=empty
    )
    assert len(odd.query(query).ids or []) == len(STORED)
    with pytest.raises(ValueError, match="clear"):
        odd.delete_nodes(filters=empty)
    with pytest.raises(ValueError, match="clear"):
        odd.forget(filters=empty)
    assert len(odd.list_ids()) == len(STORED)
