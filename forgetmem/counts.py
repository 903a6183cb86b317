"""How often each of many digests occurs, in a few bytes each."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from forgetmem.jit import compiled

Hashes: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
Numbers: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int32]]

#: Numbers of eight bytes in a digest.
_WORDS = 4


@compiled
def _place_of(slots: Hashes, counts: Numbers, value: np.uint64) -> np.int64:
    """Return where a hash stands, or the free slot where it would."""
    mask = np.int64(len(slots) - 1)
    place = np.int64(value & np.uint64(mask))
    while counts[place] > 0 and slots[place] != value:
        place = (place + 1) & mask
    return place


@compiled
def _add(slots: Hashes, counts: Numbers, values: Hashes, times: Numbers) -> int:
    """Count values; returns how many of them were new."""
    new = 0
    for number in range(len(values)):
        place = _place_of(slots, counts, values[number])
        new += counts[place] == 0
        slots[place] = values[number]
        counts[place] += times[number]
    return new


@compiled
def _discard(slots: Hashes, counts: Numbers, values: Hashes) -> int:
    """Count values down; returns how many of them are gone."""
    mask = np.int64(len(slots) - 1)
    gone = 0
    for value in values:
        hole = _place_of(slots, counts, value)
        if counts[hole] == 0:
            continue
        counts[hole] -= 1
        if counts[hole] > 0:
            continue
        gone += 1
        place = (hole + 1) & mask
        while counts[place] > 0:  # move up what was pushed away from its own place
            home = np.int64(slots[place] & np.uint64(mask))
            if (place - home) & mask >= (place - hole) & mask:
                slots[hole], counts[hole] = slots[place], counts[place]
                hole = place
            place = (place + 1) & mask
        slots[hole], counts[hole] = 0, 0
    return gone


class DigestCounts:
    """Counts digests by eight bytes each.

    The eight bytes are a sum of the digest's numbers times secret ones, drawn anew for
    each object: two digests have the same by a chance of about 2**-64 that nobody can
    raise by choosing texts. Nothing is left of a digest whose count has come down to 0.

    Examples
    --------
    >>> counts = DigestCounts()
    >>> counts.add([b"A" * 32, b"B" * 32, b"A" * 32])
    >>> counts.discard([b"B" * 32])
    >>> counts.count(b"A" * 32), counts.count(b"B" * 32), len(counts)
    (2, 0, 1)
    """

    def __init__(self) -> None:
        odd = [secrets.randbits(64) | 1 for _ in range(_WORDS)]
        self._factors = np.array(odd, dtype=np.uint64)
        self._slots = np.zeros(64, dtype=np.uint64)
        self._counts = np.zeros(64, dtype=np.int32)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, digests: Iterable[bytes]) -> None:
        """Count some digests.

        Parameters
        ----------
        digests : iterable of bytes of length 32
        """
        values = self._hashes(digests)
        self._reserve(self._size + len(values))
        once = np.ones(len(values), dtype=np.int32)
        self._size += _add(self._slots, self._counts, values, once)

    def discard(self, digests: Iterable[bytes]) -> None:
        """Take back what was counted.

        Parameters
        ----------
        digests : iterable of bytes of length 32
        """
        self._size -= _discard(self._slots, self._counts, self._hashes(digests))

    def count(self, digest: bytes) -> int:
        """Return how often a digest was counted.

        Parameters
        ----------
        digest : bytes of length 32

        Returns
        -------
        int
        """
        value = self._hashes([digest])[0]
        return int(self._counts[_place_of(self._slots, self._counts, value)])

    def wipe(self) -> None:
        """Overwrite everything."""
        self._slots[:] = 0
        self._counts[:] = 0
        self._size = 0

    def _reserve(self, size: int) -> None:
        if 3 * size <= 2 * len(self._slots):
            return
        slots, counts = self._slots, self._counts
        used = np.flatnonzero(counts)
        self._slots = np.zeros(1 << (2 * size).bit_length(), dtype=np.uint64)
        self._counts = np.zeros(len(self._slots), dtype=np.int32)
        _add(self._slots, self._counts, slots[used], counts[used])
        slots[:] = 0

    def _hashes(self, digests: Iterable[bytes]) -> Hashes:
        numbers = np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)
        hashes: Hashes = (numbers.reshape(-1, _WORDS) * self._factors).sum(axis=1)
        return hashes
