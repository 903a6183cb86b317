"""Files, folders and streams to passages, with ids that stay the same next time.

A document is split into passages under one source, the file's path relative to a root
folder, and its passages are numbered: ``notes/plan.md#0001``, ``notes/plan.md#0002``.
So reading a file again overwrites what was read before, and a whole document can be
forgotten by its source. Three formats are read:

text
    A document, split at the largest boundaries that fit (paragraphs, sentences,
    words; headings in Markdown).
lines
    Every line that is not blank is a passage.
jsonl
    Every line is an object with ``text`` and, if wanted, ``id``, ``metadata`` and
    ``source_id``. Such a record is taken as it is and never split.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

from forgetmem.errors import DuplicateIdError, InvalidInputError
from forgetmem.metadata import check_metadata

#: Of 9,000 passages of abstracts and medical answers of at most 800 characters, one
#: in a thousand exceeds the 256 tokens that the default model reads; of 1,000
#: characters, one in fifty does.
PASSAGE_CHARACTERS = 800

#: What is read of a folder; any file can be given by its own path.
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".markdown": "text",
    ".md": "text",
    ".rst": "text",
    ".text": "text",
    ".txt": "text",
}

_FIELDS = ("id", "text", "metadata", "source_id")


class Format(StrEnum):
    """How the bytes of a file are understood."""

    AUTO = "auto"
    TEXT = "text"
    LINES = "lines"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Passage:
    """One record to be added.

    Attributes
    ----------
    text : str
    id : str or None
        None only for a stream, which has no name.
    source_id : str or None
    metadata : dict
    """

    text: str
    id: str | None = None
    source_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file of a folder that was not read, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Reading:
    """What was found.

    Attributes
    ----------
    passages : list of Passage
        In the order of the paths given; files of a folder by name.
    documents : set of str
        Sources of the files. What was numbered under one of them before and is not
        among the passages now is stale.
    skipped : list of Skipped
    """

    passages: list[Passage] = field(default_factory=list)
    documents: set[str] = field(default_factory=set)
    skipped: list[Skipped] = field(default_factory=list)

    def skip(self, path: str | Path, reason: str) -> None:
        """Note a file that gave nothing.

        Parameters
        ----------
        path : str or path
        reason : str
        """
        self.skipped.append(Skipped(str(path), reason))


class Reader:
    """Reads files, folders and streams.

    Parameters
    ----------
    format : Format, default AUTO
        By the file's suffix: JSON lines for ``.jsonl`` and ``.ndjson``, text for
        everything else.
    passage_characters : int, default 800
        The longest passage of a split document.
    root : path, optional
        Sources are paths relative to this folder, by default the current one; files
        outside of it keep their whole path.

    Raises
    ------
    InvalidInputError
        If a passage is to have less than 20 characters.
    """

    def __init__(
        self,
        *,
        format: Format = Format.AUTO,
        passage_characters: int = PASSAGE_CHARACTERS,
        root: Path | None = None,
    ) -> None:
        if passage_characters < 20:
            raise InvalidInputError(
                f"passages need at least 20 characters, got {passage_characters}"
            )
        self._format = format
        self._capacity = passage_characters
        self._root = (root or Path()).resolve()

    def read(self, paths: Iterable[str | Path]) -> Reading:
        """Read files and folders.

        Parameters
        ----------
        paths : iterable of path
            Of a folder, all files with one of the `SUFFIXES` are read, those of its
            folders too; hidden files and folders are left out, and files that are
            no text are skipped.

        Returns
        -------
        Reading

        Raises
        ------
        InvalidInputError
            If a path does not exist, a file given by itself is no text, or a line of
            JSON is not as described above; the message names file and line.
        """
        reading = Reading()
        for path in map(Path, paths):
            if path.is_dir():
                self._read_folder(path, reading)
            else:
                self._read_file(path, reading)
        return _distinct(reading)

    def read_stream(self, stream: BinaryIO, source_id: str | None = None) -> Reading:
        """Read a stream, for example standard input.

        Parameters
        ----------
        stream : binary file
            Text, unless the reader's format says otherwise.
        source_id : str, optional
            Its source; without one, passages have neither source nor id.

        Returns
        -------
        Reading

        Raises
        ------
        InvalidInputError
            If it is no text, or a line of JSON is not as described above.
        """
        reading = Reading()
        text = _decoded(stream.read())
        if text is None:
            raise InvalidInputError("standard input is no text")
        format = Format.TEXT if self._format is Format.AUTO else self._format
        self._collect(text, format, source_id, "standard input", reading)
        return _distinct(reading)

    def _read_folder(self, folder: Path, reading: Reading) -> None:
        for path in _files(folder):
            if path.suffix.lower() not in SUFFIXES:
                reading.skip(path, f"suffix {path.suffix!r}")
                continue
            try:
                text = _text_of(path)
            except InvalidInputError as error:
                reading.skip(path, str(error))
            else:
                self._collect_file(path, text, reading)

    def _read_file(self, path: Path, reading: Reading) -> None:
        try:
            text = _text_of(path)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from error
        self._collect_file(path, text, reading)

    def _collect_file(self, path: Path, text: str, reading: Reading) -> None:
        if self._source(path) in reading.documents:
            return  # also reached through another of the paths
        format = self._format
        if format is Format.AUTO:
            format = Format(SUFFIXES.get(path.suffix.lower(), "text"))
        try:
            self._collect(text, format, self._source(path), str(path), reading)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}, {error}") from error

    def _source(self, path: Path) -> str:
        whole = path.resolve()
        if whole.is_relative_to(self._root):
            whole = whole.relative_to(self._root)
        return whole.as_posix()

    def _collect(
        self, text: str, format: Format, source: str | None, name: str, reading: Reading
    ) -> None:
        if source is not None:
            reading.documents.add(source)
        if not text.strip():
            reading.skip(name, "empty")
        if format is Format.JSONL:
            reading.passages.extend(_records(text, source))
            return
        markdown = name.lower().endswith((".md", ".markdown"))
        parts = _lines(text) if format is Format.LINES else self._split(text, markdown)
        reading.passages.extend(
            Passage(part, source and f"{source}#{number:04d}", source)
            for number, part in enumerate(parts, start=1)
        )

    def _split(self, text: str, markdown: bool) -> list[str]:
        from semantic_text_splitter import MarkdownSplitter, TextSplitter

        splitter = MarkdownSplitter if markdown else TextSplitter
        return [part for part in splitter(self._capacity).chunks(text) if part.strip()]


def _distinct(reading: Reading) -> Reading:
    seen: set[str] = set()
    for passage in reading.passages:
        if passage.id is not None and passage.id in seen:
            raise DuplicateIdError(passage.id)
        seen.add(passage.id or "")
    return reading


def _files(folder: Path) -> Iterator[Path]:
    """Walk a folder by name, leaving out what is hidden."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(parent) / name


