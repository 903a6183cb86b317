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
from forgetmem.svm.extended import UNIT, multiply
from forgetmem.svm.margin_inverse import attach, grow, shrink
from forgetmem.svm.partition import BOUNDED, FREE, MARGIN, RESERVE, Role, Statuses
from forgetmem.svm.pivoting import scores
from forgetmem.svm.problem import Optimum, Problem


@compiled
def _nearest(status: Statuses, h: FloatArray, role: np.int8, n_slots: int) -> int:
    # The row of this set that is first to enter an empty margin set.
    best = -1
    for i in range(n_slots):
        if status[i] == role and (best < 0 or abs(h[i]) < abs(h[best])):
            best = i
    return best


@compiled
def _response(
    R: FloatArray, slots: IntArray, size: int, total: float, push: FloatArray
) -> FloatArray:
    # Speeds of [-rho; alpha_margin]; with room for a larger margin set.
    q = np.empty(size + 1)
    q[0] = -total
    for p in range(size):
        q[p + 1] = -push[slots[p]]
    answer = np.zeros(len(slots) + 1)
    multiply(R, q, answer[: size + 1])
    return answer


@compiled
def walk(
    K: FloatArray,
    ridge: float,
    C: float,
    largest: float,
    status: Statuses,
    alpha: FloatArray,
    h: FloatArray,
    rho: float,
    n_slots: int,
    R: FloatArray,
    B: FloatArray,
    slots: IntArray,
    size: int,
    driven: IntArray,
    learning: bool,
    limit: int,
) -> tuple[bool, int, float, float, int]:
    """Raise the one driven coefficient, or lower all driven ones to 0.

    Rows to learn have no status (`FREE`); rows to forget lose theirs here. `h` holds
    ``Q alpha - rho`` and is kept up to date, as are `R` and `B` with their `slots`,
    `alpha` and `status`. Returns whether the end was reached, the size of the margin
    set, rho, a bound on the rounding errors that `h` took up and the number of
    breakpoints; without the end, `alpha` and `status` are where the walk stands.
    """
    n_driven = len(driven)
    direction = np.empty(n_driven)
    total = 0.0
    force = 0.0
    for d in range(n_driven):
        direction[d] = 1.0 if learning else -alpha[driven[d]]
        total += direction[d]
        force += abs(direction[d])
    push = np.zeros(n_slots)
    scores(K, driven, direction, n_slots, push)
    new = driven[0]
    answer = np.zeros(len(slots) + 1)
    known = False
    for d in range(n_driven):
        i = driven[d]
        if status[i] == MARGIN:
            place = 0
            while slots[place] != i:
                place += 1
            if n_driven == 1 and size > 1:
                # The row's own column holds the answer to its being driven.
                known = True
                factor = direction[d] / R[place + 1, place + 1]
                for p in range(size + 1):
                    answer[p] = factor * R[place + 1, p]
                answer[place + 1] = answer[size]
            if not shrink(R, B, slots, size, place):
                return False, size, rho, 0.0, 0
            size -= 1
        status[i] = -1
    left = 1.0
    idle = 0
    blur = 0.0
    dh = np.empty(n_slots)
    for turn in range(limit):
        if size == 0:
            # rho is free to move until a row can answer for the driven ones.
            i = _nearest(status, h, BOUNDED if learning else RESERVE, n_slots)
            if learning and (i < 0 or h[new] > h[i]):
                i = new
            if i < 0:
                return False, size, rho, blur, turn
            rho += h[i]
            h[:n_slots] -= h[i]
            blur += 4.0 * UNIT * largest
            if i == new and learning and alpha[new] == 0.0:
                status[new] = RESERVE
                return True, 0, rho, blur, turn
            grow(R, B, K, ridge, slots, 0, i)
            status[i] = MARGIN
            size = 1
            known = False
            if i == new and learning:
                return True, 1, rho, blur, turn
        if not known:
            answer = _response(R, slots, size, total, push)
            known = True
        speed = 0.0
        for p in range(size):
            speed += abs(answer[p + 1])
        if not speed + abs(answer[0]) < np.inf:
            return False, size, rho, blur, turn
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
            rate = answer[p + 1]
            if rate < 0.0 and alpha[i] < -t * rate:
                t = max(-alpha[i] / rate, 0.0)
                event = i
            elif rate > 0.0 and C - alpha[i] < t * rate:
                t = max((C - alpha[i]) / rate, 0.0)
                event = i
        for i in range(n_slots):
            if (status[i] == RESERVE and dh[i] < 0.0 and h[i] < -t * dh[i]) or (
                status[i] == BOUNDED and dh[i] > 0.0 and -h[i] < t * dh[i]
            ):
                t = max(-h[i] / dh[i], 0.0)
                event = i
        if not t < np.inf:
            return False, size, rho, blur, turn

        for p in range(size):
            alpha[slots[p]] += t * answer[p + 1]
        for d in range(n_driven):
            alpha[driven[d]] += t * direction[d]
        for i in range(n_slots):
            h[i] += t * dh[i]
        rho -= t * answer[0]
        left -= t
        blur += (
            2.0
            * UNIT
            * (
                (size + n_driven + 8) * t * (largest * (speed + force) + abs(answer[0]))
                + 4.0 * largest
            )
        )

        if event < 0:
            for d in range(n_driven):
                alpha[driven[d]] = C if learning else 0.0
            if learning:
                status[new] = BOUNDED
            return True, size, rho, blur, turn
        idle = idle + 1 if t == 0.0 else 0
        if idle > 16:
            return False, size, rho, blur, turn
        if learning and event == new:
            pivot = dh[new]
            if turn == 0 and pivot > 2.0**-20:
                # Nothing changed on the way: the answer is the column to be attached.
                line = K[new]
                for p in range(size):
                    B[size, p] = B[p, size] = line[slots[p]]
                B[size, size] = line[new]
                slots[size] = new
                attach(R, size, answer[: size + 1], pivot)
            elif not grow(R, B, K, ridge, slots, size, new) > 0.25 * ridge:
                return False, size, rho, blur, turn
            h[new] = 0.0
            status[new] = MARGIN
            return True, size + 1, rho, blur, turn
        if status[event] == MARGIN:
            place = 0
            while slots[place] != event:
                place += 1
            up = answer[place + 1] > 0.0
            if size > 1:
                factor = answer[place + 1] / R[place + 1, place + 1]
                for p in range(size + 1):
                    answer[p] -= factor * R[place + 1, p]
                answer[place + 1] = answer[size]
            if not shrink(R, B, slots, size, place):
                return False, size, rho, blur, turn
            size -= 1
            alpha[event] = C if up else 0.0
            status[event] = BOUNDED if up else RESERVE
        else:
            pivot = grow(R, B, K, ridge, slots, size, event)
            if not pivot > 0.25 * ridge:
                return False, size, rho, blur, turn
            # The new column of R is its column of sensitivities over the pivot.
            size += 1
            for p in range(size):
                answer[p] -= dh[event] * R[size, p]
            answer[size] = -dh[event] / pivot
            status[event] = MARGIN
        h[event] = 0.0
    return False, size, rho, blur, limit


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
        4 * problem.end + 64,
    )
    optimum.blur += blur
    return Walk.REACHED if done else Walk.STUCK
