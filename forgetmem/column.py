"""A number for the metadata of each row, so that a filter looks at each text once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forgetmem.arrays import IntArray

#: The number of a row without records, and of one whose records differ in metadata.
NONE, SEVERAL = -1, -2


class MetadataColumn:
    """The distinct metadata texts of some records, and which of them each row has.

    Parameters
    ----------
    rows : ndarray of int64
        The row of each record.
    texts : sequence of str
        The metadata of each record.
    """

    def __init__(self, rows: IntArray, texts: Sequence[str]) -> None:
        self._numbers: dict[str, int] = {}
        self.texts: list[str] = []
        self._column: NDArray[np.int32] = np.full(0, NONE, dtype=np.int32)
        numbers = np.array([self.number(text) for text in texts], dtype=np.int32)
        self._reserve(int(rows.max()) + 1 if len(rows) else 0)
        self._column[rows] = numbers
        self._column[rows[self._column[rows] != numbers]] = SEVERAL

    def number(self, text: str) -> int:
        """Return the number of a metadata text, a new one if it is new.

        Parameters
        ----------
        text : str

        Returns
        -------
        int
            Its position in `texts`.
        """
        number = self._numbers.setdefault(text, len(self.texts))
        if number == len(self.texts):
            self.texts.append(text)
        return number

    def put(self, row: int, text: str) -> None:
        """Take up one more record.

        Parameters
        ----------
        row : int
        text : str
            Its metadata.
        """
        self._reserve(row + 1)
        number = self.number(text)
        same = self._column[row] in (NONE, number)
        self._column[row] = number if same else SEVERAL

    def of_rows(self, size: int) -> NDArray[np.int32]:
        """Return the number of each row.

        Parameters
        ----------
        size : int
            How many rows there are.

        Returns
        -------
        ndarray of shape (size,), int32
            `NONE` without a record, `SEVERAL` where the records of a row differ.
        """
        self._reserve(size)
        return self._column[:size]

    def _reserve(self, size: int) -> None:
        if size > len(self._column):
            grown = np.full(max(size, len(self._column) * 3 // 2), NONE, dtype=np.int32)
            grown[: len(self._column)] = self._column
            self._column = grown
