"""The optimum of a changing set of rows: which way it is brought up to date.

A walk along the path when few rows come or go, a fresh solve from where things stand
when many do, when the walk does not reach its end, or when the ridge is so small that
the way could show in the result. The numbers are the same each time.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from forgetmem.arrays import FloatArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.active_set import descend, solve
from forgetmem.svm.kernel import Kernel
from forgetmem.svm.moves import Walk, lower_rows, raise_row
from forgetmem.svm.partition import Box, Role, Statuses
from forgetmem.svm.problem import Optimum, Problem
from forgetmem.svm.samples import Samples


class Maintained:
    """Rows and their optimum.

    Parameters
    ----------
    kernel : Kernel
    gamma : float
    ridge : float
    box : Box
    X : ndarray of shape (n_samples, n_features), float64, C-contiguous
    start : ndarray of shape (n_samples,), float64, optional
        Coefficients to start from.

    Attributes
    ----------
    samples : Samples
    optimum : Optimum or None
        None in the warm-up.
    rescues : int
        Number of changes that the active set had to finish.
    """

    def __init__(
        self,
        kernel: Kernel,
        gamma: float,
        ridge: float,
        box: Box,
        X: FloatArray,
        start: FloatArray | None = None,
    ) -> None:
        self._box = box
        self._settings = kernel, gamma, ridge
        self.samples = Samples(kernel, gamma, ridge, X)
        self.optimum: Optimum | None = None
        self.rescues = 0
        if box.feasible(len(X)):
            self._solve(start)

    @property
    def alpha(self) -> FloatArray:
        """Coefficient of each sample."""
        slots = self.samples.slots
        if self.optimum is None:
            return np.full(len(slots), 1.0 / max(len(slots), 1))
        return self.optimum.alpha[slots]

    @property
    def rho(self) -> float:
        """``Q alpha`` on the margin; by convention 1/n in the warm-up."""
        if self.optimum is None:
            return 1.0 / max(len(self.samples.slots), 1)
        return math.ldexp(self.optimum.rho, self.samples.scale)

    @property
    def partition(self) -> Statuses:
        """`Role` of each sample; all are on the margin in the warm-up."""
        slots = self.samples.slots
        if self.optimum is None:
            return np.full(len(slots), Role.MARGIN, dtype=np.int8)
        return self.optimum.status[slots]

    def learn(self, X: FloatArray) -> None:
        """Take in rows.

        Parameters
        ----------
        X : ndarray of shape (n_new, n_features), float64, C-contiguous
        """
        optimum = self._walkable(len(X), len(self.samples.slots) + len(X))
        end = Walk.STAYED
        for x in X:
            slot = self.samples.put(x)
            if self._problem().doubtful:
                optimum = None
            if optimum is not None and end is not Walk.STUCK:
                optimum.enlarge(self.samples.capacity)
                end = max(end, raise_row(self._problem(), optimum, slot))
        self._finish(optimum, end)

    def unlearn(self, places: list[int]) -> None:
        """Remove rows.

        Parameters
        ----------
        places : list of int
            Distinct and valid, in the order in which the rows were learned.
        """
        gone = self.samples.withdraw(places)
        optimum = self._walkable(len(gone), len(self.samples.slots))
        end = Walk.STAYED
        if optimum is not None:
            end = lower_rows(self._problem(), optimum, gone)
        self.samples.wipe(gone)
        self._finish(optimum, end)

    def _problem(self) -> Problem:
        samples = self.samples
        return Problem(
            samples.K,
            samples.slots,
            samples.end,
            samples.ridge,
            self._box,
            samples.largest,
        )

    def _walkable(self, n_changed: int, n_after: int) -> Optimum | None:
        # The optimum, if a path should lead from it to the next one.
        few = n_changed <= max(8, n_after // 4)
        if self.optimum is None or not few or not self._box.feasible(n_after):
            return None
        problem = self._problem()
        own = self.optimum.ridge == problem.ridge
        return self.optimum if own and not problem.doubtful else None

    def _finish(self, optimum: Optimum | None, end: Walk) -> None:
        if not self._box.feasible(len(self.samples.slots)):
            self.optimum = None
            return
        if not self.samples.balanced:
            self.samples = Samples(*self._settings, self.samples.rows)
            optimum = None
        if optimum is None:
            self._solve(None)
            return
        if end is Walk.REACHED:
            try:
                self.rescues += descend(self._problem(), optimum) > 0
            except IllConditionedMarginError:
                end = Walk.STUCK
        if end is Walk.STUCK:
            self.rescues += 1
            optimum.enlarge(self.samples.capacity)
            self._solve(optimum.alpha)

    def _solve(self, start: FloatArray | None) -> None:
        problem = self._problem()
        if not problem.doubtful:
            self.optimum = solve(problem, start)
            return
        # No optimum may be singled out by the data alone: the order of the rows and
        # the way must not decide, so the rows are sorted and solved for afresh.
        slots = self.samples.sorted_slots()
        K = np.ascontiguousarray(problem.K[np.ix_(slots, slots)])
        rows = np.arange(len(slots))
        optimum = solve(replace(problem, K=K, rows=rows, end=len(rows)))
        self.optimum = optimum.scatter(slots, self.samples.capacity)
