"""What every benchmark writes: a Markdown table, and JSON with machine and versions."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("forgetmem", "numpy", "faiss-cpu", "numba", "torch", "scikit-learn")


def machine() -> dict[str, Any]:
    """Return what a number depends on."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        cpu = next((x.split(": ")[1] for x in lines if x.startswith("model name")), cpu)
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "versions": versions,
        "command": " ".join(["python", *map(_without_places, sys.argv)]),
    }


def _without_places(argument: str) -> str:
    return "PATH" if Path(argument).is_dir() else argument


def markdown(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def save(name: str, result: dict[str, Any]) -> Path:
    """Write a result as JSON."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return path
