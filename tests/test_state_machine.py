"""Any history ends in the memory that the surviving records alone would make."""

from __future__ import annotations

import hashlib
import random
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from strategies import batches, ids, metadatas, texts
from toy import WordEmbedder

from forgetmem import ForgettableMemory, Hit, RecordNotFoundError

QUERIES = ["the pump was replaced", "anna stopped today", "something else"]

Row = tuple[str, dict[str, Any], str | None]


def build(
    rows: dict[str, Row], path: Path | None, namespace: str, **options: Any
) -> ForgettableMemory:
    """Make a memory from records alone, in a shuffled order."""
    memory = ForgettableMemory(
        path, embedder=WordEmbedder(), namespace=namespace, **options
    )
    order = sorted(rows)
    random.Random(len(rows)).shuffle(order)
    half = len(order) // 2
    for part in (order[:half], order[half:]):
        memory.add(
            [rows[id][0] for id in part],
            ids=part,
            metadatas=[rows[id][1] for id in part],
            source_ids=[rows[id][2] for id in part],
        )
    return memory


def answers(memory: ForgettableMemory) -> list[list[Hit]]:
    """Ask everything that can be asked of a memory."""
    found = []
    for query in QUERIES:
        for k in (1, 4, 30):
            found.append(memory.search(query, k))
            found.append(memory.search(query, k, ranking="similarity"))
        found.append(memory.search(query, 4, where={"user": "u1"}))
    return found


class Histories(RuleBasedStateMachine):
    """A real file against a plain dict."""

    options: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "memory.forgetmem"
        self.rows: dict[str, Row] = {}
        self.other: dict[str, Row] = {}
        self.memory = self.opened("main")
        self.steps = 0

    def opened(self, namespace: str) -> ForgettableMemory:
        return ForgettableMemory(
            self.path, embedder=WordEmbedder(), namespace=namespace, **self.options
        )

    def teardown(self) -> None:
        try:
            self.compare_everything()
        finally:
            self.memory.close()
            self.folder.cleanup()

    @rule(batch=batches)
    def add(self, batch: list[Any]) -> None:
        """Add or overwrite."""
        self.memory.add(
            [text for _, text, _, _ in batch],
            ids=[id for id, _, _, _ in batch],
            metadatas=[metadata for _, _, metadata, _ in batch],
            source_ids=[source for _, _, _, source in batch],
        )
        self.rows |= {id: (*rest,) for id, *rest in batch}

    @rule(id=ids, text=texts, metadata=metadatas)
    def add_elsewhere(self, id: str, text: str, metadata: dict[str, Any]) -> None:
        """Another tenant writes to the same file through another connection."""
        with self.opened("other") as memory:
            memory.add([text], ids=[id], metadatas=[metadata])
        self.other[id] = (text, metadata, None)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def forget_some(self, data: st.DataObject) -> None:
        """Forget a block of ids."""
        chosen = data.draw(
            st.lists(st.sampled_from(sorted(self.rows)), min_size=1, unique=True)
        )
        proof = self.memory.forget(chosen)
        assert proof.forgotten == len(chosen)
        for id in chosen:
            del self.rows[id]
        assert self.memory.verify(proof).ok

    @rule(id=ids)
    def forget_one(self, id: str) -> None:
        """Forget one id, which may be unknown."""
        if id in self.rows:
            self.memory.forget(id)
            del self.rows[id]
        else:
            with pytest.raises(RecordNotFoundError):
                self.memory.forget(id)

    @rule(source=st.sampled_from(["log-1", "log-2"]))
    def forget_source(self, source: str) -> None:
        """Forget what came from one document."""
        gone = [id for id, row in self.rows.items() if row[2] == source]
        assert self.memory.forget(source_id=source).forgotten == len(gone)
        for id in gone:
            del self.rows[id]

    @rule(user=st.sampled_from(["u1", "u2"]))
    def forget_where(self, user: str) -> None:
        """Forget by metadata."""
        gone = [id for id, row in self.rows.items() if row[1].get("user") == user]
        assert self.memory.forget(where={"user": user}).forgotten == len(gone)
        for id in gone:
            del self.rows[id]

    @rule()
    def reopen(self) -> None:
        """Close and open again."""
        self.memory.close()
        self.memory = self.opened("main")

    @rule()
    def compact(self) -> None:
        """Rewrite the file."""
        self.memory.compact()

    @invariant()
    def counts_agree(self) -> None:
        """The ids are those of the model."""
        assert self.memory.ids() == sorted(self.rows)

    @invariant()
    def state_agrees(self) -> None:
        """Every few steps, digest and answers equal a fresh memory's."""
        self.steps += 1
        if self.steps % 4 == 0:
            self.compare_state()

    def compare_state(self) -> None:
        with build(self.rows, None, "main", **self.options) as fresh:
            assert self.memory.digest() == fresh.digest()
            assert answers(self.memory) == answers(fresh)
            assert self.memory.get(sorted(self.rows)) == fresh.get(sorted(self.rows))

    def compare_everything(self) -> None:
        self.compare_state()
        self.memory.compact()
        fresh_path = Path(self.folder.name) / "fresh.forgetmem"
        build(self.rows, fresh_path, "main", **self.options).close()
        with build(self.other, fresh_path, "other", **self.options) as fresh:
            fresh.compact()
        assert _sha(self.path) == _sha(fresh_path)
        assert self.memory.audit().ok


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="groups"),
        pytest.param({"link": -1.0, "max_group": None}, id="one group"),
        pytest.param({"link": 0.6, "max_group": 3, "C": 0.4}, id="divided, soft"),
    ],
)
def test_history_leaves_no_trace(options: dict[str, Any]) -> None:
    """Digest, answers and compacted bytes are those of the surviving records."""
    machine = type("Machine", (Histories,), {"options": options})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
