"""How far stored coefficients can be from the optimum, from K and them alone.

Nothing here asks how the coefficients were found, and no inverse of theirs is used.
The residuals are summed in threefold precision, and every bound is rounded upwards, so
it holds for the float64 numbers that are stored.

Let g = Q a for a feasible a, rho any number, and r_i = g_i - rho on the margin,
min(g_i - rho, 0) on reserve and max(g_i - rho, 0) on bounded samples. For the optimum
a* and D = a - a*, optimality gives::

    D'QD <= D'g = D'(g - rho 1) <= D'r

because the sums are equal, D_i <= 0 on reserve and D_i >= 0 on bounded samples. So
``|D|_Q <= |r| / sqrt(m)`` and ``|D| <= |r| / m``, m being the smallest eigenvalue of Q
on the samples where D can differ from 0. It is at least the ridge; and once a sample's
condition is known to hold strictly at the optimum too, its D is 0, and a Cholesky
factorisation of a shifted matrix can prove a larger m for the others [1]_. A score
changes by at most ``|D|_Q`` times the length of the query in feature space, which is 1
for the RBF kernel.

References
----------
.. [1] Rump, "Verification of positive definiteness", BIT 46 (2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.svm.extended import UNIT, accumulate
from forgetmem.svm.partition import Box

#: Makes up for the rounding of the last few float64 operations.
_UP = 1.0 + 2.0**-40
#: Relative error of a kernel value, generously: of the sum of squares and of exp.
_KERNEL_ERROR = 64.0 * UNIT


@dataclass(frozen=True)
class Certificate:
    """Bounds on the distance of stored coefficients from the true optimum.

    Parameters
    ----------
    kkt_residual : float
        Largest violation of an optimality condition by any sample.
    duality_gap : float
        Upper bound on twice the excess of the objective.
    bound : float
        No score differs from that of the optimum by more than this times the length of
        the query in feature space (1 for the RBF kernel). From the gap; near 1e-8.
    sharp_bound : float
        The same from the residual of the partition; usually near 1e-16.
    coef_bound : float
        The coefficients do not differ from the optimum by more, in Euclidean norm.
    tied : bool
        Whether some condition may hold with equality, so that the partition is decided
        by the rule for ties. The bounds hold all the same.
    """

    kkt_residual: float
    duality_gap: float
    bound: float
    sharp_bound: float
    coef_bound: float
    tied: bool


def certify(K: FloatArray, alpha: FloatArray, ridge: float, box: Box) -> Certificate:
    """Bound the distance of `alpha` from the optimum.

    Parameters
    ----------
    K : ndarray of shape (n_samples, n_samples), float64, C-contiguous
    alpha : ndarray of shape (n_samples,), float64
    ridge : float
    box : Box

    Returns
    -------
    Certificate
        In the warm-up there is no optimum: then the distance is that from 1/n.

    Notes
    -----
    O(n_samples * support), and O(margin**3) for the eigenvalue.
    """
    if not box.feasible(len(K)):
        away = math.fsum(abs(a - 1.0 / len(K)) for a in alpha.tolist()) + UNIT
        away = away * _UP if len(K) else 0.0
        return Certificate(0.0, 0.0, away, away, away, False)
    return _certify(_Point(K, alpha, ridge, box))


class _Point:
    # A feasible point next to the stored coefficients, as a sum of two float64 numbers,
    # with its slacks. `moved` bounds the sum of the absolute differences to them.

    def __init__(
        self, K: FloatArray, alpha: FloatArray, ridge: float, box: Box
    ) -> None:
        self.K, self.ridge, self.box = K, ridge, box
        self.largest = float(np.abs(K.diagonal()).max()) + ridge
        self.high = np.clip(alpha, 0.0, min(box.C, 1.0))
        self.low = np.where(alpha >= box.C, box.parts[1], 0.0)
        clipped = float(np.abs(self.high - alpha).sum())
        self._balance()
        self.reserve = (self.high == 0.0) & (self.low == 0.0)
        self.bounded = (self.high == box.C) & (self.low == box.parts[1])
        self.margin = ~(self.reserve | self.bounded)
        rest = abs(self._missing())
        self.moved = (clipped + float(np.abs(self.low).sum()) + rest) * _UP
        self._find_slacks(rest)

    def _missing(self) -> float:
        return math.fsum([1.0, *(-self.high).tolist(), *(-self.low).tolist()])

    def _balance(self) -> None:
        # Give what is missing from the sum to coefficients that have room, first to
        # those inside the box.
        upper = min(self.box.C, 1.0)
        inside = (self.high > 0.0) & (self.high < upper)
        for among in (inside, np.ones(len(self.high), dtype=np.bool_)):
            missing = self._missing()
            value = self.high + self.low
            room = np.where(among, value if missing < 0.0 else upper - value, 0.0)
            total = float(room.sum())
            if missing != 0.0 and total > 0.0:
                self.low += missing * (room / max(total, abs(missing)))
                return  # what rounding leaves must not lift a reserve sample off 0

    def _find_slacks(self, rest: float) -> None:
        # h = Q a - rho for the rho in the middle of the margin, and its error.
        n = len(self.K)
        support = np.flatnonzero(~self.reserve)
        zeros = np.zeros(len(support))
        x = np.column_stack([self.high[support], self.low[support], zeros])
        sums, own = np.zeros((3, n)), np.zeros((3, n))
        accumulate(self.K, support, x, 3, sums)
        ridges = np.array([[self.ridge, 0.0, 0.0]] * 2)
        accumulate(np.array([self.high, self.low]), np.arange(2), ridges, 3, own)
        raw = sums[0] + own[0]
        rho = float(raw[self.margin].mean() if self.margin.any() else raw.max())
        if not self.margin.any():
            rho = float(raw[self.bounded].max())
        terms = np.vstack([own, np.ones((1, n))])
        factors = np.array([[factor, 0.0, 0.0] for factor in (1.0, 1.0, 1.0, -rho)])
        accumulate(terms, np.arange(4), factors, 3, sums)
        self.h: FloatArray = sums[0] + (sums[1] + sums[2])
        if self.margin.any():
            self.h -= self.h[self.margin].mean()
        noise = self.largest * (rest + (len(support) + 8.0) * 2.0**-105)
        self.slip: FloatArray = 8.0 * UNIT * np.abs(self.h) + noise

    def residual(self) -> FloatArray:
        # Bound on what each sample violates its condition by.
        violation = np.where(self.margin, np.abs(self.h), 0.0)
        violation = np.where(self.reserve, np.maximum(-self.h, 0.0), violation)
        violation = np.where(self.bounded, np.maximum(self.h, 0.0), violation)
        return (violation + self.slip) * _UP

    def gap(self) -> float:
        # a'h - min b'h over feasible b; rho drops out, as both sum to 1.
        order = np.sort(self.h)
        whole = int(1 / self.box.exact)
        lowest = np.full(whole, self.box.C)
        if whole < len(order):
            lowest = np.append(lowest, float(self.box.rest(whole)))
        terms = [self.high * self.h, self.low * self.h, -lowest * order[: len(lowest)]]
        difference = math.fsum(np.concatenate(terms).tolist())
        spread = math.fsum(np.abs(np.concatenate(terms)).tolist())
        return (max(difference, 0.0) + 4.0 * UNIT * spread) * _UP + 2.0 * float(
            self.slip.max()
        )

    def granted(self) -> float:
        # Smallest eigenvalue of Q that the ridge grants; rounding of K may cost some.
        return self.ridge - len(self.K) * _KERNEL_ERROR * (self.largest - self.ridge)

    def loose(self, ball: float, sphere: float) -> BoolArray:
        # Samples at a bound that may be off it at the optimum, if that is within `ball`
        # in the norm of Q and within `sphere`.
        value = self.high + self.low
        safe = self.margin & (value > sphere) & (self.box.C - value > sphere)
        reach = math.inf
        if safe.any():
            reach = 2.0 * math.sqrt(self.largest) * ball + float(self.slip.max())
            reach = (reach + float(np.abs(self.h[safe]).min())) * _UP
        below, above = self.h <= reach, self.h >= -reach
        free: BoolArray = (self.reserve & below) | (self.bounded & above)
        return free

    def tied(self, sphere: float) -> bool:
        # Whether a margin coefficient may be at a bound at the optimum.
        value = (self.high + self.low)[self.margin]
        reach = sphere + self.moved
        return bool((value <= reach).any() or (self.box.C - value <= reach).any())


def _certify(point: _Point) -> Certificate:
    residual = point.residual()
    norm = math.sqrt(math.fsum((residual**2).tolist())) * _UP
    least = point.granted()
    loose = np.ones(len(residual), dtype=np.bool_)
    for _ in range(2):
        ball, sphere = _radii(norm, least)
        loose = point.loose(ball, sphere)
        among = np.flatnonzero(loose | point.margin)
        least = max(least, _proved(point.K, point.ridge, among))
    ball, sphere = _radii(norm, least)
    gap = point.gap()
    shift = point.moved * math.sqrt(point.largest)
    return Certificate(
        kkt_residual=float(residual.max()),
        duality_gap=gap,
        bound=(math.sqrt(gap) + shift) * _UP,
        sharp_bound=(ball + shift) * _UP,
        coef_bound=(sphere + point.moved) * _UP,
        tied=bool(loose.any()) or point.tied(sphere),
    )


def _radii(norm: float, least: float) -> tuple[float, float]:
    if least <= 0.0:
        return math.inf, math.inf
    return norm / math.sqrt(least) * _UP, norm / least * _UP


def _proved(K: FloatArray, ridge: float, among: IntArray) -> float:
    # A lower bound on the smallest eigenvalue of Q on some samples: found by inverse
    # iteration, proved by the factorisation of a shifted matrix.
    s = len(among)
    Q = np.asfortranarray(K[np.ix_(among, among)])
    Q[np.diag_indices(s)] += ridge
    factor, failed = lapack.dpotrf(Q, lower=1)
    if failed or not s:
        return 0.0
    v = 1.0 / (1.0 + np.arange(s))
    for _ in range(4):
        v, _info = lapack.dpotrs(factor, v / np.linalg.norm(v), lower=1)
    estimate = 1.0 / float(np.linalg.norm(v))
    error = 4.0 * (s + 4.0) * UNIT * float(Q.trace())
    for share in (0.9, 0.5, 0.1):
        shifted = Q.copy(order="F")
        shifted[np.diag_indices(s)] -= share * estimate
        if not lapack.dpotrf(shifted, lower=1)[1]:
            return max(share * estimate - error, 0.0)
    return 0.0
