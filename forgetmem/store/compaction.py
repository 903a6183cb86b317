"""Writes the file anew, so that its bytes are a function of its rows alone."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from forgetmem.errors import StoreError
from forgetmem.store.creation import set_counters
from forgetmem.store.erasure import scrub
from forgetmem.store.files import HeldFile, Inode, sync_folder
from forgetmem.store.source import Image
from forgetmem.store.structure import read_layout

if TYPE_CHECKING:
    from forgetmem.store.connection import Connection


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
    except OSError as error:
        _discard(fresh)
        raise StoreError(f"cannot compact {path}: {error}") from error
    except BaseException:
        _discard(fresh)
        raise
    sync_folder(path)


def _discard(fresh: str) -> None:
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
