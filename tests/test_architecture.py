"""Imports point one way, and `import forgetmem` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import forgetmem

PACKAGE = Path(forgetmem.__file__).parent

#: Bottom to top: what each part may import. A part may always import itself.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "jit": set(),
    "blas": set(),
    "arrays": {"errors"},
    "fused": set(),
    "exponential": {"arrays", "fused", "jit"},
    "distances": {"arrays", "fused", "jit"},
    "counts": {"jit"},
    "column": {"arrays"},
    "records": {"arrays"},
    "metadata": {"errors"},
    "filters": {"errors", "metadata"},
    "embedding": {"arrays", "errors"},
    "calibration": {"arrays", "embedding"},
    "reading": {"errors", "metadata"},
    "svm": {"arrays", "distances", "errors", "exponential", "fused", "jit"},
    "index": {"arrays", "distances", "jit"},
    "groups": {
        "arrays",
        "blas",
        "distances",
        "errors",
        "exponential",
        "index",
        "jit",
        "svm",
    },
    "lm": {"arrays", "distances", "errors", "jit", "svm"},
    "store": {"arrays", "errors", "jit"},
    "settings": {"errors"},
    "written": {"arrays", "groups"},
    "state": {
        "arrays",
        "column",
        "counts",
        "errors",
        "groups",
        "index",
        "metadata",
        "settings",
        "store",
        "written",
    },
    "collection": {"errors", "settings", "state", "store"},
    "encoding": {"arrays", "collection", "embedding", "errors"},
    "batch": {"arrays", "errors", "metadata", "state"},
    "contest": {"arrays", "distances", "index", "jit"},
    "ranking": {"arrays", "contest", "distances", "exponential", "index"},
    "matching": {"arrays", "filters", "state"},
    "lookalikes": {"arrays", "distances", "index", "matching", "state"},
    "answers": {
        "arrays",
        "distances",
        "errors",
        "exponential",
        "groups",
        "jit",
        "lookalikes",
        "matching",
        "metadata",
        "ranking",
        "records",
        "state",
        "store",
    },
    "verdicts": {"svm"},
    "proof": {"errors", "verdicts"},
    "auditing": {
        "arrays",
        "collection",
        "errors",
        "groups",
        "proof",
        "state",
        "store",
        "verdicts",
        "svm",
    },
    "forgetting": {
        "answers",
        "arrays",
        "auditing",
        "collection",
        "encoding",
        "errors",
        "filters",
        "groups",
        "matching",
        "proof",
        "state",
        "store",
        "verdicts",
        "__init__",
    },
    "pruning": {"auditing", "collection", "groups", "proof", "store", "verdicts"},
    "memory": {
        "answers",
        "arrays",
        "auditing",
        "batch",
        "collection",
        "embedding",
        "encoding",
        "errors",
        "filters",
        "forgetting",
        "matching",
        "metadata",
        "proof",
        "pruning",
        "records",
        "settings",
        "state",
        "store",
        "verdicts",
    },
    "warmup": {"memory"},
    "cli": {
        "__init__",
        "calibration",
        "embedding",
        "encoding",
        "errors",
        "memory",
        "proof",
        "reading",
        "records",
        "verdicts",
    },
    "__init__": {
        "calibration",
        "embedding",
        "errors",
        "memory",
        "proof",
        "records",
        "verdicts",
    },
}


def _part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] != "forgetmem":
                continue
            second = parts[1] if len(parts) > 1 else "__init__"
            is_part = (PACKAGE / second).is_dir() or (PACKAGE / f"{second}.py").exists()
            found.add(second if is_part else "__init__")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=str)
def test_imports_point_one_way(path: Path) -> None:
    """No part imports a part above it, and none is missing from the table."""
    part = _part(path)
    assert _imports(path) - {part} <= ALLOWED[part]


def test_table_has_no_cycle() -> None:
    """The table itself lists parts bottom to top."""
    seen: set[str] = set()
    for part, below in ALLOWED.items():
        assert below - {"__init__"} <= seen | {part}, part
        seen.add(part)


def test_import_is_light() -> None:
    """`import forgetmem` loads neither torch, faiss, numba nor numpy."""
    code = (
        "import sys, forgetmem; "
        "heavy = {'torch', 'faiss', 'numba', 'numpy', 'sentence_transformers'}; "
        "sys.exit(', '.join(heavy & sys.modules.keys()) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


ADAPTERS = sorted((PACKAGE.parent / "integrations").glob("*/*/**/*.py"))


@pytest.mark.parametrize(
    "path", [p for p in ADAPTERS if "tests" not in p.parts], ids=lambda p: p.stem
)
def test_adapters_use_public_names_only(path: Path) -> None:
    """They stand on what any user may use: `from forgetmem import ...`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert all(name.name.split(".")[0] != "forgetmem" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "forgetmem":
            assert {alias.name for alias in node.names} <= set(forgetmem.__all__)
        elif isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("forgetmem.")
