"""A small deterministic embedder: texts that share words have similar vectors."""

from __future__ import annotations

import hashlib

import numpy as np


class WordEmbedder:
    """Sums one pseudo-random direction a word; the same text, the same bits."""

    def __init__(self, dimension: int = 16, name: str = "toy-words") -> None:
        self.name = name
        self.dimension = dimension

    def encode(self, texts: list[str]) -> np.ndarray:
        """Encode texts one by one."""
        return np.array([self._one(text) for text in texts], dtype=np.float32).reshape(
            len(texts), self.dimension
        )

    def _one(self, text: str) -> np.ndarray:
        total = np.full(self.dimension, 0.01)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
            total = total + np.random.default_rng(seed).standard_normal(self.dimension)
        return total
