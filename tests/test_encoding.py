"""Embedding on behalf of a memory: what is shown while it lasts."""

from __future__ import annotations

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import InvalidInputError
from forgetmem.encoding import normalised
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


def test_normalising_many_gives_the_bits_of_normalising_one() -> None:
    """Also past the number of rows that are taken together; a zero vector is named."""
    X = np.random.default_rng(0).standard_normal((700, 24)) * 3e200
    ids = [f"r{row}" for row in range(700)]
    one_by_one = [normalised(X[[row]], ids) for row in range(700)]
    assert normalised(X, ids).tobytes() == np.concatenate(one_by_one).tobytes()
    X[600] = 0.0
    with pytest.raises(InvalidInputError, match="'r600' is zero"):
        normalised(X, ids)
