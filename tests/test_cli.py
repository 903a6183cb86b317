"""The `forgetmem` command: verbs, JSON, exit codes, and a quiet standard output."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy import WordEmbedder

from forgetmem.calibration import calibrate
from forgetmem.cli import forgetting, main, run, show
from forgetmem.embedding import DEFAULT_MODEL, interface
from forgetmem.errors import ErasureError, StoreBusyError
from forgetmem.memory import ForgettableMemory

Command = Callable[..., Any]


class Model(WordEmbedder):
    """Stands for the default model; reads only the first 50 words."""

    def __init__(self) -> None:
        super().__init__(name=DEFAULT_MODEL)

    def overlong(self, texts: list[str]) -> list[int]:
        return [n for n, text in enumerate(texts) if len(text.split()) > 50]


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in an empty folder, with a model that loads at once."""
    model = Model()
    monkeypatch.setattr(interface, "default_embedder", lambda: model)
    monkeypatch.setenv("FORGETMEM_PATH", "m.forgetmem")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    _stdin(monkeypatch, b"")


def _stdin(monkeypatch: pytest.MonkeyPatch, content: bytes, tty: bool = False) -> None:
    stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")
    monkeypatch.setattr(stream, "isatty", lambda: tty)
    monkeypatch.setattr(sys, "stdin", stream)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command; return what it printed, or its JSON."""

    def call(*arguments: str, code: int = 0, error: str | None = None) -> Any:
        capsys.readouterr()
        found = run(list(arguments))
        captured = capsys.readouterr()
        assert found == code, captured.err
        assert "Traceback" not in captured.err
        if error is None:
            assert "error" not in captured.err
        else:
            assert error in captured.err
        return json.loads(captured.out) if "--json" in arguments else captured.out

    return call


@pytest.fixture
def filled(command: Command) -> Command:
    """Add four notes of two people and a document."""
    records = [
        {"id": "p1", "text": "the pump is loud", "metadata": {"by": "ann"}},
        {"id": "p2", "text": "the pump is loud", "metadata": {"by": "bob"}},
        {"id": "p3", "text": "the pump is very loud", "metadata": {"by": "bob"}},
        {"id": "d1", "text": "a door squeaks", "metadata": {"by": "ann"}},
    ]
    Path("notes.jsonl").write_text("\n".join(map(json.dumps, records)))
    Path("log.md").write_text("# Log\n\nThe lamp was replaced on Monday.\n")
    assert command("add", "notes.jsonl", "log.md", "--json")["added"] == 5
    return command


def test_every_verb_prints_one_json_document(filled: Command) -> None:
    """With --json the documented keys, and nothing else, are on standard output."""
    assert {"hits"} == filled("search", "loud pump", "--json").keys()
    hit = filled("search", "loud pump", "-k", "1", "--json")["hits"][0]
    assert (hit["id"], hit["same"]) == ("p1", ["p2"])
    assert filled("read", "loud pump", "--json")["ids"][0] in ("p1", "p3")
    (record,) = filled("get", "d1", "--json")["records"]
    assert record["metadata"] == {"by": "ann"}
    assert filled("stats", "--json")["records"] == 5
    assert filled("audit", "--json")["ok"] is True
    assert filled("prune", "--json").keys() == {"pruned", "certificates"}
    assert filled("compact", "--json").keys() == {"bytes_before", "bytes_after"}
    assert len(filled("digest", "--json")["digest"]) == 64
    forgotten = filled("forget", "d1", "--proof", "p.json", "--json")
    assert (forgotten["forgotten"], forgotten["not_found"]) == (1, [])
    assert (forgotten["proof"], forgotten["key"]) == ("p.json", "p.key")
    assert forgotten["document"]["format"].startswith("forgetmem-proof/")
    assert filled("verify", "p.json", "--json")["ok"] is True


def test_every_verb_has_a_table_for_people(filled: Command) -> None:
    """Without --json the same things stand in words."""
    found = filled("search", "loud pump")
    assert "the pump is loud" in found
    assert "1 more with the same vector" in found
    assert "novelty" in filled("read", "loud pump")
    assert "weight" in filled("get", "p1")
    assert "from log.md" in filled("get", "log.md#0001")
    assert "toy" not in filled("stats")
    assert "independent rebuild" in filled("audit", "--deep")
    assert "Pruned" in filled("prune")
    assert "bytes now" in filled("compact")
    assert len(filled("digest").strip()) == 64
    shown = filled("forget", "p1", "p3", "--rebuild", "--proof", "p.json")
    assert "2 records" in shown
    assert "equal" in shown
    assert "p.key" in shown
    assert filled("verify", "p.json").rstrip().endswith("ok")


def test_nothing_found_is_said(filled: Command) -> None:
    """An empty answer is an answer."""
    assert filled("search", "x", "--where", '{"by": "zoe"}') == "Nothing found.\n"
    assert filled("search", "x", "-k", "0", "--json") == {"hits": []}


def test_rankings_and_filters_reach_the_memory(filled: Command) -> None:
    """Copies crowd plain cosine only; a filter leaves the others."""
    plain = filled("search", "the pump is loud", "-k", "2", "--similarity", "--json")
    assert [hit["id"] for hit in plain["hits"]] == ["p1", "p2"]
    bobs = filled("search", "loud", "--where", '{"by": "bob"}', "--json")
    assert {hit["id"] for hit in bobs["hits"]} == {"p2", "p3"}


def test_adding_again_changes_nothing(filled: Command) -> None:
    """Ids are a function of the files, so the digest stays."""
    before = filled("digest")
    again = filled("add", "notes.jsonl", "log.md", "--json")
    assert (again["added"], again["replaced"], again["stale"]) == (5, 5, 0)
    assert filled("digest") == before


def test_new_memory_can_be_calibrated(command: Command) -> None:
    """Its settings are the embedder's own; those of an old memory stay."""
    Path("a.txt").write_text("Pump 3 was replaced.")
    command("add", "a.txt", "--calibrate")
    chosen = calibrate(Model()).settings()
    with ForgettableMemory("m.forgetmem", **chosen) as memory:
        assert len(memory) == 1
    command("add", "a.txt", "--calibrate", code=2, error="fixed")


