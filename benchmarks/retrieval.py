"""Are the answers at least as good as plain vector search, and better with copies?

Recall@10 of cosine, MMR, de-duplication on write and support ranking, on

- ``scifact``: the 5,183 abstracts of BEIR SciFact and its 300 test claims;
- ``redundant``: the abstracts that these claims cite, 150 of them in 12 versions each;
- ``mixed``: the whole corpus with those versions;
- ``medquad``: 4,000 answers of MedQuAD, each to be found by its question.

    python benchmarks/retrieval.py --scifact PATH --medquad PATH

PATH are folders with ``corpus.jsonl.gz``, ``queries.jsonl.gz``, ``qrels/test.tsv``, and
with ``medquad.jsonl.xz``. Embeddings are MiniLM's, and are kept in ``--cache``.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import lzma
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from report import machine, markdown, save

from forgetmem import ForgettableMemory
from forgetmem.embedding import as_embedder

K = 10
FETCH = 50
SEED = 7


@dataclass(frozen=True)
class Collection:
    """Texts of documents, and queries with the documents they should find."""

    name: str
    documents: list[str]
    X: np.ndarray
    queries: np.ndarray
    relevant: list[set[str]]


def embed(texts: list[str], cache: Path) -> np.ndarray:
    """Embed texts, or read them from the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256("\x00".join(texts).encode()).hexdigest()[:16]
    file = cache / f"{name}.npy"
    if not file.exists():
        print(f"embedding {len(texts)} texts", file=sys.stderr)
        np.save(file, as_embedder(None).encode(texts))
    return np.load(file)


