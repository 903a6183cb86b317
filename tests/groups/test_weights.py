"""Every group's weights are certified, whatever was added and removed before."""

from __future__ import annotations

import numpy as np
import pytest
from grouped import Groups


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("C", [1.0, 0.05])
def test_certificates_hold_along_a_walk(seed: int, C: float) -> None:
    """Sizes below and above the kept solvers; residuals near 1e-16, bounds small."""
    rng = np.random.default_rng(seed)
    centres = np.repeat(rng.standard_normal((6, 24)), [5, 20, 47, 50, 90, 120], axis=0)
    X = centres + 0.25 * rng.standard_normal(centres.shape)
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    groups = Groups(24, link=0.75, C=C)
    for part in np.array_split(rng.permutation(len(X)), 12):
        groups.add(X[part])
    for _ in range(12):
        groups.remove(rng.choice(groups.table.rows, 3, replace=False))
        certificates = groups.weights.certificates(groups.grouping.groups())
        assert certificates
        assert max(c.kkt_residual for c in certificates) < 1e-14
        assert max(c.sharp_bound for c in certificates) < 1e-9


def test_kept_solvers_are_bounded() -> None:
    """No more than so many squared rows are kept over all solvers."""
    from forgetmem.groups import weights

    rng = np.random.default_rng(0)
    groups = Groups(8, link=0.9)
    for centre in rng.standard_normal((30, 8)):
        X = centre + 0.05 * rng.standard_normal((400, 8))
        X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
        groups.add(X)
    kept = [len(order) ** 2 for _, order in groups.weights._kept.values()]
    assert sum(kept) <= weights._KEPT_SQUARES
    assert kept
