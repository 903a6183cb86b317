"""Looks for what was forgotten, byte for byte, wherever no live row holds it.

A witness beside `forgetmem.store.structure`: it reads every byte of the file without
asking what the byte belongs to, and only where it finds something is the page taken
apart, because survivors may hold the same words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetmem.jit import compiled
from forgetmem.store import schema
from forgetmem.store.codec import StoredRecord
from forgetmem.store.pages import (
    INTERIOR,
    LEAF,
    SCHEMA_LEAF,
    PageTable,
    page_table,
    read_tree_page,
)
from forgetmem.store.rows import shapes
from forgetmem.store.source import Source
from forgetmem.store.structure import BLOCK, Layout

#: Shorter byte strings are everywhere and say nothing.
SHORTEST = 12

#: Long needles are looked for in pieces, so that half of one is found too.
PIECE = 16

_MOST_HITS = 256

#: Pieces that are looked for under one window: with thousands of look-alikes, all but
#: the first are found by the pieces in which they differ.
_MOST_ALIKE = 32


def needles_of(
    records: Iterable[StoredRecord], vectors: Iterable[bytes], *, deep: bool = False
) -> dict[str, bytes]:
    """Return what must not be found once records are erased.

    Parameters
    ----------
    records : iterable of StoredRecord
        Their ids, texts, sources and metadata.
    vectors : iterable of bytes
        Their vectors as stored.
    deep : bool
        Also the vectors as float16, float64 and big-endian numbers.

    Returns
    -------
    dict of str to bytes
        By a label that counts and names, and never quotes. Only byte strings of 12
        bytes or more.
    """
    found: dict[str, bytes] = {}
    for number, record in enumerate(records, 1):
        for field, text in _strings(record):
            for form, data in _forms(text).items():
                found[f"record {number}: {field} ({form})"] = data
    for number, vector in enumerate(vectors, 1):
        for form, data in _vector_forms(vector, deep).items():
            found[f"vector {number} ({form})"] = data
    return {label: data for label, data in found.items() if len(data) >= SHORTEST}


def _strings(record: StoredRecord) -> Iterator[tuple[str, str]]:
    yield "id", record.id
    yield "text", record.text
    yield "metadata", record.metadata
    if record.source_id is not None:
        yield "source_id", record.source_id
    for number, text in enumerate(_leaves(json.loads(record.metadata)), 1):
        yield f"metadata item {number}", text


def _leaves(value: object) -> Iterator[str]:
    """Yield all keys and values of a JSON document as strings."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def _forms(text: str) -> dict[str, bytes]:
    """Return the ways in which a text is commonly written, each only once."""
    forms = {
        "UTF-8": text.encode(),
        "UTF-16LE": text.encode("utf-16-le"),
        "UTF-16BE": text.encode("utf-16-be"),
        "lower case": text.lower().encode(),
        "JSON": json.dumps(text, ensure_ascii=False)[1:-1].encode(),
        "ASCII JSON": json.dumps(text)[1:-1].encode(),
    }
    kept: dict[str, bytes] = {}
    for form, data in forms.items():
        if data not in kept.values():
            kept[form] = data
    return kept


def _vector_forms(vector: bytes, deep: bool) -> dict[str, bytes]:
    forms = {"float32": vector}
    if deep:
        numbers = np.frombuffer(vector, dtype="<f4")
        forms["float64"] = numbers.astype("<f8").tobytes()
        with np.errstate(over="ignore"):
            forms["float16"] = numbers.astype("<f2").tobytes()
        forms["float32 big-endian"] = numbers.astype(">f4").tobytes()
    return forms


class Haystack(NamedTuple):
    """Needles made ready for one pass over a file.

    Attributes
    ----------
    sieve : ndarray of uint64
        One bit a hash: whether any window has it.
    shift : int
        Bits that the hash drops.
    windows : ndarray of uint64
        Eight bytes each, sorted.
    piece_of, offset_of : ndarray of int64
        Where in which piece the window stands.
    pieces : ndarray of uint8 of shape (n_pieces, 16)
        The bytes to be found.
    lengths : ndarray of int64
        How many of the 16 count.
    """

    sieve: NDArray[np.uint64]
    shift: int
    windows: NDArray[np.uint64]
    piece_of: NDArray[np.int64]
    offset_of: NDArray[np.int64]
    pieces: NDArray[np.uint8]
    lengths: NDArray[np.int64]


