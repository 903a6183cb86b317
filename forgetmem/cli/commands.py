"""The command itself: its verbs, its warnings and its exit codes."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Annotated, TextIO

import typer

import forgetmem
from forgetmem.cli import adding, asking, forgetting, show
from forgetmem.cli.options import Exit
from forgetmem.errors import (
    ForgetmemError,
    InvalidInputError,
    NotFoundError,
    ProofError,
)

app = typer.Typer(
    name="forgetmem",
    help="A retrieval memory that can forget: exactly, with a proof, on disk too.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for verb in (
    adding.add,
    asking.search,
    asking.read,
    asking.get,
    forgetting.forget,
    forgetting.verify,
    forgetting.audit,
    forgetting.prune,
    forgetting.compact,
    asking.stats,
    asking.digest,
):
    app.command()(verb)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and leave.")
    ] = False,
) -> None:
    if version:
        print(f"forgetmem {forgetmem.__version__}")
        raise typer.Exit


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if category.__module__.startswith("forgetmem"):
        show.complain("warning", str(message))


def run(arguments: list[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : list of str, optional
        By default those of the process.

    Returns
    -------
    int
        The exit code.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = _show_warning
        try:
            app(arguments)
        except SystemExit as done:
            return done.code if isinstance(done.code, int) else Exit.USAGE
        except ForgetmemError as error:
            show.complain("error", str(error))
            return _code(error)
        except OSError as error:
            show.complain("error", str(error))
            return Exit.TROUBLE
    return 0


def _code(error: ForgetmemError) -> int:
    if isinstance(error, ProofError):
        return Exit.FAILED
    wrong = isinstance(error, InvalidInputError | NotFoundError)
    return Exit.USAGE if wrong else Exit.TROUBLE


def main() -> None:
    """Run the command of this process, and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.exit(run())
