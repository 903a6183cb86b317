"""Can the memory say "I don't know"? Telling queries it cannot answer from others.

    python benchmarks/novelty.py --data PATH
    python benchmarks/novelty.py --small

A memory is asked what it can answer and what it cannot; each score should be higher for
what it cannot. AUROC of the memory's `novelty`, of 1 - the largest cosine, and of the
mean distance to the 10 nearest records, with 95 % bootstrap intervals of the paired
differences. Needs the folders ``scifact``, ``medquad``, ``banking77`` and ``locomo`` of
`corpora`. Embeddings are MiniLM's.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from corpora import (
    SEED,
    Part,
    banking77,
    embed,
    locomo,
    medquad,
    options,
    parsed,
    scifact,
    small,
)
from report import machine, markdown, save

NEIGHBOURS = 10
RESAMPLES = 1000
OURS = "novelty of the memory"
COSINE, NEAREST = "1 - largest cosine", f"distance to the {NEIGHBOURS} nearest"
WHOLE = "1 - Σ w κ over the whole support"


@dataclass(frozen=True)
class Task:
    """Texts of a memory, queries it can answer, and queries it cannot."""

    name: str
    texts: list[str]
    known: list[str]
    unknown: list[str]


def first(collections: Iterator[Any]) -> Part:
    """The first part of the first collection."""
    return next(iter(collections)).parts[0]


def across(data: Path) -> Iterator[Task]:
    """Claims about abstracts against questions about something else."""
    abstracts = list(scifact(data / "scifact"))[1].parts[0]
    answers = first(medquad(data / "medquad"))
    bank = first(banking77(data / "banking77"))
    chats = next(iter(locomo(data / "locomo"))).parts
    asked = [question for part in chats for question in part.queries]
    claims, medical = abstracts.queries, answers.queries
    yield Task(
        "abstracts: claims / medical questions", abstracts.texts, claims, medical
    )
    yield Task("abstracts: claims / bank", abstracts.texts, claims, bank.queries)
    yield Task("answers: medical questions / claims", answers.texts, medical, claims)
    yield Task(
        "answers: medical questions / bank", answers.texts, medical, bank.queries
    )
    for number in (0, 4, 8):
        mine = chats[number]
        others = [question for question in asked if question not in mine.queries]
        others = random.Random(SEED).sample(others, 400)
        yield Task(
            f"chat {number + 1}: its questions / those of other chats",
            mine.texts,
            mine.queries,
            others,
        )


def held_out(part: Part, name: str, held: int, rounds: int) -> Iterator[Task]:
    """Questions of known intents against those of intents that were held out."""
    label_of = [next(iter(wanted)) for wanted in part.wanted]
    labels = sorted(set(part.labels))
    for number in range(rounds):
        out = set(random.Random(SEED + number).sample(labels, held))
        inside = [
            q for q, x in zip(part.queries, label_of, strict=True) if x not in out
        ]
        outside = [q for q, x in zip(part.queries, label_of, strict=True) if x in out]
        kept = [t for t, x in zip(part.texts, part.labels, strict=True) if x not in out]
        yield Task(f"{name}, {held} held out, draw {number + 1}", kept, inside, outside)


def scores(X: np.ndarray, Q: np.ndarray) -> dict[str, np.ndarray]:
    """Every score of every query; higher means newer."""
    from forgetmem import ForgettableMemory

    cosines = Q @ X.T
    nearest = np.sort(cosines, axis=1)[:, ::-1][:, :NEIGHBOURS]
    with ForgettableMemory() as memory:
        ids = memory.add([""] * len(X), embeddings=X)
        ours = np.array([memory.read(q).novelty for q in Q])
        w = np.array([record.weight for record in memory.get(ids)])
    same, first_of = np.unique(X.astype(np.float32), axis=0, return_index=True)
    w_of, X_of = w[first_of], same.astype(np.float64)
    mass = np.exp(-16.0 * (1.0 - Q @ X_of.T)) @ w_of
    return {
        OURS: ours,
        WHOLE: 1.0 - mass,
        COSINE: 1.0 - cosines.max(axis=1),
        NEAREST: np.sqrt(np.maximum(2.0 - 2.0 * nearest, 0.0)).mean(axis=1),
    }


def auroc(known: np.ndarray, unknown: np.ndarray) -> float:
    """Share of pairs in which the unknown one scores higher; ties count half."""
    both = np.concatenate([known, unknown])
    _, place, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2.0)[place]
    n, m = len(known), len(unknown)
    return float((ranks[n:].sum() - m * (m + 1) / 2.0) / (n * m))


def measure(task: Task, encode: Callable[..., np.ndarray]) -> dict[str, Any]:
    """AUROC of each score, and what ours gains over each."""
    known, unknown = encode(task.known), encode(task.unknown)
    found = scores(encode(task.texts), np.vstack([known, unknown]))
    n, m = len(known), len(unknown)
    rng = np.random.default_rng(SEED)
    gaps: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(RESAMPLES):
        a, b = rng.integers(n, size=n), n + rng.integers(m, size=m)
        values = {name: auroc(s[a], s[b]) for name, s in found.items()}
        for name, value in values.items():
            gaps[name].append(values[OURS] - value)
    return {
        "records": len(task.texts),
        "known": n,
        "unknown": m,
        "auroc": {name: auroc(s[:n], s[n:]) for name, s in found.items()},
        "ours_minus": {
            name: [float(np.quantile(gap, p)) for p in (0.025, 0.5, 0.975)]
            for name, gap in gaps.items()
        },
    }


def table(result: dict[str, Any]) -> str:
    """AUROC of each score on each task."""
    rows = []
    for name, one in result["tasks"].items():
        low, _, high = one["ours_minus"][COSINE]
        rows.append(
            [
                name,
                f"{one['known']} / {one['unknown']}",
                *(f"{one['auroc'][score]:.3f}" for score in result["scores"]),
                f"[{low:+.3f}, {high:+.3f}]",
            ]
        )
    head = ["AUROC", "known / unknown", *result["scores"], "ours - cosine, 95 %"]
    return markdown(head, rows)


def section(result: dict[str, Any]) -> str:
    """The part of the README."""
    tasks = result["tasks"].values()
    gaps = [one["auroc"][OURS] - one["auroc"][COSINE] for one in tasks]
    against = [one["auroc"][OURS] - one["auroc"][NEAREST] for one in tasks]
    return f"""## Can the memory say "I don't know"?

