"""The examples with LangChain and LlamaIndex end with what they claim."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forgetmem.embedding.minilm import packaged_folder

ROOT = Path(__file__).parents[1]
DATA = ROOT / "examples" / "data"
ANSWER = "immunosuppressive medications"
OTHER = "the most common cause of hypothyroidism in the United States"


@pytest.mark.skipif(
    packaged_folder() is None, reason="the extra forgetmem[minilm] is not installed"
)
@pytest.mark.parametrize(
    ("name", "claims"),
    [
        (
            "langchain_rag.py",
            ["its name is in the file: no", "76 skipped, none added"],
        ),
        (
            "llama_index_rag.py",
            ["files with its name, id or hash: none", "0 of 7 others added again"],
        ),
    ],
)
def test_answer_is_gone_once_its_source_is(name: str, claims: list[str]) -> None:
    """The other answer stays, no file has a trace, and the proof holds."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = done.stdout.split("forgetting")
    assert ANSWER in before
    assert OTHER in before
    assert ANSWER not in after
    assert "The passages do not say." in after
    assert OTHER in after
    for claim in [*claims, "the proof holds: yes"]:
        assert claim in after


def test_fact_sheets_are_what_their_readme_says() -> None:
    """Size, lines, checksum, sources and licence."""
    content = (DATA / "fact_sheets.jsonl").read_bytes()
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    records = [json.loads(line) for line in content.decode().splitlines()]
    assert hashlib.sha256(content).hexdigest() in readme
    assert f"{len(content):,}" in readme
    assert f"{len(records)} answers from eight fact sheets" in readme
    assert len({record["source_id"] for record in records}) == 8
    assert len({record["id"] for record in records}) == len(records)
    assert all("niddk.nih.gov" in record["metadata"]["url"] for record in records)
