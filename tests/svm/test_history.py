"""Whatever was learned and unlearned on the way, the end is a fit on what is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from svm.regimes import BOXES, regimes
from svm.test_exactness import CASES, same

from forgetmem.arrays import FloatArray
from forgetmem.svm import OneClassSVM, fit_many, solution_certificate
from forgetmem.svm.maintained import Maintained
from forgetmem.svm.partition import Box
from forgetmem.svm.reference import solve_exactly


@pytest.mark.parametrize(("X", "gamma"), CASES)
def test_interleaved_learning_and_unlearning_ends_as_a_fit(
    X: FloatArray, gamma: float
) -> None:
    """After every operation all numbers equal those of a fit in another order."""
    rng = np.random.default_rng(7)
    for C in BOXES:
        svm = OneClassSVM(gamma=gamma, C=C)
        inside: list[int] = []
        outside = list(range(len(X)))
        for _ in range(12):
            count = int(rng.choice([1, 1, 2, 5]))
            if outside and (len(inside) < 3 or rng.random() < 0.6):
                rng.shuffle(outside)
                chosen, outside = outside[:count], outside[count:]
                svm.learn(X[chosen])
                inside += chosen
            else:
                places = rng.permutation(len(inside))[:count].tolist()
                svm.unlearn(places)
                outside += [inside[place] for place in places]
                inside = [r for p, r in enumerate(inside) if p not in places]
            order = rng.permutation(len(inside))
            fresh = OneClassSVM(gamma=gamma, C=C).fit(X[inside][order])
            assert np.array_equal(svm.X_, X[inside])
            assert same(svm, fresh, order)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.integers(0, 11), min_size=1, max_size=24),
    moves=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=12),
    C=st.sampled_from(BOXES),
    gamma=st.sampled_from([1e-5, 0.3, 50.0]),
)
def test_any_history_of_grid_points_ends_as_a_fit(
    rows: list[int], moves: list[tuple[bool, int]], C: float, gamma: float
) -> None:
    """Points of a grid, many of them equal, come and go in any order."""
    points = np.array([[i % 4, i // 4] for i in range(12)], dtype=np.float64)
    svm = OneClassSVM(gamma=gamma, C=C).fit(points[rows])
    left = list(rows)
    for learning, number in moves:
        if learning or not left:
            svm.learn(points[[number % 12]])
            left.append(number % 12)
        else:
            svm.unlearn(number % len(left))
            del left[number % len(left)]
    order = np.argsort(left, kind="stable")[::-1]
    fresh = OneClassSVM(gamma=gamma, C=C).fit(points[left][order])
    assert same(svm, fresh, order)


@pytest.mark.parametrize("C", [1.0, 1 / 40])
@pytest.mark.parametrize("width", [0.02, 0.3, 3.0])
def test_walks_of_many_rows_seldom_need_the_net(C: float, width: float) -> None:
    """120 rows: single rows and blocks leave and come along the path alone."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(120, 5))
    svm = OneClassSVM(gamma=width, C=C).fit(X)
    rows = list(range(120))
    for turn in range(30):
        places = rng.permutation(len(rows))[: 1 if turn % 3 else 5].tolist()
        back = [rows[place] for place in places]
        svm.unlearn(places)
        rows = [r for p, r in enumerate(rows) if p not in places]
        assert same(svm, OneClassSVM(width, C).fit(X[rows]), slice(None))
        svm.learn(X[back])
        rows += back
    assert same(svm, OneClassSVM(width, C).fit(X[rows]), slice(None))
    assert svm.rescues_ <= 2


