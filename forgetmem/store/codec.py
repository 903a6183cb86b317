"""Records and arrays to bytes and back, and the digests that bind them.

A record's content is one SHA-256 over its id, source, metadata, the key of its
vector and the digest of its text. The file holds the text's digest and the first
eight bytes of the content (`SEAL_SIZE`): so everything but the text is checked
when a memory is loaded, without reading texts, and the text when it is returned.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forgetmem.errors import CorruptStoreError, InvalidInputError

KEY_SIZE = 16
DIGEST_SIZE = 32
SEAL_SIZE = 8

_ATOM_TAG = b"forgetmem atom 1\x00"
_TEXT_TAG = b"forgetmem text 1\x00"
_CONTENT_TAG = b"forgetmem content 1\x00"
_LENGTHS = struct.Struct("<QQQ")
_STATE = struct.Struct("<16s16sdB")
_CHECKSUM = struct.Struct("<I")

STATE_SIZE = _STATE.size + _CHECKSUM.size

#: The stored form of many atoms' states, one after the other, as an array.
STATES = np.dtype(
    [
        ("component", np.uint8, (KEY_SIZE,)),
        ("part", np.uint8, (KEY_SIZE,)),
        ("weight", "<f8"),
        ("role", np.uint8),
        ("checksum", "<u4"),
    ]
)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as the file holds it.

    Attributes
    ----------
    id, text : str
        The record's name and its whole text.
    metadata : str
        Canonical JSON.
    source_id : str or None
        The document it came from.
    atom : bytes of length 16
        Key of its vector, see `atom_key`.
    content : bytes of length 32
        Digest of all of this, see `record_content`.
    """

    id: str
    text: str
    metadata: str
    source_id: str | None
    atom: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class StoredAtom:
    """One distinct vector and what the solver made of it.

    Attributes
    ----------
    key : bytes of length 16
        See `atom_key`.
    vector : bytes
        Little-endian float32 numbers.
    component, part : bytes of length 16
        Labels of its linked component and of the part of it that is solved at once.
    weight : float
        Its share in the readout, in [0, 1].
    role : int
        0 to 255; which of the solver's sets it is in.
    """

    key: bytes
    vector: bytes
    component: bytes
    part: bytes
    weight: float
    role: int


def atom_key(vector: bytes) -> bytes:
    """Return the key of a vector: 16 bytes of the SHA-256 of its stored bytes.

    Parameters
    ----------
    vector : bytes
        Little-endian float32 numbers.

    Returns
    -------
    bytes of length 16
        Equal only for equal vectors.
    """
    return hashlib.sha256(_ATOM_TAG + vector).digest()[:KEY_SIZE]


def atom_keys(vectors: Sequence[bytes]) -> list[bytes]:
    """Return what `atom_key` does, of many vectors at once.

    Parameters
    ----------
    vectors : sequence of bytes

    Returns
    -------
    list of bytes of length 16
    """
    sha256, tag, size = hashlib.sha256, _ATOM_TAG, KEY_SIZE
    return [sha256(tag + vector).digest()[:size] for vector in vectors]


def text_digest(text: str) -> bytes:
    """Return the digest of a text.

    Parameters
    ----------
    text : str
        Any text that UTF-8 can hold.

    Returns
    -------
    bytes of length 32
        SHA-256 of its UTF-8 bytes, tagged.
    """
    return hashlib.sha256(_TEXT_TAG + text.encode()).digest()


def content_of(
    id: str, source_id: str | None, metadata: str, atom: bytes, text_sha: bytes
) -> bytes:
    """Return a record's content digest from what is stored beside its text.

    Parameters
    ----------
    id, source_id, metadata : str
        As in `StoredRecord`.
    atom : bytes of length 16
        Key of the vector.
    text_sha : bytes of length 32
        `text_digest` of the text.

    Returns
    -------
    bytes of length 32
        The same for equal records only; every field's length is part of it.
    """
    return contents_of([(id, source_id, metadata, atom, text_sha)])[0]


