"""The active set gets to the optimum from anywhere, when all else has failed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from svm.regimes import exact, regimes
from svm.test_exactness import CASES, same

from forgetmem.arrays import FloatArray
from forgetmem.errors import IllConditionedMarginError
from forgetmem.svm import OneClassSVM, active_set, maintained, moves
from forgetmem.svm.active_set import Optimum, Problem, descend, solve
from forgetmem.svm.kernel import Kernel, gram
from forgetmem.svm.margin_inverse import MarginInverse
from forgetmem.svm.moves import Walk, lower_rows, raise_row
from forgetmem.svm.partition import Box, Role
from forgetmem.svm.pivoting import REBUILD, STALLED
from forgetmem.svm.reference import solve_exactly


def problem(X: FloatArray, gamma: float, C: float, ridge: float = 1e-8) -> Problem:
    """The problem of these rows."""
    K = gram(Kernel.RBF, gamma, X)
    return Problem(K, np.arange(len(X)), len(X), ridge, Box(C), 1.0 + ridge)


def point(given: Problem, status: FloatArray) -> Optimum:
    """A point with this partition, feasible or not."""
    n = len(given.K)
    alpha = np.choose(status, [0.0, 1.0 / n, min(given.box.C, 1.0)])
    inverse = MarginInverse(n)
    inverse.rebuild(given.K, given.ridge, np.flatnonzero(status == Role.MARGIN))
    return Optimum(status.astype(np.int8), alpha, np.zeros(n), 0.5, inverse)


@pytest.mark.parametrize(("X", "gamma"), CASES)
def test_descending_from_any_partition_finds_the_optimum(
    X: FloatArray, gamma: float
) -> None:
    """All on the margin, one, none, random: the end is always the same."""
    rng = np.random.default_rng(0)
    n = len(X)
    for C in (1.0, 0.25, 1 / 6, 1 / n):
        given = problem(X, gamma, C)
        expected = solve(given)
        starts = [np.ones(n), np.eye(n)[0], np.zeros(n), np.full(n, 2.0)]
        starts += [rng.integers(0, 3, n) for _ in range(3)]
        for status in starts:
            found = point(given, status.astype(np.int64))
            descend(given, found)
            assert np.array_equal(found.alpha, expected.alpha)
            assert np.array_equal(found.status, expected.status)
            assert found.rho == expected.rho


def test_pivoting_that_stalls_leaves_it_to_the_active_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the guess the result is the same."""
    for _, X, gamma in regimes(1):
        for C in (1.0, 1 / 6):
            expected = OneClassSVM(gamma, C).fit(X)
            with monkeypatch.context() as patch:
                patch.setattr(
                    active_set, "pivot", lambda *a: (STALLED, int(a[10]), float("nan"))
                )
                assert same(expected, OneClassSVM(gamma, C).fit(X), slice(None))


def test_pivoting_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few rebuilds the feasible point of the start is taken up."""
    X = np.random.default_rng(7).normal(size=(20, 3))
    expected = OneClassSVM(0.2).fit(X)
    calls = []

    def again(*a: object) -> tuple[int, object, float]:
        calls.append(a)
        return REBUILD, a[10], 0.1

    monkeypatch.setattr(active_set, "pivot", again)
    assert same(expected, OneClassSVM(0.2).fit(X), slice(None))
    assert len(calls) == 8


def test_walks_that_get_stuck_are_rescued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stuck at any breakpoint, learning and unlearning end as they should."""
    X = np.random.default_rng(2).normal(size=(30, 3))
    for C in (1.0, 1 / 9):
        for limit in range(4):
            with monkeypatch.context() as patch:
                walk = moves.walk
                patch.setattr(moves, "walk", lambda *a: walk(*a[:-1], limit))  # noqa: B023
                svm = OneClassSVM(0.2, C).fit(X[:20]).learn(X[20:26])
                svm.unlearn([0, 7]).unlearn(3).learn(X[26:])
                keep = np.delete(np.arange(26), [0, 7])
                keep = np.concatenate([np.delete(keep, 3), np.arange(26, 30)])
                assert same(OneClassSVM(0.2, C).fit(X[keep]), svm, slice(None))
                assert svm.rescues_ > 0 or limit > 0