def _text_of(path: Path) -> str:
    try:
        str(path).encode()
        text = _decoded(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(f"cannot be read ({error.strerror})") from error
    except UnicodeEncodeError as error:
        raise InvalidInputError("has a name that is not UTF-8") from error
    if text is None:
        raise InvalidInputError("no text (UTF-8, or UTF-16 with its mark)")
    return text


def _decoded(content: bytes) -> str | None:
    """Return the text with plain line ends, or None if it is none."""
    utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        text = content.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    if "\x00" in text:
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _records(text: str, source: str | None) -> Iterator[Passage]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            place = f"line {number}"
            default_id = source and f"{source}#{number:04d}"
            yield _record(_parsed(line, place), default_id, source, place)


def _parsed(line: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{place}: not JSON ({_brief(error)})") from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"{place}: expected an object with a text")
    unknown = sorted(value.keys() - set(_FIELDS))
    if unknown:
        raise InvalidInputError(
            f"{place}: unknown key {unknown[0]!r}; a record has {', '.join(_FIELDS)}, "
            "everything else belongs into metadata"
        )
    return value


def _record(
    value: dict[str, Any], default_id: str | None, source: str | None, place: str
) -> Passage:
    if not isinstance(value.get("text"), str):
        raise InvalidInputError(f"{place}: a record needs a text")
    if type(value.get("id")) is int:
        value["id"] = str(value["id"])
    metadata = value.get("metadata")
    try:
        check_metadata(metadata)
    except InvalidInputError as error:
        raise InvalidInputError(f"{place}: {error}") from error
    return Passage(
        value["text"],
        _given(value, "id", place) or default_id,
        _given(value, "source_id", place) or source,
        metadata or {},
    )


def _given(value: dict[str, Any], name: str, place: str) -> str | None:
    given = value.get(name)
    if given is None or (isinstance(given, str) and given):
        return given
    raise InvalidInputError(f"{place}: {name} must be a string that is not empty")


def _brief(error: Exception) -> str:
    """Say where JSON is broken, without the line itself."""
    if isinstance(error, json.JSONDecodeError):
        return f"column {error.colno}: {error.msg}"
    return "a number is too long, or it is nested too deeply"
