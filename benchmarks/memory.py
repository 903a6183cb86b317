"""What does a memory of real texts cost: add, search, forget, verify, open, bytes?

    python benchmarks/memory.py --data PATH
    python benchmarks/memory.py --small

PATH has a folder ``scifact`` (see `corpora`): 5,183 abstracts, one after the other in one
file. Medians; embedding is timed on a sample, by the memory's own embedder. FAISS flat
search of the same vectors, with one thread, stands beside.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from corpora import Part, embed, options, parsed, scifact, small
from report import machine, markdown, save

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


def per_second(call: Callable[[], object], count: int) -> float:
    """How many a second."""
    start = time.perf_counter()
    call()
    return count / (time.perf_counter() - start)


def measure(part: Part, cache: Path, sample: int) -> dict[str, Any]:
    """Fill a file, use it, and measure."""
    import faiss

    from forgetmem import ForgettableMemory

    texts, ids = part.texts, [f"{row:05d}" for row in range(len(part.texts))]
    X = embed(texts, cache=cache).astype(np.float32)
    queries = embed(part.queries, cache=cache).astype(np.float32)
    rng = random.Random(SEED)
    found: dict[str, Any] = {"records": len(ids)}
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "memory.forgetmem"
        with ForgettableMemory(Path(place) / "warm.forgetmem") as warm:
            warm.add(texts[:60], embeddings=X[:60])
            warm.verify(warm.forget(warm.ids()[0]))
        with ForgettableMemory(path) as memory:
            found["add, records/s"] = per_second(
                lambda: memory.add(texts, ids=ids, embeddings=X), len(ids)
            )
            memory.compact()
            payload = X.nbytes + sum(len(text.encode()) for text in texts)
            found["file / (vectors + text)"] = path.stat().st_size / payload
            for ranking in ("support", "similarity"):
                found[f"search, {ranking}, ms"] = median_ms(
                    lambda n, ranking=ranking: memory.search(
                        queries[n], 10, ranking=ranking
                    )
                )
            index = faiss.IndexFlatIP(X.shape[1])
            index.add(X)
            threads = faiss.omp_get_max_threads()
            faiss.omp_set_num_threads(1)
            found["FAISS flat, one thread, ms"] = median_ms(
                lambda n: index.search(queries[n : n + 1], 10)
            )
            faiss.omp_set_num_threads(threads)
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

        def open_it(_: int) -> None:
            with ForgettableMemory(path) as memory:
                len(memory)

        found["open, ms"] = median_ms(open_it, 5)
    with ForgettableMemory() as memory:
        memory.add(["warm"])
        for name, some in (("texts", texts), ("queries", part.queries)):
            chosen = rng.sample(some, min(sample, len(some)))
            mean = sum(len(text.split()) for text in chosen) / len(chosen)
            found[f"embedding and adding {name} of {mean:.0f} words, a second"] = (
                per_second(lambda chosen=chosen: memory.add(chosen), len(chosen))
            )
    return found


def table(result: dict[str, Any]) -> str:
    """What was measured."""
    return markdown(
        ["", "measured"], [[n, f"{v:.4g}"] for n, v in result["measured"].items()]
    )


def section(result: dict[str, Any]) -> str:
    """The part of the README."""
    return f"""## What does a memory of real texts cost?

`{result["machine"]["command"]}`; {result["about"]}, in one file.

{table(result)}

A forget includes the proof: one transaction, the look at every byte and the search for what
was forgotten. Embedding one text at a time, which keeps a vector independent of its
neighbours, costs three quarters of the throughput of padded batches (69 to 88 short texts a
second against 299 in batches of 32 with two threads). A BERT of our own that kept the bits
and packed texts without padding reached 406; it was dropped, because a well-kept library
outside our purpose is worth more than the speed.
"""


def main() -> None:
    """Measure and report."""
    given = parsed(options(__doc__))
    chosen = small()[0] if given.small else list(scifact(given.data / "scifact"))[1]
    found = measure(chosen.parts[0], given.cache, 20 if given.small else 200)
    result = {
        "machine": machine(),
        "seed": SEED,
        "about": chosen.about,
        "measured": found,
    }
    print(table(result))
    save("memory_small" if given.small else "memory", result)


if __name__ == "__main__":
    main()
