"""`where`: operators, types, missing keys, and loud errors."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetmem.errors import InvalidInputError
from forgetmem.filters import parse_filter, same_value

MISSING: dict[str, object] = {}


def _matches(where: dict[str, object], metadata: dict[str, object]) -> bool:
    return parse_filter(where).matches(metadata)


VALUES = [None, True, False, 0, 1, 2, 1.0, 2.5, "", "1", "a", [], ["a"], {}, {"b": 1}]


@pytest.mark.parametrize("wanted", VALUES, ids=repr)
def test_equality_is_by_value_and_json_type(wanted: object) -> None:
    """`==` decides, except that bools equal only bools."""
    for value in VALUES:
        bools = isinstance(value, bool), isinstance(wanted, bool)
        expected = value == wanted and bools[0] == bools[1]
        assert _matches({"k": {"$eq": wanted}}, {"k": value}) is expected
        assert _matches({"k": {"$ne": wanted}}, {"k": value}) is not expected
        assert _matches({"k": {"$in": ["zz", wanted]}}, {"k": value}) is expected
        assert _matches({"k": {"$nin": [wanted]}}, {"k": value}) is not expected


@pytest.mark.parametrize("wanted", VALUES, ids=repr)
def test_short_form_is_equality(wanted: object) -> None:
    """A plain value, list or dict without operators is compared whole."""
    assert _matches({"k": wanted}, {"k": wanted})
    assert not _matches({"k": wanted}, {"k": "something else"})


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"$eq": None}, False),
        ({"$in": [None]}, False),
        ({"$gt": 0}, False),
        ({"$lte": "z"}, False),
        ({"$exists": True}, False),
        ({"$ne": 1}, True),
        ({"$nin": [1]}, True),
        ({"$exists": False}, True),
        ({"$not": {"$gt": 0}}, True),
    ],
)
def test_missing_key_equals_nothing(
    condition: dict[str, object], expected: bool
) -> None:
    """Only negations match a record without the key."""
    assert _matches({"k": condition}, MISSING) is expected


def test_none_is_a_value_and_exists() -> None:
    """A stored None equals None and is there."""
    assert _matches({"k": None}, {"k": None})
    assert _matches({"k": {"$exists": True}}, {"k": None})
    assert not _matches({"k": {"$gte": 0}}, {"k": None})


@pytest.mark.parametrize(
    ("operator", "below", "equal", "above"),
    [
        ("$gt", False, False, True),
        ("$gte", False, True, True),
        ("$lt", True, False, False),
        ("$lte", True, True, False),
    ],
)
def test_order_of_numbers_and_of_strings(
    operator: str, below: bool, equal: bool, above: bool
) -> None:
    """Numbers order among numbers, strings among strings."""
    for low, middle, high in [(1, 2, 3), (1, 2.5, 10**300), ("a", "b", "c")]:
        where: dict[str, object] = {"k": {operator: middle}}
        assert _matches(where, {"k": low}) is below
        assert _matches(where, {"k": middle}) is equal
        assert _matches(where, {"k": high}) is above


@pytest.mark.parametrize("operator", ["$gt", "$gte", "$lt", "$lte"])
@pytest.mark.parametrize("value", [None, True, "5", [5], {"x": 5}], ids=repr)
def test_order_between_types_never_matches_and_never_raises(
    operator: str, value: object
) -> None:
    """A number is neither above nor below anything that is no number."""
    assert not _matches({"k": {operator: 4}}, {"k": value})
    assert not _matches({"k": {operator: "4"}}, {"k": 4})


def test_huge_numbers_compare_exactly() -> None:
    """Ints beyond the range of float are ordered without overflow."""
    assert _matches({"k": {"$gt": 1e308}}, {"k": 10**400})
    assert not _matches({"k": 2**53 + 1}, {"k": float(2**53)})


def test_scalar_does_not_match_a_list_that_contains_it() -> None:
    """Lists are compared whole, so nothing is forgotten by a loose match."""
    assert not _matches({"tags": "a"}, {"tags": ["a", "b"]})
    assert _matches({"tags": ["a", "b"]}, {"tags": ["a", "b"]})
    assert not _matches({"tags": ["b", "a"]}, {"tags": ["a", "b"]})


def test_nested_values_are_compared_whole_and_dots_mean_nothing() -> None:
    """A key is a top-level key as it stands."""
    assert _matches({"who": {"name": "x"}}, {"who": {"name": "x"}})
    assert not _matches({"who.name": "x"}, {"who": {"name": "x"}})
    assert _matches({"who.name": "x"}, {"who.name": "x"})
    assert not _matches({"who": {"name": 1}}, {"who": {"name": True}})


def test_several_keys_and_several_operators_are_a_conjunction() -> None:
    """All entries of a filter must hold."""
    where: dict[str, object] = {"team": "ops", "year": {"$gte": 2020, "$lt": 2024}}
    assert _matches(where, {"team": "ops", "year": 2020})
    assert not _matches(where, {"team": "ops", "year": 2024})
    assert not _matches(where, {"team": "dev", "year": 2020})


def test_logic_nests() -> None:
    """`$and`, `$or` and `$not` combine filters, and `$not` also operators."""
    where: dict[str, object] = {
        "$or": [
            {"$and": [{"a": 1}, {"b": {"$not": {"$in": [2, 3]}}}]},
            {"$not": {"c": {"$exists": True}}},
        ]
    }
    assert _matches(where, {"a": 1, "b": 4, "c": 0})
    assert not _matches(where, {"a": 1, "b": 2, "c": 0})
    assert _matches(where, {"a": 9})


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ({"u": {"$foo": 1}}, "$foo"),
        ({"u": {"$gt": 1, "plain": 2}}, "plain"),
        ({"$nor": [{"a": 1}]}, "$nor"),
        ({"a": {"$not": {"$regex": "x"}}}, "$regex"),
        ({"$or": [{"a": 1}, {"b": {"$like": "x"}}]}, "$like"),
    ],
)
def test_unknown_operator_is_named(where: dict[str, object], named: str) -> None:
    """A filter is never ignored in silence."""
    with pytest.raises(InvalidInputError, match="unknown operator") as caught:
        parse_filter(where)
    assert repr(named) in str(caught.value)


@pytest.mark.parametrize(
    "where",
    [
        {"a": {"$in": "abc"}},
        {"a": {"$in": 3}},
        {"a": {"$in": {"b": 1}}},
        {"a": {"$nin": None}},
        {"a": {"$exists": 1}},
        {"a": {"$gt": None}},
        {"a": {"$gt": True}},
        {"a": {"$gt": [1]}},
        {"a": {"$lt": float("nan")}},
        {"a": {"$not": 3}},
        {"a": {"$not": {}}},
        {"a": {"$not": {"b": 1}}},
        {"a": (1, 2)},
        {"a": float("inf")},
        {"a": Ellipsis},
        {3: 1},
        {"$and": []},
        {"$or": {"a": 1}},
        {"$or": "ab"},
        {"$or": [{}]},
        {"$not": {}},
        {"$not": [{"a": 1}]},
    ],
    ids=repr,
)
def test_bad_operands_are_refused(where: dict[str, object]) -> None:
    """A wrong operand is an error when the filter is parsed, not later."""
    with pytest.raises(InvalidInputError):
        parse_filter(where)


@pytest.mark.parametrize("where", [None, "a", ["a"], 3])
def test_only_a_mapping_or_a_function_is_a_filter(where: object) -> None:
    """Anything else is refused, an empty list included."""
    for allow_empty in (False, True):
        with pytest.raises(InvalidInputError, match="expected where as a dict"):
            parse_filter(where, allow_empty=allow_empty)  # type: ignore[arg-type]


def test_function_of_the_metadata_is_a_filter() -> None:
    """It sees a read-only view; what it returns counts as true or false."""
    parsed = parse_filter(lambda metadata: metadata.get("team", "").startswith("o"))
    assert parsed.matches({"team": "ops"})
    assert not parsed.matches({"team": "sales"})
    assert not parsed.matches({})

    def greedy(metadata: Mapping[str, object]) -> bool:
        metadata["seen"] = True  # type: ignore[index]
        return True

    with pytest.raises(TypeError):
        parse_filter(greedy).matches({"team": "ops"})


def test_empty_filter_means_everything_only_if_allowed() -> None:
    """`{}` is refused unless the caller says what it means."""
    with pytest.raises(InvalidInputError, match="empty"):
        parse_filter({})
    assert parse_filter({}, allow_empty=True).matches({"a": 1})
    with pytest.raises(InvalidInputError, match="empty"):
        parse_filter({"$not": {}}, allow_empty=True)


def test_deep_filters_are_refused() -> None:
    """Nesting has a limit, so a filter cannot exhaust the stack."""
    negated: dict[str, object] = {"a": 1}
    on_key: dict[str, object] = {"$gt": 1}
    for _ in range(200):
        negated = {"$not": negated}
        on_key = {"$not": on_key}
    for where in (negated, {"a": on_key}):
        with pytest.raises(InvalidInputError, match="nested more than"):
            parse_filter(where)


def test_later_changes_of_the_dict_do_not_reach_the_filter() -> None:
    """A filter holds copies of its operands."""
    wanted = ["a"]
    parsed = parse_filter({"tags": wanted})
    wanted.append("b")
    assert parsed.matches({"tags": ["a"]})


def test_empty_membership_matches_nothing_and_its_negation_everything() -> None:
    """`$in []` is legal and empty."""
    assert not _matches({"k": {"$in": []}}, {"k": 1})
    assert _matches({"k": {"$nin": []}}, {"k": 1})


keys = st.sampled_from("abc")
numbers = st.integers(-2, 2) | st.sampled_from([0.0, 0.5])
plain = numbers | st.booleans() | st.none() | st.sampled_from(["", "x", "y"])
conditions = st.one_of(
    plain,
    st.builds(lambda v: {"$eq": v}, plain),
    st.builds(lambda v: {"$ne": v}, plain),
    st.builds(lambda v: {"$in": v}, st.lists(plain, max_size=3)),
    st.builds(lambda v: {"$nin": v}, st.lists(plain, max_size=3)),
    st.builds(lambda v: {"$exists": v}, st.booleans()),
    st.builds(
        lambda o, v: {o: v}, st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), numbers
    ),
)
wheres = st.recursive(
    st.dictionaries(keys, conditions, min_size=1, max_size=2),
    lambda inner: st.one_of(
        st.builds(lambda v: {"$and": v}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda v: {"$or": v}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda v: {"$not": v}, inner),
    ),
    max_leaves=8,
)


def _oracle(where: object, record: dict[str, object]) -> bool:
    """Read a filter slowly, straight from the documented rules."""
    assert isinstance(where, dict)
    results = []
    for key, value in where.items():
        if key == "$and":
            results.append(all(_oracle(part, record) for part in value))
        elif key == "$or":
            results.append(any(_oracle(part, record) for part in value))
        elif key == "$not":
            results.append(not _oracle(value, record))
        else:
            results.append(_holds(value, key, record))
    return all(results)


def _holds(condition: object, key: str, record: dict[str, object]) -> bool:
    there, value = key in record, record.get(key)

    def equal(wanted: object) -> bool:
        return there and (isinstance(value, bool), value) == (
            isinstance(wanted, bool),
            wanted,
        )

    if not isinstance(condition, dict):
        return equal(condition)
    ((operator, operand),) = condition.items()
    if operator in ("$eq", "$ne"):
        return equal(operand) == (operator == "$eq")
    if operator in ("$in", "$nin"):
        return any(map(equal, operand)) == (operator == "$in")
    if operator == "$exists":
        return there == bool(operand)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    below, same = value < operand, value == operand
    return {
        "$lt": below,
        "$lte": below or same,
        "$gt": not below and not same,
        "$gte": not below,
    }[operator]


@given(wheres, st.dictionaries(keys, plain, max_size=3))
def test_random_filters_agree_with_a_slow_reading(
    where: dict[str, object], metadata: dict[str, object]
) -> None:
    """Nested filters give what the documented rules say."""
    assert _matches(where, metadata) is _oracle(where, metadata)


def test_same_value_looks_into_containers() -> None:
    """The type of a bool matters at any depth."""
    assert same_value({"a": [1, {"b": None}]}, {"a": [1.0, {"b": None}]})
    assert not same_value({"a": [1]}, {"a": [True]})
    assert not same_value({"a": 1}, {"b": 1})
    assert not same_value([1], [1, 1])
