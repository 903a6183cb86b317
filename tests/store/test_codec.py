"""Digests, keys and packed states."""

from __future__ import annotations

import pytest

from forgetmem.errors import CorruptStoreError, InvalidInputError
from forgetmem.store.codec import (
    STATE_SIZE,
    atom_key,
    content_of,
    pack_state,
    record_content,
    text_digest,
    unpack_state,
)

KEY = bytes(range(16))


def test_content_depends_on_every_field():
    """No two records that differ anywhere have the same content digest."""
    base = ("a", "text", "{}", None, b"\0" * 8)
    others = [
        base,
        ("b", "text", "{}", None, b"\0" * 8),
        ("a", "texts", "{}", None, b"\0" * 8),
        ("a", "text", '{"a":1}', None, b"\0" * 8),
        ("a", "text", "{}", "", b"\0" * 8),
        ("a", "text", "{}", "a", b"\0" * 8),
        ("a", "text", "{}", None, b"\1" * 8),
        ("at", "ext", "{}", None, b"\0" * 8),
    ]
    assert len({record_content(*fields) for fields in others}) == len(others)


def test_content_needs_only_the_digest_of_the_text():
    """The digest over all fields equals the one over what stands beside the text."""
    whole = record_content("a", "text", "{}", "s", b"1234")
    assert whole == content_of("a", "s", "{}", atom_key(b"1234"), text_digest("text"))


def test_state_survives_the_round_trip():
    """What the solver made of an atom comes back bit for bit."""
    state = pack_state(KEY, b"c" * 16, b"p" * 16, 0.1 + 0.2, 255)
    assert len(state) == STATE_SIZE
    assert unpack_state(KEY, state) == (b"c" * 16, b"p" * 16, 0.1 + 0.2, 255)


def test_a_flipped_bit_in_a_state_is_noticed():
    """Each bit of a state, and the key it belongs to, is covered."""
    state = pack_state(KEY, b"c" * 16, b"p" * 16, 0.5, 1)
    for position in range(len(state)):
        damaged = bytearray(state)
        damaged[position] ^= 1
        with pytest.raises(CorruptStoreError):
            unpack_state(KEY, bytes(damaged))
    with pytest.raises(CorruptStoreError):
        unpack_state(KEY[::-1], state)


def test_labels_of_another_length_are_refused():
    """A label that would be cut or padded is an error."""
    for labels in [(b"c" * 15, b"p" * 16), (b"c" * 16, b"p" * 17)]:
        with pytest.raises(InvalidInputError):
            pack_state(KEY, *labels, 0.5, 1)
    with pytest.raises(InvalidInputError):
        pack_state(KEY[:8], b"c" * 16, b"p" * 16, 0.5, 1)
