"""Benchmarks are scripts that import each other by name, from their folder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Return a function that imports a benchmark; nothing of it stays imported."""
    monkeypatch.syspath_prepend(_BENCHMARKS)
    names = {path.stem for path in _BENCHMARKS.glob("*.py")}
    yield importlib.import_module
    for name in names & set(sys.modules):
        del sys.modules[name]
