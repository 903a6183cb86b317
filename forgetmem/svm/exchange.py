"""Put right the few rows whose signs are wrong, all in one go.

A walk that follows every breakpoint evaluates the slacks of all rows at each of them.
When only a few rows would change sets on the way to its end, it is cheaper to jump to
the end and to exchange them there: for each, the margin set answers exactly, at the
cost of its column; the slacks follow once for all. The rows that are then wrong, if
any, are exchanged in turn; one by one, when their number no longer falls [1]_.

References
----------
.. [1] Júdice and Pires, "A block principal pivoting algorithm for large-scale strictly
   monotone linear complementarity problems", Comput. Oper. Res. 21 (1994).
"""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.jit import compiled
from forgetmem.svm.extended import UNIT
from forgetmem.svm.margin_inverse import grow, shrink
from forgetmem.svm.partition import BOUNDED, MARGIN, RESERVE, Statuses
from forgetmem.svm.pivoting import scores

#: So often all wrong rows are exchanged although their number does not fall.
_PATIENCE = 3
#: After so many rounds the walk is given up.
_ROUNDS = 100


@compiled
def wrong_rows(
    C: float,
    slop: float,
    status: Statuses,
    alpha: FloatArray,
    h: FloatArray,
    n_slots: int,
) -> IntArray:
    """Find the rows that do not belong into their set."""
    out = np.empty(n_slots, dtype=np.int64)
    count = 0
    for i in range(n_slots):
        if (
            (status[i] == RESERVE and h[i] < -slop)
            or (status[i] == BOUNDED and h[i] > slop)
            or (status[i] == MARGIN and not 0.0 < alpha[i] < C)
        ):
            out[count] = i
            count += 1
    return out[:count]


@compiled
def _release(
    C: float,
    status: Statuses,
    alpha: FloatArray,
    change: FloatArray,
    R: FloatArray,
    B: FloatArray,
    slots: IntArray,
    size: int,
    slot: int,
) -> tuple[bool, float]:
    # Move a margin coefficient to the bound it has passed; returns the change of -rho.
    if size == 1:
        return False, 0.0
    place = 0
    while slots[place] != slot:
        place += 1
    value = alpha[slot] + change[slot]
    up = value > 0.5 * C
    factor = ((C if up else 0.0) - value) / R[place + 1, place + 1]
    column = R[place + 1]
    for p in range(size):
        change[slots[p]] += factor * column[p + 1]
    shift = factor * column[0]
    status[slot] = BOUNDED if up else RESERVE
    return shrink(R, B, slots, size, place), shift


@compiled
def _admit(
    K: FloatArray,
    ridge: float,
    h: float,
    change: FloatArray,
    R: FloatArray,
    B: FloatArray,
    slots: IntArray,
    size: int,
    slot: int,
) -> tuple[bool, float]:
    # Take a row with slack h into the margin set; returns the change of -rho.
    if not grow(R, B, K, ridge, slots, size, slot) > 0.25 * ridge:
        return False, 0.0
    column = R[size + 1]
    for p in range(size + 1):
        change[slots[p]] -= h * column[p + 1]
    return True, -h * column[0]


@compiled
def exchange(
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
) -> tuple[bool, int, float, float]:
    """Exchange rows until each is in its set.

    `h` and `alpha` hold the solution of the present partition, and will that of the
    last. Returns whether all rows are in their sets, the size of the margin set, rho
    and a bound on the errors that `h` took up.
    """
    slop = 64.0 * UNIT * (largest + abs(rho))
    fewest = n_slots + 1
    patience = 0
    blur = 0.0
    for _ in range(_ROUNDS):
        wrong = wrong_rows(C, slop, status, alpha, h, n_slots)
        if len(wrong) == 0:
            return True, size, rho, blur
        if len(wrong) < fewest:
            fewest = len(wrong)
            patience = _PATIENCE
        elif patience > 0:
            patience -= 1
        else:
            wrong = wrong[:1]
        change = np.zeros(n_slots)
        touched = np.empty(size + len(wrong), dtype=np.int64)
        touched[:size] = slots[:size]
        count = size
        shift = 0.0
        for i in wrong:
            if status[i] == MARGIN:
                done, by = _release(C, status, alpha, change, R, B, slots, size, i)
                size -= 1
            else:
                now = h[i] + shift
                line = K[i]
                for p in range(count):
                    now += line[touched[p]] * change[touched[p]]
                done, by = _admit(K, ridge, now, change, R, B, slots, size, i)
                status[i] = MARGIN
                touched[count] = i
                count += 1
                size += 1
            if not done:
                return False, size, rho, blur
            shift += by
        values = np.empty(count)
        weight = abs(shift)
        for p in range(count):
            values[p] = change[touched[p]]
            weight += largest * abs(values[p])
        for i in range(n_slots):
            h[i] += shift
        scores(K, touched[:count], values, n_slots, h)
        for i in touched[:count]:
            alpha[i] += change[i]
            h[i] += ridge * change[i]
            if status[i] != MARGIN:
                bound = C if status[i] == BOUNDED else 0.0
                blur += 2.0 * largest * abs(alpha[i] - bound)
                alpha[i] = bound
        rho -= shift
        blur += 2.0 * UNIT * ((count + 8) * weight + 4.0 * largest)
    return False, size, rho, blur
