"""The grouping and the weights are functions of the set of vectors."""

from __future__ import annotations

import numpy as np
import pytest
from grouped import Groups, clustered, key_of

from forgetmem.groups import Role, components
from forgetmem.groups.components import Components
from forgetmem.groups.join import prefix_of
from forgetmem.index import VectorTable


def truth(X: np.ndarray, threshold: float) -> set[frozenset[int]]:
    """Find connected components by brute force."""
    cosines = X.astype(np.float64) @ X.T.astype(np.float64)
    label = list(range(len(X)))
    for a in range(len(X)):
        for b in range(a):
            if cosines[a, b] >= threshold and label[a] != label[b]:
                old, new = label[a], label[b]
                label = [new if one == old else one for one in label]
    return {
        frozenset(i for i, one in enumerate(label) if one == name)
        for name in set(label)
    }


CASES = [
    pytest.param(0.9, 512, 1.0, id="whole"),
    pytest.param(0.9, 8, 1.0, id="divided"),
    pytest.param(0.5, 20, 1.0, id="loose"),
    pytest.param(-1.0, None, 1.0, id="one group"),
    pytest.param(-1.0, 16, 1.0, id="one component, divided"),
    pytest.param(0.9, 512, 0.2, id="soft margin"),
]


@pytest.mark.parametrize(("link", "max_group", "C"), CASES)
def test_state_is_a_function_of_the_set(
    link: float, max_group: int | None, C: float
) -> None:
    """Any order of adding and removing ends in the state of a fresh build."""
    X = clustered(12, 12, 16, 0.15, 0)
    rng = np.random.default_rng(1)
    walked = Groups(16, link, max_group, C)
    for part in np.array_split(rng.permutation(len(X)), 23):
        walked.add(X[part])
    for part in np.array_split(rng.permutation(walked.table.rows)[:90], 25):
        walked.remove(part)
    survivors = walked.table.X[walked.table.rows]
    fresh = Groups(16, link, max_group, C)
    fresh.add(survivors[rng.permutation(len(survivors))])
    assert walked.state() == fresh.state()


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("chunks", [1, 40])
def test_components_match_brute_force(threshold: float, chunks: int) -> None:
    """Components are those of the graph of all pairs, in bulk and one by one."""
    X = clustered(6, 8, 8, 0.25, 3)
    table = VectorTable(8)
    components = Components(table, threshold)
    for part in np.array_split(X, chunks):
        if len(part):
            components.add(table.add(part))
    found = {frozenset(components.members(row).tolist()) for row in range(len(X))}
    assert found == truth(X, threshold)


@pytest.mark.parametrize("d", [64, 200])
def test_join_in_blocks_misses_no_link(d: int) -> None:
    """More rows than a block holds, of more coordinates than the prefix has."""
    assert prefix_of(d, 0.9) < d
    rng = np.random.default_rng(4)
    X = np.repeat(rng.standard_normal((700, d)), 2, axis=0)
    X[:500] += np.outer(np.arange(500) * 0.02, rng.standard_normal(d))
    X += 0.45 * rng.standard_normal(X.shape)  # twins at about the threshold
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    X = X[rng.permutation(len(X))]
    table = VectorTable(d)
    components = Components(table, 0.9)
    for part in (X[:1200], X[1200:]):
        components.add(table.add(part))
    found = {frozenset(components.members(row).tolist()) for row in range(len(X))}
    assert found == truth(X, 0.9)
    assert len(found) < len(X) - 50


def test_prefix_depends_on_dimension_and_threshold_alone() -> None:
    """About a fifth of 384 coordinates at 0.9; all of them where little is unlinked."""
    assert prefix_of(384, 0.9) == 81
    assert prefix_of(1536, 0.9) < 240
    assert prefix_of(8, 0.9) == prefix_of(8, -0.5) == 8
    assert prefix_of(384, 1.0) < prefix_of(384, 0.95) < prefix_of(384, 0.9)


def test_long_chain_splits_where_it_is_cut() -> None:
    """Removing a link of a chain leaves two components, also beyond the short way."""
    angles = np.arange(1500) * 0.004
    X = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    table = VectorTable(2)
    components = Components(table, float(np.cos(0.006)))
    components.add(table.add(X))
    assert len(components.members(0)) == 1500
    components.remove(np.array([700]))
    sizes = {len(components.members(0)), len(components.members(1400))}
    assert sizes == {700, 799}


