"""How do time, memory and file grow with the number of records?

    python benchmarks/scale.py             # 10,000, 30,000 and 100,000 made records
    python benchmarks/scale.py --million   # and 1,000,000
    python benchmarks/scale.py --small     # 3,000 made records, 1,000 dense ones
    python benchmarks/scale.py --sgd PATH  # and 100,000 chat turns

Given vectors of 384 dimensions (`scale_data.py`), so that no embedding is timed; and
20,000 near-identical lines, all in one component. Every size runs in a process of its
own. FAISS flat search with one thread answers the same queries in turn with ours, and
exhaustive float64 search says what is right. Opening and resident memory are measured
in further fresh processes, over one that has imported the library and opened a memory
of one record. PATH has the ``*.jsonl.xz`` files of the Schema-Guided Dialogue data (CC BY-SA
4.0); their vectors are MiniLM's, or with ``--embedder wordllama`` those of the package
`wordllama`, kept in ``--cache``.

Writes ``results/scale.json`` and ``results/scale.svg``.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from growth_plot import growth_plot
from report import RESULTS, machine, markdown, save
from scale_data import SEED, Records, chats, dense, made

K = 10
MIB = 2**20

#: What is printed and plotted: key of a result, label, and the bar at 100,000.
ROWS = {
    "bulk_add": ("bulk add, records/s", "≥ 3,000"),
    "add_one": ("add one, ms", "≤ 25"),
    "faiss": ("FAISS IndexFlatIP, 1 thread, ms", ""),
    "similarity": ("search, similarity, ms", "≤ 0.7 × FAISS"),
    "support": ("search, support, ms", "≤ 1.0 × FAISS"),
    "similarity_1": ("similarity, filter of 1 %, ms", ""),
    "similarity_50": ("similarity, filter of 50 %, ms", ""),
    "support_1": ("support, filter of 1 %, ms", ""),
    "support_50": ("support, filter of 50 %, ms", ""),
    "read": ("read, ms", ""),
    "forget_before": ("forget, before the storage checks, ms", "≤ 10"),
    "forget": ("forget, proof and checks included, ms", "≤ 500"),
    "forget_many": ("forget 100 at once, ms", ""),
    "compact": ("compact, s", ""),
    "verify": ("verify, s", ""),
    "open": ("open, s", "≤ 1"),
    "open_first": ("open, the first one of a process, s", ""),
    "memory": ("resident / (vectors + text)", "≤ 1.6"),
    "memory_used": ("the same after 40 searches, an add and a forget", ""),
    "memory_all": ("resident with compiled code and FAISS / (vectors + text)", ""),
    "file": ("file / (vectors + text)", ""),
}
TIMES_IN_MS = ("add_one", "faiss", "similarity", "support", "forget_before", "forget")


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def median_ms(call: Callable[[int], object], repeats: int) -> float:
    """Time a call with the numbers from 0 on; the first is not counted."""
    times = [seconds(lambda n=n: call(n)) for n in range(repeats + 1)]
    return 1e3 * statistics.median(times[1:])


class InChecks:
    """Adds up the seconds spent in the storage checks of a forget."""

    def __init__(self) -> None:
        from forgetmem.store import SQLiteStore

        self.total = 0.0
        clean = SQLiteStore.clean

        def timed(store: Any, *args: Any) -> Any:
            start = time.perf_counter()
            try:
                return clean(store, *args)
            finally:
                self.total += time.perf_counter() - start

        SQLiteStore.clean = timed  # type: ignore[method-assign]


def exact(memory: Any, ids: list[str], q: np.ndarray) -> list[float]:
    """Cosines of stored vectors, by float64 products."""
    wide = q.astype(np.float64)
    return [
        math.fsum(record.embedding.astype(np.float64) * wide)
        for record in memory.get(ids)
    ]


def true_top(memory: Any, records: Records, q: np.ndarray) -> list[tuple[float, str]]:
    """The exact top: cosine and id of `K` records, ties by id."""
    rough = records.X @ q
    cut = np.partition(rough, -K)[-K] - 1e-4
    ids = [records.ids[row] for row in np.flatnonzero(rough >= cut).tolist()]
    found = zip(exact(memory, ids, q), ids, strict=True)
    return sorted(found, key=lambda one: (-one[0], one[1]))[:K]


def searches(memory: Any, records: Records, repeats: int) -> dict[str, Any]:
    """Ours and FAISS in turn, query by query."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(records.X.shape[1])
    index.add(records.X)
    times: dict[str, list[float]] = {}
    right = {"similarity": 0, "faiss": 0}
    where = {"_1": {"user": 7}, "_50": {"side": 1}, "": None}
    for number in range(repeats + 1):
        q = records.queries[number]
        for ranking in ("similarity", "support"):
            for suffix, condition in where.items():
                ask = seconds(
                    lambda q=q, r=ranking, c=condition: memory.search(
                        q, K, ranking=r, where=c
                    )
                )
                times.setdefault(ranking + suffix, []).append(ask)
        times.setdefault("faiss", []).append(
            seconds(lambda q=q: index.search(q[np.newaxis], K))
        )
        if number < 20:
            truth = true_top(memory, records, q)
            ours = memory.search(q, K, ranking="similarity")
            right["similarity"] += [hit.id for hit in ours] == [id for _, id in truth]
            rows = index.search(q[np.newaxis], K)[1][0].tolist()
            theirs = exact(memory, [records.ids[row] for row in rows], q)
            right["faiss"] += sorted(theirs) == sorted(cosine for cosine, _ in truth)
    found = {name: 1e3 * statistics.median(t[1:]) for name, t in times.items()}
    ratios = {
        f"{ranking}_ratio": found[ranking] / found["faiss"]
        for ranking in ("similarity", "support")
    }
    return {**found, **ratios, "equal_results": right, "compared": min(20, repeats + 1)}


