"""Make `benchmarks/README.md` from the results, and nothing else.

    python benchmarks/make_readme.py [--check]

Each benchmark turns its own JSON into a section; `--check` only compares, and exits
with 1 if the README is not what the results say.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from report import RESULTS

PLACE = Path(__file__).parent / "README.md"

#: Benchmarks in the order of the README.
PARTS = [
    "retrieval",
    "calibration",
    "novelty",
    "selection",
    "icu",
    "peers",
    "framework_deletes",
    "memory",
    "scale",
    "svm_audit",
    "svm_speed",
    "lm_quality",
    "lm_recall",
    "lm_speed",
    "lm_decode",
]

HEAD = """# Benchmarks

Each file answers one question, prints a Markdown table and writes JSON with machine,
versions, seeds and command to `results/`. This page is made from those files by
`python benchmarks/make_readme.py`. `make bench` runs everything small, with what the
repository ships or makes; `make bench-full DATA=PATH` runs it at the size shown here.

All numbers are from machines with two shared cores: ratios and medians mean something,
single absolute times little. Figures of *the paper* are those that V. Ramesh published in
arXiv 2607.12204.
"""


def readme() -> str:
    """The page as the results have it."""
    parts = [HEAD]
    for name in PARTS:
        path = RESULTS / f"{name}.json"
        if path.exists():
            result = json.loads(path.read_text(encoding="utf-8"))
            parts.append(importlib.import_module(name).section(result).strip() + "\n")
    return "\n".join(parts)


def main() -> int:
    """Write the page, or compare it."""
    text = readme()
    if "--check" in sys.argv[1:]:
        same = PLACE.exists() and PLACE.read_text(encoding="utf-8") == text
        print("up to date" if same else f"{PLACE} is not what the results say")
        return 0 if same else 1
    PLACE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