`{result["machine"]["command"]}`; what each memory holds: what it is asked that it can answer
/ that it cannot. `read(q).novelty` is 1 - Σ w κ(q, x) over the best match's group.

{table(result)}

Novelty is as good as the largest cosine (differences from {min(gaps):+.3f} to
{max(gaps):+.3f}) and from {min(against):+.3f} to {max(against):+.3f} against the distance to
the {NEIGHBOURS} nearest. What it adds is its scale: it is 0 where a query repeats a record
and near 1 where nothing is close, for any embedder with calibrated settings, and a copy
of a record does not change it.
"""


def main() -> None:
    """Run every task."""
    given = parsed(options(__doc__))
    if given.small:
        tasks = list(held_out(small()[0].parts[0], "topics", 2, 2))
    else:
        bank = first(banking77(given.data / "banking77"))
        tasks = [*across(given.data), *held_out(bank, "intents", 19, 3)]
    found = {}
    for task in tasks:
        print(task.name, file=sys.stderr)
        found[task.name] = measure(task, embed)
    result = {
        "machine": machine(),
        "seed": SEED,
        "scores": [OURS, WHOLE, COSINE, NEAREST],
        "tasks": found,
    }
    print(table(result))
    save("novelty_small" if given.small else "novelty", result)


if __name__ == "__main__":
    main()
