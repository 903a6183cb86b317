"""What the file says of every row, so that only what differs is written again."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.groups import Roles, Words

#: Numbers of eight bytes a row: two labels and the bits of the weight.
_WORDS = 5


class Written:
    """Labels, weight and role of each row as they stand in the file; 41 bytes a row."""

    def __init__(self) -> None:
        self._words: Words = np.zeros((0, _WORDS), dtype=np.uint64)
        self._roles: Roles = np.zeros(0, dtype=np.int8)

    def note(
        self,
        rows: IntArray,
        labels: tuple[Words, Words],
        weights: FloatArray,
        roles: Roles,
    ) -> BoolArray:
        """Take down what is written now.

        Parameters
        ----------
        rows : ndarray of int64
        labels : tuple of two ndarray of shape (n, 2), uint64
            Of the component and of the part.
        weights : ndarray of float64
        roles : ndarray of int8

        Returns
        -------
        ndarray of bool
            For which rows anything differs from before, to the last bit.
        """
        now = np.column_stack([*labels, weights.view(np.uint64)])
        self._reserve(int(rows.max()) + 1 if len(rows) else 0)
        differs: BoolArray = (self._words[rows] != now).any(axis=1)
        differs |= self._roles[rows] != roles
        self._words[rows], self._roles[rows] = now, roles
        return differs

    def clear(self, rows: IntArray) -> None:
        """Overwrite what was taken down of rows that are gone.

        Parameters
        ----------
        rows : ndarray of int64
        """
        known = rows[rows < len(self._words)]
        self._words[known] = 0
        self._roles[known] = 0

    def _reserve(self, size: int) -> None:
        held = len(self._words)
        if size > held:
            words = np.zeros((max(size, held * 3 // 2), _WORDS), dtype=np.uint64)
            roles = np.zeros(len(words), dtype=np.int8)
            words[:held], roles[:held] = self._words, self._roles
            self._words[:] = 0
            self._words, self._roles = words, roles