def _cut(data: bytes) -> list[bytes]:
    """Return pieces of 12 to 16 bytes; the last one may overlap the one before."""
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    if len(pieces[-1]) < SHORTEST:
        pieces[-1] = data[-PIECE:]
    return pieces


def prepare(needles: Iterable[bytes]) -> tuple[Haystack, list[int]]:
    """Cut needles into pieces and the pieces into windows.

    Parameters
    ----------
    needles : iterable of bytes
        Each 12 bytes or longer.

    Returns
    -------
    tuple of (Haystack, list of int)
        For `scan`, and the needle of each piece.

    Notes
    -----
    A piece of 12 bytes or more that stands anywhere in a file covers eight bytes from
    an offset that is a multiple of four, and those begin in its first four bytes. So
    four windows a piece are complete, but for many pieces that begin alike.
    """
    found: dict[bytes, int] = {}
    for number, data in enumerate(needles):
        for piece in _cut(data):
            if any(piece):
                found.setdefault(piece, number)
    cut = list(found.items())
    pieces = np.zeros((len(cut), PIECE), dtype=np.uint8)
    for row, (piece, _) in enumerate(cut):
        pieces[row, : len(piece)] = np.frombuffer(piece, dtype=np.uint8)
    gathered = pieces[:, np.arange(4)[:, np.newaxis] + np.arange(8)]
    windows = np.ascontiguousarray(gathered).view(np.uint64).ravel()
    order = np.argsort(windows, kind="stable")
    _, starts, counts = np.unique(windows[order], return_index=True, return_counts=True)
    order = order[np.arange(len(order)) - np.repeat(starts, counts) < _MOST_ALIKE]
    bits = min(max(16, (64 * len(windows)).bit_length()), 27)
    haystack = Haystack(
        np.zeros(1 << (bits - 6), dtype=np.uint64),
        64 - bits,
        windows[order],
        order // 4,
        order % 4,
        pieces,
        np.array([len(piece) for piece, _ in cut], dtype=np.int64),
    )
    _fill(haystack.sieve, haystack.shift, haystack.windows)
    return haystack, [number for _, number in cut]


@compiled
def _hash(window: np.uint64, shift: int) -> np.uint64:
    return (window * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)


@compiled
def _fill(sieve: NDArray[np.uint64], shift: int, windows: NDArray[np.uint64]) -> None:
    for window in windows:
        place = _hash(window, shift)
        sieve[place >> np.uint64(6)] |= np.uint64(1) << (place & np.uint64(63))


@compiled
def _is_candidate(sieve: NDArray[np.uint64], shift: int, window: np.uint64) -> bool:
    place = _hash(window, shift)
    return bool(sieve[place >> np.uint64(6)] >> (place & np.uint64(63)) & np.uint64(1))


@compiled
def _map_page(
    data: NDArray[np.uint8],
    base: int,
    page: int,
    page_size: int,
    shapes: NDArray[np.int64],
    scratch: NDArray[np.uint16],
    live: NDArray[np.uint8],
    used: int,
    table: PageTable,
) -> None:
    """Set `live` to 1 for the bytes of a page that belong to live rows or hold them."""
    block = data[base : base + page_size]
    top = 100 if page == 1 else 0
    live[:] = 0
    live[:top] = 1
    flag = block[top]
    if (flag == SCHEMA_LEAF) if page == 1 else (flag in (INTERIOR, LEAF)):
        table.counts[:] = 0
        read_tree_page(block, page, 0, page_size, shapes, scratch, live, False, table)
        cells = np.int64(block[top + 3]) << 8 | np.int64(block[top + 4])
        head = 12 if flag == INTERIOR else 8
        live[top : min(top + head + 2 * cells, page_size)] = 1
    elif used > 4:
        live[:used] = 1


@compiled
def _accounted(
    data: NDArray[np.uint8], base: int, start: int, stop: int, live: NDArray[np.uint8]
) -> bool:
    """Tell whether all bytes belong to live rows, to the file's form, or are zero."""
    for place in range(start, stop):
        if not live[place] and data[base + place] != 0:
            return False
    return True


