"""The benchmark on hours of intensive care."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

_RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_hours_are_read_and_filled_forward(
    load: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """The first value of an hour counts, and stands until the next; -1 is none."""
    lines = ["00:00,RecordID,7", "00:10,HR,80", "00:40,HR,90", "02:00,HR,-1"]
    lines += ["01:00,NISysABP,120", "03:05,SysABP,110"]
    lines += ["00:00,RecordID,8", "05:00,HR,60"]
    with lzma.open(tmp_path / "set-a.csv.xz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    physionet = load("physionet")
    first, second = physionet.read_2012(tmp_path)
    assert (first.number, second.number) == ("7", "8")
    rows = first.rows(("HR", "SysABP"))
    assert rows.tolist() == [[80.0, 120.0], [80.0, 120.0], [80.0, 110.0]]
    assert first.hours(("HR", "SysABP")).tolist() == [1, 2, 3]
    padded = first.rows(("HR", "SysABP"), 40, padded=True)
    assert len(padded) == 40
    assert padded[-1].tolist() == [80.0, 110.0]
    assert second.rows(("HR", "SysABP")) is None


def test_the_score_has_the_published_bands(load: Callable[[str], ModuleType]) -> None:
    """NEWS2 at the ends of its bands."""
    icu = load("icu")
    vitals = ("HR", "SysABP", "RespRate", "SpO2", "Temp")
    rows = np.array(
        [
            [51, 111, 12, 96, 36.1],
            [90, 219, 20, 100, 38.0],
            [91, 110, 11, 95, 38.1],
            [130, 100, 24, 93, 39.1],
            [131, 90, 25, 91, 35.0],
        ]
    )
    assert icu.news2(rows, vitals).tolist() == [0, 0, 5, 10, 15]


@pytest.mark.slow
def test_a_streamed_memory_holds_support_only(
    load: Callable[[str], ModuleType],
) -> None:
    """What is left at the end is support of itself, and fewer rows than came."""
    icu, physionet = load("icu"), load("physionet")
    X = icu.composite(list(physionet.made(3)), physionet.VITALS, 7)[0][0]
    kept = icu.streamed(X, 0.2)
    assert 0 < len(kept) < len(X)
    assert kept.tolist() == sorted(set(kept.tolist()))


@pytest.mark.slow
def test_nothing_of_a_source_is_left(load: Callable[[str], ModuleType]) -> None:
    """Every remaining readout is that of a memory that never held it."""
    rng = np.random.default_rng(0)
    sources = [rng.normal(size=(8, 3)) * 0.3 for _ in range(4)]
    found = load("pooled").deletion(sources, 0.25, 2, 0)
    assert found["ours: queries that differ"] == 0
    assert found["ours: largest difference"] == 0.0
    assert found["digests as if never held"] == found["proofs verified"] == 2
    assert found["masked: largest difference"] > 1e-3


def test_the_committed_result_makes_a_section(
    load: Callable[[str], ModuleType],
) -> None:
    """The README's part is made from the JSON alone."""
    result = json.loads((_RESULTS / "icu.json").read_text("utf-8"))
    assert load("icu").section(result).count("held-out SpO2, ν") == 6


@pytest.mark.slow
def test_a_small_run_gives_both_tables(load: Callable[[str], ModuleType]) -> None:
    """Made stays need no data set."""
    icu, physionet = load("icu"), load("physionet")
    result = icu.benchmark({"made stays": list(physionet.made(40))}, 2, 4, 1)
    text = icu.section(json.loads(json.dumps(result)))
    assert "| made stays | composite, streamed" in text
    assert "| `forget(source_id=stay)` | 0 of " in text
