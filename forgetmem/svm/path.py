"""Follow the optimum from breakpoint to breakpoint while some coefficients are driven.

To learn a row, its coefficient is raised from 0; to forget rows, theirs are lowered to
0 together. The margin set answers so that the conditions of all other rows go on
holding; at a breakpoint one row changes sets. The last few breakpoints are taken in one
jump (`exchange`).

References
----------
.. [1] Cauwenberghs and Poggio, "Incremental and Decremental Support Vector Machine
   Learning", NIPS 2000.
.. [2] Karasuyama and Takeuchi, "Multiple incremental decremental learning of support
   vector machines", NIPS 2009: several coefficients driven at once.
"""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.jit import compiled
from forgetmem.svm.exchange import exchange
from forgetmem.svm.extended import UNIT, multiply
from forgetmem.svm.margin_inverse import attach, grow, shrink
from forgetmem.svm.partition import BOUNDED, FREE, MARGIN, RESERVE, Statuses
from forgetmem.svm.pivoting import scores


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
def _withdraw(
    status: Statuses,
    R: FloatArray,
    B: FloatArray,
    slots: IntArray,
    size: int,
    driven: IntArray,
    direction: FloatArray,
    answer: FloatArray,
) -> tuple[bool, int, bool]:
    # Take the driven rows out of the margin set. A single one's own column of the
    # inverse holds the answer to its being driven.
    known = False
    for d in range(len(driven)):
        i = driven[d]
        if status[i] == MARGIN:
            place = 0
            while slots[place] != i:
                place += 1
            if len(driven) == 1 and size > 1:
                known = True
                factor = direction[d] / R[place + 1, place + 1]
                for p in range(size + 1):
                    answer[p] = factor * R[place + 1, p]
                answer[place + 1] = answer[size]
            if not shrink(R, B, slots, size, place):
                return False, size, known
            size -= 1
        status[i] = FREE
    return True, size, known


@compiled
def _change_sets(
    K: FloatArray,
    ridge: float,
    C: float,
    largest: float,
    status: Statuses,
    alpha: FloatArray,
    h: FloatArray,
    dh: FloatArray,
    R: FloatArray,
    B: FloatArray,
    slots: IntArray,
    size: int,
    event: int,
    answer: FloatArray,
) -> tuple[bool, int, float]:
    # A row meets its breakpoint: it changes sets, and the answer changes with it. Also
    # returns by how much `h` is further off when a row leaves the margin: its slack is
    # taken for 0, and its coefficient for the bound.
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
            return False, size, 0.0
        bound = C if up else 0.0
        lost = abs(h[event]) + 2.0 * largest * abs(alpha[event] - bound)
        h[event] = 0.0
        alpha[event] = bound
        status[event] = BOUNDED if up else RESERVE
        return True, size - 1, lost
    pivot = grow(R, B, K, ridge, slots, size, event)
    if not pivot > 0.25 * ridge:
        return False, size, 0.0
    # The new column of R is that of the sensitivities over the pivot.
    for p in range(size + 1):
        answer[p] -= dh[event] * R[size + 1, p]
    answer[size + 1] = -dh[event] / pivot
    status[event] = MARGIN
    return True, size + 1, 0.0


@compiled
def _first_event(
    C: float,
    status: Statuses,
    alpha: FloatArray,
    h: FloatArray,
    dh: FloatArray,
    n_slots: int,
    slots: IntArray,
    size: int,
    answer: FloatArray,
    end: float,
) -> tuple[float, int, int]:
    # The step to the first breakpoint before `end`, its row, and how many rows would
    # have met theirs by then.
    t = end
    event = -1
    count = 0
    for p in range(size):
        i = slots[p]
        rate = answer[p + 1]
        room = alpha[i] if rate < 0.0 else C - alpha[i]
        count += room < end * abs(rate)
        if room < t * abs(rate):
            t = max(room / abs(rate), 0.0)
            event = i
    for i in range(n_slots):
        if (status[i] == RESERVE and dh[i] < 0.0) or (
            status[i] == BOUNDED and dh[i] > 0.0
        ):
            room = h[i] if dh[i] < 0.0 else -h[i]
            count += room < end * abs(dh[i])
            if room < t * abs(dh[i]):
                t = max(room / abs(dh[i]), 0.0)
                event = i
    return t, event, count


