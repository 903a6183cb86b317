"""A point without margin samples: whether it is the optimum, and the way out of it.

All coefficients are at their bounds, so everything is decided in rational numbers.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from forgetmem.svm.extended import UNIT, accumulate
from forgetmem.svm.partition import Role
from forgetmem.svm.problem import Optimum, Problem


def release(problem: Problem, optimum: Optimum, slot: int) -> None:
    """Put a row into the margin set.

    Parameters
    ----------
    problem : Problem
    optimum : Optimum
        Changed in place.
    slot : int
    """
    optimum.status[slot] = Role.MARGIN
    if not optimum.inverse.grow(problem.K, problem.ridge, slot):
        optimum.inverse.rebuild(problem.K, problem.ridge, optimum.slots(Role.MARGIN))


def leave_vertex(problem: Problem, optimum: Optimum) -> bool:
    """Write rho if this is the optimum, else put rows into the margin set.

    Parameters
    ----------
    problem : Problem
    optimum : Optimum
        Without margin samples; changed in place.

    Returns
    -------
    bool
        Whether it is the optimum.
    """
    box = problem.box
    bounded, reserve = optimum.slots(Role.BOUNDED), optimum.slots(Role.RESERVE)
    sums = np.zeros((3, len(problem.K)))
    x = np.tile(box.parts, (len(bounded), 1))
    accumulate(problem.K, bounded, x, 3, sums)
    rest = box.rest(len(bounded))
    if rest > 0:
        release(problem, optimum, int(reserve[sums[0, reserve].argmin()]))
        return False
    if rest < 0:
        release(problem, optimum, int(bounded[sums[0, bounded].argmax()]))
        return False
    own = Fraction(problem.ridge) * box.exact
    inner = [sum(map(Fraction, sums[:, slot].tolist()), own) for slot in bounded]
    rho = max(inner)
    outer = [sum(map(Fraction, sums[:, slot].tolist()), -rho) for slot in reserve]
    if outer and min(outer) < 0:
        pair = bounded[inner.index(rho)], reserve[outer.index(min(outer))]
        if _exchanged(problem, *pair, -min(outer)) > box.tie:
            for slot in pair:
                release(problem, optimum, int(slot))
            return False
    optimum.alpha[problem.rows] = 0.0
    optimum.alpha[bounded] = box.C
    optimum.slack[bounded] = [float(g - rho) for g in inner]
    optimum.slack[reserve] = [float(g) for g in outer]
    optimum.blur = 4.0 * UNIT * problem.largest
    optimum.rho = float(rho)
    return True


def _exchanged(problem: Problem, one: int, other: int, violation: Fraction) -> Fraction:
    # How much coefficient goes from one row to the other; both are at their bounds.
    K = problem.K
    bend = (
        Fraction(K[one, one]) + Fraction(K[other, other]) - 2 * Fraction(K[one, other])
    )
    return violation / max(bend + 2 * Fraction(problem.ridge), Fraction(2) ** -1022)