def test_an_inverse_that_fails_during_an_operation_is_rescued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether it cannot be rebuilt before the walk or refined after it."""
    X = np.random.default_rng(3).normal(size=(20, 3))
    expected = OneClassSVM(0.2).fit(X[1:])

    def fail(*_: object, **__: object) -> int:
        raise IllConditionedMarginError(1e20)

    with monkeypatch.context() as patch:
        svm = OneClassSVM(0.2).fit(X)
        patch.setattr(maintained, "descend", fail)
        assert same(expected, svm.unlearn(0), slice(None))
    svm = OneClassSVM(0.2).fit(X)
    optimum = svm._maintained.optimum
    assert optimum is not None and 0 in svm.margin_
    optimum.inverse.worn = True
    with monkeypatch.context() as patch:
        patch.setattr(optimum.inverse, "rebuild", fail)
        assert same(expected, svm.unlearn(0), slice(None))
    assert svm.rescues_ == 1


def test_a_damaged_inverse_is_rebuilt_on_the_way() -> None:
    """Neither settling nor exchanging trusts an inverse that does not contract."""
    X = np.random.default_rng(4).normal(size=(25, 3))
    expected = OneClassSVM(0.2, 0.1).fit(X[1:])
    for damage in (0.0, -1.0, 1.5, np.nan):
        svm = OneClassSVM(0.2, 0.1).fit(X)
        optimum = svm._maintained.optimum
        assert optimum is not None
        optimum.inverse.R *= damage
        assert same(expected, svm.unlearn(0), slice(None))


def test_the_active_set_rebuilds_where_it_cannot_exchange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If no row can be taken in or dropped, each partition is inverted afresh."""
    X = np.random.default_rng(5).normal(size=(14, 3))
    for C in (1.0, 1 / 5):
        given = problem(X, 0.2, C)
        expected = solve(given)
        with monkeypatch.context() as patch:
            patch.setattr(MarginInverse, "grow", lambda *_: False)
            patch.setattr(MarginInverse, "shrink", lambda *_: False)
            found = point(given, np.ones(14, dtype=np.int64))
            assert descend(given, found) > 0
        assert np.array_equal(found.alpha, expected.alpha)


