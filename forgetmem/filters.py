"""`where`: parsed once, then a predicate on the metadata of a record.

A filter is a dict from metadata keys to conditions, all of which must hold::

    {"team": "ops"}                                equality
    {"year": {"$gte": 2020, "$lt": 2024}}          several operators on one key
    {"lang": {"$in": ["de", "fr"]}}
    {"$or": [{"team": "ops"}, {"$not": {"year": {"$exists": True}}}]}

Operators on a key: ``$eq $ne $gt $gte $lt $lte $in $nin $exists $not``; between
filters: ``$and $or $not``. Any other name that begins with ``$`` is an error. The
rules, which hold for every operator and never raise while matching:

- A key is a top-level key of the metadata as it stands; a dot in it means nothing.
- Equality compares whole values and their JSON types: a string never equals a
  number, ``True`` is not ``1``, a scalar does not match a list that contains it,
  lists match element by element and dicts key by key. Numbers are compared by
  value, so ``1`` equals ``1.0``.
- A missing key equals nothing, not even ``None``; ``None`` equals only ``None``.
- ``$ne`` and ``$nin`` are the exact opposites of ``$eq`` and ``$in``, so they match
  records without the key; ``$exists`` tells whether the key is there at all.
- ``$gt $gte $lt $lte`` order numbers among numbers and strings among strings (by
  code point). Another type, a missing key or ``None`` does not match.

Where this language does not reach, a `where` may be a function of the metadata::

    lambda metadata: metadata.get("team", "").startswith("ops")
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, TypeGuard, final

from forgetmem.errors import InvalidInputError
from forgetmem.metadata import MAX_DEPTH, check_json

__all__ = ["Filter", "Where", "parse_filter"]

#: What a caller gives as `where`: a dict, or a function of the metadata.
Where: TypeAlias = Mapping[str, Any] | Callable[[Mapping[str, Any]], bool]


class Filter(ABC):
    """A parsed `where`."""

    @abstractmethod
    def matches(self, metadata: Mapping[str, object]) -> bool:
        """Tell whether a record with this metadata is meant.

        Parameters
        ----------
        metadata : mapping
            The metadata of one record.

        Returns
        -------
        bool
        """


@final
@dataclass(frozen=True, slots=True)
class AllOf(Filter):
    """Every one of the parts must match; no parts match everything."""

    parts: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, object]) -> bool:
        """Tell whether all parts match."""
        return all(part.matches(metadata) for part in self.parts)


@final
@dataclass(frozen=True, slots=True)
class AnyOf(Filter):
    """At least one of the parts must match."""

    parts: tuple[Filter, ...]

    def matches(self, metadata: Mapping[str, object]) -> bool:
        """Tell whether one of the parts matches."""
        return any(part.matches(metadata) for part in self.parts)


@final
@dataclass(frozen=True, slots=True)
class Not(Filter):
    """The part must not match."""

    part: Filter

    def matches(self, metadata: Mapping[str, object]) -> bool:
        """Tell whether the part does not match."""
        return not self.part.matches(metadata)


@final
@dataclass(frozen=True, slots=True)
class Exists(Filter):
    """The key must be there, whatever its value."""

    key: str

    def matches(self, metadata: Mapping[str, object]) -> bool:
        """Tell whether the key is there."""
        return self.key in metadata


@final
@dataclass(frozen=True, slots=True)
class OneOf(Filter):
    """The key must be there and equal one of the values."""

    key: str
    values: tuple[object, ...]

    def matches(self, metadata: Mapping[str, object]) -> bool:
        """Tell whether the value is one of those given."""
        if self.key not in metadata:
            return False
        value = metadata[self.key]
        return any(same_value(value, wanted) for wanted in self.values)


@final
@dataclass(frozen=True, slots=True)
class Ordered(Filter):
    """The key must be there, of the bound's kind, and on its right side."""

    key: str
    compare: Callable[[Any, Any], bool]
    bound: int | float | str

    def matches(self, metadata: Mapping[str, object]) -> bool:
        """Tell whether the value can be ordered against the bound, and is."""
        value = metadata.get(self.key)
        if isinstance(self.bound, str):
            return isinstance(value, str) and self.compare(value, self.bound)
        return _is_number(value) and self.compare(value, self.bound)


@final
@dataclass(frozen=True, slots=True)
class Predicate(Filter):
    """A caller's function must say so; an exception of it passes through."""

    function: Callable[[Mapping[str, Any]], bool]

    def matches(self, metadata: Mapping[str, object]) -> bool:
        """Tell what the function says of a read-only view."""
        return bool(self.function(MappingProxyType(metadata)))


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_ON_KEYS = "$eq $ne $gt $gte $lt $lte $in $nin $exists $not"
_BETWEEN = "$and $or $not"


