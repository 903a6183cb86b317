"""`benchmarks/README.md` says what the results say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_page_is_made_from_the_results() -> None:
    """Made again it is the same, and every committed result has a part in it."""
    script = _BENCHMARKS / "make_readme.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = script.read_text("utf-8")
    for result in (_BENCHMARKS / "results").glob("*.json"):
        if not result.stem.endswith("_small"):
            assert f'"{result.stem}"' in parts
