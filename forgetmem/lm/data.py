"""Byte batches from text files, and key-value facts to recall.

Batches are a function of a seed and the number of the step, so training resumes exactly
wherever it was interrupted.
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forgetmem.errors import InvalidInputError

Bytes: TypeAlias = NDArray[np.uint8]

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def read_bytes(path: str | Path, limit: int | None = None) -> Bytes:
    """Read a text file as bytes; ``.gz`` and ``.xz`` are unpacked.

    Parameters
    ----------
    path : str or Path
    limit : int, optional
        Read no more than so many bytes (unpacked).

    Returns
    -------
    ndarray of uint8

    Raises
    ------
    InvalidInputError
        If there is no such file, it is damaged or it is empty.
    """
    place = Path(path)
    try:
        with _OPENERS.get(place.suffix, open)(place, "rb") as file:
            content = file.read(-1 if limit is None else limit)
    except FileNotFoundError:
        raise InvalidInputError(f"no such file: {place}") from None
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise InvalidInputError(f"cannot read {place}: {error}") from error
    if not content:
        raise InvalidInputError(f"expected text, but {place} is empty")
    return np.frombuffer(content, dtype=np.uint8)


def split_tail(data: Bytes, share: float = 0.1) -> tuple[Bytes, Bytes]:
    """Hold out the end of a text.

    Parameters
    ----------
    data : ndarray of uint8
    share : float
        Of the second part.

    Returns
    -------
    tuple of ndarray
    """
    place = int(len(data) * (1.0 - share))
    return data[:place], data[place:]


@dataclass(frozen=True)
class ByteBatches:
    """Random windows of a text.

    Parameters
    ----------
    data : ndarray of uint8
    batch_size : int
    block_size : int
        Tokens in a window.
    seed : int
    """

    data: Bytes
    batch_size: int
    block_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.data) < self.block_size + 2:
            raise InvalidInputError(
                f"expected a text of at least {self.block_size + 2} bytes for a block "
                f"of {self.block_size}, got {len(self.data)}"
            )

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Make the batch of one step.

        Parameters
        ----------
        step : int

        Returns
        -------
        inputs, targets : Tensor of shape (batch_size, block_size), int64
        """
        random = np.random.default_rng([self.seed, step])
        last = len(self.data) - self.block_size
        starts = random.integers(0, last, self.batch_size)
        windows = starts[:, None] + np.arange(self.block_size + 1)
        rows = torch.from_numpy(self.data[windows].astype(np.int64))
        return rows[:, :-1], rows[:, 1:]


@dataclass(frozen=True)
class RecallBatches:
    """Facts as key and value tokens, then all keys again in another order.

    A sequence is ``k1 v1 k2 v2 ... ; kj vj ki vi ...``. Only the values after the
    separator can be known; elsewhere the target is -1, which a loss ignores.

    Parameters
    ----------
    n_pairs : int
        Facts in a sequence; their keys are distinct.
    batch_size : int
    keys, values : bytes
        The two alphabets, each of distinct bytes.
    separator : int
        The byte between facts and questions.
    seed : int
    least : int, optional
        The number of facts of each batch is drawn from `least` to `n_pairs`; if not
        given it is always `n_pairs`.
    chatter : int
        After the facts, so many statements that only say three of them again.
    """

    n_pairs: int
    batch_size: int
    keys: bytes = bytes(range(64))
    values: bytes = bytes(range(128, 192))
    separator: int = 255
    seed: int = 0
    least: int | None = None
    chatter: int = 0

    def __post_init__(self) -> None:
        distinct = all(len(set(part)) == len(part) for part in (self.keys, self.values))
        if not (distinct and 1 <= self.n_pairs <= len(self.keys) and self.values):
            raise InvalidInputError(
                f"expected distinct keys, at least {self.n_pairs}, and distinct values"
            )

    @property
    def block_size(self) -> int:
        """Most tokens in a sequence."""
        return 4 * self.n_pairs + 2 * self.chatter + 1

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Make the batch of one step.

        Parameters
        ----------
        step : int

        Returns
        -------
        inputs, targets : Tensor of shape (batch_size, 4 * n + 2 * chatter + 1), int64
            For n facts.
        """
        random = np.random.default_rng([self.seed, step])
        B, n = self.batch_size, self.n_pairs
        if self.least is not None:
            n = int(random.integers(self.least, n + 1))
        everything = np.tile(np.frombuffer(self.keys, np.uint8), (B, 1))
        keys = random.permuted(everything, axis=1)[:, :n]
        values = random.choice(np.frombuffer(self.values, np.uint8), (B, n))
        order = random.permuted(np.tile(np.arange(n), (B, 1)), axis=1)
        facts = np.stack([keys, values], axis=2)
        questions = np.take_along_axis(facts, order[:, :, None], axis=1)
        again = random.integers(0, min(3, n), (B, self.chatter))
        talk = np.take_along_axis(order[:, ::-1], again, axis=1)
        said = np.take_along_axis(facts, talk[:, :, None], axis=1)
        middle = np.full((B, 1), self.separator)
        parts = [part.reshape(B, -1) for part in (facts, said, middle, questions)]
        rows = torch.from_numpy(np.concatenate(parts, axis=1).astype(np.int64))
        targets = torch.full_like(rows, -1)
        first = 2 * (n + self.chatter) + 1
        targets[:, first::2] = rows[:, first + 1 :: 2]
        return rows, targets
