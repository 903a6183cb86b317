"""The README's examples and the docstrings' run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import llama_index.vector_stores.forgetmem.base as base
import pytest

README = Path(__file__).parent.parent / "README.md"


def test_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Block after block, in one empty folder, as a reader would."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    store = names["store"]
    assert isinstance(store, base.ForgetmemVectorStore)
    store.close()


def test_docstring_examples_run() -> None:
    """They show what the code does."""
    result = doctest.testmod(base)
    assert result.attempted > 0
    assert result.failed == 0
