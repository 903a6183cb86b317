"""The key of every row, and the row of every key, in a few bytes each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from forgetmem.arrays import IntArray
from forgetmem.jit import compiled

KEY_SIZE = 16

#: Keys as two numbers each, in the order of their bytes.
Words: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]

Slots: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int32]]

_EMPTY = -1


def as_words(keys: bytes | bytearray) -> Words:
    """Return keys as numbers.

    Parameters
    ----------
    keys : bytes
        One after the other.

    Returns
    -------
    ndarray of shape (n, 2), uint64
    """
    return np.frombuffer(keys, dtype=">u8").astype(np.uint64).reshape(-1, 2)


def as_keys(words: Words) -> list[bytes]:
    """Return keys as bytes.

    Parameters
    ----------
    words : ndarray of shape (n, 2), uint64

    Returns
    -------
    list of bytes
    """
    joined = words.astype(">u8").tobytes()
    return [joined[at : at + KEY_SIZE] for at in range(0, len(joined), KEY_SIZE)]


def order_of(words: Words) -> IntArray:
    """Return the positions of keys in the order of their bytes.

    Parameters
    ----------
    words : ndarray of shape (n, 2), uint64

    Returns
    -------
    ndarray of int64
    """
    return np.lexsort((words[:, 1], words[:, 0]))


@compiled
def smallest(words: Words, rows: IntArray, ends: IntArray, found: IntArray) -> None:
    """Find the row with the smallest key in each of many lists of rows.

    Parameters
    ----------
    words : ndarray of shape (n, 2), uint64
        The key of each row.
    rows : ndarray of int64
        The lists, one after the other; none is empty.
    ends : ndarray of int64
        Where each of them ends.
    found : ndarray of int64
        Receives one row for each.
    """
    place = 0
    for number in range(len(ends)):
        best = rows[place]
        for at in range(place + 1, ends[number]):
            row = rows[at]
            if words[row, 0] < words[best, 0] or (
                words[row, 0] == words[best, 0] and words[row, 1] < words[best, 1]
            ):
                best = row
        found[number] = best
        place = ends[number]


@compiled
def _place_of(slots: Slots, words: Words, high: np.uint64, low: np.uint64) -> np.int64:
    """Return where a key stands, or the free slot where it would."""
    mask = np.int64(len(slots) - 1)
    place = np.int64(high & np.uint64(mask))
    while True:
        row = slots[place]
        if row == _EMPTY or (words[row, 0] == high and words[row, 1] == low):
            return place
        place = (place + 1) & mask


@compiled
def _insert(slots: Slots, words: Words, rows: IntArray) -> None:
    for row in rows:
        slots[_place_of(slots, words, words[row, 0], words[row, 1])] = row


@compiled
def _delete(slots: Slots, words: Words, rows: IntArray) -> None:
    """Free the slots of rows, and move up what was pushed away from its own."""
    mask = len(slots) - 1
    for row in rows:
        hole = _place_of(slots, words, words[row, 0], words[row, 1])
        place = (hole + 1) & mask
        while slots[place] != _EMPTY:
            home = np.int64(words[slots[place], 0] & np.uint64(mask))
            if (place - home) & mask >= (place - hole) & mask:
                slots[hole] = slots[place]
                hole = place
            place = (place + 1) & mask
        slots[hole] = _EMPTY


@compiled
def _find(
    slots: Slots,
    words: Words,
    wanted: Words,
    rows: IntArray,
) -> None:
    for number in range(len(wanted)):
        place = _place_of(slots, words, wanted[number, 0], wanted[number, 1])
        rows[number] = slots[place]


class KeyTable(Mapping[bytes, int]):
    """A mapping from keys to rows, which also knows the key of a row.

    Keys are uniform (hashes), and distinct. A removed one is overwritten.

    Examples
    --------
    >>> keys = KeyTable()
    >>> keys.put(np.array([2, 0]), [b"A" * 16, b"B" * 16])
    >>> keys[b"B" * 16], keys.key(2)
    (0, b'AAAAAAAAAAAAAAAA')
    >>> keys.remove(np.array([2]))
    >>> list(keys)
    [b'BBBBBBBBBBBBBBBB']
    """

    def __init__(self) -> None:
        self._words = np.zeros((0, 2), dtype=np.uint64)
        self._used = np.zeros(0, dtype=np.bool_)
        self._slots = np.full(64, _EMPTY, dtype=np.int32)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return (self.key(row) for row in np.flatnonzero(self._used).tolist())

    def __getitem__(self, key: bytes) -> int:
        row = int(self.rows_of([key])[0])
        if row < 0:
            raise KeyError(key)
        return row

    @property
    def words(self) -> Words:
        """Both halves of the key of each row, as numbers in the order of the bytes."""
        return self._words

    def key(self, row: int) -> bytes:
        """Return the key of a row.

        Parameters
        ----------
        row : int
            A row that has one.

        Returns
        -------
        bytes of length 16
        """
        return as_keys(self._words[row : row + 1])[0]

    def rows_of(self, keys: Sequence[bytes]) -> IntArray:
        """Return the rows of keys.

        Parameters
        ----------
        keys : sequence of bytes

        Returns
        -------
        ndarray of int64
            -1 for an unknown key.
        """
        rows = np.full(len(keys), _EMPTY, dtype=np.int64)
        if self._size:
            _find(self._slots, self._words, as_words(b"".join(keys)), rows)
        return rows

    def put(self, rows: IntArray, keys: Sequence[bytes]) -> None:
        """Give keys to rows that have none.

        Parameters
        ----------
        rows : ndarray of int64
        keys : sequence of bytes
            One for each row, none of them known.
        """
        if not len(rows):
            return
        self._reserve(int(rows.max()) + 1, self._size + len(rows))
        self._words[rows] = as_words(b"".join(keys))
        self._used[rows] = True
        self._size += len(rows)
        _insert(self._slots, self._words, rows)

    def remove(self, rows: IntArray) -> None:
        """Overwrite the keys of rows.

        Parameters
        ----------
        rows : ndarray of int64
            Distinct rows that have keys.
        """
        _delete(self._slots, self._words, rows)
        self._words[rows] = 0
        self._used[rows] = False
        self._size -= len(rows)

    def _reserve(self, n_rows: int, size: int) -> None:
        if n_rows > len(self._words):
            capacity = max(n_rows, len(self._words) * 3 // 2, 64)
            words = np.zeros((capacity, 2), dtype=np.uint64)
            words[: len(self._words)] = self._words
            used = np.zeros(capacity, dtype=np.bool_)
            used[: len(self._used)] = self._used
            self._words[:] = 0
            self._words, self._used = words, used
        if 3 * size > 2 * len(self._slots):
            self._slots = np.full(1 << (2 * size).bit_length(), _EMPTY, dtype=np.int32)
            _insert(self._slots, self._words, np.flatnonzero(self._used))