def test_forgetting_all_rows_one_by_one_passes_through_every_state() -> None:
    """From a full set through empty margins and the warm-up to nothing, and back."""
    for name, X, gamma in regimes(9):
        for C in (1.0, 0.25):
            svm = OneClassSVM(gamma=gamma, C=C).fit(X)
            for left in range(len(X) - 1, -1, -1):
                svm.unlearn(left // 2)
                assert svm.n_samples == left, name
            assert (svm.rho_, svm.weights_.tolist()) == (1.0, [])
            svm.learn(X)
            assert same(svm, OneClassSVM(gamma, C).fit(X), slice(None))


@pytest.mark.parametrize("C", [1.0, 1 / 20])
def test_a_block_leaves_along_one_walk(C: float) -> None:
    """Twelve rows of sixty, from all three sets, shrink together."""
    X = np.random.default_rng(14).normal(size=(60, 4))
    for gamma in (0.3, 2.0):
        svm = OneClassSVM(gamma=gamma, C=C).fit(X).unlearn(range(12))
        assert same(svm, OneClassSVM(gamma=gamma, C=C).fit(X[12:]), slice(None))
        assert svm.rescues_ == 0


@pytest.mark.parametrize("C", [1.0, 0.15])
def test_the_linear_kernel_has_no_history_either(C: float) -> None:
    """Inner products in place of the RBF kernel, and the same promise."""
    X = np.random.default_rng(13).normal(size=(24, 30)) / 5
    svm = OneClassSVM(C=C, kernel="linear").fit(X[:20]).learn(X[20:]).unlearn([2, 5])
    keep = np.delete(np.arange(24), [2, 5])
    order = keep[::-1]
    fresh = OneClassSVM(C=C, kernel="linear").fit(X[order])
    assert same(svm, fresh, np.arange(22)[::-1])
    assert np.array_equal(svm.score_samples(X), fresh.score_samples(X))


@pytest.mark.parametrize("C", [1.0, 0.5, 1 / 3, 0.3])
def test_rows_in_special_position_have_no_history(C: float) -> None:
    """Integer rows under the linear kernel: coefficients down to ridge**3, and ties.

    Every number is that of the rational optimum, rounded once, however it is reached.
    """
    rng = np.random.default_rng(17)
    for _ in range(60):
        rows, columns = int(rng.integers(4, 9)), int(rng.integers(1, 4))
        X = rng.integers(-1, 2, size=(rows, columns)).astype(np.float64)
        X[rng.integers(rows)] = 0.0
        truth = solve_exactly(X @ X.T, 1e-8, Box(C).exact)
        alpha = np.array([float(a) if a > 2**-80 * C else 0.0 for a in truth.alpha])
        for turn in range(3):
            order = rng.permutation(rows)
            svm = OneClassSVM(C=C, kernel="linear").fit(X[order[: 1 + turn]])
            for row in order[1 + turn :]:
                svm.learn(X[[row]])
            svm.learn(rng.integers(-1, 2, size=(2, columns)))
            svm.unlearn(rows).unlearn(rows)
            assert np.array_equal(svm.dual_coef_, alpha[order])
            assert svm.rho_ == float(truth.rho)


@pytest.mark.parametrize("scale", [2.0**-200, 1e-30, 1.0, 1e20, 2.0**200])
@pytest.mark.parametrize("ridge", [0.0, 1e-8, 1e30])
def test_the_linear_kernel_has_any_scale(scale: float, ridge: float) -> None:
    """A badly scaled problem is divided by a power of 2, which changes no bit."""
    X = np.random.default_rng(15).normal(size=(14, 20))
    svm = OneClassSVM(C=0.2, ridge=ridge, kernel="linear").fit(X[:10] * scale)
    svm.learn(X[10:] * scale).unlearn([0, 4])
    fresh = OneClassSVM(C=0.2, ridge=ridge, kernel="linear").fit(svm.X_[::-1])
    assert same(svm, fresh, slice(None, None, -1))
    if ridge == 0.0 and scale * 2.0 ** round(-np.log2(scale)) == 1.0:
        plain = OneClassSVM(C=0.2, ridge=ridge, kernel="linear").fit(svm.X_ / scale)
        assert np.array_equal(plain.dual_coef_, svm.dual_coef_)
        assert svm.rho_ == plain.rho_ * scale**2
    stated = svm.certificate()
    assert stated.duality_gap < 1e-10 * svm.rho_
    outside = solution_certificate(
        svm.X_, svm.dual_coef_, C=0.2, ridge=ridge, kernel="linear"
    )
    assert stated == outside
    solution = fit_many([svm.X_], C=0.2, ridge=ridge, kernel="linear")[0]
    assert np.array_equal(solution.dual_coef, svm.dual_coef_)


def test_the_scale_follows_rows_of_another_length() -> None:
    """Rows far longer or shorter than the others may come and go."""
    X = np.random.default_rng(16).normal(size=(12, 20))
    svm = OneClassSVM(kernel="linear").fit(X[:8])
    for factor in (1e40, 1e-40):
        svm.learn(factor * X[8:])
        fresh = OneClassSVM(kernel="linear").fit(svm.X_[::-1])
        assert same(svm, fresh, slice(None, None, -1))
        svm.unlearn(range(8, 12))
        assert same(svm, OneClassSVM(kernel="linear").fit(X[:8]), slice(None))
    svm.learn(1e40 * X[8:]).unlearn(range(8))
    assert same(svm, OneClassSVM(kernel="linear").fit(1e40 * X[8:]), slice(None))


def test_rows_of_zeros_have_a_solution_under_the_linear_kernel() -> None:
    """Even without a ridge, where nothing singles out an optimum."""
    svm = OneClassSVM(C=0.4, ridge=0.0, kernel="linear").fit(np.zeros((4, 2)))
    assert svm.dual_coef_.tolist() == [0.25] * 4
    assert svm.unlearn(0).dual_coef_.tolist() == [1 / 3] * 3


def test_a_reserve_row_leaves_without_moving_anything() -> None:
    """What had no part in the optimum leaves it as it was."""
    X = np.vstack([np.random.default_rng(10).normal(size=(30, 3)), np.zeros((1, 3))])
    svm = OneClassSVM(gamma=0.05).fit(X)
    assert 30 in svm.reserve_
    before = svm.dual_coef_[:30]
    svm.unlearn(30)
    assert np.array_equal(svm.dual_coef_, before)
    assert np.array_equal(svm.learn(X[30:]).dual_coef_[:30], before)
    assert svm.rescues_ == 0


def test_nothing_of_an_unlearned_row_stays_in_memory() -> None:
    """Neither the row nor its kernel values are left in any array."""
    X = np.random.default_rng(11).normal(size=(20, 3))
    svm = OneClassSVM(gamma=0.2).fit(X)
    gone = 7
    values = np.delete(np.exp(-0.2 * ((X - X[gone]) ** 2).sum(axis=1)), gone)
    svm.unlearn(gone)
    samples = svm._maintained.samples
    assert not np.isin(samples.X, X[gone]).any()
    assert not np.isin(samples.K, values[values < 1.0]).any()
    svm.learn(X[:1])
    assert samples.capacity == 20


def test_slots_are_enlarged_when_rows_keep_coming() -> None:
    """Rows beyond the room of the first fit are taken in one at a time."""
    X = np.random.default_rng(12).normal(size=(60, 3))
    svm = OneClassSVM(gamma=0.2).fit(X[:3])
    for row in range(3, 60):
        svm.learn(X[row : row + 1])
    assert isinstance(svm._maintained, Maintained)
    assert same(svm, OneClassSVM(gamma=0.2).fit(X), slice(None))


LOST: list[tuple[str, dict[str, Any], list[list[float]]]] = [
    ("copies of long rows", {"C": 0.5}, [[721, 818, 874]] * 3 + [[551, -875, 613]]),
    ("copies, C just above 1/n", {"C": 0.25 * (1 + 1e-15), "ridge": 1e-12}, [[0]] * 4),
    ("two pairs", {"C": 2.0, "ridge": 1e-12}, [[1], [-2], [-1], [-1], [-2], [-1]]),
    ("zeros and long copies", {"ridge": 1e-6}, [[0.0]] * 4 + [[-1e8]] * 3),
    ("far beyond the ridge", {"C": 0.3, "ridge": 1e-12}, [[1e60], [1e60], [3e60]] * 2),
]


@pytest.mark.parametrize(("name", "settings", "rows"), LOST)
def test_copies_share_alike_where_the_ridge_is_nearly_lost(
    name: str, settings: dict[str, Any], rows: list[list[float]]
) -> None:
    """No order of the rows shows, and equal rows have equal coefficients."""
    X = np.array(rows, dtype=np.float64)
    rng = np.random.default_rng(18)
    first = OneClassSVM(kernel="linear", **settings).fit(X)
    for row in X:
        own = first.dual_coef_[(row == X).all(axis=1)]
        assert (own == own[0]).all(), name
    for _ in range(10):
        order = rng.permutation(len(X))
        svm = OneClassSVM(kernel="linear", **settings).fit(X[order[:2]])
        svm.learn(X[order[2:]])
        assert same(first, svm, order), name


@pytest.mark.parametrize("length", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("ridge", [1e-8, 1e-6, 1e-2])
def test_rows_far_longer_than_the_others_leave_no_trace(
    length: float, ridge: float
) -> None:
    """While they are there the ridge is lost, and the problem has another scale."""
    rng = np.random.default_rng(19)
    for _ in range(20):
        X = np.round(rng.normal(size=(int(rng.integers(2, 7)), 2)), 1)
        guests = np.round(rng.normal(size=(2, 2)), 1) * length
        fresh = OneClassSVM(C=0.5, ridge=ridge, kernel="linear").fit(X)
        svm = OneClassSVM(C=0.5, ridge=ridge, kernel="linear")
        svm.fit(np.vstack([X, guests])).unlearn([len(X), len(X) + 1])
        assert same(svm, fresh, slice(None))
        assert same(svm.learn(guests).unlearn([len(X), len(X) + 1]), fresh, slice(None))