def test_a_descent_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should exchanges ever go on for ever, a larger ridge is taken."""
    given = problem(np.random.default_rng(6).normal(size=(6, 3)), 0.2, 1.0)
    expected = solve(replace(given, ridge=16 * given.ridge))
    worst = active_set._worst

    def endless(
        of: Problem, optimum: Optimum, *args: Any
    ) -> tuple[active_set.Refined, int | None]:
        if of.ridge > given.ridge:
            return worst(of, optimum, *args)
        return args[1], int(optimum.inverse.margin[0])

    monkeypatch.setattr(active_set, "_worst", endless)
    monkeypatch.setattr(active_set, "release", lambda *_: None)
    monkeypatch.setattr(active_set, "_settled", lambda *_: False)
    found = solve(given)
    assert np.array_equal(found.alpha, expected.alpha)


def test_singular_problems_get_a_larger_ridge_until_they_can_be_solved() -> None:
    """Two copies without a ridge share the mass, as with the smallest of ridges."""
    given = problem(np.zeros((2, 1)), 1.0, 2.0, ridge=0.0)
    found = solve(given)
    assert found.alpha.tolist() == [0.5, 0.5]
    again = solve(replace(given, ridge=active_set.RIDGE_FLOOR))
    assert found.rho == again.rho


def test_rounding_in_doubt_is_settled_in_threefold_precision() -> None:
    """A coefficient close to half way between two numbers is still rounded right."""
    K = np.eye(3)
    for k in range(1, 60):
        K[0, 1] = K[1, 0] = 0.5 + k * 2.0**-53
        X = np.zeros((3, 1))
        given = replace(problem(X, 1.0, 1.0), K=K)
        found = solve(given)
        truth = solve_exactly(K, 1e-8, Box(1.0).exact)
        assert found.alpha.tolist() == [float(a) for a in truth.alpha]


def test_path_functions_say_how_they_ended() -> None:
    """Nothing moved, the end was reached, or stuck."""
    X = np.array([[0.0], [1.0], [0.5], [9.0]])
    given = problem(X, 0.01, 1.0)
    first = replace(given, rows=np.array([0, 1]))
    optimum = solve(first)
    assert raise_row(replace(given, rows=np.arange(3)), optimum, 2) is Walk.STAYED
    assert raise_row(given, optimum, 3) is Walk.REACHED
    descend(given, optimum)
    truth = exact(X, 0.01, 1.0, 1e-8)
    assert optimum.alpha.tolist() == [float(a) for a in truth.alpha]
    reserve = optimum.slots(Role.RESERVE)
    rest = np.setdiff1d(np.arange(4), reserve)
    assert lower_rows(replace(given, rows=rest), optimum, reserve) is Walk.STAYED


def exact_slacks(given: Problem, found: Optimum) -> list[Fraction]:
    """``Q alpha - rho`` of each row, without any rounding."""
    alpha = list(map(Fraction, found.alpha.tolist()))
    out = []
    for slot in given.rows.tolist():
        line = map(Fraction, given.K[slot].tolist())
        product = sum(k * a for k, a in zip(line, alpha, strict=True))
        out.append(product + Fraction(given.ridge) * alpha[slot] - Fraction(found.rho))
    return out


@pytest.mark.parametrize("C", [1.0, 0.3, 1 / 8])
def test_slacks_stay_within_their_bound_along_walks(C: float) -> None:
    """On ill-conditioned rows too, where the margin's own slacks are far from 0."""
    rng = np.random.default_rng(9)
    for _ in range(20):
        X = rng.integers(-1, 2, size=(14, 3)).astype(np.float64)
        K = X @ X.T
        given = Problem(K, np.arange(8), 8, 1e-8, Box(C), float(K.max()) + 1e-8)
        found = solve(given)
        for slot in range(8, 14):
            given = replace(given, rows=np.arange(slot + 1), end=slot + 1)
            if raise_row(given, found, slot) is Walk.STUCK:
                break
            slacks = zip(exact_slacks(given, found), found.slack, strict=False)
            outside = found.status != Role.MARGIN
            for place, (truth, stated) in enumerate(slacks):
                assert not outside[place] or abs(truth - Fraction(stated)) <= found.blur
            descend(given, found)


def test_no_path_leads_from_an_optimum_of_another_ridge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once the rows can be solved for as they are, they are, as if from scratch."""
    X = np.random.default_rng(10).normal(size=(12, 3))
    honest = active_set._solve

    def failing(given: Problem, alpha: FloatArray | None) -> Optimum:
        if given.ridge == 1e-8:
            raise IllConditionedMarginError(np.inf)
        return honest(given, alpha)

    with monkeypatch.context() as patch:
        patch.setattr(active_set, "_solve", failing)
        svm = OneClassSVM(gamma=0.3).fit(X)
    fresh = OneClassSVM(gamma=0.3).fit(X)
    assert not np.array_equal(svm.dual_coef_, fresh.dual_coef_)

    def walked(*_: object) -> Walk:
        raise AssertionError

    monkeypatch.setattr(maintained, "lower_rows", walked)
    svm.unlearn(3)
    monkeypatch.undo()
    assert same(svm, OneClassSVM(gamma=0.3).fit(np.delete(X, 3, axis=0)), slice(None))
