"""The canonical numbers in one compiled call, if nothing is in doubt.

Given the right partition, a solution near the optimum and the margin inverse, this
finds the exact solution of the partition's system, checks every sign with an error
bound, and rounds once. It gives up at the first doubt; `active_set.descend` resolves
it.
"""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.jit import compiled
from forgetmem.svm.extended import TWOFOLD, UNIT
from forgetmem.svm.partition import BOUNDED, MARGIN, RESERVE, Statuses
from forgetmem.svm.pivoting import members, scores
from forgetmem.svm.refinement import bound_errors, refine, round_off


@compiled
def worst_slack(status: Statuses, h: FloatArray, n_slots: int) -> tuple[int, float]:
    """Find the row outside the margin set that violates its condition most.

    Returns its slot, or -1, and the violation; negative, if all conditions hold.
    """
    worst = -1
    violation = -np.inf
    for i in range(n_slots):
        if status[i] == RESERVE:
            v = -h[i]
        elif status[i] == BOUNDED:
            v = h[i]
        else:
            continue
        if v > violation:
            worst, violation = i, v
    return worst, violation


@compiled
def slacks_of_all(
    K: FloatArray,
    ridge: float,
    C: float,
    largest: float,
    status: Statuses,
    alpha: FloatArray,
    rho: float,
    n_slots: int,
    h: FloatArray,
) -> float:
    """Find ``Q alpha - rho`` of all rows outside the margin set, 0 on the margin.

    Returns a bound on the rounding error.
    """
    margin = members(status, MARGIN, n_slots)
    bounded = members(status, BOUNDED, n_slots)
    h[:n_slots] = -rho
    count = len(margin) + len(bounded)
    if n_slots - len(margin) < n_slots // 8:
        for i in range(n_slots):
            if status[i] == RESERVE or status[i] == BOUNDED:
                line = K[i]
                total = -rho
                for j in margin:
                    total += line[j] * alpha[j]
                for j in bounded:
                    total += line[j] * alpha[j]
                h[i] = total
    else:
        scores(K, margin, alpha[margin], n_slots, h)
        scores(K, bounded, alpha[bounded], n_slots, h)
    weight = 0.0
    for i in range(n_slots):
        weight += abs(alpha[i])
        if status[i] == BOUNDED:
            h[i] += ridge * C
        elif status[i] != RESERVE:
            h[i] = 0.0
    return 2.0 * (count + 8) * UNIT * (largest * weight + abs(rho))


@compiled
def settle(
    K: FloatArray,
    B: FloatArray,
    ridge: float,
    C: float,
    largest: float,
    tie: float,
    parts: FloatArray,
    rest: FloatArray,
    status: Statuses,
    alpha: FloatArray,
    h: FloatArray,
    rho: float,
    blur: float,
    n_slots: int,
    R: FloatArray,
    slots: IntArray,
    size: int,
) -> tuple[bool, float, float, float]:
    """Round the solution of this partition, if it is surely the optimum's.

    `blur` bounds the error of `h`, which is only computed afresh if that is too much.
    Returns whether it was sure, rho, the new `blur` and the contraction of the inverse.
    """
    if size == 0:
        return False, rho, blur, 1.0
    bounded = members(status, BOUNDED, n_slots)
    margin = slots[:size]
    x = np.zeros((size + 1, 3))
    x[0, 0] = -rho
    for p in range(size):
        x[p + 1, 0] = alpha[margin[p]]
    rate, left = refine(
        K, B, ridge, largest, margin, bounded, parts, rest, R, TWOFOLD, x
    )
    if not rate < 1.0:
        return False, rho, blur, rate
    error = np.empty(size + 1)
    out = np.empty(size + 1)
    for sharp in (False, True):
        bound_errors(R, left, rate, TWOFOLD, x, sharp, error)
        sure = round_off(x, error, out)
        for p in range(size):
            low = x[p + 1, 0]
            high = (parts[0] - low) + (parts[1] - x[p + 1, 1])
            sure = sure and min(low, high) > error[p + 1] + tie
        if sure:
            break
    moved = abs(rho + x[0, 0])
    for p in range(size):
        moved += largest * abs(x[p + 1, 0] - alpha[margin[p]])
        alpha[margin[p]] = x[p + 1, 0]
    rho = -x[0, 0]
    blur += 1.001 * moved
    if not sure:
        return False, rho, blur, rate
    _, violation = worst_slack(status, h, n_slots)
    if not violation < -blur:
        blur = slacks_of_all(K, ridge, C, largest, status, alpha, rho, n_slots, h)
        _, violation = worst_slack(status, h, n_slots)
    if not violation < -blur:
        return False, rho, blur, rate
    alpha[:n_slots] = 0.0
    alpha[bounded] = C
    for p in range(size):
        alpha[margin[p]] = out[p + 1]
        h[margin[p]] = 0.0
    return True, -out[0], blur + 4.0 * UNIT * largest, rate
