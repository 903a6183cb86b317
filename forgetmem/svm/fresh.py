"""A fit of many rows from scratch, without the inverse of its large margin system."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.extended import copy_block
from forgetmem.svm.margin_factor import (
    MarginFactor,
    MarginGradients,
    MarginSystem,
)
from forgetmem.svm.partition import Role
from forgetmem.svm.problem import Optimum, Problem
from forgetmem.svm.refinement import round_off
from forgetmem.svm.settling import slacks_of_all, worst_slack

#: So many factorisations are tried before the usual way is taken.
_TURNS = 4
#: From so many margin samples on, conjugate gradients are tried first.
_LARGE = 1024


def settle_by_factor(problem: Problem, optimum: Optimum) -> bool:
    """Find the optimum near a good guess, if nothing turns out to be in doubt.

    Parameters
    ----------
    problem : Problem
    optimum : Optimum
        The guess; becomes the optimum, with the inverse left to be built.

    Returns
    -------
    bool
        Whether it is the optimum, rounded once. If not, it is not even feasible.
    """
    for _ in range(_TURNS):
        margin = optimum.slots(Role.MARGIN)
        try:
            kind = MarginGradients if len(margin) >= _LARGE else MarginFactor
            system = kind(_block(problem.K, margin), problem.ridge)
            if _improve(problem, optimum, system):
                return _round(problem, optimum, system)
        except IllConditionedMarginError:
            return False
    return False


def _block(K: FloatArray, margin: IntArray) -> FloatArray:
    # The kernel matrix of the margin samples; K itself, if they are all.
    if len(margin) == len(K):
        return K
    B = np.empty((len(margin), len(margin)))
    copy_block(K, margin, margin, B)
    return B


def _improve(problem: Problem, optimum: Optimum, system: MarginSystem) -> bool:
    # Solve for this partition; if signs are wrong, exchange the rows. True if none is.
    box, rows, status = problem.box, problem.rows, optimum.status
    margin, bounded = optimum.slots(Role.MARGIN), optimum.slots(Role.BOUNDED)
    right = np.append(
        float(box.rest(len(bounded))),
        -box.C * problem.K[np.ix_(margin, bounded)].sum(axis=1),
    )
    x = system.solve(right)
    optimum.alpha[margin], optimum.rho = x[1:], -float(x[0])
    _find_slacks(problem, optimum)
    h = optimum.slack
    slop = 1e-13 * problem.largest
    enter = (status[rows] == Role.RESERVE) & (h[rows] < -slop)
    enter |= (status[rows] == Role.BOUNDED) & (h[rows] > slop)
    low, high = margin[x[1:] <= 0.0], margin[x[1:] >= box.C]
    status[rows[enter]] = Role.MARGIN
    status[low], optimum.alpha[low] = Role.RESERVE, 0.0
    status[high], optimum.alpha[high] = Role.BOUNDED, box.C
    return not (enter.any() or len(low) or len(high))


def _find_slacks(problem: Problem, optimum: Optimum) -> None:
    optimum.blur = slacks_of_all(
        problem.K,
        problem.ridge,
        problem.box.C,
        problem.largest,
        optimum.status,
        optimum.alpha,
        optimum.rho,
        problem.end,
        optimum.slack,
    )


def _round(problem: Problem, optimum: Optimum, system: MarginSystem) -> bool:
    box = problem.box
    margin, bounded = optimum.slots(Role.MARGIN), optimum.slots(Role.BOUNDED)
    x = np.zeros((len(margin) + 1, 3))
    x[1:, 0], x[0, 0] = optimum.alpha[margin], -optimum.rho
    rest = box.rest_parts(len(bounded))
    error = system.refine(problem.K, margin, bounded, box.parts, rest, x)
    room = np.minimum(x[1:, 0], (box.parts[0] - x[1:, 0]) + (box.parts[1] - x[1:, 1]))
    optimum.alpha[margin], optimum.rho = x[1:, 0], -float(x[0, 0])
    _find_slacks(problem, optimum)
    _, violation = worst_slack(optimum.status, optimum.slack, problem.end)
    out: FloatArray = np.empty(len(x))
    sure = round_off(x, error, out)
    if not sure or violation >= -optimum.blur or (room <= error[1:] + box.tie).any():
        return False
    optimum.alpha[problem.rows] = 0.0
    optimum.alpha[bounded] = box.C
    optimum.alpha[margin], optimum.rho = out[1:], -float(out[0])
    optimum.inverse.defer(margin)
    return True
