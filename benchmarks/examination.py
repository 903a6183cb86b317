"""What one store keeps of what was deleted, how it answers then, and how fast it is."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import traces

SEED = 384
K = 10


class Data:
    """Records, those of them that are deleted, and queries."""

    def __init__(self, n: int, share: float = 0.01) -> None:
        rng = np.random.default_rng(SEED)
        centres = rng.normal(size=(n // 10, 384))
        near = centres[rng.integers(len(centres), size=n)]
        noise = rng.choice([0.2, 0.5, 1.0], size=(n, 1))
        X = near + noise * rng.normal(size=near.shape)
        self.X = self._unit(X)
        words = np.array(
            [
                "pump",
                "valve",
                "shift",
                "board",
                "weekend",
                "report",
                "leak",
                "repair",
                "bearing",
                "night",
                "order",
                "contract",
                "invoice",
                "patient",
                "visit",
                "train",
                "ticket",
                "delay",
                "refund",
                "account",
            ]
        )
        self.ids = [f"record-{row:06d}-{self._hex(rng)}" for row in range(n)]
        self.texts = [
            f"Note {self._hex(rng)}: " + " ".join(rng.choice(words, size=12))
            for _ in range(n)
        ]
        self.gone = np.sort(rng.choice(n, size=max(int(share * n), 10), replace=False))
        self.left = np.setdiff1d(np.arange(n), self.gone)
        half = min(len(self.gone), 50)
        around = np.concatenate([self.gone[:half], rng.choice(self.left, size=half)])
        self.queries = self._unit(
            self.X[around] + 0.02 * rng.normal(size=(2 * half, 384))
        )

    @staticmethod
    def _unit(X: np.ndarray) -> np.ndarray:
        return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)

    @staticmethod
    def _hex(rng: np.random.Generator) -> str:
        return str(rng.bytes(12).hex())

    def items(self) -> list[traces.Item]:
        """The deleted records."""
        return [
            traces.Item(self.ids[row], self.texts[row], self.X[row])
            for row in self.gone
        ]

    def of(self, rows: np.ndarray) -> tuple[list[str], list[str], np.ndarray]:
        """Ids, texts and vectors of some records."""
        ids, texts = [self.ids[r] for r in rows], [self.texts[r] for r in rows]
        return ids, texts, np.ascontiguousarray(self.X[rows])


def seconds(call: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def answers(store: Any, data: Data) -> list[Any]:
    """Ask all queries."""
    return [store.search(query, K) for query in data.queries]


def compare(ours: list[Any], theirs: list[Any]) -> dict[str, Any]:
    """Count the queries whose answers, or whose scores only, are not the same."""
    ids = [[id for id, _ in one] for one in ours]
    others = [[id for id, _ in one] for one in theirs]
    moved = sum(a != b for a, b in zip(ids, others, strict=True))
    bits = sum(a != b for a, b in zip(ours, theirs, strict=True))
    return {"answers": moved, "answers or scores": bits, "queries": len(ours)}


def filled(kind: Any, folder: Path, data: Data, rows: np.ndarray) -> Any:
    """Fill a store, close it and open it again."""
    folder.mkdir()
    store = kind(folder)
    store.add(*data.of(rows))
    store.close()
    return kind(folder)


def examine(kind: Any, n: int) -> dict[str, Any]:
    """Do everything with one store."""
    n = min(n, kind.most)
    data = Data(n, kind.share)
    found: dict[str, Any] = {
        "store": kind.name,
        "records": n,
        "deleted": len(data.gone),
    }
    found["exhaustive"] = kind.exhaustive
    found["holds texts"] = kind.holds_texts
    found["deletion"], found["cleaning"] = kind.deletion, kind.cleaning
    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        warm_up(kind, top / "warm", data)
        found["speed"] = speed(kind, top, data)
        found |= remains(kind, top, data)
    return found


def warm_up(kind: Any, folder: Path, data: Data) -> None:
    """Use everything once, so that imports and compilations are not timed."""
    store = filled(kind, folder, data, np.arange(600))
    store.search(data.queries[0], K)
    store.delete([data.ids[0], data.ids[1]])
    if kind.cleaning:
        store.clean_up()
    store.close()


def remains(kind: Any, top: Path, data: Data) -> dict[str, Any]:
    """Delete, and look for bytes and influence."""
    found: dict[str, Any] = {}
    items, gone = data.items(), [data.ids[row] for row in data.gone]
    never = never_held(kind, top / "never", data)
    again = never_held(kind, top / "again", data)
    found["control"] = compare(again.first, never.first)
    folder = top / "held"
    store = filled(kind, folder, data, np.arange(len(data.ids)))
    answers(store, data)
    store.close()
    found["before"] = traces.count(folder, items)
    store = kind(folder)
    store.delete(gone)
    found["after delete"] = {"influence": compare(answers(store, data), never.first)}
    store.close()
    found["after delete"] |= traces.count(folder, items)
    if kind.cleaning:
        store = kind(folder)
        found["clean up, s"] = seconds(store.clean_up)
        answered = answers(store, data)
        found["after cleaning"] = {"influence": compare(answered, never.second)}
        if never.state:
            found["state as if never held"] = store.state() == never.state
        store.close()
        found["after cleaning"] |= traces.count(folder, items)
    held, other, third = (
        traces.fingerprint(top / place) for place in ("held", "never", "again")
    )
    found["files as if never held"] = held == other if other == third else None
    return found


@dataclass(frozen=True)
class Never:
    """What a store says that never held the records, also after its clean-up."""

    first: list[Any]
    second: list[Any]
    state: str


def never_held(kind: Any, folder: Path, data: Data) -> Never:
    """Fill a store without the records, and ask it."""
    store = filled(kind, folder, data, data.left)
    first = second = answers(store, data)
    if kind.cleaning:
        store.clean_up()
        second = answers(store, data)
    state = store.state()
    store.close()
    return Never(first, second, state)


def speed(kind: Any, top: Path, data: Data) -> dict[str, Any]:
    """Time the store, and FAISS flat beside it."""
    from file_stores import FaissFlat

    found = timed(kind, top / "timed", data)
    beside = timed(FaissFlat, top / "beside", data)
    payload = data.X.nbytes
    if kind.holds_texts:
        payload += sum(len(text.encode()) for text in data.texts)
    found["bytes / payload"] = traces.size(top / "timed") / payload
    ratio = found["search, ms"] / beside["search, ms"]
    return found | {"search / FAISS flat": ratio, "FAISS flat": beside}


def timed(kind: Any, folder: Path, data: Data) -> dict[str, Any]:
    """Add, open, search, delete one at a time; the fastest of each, and medians."""
    folder.mkdir()
    rows = np.arange(len(data.ids))
    store = kind(folder)
    add = seconds(lambda: store.add(*data.of(rows)))
    store.close()
    opened: list[Any] = []

    def reopen() -> None:
        opened.append(kind(folder))
        opened[-1].search(data.queries[0], K)

    reopening = []
    for _ in range(5):
        reopening.append(seconds(reopen))
        opened[-1].close()
    store = kind(folder)
    answers(store, data)
    searches = [
        seconds(lambda query=query: store.search(query, K))
        for _ in range(3)
        for query in data.queries
    ]
    deletes = [
        seconds(lambda row=row: store.delete([data.ids[row]])) for row in data.gone[:10]
    ]
    store.close()
    times = {
        "search, ms": searches,
        "delete one, ms": deletes[1:],
        "reopen, ms": reopening,
    }
    found = {name: 1e3 * min(values) for name, values in times.items()}
    medians = {name: 1e3 * statistics.median(values) for name, values in times.items()}
    return {"add, records/s": len(rows) / add, **found, "medians": medians}
