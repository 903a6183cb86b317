"""Collections of real texts with judgements: what should be found for which query.

`full(PATH)` reads folders of PATH, each as its publishers distribute it, packed:

- ``scifact``: ``corpus.jsonl.gz``, ``queries.jsonl.gz``, ``qrels/test.tsv`` (BEIR);
- ``medquad``: ``medquad.jsonl.xz`` with ``question`` and ``answer``;
- ``banking77``: ``train.csv.gz``, ``test.csv.gz`` with ``text`` and ``category``;
- ``locomo``: ``locomo10.json.gz``;
- ``sgd``: ``train.jsonl.xz``, ``test.jsonl.xz``, a Schema-Guided Dialogue a line;
- ``loghub``: ``*_2k.log_structured.csv.gz``.

A folder that is not there is left out. `small()` needs nothing but this repository.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import json
import lzma
import random
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SEED = 7
CACHE = Path(".cache/embeddings")
EXAMPLES = Path(__file__).parent.parent / "examples" / "data"


@dataclass(frozen=True)
class Part:
    """One memory: labels and texts of its records, and queries with what they ask for.

    A record is right for a query if its label is among the query's; several records
    may carry one label: versions of a document, questions of an intent.
    """

    labels: list[str]
    texts: list[str]
    queries: list[str]
    wanted: list[set[str]]


@dataclass(frozen=True)
class Collection:
    """Parts whose queries are counted together."""

    name: str
    about: str
    parts: list[Part] = field(default_factory=list)


def minilm(texts: list[str]) -> np.ndarray:
    """MiniLM's vectors in padded batches: four times as fast as one by one.

    The library embeds one text at a time, so that no vector depends on its neighbours;
    these differ from those by 1e-7.
    """
    from sentence_transformers import SentenceTransformer

    from forgetmem.embedding.minilm import DEFAULT_MODEL, packaged_folder

    model = SentenceTransformer(str(packaged_folder() or DEFAULT_MODEL), device="cpu")
    return np.asarray(model.encode(texts, batch_size=64, show_progress_bar=False))


def embed(
    texts: list[str],
    encode: Callable[[list[str]], np.ndarray] = minilm,
    cache: Path = CACHE,
) -> np.ndarray:
    """Unit vectors of texts; each text is embedded once and then read from a cache."""
    cache.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(cache / f"{encode.__name__}.sqlite")) as store, store:
        store.execute("CREATE TABLE IF NOT EXISTS v (k BLOB PRIMARY KEY, x BLOB)")
        keys = [hashlib.sha256(text.encode()).digest() for text in texts]
        known = {key for (key,) in store.execute("SELECT k FROM v")}
        missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in known}
        for start in range(0, len(missing), 2048):
            some = list(missing.items())[start : start + 2048]
            print(f"embedding {start} of {len(missing)} texts", file=sys.stderr)
            found = encode([text for _, text in some]).astype(np.float32)
            rows = [(k, x.tobytes()) for (k, _), x in zip(some, found, strict=True)]
            store.executemany("INSERT INTO v VALUES (?, ?)", rows)
            store.commit()
        wanted = set(keys)
        vectors = {
            key: np.frombuffer(x, dtype=np.float32)
            for key, x in store.execute("SELECT k, x FROM v")
            if key in wanted
        }
    X = np.array([vectors[key] for key in keys], dtype=np.float64)
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X / np.where(lengths > 0.0, lengths, 1.0))


def edited(text: str, rng: random.Random) -> str:
    """Make another version: a sentence less, two others swapped, a few words cut."""
    sentences = re.split(r"(?<=[.!?]) +", text)
    if len(sentences) > 3:
        del sentences[rng.randrange(1, len(sentences))]
        at = rng.randrange(1, len(sentences) - 1)
        sentences[at], sentences[at + 1] = sentences[at + 1], sentences[at]
    words = " ".join(sentences).split(" ")
    return " ".join(word for word in words if rng.random() > 0.03)


def read_scifact(
    folder: Path,
) -> tuple[dict[str, str], dict[str, str], dict[str, set[str]]]:
    """Texts, claims and what each claim of the test set cites."""
    rows = list(_json_lines(folder / "corpus.jsonl.gz"))
    texts = {r["_id"]: r["title"] + " " + " ".join(r["sentences"]) for r in rows}
    claims = {r["_id"]: r["text"] for r in _json_lines(folder / "queries.jsonl.gz")}
    cited: dict[str, set[str]] = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0:
            cited.setdefault(query, set()).add(document)
    return texts, claims, cited


def scifact(folder: Path) -> Iterator[Collection]:
    """SciFact's abstracts; those that are cited in 12 versions; both."""
    rng = random.Random(SEED)
    texts, claims, cited = read_scifact(folder)
    names = sorted(cited)
    queries, relevant = (
        [claims[name] for name in names],
        [cited[name] for name in names],
    )
    wanted = sorted(set().union(*relevant))
    many = set(rng.sample(wanted, 150))
    versions = {
        name: [edited(texts[name], rng) for _ in range(12)] for name in sorted(many)
    }
    several = [
        (name, text) for name in wanted for text in versions.get(name, [texts[name]])
    ]
    whole = sorted(texts.items())
    mixed = [(n, t) for n, t in whole if n not in many] + [
        (n, t) for n in sorted(many) for t in versions[n]
    ]
    for label, about, rows in (
        ("versions", "cited SciFact abstracts, 150 of them in 12 versions", several),
        ("scifact", "all SciFact abstracts", whole),
        ("mixed", "all SciFact abstracts with those versions", mixed),
    ):
        part = Part([n for n, _ in rows], [t for _, t in rows], queries, relevant)
        yield Collection(label, about, [part])


