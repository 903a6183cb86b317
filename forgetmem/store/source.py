"""The bytes of a database, wherever they are: in a file (`HeldFile`) or in RAM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Source(Protocol):
    """Bytes of a database, from a file or from RAM."""

    def size(self) -> int:
        """Return how many bytes there are."""
        ...

    def read(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset` on."""
        ...

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield offset and bytes, block by block."""
        ...


class Target(Source, Protocol):
    """Bytes that can also be overwritten."""

    def write(self, data: bytes, offset: int) -> None:
        """Overwrite bytes in place."""
        ...

    def truncate(self, size: int) -> None:
        """Cut off what stands past the end."""
        ...


class Image:
    """The bytes of a database in RAM.

    Parameters
    ----------
    data : bytes
        All of them.
    """

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)

    def size(self) -> int:
        """Return how many bytes there are.

        Returns
        -------
        int
            The length.
        """
        return len(self.data)

    def read(self, size: int, offset: int) -> bytes:
        """Return bytes of the image.

        Parameters
        ----------
        size, offset : int
            In bytes.

        Returns
        -------
        bytes
            Shorter at the end.
        """
        return bytes(self.data[offset : offset + size])

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield the image block by block.

        Parameters
        ----------
        size : int
            Bytes in a block; the last one may be shorter.

        Yields
        ------
        tuple of (int, ndarray of uint8)
            Offset, and the bytes.
        """
        for offset in range(0, len(self.data), size):
            yield offset, np.frombuffer(self.read(size, offset), np.uint8).copy()

    def write(self, data: bytes, offset: int) -> None:
        """Overwrite bytes in place.

        Parameters
        ----------
        data : bytes
            The new ones.
        offset : int
            Where they go.
        """
        self.data[offset : offset + len(data)] = data

    def truncate(self, size: int) -> None:
        """Cut off what stands past the end.

        Parameters
        ----------
        size : int
            Bytes to keep.
        """
        del self.data[size:]