def parse_filter(where: Where, *, allow_empty: bool = False) -> Filter:
    """Check a `where` and make it a predicate.

    Parameters
    ----------
    where : mapping or callable
        As described at the top of this module.
    allow_empty : bool, default False
        Whether ``{}`` is accepted, as a filter that matches every record.

    Returns
    -------
    Filter
        Frozen; later changes to `where` do not reach it.

    Raises
    ------
    InvalidInputError
        For an unknown operator, an operand of a wrong type, a value that metadata
        cannot hold, an empty list of filters or an empty filter.
    """
    if allow_empty and isinstance(where, Mapping) and not where:
        return AllOf(())
    if callable(where):
        return Predicate(where)
    return _parse_where(where, "where", 0)


def same_value(left: object, right: object) -> bool:
    """Tell whether two JSON values are equal, with their types.

    Parameters
    ----------
    left, right : object
        JSON values.

    Returns
    -------
    bool
        Like ``==``, but a bool equals only a bool, at any depth.
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(
            same_value(value, right[key]) for key, value in left.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    return bool(left == right)


def _parse_where(where: object, path: str, depth: int) -> Filter:
    if not isinstance(where, Mapping):
        raise InvalidInputError(
            f"expected {path} as a dict, got {type(where).__name__}"
        )
    if not where:
        raise InvalidInputError(
            f"{path} is empty, which would mean every record; say what is meant"
        )
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{path} is nested more than {MAX_DEPTH} levels deep")
    parts = [_parse_entry(key, value, path, depth) for key, value in where.items()]
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _parse_entry(key: object, value: object, path: str, depth: int) -> Filter:
    if not isinstance(key, str):
        raise InvalidInputError(f"{path} has a key of type {type(key).__name__}")
    inner = f"{path}[{key!r}]"
    if key == "$not":
        return Not(_parse_where(value, inner, depth + 1))
    if key in ("$and", "$or"):
        parts = _parse_parts(value, inner, depth)
        return AllOf(parts) if key == "$and" else AnyOf(parts)
    if key.startswith("$"):
        raise InvalidInputError(
            f"unknown operator {key!r} in {path}; between filters there are {_BETWEEN}"
        )
    return _parse_condition(key, value, inner, depth)


def _parse_parts(value: object, path: str, depth: int) -> tuple[Filter, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise InvalidInputError(f"expected {path} as a list of at least one filter")
    return tuple(
        _parse_where(part, f"{path}[{position}]", depth + 1)
        for position, part in enumerate(value)
    )


def _parse_condition(key: str, value: object, path: str, depth: int) -> Filter:
    if not _has_operators(value):
        return OneOf(key, (_operand(value, path),))
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{path} is nested more than {MAX_DEPTH} levels deep")
    parts = [
        _parse_operator(key, name, operand, path, depth)
        for name, operand in value.items()
    ]
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _parse_operator(
    key: str, name: object, operand: object, path: str, depth: int
) -> Filter:
    inner = f"{path}[{name!r}]"
    match name:
        case "$eq":
            return OneOf(key, (_operand(operand, inner),))
        case "$ne":
            return Not(OneOf(key, (_operand(operand, inner),)))
        case "$in":
            return OneOf(key, _operands(operand, inner))
        case "$nin":
            return Not(OneOf(key, _operands(operand, inner)))
        case "$exists":
            return _parse_exists(key, operand, inner)
        case "$not":
            return Not(_parse_negated(key, operand, inner, depth + 1))
        case "$gt" | "$gte" | "$lt" | "$lte":
            return Ordered(key, _ORDERS[name], _bound(operand, inner))
    raise InvalidInputError(
        f"unknown operator {name!r} in {path}; on a key there are {_ON_KEYS}"
    )


def _parse_exists(key: str, operand: object, path: str) -> Filter:
    if not isinstance(operand, bool):
        raise InvalidInputError(
            f"expected {path} as a bool, got {type(operand).__name__}"
        )
    return Exists(key) if operand else Not(Exists(key))


def _parse_negated(key: str, operand: object, path: str, depth: int) -> Filter:
    if not _has_operators(operand):
        raise InvalidInputError(
            f'expected {path} as operators, for example {{"$gt": 3}}; '
            "for another value use $ne"
        )
    return _parse_condition(key, operand, path, depth)


def _bound(operand: object, path: str) -> int | float | str:
    _operand(operand, path)
    if isinstance(operand, str) or _is_number(operand):
        return operand
    raise InvalidInputError(
        f"expected {path} as a number or a string, got {type(operand).__name__}"
    )


def _operands(operand: object, path: str) -> tuple[object, ...]:
    if isinstance(operand, list | tuple | Set):
        return tuple(_operand(value, path) for value in operand)
    raise InvalidInputError(
        f"expected {path} as a list of values, got {type(operand).__name__}"
    )


def _operand(value: object, path: str) -> object:
    check_json(value, path)
    return deepcopy(value)


def _has_operators(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping) and any(
        isinstance(name, str) and name.startswith("$") for name in value
    )


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
