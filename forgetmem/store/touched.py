"""Which pages a transaction changes, read from its rollback journal.

SQLite copies each page to the journal before it changes it, except pages that were
free, and pages past the old end. With these two the list is complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forgetmem.store import schema
from forgetmem.store.source import Source


@dataclass(frozen=True, slots=True)
class Before:
    """What a file was before a transaction.

    Attributes
    ----------
    pages : int
        Its length.
    free : frozenset of int
        Pages of its freelist.
    """

    pages: int
    free: frozenset[int]


def trunks(source: Source) -> list[tuple[int, list[int]]]:
    """Return the pages that list free pages, and what each lists.

    Parameters
    ----------
    source : Source
        The file.

    Returns
    -------
    list of (int, list of int)
        In the order of the chain; cut off where the chain makes no sense.
    """
    head = source.read(40, 0)
    pages = int.from_bytes(head[28:32], "big")
    trunk = int.from_bytes(head[32:36], "big")
    found: dict[int, list[int]] = {}
    while 2 <= trunk <= pages and trunk not in found:
        data = source.read(schema.PAGE_SIZE, (trunk - 1) * schema.PAGE_SIZE)
        count = int.from_bytes(data[4:8], "big")
        if count > schema.PAGE_SIZE // 4 - 2:
            break
        found[trunk] = np.frombuffer(data, ">u4", count, 8).tolist()
        trunk = int.from_bytes(data[:4], "big")
    return list(found.items())


def before(source: Source) -> Before:
    """Return what must be known before a transaction changes anything.

    Parameters
    ----------
    source : Source
        The file, locked against other writers.

    Returns
    -------
    Before
        For `touched`.
    """
    pages = int.from_bytes(source.read(4, 28), "big")
    lists = trunks(source)
    free = {page for trunk, leaves in lists for page in (trunk, *leaves)}
    return Before(pages, frozenset(free))


def touched(path: str, was: Before) -> set[int] | None:
    """Return the pages that the open transaction has changed so far.

    Parameters
    ----------
    path : str
        The database file.
    was : Before
        What it was.

    Returns
    -------
    set of int, or None
        Old pages only; pages past ``was.pages`` are new. None if the transaction is
        so large that SQLite has begun to write it, and the journal has many parts.
    """
    journal = Path(f"{path}-journal")
    if not journal.exists():
        return set()
    with journal.open("rb") as file:
        head = file.read(28)
        sector = int.from_bytes(head[20:24], "big")
        if any(head[:12]) or not sector:
            return None
        step = schema.PAGE_SIZE + 8
        count = (journal.stat().st_size - sector) // step
        found = set(was.free) | {1}
        for record in range(count):
            file.seek(sector + record * step)
            found.add(int.from_bytes(file.read(4), "big"))
    return found
