"""FAISS proposes what exhaustive float64 search finds."""

from __future__ import annotations

import numpy as np
import pytest

from forgetmem.index import FaissIndex, FlatIndex, VectorTable, float32_error


def _table(n: int, d: int, seed: int = 0) -> tuple[VectorTable, np.ndarray]:
    X = np.random.default_rng(seed).standard_normal((n, d))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    table = VectorTable(d)
    table.add(X)
    return table, X


def test_removed_rows_are_overwritten_and_used_again() -> None:
    """No byte of a removed vector stays in the resident array."""
    table, X = _table(100, 8)
    table.remove(np.array([3, 5]))
    assert not table.X[[3, 5]].any()
    assert len(table) == 98
    assert set(table.add(X[:2]).tolist()) == {3, 5}
    assert np.array_equal(table.X[table.rows[[3, 5]]], X[:2][::-1])


def test_growing_overwrites_the_old_array() -> None:
    """When the array grows, the one that is released holds zeros."""
    table, _ = _table(64, 8)
    old = table._data
    table.add(np.ones((200, 8), dtype=np.float32))
    assert table._data is not old
    assert not old.any()


def test_wipe_leaves_nothing() -> None:
    """After a wipe there are no rows and no bytes."""
    table, _ = _table(10, 8)
    data = table._data
    table.wipe()
    assert not data.any()
    assert len(table) == 0


@pytest.mark.parametrize("removed", [0, 150])
@pytest.mark.parametrize("count", [1, 7, 50, 400])
def test_candidates_hold_the_true_top(count: int, removed: int) -> None:
    """Every row above the bound is proposed, with its exact cosine."""
    table, X = _table(300, 24)
    table.remove(np.arange(removed))
    truth = FlatIndex(table).search(X[200], len(table))
    found = FaissIndex(table).search(X[200], count)
    above = truth.rows[truth.cosines > found.bound]
    assert set(above.tolist()) <= set(found.rows.tolist())
    exact = dict(zip(truth.rows.tolist(), truth.cosines.tolist(), strict=True))
    assert [exact[row] for row in found.rows.tolist()] == found.cosines.tolist()


def test_flat_bound_holds() -> None:
    """The exhaustive index states the next cosine as its bound."""
    table, X = _table(50, 8)
    part = FlatIndex(table).search(X[0], 10)
    whole = FlatIndex(table).search(X[0], 50)
    rest = np.setdiff1d(whole.rows, part.rows)
    values = dict(zip(whole.rows.tolist(), whole.cosines.tolist(), strict=True))
    assert max(values[row] for row in rest.tolist()) == part.bound


@pytest.mark.parametrize("threshold", [-1.0, -0.2, 0.1, 0.5, 1.1])
def test_within_is_exact(threshold: float) -> None:
    """Both indexes find the same rows at any threshold; -1 means all."""
    table, X = _table(200, 16)
    table.remove(np.arange(0, 200, 3))
    for q in X[:10]:
        flat = FlatIndex(table).within(q, threshold).tolist()
        assert FaissIndex(table).within(q, threshold).tolist() == flat
    if threshold == -1.0:
        assert flat == table.rows.tolist()


def test_empty_table_has_no_candidates() -> None:
    """Nothing is proposed where nothing is."""
    found = FaissIndex(VectorTable(4)).search(np.ones(4, dtype=np.float32), 3)
    assert len(found.rows) == 0
    assert found.bound == -np.inf


def test_float32_error_bounds_the_error() -> None:
    """The declared bound exceeds what float32 products of unit vectors err by."""
    _, X = _table(500, 384)
    wide = X.astype(np.float64) @ X[0].astype(np.float64)
    assert np.abs(X @ X[0] - wide).max() < float32_error(384)