def measure(records: Records, folder: Path, repeats: int) -> dict[str, Any]:
    """Fill a file, use it, and measure."""
    from forgetmem import ForgettableMemory

    with ForgettableMemory(folder / "warm.forgetmem") as warm:
        some = slice(0, min(600, len(records.texts)))
        warm.add(records.texts[some], ids=records.ids[some], embeddings=records.X[some])
        warm.search(records.queries[0])
        warm.search(records.queries[0], ranking="similarity")
        warm.verify(warm.forget(warm.ids()[0]))
    path = folder / "scale.forgetmem"
    rng = np.random.default_rng(SEED)
    n = len(records.texts)
    found: dict[str, Any] = {"records": n, "payload_bytes": records.payload}
    checks = InChecks()
    with ForgettableMemory(path) as memory:
        taken = seconds(
            lambda: memory.add(
                records.texts,
                ids=records.ids,
                metadatas=records.metadatas,
                embeddings=records.X,
            )
        )
        found["bulk_add"] = n / taken
        found["compact"] = seconds(memory.compact)
        found["file"] = path.stat().st_size / records.payload
        stats = memory.stats()
        found["stats"] = {
            name: stats[name]
            for name in ("vectors", "support", "groups", "largest_group")
        }
        found |= searches(memory, records, repeats)
        found["read"] = median_ms(lambda i: memory.read(records.queries[i]), repeats)
        new = records.X[:repeats] + 0.02 * rng.standard_normal(
            records.X[:repeats].shape
        )
        new = np.vstack([new, rng.standard_normal((1, new.shape[1]))])
        found["add_one"] = median_ms(
            lambda i: memory.add(["one more"], ids=[f"new {i}"], embeddings=new[[i]]),
            repeats,
        )
        gone = [
            records.ids[row] for row in rng.permutation(n)[: repeats + 101].tolist()
        ]
        proofs, before = [], []

        def forget(i: int) -> None:
            checks.total = 0.0
            start = time.perf_counter()
            proofs.append(memory.forget(gone[i]))
            before.append(time.perf_counter() - start - checks.total)

        found["forget"] = median_ms(forget, repeats)
        found["forget_before"] = 1e3 * statistics.median(before[1:])
        found["forget_many"] = 1e3 * seconds(lambda: memory.forget(gone[repeats + 1 :]))
        found["verify"] = seconds(lambda: memory.verify(proofs[-1]))
        assert memory.verify(proofs[-1]).ok
    return found | opened(path, records)