def medquad(folder: Path) -> Iterator[Collection]:
    """4,000 answers of MedQuAD, each to be found by its question."""
    rows = list(_json_lines(folder / "medquad.jsonl.xz"))
    rng = random.Random(SEED)
    rows = rng.sample(rows, 4000)
    names = [str(number) for number in range(len(rows))]
    asked = rng.sample(range(len(rows)), 1000)
    part = Part(
        names,
        [row["answer"] for row in rows],
        [rows[at]["question"] for at in asked],
        [{names[at]} for at in asked],
    )
    yield Collection("medquad", "4,000 medical answers, by question", [part])


def banking77(folder: Path) -> Iterator[Collection]:
    """Questions to a bank: one of the same intent, and two of two intents at once."""
    train = list(_csv(folder / "train.csv.gz"))
    test = list(_csv(folder / "test.csv.gz"))
    rng = random.Random(SEED)
    labels, texts = [r["category"] for r in train], [r["text"] for r in train]
    one = rng.sample(test, 1000)
    pairs = [(a, b) for a, b in zip(test, rng.sample(test, len(test)), strict=True)]
    pairs = [(a, b) for a, b in pairs if a["category"] != b["category"]][:1000]
    for name, about, queries, wanted in (
        (
            "intents",
            "10,003 questions to a bank, by one of the same intent",
            [r["text"] for r in one],
            [{r["category"]} for r in one],
        ),
        (
            "two intents",
            "the same questions, by a message that asks two things",
            [f"{a['text']} {b['text']}" for a, b in pairs],
            [{a["category"], b["category"]} for a, b in pairs],
        ),
    ):
        part = Part(labels, texts, queries, wanted)
        yield Collection(name, about, [part])


def locomo(folder: Path) -> Iterator[Collection]:
    """Turns of ten long conversations, by questions whose evidence is known."""
    with gzip.open(folder / "locomo10.json.gz", "rt", encoding="utf-8") as file:
        conversations = json.load(file)
    parts = []
    for one in conversations:
        turns = [
            turn
            for key, session in one["conversation"].items()
            if re.fullmatch(r"session_\d+", key)
            for turn in session
        ]
        known = {turn["dia_id"] for turn in turns}
        asked = [
            (row["question"], set(row.get("evidence", ())) & known) for row in one["qa"]
        ]
        asked = [(question, evidence) for question, evidence in asked if evidence]
        parts.append(
            Part(
                [turn["dia_id"] for turn in turns],
                [f"{turn['speaker']}: {turn['text']}" for turn in turns],
                [question for question, _ in asked],
                [evidence for _, evidence in asked],
            )
        )
    yield Collection("chats", "LoCoMo's turns, by question", parts)


