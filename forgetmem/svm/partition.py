"""The box of the coefficients, and the three sets that a sample can be in.

The problem is stated in real numbers, so the box is too. A float64 `C` that is the one
nearest to ``1/k`` for an integer ``k`` stands for ``1/k`` itself: that is what
``C = 1 / (nu * n)`` means, and only so can ``k`` coefficients at the bound sum to 1.
Any other `C` stands for itself.
"""

from __future__ import annotations

import enum
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from forgetmem.arrays import FloatArray

#: A `Role` or `FREE` for each slot.
Statuses: TypeAlias = NDArray[np.int8]

#: Below this, relative to ``min(C, 1)``, a coefficient of the refined solution is at
#: its bound. A violation counts if the coefficient it leads to is not.
TIE = 2.0**-80


class Role(enum.IntEnum):
    """The set of the partition that a sample is in."""

    RESERVE = 0
    MARGIN = 1
    BOUNDED = 2


#: A slot without a sample.
FREE = -1
#: The roles for compiled code: as plain integers, each would be compiled for anew.
RESERVE, MARGIN, BOUNDED = np.int8(0), np.int8(1), np.int8(2)


def triple(value: Fraction) -> tuple[float, float, float]:
    """Three float64 numbers whose sum is `value`, up to 2**-159 of it.

    Parameters
    ----------
    value : Fraction

    Returns
    -------
    tuple of float
        The nearest float64, that of the rest, and that of the rest of the rest.
    """
    first = float(value)
    second = float(value - Fraction(first))
    third = float(value - Fraction(first) - Fraction(second))
    return first, second, third


class Box:
    """The bounds ``0 <= dual_coef <= C`` together with ``sum(dual_coef) = 1``.

    Parameters
    ----------
    C : float
        Positive and finite.

    Attributes
    ----------
    C : float
        As given; the stored coefficient of a bounded sample.
    exact : Fraction
        The number it stands for.
    parts : ndarray of shape (3,), float64
        `exact` as a sum of three.
    tie : float
        Distance from a bound that counts as none.
    """

    def __init__(self, C: float) -> None:
        self.C = C
        self.exact = Fraction(C)
        if C < 1.0:
            count = round(1 / self.exact)
            if float(Fraction(1, count)) == C:
                self.exact = Fraction(1, count)
        self.parts = np.array(triple(self.exact))
        self.tie = TIE * min(C, 1.0)
        self._rests: dict[int, FloatArray] = {}

    def feasible(self, n_samples: int) -> bool:
        """Whether so many coefficients can sum to 1; if not, this is the warm-up.

        Parameters
        ----------
        n_samples : int

        Returns
        -------
        bool
        """
        return n_samples * self.exact >= 1

    def rest(self, n_bounded: int) -> Fraction:
        """Sum of the coefficients that are not bounded.

        Parameters
        ----------
        n_bounded : int

        Returns
        -------
        Fraction
            Exact; 0 if the bounded ones alone sum to 1.
        """
        return 1 - n_bounded * self.exact

    def rest_parts(self, n_bounded: int) -> FloatArray:
        """Return `rest` as a sum of three.

        Parameters
        ----------
        n_bounded : int

        Returns
        -------
        ndarray of shape (3,), float64
        """
        if n_bounded not in self._rests:
            self._rests[n_bounded] = np.array(triple(self.rest(n_bounded)))
        return self._rests[n_bounded]

    def scaled(self, factor: float) -> FloatArray:
        """Return `factor` times the bound as a sum of three.

        Parameters
        ----------
        factor : float

        Returns
        -------
        ndarray of shape (3,), float64
        """
        return np.array(triple(Fraction(factor) * self.exact))
