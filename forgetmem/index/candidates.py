"""What an index proposes, and how far float32 can err."""

from __future__ import annotations

from dataclasses import dataclass

from forgetmem.arrays import IntArray


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows that may be among the best, and a bound on all others.

    Attributes
    ----------
    rows : ndarray of int64
        The proposed rows, in no particular order.
    bound : float
        No other row has a larger inner product, by `forgetmem.distances.dots`; ``-inf``
        if there is no other row.
    """

    rows: IntArray
    bound: float


def float32_error(dimension: int) -> float:
    """Bound the error of a float32 inner product of two unit vectors.

    Parameters
    ----------
    dimension : int
        Length of the vectors.

    Returns
    -------
    float
        Twice ``dimension * 2**-24``, which holds for any order of summation, and
        at least 5e-5.
    """
    return max(5e-5, 2.0 * (dimension + 4) * 2.0**-24)
