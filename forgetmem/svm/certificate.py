"""How far stored coefficients can be from the optimum, from K and them alone.

Nothing here asks how the coefficients were found, and none of it uses an inverse. The
residuals are summed in twofold precision, and every bound is rounded upwards, so it
holds for the float64 numbers that are stored.

Let g = Q alpha for a feasible alpha, and rho any number. With the residual r_i = g_i -
rho on the margin, min(g_i - rho, 0) on reserve and max(g_i - rho, 0) on bounded
samples, optimality of alpha* gives for D = alpha - alpha*::

    D'QD <= D'g = D'(g - rho 1) <= D'r

because the sums are equal, D_i <= 0 on reserve and D_i >= 0 on bounded samples. So
``|D|_Q <= |r| / sqrt(m)`` and ``|D| <= |r| / m`` with m the smallest eigenvalue of Q on
the samples where D can differ from 0: m >= ridge without looking, or what a Cholesky
factorisation of a shifted matrix proves. A score changes by at most ``|D|_Q`` times the
length of the query in feature space, which is 1 for the RBF kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.svm.extended import UNIT, accumulate
from forgetmem.svm.partition import Box

#: Factors and terms that make up for the rounding of the last few float64 operations.
_UP = 1.0 + 2.0**-40


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
        The same from the residual of the partition; usually near 1e-15.
    coef_bound : float
        No vector of coefficients differs from the optimum by more, in Euclidean norm.
    tied : bool
        Whether some condition holds with equality as far as can be told, so that the
        partition is decided by the rule for ties. The bounds hold all the same.
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

    Notes
    -----
    O(n_samples * support), and O(support**3) for the eigenvalue.
    """
    if not box.feasible(len(K)):
        return _warm_up(alpha)
    point = _Point(K, alpha, ridge, box)
    return point.certificate()


def _warm_up(alpha: FloatArray) -> Certificate:
    # The state is alpha_i = 1/n by definition, not by optimality.
    n = len(alpha)
    away = sum(abs(value - 1.0 / n) for value in alpha.tolist()) + UNIT if n else 0.0
    return Certificate(0.0, 0.0, away * _UP, away * _UP, away * _UP, False)


