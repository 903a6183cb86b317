"""Makes sure that erased bytes are gone: look, overwrite, write anew, look again.

SQLite's ``secure_delete`` zeroes what a row occupied, but pages that were split keep
stale copies of rows in bytes that belong to nothing. Under an exclusive lock these are
overwritten where they stand: nobody ever reads them, so a crash in between does no
harm. What that cannot mend is written anew by compaction.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from forgetmem.errors import StoreError
from forgetmem.store import schema
from forgetmem.store.creation import set_counters
from forgetmem.store.files import HeldFile, Inode, is_ours, side_files, sync_folder
from forgetmem.store.needles import SHORTEST, search
from forgetmem.store.pages import page_table
from forgetmem.store.structure import (
    RESERVED,
    Image,
    Layout,
    Source,
    StructureReport,
    Target,
    read_layout,
    scan_pages,
)

if TYPE_CHECKING:
    from forgetmem.store.connection import Connection


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
    def wasteful(self) -> bool:
        """True if a quarter of the file is free pages."""
        return 4 * self.layout.free > self.layout.pages


def look(
    connection: Connection, needles: Mapping[str, bytes], *, lazy: bool = False
) -> Look:
    """Examine all files of a memory.

    Parameters
    ----------
    connection : Connection
        With a lock that keeps writers out.
    needles : mapping of str to bytes
        What must not be found outside live cells.
    lazy : bool
        Do not look for needles if the structure has findings already.

    Returns
    -------
    Look
        Everything found.
    """
    source: Source = connection.held or Image(connection.image())
    layout = read_layout(source, connection.roots())
    findings, hits = layout.findings(), []
    files, size = ["memory in RAM"], source.size()
    if connection.path is not None:
        files = [Path(connection.path).name]
    for side, data in _side_bytes(connection.path):
        files.append(side.name)
        size += len(data)
        if data or not is_ours(str(connection.path), side):
            findings.append(f"side file {side.name} holds {len(data)} bytes")
        hits += [
            f"{side.name}: {label}"
            for label, needle in needles.items()
            if len(needle) >= SHORTEST and needle in data
        ]
    if not (lazy and findings):
        hits += search(source, layout, needles)
    report = StructureReport(not findings, tuple(findings), tuple(files), size)
    return Look(layout, tuple(hits), report)


def _side_bytes(path: str | None) -> Iterator[tuple[Path, bytes]]:
    for side in side_files(path) if path is not None else ():
        yield side, side.read_bytes() if side.is_file() else b""


def scrub(target: Target, layout: Layout) -> None:
    """Overwrite with zeros, in place, what belongs to nothing.

    Parameters
    ----------
    target : Target
        Locked against all readers and writers.
    layout : Layout
        What was found in it.

    Notes
    -----
    The change counter goes first, so that no process writes a page back from a cache
    that it filled before.
    """
    head = target.read(28, 0)
    counter = ((int.from_bytes(head[24:28], "big") + 1) & 0xFFFFFFFF).to_bytes(4, "big")
    target.write(counter, 24)
    target.write(counter, 92)
    table = page_table(layout.pages)
    for page in layout.residue:
        table.counts[:] = 0
        offset = (page - 1) * schema.PAGE_SIZE
        data = np.frombuffer(target.read(schema.PAGE_SIZE, offset), np.uint8).copy()
        scan_pages(data, page, table, wipe=True)
        target.write(data.tobytes(), offset)
    for page, start in layout.tails:
        rest = bytes(schema.PAGE_SIZE - start)
        target.write(rest, (page - 1) * schema.PAGE_SIZE + start)
    if layout.reserved:
        target.write(bytes(RESERVED[1] - RESERVED[0]), RESERVED[0])
    if layout.trailing:
        target.truncate(layout.pages * schema.PAGE_SIZE)


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
    layout = read_layout(connection.held, connection.roots())
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


def rewrite(connection: Connection, path: str) -> None:
    """Replace the file by one that is a function of the rows alone.

    Parameters
    ----------
    connection : Connection
        With an exclusive lock that outlives its transactions.
    path : str
        The memory's file.

    Raises
    ------
    StoreError
        If there is no room for it; the old file stays.
    """
    fresh = f"{path}-compact"
    try:
        Path(fresh).unlink(missing_ok=True)
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("PRAGMA cache_spill=ON")
        connection.execute("VACUUM INTO ?", (fresh,))
        inode = _finish(fresh, connection.roots_of(fresh))
        shutil.copymode(path, fresh)
        Path(fresh).replace(path)
        connection.replaced_by = inode
        sync_folder(path)
    except OSError as error:
        raise StoreError(f"cannot compact {path}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            Path(fresh).unlink(missing_ok=True)


def _finish(fresh: str, roots: Mapping[str, int]) -> Inode:
    """Zero what even a new file holds in bytes that belong to nothing; sync it."""
    file = HeldFile(fresh, writable=True)
    try:
        layout = read_layout(file, roots)
        if layout.damage:
            raise StoreError(f"the compacted file is damaged: {layout.damage[0]}")
        scrub(file, layout)
        set_counters(file)
        file.sync()
        return file.inode
    finally:
        file.close()


def rewrite_ram(connection: Connection) -> None:
    """Write the tables in RAM anew, and nothing that belongs to nothing.

    Parameters
    ----------
    connection : Connection
        Of a memory without a file.
    """
    connection.execute("VACUUM")
    image = Image(connection.image())
    scrub(image, read_layout(image, connection.roots()))
    connection.load(image.data)
