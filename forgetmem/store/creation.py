"""How a memory's file comes into being: whole, or not at all.

An empty memory is built beside its final name and linked into place. So whatever
stands at the path is a complete file, and an empty or short one is damage.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import ModuleType

from forgetmem.errors import StoreError
from forgetmem.store import schema
from forgetmem.store.files import sync_file, sync_folder

#: Header fields that count changes: (offset, value) of the file change counter, the
#: schema cookie and version-valid-for. Set alike in each file that is put into place.
_COUNTERS = ((24, 1), (40, 1), (92, 1))


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
        set_counters(str(draft))
        sync_file(str(draft))
        _link(draft, path)
        sync_folder(path)
    except (OSError, driver.Error) as error:
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


def set_counters(path: str) -> None:
    """Set the header's counters, which otherwise tell of a file's history.

    Parameters
    ----------
    path : str
        A database file that no connection has open.
    """
    with Path(path).open("r+b") as file:
        for offset, value in _COUNTERS:
            file.seek(offset)
            file.write(value.to_bytes(4, "big"))
