"""Metadata round-trips exactly, or is refused with its key named."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetmem.errors import CorruptStoreError, InvalidInputError
from forgetmem.metadata import MAX_DEPTH, check_metadata, load_metadata

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)
metadatas = st.dictionaries(st.text(st.characters(codec="utf-8")), json_values)


class Colour(enum.StrEnum):
    """A subclass of str, which would come back as plain str."""

    RED = "red"


def _typed(value: object) -> object:
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return (type(value), repr(value))


@given(metadatas)
def test_metadata_comes_back_equal_with_every_type_and_digit(
    metadata: dict[str, object],
) -> None:
    """What is accepted loads as the same values of the same types."""
    assert _typed(load_metadata(check_metadata(metadata))) == _typed(metadata)


@given(metadatas)
def test_stored_form_does_not_depend_on_the_order_of_keys(
    metadata: dict[str, object],
) -> None:
    """A dict filled in another order has the same canonical JSON."""
    backwards = dict(reversed(list(metadata.items())))
    assert check_metadata(backwards) == check_metadata(metadata)


def test_none_is_the_empty_dict() -> None:
    """No metadata and empty metadata are one thing."""
    assert check_metadata(None) == check_metadata({}) == "{}"


def test_stored_form_is_a_copy() -> None:
    """Changing the caller's dict afterwards has no effect."""
    metadata = {"tags": ["a"]}
    stored = check_metadata(metadata)
    metadata["tags"].append("b")
    assert load_metadata(stored) == {"tags": ["a"]}


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"when": datetime.datetime(2024, 1, 1)}, "metadata['when']"),
        ({"day": datetime.date(2024, 1, 1)}, "metadata['day']"),
        ({"price": decimal.Decimal(1)}, "metadata['price']"),
        ({"score": np.float32(0.5)}, "metadata['score']"),
        ({"score": np.float64(0.5)}, "metadata['score']"),
        ({"n": np.int64(3)}, "metadata['n']"),
        ({"v": np.zeros(2)}, "metadata['v']"),
        ({"s": np.str_("x")}, "metadata['s']"),
        ({"colour": Colour.RED}, "metadata['colour']"),
        ({"pair": (1, 2)}, "metadata['pair']"),
        ({"set": {1}}, "metadata['set']"),
        ({"raw": b"x"}, "metadata['raw']"),
        ({"x": math.nan}, "metadata['x']"),
        ({"x": math.inf}, "metadata['x']"),
        ({"x": {"y": [0, (1,)]}}, "metadata['x']['y'][1]"),
        ({7: "x"}, "metadata has a key of type int (7)"),
        ({"x": {None: 1}}, "metadata['x'] has a key of type NoneType"),
        ({"x": "\ud800"}, "metadata['x'] holds a lone surrogate"),
        ({"\ud800": 1}, r"metadata: the key '\ud800' holds a lone surrogate"),
        ({"x": 1 << 2048}, "metadata['x'] is an int of more than"),
    ],
)
def test_what_would_not_round_trip_is_refused_with_its_key_named(
    metadata: dict[object, object], path: str
) -> None:
    """Each foreign value is an error that says where it stands."""
    with pytest.raises(InvalidInputError) as caught:
        check_metadata(metadata)
    assert path in str(caught.value)


@pytest.mark.parametrize("metadata", [[], "x", 3, [("a", 1)]])
def test_only_a_dict_is_metadata(metadata: object) -> None:
    """Lists, strings and numbers are refused."""
    with pytest.raises(InvalidInputError, match="expected metadata as a dict"):
        check_metadata(metadata)


def test_error_does_not_quote_the_value() -> None:
    """The value may be private; only its place and type are named."""
    with pytest.raises(InvalidInputError) as caught:
        check_metadata({"note": ("a very private remark",)})
    assert "private" not in str(caught.value)


def test_long_key_is_shortened_in_the_message() -> None:
    """A message stays one readable line."""
    with pytest.raises(InvalidInputError) as caught:
        check_metadata({"k" * 1000: {1}})
    assert len(str(caught.value)) < 250


def test_cycle_and_deep_nesting_are_refused() -> None:
    """A dict that contains itself is an error, not a crash."""
    cycle: dict[str, object] = {}
    cycle["self"] = cycle
    with pytest.raises(InvalidInputError, match="nested more than"):
        check_metadata(cycle)
    deep: object = 0
    for _ in range(MAX_DEPTH):
        deep = [deep]
    with pytest.raises(InvalidInputError, match="nested more than"):
        check_metadata({"x": [deep]})
    assert check_metadata({"x": deep[0]}) is not None  # type: ignore[index]


def test_largest_int_is_exact() -> None:
    """The largest int accepted comes back exactly, either sign."""
    largest = (1 << 2048) - 1
    for number in (largest, -largest):
        assert load_metadata(check_metadata({"x": number})) == {"x": number}


@pytest.mark.parametrize("text", ["", "[]", "null", '{"a":'])
def test_damaged_metadata_is_a_corrupt_store(text: str) -> None:
    """Stored text that is no JSON object is reported as damage."""
    with pytest.raises(CorruptStoreError):
        load_metadata(text)


def test_stored_form_keeps_characters_readable() -> None:
    """Text is stored as UTF-8, not as escapes, so that a byte scan can find it."""
    assert check_metadata({"ключ": "é"}) == '{"ключ":"é"}'
    assert json.loads(check_metadata({"a": "\u2028"})) == {"a": "\u2028"}