def opened(path: Path, records: Records) -> dict[str, Any]:
    """Open in fresh processes, three times each way."""
    from forgetmem import ForgettableMemory

    np.save(path.parent / "queries.npy", records.queries[:20])
    empty = path.parent / "empty.forgetmem"
    with ForgettableMemory(empty) as memory:
        memory.add(["one"], embeddings=records.X[:1])
    found: dict[str, Any] = {}
    for before in ([], ["--empty", str(empty)]):
        command = [sys.executable, __file__, "--open", str(path), *before]
        runs = []
        for _ in range(3):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            runs.append(json.loads(done.stdout))
        one = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        if not before:
            found["open_first"] = one["open"]
            found["memory_all"] = one["grown"] / records.payload
            continue
        found |= {
            "open": one["open"],
            "memory": one["grown"] / records.payload,
            "memory_used": one["used"] / records.payload,
            "resident_mib": one["grown"] / MIB,
        }
    return found


def open_one(path: Path, empty: Path | None) -> dict[str, float]:
    """In a fresh process: open, and see how much memory that takes."""

    import faiss  # noqa: F401  # an empty memory does not need it
    import psutil

    from forgetmem import ForgettableMemory

    process = psutil.Process()
    with ForgettableMemory(empty) as memory:
        len(memory)
    before = process.memory_info().rss
    start = time.perf_counter()
    with ForgettableMemory(path) as memory:
        size = len(memory)
        taken = time.perf_counter() - start
        grown = process.memory_info().rss - before
        for q in np.load(path.parent / "queries.npy"):
            memory.search(q, K)
            memory.search(q, K, ranking="similarity")
        memory.forget(memory.add(["one more"], embeddings=[q]))
        used = process.memory_info().rss - before
        assert len(memory) == size
    return {"open": taken, "grown": grown, "used": used}


def workloads(
    options: argparse.Namespace,
) -> dict[str, tuple[Callable[[], Records], int]]:
    """By name: how to make the records, and how often each call is timed."""
    if options.small:
        return {
            "made 3,000": (lambda: made(3000), 20),
            "one component, 1,000": (lambda: dense(1000), 10),
        }
    found: dict[str, tuple[Callable[[], Records], int]] = {
        "made 10,000": (lambda: made(10_000), 40),
        "made 30,000": (lambda: made(30_000), 40),
        "made 100,000": (lambda: made(100_000), 40),
        "one component, 20,000": (lambda: dense(20_000), 20),
    }
    if options.million:
        found["made 1,000,000"] = (lambda: made(1_000_000), 10)
    if options.sgd is not None:
        found["chat turns 100,000"] = (
            lambda: chats(options.sgd, 100_000, options.embedder, options.cache),
            40,
        )
    return found


