"""Pruning changes no readout and no support hit, and says until when."""

from __future__ import annotations

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import ForgettableMemory, RecordNotFoundError


def redundant(
    n_clusters: int, size: int, d: int = 16, noise: float = 0.15, seed: int = 0
) -> np.ndarray:
    """Make unit-ish vectors in clusters of look-alikes, and single ones."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.standard_normal((n_clusters, d)), size, axis=0)
    X = X + noise * rng.standard_normal(X.shape)
    return np.concatenate([X, rng.standard_normal((n_clusters, d))])


def filled(X: np.ndarray, **options: object) -> ForgettableMemory:
    """Make a memory with one record a vector."""
    memory = ForgettableMemory(embedder=WordEmbedder(X.shape[1]), **options)
    ids = [f"r{row:04d}" for row in range(len(X))]
    memory.add([f"text {id}" for id in ids], ids=ids, embeddings=X)
    return memory


OPTIONS = [
    pytest.param({}, id="groups"),
    pytest.param({"max_group": 6}, id="divided"),
    pytest.param({"link": -1.0, "max_group": None, "gamma": 2.0}, id="one group"),
    pytest.param({"C": 0.3}, id="soft"),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_prune_keeps_readouts_and_support_hits(options: dict[str, object]) -> None:
    """Every readout and support hit is the same, bit for bit, before and after."""
    memory = filled(redundant(12, 14), **options)
    queries = np.random.default_rng(1).standard_normal((40, 16))
    support = memory.stats()["support"]
    before = [(memory.read(q), memory.search(q, 8)) for q in queries]
    certificates = memory.prune()
    assert sum(one.pruned for one in certificates) == 12 * 14 + 12 - len(memory)
    assert certificates
    assert memory.stats()["support"] == support
    for q, (read, hits) in zip(queries, before, strict=True):
        assert memory.read(q) == read
        again = memory.search(q, 8)
        assert [(h.id, h.score, h.mass, h.weight, h.role) for h in again] == [
            (h.id, h.score, h.mass, h.weight, h.role) for h in hits
        ]
    report = memory.audit()
    assert report.ok, report.reasons


def test_pruned_records_are_gone() -> None:
    """Their ids are unknown, and the state is that of the retained records alone."""
    X = redundant(6, 12)
    memory = filled(X)
    memory.prune()
    left = memory.ids()
    gone = sorted({f"r{row:04d}" for row in range(len(X))} - set(left))
    assert gone
    assert memory.get(gone) == []
    with pytest.raises(RecordNotFoundError):
        memory.forget(gone[0])
    fresh = ForgettableMemory(embedder=WordEmbedder(16))
    fresh.add(
        [f"text {id}" for id in left],
        ids=left,
        embeddings=X[[int(id[1:]) for id in left]],
    )
    assert fresh.digest() == memory.digest()
    assert memory.prune() == []


def test_compact_drops_the_certificates(tmp_path) -> None:
    """Reopened, a certificate is still there; compacted, it is not."""
    X = redundant(6, 12)
    path = tmp_path / "memory.forgetmem"
    with ForgettableMemory(path, embedder=WordEmbedder(16)) as memory:
        memory.add([f"t{row}" for row in range(len(X))], embeddings=X)
        made = memory.prune()
    with ForgettableMemory(path, embedder=WordEmbedder(16)) as memory:
        shown = memory.stats()["prune_certificates"]
        assert len(shown) == len(made)
        assert all(one["valid"] for one in shown)
        memory.compact()
        assert memory.stats()["prune_certificates"] == []


def _states(memory: ForgettableMemory) -> dict[str, tuple[float, str]]:
    return {
        record.id: (record.weight, record.role) for record in memory.get(memory.ids())
    }


@pytest.mark.parametrize("options", [*OPTIONS, pytest.param({"link": 0.6}, id="loose")])
@pytest.mark.parametrize("seed", range(12))
def test_horizon_is_never_wrongly_valid(options: dict[str, object], seed: int) -> None:
    """While every certificate is valid, the memory that kept all records agrees.

    A twin memory never prunes. Later additions and forgets are drawn near the pruned
    records, so that many of them would come back or be linked; in each step, if no
    certificate has expired, weights and roles of all common records must be equal
    and every pruned record must still be reserve in the twin.
    """
    rng = np.random.default_rng(seed)
    X = redundant(4, 12, d=8, seed=seed)
    twin, memory = filled(X, **options), filled(X, **options)
    memory.prune()
    pruned = sorted(set(twin.ids()) - set(memory.ids()))
    came_back = valid_steps = 0
    for step in range(14):
        scale = rng.choice([0.05, 0.3, 1.0])
        vector = X[rng.integers(len(X))] + scale * rng.standard_normal(8)
        for one in (twin, memory):
            one.add([f"new {step}"], ids=[f"n{step}"], embeddings=[vector])
        if step % 5 == 4:
            gone = str(rng.choice(memory.ids()))
            twin.forget(gone)
            memory.forget(gone)
        certificates = memory.stats()["prune_certificates"]
        full = _states(twin)
        back = any(full[id][1] != "reserve" for id in pruned if id in full)
        came_back += back
        if all(one["valid"] for one in certificates):
            valid_steps += 1
            assert not back
            assert {id: full[id] for id in memory.ids()} == _states(memory)
    assert valid_steps or came_back or certificates


def test_horizon_expires_before_a_record_comes_back() -> None:
    """Additions that draw weight away bring a pruned record back: it had expired."""
    X = redundant(3, 12, d=8, noise=0.12)
    twin, memory = filled(X), filled(X)
    memory.prune()
    pruned = sorted(set(twin.ids()) - set(memory.ids()))
    x = twin.get(pruned[0])[0].embedding.astype(np.float64)
    came_back = False
    for step in range(40):
        support = [r for r in twin.get(twin.ids()) if r.role != "reserve"]
        near = max((r.embedding.astype(np.float64) for r in support), key=x.__matmul__)
        for one in (twin, memory):
            vector = near + (0.2 + 0.1 * step) * (near - x)
            one.add([f"new {step}"], ids=[f"n{step}"], embeddings=[vector])
        states = _states(twin)
        if any(states[id][1] != "reserve" for id in pruned):
            came_back = True
            expired = [
                one for one in memory.stats()["prune_certificates"] if not one["valid"]
            ]
            assert [one["reason"] for one in expired] == [
                "later records have used up its slack"
            ]
            assert expired[0]["used"] > expired[0]["slack"]
            break
    assert came_back
