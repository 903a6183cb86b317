"""What the file says of every row, so that only what differs is written again."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.groups import Roles, Words

_FIELDS = np.dtype(
    [
        ("component", np.uint64, (2,)),
        ("part", np.uint64, (2,)),
        ("weight", np.float64),
        ("role", np.int8),
    ]
)


class Written:
    """Labels, weight and role of each row as they stand in the file; 41 bytes a row."""

    def __init__(self) -> None:
        self._rows = np.zeros(0, dtype=_FIELDS)

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
            For which rows anything differs from before.
        """
        now = np.zeros(len(rows), dtype=_FIELDS)
        now["component"], now["part"] = labels
        now["weight"], now["role"] = weights, roles
        self._reserve(int(rows.max()) + 1 if len(rows) else 0)
        differs: BoolArray = self._rows[rows] != now
        self._rows[rows] = now
        return differs

    def clear(self, rows: IntArray) -> None:
        """Overwrite what was taken down of rows that are gone.

        Parameters
        ----------
        rows : ndarray of int64
        """
        known = rows[rows < len(self._rows)]
        self._rows[known] = np.zeros((), dtype=_FIELDS)

    def _reserve(self, size: int) -> None:
        if size > len(self._rows):
            grown = np.zeros(max(size, len(self._rows) * 3 // 2), dtype=_FIELDS)
            grown[: len(self._rows)] = self._rows
            self._rows[:] = np.zeros((), dtype=_FIELDS)
            self._rows = grown