@compiled
def _matches(
    data: NDArray[np.uint8], at: int, end: int, piece: NDArray[np.uint8], size: int
) -> bool:
    if at < 0 or at + size > end:
        return False
    equal = 0
    for byte in range(size):
        equal += data[at + byte] == piece[byte]
    return equal == size


@compiled
def scan(
    data: NDArray[np.uint8],
    words: NDArray[np.uint32],
    first: int,
    page_size: int,
    haystack: Haystack,
    shapes: NDArray[np.int64],
    scratch: NDArray[np.uint16],
    live: NDArray[np.uint8],
    used: NDArray[np.int64],
    table: PageTable,
    hits: NDArray[np.int64],
    count: int,
) -> int:
    """Look for pieces outside live cells in one block.

    Parameters
    ----------
    data : ndarray of uint8
        The bytes of the block, a multiple of four.
    words : ndarray of uint32
        The same bytes.
    first : int
        Number of the first page.
    page_size : int
        Bytes of a page.
    haystack : Haystack
        What to look for.
    shapes, scratch : ndarray
        See `forgetmem.store.pages.read_pages`.
    live : ndarray of uint8 of shape (page_size,)
        Scratch.
    used : ndarray of int64
        See `forgetmem.store.structure.Layout`.
    table : PageTable
        Scratch.
    hits : ndarray of int64 of shape (n, 2)
        Receives page and piece of each hit.
    count : int
        Hits that are there already.

    Returns
    -------
    int
        Hits that are there now.
    """
    mapped = -1
    for index in range(len(words) - 1):
        window = np.uint64(words[index]) | np.uint64(words[index + 1]) << np.uint64(32)
        if window == 0 or not _is_candidate(haystack.sieve, haystack.shift, window):
            continue
        row = np.searchsorted(haystack.windows, window)
        while row < len(haystack.windows) and haystack.windows[row] == window:
            piece = haystack.piece_of[row]
            at = 4 * index - haystack.offset_of[row]
            size = haystack.lengths[piece]
            row += 1
            if not _matches(data, at, len(data), haystack.pieces[piece], size):
                continue
            local = at // page_size
            page = first + local
            base = local * page_size
            if page < len(used) and base + page_size <= len(data):
                if mapped != page:
                    _map_page(
                        data, base, page, page_size, shapes, scratch, live,
                        used[page], table,
                    )  # fmt: skip
                    mapped = page
                stop = min(at - base + size, page_size)
                if _accounted(data, base, at - base, stop, live):
                    continue
            if count < len(hits):
                hits[count, 0] = page
                hits[count, 1] = piece
                count += 1
    return count


def search(source: Source, layout: Layout, needles: Mapping[str, bytes]) -> list[str]:
    """Look for needles in a database, outside live cells.

    Parameters
    ----------
    source : Source
        The bytes.
    layout : Layout
        What `forgetmem.store.structure.read_layout` found in them.
    needles : mapping of str to bytes
        By label; those shorter than 12 bytes are passed over.

    Returns
    -------
    list of str
        The page and the label of each that was found.

    Notes
    -----
    One pass, about 0.1 s for 200 MB that are in the page cache.
    """
    wanted = {name: data for name, data in needles.items() if len(data) >= SHORTEST}
    if not wanted:
        return []
    haystack, needle_of = prepare(wanted.values())
    labels = list(wanted)
    table = page_table(layout.pages)
    live = np.zeros(schema.PAGE_SIZE, dtype=np.uint8)
    scratch = np.zeros(schema.PAGE_SIZE, dtype=np.uint16)
    hits = np.zeros((_MOST_HITS, 2), dtype=np.int64)
    count = 0
    for offset, block in source.blocks(BLOCK):
        whole = block[: len(block) // 4 * 4]
        first = offset // schema.PAGE_SIZE + 1
        count = scan(
            whole, whole.view(np.uint32), first, schema.PAGE_SIZE, haystack, shapes(),
            scratch, live, layout.used, table, hits, count,
        )  # fmt: skip
    found = [
        f"page {page}: {labels[needle_of[piece]]}"
        for page, piece in hits[:count].tolist()
    ]
    return list(dict.fromkeys(found))
