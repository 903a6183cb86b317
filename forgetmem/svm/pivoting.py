"""A good guess at the optimum's partition, in plain float64.

Two ways that complement each other. `smo` moves pairs of coefficients as libsvm does:
many cheap steps towards the optimum. `pivot` solves for a partition, exchanges all rows
with a wrong sign at once, and repeats while their number falls: few dear steps at the
end. Neither has the last word; `active_set.descend` has.

References
----------
.. [1] Fan, Chen and Lin, "Working set selection using second order information for
   training support vector machines", JMLR 6 (2005).
.. [2] Júdice and Pires, "A block principal pivoting algorithm for large-scale strictly
   monotone linear complementarity problems", Comput. Oper. Res. 21 (1994).
"""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.jit import compiled
from forgetmem.svm.extended import multiply
from forgetmem.svm.margin_inverse import grow, shrink
from forgetmem.svm.partition import BOUNDED, MARGIN, RESERVE, Statuses

#: What `pivot` came to.
DONE, STALLED, REBUILD = 0, 1, 2


@compiled
def scores(
    K: FloatArray, lines: IntArray, values: FloatArray, n_slots: int, out: FloatArray
) -> None:
    """Add ``sum over j of values[j] * K[lines[j]]`` to `out`, for all slots."""
    n = len(lines)
    whole = n - n % 4
    for j in range(0, whole, 4):
        a, b, c, d = values[j], values[j + 1], values[j + 2], values[j + 3]
        k = K[lines[j]]
        m = K[lines[j + 1]]
        p = K[lines[j + 2]]
        q = K[lines[j + 3]]
        for i in range(n_slots):
            out[i] += (a * k[i] + b * m[i]) + (c * p[i] + d * q[i])
    for j in range(whole, n):
        a = values[j]
        k = K[lines[j]]
        for i in range(n_slots):
            out[i] += a * k[i]


@compiled
def members(status: Statuses, role: np.int8, n_slots: int) -> IntArray:
    """Find the slots of one set, ascending."""
    out = np.empty(n_slots, dtype=np.int64)
    count = 0
    for i in range(n_slots):
        if status[i] == role:
            out[count] = i
            count += 1
    return out[:count]


@compiled
def smo(
    K: FloatArray,
    ridge: float,
    upper: float,
    rows: IntArray,
    alpha: FloatArray,
    h: FloatArray,
    end: int,
    fraction: float,
    limit: int,
) -> None:
    """Lower the objective pair by pair until the spread of `h` is this `fraction`.

    `h` becomes ``Q alpha``, and infinite in the slots below `end` without a row.
    """
    h[:end] = np.inf
    h[rows] = ridge * alpha[rows]
    scores(K, rows, alpha[rows], end, h)
    diagonal = np.empty(end)
    for i in range(end):
        diagonal[i] = K[i, i]
    up = -1
    low = np.inf
    high = -np.inf
    for i in rows:
        if alpha[i] < upper and h[i] < low:
            up, low = i, h[i]
        if alpha[i] > 0.0 and h[i] > high:
            high = h[i]
    goal = max(fraction * (high - low), 2.0**-46 * abs(high))
    for _ in range(limit):
        if up < 0 or not high - low > goal:
            return
        line = K[up]
        base = diagonal[up] + 2.0 * ridge
        down = -1
        best = 0.0
        bend = 1.0
        for i in range(end):
            gain = h[i] - low
            if gain > 0.0 and alpha[i] > 0.0:
                curve = max(base + diagonal[i] - 2.0 * line[i], 1e-300)
                if gain * gain * bend > best * curve:
                    down, best, bend = i, gain * gain, curve
        step = min((h[down] - low) / bend, min(upper - alpha[up], alpha[down]))
        alpha[up] = upper if step == upper - alpha[up] else alpha[up] + step
        alpha[down] = 0.0 if step == alpha[down] else alpha[down] - step
        h[up] += ridge * step
        h[down] -= ridge * step
        other = K[down]
        up = -1
        low = np.inf
        high = -np.inf
        for i in range(end):
            value = h[i] + step * (line[i] - other[i])
            h[i] = value
            if value < low and alpha[i] < upper:
                up, low = i, value
            if value > high and alpha[i] > 0.0:
                high = value


@compiled
def pivot(
    K: FloatArray,
    ridge: float,
    C: float,
    status: Statuses,
    alpha: FloatArray,
    h: FloatArray,
    n_slots: int,
    R: FloatArray,
    B: FloatArray,
    slots: IntArray,
    size: int,
    affordable: int,
) -> tuple[int, int, float]:
    """Exchange all rows with a wrong sign as long as their number falls.

    `R` and `B` belong to the `size` margin slots. Returns what it came to, the size,
    and rho. With `REBUILD` the statuses are changed, and `R` is left for the caller to
    renew, as more than `affordable` rows are to be exchanged.
    """
    fewest = n_slots + 1
    patience = 5
    rho = 0.0
    while size > 0:
        bounded = members(status, BOUNDED, n_slots)
        right = np.zeros(size + 1)
        right[0] = 1.0 - len(bounded) * C
        h[:n_slots] = 0.0
        if len(bounded):
            scores(K, bounded, np.full(len(bounded), C), n_slots, h)
        for p in range(size):
            right[p + 1] = -h[slots[p]]
        x = np.zeros(size + 1)
        multiply(R, right, x)
        rho = -x[0]
        for p in range(size):
            alpha[slots[p]] = x[p + 1]
        h[:n_slots] -= rho
        scores(K, slots[:size], x[1:], n_slots, h)
        slop = 1e-13 * (abs(rho) + ridge)
        wrong = np.empty(n_slots, dtype=np.int64)
        count = 0
        for i in range(n_slots):
            if (
                (status[i] == RESERVE and h[i] < -slop)
                or (status[i] == BOUNDED and h[i] + ridge * C > slop)
                or (status[i] == MARGIN and not 0.0 < alpha[i] < C)
            ):
                wrong[count] = i
                count += 1
        if count == 0:
            return DONE, size, rho
        if count < fewest:
            fewest, patience = count, 5
        else:
            patience -= 1
            if patience == 0:
                return STALLED, size, rho
        renew = count > affordable
        for w in range(count):
            i = wrong[w]
            if status[i] == MARGIN:
                status[i] = BOUNDED if alpha[i] > 0.0 else RESERVE
                alpha[i] = C if alpha[i] > 0.0 else 0.0
                if renew:
                    continue
                place = 0
                while slots[place] != i:
                    place += 1
                if not shrink(R, B, slots, size, place):
                    return STALLED, size, rho
                size -= 1
            else:
                status[i] = MARGIN
                if renew:
                    continue
                if not grow(R, B, K, ridge, slots, size, i) > 0.0:
                    return STALLED, size, rho
                size += 1
        if renew:
            return REBUILD, size, rho
    return STALLED, size, rho
