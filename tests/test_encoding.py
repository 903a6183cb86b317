"""Embedding on behalf of a memory: what is shown while it lasts."""

from __future__ import annotations

import pytest
from toy import WordEmbedder

from forgetmem.memory import ForgettableMemory


def test_progress_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bar on request, and nothing on standard output, which belongs to results."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with ForgettableMemory(embedder=WordEmbedder()) as memory:
        memory.add(["a note", "another note"])
        assert capsys.readouterr() == ("", "")
        memory.add([f"note {n}" for n in range(600)], progress=True)
        shown = capsys.readouterr()
        assert len(memory) == 602
    assert shown.out == ""
    assert "embedding" in shown.err
