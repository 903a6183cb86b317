"""Verbs that only look: search, read, get, stats, digest."""

from __future__ import annotations

from typing import Annotated

import typer

from forgetmem.cli import show
from forgetmem.cli.options import (
    EmbedderName,
    Json,
    MemoryPath,
    Namespace,
    Where,
    condition,
    existing,
    print_model,
)
from forgetmem.errors import NotFoundError


def search(
    memory: MemoryPath,
    query: Annotated[str, typer.Argument(help="A text.")],
    namespace: Namespace = "default",
    k: Annotated[int, typer.Option("-k", help="How many hits.")] = 5,
    where: Where = None,
    similarity: Annotated[
        bool, typer.Option(help="Plain cosine ranking, copies and all.")
    ] = False,
    full: Annotated[bool, typer.Option(help="Whole texts.")] = False,
    embedder: EmbedderName = None,
    as_json: Json = False,
) -> None:
    """Find the records that answer a query."""
    with existing(memory, namespace, embedder) as opened:
        hits = opened.search(
            query,
            k,
            where=condition(where),
            ranking="similarity" if similarity else "support",
        )
    if as_json:
        show.print_json({"hits": [hit.model_dump(mode="json") for hit in hits]})
    else:
        show.show_hits(hits, full=full)


def read(
    memory: MemoryPath,
    query: Annotated[str, typer.Argument(help="A text.")],
    namespace: Namespace = "default",
    k: Annotated[int, typer.Option("-k", help="How many masses are named.")] = 10,
    embedder: EmbedderName = None,
    as_json: Json = False,
) -> None:
    """Read the memory as a whole: masses of the support, and novelty."""
    with existing(memory, namespace, embedder) as opened:
        readout = opened.read(query, k)
    if as_json:
        print_model(readout)
    else:
        show.show_readout(readout)


def get(
    memory: MemoryPath,
    ids: Annotated[list[str], typer.Argument(help="Ids of records.")],
    namespace: Namespace = "default",
    as_json: Json = False,
) -> None:
    """Show whole records by id."""
    with existing(memory, namespace) as opened:
        records = opened.get(ids)
    if as_json:
        found = [record.model_dump(mode="json") for record in records]
        show.print_json({"records": found})
    else:
        show.show_records(records)
    if len(records) < len(set(ids)):
        there = {record.id for record in records}
        raise NotFoundError(
            f"no record has the id {next(id for id in ids if id not in there)!r}"
        )


def stats(
    memory: MemoryPath, namespace: Namespace = "default", as_json: Json = False
) -> None:
    """Show counts, sizes, settings and prune certificates."""
    with existing(memory, namespace) as opened:
        values = opened.stats()
    if as_json:
        show.print_json(values)
    else:
        show.show_stats(values)


def digest(
    memory: MemoryPath, namespace: Namespace = "default", as_json: Json = False
) -> None:
    """Show the digest: equal for equal sets of records, whatever their history."""
    with existing(memory, namespace) as opened:
        value = opened.digest()
    if as_json:
        show.print_json({"digest": value})
    else:
        print(value)
