"""Follow the optimum from breakpoint to breakpoint while some coefficients are driven.

To learn a row, its coefficient is raised from 0; to forget rows, theirs are lowered to
0 together. The margin set answers so that the conditions of all other rows go on
holding; at a breakpoint one row changes sets.

References
----------
.. [1] Cauwenberghs and Poggio, "Incremental and Decremental Support Vector Machine
   Learning", NIPS 2000.
.. [2] Karasuyama and Takeuchi, "Multiple incremental decremental learning of support
   vector machines", NIPS 2009: several coefficients driven at once.
"""

from __future__ import annotations

import enum

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.jit import compiled
from forgetmem.svm.active_set import Optimum, Problem
from forgetmem.svm.extended import UNIT
from forgetmem.svm.margin_inverse import grow, shrink
from forgetmem.svm.partition import FREE, Role, Statuses
from forgetmem.svm.pivoting import scores

_RESERVE, _MARGIN, _BOUNDED = 0, 1, 2


@compiled
def _take_in(
    K: FloatArray, ridge: float, slot: int, R: FloatArray, slots: IntArray, size: int
) -> bool:
    if not grow(R, K, ridge, slots, size, slot) > 0.25 * ridge:
        return False
    slots[size] = slot
    return True


@compiled
def _nearest(status: Statuses, h: FloatArray, role: int, n_slots: int) -> int:
    # The row of this set that is first to enter an empty margin set.
    best = -1
    for i in range(n_slots):
        if status[i] == role and (best < 0 or abs(h[i]) < abs(h[best])):
            best = i
    return best


@compiled
def walk(
    K: FloatArray,
    ridge: float,
    C: float,
    status: Statuses,
    alpha: FloatArray,
    h: FloatArray,
    rho: float,
    n_slots: int,
    R: FloatArray,
    slots: IntArray,
    size: int,
    driven: IntArray,
    learning: bool,
    limit: int,
) -> tuple[bool, int, float, int]:
    """Raise the one driven coefficient, or lower all driven ones to 0.

    Driven rows have no status (`FREE`). `h` holds ``Q alpha - rho`` and is kept up to
    date, as are `R` with its `slots`, `alpha` and `status`. Returns whether the end was
    reached, the size of the margin set, rho and the number of breakpoints; without the
    end, `alpha` and `status` are where the walk stands.
    """
    direction = np.empty(len(driven))
    for d in range(len(driven)):
        direction[d] = 1.0 if learning else -alpha[driven[d]]
    push = np.zeros(n_slots)
    scores(K, driven, direction, n_slots, push)
    total = direction.sum()
    new = driven[0]
    left = 1.0
    idle = 0
    dh = np.empty(n_slots)
    q = np.empty(n_slots + 1)
    answer = np.empty(n_slots + 1)
    for turn in range(limit):
        if size == 0:
            i = _nearest(status, h, _BOUNDED if learning else _RESERVE, n_slots)
            if i < 0 or not _take_in(K, ridge, i, R, slots, size):
                return False, size, rho, turn
            rho += h[i]
            h[:n_slots] -= h[i]
            status[i] = _MARGIN
            size = 1
            if learning and h[new] >= 0.0:
                status[new] = _RESERVE
                return True, size, rho, turn
        q[0] = total
        for p in range(size):
            q[p + 1] = push[slots[p]]
        answer[: size + 1] = 0.0
        for j in range(size + 1):
            value = q[j]
            for i in range(size + 1):
                answer[i] -= R[j, i] * value
        for i in range(n_slots):
            dh[i] = push[i] + answer[0]
        scores(K, slots[:size], answer[1 : size + 1], n_slots, dh)
        if learning:
            dh[new] += ridge

        t = C - alpha[new] if learning else left
        event = -1
        if learning and dh[new] > 0.0 and -h[new] < t * dh[new]:
            t = max(-h[new] / dh[new], 0.0)
            event = new
        for p in range(size):
            i = slots[p]
            speed = answer[p + 1]
            if speed < 0.0 and alpha[i] < -t * speed:
                t = max(-alpha[i] / speed, 0.0)
                event = i
            elif speed > 0.0 and C - alpha[i] < t * speed:
                t = max((C - alpha[i]) / speed, 0.0)
                event = i
        for i in range(n_slots):
            if (status[i] == _RESERVE and dh[i] < 0.0 and h[i] < -t * dh[i]) or (
                status[i] == _BOUNDED and dh[i] > 0.0 and -h[i] < t * dh[i]
            ):
                t = max(-h[i] / dh[i], 0.0)
                event = i

        for p in range(size):
            alpha[slots[p]] += t * answer[p + 1]
        for d in range(len(driven)):
            alpha[driven[d]] += t * direction[d]
        for i in range(n_slots):
            h[i] += t * dh[i]
        rho -= t * answer[0]
        left -= t

        if event < 0:
            for d in range(len(driven)):
                i = driven[d]
                alpha[i] = C if learning else 0.0
                if learning:
                    status[i] = _BOUNDED
            return True, size, rho, turn
        idle = idle + 1 if t == 0.0 else 0
        if not t < np.inf or idle > 16:
            return False, size, rho, turn
        if status[event] == _MARGIN:
            place = 0
            while slots[place] != event:
                place += 1
            up = answer[place + 1] > 0.0
            if not shrink(R, size, place):
                return False, size, rho, turn
            size -= 1
            slots[place] = slots[size]
            alpha[event] = C if up else 0.0
            status[event] = _BOUNDED if up else _RESERVE
            h[event] = 0.0
        else:
            if not _take_in(K, ridge, event, R, slots, size):
                return False, size, rho, turn
            size += 1
            h[event] = 0.0
            status[event] = _MARGIN
            if event == new and learning:
                return True, size, rho, turn
    return False, size, rho, limit


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
    optimum.slack[slot] = h
    if h >= 0.0:
        optimum.status[slot] = Role.RESERVE
        error = 4.0 * (end + 8) * UNIT * (problem.largest + abs(optimum.rho))
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
    role = optimum.status[slots]
    optimum.status[slots] = FREE
    driven = slots[role != Role.RESERVE]
    if not len(driven):
        return Walk.STAYED
    inverse = optimum.inverse
    gone = slots[role == Role.MARGIN]
    few = len(gone) <= max(8, inverse.size // 8)
    if not few or not all(inverse.shrink(int(slot)) for slot in gone):
        inverse.worn = True
    end = _walk(problem, optimum, driven, learning=False)
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
    done, inverse.size, optimum.rho, _ = walk(
        problem.K,
        problem.ridge,
        problem.box.C,
        optimum.status,
        optimum.alpha,
        optimum.slack,
        optimum.rho,
        problem.end,
        inverse.R,
        inverse.slots,
        inverse.size,
        driven,
        learning,
        4 * problem.end + 64,
    )
    return Walk.REACHED if done else Walk.STUCK
