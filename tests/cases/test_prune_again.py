"""Certificates of prunes that follow one another, and where they end."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import CorruptStoreError, ForgettableMemory

CENTRE = np.eye(8)[0]


def near(rng: np.random.Generator, n: int, noise: float) -> np.ndarray:
    """Make vectors around one centre."""
    return CENTRE + noise * rng.standard_normal((n, len(CENTRE)))


def opened(path: Path | None = None, link: float = 0.97) -> ForgettableMemory:
    """Open a memory whose records are easily reserve."""
    return ForgettableMemory(path, embedder=WordEmbedder(8), gamma=2.0, link=link)


def filled(
    path: Path | None = None, *, seed: int = 0, link: float = 0.97
) -> ForgettableMemory:
    """Fill a memory with one loose cloud."""
    memory = opened(path, link)
    X = near(np.random.default_rng(seed), 40, 0.05)
    ids = [f"t{n}" for n in range(40)]
    memory.add(ids, ids=ids, embeddings=X)
    return memory


@pytest.mark.parametrize("seed", range(12))
def test_pruning_again_and_again_never_fails_or_claims_too_much(seed: int) -> None:
    """A certificate ends when what it was measured by is pruned in its turn."""
    rng = np.random.default_rng(seed)
    memory, twin = filled(seed=seed), filled(seed=seed)
    for step in range(8):
        memory.prune()
        X = near(rng, 5, 0.06)
        for one in (memory, twin):
            ids = [f"{step}-{n}" for n in range(len(X))]
            one.add(ids, ids=ids, embeddings=X)
        certificates = memory.stats()["prune_certificates"]
        assert certificates
        if all(one["valid"] for one in certificates):
            full = {r.id: r for r in twin.get(twin.ids())}
            kept = memory.ids()
            gone = [
                r for id, r in full.items() if id.count("-") == 1 and id not in kept
            ]
            assert all(record.role == "reserve" for record in gone)
    assert memory.audit().ok


def test_each_prune_keeps_a_certificate_of_its_own() -> None:
    """Two prunes that retain the same vectors do not overwrite each other's."""
    memory = filled(link=-1.0)
    memory.prune()
    inner = np.mean([r.embedding for r in memory.get(memory.ids())], axis=0)
    before = len(memory.stats()["prune_certificates"])
    for step in range(3):
        memory.add(["inside"], ids=[f"i{step}"], embeddings=[inner + 1e-3 * step])
        (made,) = memory.prune()
        assert (made.pruned, f"i{step}" in memory) == (1, False)
        assert len(memory.stats()["prune_certificates"]) == before + step + 1


def test_compacted_away_certificates_stay_away(tmp_path: Path) -> None:
    """Neither this process nor another writes them again."""
    path = tmp_path / "m.fm"
    memory, other = filled(path), opened(path)
    memory.prune()
    assert other.stats()["prune_certificates"]
    far = CENTRE + 0.2 * np.eye(8)[1]
    memory.compact()
    for one, id in ((memory, "x"), (other, "y")):
        one.add([id], ids=[id], embeddings=[far])
        assert one.stats()["prune_certificates"] == []
        one.forget(id)
        assert one.stats()["prune_certificates"] == []
    other.compact()
    content = path.read_bytes()
    memory.compact()
    assert path.read_bytes() == content


def test_certificate_keeps_nothing_of_a_forgotten_record(tmp_path: Path) -> None:
    """Its row has a name and a content that no vector can be tested against."""
    path = tmp_path / "m.fm"
    names = []
    for _ in range(2):
        memory = filled(path)
        memory.prune()
        record = next(r for r in memory.get(memory.ids()) if r.weight > 0.0)
        proof = memory.forget(record.id)
        assert memory.verify(proof).ok
        state = memory._collection._state
        assert state is not None
        ((name, horizon),) = state.horizons.by_key.items()
        assert horizon.reason and not horizon.weights
        names.append(name)
        memory.close()
        path.unlink()
    assert names[0] != names[1]


def payloads(path: Path, change: str | None = None) -> list[str]:
    """Return the stored certificates; overwrite them first if told to."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        if change is not None:
            file.execute("UPDATE certificate SET payload = ?", (change,))
        return [row[0] for row in file.execute("SELECT payload FROM certificate")]


def test_changed_certificate_is_an_error_and_never_a_promise(tmp_path: Path) -> None:
    """Its numbers carry a guarantee, so they are not believed once they are changed."""
    path = tmp_path / "m.fm"
    with filled(path) as memory:
        memory.prune()
        digest = memory.digest()
    (payload,) = payloads(path)
    for change in (
        payload.replace('"used": 0', '"used": 1'),
        payload.replace('"pruned": ', '"pruned": 1'),
        payload[:-1],
        "[]",
        "{}",
    ):
        assert payloads(path, change) != [payload]
        with opened(path) as memory, pytest.raises(CorruptStoreError, match="compact"):
            memory.stats()
    payloads(path, payload)
    with opened(path) as memory:
        assert memory.stats()["prune_certificates"][0]["valid"]
    payloads(path, "[]")
    with opened(path) as memory:
        memory.compact()
        assert memory.digest() == digest