def sgd(folder: Path) -> Iterator[Collection]:
    """6,000 requests to an assistant, by a chat's first words on each intent."""
    rng = random.Random(SEED)
    said = [
        (f"{row['services'][0].split('_')[0]} {turn['intent'][0]}", turn["utterance"])
        for row in _json_lines(folder / "train.jsonl.xz")
        for turn in row["turns"]
        if turn["speaker"] == "USER"
        and len(turn.get("intent") or ()) == 1
        and len(row["services"]) == 1
    ]
    rows = rng.sample(said, 6000)
    known = {label for label, _ in rows}
    asked: list[tuple[str, set[str]]] = []
    for row in _json_lines(folder / "test.jsonl.xz"):
        first: dict[str, str] = {}
        if len(row["services"]) != 1:
            continue
        for turn in row["turns"]:
            for intent in turn.get("intent") or ():
                label = f"{row['services'][0].split('_')[0]} {intent}"
                first.setdefault(label, turn["utterance"])
        if len(first) > 1 and set(first) <= known:
            asked.append((" ".join(dict.fromkeys(first.values())), set(first)))
    asked = rng.sample(asked, min(500, len(asked)))
    part = Part(
        [label for label, _ in rows],
        [text for _, text in rows],
        [text for text, _ in asked],
        [wanted for _, wanted in asked],
    )
    yield Collection(
        "requests", "chat requests, by a chat's own words on its intents", [part]
    )


def loghub(folder: Path) -> Iterator[Collection]:
    """Log lines of seven systems, by three of the lines that followed later."""
    parts = []
    for file in sorted(folder.glob("*_2k.log_structured.csv.gz")):
        rng = random.Random(SEED)
        rows = list(_csv(file))
        before, after = rows[:1600], rows[1600:]
        known = {row["EventId"] for row in before}
        by_event: dict[str, list[str]] = {}
        for row in after:
            if row["EventId"] in known:
                by_event.setdefault(row["EventId"], []).append(row["Content"])
        queries, wanted = [], []
        if len(by_event) >= 3:
            for _ in range(100):
                events = rng.sample(sorted(by_event), 3)
                queries.append(" ".join(rng.choice(by_event[e]) for e in events))
                wanted.append(set(events))
        parts.append(
            Part(
                [row["EventId"] for row in before],
                [row["Content"] for row in before],
                queries,
                wanted,
            )
        )
    yield Collection("logs", "log lines, by three later lines of three events", parts)


READERS = {
    "scifact": scifact,
    "medquad": medquad,
    "banking77": banking77,
    "locomo": locomo,
    "sgd": sgd,
    "loghub": loghub,
}


def full(path: Path) -> list[Collection]:
    """All collections whose folders are there."""
    found = []
    for name, read in READERS.items():
        if (path / name).is_dir():
            found += list(read(path / name))
        else:
            print(f"{path / name}: not there, left out", file=sys.stderr)
    return found


def small() -> list[Collection]:
    """What the examples of this repository ship: questions to a bank, fact sheets."""
    rng = random.Random(SEED)
    rows = list(_json_lines(EXAMPLES / "support_desk.jsonl"))
    rng.shuffle(rows)
    kept, asked = rows[:700], rows[700:800]
    topics = Part(
        [row["metadata"]["topic"] for row in kept],
        [row["text"] for row in kept],
        [row["text"] for row in asked],
        [{row["metadata"]["topic"]} for row in asked],
    )
    sheets = list(_json_lines(EXAMPLES / "fact_sheets.jsonl"))[::2]
    several = [
        (row["id"], edited(row["text"], rng)) for row in sheets for _ in range(8)
    ]
    versions = Part(
        [name for name, _ in several],
        [text for _, text in several],
        [row["metadata"]["question"] for row in sheets],
        [{row["id"]} for row in sheets],
    )
    return [
        Collection("topics", "700 questions to a bank, by topic", [topics]),
        Collection("sheets", "23 fact sheets in 4 versions", [versions]),
    ]


def options(about: str | None) -> argparse.ArgumentParser:
    """The options of every benchmark on these collections."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--small", action="store_true", help="shipped texts only")
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What was given; data, or that none is wanted."""
    given = parser.parse_args()
    if not given.small and given.data is None:
        parser.error("--data PATH or --small")
    return given


def _json_lines(path: Path) -> Iterator[Any]:
    opened = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opened(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _csv(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        yield from csv.DictReader(lines)
