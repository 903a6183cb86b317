"""Verbs that take away, and verbs that check: forget, prune, compact, verify, audit."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.text import Text

from forgetmem.cli import show
from forgetmem.cli.options import (
    Exit,
    Json,
    MemoryPath,
    Namespace,
    Where,
    condition,
    existing,
    print_model,
    working,
)
from forgetmem.errors import ErasureError, InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from forgetmem.memory import ForgettableMemory
    from forgetmem.proof import ForgetProof

#: Seconds before each new try to remove bytes that something holds.
_RETRIES = (1.0, 2.0, 4.0)


def forget(
    memory: MemoryPath,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of records.")] = None,
    namespace: Namespace = "default",
    source: Annotated[
        str | None, typer.Option(help="Every record of this source.")
    ] = None,
    where: Where = None,
    proof: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False, help="Where the proof goes; its key lies beside it."
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option(help="Compare with a memory rebuilt from the rest.")
    ] = False,
    ignore_missing: Annotated[
        bool, typer.Option(help="List unknown ids instead of stopping at them.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Erase records as if they had never been added, and prove it."""
    target = None if proof is None else _free(proof)
    chosen = condition(where)
    with existing(memory, namespace) as opened:
        if not yes and sys.stdin.isatty():
            _ask(opened, ids, source, where)
        with working("erasing and looking at every byte"):
            try:
                document = opened.forget(
                    ids or None,
                    source_id=source,
                    where=chosen,
                    missing="ignore" if ignore_missing else "raise",
                    audit="rebuild" if rebuild else None,
                )
            except ErasureError as error:
                document = _insist(error)
    saved = (None, None) if target is None else document.save(target)
    _report_forget(document, saved, as_json)


def _report_forget(
    document: ForgetProof, saved: tuple[Path | None, Path | None], as_json: bool
) -> None:
    proof, key = (None if path is None else str(path) for path in saved)
    if as_json:
        show.print_json(
            {
                "forgotten": document.forgotten,
                "not_found": list(document.not_found_ids),
                "proof": proof,
                "key": key,
                "document": document.model_dump(mode="json"),
            }
        )
        return
    show.show_proof(document)
    if proof is None:
        show.complain("note", "the proof was not kept; --proof FILE keeps it")
    else:
        show.out().print(show.safe(f"proof {proof}"))
        show.out().print(show.safe(f"key   {key}  (for whoever asked; keep it apart)"))


def _free(proof: Path) -> Path:
    """Refuse a place where the proof of an erasure could not be written after it."""
    for path in (proof, proof.with_suffix(".key")):
        if path.exists():
            raise InvalidInputError(f"{path} exists; a proof never replaces a file")
    if proof.suffix == ".key":
        raise InvalidInputError("the suffix .key is for the proof's key")
    if not os.access(proof.absolute().parent, os.W_OK):
        raise InvalidInputError(f"{proof.parent} is no folder that can be written")
    return proof


def _ask(
    memory: ForgettableMemory,
    ids: list[str] | None,
    source: str | None,
    where: str | None,
) -> None:
    what = f"{len(ids)} ids" if ids else f"source {source!r}" if source else where
    question = Text(f"Forget {what}, of {len(memory):,} records? There is no way back.")
    show.err().print(question)
    if not typer.confirm("Forget", err=True):
        raise typer.Exit(Exit.USAGE)


def _insist(error: ErasureError) -> ForgetProof:
    """Try again for some seconds: whoever holds the bytes may let go of them."""
    for seconds in _RETRIES:
        time.sleep(seconds)
        try:
            document = error.pending.retry() if error.pending else None
        except ErasureError as again:
            error = again
        else:
            return cast("ForgetProof", document)
    raise error


def verify(
    memory: MemoryPath,
    proof: Annotated[Path, typer.Argument(dir_okay=False, help="The proof.")],
    namespace: Namespace = "default",
    key: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="Its key, if it does not lie beside it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a proof against the memory as it is now; exit code 1 if it fails."""
    for path in (proof, key):
        if path is not None and not path.is_file():
            raise NotFoundError(f"there is no file {path}")
    with (
        existing(memory, namespace, read_only=True) as opened,
        working("looking at every byte"),
    ):
        verdict = opened.verify(proof, key)
    if as_json:
        print_model(verdict)
    else:
        show.show_verdict(verdict)
    raise typer.Exit(0 if verdict.ok else Exit.FAILED)


def audit(
    memory: MemoryPath,
    namespace: Namespace = "default",
    deep: Annotated[
        bool, typer.Option(help="Look for vectors in other encodings too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the memory against an independent rebuild; exit code 1 if it fails."""
    with (
        existing(memory, namespace, read_only=True) as opened,
        working("rebuilding"),
    ):
        report = opened.audit(deep=deep)
    if as_json:
        print_model(report)
    else:
        show.show_report(report)
    raise typer.Exit(0 if report.ok else Exit.FAILED)


def prune(
    memory: MemoryPath, namespace: Namespace = "default", as_json: Json = False
) -> None:
    """Remove reserve records that have no influence, with certificates."""
    with existing(memory, namespace) as opened, working("pruning"):
        certificates = opened.prune()
    if as_json:
        show.print_json(
            {
                "pruned": sum(one.pruned for one in certificates),
                "certificates": [one.model_dump(mode="json") for one in certificates],
            }
        )
    else:
        show.show_certificates(certificates)


def compact(memory: MemoryPath, as_json: Json = False) -> None:
    """Rewrite the file as a function of its records."""
    before = memory.stat().st_size if memory.is_file() else 0
    with existing(memory, "default") as opened, working("rewriting"):
        opened.compact()
    after = memory.stat().st_size
    if as_json:
        show.print_json({"bytes_before": before, "bytes_after": after})
    else:
        show.out().print(f"{before:,} bytes before, {after:,} bytes now.")
