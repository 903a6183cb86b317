"""One person asks a support desk to be forgotten, and can check that it happened.

Run it with ``python examples/forget_a_person.py``. The questions are real (Banking77,
CC BY 4.0, see examples/data/README.md); the names of the people are invented.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from forgetmem import ForgetProof, ForgettableMemory, Hit, Record

DATA = Path(__file__).parent / "data" / "support_desk.jsonl"
PERSON = "Nora Lindqvist"
COMMON = "How do I activate my new card?"
PROBES = (COMMON, "someone stole my card", "track the card that you sent", "new PIN")

console = Console(highlight=False)


@dataclass(frozen=True)
class Message:
    """One line of the data."""

    id: str
    text: str
    metadata: dict[str, Any]

    @property
    def is_hers(self) -> bool:
        """Tell whether the person wrote it."""
        return bool(self.metadata["customer"] == PERSON)


def load(limit: int | None) -> list[Message]:
    lines = DATA.read_text(encoding="utf-8").splitlines()
    messages = [Message(**json.loads(line)) for line in lines]
    others = [message for message in messages if not message.is_hers]
    kept = {message.id for message in others[:limit]}
    return [message for message in messages if message.is_hers or message.id in kept]


def fill(memory: ForgettableMemory, messages: Sequence[Message]) -> None:
    memory.add(
        [message.text for message in messages],
        ids=[message.id for message in messages],
        metadatas=[message.metadata for message in messages],
    )


@contextmanager
def chapter(title: str) -> Iterator[None]:
    console.print()
    console.print(Rule(Text(title, style="bold"), align="left", style="dim"))
    start = time.perf_counter()
    yield
    console.print(Text(f"{time.perf_counter() - start:.1f} s", style="dim"))


def say(line: str) -> None:
    console.print(Text.from_markup(line))


def claim(holds: bool, line: str) -> None:
    """Show a check; end the story if it does not hold."""
    mark = "[bold green]yes[/]" if holds else "[bold red]NO[/]"
    say(f"{mark}  {line}")
    if not holds:
        raise SystemExit(1)


# 1. A collection full of look-alikes


def show_collection(memory: ForgettableMemory) -> None:
    stats = memory.stats()
    carrying = stats["vectors"] - stats["reserve"]
    say(
        f"{stats['records']} questions lie in one file of "
        f"{stats['file_bytes'] / 2**20:.1f} MiB. Many ask the same thing in other "
        f"words: {stats['groups']} groups of look-alikes, the largest of "
        f"{stats['largest_group']}. {stats['reserve']} questions are said so well by "
        f"others that they carry no weight; {carrying} carry all of it."
    )


def compare_rankings(memory: ForgettableMemory) -> None:
    table = Table(box=box.SIMPLE_HEAD, title=f"“{COMMON}”", title_style="italic")
    table.add_column("plain cosine", ratio=1, style="dim")
    table.add_column("support ranking", ratio=1)
    plain = memory.search(COMMON, 5, ranking="similarity")
    support = memory.search(COMMON, 5)
    for left, right in zip(plain, support, strict=True):
        table.add_row(shown(left), shown(right, alike=True))
    console.print(table)


def shown(hit: Hit, alike: bool = False) -> Text:
    line = Text(f"{hit.score:.2f} {hit.text}")
    if alike and hit.n_similar:
        line.append(f"  +{hit.n_similar} alike", style="cyan")
    return line


# 2. What the memory knows about her


def show_person(records: Sequence[Record]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("id", "weight", "text"):
        table.add_column(name, justify="right" if name == "weight" else "left")
    for record in records:
        table.add_row(record.id, f"{record.weight:.2f}", Text(record.text))
    console.print(table)


@dataclass(frozen=True)
class Traces:
    """Byte strings that only her records account for, by kind."""

    needles: dict[str, list[bytes]]

    @classmethod
    def of(cls, hers: Sequence[Record], others: Sequence[Message]) -> Traces:
        """Collect what stands for her, and for nobody else."""
        rest = "\n".join(message.text for message in others)
        texts = [record.text for record in hers if record.text not in rest]
        vectors = [record.embedding for record in hers]
        return cls(
            {
                "her name": [PERSON.encode()],
                "ids of her messages": [record.id.encode() for record in hers],
                "texts (UTF-8)": [text.encode() for text in texts],
                "texts (UTF-16)": [text.encode("utf-16-le") for text in texts],
                "vectors (float32)": [vector.tobytes() for vector in vectors],
                "vectors (float64)": [v.astype("<f8").tobytes() for v in vectors],
                "vectors (float16)": [v.astype("<f2").tobytes() for v in vectors],
                "any 4 floats of a vector": [
                    vector[start : start + 4].tobytes()
                    for vector in vectors
                    for start in range(0, len(vector), 4)
                ],
            }
        )

    def count(self, folder: Path) -> dict[str, int]:
        """Count how many are found in the files of a folder, read as plain bytes."""
        files = [path.read_bytes() for path in folder.iterdir() if path.is_file()]
        return {
            kind: sum(any(needle in file for file in files) for needle in needles)
            for kind, needles in self.needles.items()
        }


def show_scan(traces: Traces, before: dict[str, int], after: dict[str, int]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("searched in every byte of every file")
    for name in ("needles", "found before", "found now"):
        table.add_column(name, justify="right")
    for kind, needles in traces.needles.items():
        table.add_row(kind, str(len(needles)), str(before[kind]), str(after[kind]))
    console.print(table)


# 3. The state is that of a memory that never met her


def answers(memory: ForgettableMemory) -> list[Any]:
    found = [hit for probe in PROBES for hit in memory.search(probe, 10)]
    masses = [memory.read(probe).masses.tobytes() for probe in PROBES]
    return [found, masses]


def weights(memory: ForgettableMemory, messages: Sequence[Message]) -> dict[str, float]:
    ids = [message.id for message in messages if not message.is_hers]
    return {record.id: record.weight for record in memory.get(ids)}


def compacted_sha256(memory: ForgettableMemory, path: Path) -> str:
    memory.compact()
    return hashlib.sha256(path.read_bytes()).hexdigest()


def verify_elsewhere(path: Path, proof: Path) -> bool:
    command = ["verify", str(proof.name), "--memory", str(path.name)]
    say(f"[dim]$ forgetmem {' '.join(command)}[/]")
    done = subprocess.run(
        [sys.executable, "-m", "forgetmem.cli", *command],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    console.print(Text(done.stdout.strip() + done.stderr.strip()))
    return done.returncode == 0


def show_proof(proof: ForgetProof, path: Path) -> None:
    excerpt = json.loads(path.read_text(encoding="utf-8"))
    one = next(c for c in excerpt["commitments"] if c["kind"] == "text")
    lines = [
        f'"forgotten": {excerpt["forgotten"]}',
        f'"commitments": [{json.dumps(one)}, …]',
        f'"digest_after": "{excerpt["digest_after"]}"',
        f'"storage": {json.dumps(excerpt["storage"])}',
    ]
    console.print(Panel(Text("\n".join(lines)), title=path.name, box=box.ROUNDED))
    say(
        "It can be published: what was forgotten stands in it only as HMACs under "
        "[bold]proof.key[/], 32 bytes that she keeps."
    )
    if proof.groups:
        worst = max(group.sharp_bound for group in proof.groups)
        say(
            f"She was part of {len(proof.groups)} groups. The certificates say that no "
            f"answer to any question is off the exact one by more than {worst:.0e}."
        )


def tell(folder: Path, limit: int | None) -> None:
    messages = load(limit)
    others = [message for message in messages if not message.is_hers]
    path, proof_path = folder / "desk.forgetmem", folder / "proof.json"

    with chapter("A support desk remembers what customers asked"):
        memory = ForgettableMemory(path)
        fill(memory, messages)
        show_collection(memory)
        compare_rankings(memory)
        say("Copies crowd the left side. On the right each look-alike counts less.")

    with chapter(f"{PERSON} asks to be forgotten"):
        hers = memory.get([message.id for message in messages if message.is_hers])
        show_person(hers)
        traces = Traces.of(hers, others)
        found_before, weights_before = traces.count(folder), weights(memory, messages)
        proof = memory.forget(where={"customer": PERSON}, audit="rebuild")
        proof.save(proof_path)
        memory.close()
        say(f"{proof.forgotten} messages forgotten, {proof.n_records_after} are left.")
        show_proof(proof, proof_path)

    with chapter(
        "She checks it: another process, with the file, the proof and her key"
    ):
        claim(verify_elsewhere(path, proof_path), "the proof holds")

    with chapter("She looks for herself, from outside, without this library"):
        found_now = traces.count(folder)
        show_scan(traces, found_before, found_now)
        claim(found_before["her name"] == 1, "the scan did find her before")
        claim(not any(found_now.values()), "nothing of her is in any file now")

    with chapter("Compare with a memory that never met her"):
        memory, apart = ForgettableMemory(path), folder / "apart"
        apart.mkdir()
        stranger = ForgettableMemory(apart / "desk.forgetmem")
        fill(stranger, random.Random(0).sample(others, len(others)))
        changed = weights(memory, messages)
        moved = sum(weights_before[id] != weight for id, weight in changed.items())
        say(
            f"Forgetting her moved the weights of {moved} messages of other people, "
            "which had shared what they say with hers. Is it now as if she had never "
            "written?"
        )
        digest = memory.digest()
        claim(digest == stranger.digest(), f"the same digest, {digest[:32]}…")
        claim(digest == proof.digest_after, "and the one that the proof names")
        claim(
            answers(memory) == answers(stranger),
            "the same answers and weights, bit for bit",
        )
        claim(
            compacted_sha256(memory, path)
            == compacted_sha256(stranger, apart / "desk.forgetmem"),
            "compacted, the two files are equal byte for byte",
        )
        stranger.close()

    with chapter("A proof that could not fail would prove nothing"):
        (again,) = memory.add([hers[0].text], ids=["under-another-id"])
        verdict = memory.verify(proof)
        claim(not verdict.ok, f"one message came back as {again!r}: verification fails")
        say(f"[dim]{verdict.reasons[0]}[/]")
        memory.forget(again)
        claim(memory.verify(proof).ok, "forgotten once more, it holds again")
        memory.close()

    console.print()
    say("[bold]What it does not speak of:[/] " + "; ".join(proof.not_covered) + ".")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--messages", type=int, help="use only that many messages of other people"
    )
    parser.add_argument("--keep", type=Path, help="write into this folder, and keep it")
    options = parser.parse_args()
    start = time.perf_counter()
    if options.keep is None:
        with tempfile.TemporaryDirectory() as folder:
            tell(Path(folder), options.messages)
    else:
        options.keep.mkdir(parents=True)
        tell(options.keep, options.messages)
    console.print(Text(f"All of it took {time.perf_counter() - start:.0f} s."))


if __name__ == "__main__":
    main()