class _Point:
    # A feasible point next to the stored one: what was cut off or is missing from the
    # sum goes to one inner coefficient, and `moved` remembers how much.

    def __init__(
        self, K: FloatArray, alpha: FloatArray, ridge: float, box: Box
    ) -> None:
        self.K, self.ridge, self.box = K, ridge, box
        self.largest = float(K.diagonal().max()) + ridge
        upper = box.parts[0] if box.C < 1.0 else min(box.C, 1.0)
        self.high = np.clip(alpha, 0.0, upper)
        self.bounded = alpha >= box.C
        self.reserve = alpha <= 0.0
        self.margin = ~(self.bounded | self.reserve)
        low = np.where(self.bounded, box.parts[1], 0.0)
        missing = math.fsum([1.0, *(-self.high), *(-low)])
        clipped = float(np.abs(self.high - alpha).sum() + np.abs(low).sum())
        self.moved = clipped + abs(missing) + 2.0**-106
        self.low = self._balance(low, missing)
        self.support: IntArray = np.flatnonzero((self.high != 0.0) | (self.low != 0.0))
        self.g = self._gradient()
        self.noise = ((len(self.support) + 8) * UNIT) ** 2 * self.largest * 4.0

    def _balance(self, low: FloatArray, missing: float) -> FloatArray:
        # Spread what is missing over the margin, or, without one, over what has room.
        low = low.copy()
        if missing == 0.0:
            return low
        if self.margin.any():
            room = np.where(self.margin, self.high, 0.0)
            if missing > 0.0:
                room = np.where(self.margin, self.box.parts[0] - self.high, 0.0)
        elif missing > 0.0:
            room = np.where(self.bounded, 0.0, self.box.parts[0])
        else:
            room = self.high.copy()
        total = float(room.sum())
        if total > 0.0:
            low += missing * (room / total)
        return low

    def _gradient(self) -> FloatArray:
        # g = Q (high + low) as the nearest float64 of a twofold sum, minus nothing: the
        # two parts are kept so that differences with rho lose nothing.
        x = np.zeros((3, len(self.support)))
        x[0] = self.high[self.support]
        x[1] = self.low[self.support]
        sums = np.zeros((3, len(self.K)))
        accumulate(self.K, self.support, x, 3, sums)
        return sums

    def slack(self, rho: float) -> FloatArray:
        # g - rho, accurate to a few units of the result.
        diagonal = np.zeros((3, len(self.K)))
        accumulate(
            np.vstack([self.high, self.low]),
            np.arange(2),
            np.array([[self.ridge, self.ridge], [0.0, 0.0], [0.0, 0.0]]),
            3,
            diagonal,
        )
        h: FloatArray = self.g[0] - rho
        h += diagonal[0] + (self.g[1] + diagonal[1])
        return h

    def certificate(self) -> Certificate:
        raw = self.slack(0.0)
        if self.margin.any():
            rho = float(np.median(raw[self.margin]))
        else:
            rho = float(raw[self.bounded].max())
        h = self.slack(rho)
        rounding = 4.0 * UNIT * (np.abs(h) + abs(rho) * 2.0**-50) + self.noise
        residual = np.where(self.margin, np.abs(h), 0.0)
        residual = np.where(self.reserve, np.maximum(-h, 0.0), residual)
        residual = np.where(self.bounded, np.maximum(h, 0.0), residual)
        residual = residual + rounding
        norm = math.sqrt(math.fsum((residual**2).tolist())) * _UP
        gap = self._gap(h, rounding)
        shift = self.moved * math.sqrt(self.largest)
        least = self._ridge_bound()
        ball = norm / math.sqrt(least) if least > 0.0 else math.inf
        sphere = norm / least if least > 0.0 else math.inf
        away = math.sqrt(self.largest) * (ball + shift) + ball + sphere * self.ridge
        away = away + float(residual.max())
        loose = self._loose(h, away, sphere)
        better = max(least, self._smallest_eigenvalue(loose | self.margin))
        if better > least:
            ball, sphere = norm / math.sqrt(better), norm / better
        return Certificate(
            kkt_residual=float(residual.max()) * _UP,
            duality_gap=gap,
            bound=(math.sqrt(gap) + shift) * _UP,
            sharp_bound=(ball + shift) * _UP,
            coef_bound=(sphere + self.moved) * _UP,
            tied=bool((loose & ~self.margin).any()) or self._tied_margin(sphere),
        )

    def _loose(
        self, h: FloatArray, away: float, sphere: float
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        # Samples at a bound whose condition does not hold strictly within the radius.
        return (self.reserve & (h <= away)) | (self.bounded & (h >= -away))

    def _tied_margin(self, sphere: float) -> bool:
        inner = self.high[self.margin]
        reach = sphere + self.moved
        return bool((inner <= reach).any() or (self.box.C - inner <= reach).any())

    def _gap(self, h: FloatArray, rounding: FloatArray) -> float:
        # alpha'h - min over feasible beta of beta'h; rho drops out, as both sum to 1.
        own = float(((self.high + self.low) * h).sum())
        order = np.sort(h)
        whole = int(1 / self.box.exact)
        best = float(order[:whole].sum()) * self.box.C
        if whole < len(order):
            best += float(self.box.rest(whole)) * float(order[whole])
        terms = (
            float((self.high * np.abs(h)).sum())
            + float(np.abs(order[: whole + 1]).sum()) * self.box.C
        )
        slip = (len(h) + 8) * 2.0 * UNIT * terms + 2.0 * float(rounding.max())
        return max(own - best, 0.0) * _UP + slip

    def _ridge_bound(self) -> float:
        # Smallest eigenvalue of Q that the ridge grants: the rounding of K's entries
        # may have cost some of it.
        n = len(self.K)
        return self.ridge - n * 64.0 * UNIT * (self.largest - self.ridge)

    def _smallest_eigenvalue(
        self, among: np.ndarray[tuple[int], np.dtype[np.bool_]]
    ) -> float:
        # A shift that provably leaves Q positive definite on some samples [1]_.
        slots = np.flatnonzero(among)
        s = len(slots)
        if not s:
            return 0.0
        Q = self.K[np.ix_(slots, slots)]
        Q.flat[:: s + 1] += self.ridge
        trace = float(Q.trace())
        shift = float(Q.diagonal().min()) / 2
        for _ in range(12):
            try:
                shifted = Q.copy()
                shifted.flat[:: s + 1] -= shift
                np.linalg.cholesky(shifted)
            except np.linalg.LinAlgError:
                shift /= 8.0
                continue
            return shift - 4.0 * (s + 4) * UNIT * trace
        return 0.0
