"""Take an optimum along while rows come or go: the walks, and how they ended."""

from __future__ import annotations

import enum

import numpy as np

from forgetmem.arrays import IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.extended import UNIT
from forgetmem.svm.partition import FREE, Role
from forgetmem.svm.path import walk
from forgetmem.svm.problem import Optimum, Problem

#: A walk jumps to its end when one breakpoint for so many margin samples is left. In a
#: small margin set each row weighs much, and a breakpoint costs little.
_NEAR = 32


class Walk(enum.IntEnum):
    """How a walk ended.

    `STAYED`: nothing had to move, and the optimum is as it was. `REACHED`: the optimum
    up to the rounding of float64. `STUCK`: a point on the way.
    """

    STAYED = 0
    REACHED = 1
    STUCK = 2


def raise_row(problem: Problem, optimum: Optimum, slot: int) -> Walk:
    """Follow the optimum while the coefficient of a new row is raised from 0.

    Parameters
    ----------
    problem : Problem
        With the new row.
    optimum : Optimum
        That of the other rows; taken along.
    slot : int
        The new row's.

    Returns
    -------
    Walk
    """
    end = problem.end
    h = float(problem.K[slot, :end] @ optimum.alpha[:end]) - optimum.rho
    error = 4.0 * (end + 8) * UNIT * (problem.largest + abs(optimum.rho))
    optimum.slack[slot] = h
    optimum.blur = max(optimum.blur, error)
    if h >= 0.0:
        optimum.status[slot] = Role.RESERVE
        return Walk.STAYED if h > error else Walk.REACHED
    return _walk(problem, optimum, np.array([slot]), learning=True)


def lower_rows(problem: Problem, optimum: Optimum, slots: IntArray) -> Walk:
    """Follow the optimum while the coefficients of some rows are lowered to 0.

    Parameters
    ----------
    problem : Problem
        Without these rows.
    optimum : Optimum
        That with these rows; taken along.
    slots : ndarray of int64
        Theirs.

    Returns
    -------
    Walk
    """
    status = optimum.status
    role = status[slots]
    driven = slots[role > Role.RESERVE]
    status[slots[role == Role.RESERVE]] = FREE
    if not len(driven):
        return Walk.STAYED
    if len(driven) > 8 and np.sum(role == Role.MARGIN) > optimum.inverse.size // 8:
        optimum.inverse.worn = True
        status[slots] = FREE
    end = _walk(problem, optimum, driven, learning=False)
    status[slots] = FREE
    optimum.alpha[slots] = 0.0
    return end


def _walk(
    problem: Problem, optimum: Optimum, driven: IntArray, *, learning: bool
) -> Walk:
    inverse = optimum.inverse
    if inverse.worn:
        try:
            margin = optimum.slots(Role.MARGIN)
            inverse.rebuild(problem.K, problem.ridge, margin)
        except IllConditionedMarginError:
            return Walk.STUCK
    done, inverse.size, optimum.rho, blur, _ = walk(
        problem.K,
        problem.ridge,
        problem.box.C,
        problem.largest,
        optimum.status,
        optimum.alpha,
        optimum.slack,
        optimum.rho,
        problem.end,
        inverse.R,
        inverse.B,
        inverse.slots,
        inverse.size,
        driven,
        learning,
        inverse.size // _NEAR,
        4 * problem.end + 64,
    )
    optimum.blur += blur
    return Walk.REACHED if done else Walk.STUCK
