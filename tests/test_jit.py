"""Compiled code is cached, and not taken from the cache when a source has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_MODULES = {
    "inner.py": "from jit import compiled\n\n\n@compiled\ndef inner():\n    return 1\n",
    "outer.py": (
        "from inner import inner\nfrom jit import compiled\n\n\n"
        "@compiled\ndef outer():\n    return inner()\n"
    ),
}
_CALL = "import outer; print(outer.outer(), sum(outer.outer.stats.cache_hits.values()))"


def call(folder: Path) -> str:
    """Call `outer` in a fresh process; its value and the number of cache hits."""
    settings = {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", _CALL]
    child = subprocess.run(
        command, env=os.environ | settings, capture_output=True, check=True, text=True
    )
    return child.stdout.strip()


def test_a_change_in_a_called_function_is_seen(tmp_path: Path) -> None:
    """The second process finds the code in the cache, the third must not."""
    source = Path(__file__).parent.parent / "forgetmem" / "jit.py"
    (tmp_path / "jit.py").write_text(source.read_text())
    for name, text in _MODULES.items():
        (tmp_path / name).write_text(text)
    assert call(tmp_path) == "1 0"
    assert call(tmp_path) == "1 1"
    (tmp_path / "inner.py").write_text(_MODULES["inner.py"].replace("1", "2"))
    assert call(tmp_path) == "2 0"
