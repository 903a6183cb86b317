"""One compiled pass over the pages of an SQLite file: which byte belongs to what.

The format is that of https://www.sqlite.org/fileformat2.html, limited to what a
memory uses: index b-trees (``WITHOUT ROWID`` tables), one table leaf for the schema,
overflow pages and the freelist. Each page is judged on its own, in the order of the
file; `forgetmem.store.structure` then joins the pages to trees and chains.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetmem.jit import compiled
from forgetmem.store.rows import tables_of_row, varint

INTERIOR, LEAF, SCHEMA_LEAF = 2, 10, 13

BAD_HEADER, BAD_CELL, BAD_ROW, OVERLAP, BAD_FRAGMENTS, TOO_MANY = 1, 2, 3, 4, 5, 6

REASONS = {
    BAD_HEADER: "is no page of a memory",
    BAD_CELL: "has a cell that does not lie within it",
    BAD_ROW: "has a cell that is no row of any table",
    OVERLAP: "has cells or free blocks that overlap",
    BAD_FRAGMENTS: "has bytes that belong to nothing",
    TOO_MANY: "refers to more pages than there are",
}


class PageTable(NamedTuple):
    """What the pass finds out, by page number (row 0 is unused).

    Attributes
    ----------
    kind : ndarray of uint8
        Type of a b-tree page; 0 for overflow pages and pages of the freelist.
    next : ndarray of int64
        Of the others, the page that their first four bytes name.
    extent : ndarray of int64
        Of the others, the bytes up to the last one that is not zero.
    tables : ndarray of int64
        Bit set of the tables whose rows all cells of the page could be.
    residue : ndarray of int64
        Bytes of a b-tree page that belong to nothing and are not zero.
    bad : ndarray of uint8
        Why the page cannot be read, see `REASONS`; 0 if it can.
    children, parents : ndarray of int64
        References between b-tree pages.
    heads, payloads : ndarray of int64
        First overflow page of a cell, and its bytes that overflow.
    counts : ndarray of int64 of shape (2,)
        How many children and heads there are.
    """

    kind: NDArray[np.uint8]
    next: NDArray[np.int64]
    extent: NDArray[np.int64]
    tables: NDArray[np.int64]
    residue: NDArray[np.int64]
    bad: NDArray[np.uint8]
    children: NDArray[np.int64]
    parents: NDArray[np.int64]
    heads: NDArray[np.int64]
    payloads: NDArray[np.int64]
    counts: NDArray[np.int64]


def page_table(pages: int) -> PageTable:
    """Return a table for a file of so many pages, with nothing found out yet.

    Parameters
    ----------
    pages : int
        Pages of the file.

    Returns
    -------
    PageTable
        All zero.
    """

    def wide() -> NDArray[np.int64]:
        return np.zeros(pages + 1, dtype=np.int64)

    def narrow() -> NDArray[np.uint8]:
        return np.zeros(pages + 1, dtype=np.uint8)

    return PageTable(
        narrow(), wide(), wide(), wide(), wide(), narrow(),
        wide(), wide(), wide(), wide(), np.zeros(2, dtype=np.int64),
    )  # fmt: skip


@compiled
def _word(data: NDArray[np.uint8], at: int) -> int:
    return int(np.int64(data[at]) << 8 | np.int64(data[at + 1]))


@compiled
def _long(data: NDArray[np.uint8], at: int) -> int:
    return _word(data, at) << 16 | _word(data, at + 2)


@compiled
def _read_other(
    data: NDArray[np.uint8], words: NDArray[np.uint64], base: int, end: int
) -> int:
    """Return the bytes of a page up to the last one that is not zero."""
    last = end // 8 - 1
    while last >= base // 8 and words[last] == 0:
        last -= 1
    size = last * 8 + 8 - base
    while size > 0 and data[base + size - 1] == 0:
        size -= 1
    return size


@compiled
def _read_cell(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    flag: int,
    page_size: int,
    shapes: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Return a cell's end (0: bad), its bytes that overflow, and its tables."""
    at += 4 if flag == INTERIOR else 0
    size, step = varint(data, at, end)
    at += step
    most = (page_size - 12) * 64 // 255 - 23
    if flag == SCHEMA_LEAF and step:
        _, step = varint(data, at, end)
        at += step
        most = page_size - 35
    local = size
    if size > most:
        least = (page_size - 12) * 32 // 255 - 23
        local = least + (size - least) % (page_size - 4)
        local = least if local > most else local
    stop = at + local + (4 if size > local else 0)
    if step == 0 or stop > end:
        return 0, 0, 0
    possible = tables_of_row(data, at, at + local, size, shapes)
    return stop, size - local, possible


@compiled
def _clear(data: NDArray[np.uint8], start: int, stop: int, wipe: bool) -> int:
    """Return how many bytes are not zero; with `wipe` set them to zero."""
    count = 0
    for at in range(start, stop):
        count += data[at] != 0
    if wipe:
        data[start:stop] = 0
    return count


@compiled
def _read_cells(
    data: NDArray[np.uint8],
    page: int,
    top: int,
    bounds: tuple[int, int, int],
    page_size: int,
    shapes: NDArray[np.int64],
    lengths: NDArray[np.uint16],
    live: NDArray[np.uint8],
    table: PageTable,
) -> int:
    """Note the cells of a page and what they refer to; return what is wrong."""
    base, content, end = bounds
    flag = int(data[top])
    interior = flag == INTERIOR
    cells = _word(data, top + 3)
    possible = 1 << (len(shapes) - 1)
    possible = possible if flag == SCHEMA_LEAF else possible - 1
    for cell in range(cells):
        start = base + _word(data, top + (12 if interior else 8) + 2 * cell)
        if start < content or start + 4 > end:
            return BAD_CELL
        stop, overflow, tables = _read_cell(data, start, end, flag, page_size, shapes)
        if stop == 0:
            return BAD_CELL
        if lengths[start - base]:
            return OVERLAP
        possible &= tables
        lengths[start - base] = stop - start
        if len(live):
            live[start:stop] = 1
        if interior and not _refer(table, _long(data, start), page):
            return TOO_MANY
        if overflow and not _overflow(table, _long(data, stop - 4), overflow):
            return TOO_MANY
    if interior and not _refer(table, _long(data, top + 8), page):
        return TOO_MANY
    table.tables[page] = possible
    return 0 if possible else BAD_ROW


