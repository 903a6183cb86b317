"""The README's examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"


def _blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", _blocks())
def test_readme_block_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each Python block runs in an empty folder, with the packaged model."""
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})


def test_readme_names_every_setting() -> None:
    """The table of settings is the one that the code has."""
    from forgetmem.settings import Settings

    rows = re.findall(
        r"^\| `(\w+)` \| (\S+) \|", README.read_text("utf-8"), re.MULTILINE
    )
    assert {name: float(value) for name, value in rows} == Settings().model_dump()
