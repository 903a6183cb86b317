"""The verb that makes and fills a memory: add."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

import forgetmem
from forgetmem.cli import show
from forgetmem.cli.options import EmbedderName, Json, MemoryPath, Namespace
from forgetmem.errors import InvalidInputError
from forgetmem.reading import PASSAGE_CHARACTERS, Format, Reader, Reading

if TYPE_CHECKING:
    from forgetmem.calibration import EmbedderSettings
    from forgetmem.memory import ForgettableMemory

#: Passages that are embedded and stored at once.
_BATCH = 512


def add(
    memory: MemoryPath,
    paths: Annotated[
        list[str], typer.Argument(help="Files and folders; - for standard input.")
    ],
    namespace: Namespace = "default",
    format: Annotated[
        Format, typer.Option(help="How files are read; by suffix if auto.")
    ] = Format.AUTO,
    source: Annotated[
        str | None, typer.Option(help="Source of what standard input holds.")
    ] = None,
    passage: Annotated[
        int, typer.Option(help="Longest passage of a split document, in characters.")
    ] = PASSAGE_CHARACTERS,
    root: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="Sources are paths relative to this folder."
        ),
    ] = None,
    embedder: EmbedderName = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Of a new memory: settings that suit the embedder, not the default's.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Add files, folders, JSON lines or standard input; what is there is replaced."""
    if "-" in paths and len(paths) > 1:
        raise InvalidInputError("read either standard input (-) or files")
    if calibrate and memory.exists():
        raise InvalidInputError(
            f"--calibrate is for a new memory; the settings of {memory} are fixed"
        )
    reader = Reader(format=format, passage_characters=passage, root=root)
    if paths == ["-"]:
        reading = reader.read_stream(sys.stdin.buffer, source)
    else:
        reading = reader.read(paths)
    settings: EmbedderSettings = {}
    if calibrate:
        settings = forgetmem.calibrate(embedder).settings()
    with forgetmem.ForgettableMemory(
        memory, namespace=namespace, embedder=embedder, **settings
    ) as opened:
        result = _store(opened, reading)
    skipped = [{"path": one.path, "reason": one.reason} for one in reading.skipped]
    if as_json:
        show.print_json({**result, "skipped": skipped})
        return
    for one in skipped:
        show.complain("skipped", f"{one['path']}: {one['reason']}")
    done = f"Added {show.count(result['added'], 'passage')}"
    if result["replaced"]:
        done += f", {result['replaced']:,} in the place of older ones"
    if result["stale"]:
        done += f"; forgot {result['stale']:,} that their files no longer hold"
    show.out().print(f"{done}.", soft_wrap=True)


def _store(memory: ForgettableMemory, reading: Reading) -> dict[str, Any]:
    before = set(memory.ids())
    passages, ids = reading.passages, list[str]()
    with _progress(len(passages)) as advance:
        for start in range(0, len(passages), _BATCH):
            batch = passages[start : start + _BATCH]
            ids += memory.add(
                [one.text for one in batch],
                ids=[one.id for one in batch],
                metadatas=[one.metadata for one in batch],
                source_ids=[one.source_id for one in batch],
            )
            advance(len(batch))
    stale = sorted(_numbered_under(before, reading.documents) - set(ids))
    if stale:
        memory.forget(stale)
    replaced = len(before.intersection(ids))
    return {"added": len(ids), "replaced": replaced, "stale": len(stale), "ids": ids}


def _numbered_under(ids: set[str], sources: set[str]) -> set[str]:
    """Find the passages that these documents had when they were read before."""
    found = set()
    for id in ids:
        source, _, number = id.rpartition("#")
        if source in sources and len(number) >= 4 and number.isdecimal():
            found.add(id)
    return found


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    console = show.err()
    bar = Progress(
        "embedding",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("embedding", total=total)
        yield lambda count: bar.advance(task, count)
