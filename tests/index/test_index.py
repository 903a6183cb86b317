"""FAISS and the scan propose what exhaustive float64 search finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forgetmem.distances import dots
from forgetmem.index import FlatIndex, ScanIndex, VectorTable, float32_error
from forgetmem.index.faiss_proposals import propose


def _table(n: int, d: int, seed: int = 0) -> tuple[VectorTable, np.ndarray]:
    X = np.random.default_rng(seed).standard_normal((n, d))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    table = VectorTable(d)
    table.add(X)
    return table, X


def test_removed_rows_are_overwritten_and_used_again() -> None:
    """No byte of a removed vector stays in the resident arrays, nor of its codes."""
    table, X = _table(100, 8)
    table.remove(np.array([3, 5]))
    codes, _, errors = table.coded
    for array in (table.X, codes, errors):
        assert not array[[3, 5]].any()
    assert len(table) == 98
    assert set(table.add(X[:2]).tolist()) == {3, 5}
    assert np.array_equal(table.X[table.rows[[3, 5]]], X[:2][::-1])
    for array in (codes, errors):
        assert np.array_equal(array[[3, 5]], array[:2][::-1])


def test_growing_overwrites_the_old_arrays() -> None:
    """When the arrays grow, those that are released hold zeros."""
    table, _ = _table(64, 8)
    old, index = table._arrays(), table.index  # the codes are the index's memory
    table.add(np.ones((200, 8), dtype=np.float32))
    assert table._data is not old[0]
    assert table.index is not index
    assert not any(array.any() for array in old)


def test_wipe_leaves_nothing() -> None:
    """After a wipe there are no rows and no bytes."""
    table, _ = _table(10, 8)
    arrays, _index = table._arrays(), table.index
    table.wipe()
    assert not any(array.any() for array in arrays)
    assert len(table) == 0


def _check_candidates(
    table: VectorTable, q: np.ndarray, count: int, among: np.ndarray | None = None
) -> None:
    chosen = table.alive if among is None else among
    cosines = dots(table.X, q)
    for index in (FlatIndex(table), ScanIndex(table)):
        found = index.search(q, count, among)
        proposed = np.zeros(len(table.X), dtype=np.bool_)
        proposed[found.rows] = True
        assert proposed.sum() == len(found.rows) >= min(count, chosen.sum())
        assert not (proposed & ~chosen).any()
        assert (cosines[chosen & ~proposed] <= found.bound).all()
        if chosen.sum() <= count:
            assert found.bound == -np.inf


@pytest.mark.parametrize("removed", [0, 150])
@pytest.mark.parametrize("count", [1, 7, 50, 400])
def test_candidates_hold_the_true_top(count: int, removed: int) -> None:
    """Every row above the bound is proposed, with and without a choice of rows."""
    table, X = _table(300, 24)
    table.remove(np.arange(removed))
    _check_candidates(table, X[200], count)
    _check_candidates(table, X[200], count, table.alive & (np.arange(300) % 3 == 0))
    _check_candidates(table, X[200], count, np.zeros(300, dtype=np.bool_))


@settings(max_examples=60, deadline=None)
@given(
    d=st.sampled_from([1, 2, 15, 16, 33, 384, 1500]),
    spread=st.sampled_from([0.0, 1e-6, 1e-3, 0.1, 10.0]),
    spike=st.sampled_from([0.0, 1.0, 50.0]),
    count=st.integers(1, 60),
    seed=st.integers(0, 2**16),
)
def test_candidates_of_any_shape(
    d: int, spread: float, spike: float, count: int, seed: int
) -> None:
    """Near-copies, spikes, zero rows and any dimension keep the bound true."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal(d) + spread * rng.standard_normal((120, d))
    X[:, 0] += spike
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[7] = 0.0
    X[8] *= 1e-30
    table = VectorTable(d)
    table.add(X.astype(np.float32))
    for q in (table.X[0], -table.X[1], table.X[7], table.X[8]):
        _check_candidates(table, q.copy(), count)


