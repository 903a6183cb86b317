"""What does a memory of real texts cost: add, search, forget, verify, open, bytes?

    python benchmarks/memory.py --scifact PATH

PATH is a folder with SciFact's ``corpus.jsonl.gz`` and ``queries.jsonl.gz``. Medians;
embeddings are MiniLM's and kept in ``--cache``, and embedding is timed on a sample.
FAISS flat search of the same vectors, with one thread, stands beside.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
from report import machine, markdown, save
from retrieval import embed, read_scifact

from forgetmem import ForgettableMemory

SEED = 7
REPEATS = 30


def median_ms(call: Callable[[int], object], repeats: int = REPEATS) -> float:
    """Time a call with the numbers from 0 on; the first is not counted."""
    times = []
    for number in range(repeats + 1):
        start = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[1:])


def measure(folder: Path, cache: Path, sample: int) -> dict[str, Any]:
    """Fill a file, use it, and measure."""
    texts, claims, _ = read_scifact(folder)
    ids = sorted(texts)
    X = embed([texts[id] for id in ids], cache)
    queries = embed([claims[name] for name in sorted(claims)][:300], cache)
    rng = random.Random(SEED)
    found: dict[str, Any] = {"records": len(ids)}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "memory.forgetmem"
        with ForgettableMemory(Path(place) / "warm.forgetmem") as warm:
            warm.add([texts[id] for id in ids[:60]], embeddings=X[:60])
            warm.verify(warm.forget(warm.ids()[0]))
        with ForgettableMemory(path) as memory:
            start = time.perf_counter()
            memory.add([texts[id] for id in ids], ids=ids, embeddings=X)
            found["add, records/s"] = len(ids) / (time.perf_counter() - start)
            memory.compact()
            payload = X.nbytes + sum(len(text.encode()) for text in texts.values())
            found["file / (vectors + text)"] = path.stat().st_size / payload
            for ranking in ("support", "similarity"):
                found[f"search, {ranking}, ms"] = median_ms(
                    lambda n, ranking=ranking: memory.search(
                        queries[n], 10, ranking=ranking
                    )
                )
            index = faiss.IndexFlatIP(X.shape[1])
            index.add(X)
            faiss.omp_set_num_threads(1)
            found["FAISS flat, one thread, ms"] = median_ms(
                lambda n: index.search(queries[n : n + 1], 10)
            )
            found["read, ms"] = median_ms(lambda n: memory.read(queries[n]))
            found["add one, ms"] = median_ms(
                lambda n: memory.add(["new"], ids=[f"new {n}"], embeddings=[-X[n]])
            )
            gone = rng.sample(ids, REPEATS + 1)
            proofs = []
            found["forget one, proof included, ms"] = median_ms(
                lambda n: proofs.append(memory.forget(gone[n]))
            )
            found["verify, ms"] = median_ms(lambda n: memory.verify(proofs[n]), 5)
            found["stats"] = {
                name: memory.stats()[name]
                for name in ("vectors", "support", "groups", "largest_group")
            }

        def open_it(_: int) -> None:
            with ForgettableMemory(path) as memory:
                len(memory)

        found["open, ms"] = median_ms(open_it, 5)
        with ForgettableMemory() as memory:
            chosen = rng.sample(ids, sample)
            memory.add(["warm"])
            start = time.perf_counter()
            memory.add([texts[id] for id in chosen])
            found["add with embedding, abstracts/s"] = sample / (
                time.perf_counter() - start
            )
            short = [claims[name] for name in sorted(claims)][:sample]
            start = time.perf_counter()
            memory.add(short)
            found["add with embedding, claims/s"] = sample / (
                time.perf_counter() - start
            )
    return found


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scifact", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path(".cache/embeddings"))
    parser.add_argument("--sample", type=int, default=200)
    options = parser.parse_args()
    found = measure(options.scifact, options.cache, options.sample)
    rows = [[n, f"{v:.4g}"] for n, v in found.items() if isinstance(v, int | float)]
    print(markdown(["", "measured"], rows))
    save("memory", {"machine": machine(), "seed": SEED, "measured": found})


if __name__ == "__main__":
    main()
