"""The optimum from any start, and its canonical numbers.

A guess in plain float64 (`pivoting`) is nearly always the right partition. The primal
active set decides: its signs come from a refined solution, it releases one row at a
time and only from the minimum over the present margin set, so the objective falls with
each release, no partition comes twice, and it ends. It also delivers the canonical
numbers: the exact solution of the final partition's system, rounded once to float64,
which does not depend on how the partition was found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.exact_rounding import SHARP, round_exactly, sharpen
from forgetmem.svm.extended import noise, slacks
from forgetmem.svm.fresh import settle_by_factor
from forgetmem.svm.margin_inverse import GROWN, MarginInverse
from forgetmem.svm.partition import FREE, Box, Role, Statuses
from forgetmem.svm.pivoting import DONE, REBUILD, pivot, smo
from forgetmem.svm.problem import RIDGE_FLOOR, Optimum, Problem
from forgetmem.svm.refinement import bound_errors, refine, round_off
from forgetmem.svm.settling import settle, slacks_of_all, worst_slack
from forgetmem.svm.vertex import leave_vertex, release

#: Steps for each row before a large system is factorised; more if that is of no use.
_EFFORTS = (1, 60)
#: Up to so many unknowns are found in rational numbers where nothing less decides.
_RATIONAL = 200


@dataclass
class Refined:
    """Solution of the bordered system of one partition.

    Parameters
    ----------
    x : ndarray of shape (size + 1, 3), float64
        ``[-rho; alpha_margin]``, each as a sum of three.
    error : ndarray of shape (size + 1,), float64
        Bound on what is left.
    level : int
        Precision it was found in: 2 or 3 float64, or 4 for rational numbers.
    """

    x: FloatArray
    error: FloatArray
    level: int


def solve(problem: Problem, alpha: FloatArray | None = None) -> Optimum:
    """Find the optimum.

    Parameters
    ----------
    problem : Problem
    alpha : ndarray of float64, optional
        Coefficients by slot to start from; the result does not depend on them.

    Returns
    -------
    Optimum
    """
    floor = RIDGE_FLOOR * (problem.largest or 1.0)
    while True:
        try:
            optimum = _solve(problem, alpha)
            optimum.ridge = problem.ridge
            return optimum
        except IllConditionedMarginError:
            ridge = max(floor, 16.0 * problem.ridge)
            largest = problem.largest + ridge
            problem = replace(problem, ridge=ridge, largest=largest)


def _solve(problem: Problem, alpha: FloatArray | None) -> Optimum:
    for effort in _EFFORTS:
        optimum = _start(problem, alpha, effort)
        feasible = optimum.alpha.copy()
        large = len(optimum.slots(Role.MARGIN)) > GROWN and not problem.doubtful
        if not large:
            break
        if settle_by_factor(problem, optimum):
            return optimum
        alpha = feasible
    if large or not _guess(problem, optimum):
        optimum.alpha, optimum.rho = feasible, 0.0
        optimum.status[problem.rows] = _by_value(problem.box, feasible[problem.rows])
        optimum.inverse.rebuild(problem.K, problem.ridge, optimum.slots(Role.MARGIN))
    descend(problem, optimum)
    return optimum


def _start(problem: Problem, alpha: FloatArray | None, effort: int) -> Optimum:
    # A feasible point near the optimum, after so many steps for each row.
    capacity, rows, box = len(problem.K), problem.rows, problem.box
    inverse = MarginInverse(capacity, reproducible=problem.doubtful)
    status = np.full(capacity, FREE, dtype=np.int8)
    values, h = np.zeros(capacity), np.zeros(capacity)
    upper = min(box.C, 1.0)
    values[rows] = 1.0 / len(rows)
    if alpha is not None and np.isfinite(alpha[rows]).all():
        values[rows] = _feasible(alpha[rows], upper)
    limit = max(effort * len(rows), 4 * GROWN)
    smo(problem.K, problem.ridge, upper, rows, values, h, problem.end, 1e-5, limit)
    status[rows] = _by_value(box, values[rows])
    return Optimum(status, values, h, 0.0, inverse)


def _feasible(alpha: FloatArray, upper: float) -> FloatArray:
    # The coefficients moved into the box, and by shares of their room to the sum of 1.
    alpha = np.clip(alpha, 0.0, upper)
    excess = float(alpha.sum()) - 1.0
    room = alpha if excess > 0.0 else upper - alpha
    share = abs(excess) / max(float(room.sum()), abs(excess), 1e-300)
    moved: FloatArray = alpha - np.copysign(share, excess) * room
    return np.clip(moved, 0.0, upper)


def _by_value(box: Box, alpha: FloatArray) -> Statuses:
    status = np.full(len(alpha), Role.MARGIN, dtype=np.int8)
    status[alpha <= box.tie] = Role.RESERVE
    status[alpha >= box.C - box.tie] = Role.BOUNDED
    return status


def _guess(problem: Problem, optimum: Optimum) -> bool:
    # Pivot in float64; True if it ended with the right signs and a valid inverse.
    inverse, outcome = optimum.inverse, REBUILD
    for _ in range(8):
        margin = optimum.slots(Role.MARGIN)
        if outcome != REBUILD or not len(margin):
            break
        try:
            inverse.rebuild(problem.K, problem.ridge, margin)
        except IllConditionedMarginError:
            return False
        outcome, inverse.size, optimum.rho = pivot(
            problem.K,
            problem.ridge,
            problem.box.C,
            optimum.status,
            optimum.alpha,
            optimum.slack,
            problem.end,
            inverse.R,
            inverse.B,
            inverse.slots,
            inverse.size,
            len(problem.rows) if len(margin) <= GROWN else max(8, len(margin) // 8),
        )
    return outcome == DONE


def descend(problem: Problem, optimum: Optimum) -> int:
    """Go down from a feasible point to the optimum, and round it once.

    Parameters
    ----------
    problem : Problem
    optimum : Optimum
        A feasible point, its partition and the inverse that belongs to it; becomes the
        optimum.

    Returns
    -------
    int
        Number of changes of the partition it took.

    Raises
    ------
    IllConditionedMarginError
        If a margin system is singular to working precision.

    Notes
    -----
    What a row's coefficient would be decides whether a small violation counts, and
    whether the row is on the margin: the same number, however it is come by. A row that
    is released and whose coefficient turns out to be a tie is passed over from then on,
    until the margin set is another one.
    """
    if not problem.doubtful and _settled(problem, optimum):
        return 0
    tied: set[int] = set()
    released: int | None = None
    for turn in range(40 * len(problem.rows) + 200):
        if optimum.inverse.size == 0:
            if leave_vertex(problem, optimum):
                return turn
            continue
        bounded = optimum.slots(Role.BOUNDED)
        solution, outside = _inside(problem, optimum, bounded)
        if outside.any():
            gone = optimum.inverse.margin[outside].tolist()
            if released is not None and gone == [released]:
                tied.add(released)
            else:
                tied.clear()
            released = None
            _step(problem, optimum, solution, outside)
            continue
        if released is not None:
            tied.clear()
        optimum.alpha[optimum.inverse.margin] = solution.x[1:, 0]
        optimum.rho = -float(solution.x[0, 0])
        solution, released = _worst(problem, optimum, bounded, solution, tied)
        if released is None:
            _write(problem, optimum, bounded, solution)
            return turn
        release(problem, optimum, released)
    raise IllConditionedMarginError(np.inf)


def _settled(problem: Problem, optimum: Optimum) -> bool:
    # The common case: the partition is right, and nothing is in doubt.
    inverse = optimum.inverse
    n_bounded = int((optimum.status == Role.BOUNDED).sum())
    sure, optimum.rho, optimum.blur, rate = settle(
        problem.K,
        inverse.B,
        problem.ridge,
        problem.box.C,
        problem.largest,
        problem.box.tie,
        problem.box.parts,
        problem.box.rest_parts(n_bounded),
        optimum.status,
        optimum.alpha,
        optimum.slack,
        optimum.rho,
        optimum.blur,
        problem.end,
        inverse.R,
        inverse.slots,
        inverse.size,
    )
    if sure:
        inverse.observe(rate)
    return sure


def _inside(
    problem: Problem, optimum: Optimum, bounded: IntArray
) -> tuple[Refined, BoolArray]:
    # The solution, and which coefficients are not strictly inside the box.
    box = problem.box
    solution = _refined(problem, optimum, bounded, 2)
    while True:
        low = solution.x[1:, 0]
        high = (box.parts[0] - low) + (box.parts[1] - solution.x[1:, 1])
        room = np.minimum(low, high)
        unsure = np.abs(room) <= solution.error[1:] + box.tie
        error = problem.largest * float(solution.error.sum())
        level = _next_level(problem, solution, error) if unsure.any() else None
        if level is None:
            return solution, room <= box.tie
        solution = _refined(problem, optimum, bounded, level)


def _next_level(problem: Problem, solution: Refined, error: float) -> int | None:
    # The precision to try next for slacks that are known up to this error, if more can
    # help to tell a tie from what is none.
    if solution.level == 2:
        return 3
    if error <= problem.box.tie * problem.ridge:
        return None
    if solution.level == 3 and len(solution.x) <= _RATIONAL:
        return 4
    if problem.doubtful and problem.ridge > 0.0:
        raise IllConditionedMarginError(np.inf)
    return None


def _refined(
    problem: Problem, optimum: Optimum, bounded: IntArray, level: int
) -> Refined:
    # Solve the bordered system; if the inverse is too far off, with a fresh one.
    inverse = optimum.inverse
    if level == 4:
        known = _refined(problem, optimum, bounded, 3).x
        R = inverse.R[: inverse.size + 1, : inverse.size + 1]
        x = sharpen(problem, inverse.margin, bounded, R, known)
        return Refined(x, 2.0**-157 * np.abs(x[:, 0]) + float(SHARP), level)
    for fresh in (False, True):
        if fresh:
            inverse.rebuild(problem.K, problem.ridge, inverse.margin.copy())
        x = np.zeros((inverse.size + 1, 3))
        start = np.append(-optimum.rho, optimum.alpha[inverse.margin])
        x[:, 0] = np.where(np.isfinite(start), start, 0.0)
        rate, left = refine(
            problem.K,
            inverse.B,
            problem.ridge,
            problem.largest,
            inverse.margin,
            bounded,
            problem.box.parts,
            problem.box.rest_parts(len(bounded)),
            inverse.R,
            level,
            x,
        )
        if rate < 1.0 and (not problem.doubtful or inverse.holds(problem.ridge)):
            inverse.observe(rate)
            error = np.empty(len(x))
            bound_errors(inverse.R, left, rate, level, x, True, error)
            return Refined(x, error, level)
    raise IllConditionedMarginError(rate)


def _step(
    problem: Problem, optimum: Optimum, solution: Refined, outside: BoolArray
) -> None:
    # Go from alpha towards the solution until the first coefficient meets its bound.
    margin = optimum.inverse.margin.copy()
    here, there = optimum.alpha[margin], solution.x[1:, 0]
    upper = outside & (there > problem.box.C / 2)
    bound = np.where(upper, problem.box.C, 0.0)
    way = np.where(outside & (there != here), there - here, 1.0)
    share = np.where(outside, np.clip((bound - here) / way, 0.0, 1.0), np.inf)
    t = share.min()
    hit = share <= t
    optimum.alpha[margin] = here + t * (there - here)
    optimum.alpha[margin[hit]] = bound[hit]
    optimum.status[margin[hit]] = np.where(upper[hit], Role.BOUNDED, Role.RESERVE)
    if not all(optimum.inverse.shrink(int(slot)) for slot in margin[hit]):
        optimum.inverse.rebuild(problem.K, problem.ridge, optimum.slots(Role.MARGIN))


def _worst(
    problem: Problem,
    optimum: Optimum,
    bounded: IntArray,
    solution: Refined,
    tied: set[int],
) -> tuple[Refined, int | None]:
    # The row outside the margin set that violates its condition most, if any does that
    # is not known to be tied.
    error = slacks_of_all(
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
    optimum.blur = error
    worst, violation = worst_slack(optimum.status, optimum.slack, problem.end)
    if violation < -error:
        return solution, None
    if violation > error:
        return solution, worst
    others = problem.rows[optimum.status[problem.rows] != Role.MARGIN]
    inner = optimum.status[others] == Role.BOUNDED
    sign = np.where(inner, 1.0, -1.0)
    unsure = sign * optimum.slack[others] >= -error
    unsure &= ~np.isin(others, list(tied))
    if not unsure.any():
        return solution, None
    others, inner, sign = others[unsure], inner[unsure], sign[unsure]
    support = len(optimum.inverse.margin) + len(bounded)
    while True:
        v = sign * _sharp_slacks(problem, optimum, bounded, solution, others, inner)
        slip = 4.0 * problem.largest * noise(support, min(solution.level, 3))
        error = problem.largest * float(solution.error.sum()) + slip
        if v.max() < -error or v.max() > error:
            break
        level = _next_level(problem, solution, error)
        if level is None:
            break
        solution = _refined(problem, optimum, bounded, level)
    return solution, int(others[v.argmax()]) if v.max() > error else None


def _sharp_slacks(
    problem: Problem,
    optimum: Optimum,
    bounded: IntArray,
    solution: Refined,
    places: IntArray,
    inner: BoolArray,
) -> FloatArray:
    # Q alpha - rho of some rows outside the margin set, in the solution's precision.
    size = optimum.inverse.size
    lines = np.concatenate([optimum.inverse.margin, bounded])
    x = np.tile(problem.box.parts, (len(lines), 1))
    x[:size] = solution.x[1:]
    h = np.empty(len(places))
    own = problem.box.scaled(problem.ridge)
    for role, minus in ((inner, -own), (~inner, np.zeros(0))):
        out = np.empty(int(role.sum()))
        rho = np.concatenate([-solution.x[0], minus])
        slacks(problem.K, lines, x, rho, places[role], min(solution.level, 3), out)
        h[role] = out
    return h


def _write(
    problem: Problem, optimum: Optimum, bounded: IntArray, solution: Refined
) -> None:
    inverse = optimum.inverse
    out = np.empty(inverse.size + 1)
    sure = round_off(solution.x, solution.error, out)
    if not sure and solution.level == 2:
        solution = _refined(problem, optimum, bounded, 3)
        sure = round_off(solution.x, solution.error, out)
    if not sure:
        R = inverse.R[: inverse.size + 1, : inverse.size + 1]
        out = round_exactly(problem, inverse.margin, bounded, R, solution.x)
    optimum.alpha[problem.rows] = 0.0
    optimum.alpha[bounded] = problem.box.C
    optimum.alpha[optimum.inverse.margin] = out[1:]
    optimum.rho = -float(out[0])
