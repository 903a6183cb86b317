"""What is left after `delete`: bytes on disk, and influence in answers; and the speed.

    python benchmarks/peers.py [--small] [--only NAME]

Every store is filled with the same made records: 384-d unit vectors in clusters with
near-duplicates, each with a text and an id of its own. 1 % is deleted through the
store's own call, then its documented clean-up call is made, if it has one. Looked at,
with the store closed:

- bytes: of how many of the deleted records is the text, the id or a part of the vector
  (8 windows of 16 bytes as float32, or decimal numbers) in any file; Parquet files are
  looked at as they are and decoded;
- influence: for how many of the queries, half of them near deleted records, do the ten
  answers differ from those of a store that was filled by the same calls without the
  records. *Control* is the same comparison of two stores that both never held them: a
  store that is not reproducible differs from itself.

Each store runs in a process of its own, on one core and with one thread, and times
FAISS flat in the same process. A store that is not installed is left out and named.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import traceback
from typing import Any

import traces
from examination import SEED, examine
from report import machine, markdown, save

ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMBA_NUM_THREADS",
        "RAYON_NUM_THREADS",
    ),
    "1",
)


def kinds() -> dict[str, type]:
    """Return all stores by name."""
    import file_stores as f
    import stores as s

    every = [
        s.Forgetmem,
        s.ForgetmemSupport,
        f.FaissFlat,
        f.LangChainFAISS,
        f.LangChainInMemory,
        s.SqliteVec,
        s.LanceDB,
        s.LanceDBManyDeleted,
        s.Qdrant,
        s.QdrantOtherSqlite,
        s.MilvusLite,
        s.Chroma,
        s.LanceDBIndexed,
        s.MilvusLiteHNSW,
        f.FaissIVF,
        f.FaissHNSW,
        f.Hnswlib,
        f.Usearch,
        f.UsearchCompact,
    ]
    return {kind.name: kind for kind in every}


def versions(packages: tuple[str, ...]) -> dict[str, str] | None:
    """Versions of the packages, or None if one is missing."""
    try:
        return {name: importlib.metadata.version(name) for name in packages}
    except importlib.metadata.PackageNotFoundError:
        return None


def child(name: str, n: int) -> dict[str, Any]:
    """Examine a store in a process of its own, on one core."""
    command = [sys.executable, __file__, "--child", name, "--records", str(n)]
    done = subprocess.run(
        command, env=os.environ | ONE_THREAD, capture_output=True, text=True
    )
    marked = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode or not marked:
        last = (done.stderr or done.stdout).strip().splitlines()
        return {"store": name, "failed": last[-1] if last else "no output"}
    result: dict[str, Any] = json.loads(marked[-1].removeprefix("RESULT "))
    return result


def run_child(name: str, n: int) -> None:
    """Be that process."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    try:
        print("RESULT " + json.dumps(examine(kinds()[name], n)), flush=True)
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Some stores keep threads that never end.
    os._exit(0)


def benchmark(n: int, only: str) -> dict[str, Any]:
    """Examine all stores that are installed."""
    result: dict[str, Any] = {
        "machine": machine(),
        "load": os.getloadavg()[0],
        "seed": SEED,
        "records": n,
        "stores": [],
        "versions": {},
        "not installed": [],
    }
    for name, kind in kinds().items():
        if only and only not in name:
            continue
        found = versions(kind.packages)
        if found is None:
            print(f"{name}: not installed")
            result["not installed"].append(name)
            continue
        result["versions"] |= found
        result["stores"].append(child(name, n))
        print(name, json.dumps(result["stores"][-1]), flush=True)
    return result


def section(result: dict[str, Any]) -> str:
    """Return the Markdown that stands in the README."""
    stores = [one for one in result["stores"] if "failed" not in one]
    failed = [one for one in result["stores"] if "failed" in one]
    queries = stores[0]["control"]["queries"] if stores else 0
    notes = [f"{one['store']} failed: {one['failed']}." for one in failed]
    notes += [f"{name}: not installed." for name in result["not installed"]]
    return (
        f"""## What is left in other stores after `delete`?

`python benchmarks/peers.py`: {result["records"]} made records (384-d, clusters with
near-duplicates; 2,000 where a store takes seconds for a thousand), 1 % of them deleted
by the store's own call, then its documented clean-up. *Left* counts the deleted records
whose text, id or part of the vector stands in any file of the closed store. *Answers
changed* counts the queries, of {queries}, half of them near deleted records, whose ten
answers or scores are not those of a store that was filled by the same calls without the
deleted records; the control compares two such stores with each other.

{left_table(stores)}

{verdict(stores)}

The same stores in the same runs, each on one core and with one thread, beside FAISS flat
in the same process. Times are the fastest of several, as the machine is shared. Sizes
are relative to the float32 vectors, and the texts where the
store holds them; deleting includes what makes it durable, for ours also the proof.
Searches give ids and scores; ours, Chroma's and Qdrant's the texts too.

{speed_table(stores)}

{" ".join(notes)}
""".rstrip()
        + "\n"
    )


