"""The optimum from any start: block pivoting, then a primal active set.

Pivoting in plain float64 exchanges all rows with a wrong sign at once and is nearly
always enough. The primal active set decides: its signs come from a refined solution,
it releases one row at a time and only from the minimum over the present margin set, so
the objective falls with each release, no partition comes twice, and it ends. It also
delivers the canonical numbers: the exact solution of the final partition's system,
rounded once to float64, which does not depend on how the partition was found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from forgetmem.arrays import BoolArray, FloatArray, IntArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm.extended import UNIT, accumulate, refine, round_off, slacks
from forgetmem.svm.margin_inverse import MarginInverse
from forgetmem.svm.partition import FREE, Box, Role, triple

#: A smaller ridge, relative to the largest kernel value, may be lost in the rounding of
#: K. The problem is tried as it stands, and if a margin system is singular it is solved
#: with this ridge instead.
RIDGE_FLOOR = 2.0**-34


@dataclass(frozen=True)
class Problem:
    """One quadratic programme over some of the slots of a kernel matrix.

    Parameters
    ----------
    K : ndarray of shape (n_slots, n_slots), float64, C-contiguous
    rows : ndarray of int64
        The slots that hold samples.
    ridge : float
    box : Box
    """

    K: FloatArray
    rows: IntArray
    ridge: float
    box: Box

    @property
    def largest(self) -> float:
        """Largest entry of Q in absolute value."""
        return float(self.K[self.rows, self.rows].max()) + self.ridge


@dataclass
class Optimum:
    """Solution of a `Problem`; arrays are indexed by slot.

    Parameters
    ----------
    status : ndarray of int8
        A `Role`, or `FREE`.
    alpha : ndarray of float64
    rho : float
    inverse : MarginInverse
    settled : bool
        Whether the active set came to its end.
    """

    status: np.ndarray[tuple[int], np.dtype[np.int8]]
    alpha: FloatArray
    rho: float
    inverse: MarginInverse
    settled: bool = True

    def slots(self, role: Role) -> IntArray:
        """Slots of one set, ascending.

        Parameters
        ----------
        role : Role

        Returns
        -------
        ndarray of int64
        """
        return np.flatnonzero(self.status == role)


def solve(problem: Problem, alpha: FloatArray | None = None) -> Optimum:
    """Find the optimum.

    Parameters
    ----------
    problem : Problem
        Feasible: as many rows as the box needs.
    alpha : ndarray of float64, optional
        Coefficients by slot to start from; the result does not depend on them.

    Returns
    -------
    Optimum
    """
    try:
        return _solve(problem, alpha)
    except IllConditionedMarginError:
        floor = RIDGE_FLOOR * problem.largest
        return _solve(replace(problem, ridge=max(floor, problem.ridge)), alpha)


def _solve(problem: Problem, alpha: FloatArray | None) -> Optimum:
    optimum = _start(problem, alpha)
    _pivot(problem, optimum)
    descend(problem, optimum)
    return optimum


def _start(problem: Problem, alpha: FloatArray | None) -> Optimum:
    n_slots = len(problem.K)
    status = np.full(n_slots, FREE, dtype=np.int8)
    status[problem.rows] = Role.MARGIN
    values = np.zeros(n_slots)
    C = problem.box.C
    if alpha is not None:
        values[problem.rows] = np.clip(alpha[problem.rows], 0.0, min(C, 1.0))
        given = values[problem.rows]
        status[problem.rows[given <= problem.box.tie]] = Role.RESERVE
        status[problem.rows[given >= C - problem.box.tie]] = Role.BOUNDED
    else:
        values[problem.rows] = 1.0 / len(problem.rows)
    return Optimum(status, values, 0.0, MarginInverse())


def _pivot(problem: Problem, optimum: Optimum) -> None:
    # Exchange all wrong rows as long as their number falls; leave a feasible point.
    K, box, status = problem.K, problem.box, optimum.status
    best, patience = len(problem.rows) + 1, 4
    while patience:
        margin = optimum.slots(Role.MARGIN)
        bounded = optimum.slots(Role.BOUNDED)
        if not len(margin):
            break
        x = _plain(problem, margin, bounded)
        if x is None:
            break
        optimum.alpha[margin] = x[1:]
        optimum.rho = -x[0]
        support = np.concatenate([margin, bounded])
        h = K[np.ix_(problem.rows, support)] @ optimum.alpha[support] + x[0]
        slop = 1e-13 * problem.largest
        wrong = status[problem.rows] == Role.RESERVE
        wrong &= h < -slop
        wrong |= (status[problem.rows] == Role.BOUNDED) & (
            h + problem.ridge * box.C > slop
        )
        enter = problem.rows[wrong]
        low = margin[x[1:] < 0.0]
        high = margin[x[1:] > box.C]
        count = len(enter) + len(low) + len(high)
        if not count:
            break
        patience = 4 if count < best else patience - 1
        best = min(best, count)
        status[enter] = Role.MARGIN
        status[low] = Role.RESERVE
        status[high] = Role.BOUNDED
        optimum.alpha[low] = 0.0
        optimum.alpha[high] = box.C
    _repair(problem, optimum)


def _plain(problem: Problem, margin: IntArray, bounded: IntArray) -> FloatArray | None:
    s = len(margin)
    bordered = np.ones((s + 1, s + 1))
    bordered[0, 0] = 0.0
    bordered[1:, 1:] = problem.K[np.ix_(margin, margin)]
    bordered.flat[s + 2 :: s + 2] += problem.ridge
    right = np.empty(s + 1)
    right[0] = float(problem.box.rest(len(bounded)))
    right[1:] = -problem.box.C * problem.K[np.ix_(margin, bounded)].sum(axis=1)
    try:
        x = np.linalg.solve(bordered, right).astype(np.float64)
    except np.linalg.LinAlgError:
        return None
    return x if np.isfinite(x).all() else None


def _repair(problem: Problem, optimum: Optimum) -> None:
    # Make alpha feasible (up to rounding) where pivoting left it outside the box.
    box, rows, status = problem.box, problem.rows, optimum.status
    upper = min(box.C, 1.0)
    alpha = np.clip(optimum.alpha[rows], 0.0, upper)
    alpha[status[rows] == Role.RESERVE] = 0.0
    alpha[status[rows] == Role.BOUNDED] = upper
    excess = alpha.sum() - 1.0
    inner = status[rows] == Role.MARGIN
    for among in (inner, np.ones(len(rows), dtype=np.bool_)):
        room = alpha[among].sum() if excess > 0.0 else (upper - alpha[among]).sum()
        if abs(excess) <= 1e-14 or room <= 0.0:
            continue
        share = min(1.0, abs(excess) / room)
        if excess > 0.0:
            alpha[among] *= 1.0 - share
        else:
            alpha[among] += (upper - alpha[among]) * share
        excess = alpha.sum() - 1.0
    optimum.alpha[rows] = alpha
    status[rows] = Role.MARGIN
    status[rows[alpha <= box.tie]] = Role.RESERVE
    status[rows[alpha >= box.C - box.tie]] = Role.BOUNDED


@dataclass
class Refined:
    """Solution of the bordered system of one partition.

    Parameters
    ----------
    x : ndarray of shape (3, size + 1), float64
        ``[-rho; alpha_margin]`` as a sum of three.
    error : ndarray of shape (size + 1,), float64
        Bound on what is left.
    level : int
        Precision it was found in: 2 or 3 float64.
    """

    x: FloatArray
    error: FloatArray
    level: int


def refined(
    problem: Problem, inverse: MarginInverse, bounded: IntArray, level: int
) -> Refined:
    """Solve the bordered system of a partition far beyond float64.

    Parameters
    ----------
    problem : Problem
    inverse : MarginInverse
        Of the margin samples; built afresh if it turns out to be too far off.
    bounded : ndarray of int64
        Slots of the bounded samples.
    level : int
        2 or 3.

    Returns
    -------
    Refined

    Raises
    ------
    IllConditionedMarginError
        If not even a fresh inverse leads to the solution.
    """
    rest = np.array(triple(problem.box.rest(len(bounded))))
    parts = np.array(problem.box.parts)
    rate = np.inf
    for fresh in (False, True):
        if fresh:
            inverse.rebuild(problem.K, problem.ridge, inverse.margin.copy())
        x = np.zeros((3, inverse.size + 1))
        error = np.zeros(inverse.size + 1)
        rate = refine(
            problem.K,
            problem.ridge,
            inverse.margin,
            bounded,
            parts,
            rest,
            inverse.R,
            level,
            x,
            error,
        )
        if rate < 1.0:
            return Refined(x, error, level)
    raise IllConditionedMarginError(rate)


def descend(problem: Problem, optimum: Optimum) -> None:
    """Go down from a feasible point to the optimum, and round it once.

    Parameters
    ----------
    problem : Problem
    optimum : Optimum
        A feasible point with its partition; becomes the optimum.

    Raises
    ------
    IllConditionedMarginError
        If a margin system is singular to working precision.
    """
    optimum.inverse.rebuild(problem.K, problem.ridge, optimum.slots(Role.MARGIN))
    for _ in range(40 * len(problem.rows) + 200):
        if optimum.inverse.size == 0:
            if _leave_vertex(problem, optimum):
                return
            continue
        bounded = optimum.slots(Role.BOUNDED)
        solution, outside = _inside(problem, optimum, bounded)
        if outside.any():
            _step(problem, optimum, solution, outside)
            continue
        optimum.alpha[optimum.inverse.margin] = solution.x[0, 1:]
        optimum.rho = -solution.x[0, 0]
        solution, worst = _worst(problem, optimum, bounded, solution)
        if worst is None:
            _write(problem, optimum, bounded, solution)
            return
        _release(problem, optimum, worst)
    optimum.settled = False


def _inside(
    problem: Problem, optimum: Optimum, bounded: IntArray
) -> tuple[Refined, BoolArray]:
    # The solution, and which coefficients are not strictly inside the box.
    box = problem.box
    for level in (2, 3):
        solution = refined(problem, optimum.inverse, bounded, level)
        value = solution.x[0, 1:]
        room = (box.parts[0] - value) + (box.parts[1] - solution.x[1, 1:])
        error = solution.error[1:]
        outside = (value <= box.tie) | (room <= box.tie)
        doubt = np.abs(value) <= error + box.tie
        doubt |= np.abs(room) <= error + box.tie
        if not doubt.any():
            break
    return solution, outside


def _step(
    problem: Problem, optimum: Optimum, solution: Refined, outside: BoolArray
) -> None:
    # Go from alpha towards the solution until the first coefficient meets its bound.
    margin = optimum.inverse.margin.copy()
    here, there = optimum.alpha[margin], solution.x[0, 1:]
    upper = outside & (there > problem.box.C / 2)
    bound = np.where(upper, problem.box.C, 0.0)
    way = np.where(outside, there - here, 1.0)
    share = np.where(way == 0.0, 0.0, (bound - here) / np.where(way == 0.0, 1.0, way))
    share = np.where(outside, np.clip(share, 0.0, 1.0), np.inf)
    t = share.min()
    hit = share <= t
    optimum.alpha[margin] = here + t * (there - here)
    optimum.alpha[margin[hit]] = bound[hit]
    optimum.status[margin[hit]] = np.where(upper[hit], Role.BOUNDED, Role.RESERVE)
    for slot in margin[hit]:
        optimum.inverse.shrink(int(slot))


def _worst(
    problem: Problem, optimum: Optimum, bounded: IntArray, solution: Refined
) -> tuple[Refined, int | None]:
    # The row outside the margin set that violates its condition most, if any does.
    K, box = problem.K, problem.box
    margin = optimum.inverse.margin
    support = np.concatenate([margin, bounded])
    others = problem.rows[optimum.status[problem.rows] != Role.MARGIN]
    is_bounded = optimum.status[others] == Role.BOUNDED
    h = K[np.ix_(others, support)] @ optimum.alpha[support] - optimum.rho
    h[is_bounded] += problem.ridge * box.C
    spread = problem.largest * float(np.abs(optimum.alpha[support]).sum())
    doubt = np.abs(h) <= 2 * (len(support) + 8) * UNIT * (spread + abs(optimum.rho))
    while doubt.any():
        h[doubt] = _sharp_slacks(problem, optimum, bounded, solution, others[doubt])
        error = problem.largest * solution.error.sum() + (
            (len(support) + 8) * UNIT
        ) ** solution.level * (spread + abs(optimum.rho))
        if solution.level == 3:
            break
        doubt &= np.abs(h) <= error + _slack_tie(problem)
        solution = refined(problem, optimum.inverse, bounded, 3)
    violation = np.where(is_bounded, h, -h)
    if not len(others) or violation.max() <= _slack_tie(problem):
        return solution, None
    return solution, int(others[violation.argmax()])


def _slack_tie(problem: Problem) -> float:
    return 8.0 * problem.box.tie * problem.largest


def _sharp_slacks(
    problem: Problem,
    optimum: Optimum,
    bounded: IntArray,
    solution: Refined,
    places: IntArray,
) -> FloatArray:
    box = problem.box
    lines = np.concatenate([optimum.inverse.margin, bounded])
    x = np.empty((3, len(lines)))
    x[:, : optimum.inverse.size] = solution.x[:, 1:]
    x[:, optimum.inverse.size :] = np.array(box.parts)[:, np.newaxis]
    own = triple(Fraction(problem.ridge) * box.exact)
    h = np.empty(len(places))
    inner = optimum.status[places] == Role.BOUNDED
    for role, shift in ((False, (0.0, 0.0, 0.0)), (True, own)):
        some = inner == role
        rho = -solution.x[:, 0]
        out = np.empty(int(some.sum()))
        whole = np.concatenate([rho, -np.array(shift)])
        slacks(problem.K, lines, x, whole, places[some], solution.level, out)
        h[some] = out
    return h


def _release(problem: Problem, optimum: Optimum, slot: int) -> None:
    optimum.inverse.grow(problem.K, problem.ridge, slot)
    optimum.status[slot] = Role.MARGIN


def _write(
    problem: Problem, optimum: Optimum, bounded: IntArray, solution: Refined
) -> None:
    out = np.empty(optimum.inverse.size + 1)
    if not round_off(solution.x, solution.error, out) and solution.level == 2:
        solution = refined(problem, optimum.inverse, bounded, 3)
        round_off(solution.x, solution.error, out)
    optimum.alpha[problem.rows] = 0.0
    optimum.alpha[bounded] = problem.box.C
    optimum.alpha[optimum.inverse.margin] = out[1:]
    optimum.rho = -float(out[0])


def _leave_vertex(problem: Problem, optimum: Optimum) -> bool:
    # No margin samples: the coefficients are all at their bounds. Write rho and return
    # True if that is the optimum, else put rows into the margin set.
    box = problem.box
    bounded, reserve = optimum.slots(Role.BOUNDED), optimum.slots(Role.RESERVE)
    sums = np.zeros((3, len(problem.K)))
    x = np.repeat(np.array(box.parts)[:, np.newaxis], len(bounded), axis=1)
    accumulate(problem.K, bounded, x, 3, sums)
    rest = box.rest(len(bounded))
    if rest > 0:
        _release(problem, optimum, int(reserve[sums[0, reserve].argmin()]))
        return False
    top = int(bounded[sums[0, bounded].argmax()])
    if rest < 0:
        _release(problem, optimum, top)
        return False
    own = Fraction(problem.ridge) * box.exact
    exact = [sum(map(Fraction, sums[:, slot].tolist()), own) for slot in bounded]
    rho = max(exact)
    top = int(bounded[exact.index(rho)])
    outer = [sum(map(Fraction, sums[:, slot].tolist()), -rho) for slot in reserve]
    if outer and min(outer) < -_slack_tie(problem):
        _release(problem, optimum, top)
        _release(problem, optimum, int(reserve[outer.index(min(outer))]))
        return False
    optimum.alpha[problem.rows] = 0.0
    optimum.alpha[bounded] = box.C
    optimum.rho = float(rho)
    return True
