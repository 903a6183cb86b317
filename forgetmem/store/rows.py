"""What a row of each table looks like in the file, and whether a cell holds one."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from forgetmem.arrays import IntArray
from forgetmem.jit import compiled
from forgetmem.store.codec import DIGEST_SIZE, KEY_SIZE, SEAL_SIZE, STATE_SIZE

#: What a column of a row may be; larger numbers are 1000 + the one
#: serial type that is allowed.
TEXT, TEXT_OR_NULL, FLOATS, INTEGER, BLOB = 1, 2, 3, 4, 5


def blob(size: int) -> int:
    """Return the code of a column that holds a blob of one size.

    Parameters
    ----------
    size : int
        Its bytes.

    Returns
    -------
    int
        1000 + the serial type.
    """
    return 1000 + 12 + 2 * size


#: Columns of each table in the order of the file; the schema's own table comes last.
COLUMNS: Mapping[str, tuple[int, ...]] = {
    "setting": (TEXT, TEXT),
    "record": (
        TEXT, TEXT, TEXT_OR_NULL, TEXT, blob(KEY_SIZE), blob(DIGEST_SIZE),
        blob(SEAL_SIZE), TEXT,
    ),
    "atom": (TEXT, blob(KEY_SIZE), blob(STATE_SIZE)),
    "vector": (TEXT, blob(KEY_SIZE), FLOATS),
    "root": (TEXT, blob(DIGEST_SIZE)),
    "certificate": (TEXT, BLOB, TEXT),
    "sqlite_schema": (TEXT, TEXT, TEXT, INTEGER, TEXT),
}  # fmt: skip


@functools.cache
def shapes() -> IntArray:
    """Return the columns of all tables as an array, which nobody changes.

    Returns
    -------
    ndarray of int64 of shape (n_tables, 1 + n_columns)
        How many columns each table has, and the code of each.
    """
    widest = max(len(columns) for columns in COLUMNS.values())
    array = np.zeros((len(COLUMNS), widest + 1), dtype=np.int64)
    for row, columns in enumerate(COLUMNS.values()):
        array[row, 0] = len(columns)
        array[row, 1 : len(columns) + 1] = columns
    return array


@compiled
def varint(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return value and size of a varint in its shortest form; size 0 if it is none."""
    value = 0
    for size in range(8):
        if at + size >= end:
            return 0, 0
        byte = int(np.int64(data[at + size]))
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            if size and value < 1 << (7 * size):
                return 0, 0
            return value, size + 1
    return 0, 0


@compiled
def _fits(code: int, serial: int) -> bool:
    """Tell whether a value of a serial type may stand in a column."""
    text = serial >= 13 and serial % 2 == 1
    return (
        (code == TEXT and text)
        or (code == TEXT_OR_NULL and (text or serial == 0))
        or (code == FLOATS and serial >= 12 and serial % 8 == 4)
        or (code == BLOB and serial >= 12 and serial % 2 == 0)
        or (code == INTEGER and (1 <= serial <= 6 or serial == 8 or serial == 9))
        or code == 1000 + serial
    )


@compiled
def _size_of(serial: int) -> int:
    """Return how many bytes a value of a serial type takes."""
    if serial >= 12:
        return (serial - 12) // 2
    if serial < 5:
        return serial
    return (6, 8, 8, 0, 0, 0, 0)[serial - 5]


@compiled
def tables_of_row(
    data: NDArray[np.uint8], at: int, end: int, size: int, shapes: NDArray[np.int64]
) -> int:
    """Return the bit set of the tables that a record of `size` bytes may be of."""
    header, step = varint(data, at, end)
    if step == 0 or header > size or at + header > end:
        return 0
    position, stop = at + step, at + header
    possible = (1 << len(shapes)) - 1
    column, total = 0, header
    while position < stop:
        serial, step = varint(data, position, stop)
        column += 1
        if step == 0 or column >= shapes.shape[1]:
            return 0
        for table in range(len(shapes)):
            if not _fits(shapes[table, column], serial):
                possible &= ~(1 << table)
        total += _size_of(serial)
        position += step
    for table in range(len(shapes)):
        if shapes[table, 0] != column:
            possible &= ~(1 << table)
    return possible if total == size else 0