@pytest.mark.parametrize("removed", [0, 700])
def test_faiss_proposes_the_top_of_a_whole_table(removed: int) -> None:
    """One search of its own settles it; removed rows are not proposed."""
    table, X = _table(3000, 64)
    table.remove(np.arange(removed))
    found = propose(table, X[1000], 10)
    assert found is not None
    assert 10 <= len(found.rows) < 300
    assert table.alive[found.rows].all()
    others = np.setdiff1d(table.rows, found.rows)
    assert dots(table.X[others], X[1000]).max() <= found.bound
    assert 1000 in found.rows


def test_faiss_is_not_trusted_where_codes_cannot_tell() -> None:
    """Of a thousand copies no few can be told to be the best."""
    table, X = _table(1, 64)
    table.add(np.repeat(X, 999, axis=0))
    assert propose(table, X[0], 10) is None


def test_candidates_of_near_copies_are_few() -> None:
    """Where the codes cannot tell rows apart, float32 does."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal(384) + 0.05 * rng.standard_normal((4000, 384))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    table = VectorTable(384)
    table.add(X)
    _check_candidates(table, X[0], 10)
    assert len(ScanIndex(table).search(X[0], 10).rows) < 400


def test_reach_is_exact_at_the_threshold() -> None:
    """A pair whose cosine is the threshold itself is decided by an exact sum."""
    table = VectorTable(2)
    rows = table.add(np.array([[0.6, 0.8], [0.8, 0.6], [1.0, 0.0]], dtype=np.float32))
    q = np.array([1.0, 0.0], dtype=np.float32)
    threshold = float(np.float32(0.8))
    reached = ScanIndex(table).reach(rows, q, threshold)
    assert reached.tolist() == [False, True, True]
    above = float(np.nextafter(threshold, 1.0))
    assert ScanIndex(table).reach(rows, q, above).tolist() == [False, False, True]


@pytest.mark.parametrize("threshold", [-1.0, -0.2, 0.1, 0.5, 1.1])
def test_within_is_exact(threshold: float) -> None:
    """Both indexes find the same rows at any threshold; -1 means all."""
    table, X = _table(200, 16)
    table.remove(np.arange(0, 200, 3))
    for q in X[:10]:
        flat = FlatIndex(table).within(q, threshold).tolist()
        assert ScanIndex(table).within(q, threshold).tolist() == flat
    if threshold == -1.0:
        assert flat == table.rows.tolist()


@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("threshold", [-1.0, 0.2, 0.95])
def test_near_rows_of_several_heads_are_exact(
    threshold: float, scattered: bool
) -> None:
    """As `within` finds them, without the head; the nearest of them are named."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((40, 24)), 20, axis=0)
    X += 0.1 * rng.standard_normal(X.shape)
    X[5:8] = X[4]
    table = VectorTable(24)
    table.add((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32))
    rows = table.rows[::2] if scattered else table.rows
    heads = rng.permutation(800)[:90]
    index = ScanIndex(table)
    for head, near in zip(heads, index.near(rows, heads, threshold, 7), strict=True):
        expected = np.intersect1d(index.within(table.X[head], threshold), rows)
        expected = expected[expected != head]
        assert near.rows.tolist() == expected.tolist()
        cosines = dots(table.X[expected], table.X[head])
        best = expected[np.argsort(-cosines, kind="stable")[:7]]
        assert set(best.tolist()) <= set(near.closest.tolist()) <= set(expected)


def test_scan_answers_for_growing_counts() -> None:
    """What was tightened for a few candidates stays right for more."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal(64) + 0.3 * rng.standard_normal((3000, 64))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    table = VectorTable(64)
    table.add(X)
    scan, cosines = ScanIndex(table).scan(X[0]), dots(X, X[0])
    for count in (1, 10, 100, 1000, 2999, 3000):
        found = scan.best(count)
        others = np.setdiff1d(table.rows, found.rows)
        assert len(found.rows) >= count
        assert (cosines[others] <= found.bound).all()


def test_empty_table_has_no_candidates() -> None:
    """Nothing is proposed where nothing is."""
    found = ScanIndex(VectorTable(4)).search(np.ones(4, dtype=np.float32), 3)
    assert len(found.rows) == 0
    assert found.bound == -np.inf


def test_float32_error_bounds_the_error() -> None:
    """The declared bound exceeds what float32 products of unit vectors err by."""
    _, X = _table(500, 384)
    wide = X.astype(np.float64) @ X[0].astype(np.float64)
    assert np.abs(X @ X[0] - wide).max() < float32_error(384)
