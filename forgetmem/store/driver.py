"""The module that speaks to SQLite, and its errors in our words."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Iterator
from types import ModuleType

from forgetmem.errors import CorruptStoreError, StoreBusyError, StoreError

_BUSY, _LOCKED = 5, 6
_DAMAGED = {11: "its pages are damaged", 26: "it is no SQLite file"}
_REASONS = {
    8: "it cannot be written",
    10: "the system reported an input or output error",
    13: "the disk, or the limit on the size of files, is full",
    14: "it cannot be opened",
}


def load_driver() -> ModuleType:
    """Return the module that speaks to SQLite.

    Returns
    -------
    module
        The standard library's ``sqlite3``, or the compatible one that the
        environment variable ``FORGETMEM_SQLITE`` names.
    """
    return importlib.import_module(os.environ.get("FORGETMEM_SQLITE", "sqlite3"))


@contextlib.contextmanager
def translated(driver: ModuleType, name: str) -> Iterator[None]:
    """Turn the driver's errors into ours.

    Parameters
    ----------
    driver : module
        See `load_driver`.
    name : str
        How messages call the file.

    Raises
    ------
    StoreBusyError
        If somebody else held the file for too long.
    CorruptStoreError
        If the file is damaged.
    StoreError
        If anything else is wrong.
    """
    start = time.monotonic()
    try:
        yield
    except driver.Error as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in (_BUSY, _LOCKED):
            raise StoreBusyError(time.monotonic() - start) from error
        if code in _DAMAGED or "decode to UTF-8" in str(error):
            reason = _DAMAGED.get(code, "a text in it is no UTF-8")
            raise CorruptStoreError(f"{name} cannot be read: {reason}") from error
        reason = _REASONS.get(code, "SQLite reported an error")
        raise StoreError(f"{name}: {reason} ({error}); nothing was changed") from error
    except UnicodeDecodeError as error:  # SQLite's own message quotes a damaged name
        reason = "what it says of its tables is no UTF-8"
        raise CorruptStoreError(f"{name} cannot be read: {reason}") from error