def contents_of(rows: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Return what `content_of` does, of many records at once.

    Parameters
    ----------
    rows : sequence of (str, str or None, str, bytes, bytes, ...)
        Id, source, metadata, atom and digest of the text of each; what follows is not
        looked at.

    Returns
    -------
    list of bytes of length 32
    """
    sha256, pack, tag = hashlib.sha256, _LENGTHS.pack, _CONTENT_TAG
    found = []
    for row in rows:
        id, source_id, metadata, atom, text_sha = row[:5]
        name, meta = id.encode(), metadata.encode()
        source = b"" if source_id is None else b"\x01" + source_id.encode()
        lengths = pack(len(name), len(source), len(meta))
        parts = tag + lengths + name + source + meta + atom + text_sha
        found.append(sha256(parts).digest())
    return found


def record_content(
    id: str, text: str, metadata: str, source_id: str | None, vector: bytes
) -> bytes:
    """Return the content digest of a record.

    Parameters
    ----------
    id, text : str
        The record's name and text.
    metadata : str
        Canonical JSON.
    source_id : str or None
        The document it came from; None and ``""`` differ.
    vector : bytes
        Little-endian float32 numbers, as stored.

    Returns
    -------
    bytes of length 32
        The same for equal records only.
    """
    return content_of(id, source_id, metadata, atom_key(vector), text_digest(text))


def pack_state(
    key: bytes, component: bytes, part: bytes, weight: float, role: int
) -> bytes:
    """Return the stored form of what the solver made of an atom.

    Parameters
    ----------
    key, component, part, weight, role
        As in `StoredAtom`.

    Returns
    -------
    bytes of length 45
        With a checksum that also covers `key`.
    """
    if not len(key) == len(component) == len(part) == KEY_SIZE:
        raise InvalidInputError(
            f"an atom's key and labels must have {KEY_SIZE} bytes, got {len(key)}, "
            f"{len(component)} and {len(part)}"
        )
    state = _STATE.pack(component, part, weight, role)
    return state + _CHECKSUM.pack(zlib.crc32(state, zlib.crc32(key)))


def unpack_state(key: bytes, state: bytes) -> tuple[bytes, bytes, float, int]:
    """Return component, part, weight and role from their stored form.

    Parameters
    ----------
    key : bytes of length 16
        The atom's key.
    state : bytes of length 45
        What `pack_state` returned.

    Returns
    -------
    tuple of (bytes, bytes, float, int)
        Component, part, weight, role.

    Raises
    ------
    CorruptStoreError
        If the checksum does not fit.
    """
    try:
        body, check = state[: _STATE.size], state[_STATE.size :]
        right = check == _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(key)))
    except TypeError:  # not even bytes
        right = False
    if not right:
        raise CorruptStoreError(
            "an atom's state does not match its checksum: the file is damaged",
            table="atom",
        )
    component, part, weight, role = _STATE.unpack(body)
    return component, part, weight, role


def unpack_states(rows: Sequence[tuple[bytes, bytes]]) -> NDArray[Any]:
    """Return what `unpack_state` does, of many atoms at once.

    Parameters
    ----------
    rows : sequence of (bytes, bytes)
        Key and stored state of each.

    Returns
    -------
    ndarray of `STATES`

    Raises
    ------
    CorruptStoreError
        If a checksum does not fit.
    """
    crc32, end = zlib.crc32, _STATE.size
    try:
        sums = [crc32(state[:end], crc32(key)) for key, state in rows]
        states = np.frombuffer(b"".join([state for _, state in rows]), dtype=STATES)
        right = np.array_equal(states["checksum"], np.array(sums, dtype="<u4"))
    except (TypeError, ValueError):  # not even bytes, or not as many
        right = False
    if not right:
        for key, state in rows:
            unpack_state(key, state)
    return states
