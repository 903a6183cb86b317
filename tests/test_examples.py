"""The examples run to their end, and what they show is what they claim."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forgetmem.embedding.minilm import packaged_folder

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

needs_weights = pytest.mark.skipif(
    packaged_folder() is None, reason="the extra forgetmem[minilm] is not installed"
)


def _run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_weights
def test_quickstart_forgets_its_first_hit() -> None:
    """The best answer is gone from the second search, and the proof holds."""
    shown = _run("quickstart.py")
    first, second = shown.split("search again")
    best = re.search(r"^  0\.\d\d  (.*)$", first, re.MULTILINE)
    assert best is not None
    assert best[1] not in second
    assert "the proof holds: True" in shown


@needs_weights
def test_story_of_a_person_holds_in_every_point(tmp_path: Path) -> None:
    """Every claim is met; what is kept holds no trace of her, the proof no name."""
    kept = tmp_path / "kept"
    shown = _run("forget_a_person.py", "--messages", "150", "--keep", str(kept))
    assert len(re.findall(r"^yes  ", shown, re.MULTILINE)) == 9
    assert "NO  " not in shown
    assert "passed  content" in shown
    for path in kept.rglob("*"):
        if path.is_file():
            assert b"Lindqvist" not in path.read_bytes()
    assert json.loads((kept / "proof.json").read_text())["forgotten"] == 8
    assert (kept / "proof.key").stat().st_size == 32


def test_data_is_what_its_readme_says() -> None:
    """Size, lines, checksum, names and licence."""
    content = (EXAMPLES / "data" / "support_desk.jsonl").read_bytes()
    readme = (EXAMPLES / "data" / "README.md").read_text(encoding="utf-8")
    records = [json.loads(line) for line in content.decode().splitlines()]
    assert hashlib.sha256(content).hexdigest() in readme
    assert f"{len(content):,}" in readme
    assert f"{len(records)} real questions" in readme
    assert "CC BY 4.0" in readme
    customers = [record["metadata"]["customer"] for record in records]
    assert len(set(customers)) == 120
    assert {customers.count(name) for name in set(customers)} == {7, 8}
    assert len({record["id"] for record in records}) == len(records)