def run_one(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one workload in this process."""
    make, repeats = workloads(options)[name]
    with tempfile.TemporaryDirectory(dir=options.place) as place:
        return measure(make(), Path(place), repeats)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def section(result: dict[str, Any]) -> str:
    """The Markdown of a saved result."""
    runs: dict[str, dict[str, Any]] = result["runs"]
    rows = []
    for key, (label, bar) in ROWS.items():
        cells = [number(run[key]) for run in runs.values()]
        if f"{key}_ratio" in next(iter(runs.values())):
            cells = [
                f"{cell} ({run[f'{key}_ratio']:.2f} ×)"
                for cell, run in zip(cells, runs.values(), strict=True)
            ]
        rows.append([label, *cells, bar])
    for key in ("vectors", "groups", "largest_group"):
        label = key.replace("_", " ")
        rows.append([label, *(number(run["stats"][key]) for run in runs.values()), ""])
    equal = [
        f"{run['equal_results']['similarity']} of {run['compared']}"
        for run in runs.values()
    ]
    theirs = [
        f"{run['equal_results']['faiss']} of {run['compared']}" for run in runs.values()
    ]
    rows.append(["right answers, similarity", *equal, "all"])
    rows.append(["right answers, FAISS", *theirs, ""])
    lines = [
        "## How do time, memory and file grow with the number of records?",
        "",
        f"`{result['machine']['command']}`; given vectors of 384 dimensions, `k` 10, "
        "medians. In brackets: times FAISS's flat search of the same vectors with one "
        "thread, asked in turn. Opening and resident memory are those of a fresh process, "
        "over one that has imported the library and opened a memory of one record (which "
        "loads the compiled code and FAISS); the rows beside them show what that costs.",
        "",
        markdown(["", *runs, "bar at 100,000"], rows),
    ]
    lines += [
        "",
        "Chat turns repeat: 23 % have the vector of another one. In the one dense "
        "component every record looks like every other one, so an answer is final only "
        "when all were examined; FAISS answers from float32 and says nothing of "
        "look-alikes. The join that finds the groups of a bulk add grows with the square "
        "of the number of records; the million was measured while other work had more "
        "than one of the two cores.",
    ]
    if result.get("figure"):
        lines += ["", f"![growth of each](results/{result['figure']})"]
    return "\n".join(lines) + "\n"


def plot(runs: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw what grows, over the number of made records."""
    made_runs = [run for name, run in runs.items() if name.startswith("made")]
    lines = {
        ROWS[key][0]: [(run["records"], run[key]) for run in made_runs]
        for key in TIMES_IN_MS
    }
    for key, factor in (("open", 1e3), ("verify", 1e3), ("compact", 1e3)):
        lines[f"{key}, ms"] = [(run["records"], factor * run[key]) for run in made_runs]
    lines["bulk add, µs a record"] = [
        (run["records"], 1e6 / run["bulk_add"]) for run in made_runs
    ]
    lines["resident, MiB"] = [
        (run["records"], run["resident_mib"]) for run in made_runs
    ]
    lines["file, MiB"] = [
        (run["records"], run["file"] * run["payload_bytes"] / MIB) for run in made_runs
    ]
    path.write_text(growth_plot(lines, "records"))


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--data", type=Path, help="folder of the data sets, with sgd")
    parser.add_argument("--sgd", type=Path, help="folder of the chats alone")
    parser.add_argument("--million", action="store_true", help="takes an hour or more")
    parser.add_argument("--embedder", choices=["minilm", "wordllama"], default="minilm")
    parser.add_argument("--cache", type=Path, default=Path(".cache/embeddings"))
    parser.add_argument(
        "--place", type=Path, help="folder for the files; default: temp"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep saved results, do what is missing"
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--empty", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.data is not None and (options.data / "sgd").is_dir():
        options.sgd = options.data / "sgd"
    if options.open is not None:
        print(json.dumps(open_one(options.open, options.empty)))
        return
    if options.one is not None:
        print(json.dumps(run_one(options.one, options)))
        return
    saved = "scale_small" if options.small else "scale"
    runs: dict[str, Any] = {}
    if options.resume and (RESULTS / f"{saved}.json").exists():
        runs = json.loads((RESULTS / f"{saved}.json").read_text())["runs"]
    for name in workloads(options):
        if name in runs:
            continue
        command = [sys.executable, __file__, *sys.argv[1:], "--one", name]
        print(name, file=sys.stderr)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        runs[name] = json.loads(done.stdout)
        result = {"machine": machine(), "seed": SEED, "runs": runs}
        if not options.small and sum(name.startswith("made") for name in runs) > 1:
            plot(runs, RESULTS / "scale.svg")
            result["figure"] = "scale.svg"
        save(saved, result)
    print(section(json.loads((RESULTS / f"{saved}.json").read_text())))


if __name__ == "__main__":
    main()
