"""Options that several verbs share, and how a memory is opened for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel

import forgetmem
from forgetmem.cli import show
from forgetmem.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from forgetmem.memory import ForgettableMemory


class Exit(IntEnum):
    """What the exit code says."""

    FAILED = 1
    USAGE = 2
    TROUBLE = 3


MemoryPath = Annotated[
    Path,
    typer.Option(
        "--memory",
        "-m",
        envvar="FORGETMEM_PATH",
        dir_okay=False,
        help="The memory's file.",
    ),
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="The tenant within the file.")
]
Json = Annotated[
    bool, typer.Option("--json", help="One JSON document instead of tables.")
]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--embedder",
        envvar="FORGETMEM_EMBEDDER",
        help="A sentence-transformers name or folder; by default all-MiniLM-L6-v2.",
    ),
]
Where = Annotated[
    str | None,
    typer.Option("--where", "-w", help="""A filter as JSON, e.g. '{"team": "ops"}'."""),
]


def existing(
    path: Path,
    namespace: str,
    embedder: str | None = None,
    *,
    read_only: bool = False,
) -> ForgettableMemory:
    """Open a memory that is there; only `add` makes one.

    Parameters
    ----------
    path : Path
    namespace : str
    embedder : str, optional
    read_only : bool
        Leave every byte as it is found, as whoever checks a memory should.

    Returns
    -------
    ForgettableMemory

    Raises
    ------
    NotFoundError
        If there is no such file.
    """
    if not path.is_file():
        raise NotFoundError(f"there is no memory {path}; `forgetmem add` makes one")
    return forgetmem.ForgettableMemory(
        path, namespace=namespace, embedder=embedder, read_only=read_only
    )


def condition(where: str | None) -> dict[str, Any] | None:
    """Read a filter that was given as JSON.

    Parameters
    ----------
    where : str or None

    Returns
    -------
    dict or None

    Raises
    ------
    InvalidInputError
        If it is no JSON object.
    """
    if where is None:
        return None
    try:
        condition = json.loads(where)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError("--where is not JSON") from error
    if not isinstance(condition, dict):
        raise InvalidInputError("--where must be a JSON object")
    return condition


def print_model(model: BaseModel) -> None:
    """Print a value as one JSON document.

    Parameters
    ----------
    model : BaseModel
    """
    show.print_json(model.model_dump(mode="json"))


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show people at a terminal that something is going on.

    Parameters
    ----------
    what : str

    Yields
    ------
    None
    """
    console = show.err()
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
