"""The mean of a readout is that of integers: exact, in any order of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from forgetmem import answers

SCALE = 2**62


@pytest.mark.parametrize("kind", ["even", "steep", "one", "signed"])
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_mean_is_a_sum_of_integers(
    kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every product is rounded to even and added, as Python's integers would."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((200, 9)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[:3] = np.eye(9, dtype=np.float32)[:3] * (-1.0 if kind == "signed" else 1.0)
    rows = rng.permutation(200)[:150]
    masses = {
        "even": np.ones(150),
        "steep": 10.0 ** -rng.integers(0, 40, 150),
        "one": np.eye(150)[0],
        "signed": rng.random(150),
    }[kind]
    masses /= masses.sum()
    truth = [
        sum(
            int(np.rint(mass * float(SCALE) * float(X[row, column])))
            for row, mass in zip(rows, masses, strict=True)
        )
        for column in range(9)
    ]
    monkeypatch.setattr(answers, "_EXACT", block)
    plain = getattr(answers._mean, "py_func", answers._mean)
    for mean in (plain, answers._mean):
        found = mean(X, rows, masses)
        order = rng.permutation(150)
        assert found.tolist() == [float(one) / SCALE for one in truth]
        assert mean(X, rows[order], masses[order]).tobytes() == found.tobytes()
