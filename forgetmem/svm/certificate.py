"""How far stored coefficients can be from the optimum, from K and them alone.

Nothing here asks how the coefficients were found, and no inverse of theirs is used.
The residuals are summed in threefold precision, and every bound is rounded upwards, so
it holds for the float64 numbers that are stored.

Let g = Q a for a feasible a, rho any number, and r_i = g_i - rho on the margin,
min(g_i - rho, 0) on reserve and max(g_i - rho, 0) on bounded samples. For the optimum
a* and D = a - a*, optimality gives::

    D'QD <= D'g = D'(g - rho 1) <= D'r

because the sums are equal, D_i <= 0 on reserve and D_i >= 0 on bounded samples. So
``|D|_Q <= sqrt(r' Q^-1 r) <= |r| / sqrt(m)`` and ``|D| <= |D|_Q / sqrt(m)``, all on the
samples where D can differ from 0, and m being the smallest eigenvalue of Q there. It is
at least the ridge; and once a sample's condition is known to hold strictly at the
optimum too, its D is 0, and a Cholesky factorisation of a shifted matrix can prove a
larger m for the others [1]_. A score changes by at most ``|D|_Q`` times the length of
the query in feature space, which is 1 for the RBF kernel.

References
----------
.. [1] Rump, "Verification of positive definiteness", BIT 46 (2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.svm.certify_small import certify_runs
from forgetmem.svm.extended import UNIT, accumulate
from forgetmem.svm.partition import Box

#: Makes up for the rounding of the last few float64 operations.
_UP = 1.0 + 2.0**-40
#: Relative error of a kernel value, generously: of the sum of squares and of exp.
_KERNEL_ERROR = 64.0 * UNIT


#: Problems of up to so many samples are certified by `certify_runs`.
SMALL = 96


@dataclass(frozen=True)
class Certificate:
    """Bounds on the distance of stored coefficients from the true optimum.

    The optimum is that of the kernel matrix as it is in float64, and scores are sums of
    kernel values in float64: the rounding of the kernel itself is no part of it.

    Parameters
    ----------
    kkt_residual : float
        Largest violation of an optimality condition by any sample.
    duality_gap : float
        Upper bound on the excess of the objective ``a' (K + ridge I) a / 2``, up to the
        rounding of the sum of the coefficients.
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

    def scaled(self, scale: int) -> Certificate:
        """Return the certificate of the problem whose Q is ``2**scale`` times as large.

        Parameters
        ----------
        scale : int
            Even.

        Returns
        -------
        Certificate
        """
        return replace(
            self,
            kkt_residual=_times(self.kkt_residual, scale),
            duality_gap=_times(self.duality_gap, scale),
            bound=_times(self.bound, scale // 2),
            sharp_bound=_times(self.sharp_bound, scale // 2),
        )


def _times(value: float, exponent: int) -> float:
    # value * 2**exponent, rounded up where it would be lost.
    return math.nextafter(math.ldexp(value, exponent), math.inf) if exponent else value


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
    if len(K) <= SMALL:
        return certify_many(K.reshape(-1), np.array([0, len(K)]), alpha, ridge, box)[0]
    return _certify(_Point(K, alpha, ridge, box))


def certify_many(
    values: FloatArray, starts: IntArray, alphas: FloatArray, ridge: float, box: Box
) -> list[Certificate]:
    """Bound the distances of many coefficients from their optima, in one pass.

    Parameters
    ----------
    values : ndarray of float64
        Kernel matrices of at most `SMALL` samples, one after the other; each has enough
        samples for the box.
    starts : ndarray of int64
        The first coefficient of each, and the end of the last.
    alphas : ndarray of float64
        The coefficients.
    ridge : float
    box : Box

    Returns
    -------
    list of Certificate
        The same as `certify` finds for each.
    """
    whole = int(1 / box.exact)
    lowest = [box.C] * min(whole, SMALL)
    if whole < SMALL:
        lowest.append(float(box.rest(whole)))
    found = np.empty((len(starts) - 1, 6))
    second = float(box.parts[1])
    certify_runs(values, starts, alphas, ridge, box.C, second, np.array(lowest), found)
    return [
        Certificate(residual, gap, bound, sharp, coef, tied > 0.0)
        for residual, gap, bound, sharp, coef, tied in found.tolist()
    ]


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
        # those inside the box: a bound that is only rounded must not be left.
        inside = (self.high > 0.0) & (self.high < min(self.box.C, 1.0))
        if not self._spread(inside):
            self._spread(np.ones(len(self.high), dtype=np.bool_))

    def _spread(self, among: BoolArray) -> bool:
        missing, value = self._missing(), self.high + self.low
        room = value if missing < 0.0 else min(self.box.C, 1.0) - value
        room = np.where(among, room, 0.0)
        total = float(room.sum())
        if missing != 0.0 and total > 0.0:
            self.low += missing * (room / max(total, abs(missing)))
        return total >= abs(missing)

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
        # What each sample violates its condition by, up to `slip`.
        r = np.where(self.margin, self.h, 0.0)
        r = np.where(self.reserve, np.minimum(self.h, 0.0), r)
        return np.where(self.bounded, np.maximum(self.h, 0.0), r)

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


class _Block:
    # Q on the samples at which the optimum can differ, and its factor.

    def __init__(self, point: _Point, among: IntArray) -> None:
        self.size = len(among)
        self.largest = point.largest
        self.Q = np.asfortranarray(point.K[np.ix_(among, among)])
        self.Q[np.diag_indices(self.size)] += point.ridge
        self.factor, failed = lapack.dpotrf(self.Q, lower=1)
        self.failed = bool(failed)

    def divide(self, r: FloatArray) -> FloatArray:
        return np.asarray(lapack.dpotrs(self.factor, r, lower=1)[0], dtype=np.float64)

    def proved(self) -> float:
        # A lower bound on the smallest eigenvalue: found by inverse iteration, proved
        # by the factorisation of a shifted matrix.
        if self.failed:
            return 0.0
        v = 1.0 / (1.0 + np.arange(self.size))
        for _ in range(4):
            v = self.divide(v / np.linalg.norm(v))
        estimate = 1.0 / float(np.linalg.norm(v))
        error = 4.0 * (self.size + 4.0) * UNIT * float(self.Q.trace())
        for share in (0.9, 0.5, 0.1):
            shifted = self.Q.copy(order="F")
            shifted[np.diag_indices(self.size)] -= share * estimate
            if not lapack.dpotrf(shifted, lower=1)[1]:
                return max(share * estimate - error, 0.0)
        return 0.0

    def length(self, r: FloatArray, least: float) -> float:
        # An upper bound on the square root of r' Q^-1 r: with any z it is at most
        # r'z + |r - Qz| |r| / least.
        if self.failed:
            return math.inf
        z = self.divide(r)
        rounding = 2.0 * (self.size + 4.0) * UNIT * self.largest
        off = _norm(r - self.Q @ z) + math.sqrt(self.size) * rounding * np.abs(z).sum()
        terms = r * z
        value = math.fsum(terms.tolist()) + 4.0 * UNIT * float(np.abs(terms).sum())
        return math.sqrt(max(value + float(off) * _norm(r) / least, 0.0)) * _UP


def _norm(v: FloatArray) -> float:
    return math.sqrt(math.fsum((v**2).tolist())) * _UP


def _certify(point: _Point) -> Certificate:
    r = point.residual()
    norm = _norm(np.abs(r) + point.slip)
    least = point.granted()
    ball = norm / math.sqrt(least) * _UP if least > 0.0 else math.inf
    sphere = norm / least * _UP if least > 0.0 else math.inf
    for _ in range(2):
        loose = point.loose(ball, sphere)
        among = np.flatnonzero(loose | point.margin)
        block = _Block(point, among)
        least = max(least, block.proved())
        if least > 0.0:
            root = math.sqrt(least)
            slip = _norm(point.slip[among])
            ball = min(ball, norm / root, block.length(r[among], least) + slip / root)
            sphere = min(sphere, ball / root)
    gap = point.gap()
    shift = point.moved * math.sqrt(point.largest)
    return Certificate(
        kkt_residual=float((np.abs(r) + point.slip).max()) * _UP,
        duality_gap=gap,
        bound=(math.sqrt(gap) + shift) * _UP,
        sharp_bound=(ball + shift) * _UP,
        coef_bound=(sphere + point.moved) * _UP,
        tied=bool(loose.any()) or point.tied(sphere),
    )
