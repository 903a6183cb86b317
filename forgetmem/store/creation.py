"""How a memory's file comes into being: whole, or not at all.

An empty memory is built beside its final name and linked into place. So whatever
stands at the path is a complete file, and an empty or short one is damage.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from forgetmem.errors import StoreError
from forgetmem.store import schema
from forgetmem.store.files import HeldFile, inode_of, sync_folder

if TYPE_CHECKING:
    from forgetmem.store.source import Target

#: The change counter of each file that is put into place.
COUNTER = 1

#: Where the header keeps counters: changes, the schema's cookie, version-valid-for.
_COUNTERS = (24, 40, 92)


def create_file(path: str, driver: ModuleType) -> None:
    """Create an empty memory, unless there is a file already.

    Parameters
    ----------
    path : str
        Absolute path of the file to be.
    driver : module
        The module that speaks to SQLite.

    Raises
    ------
    StoreError
        If the folder cannot be written.
    """
    draft = Path(f"{path}-create-{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        _build(draft, driver)
        file = HeldFile(str(draft), writable=True)
        set_counters(file)
        file.sync()
        file.close()
        _link(draft, path)
        sync_folder(path)
    except (OSError, driver.Error) as error:
        if inode_of(path) is not None:
            return  # another process was faster, and has removed the draft
        raise StoreError(f"cannot create a memory at {path}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _build(draft: Path, driver: ModuleType) -> None:
    connection = driver.connect(str(draft), isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=OFF")
        for statement in schema.creation():
            connection.execute(statement)
    finally:
        connection.close()


def _link(draft: Path, path: str) -> None:
    """Give the draft its name, unless another process was faster."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:
        if not Path(path).exists():
            draft.rename(path)


def set_counters(target: Target) -> None:
    """Set the header's counters, which otherwise tell of a file's history.

    Parameters
    ----------
    target : Target
        A database file that no connection has open.
    """
    for offset in _COUNTERS:
        target.write(COUNTER.to_bytes(4, "big"), offset)
