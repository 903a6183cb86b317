"""Metadata of records: what is accepted, and its one canonical JSON form.

Metadata is a dict of JSON values. What cannot come back exactly as it was given is
refused before anything is written, and the error names the key. The stored form
has sorted keys, so it is a function of the content and not of the order in which a
caller filled the dict; it is a copy, so later changes to that dict have no effect.
"""

from __future__ import annotations

import json
import math
from typing import TypeAlias

from forgetmem.errors import CorruptStoreError, InvalidInputError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

#: Nesting beyond this is refused; it also ends the walk through a cycle.
MAX_DEPTH = 64

#: An int of 2,048 bits has 617 digits: fewer than the 640 to which an interpreter
#: can be told to limit conversions, so what one process wrote any other can read.
MAX_INT_BITS = 2048


def check_metadata(metadata: object) -> str:
    """Return `metadata` as canonical JSON, or refuse what would not round-trip.

    Parameters
    ----------
    metadata : dict or None
        Keys are strings; values are None, bool, int, float (finite), str, list or
        dict, of exactly these types. None is the same as ``{}``.

    Returns
    -------
    str
        JSON without spaces and with sorted keys; `load_metadata` gives an equal
        dict back (numbers with their type and every digit).

    Raises
    ------
    InvalidInputError
        For any other type (tuple, set, datetime, numpy scalar, subclass of str),
        NaN, infinity, an int of more than 2,048 bits, a lone surrogate, or nesting
        deeper than 64. The message names the key, never the value.
    """
    if metadata is None:
        return "{}"
    if type(metadata) is not dict:
        raise InvalidInputError(
            f"expected metadata as a dict, got {type(metadata).__name__}"
        )
    check_json(metadata, "metadata")
    return json.dumps(
        metadata,
        ensure_ascii=False,
        allow_nan=False,
        sort_keys=True,
        separators=(",", ":"),
    )


def load_metadata(text: str) -> dict[str, Json]:
    """Return the dict whose canonical JSON is `text`.

    Parameters
    ----------
    text : str
        What `check_metadata` returned.

    Returns
    -------
    dict
        A new dict; the caller may change it.

    Raises
    ------
    CorruptStoreError
        If `text` is not a JSON object.
    """
    try:
        metadata = json.loads(text)
    except ValueError as error:
        raise CorruptStoreError("stored metadata is not JSON") from error
    if not isinstance(metadata, dict):
        raise CorruptStoreError("stored metadata is not a JSON object")
    return metadata


def check_json(value: object, path: str, depth: int = 0) -> None:
    """Refuse a value that JSON cannot give back exactly.

    Parameters
    ----------
    value : object
        Anything.
    path : str
        How the error names the place, for example ``metadata['tags'][2]``.
    depth : int, default 0
        How many containers are around it.

    Raises
    ------
    InvalidInputError
        If `value`, or anything in it, would not round-trip.
    """
    if depth > MAX_DEPTH:
        raise InvalidInputError(f"{path} is nested more than {MAX_DEPTH} levels deep")
    if type(value) is dict:
        for key, item in value.items():
            check_json(item, f"{path}[{_checked_key(key, path)}]", depth + 1)
    elif type(value) is list:
        for position, item in enumerate(value):
            check_json(item, f"{path}[{position}]", depth + 1)
    elif type(value) is str:
        _check_unicode(value, path)
    elif type(value) is float:
        if not math.isfinite(value):
            raise InvalidInputError(f"{path} is NaN or infinite; use None")
    elif type(value) is int:
        if value.bit_length() > MAX_INT_BITS:
            raise InvalidInputError(
                f"{path} is an int of more than {MAX_INT_BITS} bits; use a string"
            )
    elif value is not None and type(value) is not bool:
        kind = type(value)
        raise InvalidInputError(
            f"{path} is of type {kind.__module__}.{kind.__qualname__}, which would "
            "not come back as it is; use None, bool, int, float, str, list or dict"
        )


def _checked_key(key: object, path: str) -> str:
    if type(key) is not str:
        raise InvalidInputError(
            f"{path} has a key of type {type(key).__name__} ({_short(key)}); "
            "keys must be str"
        )
    _check_unicode(key, f"{path}: the key {_short(key)}")
    return _short(key)


def _check_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            f"{what} holds a lone surrogate at position {error.start} and cannot be "
            "stored as UTF-8"
        ) from error


def _short(key: object) -> str:
    shown = repr(key)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."
