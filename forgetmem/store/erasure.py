"""Makes sure that what is erased is gone: look, and overwrite what belongs to nothing.

SQLite's ``secure_delete`` zeroes what a row occupied, but pages that were split keep
stale copies of rows in bytes that belong to nothing. Under an exclusive lock these are
overwritten where they stand: nobody ever reads them, so a crash in between does no
harm. It is done after every transaction, for the pages that it changed, so that the
whole file can be checked at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from forgetmem.store import schema
from forgetmem.store.files import is_ours, side_files, sync_folder
from forgetmem.store.needles import SHORTEST, search
from forgetmem.store.pages import INTERIOR, LEAF, SCHEMA_LEAF, page_table
from forgetmem.store.preparation import is_defined
from forgetmem.store.source import Image, Source, Target
from forgetmem.store.structure import (
    RESERVED,
    Layout,
    StructureReport,
    read_layout,
    scan_pages,
)
from forgetmem.store.touched import trunks

if TYPE_CHECKING:
    from forgetmem.store.connection import Connection

#: No page has more references to others than this.
_MOST_CELLS = schema.PAGE_SIZE // 6

_TREES = (INTERIOR, LEAF, SCHEMA_LEAF)


@dataclass(frozen=True, slots=True)
class Look:
    """What two witnesses saw in the files of a memory.

    Attributes
    ----------
    layout : Layout
        Of the database itself.
    hits : tuple of str
        Needles outside live cells.
    report : StructureReport
        What the first of them has to say.
    """

    layout: Layout
    hits: tuple[str, ...]
    report: StructureReport

    @property
    def clean(self) -> bool:
        """True if neither witness has anything to say."""
        return self.report.ok and not self.hits

    @property
    def settled(self) -> bool:
        """True if there is nothing to mend, to give back or to remove."""
        return self.clean and not self.wasteful and len(self.report.files) == 1

    @property
    def wasteful(self) -> bool:
        """True if a quarter of the file is free pages."""
        return 4 * self.layout.free > self.layout.pages


def side_bytes(path: str | None) -> dict[Path, bytes]:
    """Read the files beside a memory.

    Parameters
    ----------
    path : str or None
        The memory's file; None has none.

    Returns
    -------
    dict of Path to bytes
        By file; folders hold nothing.
    """
    sides = [] if path is None else side_files(path)
    return {side: side.read_bytes() if side.is_file() else b"" for side in sides}


def look(
    connection: Connection,
    needles: Mapping[str, bytes],
    *,
    early: Mapping[Path, bytes] | None = None,
    lazy: bool = False,
) -> Look:
    """Examine all files of a memory.

    Parameters
    ----------
    connection : Connection
        With a lock that keeps writers out.
    needles : mapping of str to bytes
        What must not be found outside live cells.
    early : mapping of Path to bytes, optional
        Side files that were there before the lock was taken.
    lazy : bool
        Do not look for needles if the structure has findings already.

    Returns
    -------
    Look
        Everything found.
    """
    source: Source = connection.held or Image(connection.image())
    layout = _layout(connection, source)
    findings, hits = layout.findings(), []
    name = "memory in RAM" if connection.path is None else Path(connection.path).name
    sides = {**(early or {}), **side_bytes(connection.path)}
    for side, data in sides.items():
        if data or not is_ours(str(connection.path), side):
            findings.append(f"side file {side.name} holds {len(data)} bytes")
        hits += [
            f"{side.name}: {label}"
            for label, needle in needles.items()
            if len(needle) >= SHORTEST and needle in data
        ]
    if not (lazy and findings):
        hits += search(source, layout, needles)
    files = (name, *(side.name for side in sides))
    size = source.size() + sum(len(data) for data in sides.values())
    report = StructureReport(not findings, tuple(findings), files, size)
    return Look(layout, tuple(hits), report)


def _layout(connection: Connection, source: Source) -> Layout:
    """Read the layout, and the definitions of the tables, which no digest covers."""
    layout = read_layout(source, connection.roots())
    if not is_defined(connection):
        layout.damage.append("the definition of a table was altered")
    return layout


def scrub(target: Target, layout: Layout) -> None:
    """Overwrite with zeros, in place, what a look has found to belong to nothing.

    Parameters
    ----------
    target : Target
        Locked against all readers and writers.
    layout : Layout
        What was found in it.
    """
    _count_change(target)
    scrub_pages(target, layout.residue)
    for page, start in layout.tails:
        rest = bytes(schema.PAGE_SIZE - start)
        target.write(rest, (page - 1) * schema.PAGE_SIZE + start)
    if layout.reserved:
        target.write(bytes(RESERVED[1] - RESERVED[0]), RESERVED[0])
    if layout.trailing:
        target.truncate(layout.pages * schema.PAGE_SIZE)


def scrub_pages(target: Target, pages: Iterable[int]) -> bool:
    """Overwrite with zeros, in place, what belongs to nothing in some pages.

    Parameters
    ----------
    target : Target
        Locked against all readers and writers.
    pages : iterable of int
        Pages of trees are scrubbed, others are passed over.

    Returns
    -------
    bool
        Whether anything was written.
    """
    table = page_table(_MOST_CELLS)
    counted = False
    for page in pages:
        offset = (page - 1) * schema.PAGE_SIZE
        data = np.frombuffer(target.read(schema.PAGE_SIZE, offset), np.uint8)
        top = 100 if page == 1 else 0
        if len(data) < schema.PAGE_SIZE or data[top] not in _TREES:
            continue
        table.counts[:] = 0
        wiped = data.copy()
        # All pages but the first are alike, so a short table will do.
        number = min(page, 2)
        table.bad[number] = 0
        scan_pages(wiped, number, table, wipe=True)
        if table.residue[number] and not table.bad[number]:
            counted = counted or _count_change(target)
            target.write(wiped.tobytes(), offset)
    return counted


def scrub_lists(target: Target) -> None:
    """Overwrite with zeros what stands behind the entries of the list of free pages.

    Parameters
    ----------
    target : Target
        Locked against all readers and writers.
    """
    for page, leaves in trunks(target):
        end = page * schema.PAGE_SIZE
        start = end - schema.PAGE_SIZE + 8 + 4 * len(leaves)
        if any(target.read(end - start, start)):
            target.write(bytes(end - start), start)


def _count_change(target: Target) -> bool:
    """Count a change, before anything is overwritten.

    So no process writes a page back from a cache that it filled before.
    """
    head = target.read(28, 0)
    counter = ((int.from_bytes(head[24:28], "big") + 1) & 0xFFFFFFFF).to_bytes(4, "big")
    target.write(counter, 24)
    target.write(counter, 92)
    return True


def mend_in_place(connection: Connection, needles: Mapping[str, bytes]) -> Look:
    """Remove side files and overwrite what belongs to nothing.

    Parameters
    ----------
    connection : Connection
        With an exclusive lock.
    needles : mapping of str to bytes
        See `look`.

    Returns
    -------
    Look
        Taken afterwards.
    """
    assert connection.path is not None and connection.held is not None
    remove_side_files(connection.path)
    layout = _layout(connection, connection.held)
    if not layout.damage:
        scrub(connection.held, layout)
        connection.held.sync()
    return look(connection, needles)


def remove_side_files(path: str) -> None:
    """Remove journals and leftovers that no process is using.

    Parameters
    ----------
    path : str
        The memory's file, locked against all others.
    """
    for side in side_files(path):
        if is_ours(path, side):
            side.unlink(missing_ok=True)
    sync_folder(path)
