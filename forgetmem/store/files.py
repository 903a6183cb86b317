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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Inode = tuple[int, int]

_guard = threading.Lock()
_descriptors: dict[Inode, list[int]] = {}
_holders: dict[Inode, int] = {}


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
    """A descriptor for raw reads that outlives every connection to the file.

    Parameters
    ----------
    path : str
        The file, which must exist.
    """

    def __init__(self, path: str) -> None:
        with _guard:
            inode = inode_of(path)
            if inode is None or inode not in _descriptors:
                fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
                found = os.fstat(fd)
                inode = found.st_dev, found.st_ino
                _descriptors.setdefault(inode, []).append(fd)
            _holders[inode] = _holders.get(inode, 0) + 1
            self.inode: Inode = inode
            self._fd = _descriptors[inode][0]
        self._open = True

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
                got = os.preadv(self._fd, [memoryview(buffer)[count:]], offset + count)
                if not got:
                    break
                count += got
            if count:
                yield offset, buffer[:count]
            if count < size:
                return
            offset += count

    def close(self) -> None:
        """Let go; the last holder in the process closes the descriptor."""
        with _guard:
            if not self._open or self.inode not in _holders:
                return
            self._open = False
            _holders[self.inode] -= 1
            if not _holders[self.inode]:
                del _holders[self.inode]
                for fd in _descriptors.pop(self.inode):
                    os.close(fd)


def _forget_after_fork() -> None:
    """Give up the parent's descriptors: a child has no connection of its own yet."""
    global _guard
    _guard = threading.Lock()
    for fds in _descriptors.values():
        for fd in fds:
            os.close(fd)
    _descriptors.clear()
    _holders.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def siblings(path: str) -> list[Path]:
    """Return the files whose name is the memory's name, a dash and more.

    Parameters
    ----------
    path : str
        The memory's file.

    Returns
    -------
    list of Path
        Sorted; journals, leftovers and whatever else stands beside.
    """
    file = Path(path)
    return sorted(
        Path(entry.path)
        for entry in os.scandir(file.parent)
        if entry.name.startswith(f"{file.name}-")
    )


def is_leftover(path: str, sibling: Path) -> bool:
    """Tell whether a file beside a memory was left by a process that was killed.

    Parameters
    ----------
    path : str
        The memory's file.
    sibling : Path
        One of its `siblings`.

    Returns
    -------
    bool
        True for unfinished compactions and creations and for their journals.
    """
    rest = sibling.name.removeprefix(Path(path).name)
    return rest.startswith(("-compact", "-create"))


def sync_file(path: str) -> None:
    """Write a file's bytes through to the disk.

    Parameters
    ----------
    path : str
        A file that no connection of this process has open.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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
