"""LlamaIndex's metadata filters, with the meaning that its in-memory store gives them.

Beyond that store, filters may be nested to any depth. A node without a source has no
``ref_doc_id``, where that store says ``"None"``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.vector_stores.forgetmem.nodes import NODE_KEY, kind_name, source_of

from forgetmem import InvalidInputError

#: Names under which LlamaIndex's stores keep the source of a node.
_SOURCE_NAMES = ("ref_doc_id", "doc_id", "document_id")
_KIND_NAME = "_node_type"

_COMPARE: dict[FilterOperator, Callable[[Any, Any], bool]] = {
    FilterOperator.EQ: lambda stored, value: stored == value,
    FilterOperator.NE: lambda stored, value: stored != value,
    FilterOperator.GT: lambda stored, value: stored > value,
    FilterOperator.GTE: lambda stored, value: stored >= value,
    FilterOperator.LT: lambda stored, value: stored < value,
    FilterOperator.LTE: lambda stored, value: stored <= value,
    FilterOperator.IN: lambda stored, value: stored in value,
    FilterOperator.NIN: lambda stored, value: stored not in value,
    FilterOperator.CONTAINS: lambda stored, value: value in stored,
    FilterOperator.ANY: lambda stored, value: any(one in stored for one in value),
    FilterOperator.ALL: lambda stored, value: all(one in stored for one in value),
    FilterOperator.TEXT_MATCH: lambda stored, value: _text(value) in _text(stored),
    FilterOperator.TEXT_MATCH_INSENSITIVE: lambda stored, value: (
        _text(value).lower() in _text(stored).lower()
    ),
}


def matches(filters: MetadataFilters, metadata: Mapping[str, Any]) -> bool:
    """Tell whether a node is meant.

    Parameters
    ----------
    filters : MetadataFilters
        No filters match everything.
    metadata : mapping
        Of the node's record.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        If an operator cannot be applied to the types of a stored and a given value.
    InvalidInputError
        For an operator or a condition that is not known.
    """
    if not filters.filters:
        return True
    verdicts = (_one(filter, metadata) for filter in filters.filters)
    match filters.condition or FilterCondition.AND:
        case FilterCondition.AND:
            return all(list(verdicts))
        case FilterCondition.OR:
            return any(list(verdicts))
        case FilterCondition.NOT:
            return not any(list(verdicts))
    raise InvalidInputError(f"unknown filter condition {filters.condition!r}")


def _one(filter: MetadataFilter | MetadataFilters, metadata: Mapping[str, Any]) -> bool:
    if isinstance(filter, MetadataFilters):
        return matches(filter, metadata)
    stored = _value(filter.key, metadata)
    if filter.operator == FilterOperator.IS_EMPTY:
        return stored is None or stored == "" or stored == []
    if stored is None:
        return filter.operator in (FilterOperator.NE, FilterOperator.NIN)
    if filter.operator not in _COMPARE:
        raise InvalidInputError(f"unknown filter operator {filter.operator!r}")
    try:
        return bool(_COMPARE[filter.operator](stored, filter.value))
    except TypeError as error:
        raise TypeError(
            f"the filter {filter.operator.value!r} on {filter.key!r} cannot be applied "
            f"to a stored {type(stored).__name__} and a given "
            f"{type(filter.value).__name__}"
        ) from error


def _value(key: str, metadata: Mapping[str, Any]) -> Any:
    if key in _SOURCE_NAMES and (source := source_of(metadata)) is not None:
        return source
    if key == _KIND_NAME:
        return kind_name(metadata)
    return None if key == NODE_KEY else metadata.get(key)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("both values must be strings")
    return value
