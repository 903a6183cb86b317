"""A number for the metadata of each row, so that a filter looks at each text once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forgetmem.arrays import BoolArray, IntArray

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
        self._records: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        numbers = np.array([self.number(text) for text in texts], dtype=np.int32)
        self._reserve(int(rows.max()) + 1 if len(rows) else 0)
        self._column[rows] = numbers
        self._column[rows[self._column[rows] != numbers]] = SEVERAL
        self._records += np.bincount(rows, minlength=len(self._records)).astype("i4")
        differ = self._column[rows] == SEVERAL
        #: Row and number of each record of a row whose records differ; the latest
        #: stand in a list.
        self._singly = np.column_stack([rows[differ], numbers[differ]])
        self._latest: list[tuple[int, int]] = []

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
        number, before = self.number(text), int(self._column[row])
        if before in (NONE, number):
            self._column[row] = number
        else:
            if before != SEVERAL:
                self._latest += [(row, before)] * int(self._records[row])
            self._column[row] = SEVERAL
            self._latest.append((row, number))
        self._records[row] += 1

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

    def count(self, size: int, verdicts: BoolArray) -> IntArray:
        """Count the records of each row that have some of the texts.

        Parameters
        ----------
        size : int
            How many rows there are.
        verdicts : ndarray of bool
            Whether each of `texts` is one of them.

        Returns
        -------
        ndarray of shape (size,), int64
        """
        # Numbers below 0 look at the end.
        own = np.concatenate([verdicts, [False, False]])[self.of_rows(size)]
        counts = own * self._records[:size].astype(np.int64)
        if self._latest:
            self._singly = np.concatenate([self._singly, np.array(self._latest)])
            self._latest = []
        rows, numbers = self._singly.T
        counts += np.bincount(rows[verdicts[numbers]], minlength=size)
        return counts

    def _reserve(self, size: int) -> None:
        if size > len(self._column):
            capacity = max(size, len(self._column) * 3 // 2)
            grown = np.full(capacity, NONE, dtype=np.int32)
            grown[: len(self._column)] = self._column
            records = np.zeros(capacity, dtype=np.int32)
            records[: len(self._records)] = self._records
            self._column, self._records = grown, records