@compiled
def _join(
    K: FloatArray,
    ridge: float,
    R: FloatArray,
    B: FloatArray,
    slots: IntArray,
    size: int,
    new: int,
    answer: FloatArray,
    pivot: float,
    unchanged: bool,
) -> bool:
    # The learned row joins the margin set. If nothing changed on the way, the answer
    # to its being driven is the column to be attached.
    if not unchanged or pivot <= 2.0**-20:
        return grow(R, B, K, ridge, slots, size, new) > 0.25 * ridge
    line = K[new]
    for p in range(size):
        B[size, p] = B[p, size] = line[slots[p]]
    B[size, size] = line[new]
    slots[size] = new
    attach(R, size, answer[: size + 1], pivot)
    return True


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
    near: int,
    limit: int,
) -> tuple[bool, int, float, float, int]:
    """Raise the one driven coefficient, or lower all driven ones to 0.

    Rows to learn have no status (`FREE`); rows to forget lose theirs here. `h` holds
    ``Q alpha - rho``, on the margin too, and is kept up to date, as are `R` and `B`
    with their `slots`, `alpha` and `status`. Once at most `near` breakpoints are left,
    the walk jumps to its end and exchanges their rows. Returns whether the end was
    reached, the size of the margin set, rho, a bound on the errors that `h` took up and
    the number of breakpoints; without the end, `alpha` and `status` are where the walk
    stands.
    """
    direction = np.ones(len(driven)) if learning else -alpha[driven]
    total = direction.sum()
    force = np.abs(direction).sum()
    push = np.zeros(n_slots)
    scores(K, driven, direction, n_slots, push)
    new = driven[0] if learning else -1
    answer = np.zeros(len(slots) + 1)
    done, size, known = _withdraw(status, R, B, slots, size, driven, direction, answer)
    left = 1.0
    idle = 0
    blur = 0.0
    dh = np.empty(n_slots)
    turn = 0
    while done and turn < limit and idle <= 16:
        if size == 0:
            # rho is free to move until a row can answer for the driven ones.
            i = _nearest(status, h, BOUNDED if learning else RESERVE, n_slots)
            if learning and (i < 0 or h[new] > h[i]):
                i = new
            if i < 0:
                break
            rho += h[i]
            h[:n_slots] -= h[i]
            blur += 4.0 * UNIT * largest
            if i == new and alpha[new] == 0.0:
                status[new] = RESERVE
                return True, 0, rho, blur, turn
            grow(R, B, K, ridge, slots, 0, i)
            status[i] = MARGIN
            size = 1
            known = False
            if i == new:
                return True, 1, rho, blur, turn
        if not known:
            answer = _response(R, slots, size, total, push)
            known = True
        speed = abs(answer[0])
        for p in range(size):
            speed += largest * abs(answer[p + 1])
        if not speed < np.inf:
            break
        for i in range(n_slots):
            dh[i] = push[i] + answer[0]
        scores(K, slots[:size], answer[1 : size + 1], n_slots, dh)
        for p in range(size):
            dh[slots[p]] += ridge * answer[p + 1]
        end = left
        joins = False
        if learning:
            dh[new] += ridge
            end = C - alpha[new]
            joins = dh[new] > 0.0 and -h[new] < end * dh[new]
            if joins:
                end = max(-h[new] / dh[new], 0.0)
        t, event, count = _first_event(
            C, status, alpha, h, dh, n_slots, slots, size, answer, end
        )
        if not t < np.inf:
            break
        jumps = 0 < count <= near
        if jumps:
            t, event = end, -1
        for i in range(n_slots):
            h[i] += t * dh[i]
        for p in range(size):
            alpha[slots[p]] += t * answer[p + 1]
        for d in range(len(driven)):
            alpha[driven[d]] += t * direction[d]
        rho -= t * answer[0]
        left -= t
        weight = t * (speed + largest * force)
        blur += 2.0 * UNIT * ((size + len(driven) + 8) * weight + 4.0 * largest)
        if event >= 0:
            idle = idle + 1 if t == 0.0 else 0
            done, size, lost = _change_sets(
                K,
                ridge,
                C,
                largest,
                status,
                alpha,
                h,
                dh,
                R,
                B,
                slots,
                size,
                event,
                answer,
            )
            blur += lost
            turn += 1
            continue
        if not learning:
            alpha[driven] = 0.0
        elif joins:
            done = _join(K, ridge, R, B, slots, size, new, answer, dh[new], turn == 0)
            status[new] = MARGIN
            size += 1
        else:
            alpha[new] = C
            status[new] = BOUNDED
        if done and jumps:
            done, size, rho, more = exchange(
                K, ridge, C, largest, status, alpha, h, rho, n_slots, R, B, slots, size
            )
            blur += more
        return done, size, rho, blur, turn
    return False, size, rho, blur, turn
