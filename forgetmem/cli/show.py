"""What people see: tables and lines, safe for a terminal whatever a record holds."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from forgetmem.proof import ForgetProof
    from forgetmem.records import Hit, Readout, Record
    from forgetmem.verdicts import AuditReport, PruneCertificate, Verdict

_COLOURS = {
    "passed": "green",
    "failed": "bold red",
    "not checked": "yellow",
    "changed": "cyan",
}


def out() -> Console:
    """Return the console of results: standard output.

    Returns
    -------
    Console
    """
    return Console(highlight=False)


def err() -> Console:
    """Return the console of everything else: standard error.

    Returns
    -------
    Console
    """
    return Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """Print one JSON document, in ASCII, so that any pipe can carry it.

    Parameters
    ----------
    value : JSON value
    """
    print(json.dumps(value, indent=2))


def safe(text: str, limit: int | None = None) -> Text:
    """Return a text for the terminal: no markup, no control sequences.

    Parameters
    ----------
    text : str
        What a record holds.
    limit : int, optional
        Cut to that many characters.

    Returns
    -------
    Text
    """
    if limit is not None and len(text) > limit:
        text = text[: limit - 1].rstrip() + "…"
    return Text("".join(_visible(character) for character in text))


def _visible(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf"):
        return character
    return "\N{REPLACEMENT CHARACTER}"


def show_hits(hits: Sequence[Hit], *, full: bool) -> None:
    """Show the answers of a search.

    Parameters
    ----------
    hits : sequence of Hit
    full : bool
        Whole texts, not their beginnings.
    """
    if not hits:
        out().print("Nothing found.")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("cosine", justify="right")
    table.add_column("text", ratio=1)
    table.add_column("id", style="dim", overflow="fold", max_width=32)
    for hit in hits:
        text = hit.text if full else " ".join(hit.text.split())
        body: list[Text] = [safe(text, None if full else 300)]
        notes = _notes(hit)
        if notes:
            body.append(Text(notes, style="cyan"))
        table.add_row(
            f"{hit.score:.3f}", Padding(Group(*body), (0, 0, 1, 0)), safe(hit.id)
        )
    out().print(table)


def _notes(hit: Hit) -> str:
    notes = []
    if hit.n_same:
        notes.append(f"{hit.n_same} more with the same vector")
    if hit.n_similar:
        notes.append(f"{hit.n_similar} alike")
    if hit.role == "reserve":
        notes.append("reserve")
    return ", ".join(notes)


def show_readout(readout: Readout) -> None:
    """Show what the memory as a whole says to a query.

    Parameters
    ----------
    readout : Readout
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("mass", "weight", "cosine"):
        table.add_column(name, justify="right")
    table.add_column("id", overflow="fold")
    for mass, weight, score, id in zip(
        readout.masses, readout.weights, readout.scores, readout.ids, strict=True
    ):
        table.add_row(f"{mass:.4f}", f"{weight:.4f}", f"{score:.3f}", safe(id))
    out().print(table)
    out().print(
        f"novelty {readout.novelty:.4f}, read from {readout.n_support} support vectors"
    )


def show_records(records: Sequence[Record]) -> None:
    """Show whole records.

    Parameters
    ----------
    records : sequence of Record
    """
    for record in records:
        head = safe(record.id)
        head.stylize("bold")
        head.append(f"  weight {record.weight:.4f}, {record.role}", style="dim")
        if record.source_id is not None:
            head.append_text(Text(", from ", style="dim")).append_text(
                safe(record.source_id)
            )
        out().print(head)
        if record.metadata:
            out().print(safe(json.dumps(record.metadata, ensure_ascii=False)))
        out().print(safe(record.text), end="\n\n")


