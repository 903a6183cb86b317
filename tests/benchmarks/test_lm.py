"""The benchmarks of the language model: their sections need the results alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
_NAMES = ("lm_quality", "lm_recall", "lm_speed", "lm_decode")


@pytest.mark.parametrize("name", _NAMES)
def test_section_is_made_from_the_committed_results(
    load: Callable[[str], ModuleType], name: str
) -> None:
    """Each starts with its question and has a table."""
    result = json.loads((_BENCHMARKS / "results" / f"{name}.json").read_text())
    text = load(name).section(result)
    assert text.startswith("## ") and text.splitlines()[0].endswith("?")
    assert "| --- |" in text


def test_sections_need_no_torch() -> None:
    """The README is made without it."""
    code = f"import sys, {', '.join(_NAMES)}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=_BENCHMARKS, check=False)
    assert done.returncode == 0


def test_gains_are_shares_of_the_other_arm(load: Callable[[str], ModuleType]) -> None:
    """The default is compared with the same seed of another arm only."""
    quality = load("lm_quality")
    runs = [
        {"arm": quality.DEFAULT, "seed": 0, "bpc": 1.8},
        {"arm": "full softmax", "seed": 0, "bpc": 2.0},
        {"arm": "full softmax", "seed": 1, "bpc": 9.0},
    ]
    assert quality.against(runs, "full softmax", "bpc") == [pytest.approx(0.1)]


def test_a_layer_holds_two_rows_a_key_or_a_matrix(
    load: Callable[[str], ModuleType],
) -> None:
    """What is called the state of an arm."""
    recall = load("lm_recall")
    task = recall.Task(10, 0, 1)
    assert recall.state("DeltaNet", task, {}) == 64 * 64
    assert recall.state("DeltaNet, wider", task, {}) == 104 * 104
    assert recall.state("gate", task, {"open_keys": 5.0}) == 2 * 64 * 5
    assert recall.state("full softmax", task, {}) == 2 * 64 * 24
    assert recall.state("matched window", task, {"window": 20}) == 2 * 64 * 4
