"""Many copies, long chains and one large component: right, and bounded in memory."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import psutil
import pytest
from toy import WordEmbedder

from forgetmem import ForgettableMemory


def near_copies(n: int, d: int = 32) -> np.ndarray:
    """Make vectors that are all look-alikes of one another."""
    rng = np.random.default_rng(0)
    return rng.standard_normal(d) + 0.08 * rng.standard_normal((n, d))


def chain(n: int) -> np.ndarray:
    """Make vectors of which only neighbours are linked."""
    angles = np.arange(n) * 2e-3
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def scattered(n: int, d: int = 32) -> np.ndarray:
    """Make vectors that nothing links."""
    return np.random.default_rng(0).standard_normal((n, d))


def check(X: np.ndarray, limit_mib: float, **options: Any) -> None:
    """Add in bulk, forget and add singly, and compare with a fresh memory."""
    before = psutil.Process().memory_info().rss
    ids = [f"r{row:05d}" for row in range(len(X))]
    memory = ForgettableMemory(embedder=WordEmbedder(X.shape[1]), **options)
    start = time.perf_counter()
    memory.add([f"line {id}" for id in ids], ids=ids, embeddings=X)
    added = time.perf_counter() - start
    gone = ids[1 :: max(1, len(ids) // 8)]
    start = time.perf_counter()
    for id in gone[:4]:
        memory.forget(id)
    forgot = (time.perf_counter() - start) / 4
    proof = memory.forget(gone[4:])
    memory.add(["once more"], ids=[gone[0]], embeddings=X[[ids.index(gone[0])]])
    grown = (psutil.Process().memory_info().rss - before) / 2**20
    print(f"{len(X)}: add {added:.2f} s, forget {forgot:.3f} s, {grown:.0f} MiB")
    assert memory.verify(proof).ok
    assert grown < limit_mib
    left = memory.ids()
    fresh = ForgettableMemory(embedder=WordEmbedder(X.shape[1]), **options)
    order = np.random.default_rng(1).permutation(len(left)).tolist()
    rows = [int(left[at][1:]) for at in order]
    texts = ["once more" if left[at] == gone[0] else f"line {left[at]}" for at in order]
    fresh.add(texts, ids=[left[at] for at in order], embeddings=X[rows])
    assert fresh.digest() == memory.digest()
    for q in (X[0], X[-1], -X[0]):
        assert fresh.search(q, 20) == memory.search(q, 20)
        assert fresh.read(q) == memory.read(q)


@pytest.mark.parametrize("n", [400, 2000, pytest.param(5000, marks=pytest.mark.slow)])
def test_near_copies(n: int) -> None:
    """One dense component, divided by its keys beyond 512."""
    check(near_copies(n), 700)


def test_identical_lines() -> None:
    """Twenty thousand records with one vector are one row of the solver."""
    memory = ForgettableMemory(embedder=WordEmbedder())
    ids = [f"l{row:05d}" for row in range(20_000)]
    memory.add(["the same line"] * 20_000, ids=ids, embeddings=np.ones((20_000, 16)))
    stats = memory.stats()
    assert (stats["records"], stats["vectors"], stats["groups"]) == (20_000, 1, 0)
    hit = memory.search(np.ones(16), 3)[0]
    assert (hit.id, hit.n_same, len(hit.same)) == ("l00000", 19_999, 20)
    proof = memory.forget(ids[:5])
    assert {one.survivors for one in proof.commitments if one.kind == "text"} == {
        19_995
    }
    assert memory.search(np.ones(16), 1)[0].id == "l00005"
    assert memory.verify(proof).ok


@pytest.mark.parametrize("n", [1500, pytest.param(6000, marks=pytest.mark.slow)])
def test_long_chain(n: int) -> None:
    """A component of neighbours only, cut and joined again."""
    check(chain(n), 500, link=float(np.cos(3e-3)), alike=0.9999999)


@pytest.mark.parametrize("n", [1500, pytest.param(20_000, marks=pytest.mark.slow)])
def test_everything_in_one_component(n: int) -> None:
    """With link=-1 all vectors are one component, divided by their keys."""
    check(scattered(n), 1500, link=-1.0)