def show_proof(proof: ForgetProof) -> None:
    """Show what a forget did and what its proof rests on.

    Parameters
    ----------
    proof : ForgetProof
    """
    lines = [
        ("forgotten", count(proof.forgotten, "record")),
        ("left", count(proof.n_records_after, "record")),
        ("digest now", proof.digest_after),
    ]
    if proof.not_found:
        lines.insert(1, ("not found", count(proof.not_found, "id")))
    if proof.digest_rebuilt is not None:
        same = proof.digest_rebuilt == proof.digest_after
        lines.append(("rebuilt from the rest", "equal" if same else "DIFFERENT"))
    seen = proof.storage
    if seen.files:
        lines.append(
            (
                "on disk",
                f"{seen.bytes_checked:,} bytes in {count(seen.files, 'file')} "
                f"accounted for; none of {count(seen.needles, 'byte string')} left",
            )
        )
    if proof.groups:
        worst = max(group.sharp_bound for group in proof.groups)
        lines.append(
            (
                "weights",
                f"{count(len(proof.groups), 'group')} touched, no score of any query "
                f"off by more than {worst:.1e}",
            )
        )
    out().print(_pairs(lines))


def show_report(report: AuditReport) -> None:
    """Show every check of an audit and what was audited.

    Parameters
    ----------
    report : AuditReport
    """
    show_verdict(report)
    out().print(
        f"{count(report.n_records, 'record')}, {count(report.n_vectors, 'vector')}, "
        f"{count(report.n_groups, 'group')} of look-alikes; "
        f"digest {report.digest}",
        soft_wrap=True,
    )


def show_verdict(verdict: Verdict) -> None:
    """Show every check, then whether all is well.

    Parameters
    ----------
    verdict : Verdict
    """
    table = Table(box=None, pad_edge=False, show_header=False)
    for check in verdict.checks:
        outcome = Text(check.outcome, style=_COLOURS[check.outcome])
        table.add_row(outcome, check.name, safe(check.detail))
    out().print(table)
    left = [c.name for c in verdict.checks if c.outcome != "passed"]
    if verdict.ok and left:
        note = f"ok, but see: {', '.join(left)}"
        out().print(Text(note, style="bold yellow"))
    elif verdict.ok:
        out().print(Text("ok", style="bold green"))
    else:
        out().print(Text("FAILED", style="bold red"))


def show_certificates(certificates: Sequence[PruneCertificate]) -> None:
    """Show what was pruned and how much it takes to undo its reason.

    Parameters
    ----------
    certificates : sequence of PruneCertificate
    """
    pruned = sum(certificate.pruned for certificate in certificates)
    out().print(
        f"Pruned {count(pruned, 'vector')} of {count(len(certificates), 'group')}."
    )
    if not certificates:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("group", "pruned", "left", "slack", "used", "valid"):
        table.add_column(name, justify="right")
    for one in certificates:
        state = "yes" if one.valid else f"no: {one.reason}"
        numbers = (one.number, one.pruned, one.retained)
        table.add_row(
            *map(str, numbers), f"{one.slack:.2e}", f"{one.used:.2e}", safe(state)
        )
    out().print(table)


def show_stats(stats: dict[str, Any]) -> None:
    """Show counts, sizes and settings.

    Parameters
    ----------
    stats : dict
        As `ForgettableMemory.stats` returns it.
    """
    lines = [
        (name.replace("_", " "), _plain(value))
        for name, value in stats.items()
        if name not in ("settings", "prune_certificates")
    ]
    lines += [(name, _plain(value)) for name, value in stats["settings"].items()]
    live = [one for one in stats["prune_certificates"] if one["valid"]]
    lines.append(
        ("prune certificates", f"{len(stats['prune_certificates'])}, {len(live)} valid")
    )
    out().print(_pairs(lines))


def complain(kind: str, message: str) -> None:
    """Say one line on standard error.

    Parameters
    ----------
    kind : str
        ``"error"``, ``"warning"``, ...
    message : str
    """
    line = safe(message.replace("\n", " "))
    err().print(Text(f"{kind}: ", style="yellow") + line, soft_wrap=True)


def _plain(value: object) -> str:
    return f"{value:,}" if type(value) is int else str(value)


def _pairs(lines: Sequence[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(name, safe(value))
    return table


def count(n: int, what: str) -> str:
    """Say a number of things.

    Parameters
    ----------
    n : int
    what : str
        One of them.

    Returns
    -------
    str
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"
