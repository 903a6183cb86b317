"""Vectors with their grouping and weights, outside a memory."""

from __future__ import annotations

import hashlib

import numpy as np

from forgetmem.groups import Grouping, GroupWeights, KeyTable, as_keys
from forgetmem.index import VectorTable


def key_of(vector: np.ndarray) -> bytes:
    """Return a uniform key of a vector."""
    return hashlib.sha256(vector.tobytes()).digest()[:16]


def clustered(
    n_clusters: int, size: int, d: int, noise: float, seed: int
) -> np.ndarray:
    """Make unit vectors in clusters, and as many single ones as clusters."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.standard_normal((n_clusters, d)), size, axis=0)
    X = X + noise * rng.standard_normal(X.shape)
    X = np.concatenate([X, rng.standard_normal((n_clusters, d))])
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


class Groups:
    """Vectors with their grouping and weights, changed step by step."""

    def __init__(
        self, d: int, link: float = 0.9, max_group: int | None = 512, C: float = 1.0
    ) -> None:
        self.table = VectorTable(d)
        self.keys = KeyTable()
        self.grouping = Grouping(self.table, self.keys, link, max_group)
        self.weights = GroupWeights(self.table, 8.0, C, 1e-8)

    def add(self, vectors: np.ndarray) -> np.ndarray:
        """Add vectors and solve what changed."""
        rows = self.table.add(vectors)
        self.keys.put(rows, [key_of(vector) for vector in vectors])
        self.weights.solve(self.grouping.add(rows)[0])
        return rows

    def remove(self, rows: np.ndarray) -> None:
        """Remove rows and solve what changed."""
        changed, _ = self.grouping.remove(rows)
        self.weights.clear(rows)
        self.table.remove(rows)
        self.keys.remove(rows)
        self.weights.solve(changed)

    def state(self) -> dict[bytes, tuple[object, ...]]:
        """Return labels, group, weight and role by key."""
        return {
            self.keys.key(row): (
                *(as_keys(one) for one in self.grouping.labels(np.array([row]))),
                sorted(self.keys.key(other) for other in self.grouping.group(row)),
                float(self.weights.weight[row]),
                int(self.weights.role[row]),
            )
            for row in self.table.rows.tolist()
        }