def read_scifact(
    folder: Path,
) -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Read texts, claims and what each claim cites."""
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    texts = {r["_id"]: r["title"] + " " + " ".join(r["sentences"]) for r in rows}
    with gzip.open(folder / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        claims = {r["_id"]: r["text"] for r in map(json.loads, lines)}
    cited: dict[str, set[str]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            cited.setdefault(query, set()).add(document)
    return texts, claims, cited


def edited(text: str, rng: random.Random) -> str:
    """Make another version: a sentence less, two others swapped, a few words cut."""
    sentences = re.split(r"(?<=[.!?]) +", text)
    if len(sentences) > 3:
        del sentences[rng.randrange(1, len(sentences))]
        at = rng.randrange(1, len(sentences) - 1)
        sentences[at], sentences[at + 1] = sentences[at + 1], sentences[at]
    words = " ".join(sentences).split(" ")
    return " ".join(word for word in words if rng.random() > 0.03)


def scifact_collections(folder: Path, cache: Path, small: bool) -> list[Collection]:
    """Build the three collections from SciFact."""
    rng = random.Random(SEED)
    texts, claims, cited = read_scifact(folder)
    names = sorted(cited)
    queries = embed([claims[name] for name in names], cache)
    relevant = [cited[name] for name in names]
    wanted = sorted(set().union(*relevant))
    many = set(rng.sample(wanted, 150))
    versions = {
        name: [edited(texts[name], rng) for _ in range(12)] for name in sorted(many)
    }
    redundant = [
        (name, text) for name in wanted for text in versions.get(name, [texts[name]])
    ]
    whole = sorted(texts.items())
    if small:
        whole = [(n, t) for n, t in whole if n in set(wanted)] + whole[:500]
    mixed = [(n, t) for n, t in whole if n not in many] + [
        (n, t) for n in sorted(many) for t in versions[n]
    ]
    return [
        Collection(
            label,
            [name for name, _ in rows],
            embed([text for _, text in rows], cache),
            queries,
            relevant,
        )
        for label, rows in (
            ("redundant", redundant),
            ("scifact", whole),
            ("mixed", mixed),
        )
    ]


def medquad_collection(folder: Path, cache: Path, small: bool) -> Collection:
    """Take 4,000 answers, each to be found by its question."""
    with lzma.open(folder / "medquad.jsonl.xz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    rng = random.Random(SEED)
    rows = rng.sample(rows, 400 if small else 4000)
    names = [str(number) for number in range(len(rows))]
    asked = rng.sample(range(len(rows)), min(1000, len(rows)))
    return Collection(
        "medquad",
        names,
        embed([row["answer"] for row in rows], cache),
        embed([rows[at]["question"] for at in asked], cache),
        [{names[at]} for at in asked],
    )


Ranking = Callable[[np.ndarray], list[int]]


def by_mmr(X: np.ndarray, trade: float) -> Ranking:
    """Maximal marginal relevance over the 50 nearest."""

    def rank(q: np.ndarray) -> list[int]:
        cosines = X @ q
        near = list(np.argsort(-cosines)[:FETCH])
        answer: list[int] = []
        while near and len(answer) < K:
            redundancy = (
                (X[near] @ X[answer].T).max(axis=1) if answer else np.zeros(len(near))
            )
            score = trade * cosines[near] - (1.0 - trade) * redundancy
            answer.append(int(near.pop(int(np.argmax(score)))))
        return answer

    return rank


def by_memory(X: np.ndarray, ranking: str, **settings: float) -> Ranking:
    """Search a `ForgettableMemory` of these vectors."""
    memory = ForgettableMemory(**settings)
    ids = [f"{row:06d}" for row in range(len(X))]
    memory.add([""] * len(X), ids=ids, embeddings=X)
    return lambda q: [int(hit.id) for hit in memory.search(q, K, ranking=ranking)]


def without_copies(X: np.ndarray, threshold: float) -> np.ndarray:
    """Rows that a store keeps which refuses what resembles a stored one."""
    kept: list[int] = []
    for row in range(len(X)):
        if not kept or (X[kept] @ X[row]).max() < threshold:
            kept.append(row)
    return np.array(kept)


def rankings(X: np.ndarray) -> dict[str, Ranking]:
    """Every method, by its name in the table."""

    def deduplicated(threshold: float) -> Ranking:
        kept = without_copies(X, threshold)
        return lambda q: [int(kept[at]) for at in np.argsort(-(X[kept] @ q))[:K]]

    return {
        "plain cosine top-k": by_memory(X, "similarity"),
        "MMR, λ 0.5": by_mmr(X, 0.5),
        "MMR, λ 0.7": by_mmr(X, 0.7),
        "de-duplicate on write at 0.9": deduplicated(0.9),
        "de-duplicate on write at 0.95": deduplicated(0.95),
        "support ranking": by_memory(X, "support"),
        "support ranking, alike 0.925": by_memory(X, "support", alike=0.925),
        "support ranking, δ = 0": by_memory(X, "support", diminish=0.0),
    }


def recall(collection: Collection, rank: Ranking) -> float:
    """Mean share of the relevant documents among the first ten."""
    shares = []
    for q, relevant in zip(collection.queries, collection.relevant, strict=True):
        found = {collection.documents[row] for row in rank(q)}
        shares.append(len(found & relevant) / len(relevant))
    return float(np.mean(shares))


def main() -> None:
    """Run every method on every collection."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scifact", type=Path, required=True)
    parser.add_argument("--medquad", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path(".cache/embeddings"))
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    collections = [
        *scifact_collections(options.scifact, options.cache, options.small),
        medquad_collection(options.medquad, options.cache, options.small),
    ]
    table: dict[str, dict[str, float]] = {}
    for collection in collections:
        X = collection.X / np.linalg.norm(collection.X, axis=1, keepdims=True)
        for name, rank in rankings(X).items():
            table.setdefault(name, {})[collection.name] = recall(collection, rank)
    names = [collection.name for collection in collections]
    print(
        markdown(
            ["recall@10", *names],
            [[name, *(f"{row[n]:.3f}" for n in names)] for name, row in table.items()],
        )
    )
    sizes = {
        c.name: {"texts": len(c.X), "queries": len(c.queries)} for c in collections
    }
    save(
        "retrieval",
        {"machine": machine(), "seed": SEED, "k": K, "sizes": sizes, "recall": table},
    )


if __name__ == "__main__":
    main()