def test_shorter_document_leaves_no_stale_passages(command: Command) -> None:
    """What a file no longer holds is forgotten; other records are left alone."""
    paragraphs = [f"Paragraph {n} says something of its own." for n in range(12)]
    document = Path("long.txt")
    document.write_text("\n\n".join(paragraphs))
    Path("other.jsonl").write_text('{"id": "long.txt#x", "text": "not numbered"}')
    long = command("add", "long.txt", "other.jsonl", "--passage", "100", "--json")
    document.write_text(paragraphs[0])
    shown = command("add", "long.txt", "--passage", "100")
    assert f"forgot {len(long['ids']) - 2} that their files no longer hold" in shown
    kept = command("get", "long.txt#0001", "long.txt#x", "--json")["records"]
    assert len(kept) == command("stats", "--json")["records"] == 2
    document.write_text("")
    emptied = command("add", "long.txt", "--json")
    assert (emptied["added"], emptied["stale"]) == (0, 1)
    assert emptied["skipped"] == [{"path": "long.txt", "reason": "empty"}]


def test_many_passages_are_added_in_batches(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches do not change what is stored."""
    from forgetmem.cli import adding

    Path("l.txt").write_text("\n".join(f"line {n} of a log" for n in range(25)))
    command("add", "l.txt", "--format", "lines", "-m", "whole.forgetmem")
    monkeypatch.setattr(adding, "_BATCH", 10)
    result = command("add", "l.txt", "--format", "lines", "--json")
    assert len(set(result["ids"])) == 25
    assert command("digest") == command("digest", "-m", "whole.forgetmem")


def test_standard_input_is_read(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text from a pipe, with a source or without, and JSON lines."""
    _stdin(monkeypatch, "Über die Pumpe.".encode())
    assert command("add", "-", "--source", "inbox", "--json")["ids"] == ["inbox#0001"]
    _stdin(monkeypatch, b'{"text": "one", "id": "a"}\n{"text": "two", "id": "b"}\n')
    added = command("add", "-", "--format", "jsonl", "--json")
    assert added["ids"] == ["a", "b"]
    _stdin(monkeypatch, b"nameless")
    assert len(command("add", "-", "--json")["ids"][0]) == 36
    command("add", "-", "x.txt", code=2, error="either standard input")


def test_skipped_files_are_named_on_standard_error(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder's other files do not stop the reading."""
    Path("docs").mkdir()
    Path("docs/a.txt").write_text("a text")
    Path("docs/b.png").write_bytes(b"\x89PNG")
    assert run(["add", "docs"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Added 1 passage.\n"
    assert captured.err == "skipped: docs/b.png: suffix '.png'\n"


def test_overlong_texts_are_warned_of(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """The warning names the record, on standard error, in one line."""
    Path("r.jsonl").write_text(json.dumps({"id": "long", "text": "word " * 60}))
    assert run(["add", "r.jsonl", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["added"] == 1
    assert captured.err.startswith("warning: ")
    assert "'long'" in captured.err
    assert captured.err.count("\n") == 1


def test_namespaces_are_apart(filled: Command) -> None:
    """Another tenant of the same file sees nothing."""
    assert filled("stats", "-n", "other", "--json")["records"] == 0
    Path("o.txt").write_text("the pump of another tenant")
    filled("add", "o.txt", "-n", "other")
    hits = filled("search", "pump", "-n", "other", "--json")["hits"]
    assert [hit["id"] for hit in hits] == ["o.txt#0001"]


# Forgetting


def test_forget_by_source_and_by_filter(filled: Command) -> None:
    """A document, then a person."""
    assert filled("forget", "--source", "log.md", "--json")["forgotten"] == 1
    assert filled("forget", "-w", '{"by": "bob"}', "--json")["forgotten"] == 2
    assert filled("forget", "-w", '{"by": "zoe"}', "--json")["forgotten"] == 0
    assert filled("stats", "--json")["records"] == 2


def test_unknown_id_stops_everything_unless_ignored(filled: Command) -> None:
    """Exit code 2 and nothing forgotten; or a proof that lists it."""
    filled("forget", "p1", "nope", code=2, error="'nope'")
    assert filled("stats", "--json")["records"] == 5
    shown = filled("forget", "p1", "nope", "--ignore-missing")
    assert "not found" in shown
    forgotten = filled("forget", "nope", "--ignore-missing", "--json")
    assert forgotten["not_found"] == ["nope"]


@pytest.mark.parametrize("selection", [[], ["p1", "--source", "x"], ["-w", "{}"]])
def test_selection_must_be_plain(filled: Command, selection: list[str]) -> None:
    """None, two at once, or an empty filter: refused, nothing forgotten."""
    filled("forget", *selection, code=2, error="error: ")
    assert filled("stats", "--json")["records"] == 5


def test_proof_that_is_not_kept_is_mentioned(
    filled: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --proof the proof is gone with the process; that is said."""
    capsys.readouterr()
    assert run(["forget", "p1"]) == 0
    assert "--proof" in capsys.readouterr().err


@pytest.mark.parametrize("taken", ["p.json", "p.key", "k.key", "no/such/p.json"])
def test_place_of_the_proof_is_checked_before_anything_is_forgotten(
    filled: Command, taken: str
) -> None:
    """A proof that could not be written would be lost."""
    Path("p.json" if taken == "p.json" else "p.key").write_text("mine")
    target = "p.json" if taken.startswith("p.") else taken
    filled("forget", "p1", "--proof", target, code=2, error="error: ")
    assert filled("stats", "--json")["records"] == 5


def test_people_are_asked_first(
    filled: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a terminal, `no` keeps everything; `yes` and --yes forget."""
    _stdin(monkeypatch, b"n\n", tty=True)
    assert run(["forget", "-w", '{"by": "bob"}']) == 2
    assert '{"by": "bob"}, of 5 records' in capsys.readouterr().err
    assert filled("stats", "--json")["records"] == 5
    _stdin(monkeypatch, b"y\n", tty=True)
    filled("forget", "--source", "log.md")
    _stdin(monkeypatch, b"y\n", tty=True)
    filled("forget", "p1", "p2")
    _stdin(monkeypatch, b"", tty=True)
    filled("forget", "p3", "--yes")
    assert filled("stats", "--json")["records"] == 1


class Pending:
    """Bytes that go away at the second try, or never."""

    def __init__(self, memory: ForgettableMemory, tries: int) -> None:
        self.memory, self.tries = memory, tries

    def retry(self) -> object:
        self.tries -= 1
        if self.tries:
            raise ErasureError(["m.forgetmem: page 3"], self)
        return FORGET(self.memory, "p1")


FORGET = ForgettableMemory.forget


@pytest.mark.parametrize(("tries", "code"), [(2, 0), (9, 3)])
def test_bytes_that_are_held_are_tried_again(
    filled: Command, monkeypatch: pytest.MonkeyPatch, tries: int, code: int
) -> None:
    """The proof comes as soon as they are gone, else exit code 3 and none."""

    def held(memory: ForgettableMemory, *_: object, **__: object) -> None:
        raise ErasureError(["m.forgetmem: page 3"], Pending(memory, tries))

    monkeypatch.setattr(forgetting, "_RETRIES", (0.0, 0.0))
    monkeypatch.setattr(ForgettableMemory, "forget", held)
    error = "page 3" if code else None
    filled("forget", "p1", "--proof", "p.json", code=code, error=error)
    assert Path("p.json").exists() == (code == 0)


# Checking


def test_verification_fails_with_exit_code_one(filled: Command) -> None:
    """A changed proof, a proof that is none, and content that is there again."""
    filled("forget", "d1", "--proof", "p.json")
    filled("verify", "p.json")
    whole = Path("p.json").read_text()
    Path("bad.json").write_text(whole.replace('"forgotten": 1', '"forgotten": 2'))
    filled("verify", "bad.json", "--key", "p.key", code=1)
    Path("none.json").write_text("{}")
    filled("verify", "none.json", code=1, error="no forgetmem proof")
    filled("add", "notes.jsonl")
    verdict = filled("verify", "p.json", "--json", code=1)
    assert verdict["ok"] is False
    assert filled("verify", "p.json", code=1).rstrip().endswith("FAILED")


def test_verification_without_the_key_says_what_it_left_out(filled: Command) -> None:
    """The key can be elsewhere, or withheld."""
    filled("forget", "d1", "--proof", "p.json")
    Path("p.key").rename("elsewhere")
    assert "not checked" in filled("verify", "p.json")
    assert "not checked" not in filled("verify", "p.json", "--key", "elsewhere")
    filled("verify", "gone.json", code=2, error="no file gone.json")
    filled("verify", "p.json", "--key", "gone", code=2, error="no file gone")


def test_audit_that_fails_has_exit_code_one(
    filled: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script can rely on the exit code."""
    audit = ForgettableMemory.audit

    def failing(memory: ForgettableMemory, **options: Any) -> Any:
        return audit(memory, **options).model_copy(update={"ok": False})

    monkeypatch.setattr(ForgettableMemory, "audit", failing)
    assert "FAILED" in filled("audit", code=1)
    assert filled("audit", "--json", code=1)["ok"] is False


def test_pruned_groups_are_listed(command: Command) -> None:
    """A record amid look-alikes has no influence and can go."""
    words = [f"w{n}" for n in range(40)]
    texts = [" ".join(words[:n] + words[n + 1 :]) for n in range(40)]
    Path("r.txt").write_text("\n".join([*texts, " ".join(words)]))
    command("add", "r.txt", "--format", "lines")
    shown = command("prune")
    count = command("stats", "--json")["records"]
    assert count < 41
    assert f"Pruned {41 - count} vector" in shown
    assert "yes" in shown
    assert "1, 1 valid" in command("stats")


# Errors and looks


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "x", "-m", "typo.forgetmem"],
        ["digest", "-m", "typo.forgetmem"],
        ["compact", "-m", "typo.forgetmem"],
        ["forget", "a", "-m", "typo.forgetmem"],
    ],
)
def test_missing_memory_is_not_made(command: Command, arguments: list[str]) -> None:
    """Only `add` makes a file; a typing error does not."""
    command(*arguments, code=2, error="no memory typo.forgetmem")
    assert not Path("typo.forgetmem").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["search", "x", "--where", "{"],
        ["search", "x", "--where", "[1]"],
        ["search", "x", "--where", '{"by": {"$like": "b"}}'],
        ["search", "x", "-k", "-1"],
        ["search"],
        ["frobnicate"],
        ["add"],
        ["add", "missing.txt"],
        ["get", "p1", "nope"],
    ],
)
def test_wrong_usage_has_exit_code_two(filled: Command, arguments: list[str]) -> None:
    """Unknown verbs, missing arguments, bad filters, unknown files and ids."""
    filled(*arguments, code=2, error="")


def test_what_is_found_is_shown_though_another_id_is_unknown(
    filled: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code tells that something was not there."""
    capsys.readouterr()
    assert run(["get", "p1", "nope", "--json"]) == 2
    captured = capsys.readouterr()
    assert [record["id"] for record in json.loads(captured.out)["records"]] == ["p1"]
    assert captured.err == "error: no record has the id 'nope'\n"


@pytest.mark.parametrize("error", [StoreBusyError(10.0), OSError("disk is full")])
def test_trouble_has_exit_code_three(
    filled: Command, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """One clean line on standard error."""

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(ForgettableMemory, "digest", failing)
    filled("digest", code=3, error=f"error: {error}\n")


def test_terminal_is_safe_from_what_records_hold(command: Command) -> None:
    """Neither control sequences nor markup of a text reach the terminal."""
    record = {"id": "a\x1b[2J", "text": "red \x1b[31mtext [bold]x[/bold] \u202e\x07"}
    record["metadata"] = {"k": "\x1b]0;title\x07"}  # type: ignore[assignment]
    Path("r.jsonl").write_text(json.dumps(record))
    command("add", "r.jsonl")
    for shown in (command("search", "text"), command("get", "a\x1b[2J")):
        assert not set("\x1b\x07\u202e") & set(shown)
        assert "[bold]x[/bold]" in shown
    assert "\x1b" not in command("read", "text")


def test_long_texts_are_cut_unless_asked_for(filled: Command) -> None:
    """A table stays readable; --full shows everything."""
    Path("r.jsonl").write_text(json.dumps({"id": "x", "text": "squeak " * 49 + "end"}))
    filled("add", "r.jsonl")
    assert "end" not in filled("search", "squeak", "-k", "1")
    assert "end" in filled("search", "squeak", "-k", "1", "--full")
    assert show.safe("abcdef", 4).plain == "abc…"


def test_progress_is_shown_at_a_terminal_only(
    filled: Command, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bars and spinners go to standard error, and only to people."""
    from rich.console import Console

    def err() -> Console:
        return Console(stderr=True, force_terminal=True)

    capsys.readouterr()
    assert run(["audit", "--json"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(show, "err", err)
    assert run(["add", "log.md", "--json"]) == 0
    assert run(["audit", "--json"]) == 0
    captured = capsys.readouterr()
    assert "embedding" in captured.err
    assert "rebuilding" in captured.err
    assert "rebuilding" not in captured.out


def test_version_and_help(command: Command) -> None:
    """Without arguments the help is shown."""
    assert command("--version").startswith("forgetmem ")
    for verb in ("add", "search", "forget", "verify", "audit"):
        assert verb in command("--help")
        assert "--json" in command(verb, "--help")


def _process(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[1]),
            **environment,
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_verbs_load_only_what_they_need(filled: Command) -> None:
    """Help is instant, and nothing but texts and queries needs torch."""
    code = """if True:
        import sys
        from forgetmem.cli import run
        code = run(sys.argv[1:])
        heavy = ["torch", "transformers", "faiss", "numba"]
        print([name for name in heavy if name in sys.modules])
        sys.exit(code)
    """
    assert _process(code, "--help").endswith("[]\n")
    for arguments in (["digest"], ["forget", "p1"], ["stats"]):
        loaded = _process(code, *arguments).splitlines()[-1]
        assert "torch" not in loaded
        assert "transformers" not in loaded


def test_main_leaves_with_the_code_and_survives_an_ascii_terminal(
    filled: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters that the terminal cannot show are replaced."""
    Path("u.jsonl").write_text(json.dumps({"id": "u", "text": "Über Ω"}))
    filled("add", "u.jsonl")
    shown = _process(
        "from forgetmem.cli import main; main()", "get", "u", PYTHONIOENCODING="ascii"
    )
    assert "?ber ?" in shown
    monkeypatch.setattr(sys, "argv", ["forgetmem", "get", "nope"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
