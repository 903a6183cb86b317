"""Who may use a file, and who may replace it.

SQLite's locks belong to the file behind a name, not to the name. A connection to a
file that was replaced would take the journal of whoever writes the new file for one
that was left behind by a crash, play it back and remove it. So every use of a file
holds its gate and makes sure, once it holds it, that the name still means that file;
and it is replaced only by someone who holds the gate alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator

from forgetmem.errors import StoreBusyError, StoreError

#: The byte of the file that stands for the gate; SQLite locks others. The next byte
#: stands for the way in: whoever wants the gate alone closes it behind those inside.
_GATE = 1 << 40
_WAY_IN = _GATE + 1

_PAUSE = 0.002

_WHOLE = {
    fcntl.F_RDLCK: fcntl.LOCK_SH,
    fcntl.F_WRLCK: fcntl.LOCK_EX,
    fcntl.F_UNLCK: fcntl.LOCK_UN,
}

Wait = tuple[float, float]


class Gate:
    """The gate of one file, for all threads of this process and for other processes.

    The locks are those of open file descriptions: SQLite, when it has no lock left,
    drops all others that the process holds on the file. Where the system has no such
    locks, the folder is locked instead, and memories in one folder share a gate. A
    child that was forked inside has no part in it, and lets none go.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = False
        self._fd = -1

    @contextlib.contextmanager
    def using(self, fd: int, timeout: float) -> Iterator[None]:
        """Hold the gate together with others.

        Parameters
        ----------
        fd : int
            A descriptor to be locked, see `locks_files`.
        timeout : float
            Seconds to wait for whoever holds it alone.

        Yields
        ------
        None
            While it is held.

        Raises
        ------
        StoreBusyError
            If it is held for longer.
        """
        owner, entered = os.getpid(), False
        try:
            with self._changed:
                wait = self._wait(lambda: not self._alone, timeout)
                if not self._inside:
                    try:
                        _lock(fd, fcntl.F_RDLCK, _WAY_IN, wait)
                        _lock(fd, fcntl.F_RDLCK, _GATE, wait)
                    finally:
                        _set(fd, fcntl.F_UNLCK, _WAY_IN)
                    self._fd = fd
                # In one step, so that an interrupt finds both or neither.
                self._inside, entered = self._inside + 1, True
            yield
        finally:
            if entered and owner == os.getpid():
                self._leave()

    @contextlib.contextmanager
    def alone(self, fd: int, timeout: float) -> Iterator[None]:
        """Hold the gate, and nobody else.

        Parameters
        ----------
        fd : int
            A descriptor to be locked, see `locks_files`; of a file, one that can write.
        timeout : float
            Seconds to wait for others.

        Yields
        ------
        None
            While it is held.

        Raises
        ------
        StoreBusyError
            If others hold it for longer.
        """
        owner, entered = os.getpid(), False
        try:
            with self._changed:
                wait = self._wait(lambda: not (self._alone or self._inside), timeout)
                self._alone, self._fd, entered = True, fd, True
                _lock(fd, fcntl.F_WRLCK, _WAY_IN, wait)
                _lock(fd, fcntl.F_WRLCK, _GATE, wait)
            yield
        finally:
            if entered and owner == os.getpid():
                self._leave()

    def _wait(self, free: Callable[[], bool], timeout: float) -> Wait:
        """Wait for other threads; return when the waiting began and when it ends."""
        start = time.monotonic()
        if not self._changed.wait_for(free, timeout):
            raise StoreBusyError(time.monotonic() - start)
        return start, start + timeout

    def _leave(self) -> None:
        with self._changed:
            if self._alone:
                self._alone = False
                _set(self._fd, fcntl.F_UNLCK, _WAY_IN)
            else:
                self._inside -= 1
            if not self._inside:
                _set(self._fd, fcntl.F_UNLCK, _GATE)
                self._changed.notify_all()


def locks_files() -> bool:
    """Tell whether the system can lock what one descriptor has open.

    Returns
    -------
    bool
        If not, a descriptor of the folder is to be locked.
    """
    return hasattr(fcntl, "F_OFD_SETLK")


def _lock(fd: int, kind: int, byte: int, wait: Wait) -> None:
    """Wait for other processes."""
    start, end = wait
    while True:
        try:
            _set(fd, kind, byte)
            return
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= end:
                raise StoreBusyError(time.monotonic() - start) from None
            time.sleep(_PAUSE)
        except OSError as error:
            raise StoreError(f"the file system has no locks: {error}") from error


def _set(fd: int, kind: int, byte: int) -> None:
    """Set or drop the lock of an open file description."""
    if locks_files():
        request = struct.pack("hh4xqqi4x", kind, os.SEEK_SET, byte, 1, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    elif byte == _GATE:
        fcntl.flock(fd, _WHOLE[kind] | fcntl.LOCK_NB)