@compiled
def _refer(table: PageTable, child: int, page: int) -> bool:
    """Note that a page refers to a child; tell whether there was room."""
    at = table.counts[0]
    if at >= len(table.children):
        return False
    table.children[at] = child
    table.parents[at] = page
    table.counts[0] = at + 1
    return True


@compiled
def _overflow(table: PageTable, head: int, payload: int) -> bool:
    """Note a chain of overflow pages; tell whether there was room."""
    at = table.counts[1]
    if at >= len(table.heads):
        return False
    table.heads[at] = head
    table.payloads[at] = payload
    table.counts[1] = at + 1
    return True


@compiled
def _read_blocks(
    data: NDArray[np.uint8],
    top: int,
    bounds: tuple[int, int, int],
    lengths: NDArray[np.uint16],
    wipe: bool,
) -> tuple[int, int, int]:
    """Note the free blocks of a page; return what is wrong, not zero, and noted."""
    base, previous, end = bounds
    noted = unclean = 0
    block = _word(data, top + 1)
    while block:
        start = base + block
        if start < previous or start + 4 > end:
            return BAD_CELL, unclean, noted
        size = _word(data, start + 2)
        if size < 4 or start + size > end or lengths[block]:
            return OVERLAP, unclean, noted
        lengths[block] = size
        noted += 1
        unclean += _clear(data, start + 4, start + size, wipe)
        previous = start + size
        block = _word(data, start)
    return 0, unclean, noted


@compiled
def _read_gaps(
    data: NDArray[np.uint8],
    top: int,
    bounds: tuple[int, int, int],
    lengths: NDArray[np.uint16],
    noted: int,
    wipe: bool,
) -> tuple[int, int]:
    """Walk over what was noted; return what is wrong, and bytes not zero between."""
    base, at, end = bounds
    fragments = unclean = 0
    while at < end:
        size = int(np.int64(lengths[at - base]))
        if size:
            lengths[at - base] = 0
            noted -= 1
            at += size
        else:
            unclean += _clear(data, at, at + 1, wipe)
            fragments += 1
            at += 1
    if noted or at != end:
        return OVERLAP, unclean
    return (0 if fragments == data[top + 7] else BAD_FRAGMENTS), unclean


@compiled
def read_tree_page(
    data: NDArray[np.uint8],
    page: int,
    base: int,
    page_size: int,
    shapes: NDArray[np.int64],
    lengths: NDArray[np.uint16],
    live: NDArray[np.uint8],
    wipe: bool,
    table: PageTable,
) -> None:
    """Account for every byte of a page of a tree."""
    top = base + 100 if page == 1 else base
    interior = data[top] == INTERIOR
    cells = _word(data, top + 3)
    gap = top + (12 if interior else 8) + 2 * cells
    content = base + _word(data, top + 5)
    bounds = (base, content, base + page_size)
    table.kind[page] = data[top]
    if gap > content or content > base + page_size or (interior and cells == 0):
        table.bad[page] = BAD_HEADER
        return
    reason = _read_cells(
        data, page, top, bounds, page_size, shapes, lengths, live, table
    )
    unclean = noted = 0
    if reason == 0:
        reason, unclean, noted = _read_blocks(data, top, bounds, lengths, wipe)
    if reason == 0:
        noted += cells
        reason, more = _read_gaps(data, top, bounds, lengths, noted, wipe)
        unclean += more + _clear(data, gap, content, wipe)
    if reason:
        lengths[:] = 0
        table.bad[page] = reason
    table.residue[page] = unclean


@compiled
def read_pages(
    data: NDArray[np.uint8],
    words: NDArray[np.uint64],
    first: int,
    page_size: int,
    shapes: NDArray[np.int64],
    lengths: NDArray[np.uint16],
    live: NDArray[np.uint8],
    wipe: bool,
    table: PageTable,
) -> None:
    """Read the pages of one block.

    Parameters
    ----------
    data : ndarray of uint8
        Whole pages, one after the other.
    words : ndarray of uint64
        The same bytes.
    first : int
        Number of the first page, from 1 on.
    page_size : int
        Bytes of a page.
    shapes : ndarray of int64 of shape (n_tables, 1 + n_columns)
        Columns of each table, and the code of each; the last table is the schema.
    lengths : ndarray of uint16 of shape (page_size,)
        Scratch, all zero before and after.
    live : ndarray of uint8
        Empty, or as long as `data`: set to 1 where a byte belongs to a cell.
    wipe : bool
        Set what belongs to nothing to zero in `data`.
    table : PageTable
        Where the results go.
    """
    for index in range(len(data) // page_size):
        page = first + index
        base = index * page_size
        flag = data[base + 100] if page == 1 else data[base]
        if (flag == SCHEMA_LEAF) if page == 1 else (flag in (INTERIOR, LEAF)):
            read_tree_page(
                data, page, base, page_size, shapes, lengths, live, wipe, table
            )
        elif page == 1 or flag:
            table.bad[page] = BAD_HEADER
        else:
            table.next[page] = _long(data, base)
            table.extent[page] = _read_other(data, words, base, base + page_size)
