"""Rules that keep some rows of many, at a budget: what a memory is compared with."""

from __future__ import annotations

import numpy as np


def squares(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs."""
    return np.asarray(((A[:, np.newaxis] - B) ** 2).sum(axis=-1))


def attention(queries: np.ndarray, rows: np.ndarray, gamma: float) -> np.ndarray:
    """Attention of each query to each row; the rows of the result sum to 1."""
    D = squares(queries, rows)
    K = np.exp(-gamma * (D - D.min(axis=1, keepdims=True)))
    return np.asarray(K / K.sum(axis=1, keepdims=True))


def random(rng: np.random.Generator, X: np.ndarray, budget: int) -> np.ndarray:
    """Keep any rows."""
    return rng.choice(len(X), size=budget, replace=False)


def recent(X: np.ndarray, budget: int) -> np.ndarray:
    """Keep the last rows."""
    return np.arange(len(X) - budget, len(X))


def heavy_hitters(
    X: np.ndarray, budget: int, queries: np.ndarray, gamma: float
) -> np.ndarray:
    """Keep the rows that the queries attend to most in total."""
    mass = attention(queries, X, gamma).sum(axis=0)
    return np.argsort(-mass, kind="stable")[:budget]


def h2o(X: np.ndarray, budget: int, gamma: float) -> np.ndarray:
    """Keep half recent rows, half heavy hitters, evicting while rows come.

    Each row attends to the rows that are kept when it comes.
    """
    kept: list[int] = []
    mass = np.zeros(len(X))
    for row in range(len(X)):
        kept.append(row)
        mass[kept] += attention(X[row : row + 1], X[kept], gamma)[0]
        if len(kept) > budget:
            older = kept[: len(kept) - budget // 2]
            kept.remove(min(older, key=lambda old: mass[old]))
    return np.array(kept)


def k_centre(X: np.ndarray, budget: int) -> np.ndarray:
    """Keep, greedily, the row that is farthest from those that are kept."""
    D = squares(X, X)
    kept, distance = [0], D[0].copy()
    while len(kept) < budget:
        kept.append(int(distance.argmax()))
        distance = np.minimum(distance, D[kept[-1]])
    return np.array(kept)


def deduplicated(X: np.ndarray, budget: int) -> np.ndarray:
    """Keep rows that are farther than a threshold from all that are kept.

    The threshold is chosen in hindsight: the largest at which the budget is used up.
    """
    D = squares(X, X)
    low, high = 0, len(levels := np.unique(D)) - 1
    best = np.arange(len(X))
    while low <= high:
        middle = (low + high) // 2
        kept = farther_than(D, levels[middle])
        if len(kept) >= budget:
            best, low = kept, middle + 1
        else:
            high = middle - 1
    return best[:budget]


def farther_than(D: np.ndarray, threshold: float) -> np.ndarray:
    """Keep rows in their order, each if no row that is kept is as near as that."""
    kept: list[int] = []
    for row in range(len(D)):
        if not kept or D[row, kept].min() > threshold:
            kept.append(row)
    return np.array(kept)
