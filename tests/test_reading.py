"""Files, folders and streams become passages with stable ids and sources."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from forgetmem.errors import DuplicateIdError, InvalidInputError
from forgetmem.reading import Format, Passage, Reader, Reading

PARAGRAPH = "The pump on the lower deck was serviced in May. It ran well since then. "


def _reader(root: Path, **options: object) -> Reader:
    return Reader(root=root, **options)  # type: ignore[arg-type]


def _ids(reading: Reading) -> list[str | None]:
    return [passage.id for passage in reading.passages]


def _jsonl(path: Path, *records: object) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def test_short_document_is_one_passage(tmp_path: Path) -> None:
    """Its id is its numbered path, its source the path."""
    (tmp_path / "note.txt").write_text("  A short note.\n\n")
    reading = _reader(tmp_path).read([tmp_path / "note.txt"])
    assert reading.passages == [Passage("A short note.", "note.txt#0001", "note.txt")]
    assert reading.documents == {"note.txt"}


def test_long_document_is_split_where_sentences_end(tmp_path: Path) -> None:
    """No passage is too long, none begins inside a sentence, nothing is lost."""
    text = "\n\n".join([PARAGRAPH * 4] * 6)
    (tmp_path / "log.txt").write_text(text)
    reading = _reader(tmp_path, passage_characters=400).read([tmp_path / "log.txt"])
    parts = [passage.text for passage in reading.passages]
    assert len(parts) >= 6
    assert max(map(len, parts)) <= 400
    assert all(part.startswith(("The pump", "It ran")) for part in parts)
    assert "".join(" ".join(parts).split()) == "".join(text.split())
    assert _ids(reading) == [f"log.txt#{n:04d}" for n in range(1, len(parts) + 1)]
    assert {passage.source_id for passage in reading.passages} == {"log.txt"}


def test_markdown_is_split_at_headings(tmp_path: Path) -> None:
    """A section is not torn apart to fill the passage before it."""
    (tmp_path / "guide.md").write_text(
        f"# One\n\n{PARAGRAPH}\n\n# Two\n\n{PARAGRAPH}\n\n# Three\n\n{PARAGRAPH}\n"
    )
    reading = _reader(tmp_path, passage_characters=120).read([tmp_path / "guide.md"])
    first = [passage.text.split("\n")[0] for passage in reading.passages]
    assert first == ["# One", "# Two", "# Three"]


def test_reading_again_gives_the_same_passages(tmp_path: Path) -> None:
    """Ids and texts are a function of the files, wherever the reader is called."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text(PARAGRAPH * 40)
    first = _reader(tmp_path).read([tmp_path])
    second = _reader(tmp_path).read([tmp_path / "a" / "x.txt"])
    assert first == second
    assert first.passages[0].id == "a/x.txt#0001"


def test_root_is_the_current_folder_unless_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file outside of the root keeps its whole path, so sources never collide."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.txt").write_text("inside")
    (tmp_path / "x.txt").write_text("outside")
    monkeypatch.chdir(tmp_path / "in")
    reading = Reader().read(["x.txt", "../x.txt"])
    sources = [passage.source_id for passage in reading.passages]
    assert sources == ["x.txt", (tmp_path / "x.txt").resolve().as_posix()]


def test_folder_is_read_by_name_without_what_is_hidden(tmp_path: Path) -> None:
    """Files of all folders, sorted; hidden ones are not even mentioned."""
    for name in ("b/2.txt", "b/1.md", "a.rst", ".git/x.txt", "b/.hidden.txt", "c.TXT"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    reading = _reader(tmp_path).read([tmp_path])
    assert [p.source_id for p in reading.passages] == [
        "a.rst",
        "c.TXT",
        "b/1.md",
        "b/2.txt",
    ]
    assert reading.skipped == []


def test_what_is_no_text_is_skipped_and_named(tmp_path: Path) -> None:
    """Other suffixes, binary content, unreadable and empty files have a reason."""
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / "zeros.txt").write_bytes(b"a\x00b")
    (tmp_path / "latin.txt").write_bytes("naïve".encode("latin-1"))
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    reading = _reader(tmp_path).read([tmp_path])
    assert reading.passages == []
    reasons = {Path(s.path).name: s.reason for s in reading.skipped}
    assert reasons == {
        "image.png": "suffix '.png'",
        "zeros.txt": "no text (UTF-8, or UTF-16 with its mark)",
        "latin.txt": "no text (UTF-8, or UTF-16 with its mark)",
        "empty.txt": "empty",
        "gone.txt": "cannot be read (No such file or directory)",
    }


def test_name_that_is_not_unicode_is_skipped(tmp_path: Path) -> None:
    """Such a name cannot be stored as a source."""
    path = os.fsencode(tmp_path) + b"/\xff.txt"
    try:
        Path(os.fsdecode(path)).write_text("x")
    except OSError:
        pytest.skip("this file system has Unicode names only")
    (skipped,) = _reader(tmp_path).read([tmp_path]).skipped
    assert skipped.reason == "has a name that is not UTF-8"


@pytest.mark.parametrize("name", ["binary.txt", "missing.txt"])
def test_file_given_by_itself_must_be_text(tmp_path: Path, name: str) -> None:
    """What was asked for by name is an error, not skipped."""
    (tmp_path / "binary.txt").write_bytes(b"\xff\x00")
    with pytest.raises(InvalidInputError, match=name):
        _reader(tmp_path).read([tmp_path / name])