def test_large_dense_component_stays_one() -> None:
    """Removing from a dense component walks a few members, and keeps it whole."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal(32) + 0.05 * rng.standard_normal((3000, 32))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    groups = Groups(32)
    groups.add(X)
    rows = groups.table.rows
    groups.remove(rows[:2])
    assert len(groups.grouping.components.members(5)) == 2998
    assert max(len(rows) for rows in groups.grouping.groups()) <= 512


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("walk", [1, 3, 1000])
def test_walked_components_match_brute_force(
    threshold: float, walk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing ends at the graph of what is left, however far a walk leads."""
    monkeypatch.setattr(components, "_SMALL", 2)
    monkeypatch.setattr(components, "_WALK", walk)
    X = clustered(8, 9, 8, 0.25, 4)
    table = VectorTable(8)
    found = Components(table, threshold)
    found.add(table.add(X))
    for gone in np.array_split(np.random.default_rng(2).permutation(len(X)), 18)[:15]:
        pieces = found.remove(gone)
        table.remove(gone)
        assert len({tuple(found.members(row)) for row in pieces}) == len(pieces)
        left = table.rows
        sets = {frozenset(found.members(row).tolist()) for row in left.tolist()}
        assert sets == {
            frozenset(left[list(one)].tolist()) for one in truth(X[left], threshold)
        }
        several = {frozenset(members.tolist()) for members in found.several()}
        assert several == {one for one in sets if len(one) > 1}


def test_restore_takes_over_what_was_stored() -> None:
    """Labels bring back the same groups without joining."""
    X = clustered(10, 10, 16, 0.15, 5)
    for max_group in (6, 512, None):
        first, second = Groups(16, 0.9, max_group), Groups(16, 0.9, max_group)
        rows = first.add(X)
        second.table.add(X)
        second.keys.put(rows, [key_of(x) for x in X])
        second.grouping.restore(rows, *first.grouping.labels(rows))
        second.weights.restore(rows, first.weights.weight, first.weights.role)
        assert second.state() == first.state()
        first.remove(rows[3:20])
        second.remove(rows[3:20])
        assert second.state() == first.state()


def test_single_vector_has_weight_one() -> None:
    """Nothing resembles it: its weight is 1 / (1 + ridge), on the margin."""
    groups = Groups(4)
    groups.add(np.eye(4, dtype=np.float32)[:1])
    assert groups.weights.weight[0] == 1.0 / (1.0 + 1e-8)
    assert groups.weights.role[0] == Role.MARGIN


def test_smoothed_weight_is_one_at_the_support() -> None:
    """By KKT each neighbourhood carries one unit, and reserve rows at least one."""
    X = clustered(5, 15, 12, 0.15, 7)
    groups = Groups(12)
    groups.add(X)
    checked = 0
    for rows in groups.grouping.groups():
        V = groups.table.X[rows].astype(np.float64)
        d2 = ((V[:, None] - V[None]) ** 2).sum(axis=2)
        smoothed = np.exp(-8.0 * d2) @ groups.weights.weight[rows]
        support = groups.weights.role[rows] != Role.RESERVE
        assert np.allclose(smoothed[support], 1.0, atol=1e-7)
        assert (smoothed[~support] >= 1.0 - 1e-12).all()
        checked += len(rows)
    assert checked >= 50
    assert (groups.weights.role == Role.RESERVE).any()


def test_exact_ties_at_the_threshold_are_decided_alike() -> None:
    """Pairs exactly at the threshold are all linked, in bulk and singly."""
    rng = np.random.default_rng(0)
    X = np.zeros((120, 8), dtype=np.float32)
    for row in X:
        row[rng.choice(8, 4, replace=False)] = rng.choice([-0.5, 0.5], 4)
    X = np.unique(X, axis=0)
    for threshold in (0.25, 0.5, 0.75):
        bulk, single = Groups(8, threshold), Groups(8, threshold)
        bulk.add(X)
        for x in X:
            single.add(x[np.newaxis])
        assert bulk.state() == single.state()
