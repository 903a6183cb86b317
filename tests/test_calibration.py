"""Settings that suit an embedder come from shipped sentences, never from records."""

from __future__ import annotations

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import EmbeddingError, ForgettableMemory, calibrate
from forgetmem.embedding import minilm

needs_weights = pytest.mark.skipif(
    minilm.packaged_folder() is None, reason="the extra forgetmem[minilm] is missing"
)


class Crowded(WordEmbedder):
    """All of its vectors have a large part in common."""

    def __init__(self, common: float) -> None:
        super().__init__(dimension=256, name=f"crowded-{common}")
        self.common = common

    def encode(self, texts: list[str]) -> np.ndarray:
        """Encode texts, each near to one direction."""
        X = super().encode(texts)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        return (X + self.common * np.ones(256) / 16.0).astype(np.float32)


@needs_weights
def test_default_settings_are_those_of_the_default_embedder() -> None:
    """Within 0.02, and edits lie clearly above paraphrases."""
    found = calibrate()
    assert found.link == pytest.approx(0.9, abs=0.02)
    assert found.gamma == pytest.approx(8.0, rel=0.2)
    assert found.unrelated < found.related < found.paraphrases < found.edits
    assert found.separated


def test_crowded_cosines_move_link_and_gamma_together() -> None:
    """Distances shrink by 1 / (1 + c**2), so gamma grows by that factor."""
    plain, crowded = calibrate(Crowded(0.0)), calibrate(Crowded(2.0))
    assert 1.0 - crowded.link == pytest.approx((1.0 - plain.link) / 5.0, rel=0.05)
    assert crowded.gamma == pytest.approx(5.0 * plain.gamma, rel=0.05)
    for found in (plain, crowded):
        kernel = np.exp(-found.gamma * 2.0 * (1.0 - found.link))
        assert kernel == pytest.approx(0.2, abs=0.01)


def test_same_embedder_gets_the_same_settings_always() -> None:
    """Whatever else it has embedded; and a memory takes them as they are."""
    embedder = WordEmbedder()
    before = calibrate(embedder)
    with ForgettableMemory(embedder=embedder, **before.settings()) as memory:
        memory.add(["one text", "another text"])
        assert len(memory.search("one text", 2)) == 2
    assert calibrate(embedder) == before


def test_embedder_that_sees_no_difference_is_told_apart() -> None:
    """All vectors the same: not separated, and still valid settings."""
    with pytest.warns(UserWarning, match="does not tell"):
        found = calibrate(lambda texts: np.ones((len(texts), 4)))
    assert not found.separated
    assert found.link == 0.999
    ForgettableMemory(**found.settings()).close()


def test_unfit_vectors_are_refused() -> None:
    """As everywhere: an error with the position."""
    with pytest.raises(EmbeddingError):
        calibrate(lambda texts: np.full((len(texts), 4), np.nan))
