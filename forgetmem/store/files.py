"""The files of a memory: raw reads, side files, renames and syncs.

POSIX drops all locks that a process holds on a file as soon as it closes *any*
descriptor of that file. So descriptors for raw reads are shared by the whole process
(`HeldFile`), opened before SQLite opens the file, and closed when the last connection
of the process is gone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forgetmem.store.gate import Gate, locks_files
from forgetmem.store.schema import APPLICATION_ID

MAGIC = b"SQLite format 3\x00"

Inode = tuple[int, int]


@dataclass(slots=True)
class _Shared:
    """What all holders of one file in this process share."""

    fds: dict[bool, list[int]] = field(default_factory=lambda: {False: [], True: []})
    folder: int | None = None
    holders: int = 0
    gate: Gate = field(default_factory=Gate)
    pid: int = field(default_factory=os.getpid)


# Reentrant: the garbage collector may close a forgotten store while it is held.
_guard = threading.RLock()
_files: dict[Inode, _Shared] = {}


def inode_of(path: str) -> Inode | None:
    """Return device and inode number of the file at a path.

    Parameters
    ----------
    path : str
        Any path; symbolic links are followed.

    Returns
    -------
    tuple of (int, int) or None
        None if there is no such file.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - called before every transaction
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class HeldFile:
    """A descriptor for raw access that outlives every connection to the file.

    Parameters
    ----------
    path : str
        The file, which must exist.
    writable : bool
        Whether `write` and `truncate` will be called.
    """

    def __init__(self, path: str, *, writable: bool = False) -> None:
        with _guard:
            inode, fd = _find(path, writable)
            shared = _files.setdefault(inode, _Shared())
            shared.holders += 1
            if fd not in shared.fds[writable]:
                shared.fds[writable].append(fd)
            if shared.folder is None and not locks_files():
                shared.folder = os.open(Path(path).parent, os.O_RDONLY)
        self.inode = inode
        self._shared = shared
        self._fd = shared.fds[writable][0]
        self._lockable = self._fd if shared.folder is None else shared.folder

    @contextmanager
    def using(self, timeout: float) -> Iterator[None]:
        """Hold the file's gate together with others, see `Gate.using`.

        Parameters
        ----------
        timeout : float
            Seconds to wait.

        Yields
        ------
        None
            While it is held the file is not replaced.
        """
        with self._kept(), self._shared.gate.using(self._lockable, timeout):
            yield

    @contextmanager
    def alone(self, timeout: float) -> Iterator[None]:
        """Hold the file's gate alone, see `Gate.alone`.

        Parameters
        ----------
        timeout : float
            Seconds to wait.

        Yields
        ------
        None
            While it is held nobody else uses the file.
        """
        with self._kept(), self._shared.gate.alone(self._lockable, timeout):
            yield

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep the descriptor open, even if it is closed meanwhile."""
        with _guard:
            self._shared.holders += 1
        try:
            yield
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with _guard:
            shared = self._shared
            if shared.pid != os.getpid():
                return  # pragma: no cover - only in a child of a fork
            shared.holders -= 1
            if not shared.holders:
                _close_all(_files.pop(self.inode))

    def size(self) -> int:
        """Return the length of the file.

        Returns
        -------
        int
            In bytes.
        """
        return os.fstat(self._fd).st_size

    def read(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset` on.

        Parameters
        ----------
        size, offset : int
            In bytes.

        Returns
        -------
        bytes
            Shorter at the end of the file.
        """
        return os.pread(self._fd, size, offset)

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield the file block by block; each block is overwritten by the next.

        Parameters
        ----------
        size : int
            Bytes in a block; the last one may be shorter.

        Yields
        ------
        tuple of (int, ndarray of uint8)
            Offset in the file, and the bytes.
        """
        buffer = np.empty(size, dtype=np.uint8)
        offset = 0
        while True:
            count = 0
            while count < size:
                got = os.preadv(self._fd, [buffer.data[count:]], offset + count)
                if not got:
                    break
                count += got
            if count:
                yield offset, buffer[:count]
            if count < size:
                return
            offset += count

    def write(self, data: bytes, offset: int) -> None:
        """Overwrite bytes in place.

        Parameters
        ----------
        data : bytes
            The new ones.
        offset : int
            Where they go.
        """
        view = memoryview(data)
        while view:
            count = os.pwrite(self._fd, view, offset)
            view, offset = view[count:], offset + count

    def truncate(self, size: int) -> None:
        """Cut off what stands past the end.

        Parameters
        ----------
        size : int
            Bytes to keep.
        """
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Write the bytes through to the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Let go; the last holder in the process closes the descriptor."""
        self._let_go()


def _find(path: str, writable: bool) -> tuple[Inode, int]:
    """Return the inode at a path and a descriptor of it, open already if possible."""
    inode = inode_of(path)
    if inode is not None and inode in _files and _files[inode].fds[writable]:
        return inode, _files[inode].fds[writable][0]
    mode = os.O_RDWR if writable else os.O_RDONLY
    fd = os.open(path, mode | getattr(os, "O_CLOEXEC", 0))
    found = os.fstat(fd)
    return (found.st_dev, found.st_ino), fd


def _close_all(shared: _Shared) -> None:
    folder = [] if shared.folder is None else [shared.folder]
    for fd in shared.fds[False] + shared.fds[True] + folder:
        os.close(fd)


def _forget_after_fork() -> None:  # pragma: no cover - only in a child of a fork
    """Give up the parent's descriptors: a child has no connection of its own yet."""
    global _guard
    _guard = threading.RLock()
    for shared in _files.values():
        _close_all(shared)
    _files.clear()


if hasattr(os, "register_at_fork"):  # pragma: no branch
    os.register_at_fork(after_in_child=_forget_after_fork)


def side_files(path: str) -> list[Path]:
    """Return the files beside a memory that belong to it by their names.

    Parameters
    ----------
    path : str
        The memory's file.

    Returns
    -------
    list of Path
        Sorted: journals, leftovers, and whatever else bears the memory's name, a dash
        and more, but not other memories and their side files.
    """
    file = Path(path)
    with os.scandir(file.parent) as entries:
        names = [entry.name for entry in entries]
    start = f"{file.name}-"
    found = sorted(file.parent / name for name in names if name.startswith(start))
    others = [f"{side}-" for side in found if _is_memory(path, side)]
    return [
        side
        for side in found
        if f"{side}-" not in others
        and not any(str(side).startswith(other) for other in others)
    ]


def _is_memory(path: str, side: Path) -> bool:
    """Tell whether a file beside a memory is another memory."""
    if is_ours(path, side) or not side.is_file():
        return False
    with side.open("rb") as file:
        head = file.read(72)
    return head[:16] == MAGIC and head[68:72] == APPLICATION_ID.to_bytes(4, "big")


def is_ours(path: str, side: Path) -> bool:
    """Tell whether SQLite or we may have written a file beside a memory.

    Parameters
    ----------
    path : str
        The memory's file.
    side : Path
        A file beside it.

    Returns
    -------
    bool
        True for journals, and for unfinished creations and compactions.
    """
    rest = side.name.removeprefix(Path(path).name)
    journals = ("-journal", "-wal", "-shm")
    return rest in journals or rest.startswith(("-compact", "-create"))


def sync_folder(path: str) -> None:
    """Make the names in the folder of a file durable.

    Parameters
    ----------
    path : str
        A file in the folder.
    """
    if os.name == "nt":  # pragma: no cover - Windows has no such call
        return
    fd = os.open(Path(path).parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
