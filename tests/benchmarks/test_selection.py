"""The benchmark of selection under redundancy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

_RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_every_peer_keeps_the_budget(load: Callable[[str], ModuleType]) -> None:
    """Each rule keeps exactly as many distinct rows as it may."""
    selection = load("selection")
    given = selection.context(0, 1.0)
    for name, select in selection.PEERS.items():
        rows = select(given, 21)
        wanted = len(given.X) if "no budget" in name else 21
        assert len(set(rows.tolist())) == len(rows) == wanted, name


def test_lifted_rows_keep_their_distances(load: Callable[[str], ModuleType]) -> None:
    """On the sphere, distances are those of the rows up to 1 %, times the scale."""
    selection = load("selection")
    X = selection.context(1, 1.0).X
    flat, lifted = (
        selection.squares(X, X),
        selection.squares(*2 * [selection.lifted(X)]),
    )
    off = ~np.eye(len(X), dtype=bool)
    ratio = lifted[off] / flat[off] / selection.LIFT**2
    assert ratio.min() >= 1.0
    assert ratio.max() < 1.01


def test_the_committed_result_makes_a_section(
    load: Callable[[str], ModuleType],
) -> None:
    """The README's part is made from the JSON alone."""
    result = json.loads((_RESULTS / "selection.json").read_text("utf-8"))
    section = load("selection").section(result)
    assert section.startswith("## ")
    assert "| **our groups** | rare, nearest |" in section


@pytest.mark.slow
def test_a_small_run_gives_a_table_and_a_figure(
    load: Callable[[str], ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two contexts are enough for every row of the tables."""
    selection = load("selection")
    for module in ("report", "lines"):
        monkeypatch.setattr(load(module), "RESULTS", tmp_path)
    result = selection.benchmark(2, 2)
    selection.figure(result, "selection_small")
    assert (tmp_path / "selection_small.svg").exists()
    read = json.loads(json.dumps(result))
    assert selection.section(read).count("k-centre greedy") > 4