def left(found: dict[str, Any] | None, store: dict[str, Any]) -> str:
    """Texts, ids and vectors that are left."""
    if found is None:
        return "-"
    texts = [str(found[kind]) for kind in ("texts", "ids")]
    return " / ".join(
        [*(texts if store["holds texts"] else ["-", "-"]), str(found["vectors"])]
    )


def changed(found: dict[str, Any] | None) -> str:
    """Queries whose answers or scores are not the same."""
    return "-" if found is None else f"{found['answers or scores']}"


def left_table(stores: list[dict[str, Any]]) -> str:
    """What is left, on disk and in answers."""
    same = {True: "yes", False: "no", None: "-"}
    rows = []
    for one in stores:
        delete, clean = one["after delete"], one.get("after cleaning")
        rows.append(
            [
                one["store"],
                one["deletion"],
                f"{left(delete, one)} of {one['deleted']}",
                one["cleaning"] or "none",
                left(clean, one),
                changed(one["control"]),
                changed(delete["influence"]),
                changed(clean["influence"] if clean else None),
                same[one["files as if never held"]],
            ]
        )
    header = [
        "store",
        "deleted by",
        "left: texts / ids / vectors",
        "clean-up",
        "left then",
        "answers changed, control",
        "after deleting",
        "after the clean-up",
        "same files as if never held",
    ]
    return markdown(header, rows)


def verdict(stores: list[dict[str, Any]]) -> str:
    """Say who is clean, from the counts."""

    def clean(found: dict[str, Any] | None) -> bool:
        return found is not None and not any(found[kind] for kind in traces.FORMS)

    at_once, then, never = [], [], []
    for one in stores:
        if clean(one["after delete"]):
            at_once.append(one["store"])
        elif clean(one.get("after cleaning")):
            then.append(one["store"])
        else:
            never.append(one["store"])
    influenced, unsure = [], []
    for one in stores:
        last = one.get("after cleaning") or one["after delete"]
        changed = last["influence"]["answers or scores"]
        if one["control"]["answers or scores"]:
            unsure.append(one["store"])
        elif changed:
            influenced.append(f"{one['store']} ({changed})")
    parts = [
        f"Clean on disk as soon as records are deleted: {'; '.join(at_once) or 'none'}.",
        f"Clean after the clean-up: {'; '.join(then) or 'none'}.",
        f"Not clean, whatever is called: {'; '.join(never) or 'none'}.",
        "Answer otherwise than if the records had never been there: "
        f"{'; '.join(influenced) or 'none'}.",
        f"Differ from themselves when filled twice: {'; '.join(unsure) or 'none'}.",
        "LanceDB's clean-up rewrites a file only when a tenth of its rows are deleted. "
        "Qdrant's local mode depends on SQLite: what its pages keep is chance.",
        "Exhaustive stores that write their whole file again are clean by construction; "
        "what they do not give is a proof. An index that is built or trained on records "
        "keeps the shape that they gave it.",
    ]
    return " ".join(parts)


def speed_table(stores: list[dict[str, Any]]) -> str:
    """Times and sizes."""
    rows = []
    for one in stores:
        found, clean = one["speed"], one.get("clean up, s")
        rows.append(
            [
                one["store"],
                str(one["records"]),
                f"{found['add, records/s']:.0f}",
                f"{found['search, ms']:.2f}",
                f"{found['search / FAISS flat']:.1f}",
                f"{found['delete one, ms']:.1f}",
                "-" if clean is None else f"{1e3 * clean:.0f}",
                f"{found['reopen, ms']:.0f}",
                f"{found['bytes / payload']:.2f}",
            ]
        )
    header = [
        "store",
        "records",
        "added a second",
        "search, ms",
        "times FAISS flat",
        "delete one, ms",
        "clean-up, ms",
        "reopen and search, ms",
        "size",
    ]
    return markdown(header, rows)


def main() -> None:
    """Run, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="not read: all data is made or shipped")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", default="", help="stores whose name has this in it")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        run_child(given.child, given.records)
    result = benchmark(1_000 if given.small else given.records, given.only)
    print(section(result))
    if not given.only:
        print(save("peers_small" if given.small else "peers", result))


if __name__ == "__main__":
    main()
