"""A memory that is pooled over many sources: does one leave something behind?"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

#: Rows x become the unit vectors (s x, sqrt(1 - s**2 |x|**2)), whose distances are s
#: times those of the rows, nearly.
LIFT = 0.02
#: Squared distance, in that of the rows, from which on rows are not linked.
LINKED = 0.2


class Pool:
    """Rows of many sources as records of unit vectors."""

    def __init__(self, sources: list[np.ndarray], gamma: float) -> None:
        X = np.vstack(sources)
        last = np.sqrt(1.0 - LIFT**2 * (X**2).sum(axis=1, keepdims=True))
        self.U = np.hstack([LIFT * X, last]).astype(np.float32).astype(np.float64)
        lengths = [len(rows) for rows in sources]
        self.source = np.repeat(np.arange(len(sources)), lengths)
        self.names = [f"source-{number}" for number in self.source]
        self.ids = [
            f"source-{number}-{row:02d}"
            for number, length in enumerate(lengths)
            for row in range(length)
        ]
        self.gamma = gamma / LIFT**2

    def memory(self, rows: np.ndarray) -> Any:
        """A memory of some rows, added in this order."""
        from forgetmem import ForgettableMemory

        cosine = 1.0 - LINKED * LIFT**2 / 2.0
        memory = ForgettableMemory(gamma=self.gamma, link=cosine, alike=cosine)
        self.add(memory, rows)
        return memory

    def add(self, memory: Any, rows: np.ndarray) -> None:
        """Add rows to a memory."""
        ids, names = [self.ids[r] for r in rows], [self.names[r] for r in rows]
        memory.add(ids, ids=ids, source_ids=names, embeddings=self.U[rows])

    def read(self, memory: Any, rows: np.ndarray) -> tuple[np.ndarray, list[bytes]]:
        """What a memory says at the rows: values, and the bits of all it says."""
        found = [memory.read(self.U[row], 0) for row in rows]
        bits = [one.value.tobytes() + bytes(np.float64(one.novelty)) for one in found]
        return np.array([one.value for one in found]), bits

    def read_masked(self, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """What a memory says that keeps the weights of these rows as they are."""
        kept, own = rows[weights > 0.0], weights[weights > 0.0]
        out = []
        for row in rows:
            D = ((self.U[kept] - self.U[row]) ** 2).sum(axis=1)
            masses = own * np.exp(-self.gamma * (D - D.min()))
            out.append(masses @ self.U[kept] / masses.sum())
        return np.array(out)

    @staticmethod
    def difference(values: np.ndarray, truth: np.ndarray) -> np.ndarray:
        """The largest difference of any coordinate, in units of the rows."""
        return np.asarray(np.abs(values - truth)[:, :-1].max(axis=1) / LIFT)


def deletion(
    sources: list[np.ndarray], gamma: float, removed: int, seed: int
) -> dict[str, Any]:
    """Forget sources one by one, each from the full memory."""
    pool, rng = Pool(sources, gamma), np.random.default_rng(seed)
    every = np.arange(len(pool.ids))
    memory = pool.memory(every)
    start = memory.digest()
    counts = dict.fromkeys(
        ("ours: queries that differ", "digests as if never held", "proofs verified"), 0
    )
    ours, masked, times = [], [], []
    for number in range(removed):
        left, gone = every[pool.source != number], every[pool.source == number]
        records = memory.get([pool.ids[row] for row in left])
        weights = np.array([record.weight for record in records])
        begin = time.perf_counter()
        proof = memory.forget(source_id=pool.names[gone[0]])
        times.append(time.perf_counter() - begin)
        counts["proofs verified"] += memory.verify(proof).ok
        never = pool.memory(rng.permutation(left))
        counts["digests as if never held"] += memory.digest() == never.digest()
        values, bits = pool.read(memory, left)
        truth, others = pool.read(never, left)
        counts["ours: queries that differ"] += sum(
            a != b for a, b in zip(bits, others, strict=True)
        )
        ours.append(pool.difference(values, truth))
        masked.append(pool.difference(pool.read_masked(weights, left), truth))
        pool.add(memory, gone)
        if memory.digest() != start:
            raise AssertionError("the memory is not what it was before")
    return {
        "pool": len(sources),
        "hours": len(every),
        "support": memory.stats()["support"],
        "removed": removed,
        "queries": sum(map(len, ours)),
        **counts,
        **spread("ours", np.concatenate(ours)),
        **spread("masked", np.concatenate(masked)),
        "masked: queries that differ": int((np.concatenate(masked) > 1e-6).sum()),
        "forget, ms": 1e3 * float(np.median(times)),
    }


def spread(name: str, differences: np.ndarray) -> dict[str, float]:
    """Mean and largest."""
    return {
        f"{name}: mean difference": float(differences.mean()),
        f"{name}: largest difference": float(differences.max()),
    }