def test_file_of_any_suffix_can_be_given(tmp_path: Path) -> None:
    """A suffix matters only inside a folder."""
    (tmp_path / "notes.log").write_text("A line.")
    reading = _reader(tmp_path).read([tmp_path / "notes.log"])
    assert [p.text for p in reading.passages] == ["A line."]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_unicode_with_or_without_mark(tmp_path: Path, encoding: str) -> None:
    """A byte order mark is no part of the text; line ends become plain."""
    (tmp_path / "x.txt").write_bytes("Дежурный:\r\nэто я\r!".encode(encoding))
    reading = _reader(tmp_path).read([tmp_path / "x.txt"])
    assert reading.passages[0].text == "Дежурный:\nэто я\n!"


def test_one_file_by_two_paths_is_read_once(tmp_path: Path) -> None:
    """A folder and a file in it do not give a passage twice."""
    (tmp_path / "x.txt").write_text("once")
    _jsonl(tmp_path / "y.jsonl", {"text": "once too"})
    reading = _reader(tmp_path).read([tmp_path, tmp_path / "x.txt", tmp_path])
    assert [p.text for p in reading.passages] == ["once", "once too"]


def test_lines_are_passages(tmp_path: Path) -> None:
    """Every line that is not blank, numbered without the blank ones."""
    (tmp_path / "chat.txt").write_text("hello\n\n  how are you?  \r\nfine\n")
    reader = _reader(tmp_path, format=Format.LINES)
    reading = reader.read([tmp_path / "chat.txt"])
    assert [p.text for p in reading.passages] == ["hello", "how are you?", "fine"]
    assert _ids(reading) == [f"chat.txt#{n:04d}" for n in (1, 2, 3)]


def test_json_lines_are_records_as_they_are(tmp_path: Path) -> None:
    """Ids, sources and metadata are kept; long texts are not split."""
    long = PARAGRAPH * 100
    path = _jsonl(
        tmp_path / "r.jsonl",
        {"id": "a", "text": "one", "source_id": "s", "metadata": {"k": [1, None]}},
        {"id": 7, "text": long, "metadata": None},
        {"text": "", "id": None},
    )
    reading = _reader(tmp_path).read([path])
    assert reading.passages == [
        Passage("one", "a", "s", {"k": [1, None]}),
        Passage(long, "7", "r.jsonl"),
        Passage("", "r.jsonl#0003", "r.jsonl"),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5000, "too long"),
        ("[1]", "expected an object"),
        ('{"id": "a"}', "needs a text"),
        ('{"text": 3}', "needs a text"),
        ('{"text": "x", "title": "t"}', "unknown key 'title'"),
        ('{"text": "x", "id": ""}', "id must be"),
        ('{"text": "x", "id": true}', "id must be"),
        ('{"text": "x", "source_id": 3}', "source_id must be"),
        ('{"text": "x", "metadata": [1]}', "expected metadata as a dict"),
        ('{"text": "x", "metadata": {"n": NaN}}', r"metadata\['n'\] is NaN"),
    ],
)
def test_bad_json_line_is_named_by_file_and_line(
    tmp_path: Path, line: str, message: str
) -> None:
    """A wrong record stops the reading and says where it stands, not what it holds."""
    path = tmp_path / "r.jsonl"
    path.write_text('{"text": "a secret"}\n\n' + line + "\n")
    with pytest.raises(InvalidInputError, match=message) as caught:
        _reader(tmp_path).read([path])
    assert "r.jsonl, line 3" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_id_given_twice_is_an_error(tmp_path: Path) -> None:
    """Two records of one id are found before anything is added."""
    path = _jsonl(tmp_path / "r.jsonl", *[{"id": "a", "text": "x"}] * 2)
    with pytest.raises(DuplicateIdError):
        _reader(tmp_path).read([path])


def test_stream_has_ids_only_with_a_source() -> None:
    """Without a source nothing says that the next stream is the same document."""
    nameless = Reader().read_stream(io.BytesIO(b"some text"))
    assert nameless.passages == [Passage("some text")]
    assert nameless.documents == set()
    named = Reader().read_stream(io.BytesIO(b"some text"), "inbox")
    assert named.passages == [Passage("some text", "inbox#0001", "inbox")]
    assert named.documents == {"inbox"}


def test_stream_of_records_and_lines() -> None:
    """The reader's format decides how a stream is understood."""
    records = Reader(format=Format.JSONL).read_stream(
        io.BytesIO(b'{"text": "a"}\n{"text": "b", "id": "1"}')
    )
    assert records.passages == [Passage("a"), Passage("b", "1")]
    lines = Reader(format=Format.LINES).read_stream(io.BytesIO(b"a\nb"))
    assert [p.text for p in lines.passages] == ["a", "b"]


def test_bad_streams_are_refused() -> None:
    """Bytes that are no text, and broken records, are errors."""
    with pytest.raises(InvalidInputError, match="no text"):
        Reader().read_stream(io.BytesIO(b"\xff\xff\xff"))
    with pytest.raises(InvalidInputError, match="line 1"):
        Reader(format=Format.JSONL).read_stream(io.BytesIO(b"x"))


def test_passages_have_a_least_size() -> None:
    """A size that would tear words apart is refused."""
    with pytest.raises(InvalidInputError, match="at least 20"):
        Reader(passage_characters=5)
