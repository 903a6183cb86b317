"""Paired bootstrap intervals of a mean difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

RESAMPLES = 10_000


def paired(
    ours: Sequence[float], theirs: Sequence[float], seed: int = 0
) -> dict[str, Any]:
    """Return the mean of the pairs' differences and its 95 % percentile interval.

    Resampled are the pairs, each with both of its values.
    """
    difference = np.asarray(ours, dtype=np.float64) - np.asarray(theirs)
    rng, means = np.random.default_rng(seed), []
    for _ in range(RESAMPLES // 100):
        rows = rng.integers(len(difference), size=(100, len(difference)))
        means.append(difference[rows].mean(axis=1))
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return {"difference": float(difference.mean()), "interval": [low, high]}


def shown(found: dict[str, Any], digits: int = 3) -> str:
    """Return such a result for a table: the difference with its interval."""
    low, high = found["interval"]
    return f"{found['difference']:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
