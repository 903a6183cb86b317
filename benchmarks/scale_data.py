"""Records for `scale.py`: made ones of any number, dense ones, and real chat turns."""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SEED = 11
DIMENSION = 384
WORDS = 4000


@dataclass
class Records:
    """What is added, and the queries that are asked."""

    texts: list[str]
    metadatas: list[dict[str, Any]]
    X: np.ndarray
    queries: np.ndarray

    @functools.cached_property
    def ids(self) -> list[str]:
        return [f"record {row:07d}" for row in range(len(self.texts))]

    @property
    def payload(self) -> int:
        """Bytes of the float32 vectors and the texts."""
        text = sum(len(text.encode()) for text in self.texts)
        return 4 * self.X.size + text


def _unit(X: np.ndarray) -> np.ndarray:
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def _metadatas(n: int) -> list[dict[str, Any]]:
    """One record in a hundred has a given `user`, every second one a given `side`."""
    return [{"user": row % 100, "side": row % 2} for row in range(n)]


def _sentences(rng: np.random.Generator, n: int) -> list[str]:
    """Texts of 12 made words, about as long as a chat turn."""
    letters = rng.integers(97, 123, (WORDS, 5)).astype(np.uint8)
    words = [bytes(word).decode() for word in letters]
    chosen = rng.integers(0, WORDS, (n, 12))
    return [" ".join(words[word] for word in row) for row in chosen.tolist()]


def _families(rng: np.random.Generator, n: int) -> np.ndarray:
    """Number of the family of each row: half are alone, the others with 1 to 40."""
    sizes: list[int] = []
    total = 0
    while total < n:
        size = 1 if rng.random() < 0.75 else min(2 + int(rng.geometric(0.35)), 41)
        sizes.append(size)
        total += size
    return np.repeat(np.arange(len(sizes)), sizes)[:n]


def made(n: int) -> Records:
    """Vectors in topics; about half of them have near-duplicates (cosine 0.9 to 1)."""
    rng = np.random.default_rng(SEED)
    family = rng.permutation(_families(rng, n))
    topics = rng.standard_normal((max(8, n // 200), DIMENSION), dtype=np.float32)
    heads = rng.standard_normal((int(family.max()) + 1, DIMENSION), dtype=np.float32)
    heads += 0.8 * topics[rng.integers(0, len(topics), len(heads))]
    X = heads[family]
    del heads
    for start in range(0, n, 100_000):
        block = X[start : start + 100_000]
        noise = rng.standard_normal(block.shape, dtype=np.float32)
        spread = rng.uniform(0.05, 0.38, (len(block), 1)).astype(np.float32)
        block += spread * noise
        block /= np.linalg.norm(block, axis=1, keepdims=True)
    asked = X[rng.integers(0, n, 200)]
    noise = rng.standard_normal(asked.shape, dtype=np.float32)
    queries = _unit(asked + 0.04 * noise)
    return Records(_sentences(rng, n), _metadatas(n), X, queries.astype(np.float32))


def dense(n: int) -> Records:
    """Lines that are all near-copies of one another: one component."""
    rng = np.random.default_rng(SEED + 1)
    centre = _unit(rng.standard_normal((1, DIMENSION)))
    noise = rng.standard_normal((n, DIMENSION)) / np.sqrt(DIMENSION)
    X = _unit(centre + 0.15 * noise).astype(np.float32)
    queries = _unit(centre + 0.2 * noise[:200]).astype(np.float32)
    texts = [f"192.168.0.{row % 256} GET /status 200 in {row} us" for row in range(n)]
    return Records(texts, _metadatas(n), X, queries)


def _turns(folder: Path) -> Iterator[str]:
    for name in ("train.jsonl.xz", "test.jsonl.xz", "dev.jsonl.xz"):
        with lzma.open(folder / name, "rt", encoding="utf-8") as lines:
            for line in lines:
                for turn in json.loads(line)["turns"]:
                    yield turn["utterance"]


def chats(folder: Path, n: int, embedder: str, cache: Path) -> Records:
    """The first `n` turns of the Schema-Guided Dialogue chats."""
    texts = [text for text, _ in zip(_turns(folder), range(n), strict=False)]
    distinct = sorted(set(texts))
    row_of = {text: row for row, text in enumerate(distinct)}
    matrix = _embedded(distinct, embedder, cache)
    X = matrix[[row_of[text] for text in texts]]
    rng = np.random.default_rng(SEED + 2)
    asked = rng.integers(0, len(distinct), (2, 200))
    queries = _unit(matrix[asked[0]] + 0.3 * matrix[asked[1]])
    return Records(texts, _metadatas(len(texts)), X, queries.astype(np.float32))


def _embedded(texts: list[str], embedder: str, cache: Path) -> np.ndarray:
    name = hashlib.sha256("\x00".join([embedder, *texts]).encode()).hexdigest()[:16]
    file = cache / f"{name}.npy"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        print(f"embedding {len(texts)} texts", file=sys.stderr)
        encode = _wordllama if embedder == "wordllama" else _minilm
        np.save(file, encode(texts).astype(np.float32))
    return np.load(file)


def _minilm(texts: list[str]) -> np.ndarray:
    """In padded batches: here only the speed of the memory is measured."""
    from sentence_transformers import SentenceTransformer

    from forgetmem.embedding.minilm import packaged_folder

    model = SentenceTransformer(str(packaged_folder()), device="cpu")
    return np.asarray(model.encode(texts, batch_size=64, show_progress_bar=False))


def _wordllama(texts: list[str]) -> np.ndarray:
    import wordllama

    place = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=place, disable_download=True)
    return np.asarray(model.embed(texts, norm=True))
