"""Looks for what was deleted in every byte that a store has on disk."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: So many windows of 16 bytes, spread over a vector, are looked for.
WINDOWS = 8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_TABLE_BITS = 20


@dataclass(frozen=True)
class Item:
    """One record: its text and id occur in no other."""

    id: str
    text: str
    vector: np.ndarray


class Needles:
    """Many byte strings of at least 8 bytes, found at any place in one pass."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._by_start: dict[int, list[tuple[bytes, str, int]]] = {}
        for row, item in enumerate(items):
            for kind, forms in FORMS.items():
                for form in forms(item):
                    start = int.from_bytes(form[:8], "little")
                    self._by_start.setdefault(start, []).append((form, kind, row))
        self._starts = np.array(sorted(self._by_start), dtype=np.uint64)
        self._table = np.zeros(1 << _TABLE_BITS, dtype=np.bool_)
        self._table[self._slots(self._starts)] = True

    @staticmethod
    def _slots(words: np.ndarray) -> np.ndarray:
        return np.asarray((words * _FACTOR) >> np.uint64(64 - _TABLE_BITS))

    def found(self, content: bytes) -> set[tuple[str, int]]:
        """Return which kinds of trace of which items are in the content."""
        out = set()
        for shift in range(min(8, max(len(content) - 7, 0))):
            count = (len(content) - shift) // 8
            words = np.frombuffer(content, dtype="<u8", count=count, offset=shift)
            places = np.flatnonzero(self._table[self._slots(words)])
            places = places[np.isin(words[places], self._starts)]
            for place in places.tolist():
                at = 8 * place + shift
                for form, kind, row in self._by_start[int(words[place])]:
                    if content.startswith(form, at):
                        out.add((kind, row))
        return out


def count(folder: Path, deleted: Sequence[Item]) -> dict[str, int]:
    """Count the items of which a text, an id or a part of a vector is in any file."""
    needles, found = Needles(deleted), set()
    for path in files(folder):
        for content in contents(path):
            found |= needles.found(content)
    return {kind: sum(name == kind for name, _ in found) for kind in FORMS}


def files(folder: Path) -> list[Path]:
    """Return every file, sorted."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def contents(path: Path) -> Iterator[bytes]:
    """Yield a file's bytes, and what it holds behind a compression."""
    raw = path.read_bytes()
    yield raw
    if path.suffix == ".json":
        yield raw.translate(None, b" \n")
    if path.suffix == ".parquet":
        import pyarrow.parquet

        yield _buffers(pyarrow.parquet.read_table(path))
    if path.suffix == ".lance":
        from lance.file import LanceFileReader

        yield _buffers(LanceFileReader(str(path)).read_all().to_table())


def _buffers(table: Any) -> bytes:
    chunks = [chunk for column in table.columns for chunk in column.chunks]
    buffers = [buffer for chunk in chunks for buffer in chunk.buffers()]
    return b"\x00".join(bytes(buffer) for buffer in buffers if buffer is not None)


def size(folder: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.stat().st_size for path in files(folder))


def fingerprint(folder: Path) -> str:
    """Return a hash of all names and contents."""
    out = hashlib.sha256()
    for path in files(folder):
        out.update(str(path.relative_to(folder)).encode() + b"\x00")
        out.update(hashlib.sha256(path.read_bytes()).digest())
    return out.hexdigest()


def _text_forms(item: Item) -> Iterator[bytes]:
    yield item.text.encode()[:48]
    yield json.dumps(item.text)[1:-1].encode()[:48]


def _vector_forms(item: Item) -> Iterator[bytes]:
    x = np.ascontiguousarray(item.vector, dtype="<f4")
    for start in np.linspace(0, len(x) - 4, WINDOWS).astype(int):
        part = x[start : start + 4]
        yield part.tobytes()
        # A pickled list of numbers: doubles, each behind a G.
        yield b"".join(b"G" + struct.pack(">d", number) for number in part)
        yield ",".join(repr(float(number)) for number in part[:3]).encode()


FORMS = {
    "texts": _text_forms,
    "ids": lambda item: iter((item.id.encode(),)),
    "vectors": _vector_forms,
}
