"""`examples/train_small_lm.py` runs to its end for anyone with the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_example_trains_and_forgets(tmp_path: Path) -> None:
    """A few steps do; what it says about forgetting does not depend on training."""
    command = [sys.executable, str(ROOT / "examples" / "train_small_lm.py")]
    done = subprocess.run(
        [*command, "--steps", "3", "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the proof holds: True") == 2
    assert "never read it: True" in done.stdout
    assert (tmp_path / "run" / "run.svg").exists()
