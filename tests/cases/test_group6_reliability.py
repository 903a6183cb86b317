"""Reliability of an embedded store: what others met, and what is right.

Several processes, killed processes and interrupts have files of their own.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from remote import Remote, RemoteError
from toy import WordEmbedder

from forgetmem import (
    CorruptStoreError,
    EmbedderMismatchError,
    ForgettableMemory,
    SchemaVersionError,
    SettingsMismatchError,
    StoreError,
)

TEXTS = [f"the pump number {n % 5} of hall {n}" for n in range(18)]
IDS = [f"r{n:02d}" for n in range(len(TEXTS))]


def opened(path: str | Path | None, **options: Any) -> ForgettableMemory:
    """Open a memory with the toy embedder."""
    return ForgettableMemory(path, **{"embedder": WordEmbedder(), **options})


def fill(memory: ForgettableMemory) -> None:
    """Add records with everything that a record can have."""
    memory.add(
        TEXTS,
        ids=IDS,
        metadatas=[{"n": n, "hall": f"hall {n % 3}"} for n in range(len(TEXTS))],
        source_ids=[f"document {n % 4}" for n in range(len(TEXTS))],
    )


def everything(memory: ForgettableMemory) -> list[Any]:
    """Ask for all that a memory says."""
    found: list[Any] = [memory.digest(), memory.ids(), memory.get(IDS)]
    for query in ("pump number 3", "hall 11", np.ones(16)):
        found.append(memory.search(query, 20))
        found.append(memory.search(query, 20, ranking="similarity"))
        found.append(memory.search(query, 20, where={"hall": "hall 1"}))
        found.append(memory.read(query))
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A memory with two tenants, one of them pruned, and closed."""
    path = tmp_path / "m.fm"
    with opened(path, gamma=1.0, link=0.6) as memory:
        fill(memory)
        with opened(path, namespace="other") as other:
            other.add(TEXTS[:5], ids=IDS[:5])
            other.prune()
    return path


def check_damaged(path: Path, before: list[Any], what: str) -> bool:
    """Open a damaged file: a named error, or exactly what it was."""
    try:
        with opened(path) as memory:
            assert everything(memory) == before, what
            assert memory.forget("none", missing="ignore").not_found == 1
            verdict = memory.verify(memory.forget("r03"))
            # What was found at opening, or in another tenant's rows, is told.
            told = {"opening", "digest", "storage"}
            failed = {c.name for c in verdict.checks if c.outcome == "failed"}
            assert failed <= told, what
    except (StoreError, SettingsMismatchError, EmbedderMismatchError) as error:
        assert str(error)
        return False
    return True


def test_file_cut_anywhere_is_a_named_error(path: Path, tmp_path: Path) -> None:
    """At 0, 5, ... 95 % and a byte short (markdown-vault-mcp 733, mem0ai/mem0 7262)."""
    with opened(path) as memory:
        before = everything(memory)
    content, other = path.read_bytes(), tmp_path / "cut.fm"
    sizes = [len(content) * part // 20 for part in range(20)]
    whole = 0
    for size in [*sizes, 1, 99, 100, 101, len(content) - 1]:
        other.write_bytes(content[:size])
        whole += check_damaged(other, before, f"cut at {size}")
    assert whole < 6  # where nothing but zeros was lost


def flips(path: Path, before: list[Any], chance: random.Random, count: int) -> int:
    """Flip single bits, half of them where the file is not zero; count the errors."""
    content = path.read_bytes()
    used = [at for at, byte in enumerate(content) if byte]
    places = chance.sample(used, count) + chance.sample(range(len(content)), count // 4)
    other = path.with_name("flipped.fm")
    errors = 0
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        other.write_bytes(changed)
        errors += not check_damaged(other, before, f"flipped at {place}")
    return errors


def test_flipped_bits_never_give_a_wrong_answer(path: Path) -> None:
    """A named error or everything as it was; never another text, weight or proof."""
    with opened(path) as memory:
        before = everything(memory)
    assert flips(path, before, random.Random(1), 80) > 40


def test_damaged_table_names_are_a_named_error(path: Path, tmp_path: Path) -> None:
    """Also where SQLite's own message is no UTF-8."""
    content, other = path.read_bytes(), tmp_path / "other.fm"
    for word in (b"CREATE", b"record", b"TEXT", b"WITHOUT", b"namespace"):
        for byte in (0xAC, 0xFF, 0x00, 0x27):
            changed = bytearray(content)
            changed[content.index(word) + 1] = byte
            other.write_bytes(changed)
            with pytest.raises((CorruptStoreError, SchemaVersionError)):
                opened(other)


COLUMNS = {
    "setting": ["value"],
    "record": ["source_id", "metadata", "atom", "text_digest", "seal", "text"],
    "atom": ["key", "state"],
    "vector": ["key", "vector"],
    "root": ["digest"],
}


@pytest.mark.parametrize("value", ["7", "1.5", "'text'", "x'00ff'", "NULL"])
def test_values_of_another_kind_are_a_named_error(path: Path, value: str) -> None:
    """Whatever stands in a column, by a flipped bit or by another program."""
    with opened(path) as memory:
        before = everything(memory)
    content, other = path.read_bytes(), path.with_name("other.fm")
    kinds = set()
    for table, columns in COLUMNS.items():
        for column in columns:
            other.write_bytes(content)
            with closing(sqlite3.connect(other, isolation_level=None)) as file:
                name = {"setting": "name", "root": "namespace"}.get(table, column)
                first = f"(SELECT min({name}) FROM {table})"
                sql = f"UPDATE OR IGNORE {table} SET {column} = {value}"
                changed = file.execute(f"{sql} WHERE {name} = {first}").rowcount
            if changed:
                whole = check_damaged(other, before, f"{table}.{column} = {value}")
                kinds.add(whole)
    assert False in kinds or value == "NULL"


@pytest.mark.slow
def test_many_flipped_bits_never_give_a_wrong_answer(path: Path) -> None:
    """The same at many more places."""
    with opened(path) as memory:
        before = everything(memory)
    assert flips(path, before, random.Random(2), 2500) > 1000


def test_lost_file_is_no_empty_memory_behind_ones_back(path: Path) -> None:
    """Gone while open: an error; and nothing is ever saved under a new name."""
    memory = opened(path)
    memory.ids()
    moved = path.rename(path.with_name("moved.fm"))
    for call in (memory.ids, lambda: memory.add("x"), lambda: memory.forget("r01")):
        with pytest.raises(StoreError):
            call()
    assert not path.exists()
    memory.close()
    with opened(moved) as again:
        assert again.ids() == IDS


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", CorruptStoreError),
        (b"SQLite format 3\0" + bytes(84), CorruptStoreError),
        (b"not a database at all, but a long enough text" * 30, CorruptStoreError),
        (b"\x80\x04\x95.", CorruptStoreError),
    ],
)
def test_foreign_file_is_refused_and_left_alone(
    tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    """Whatever it holds; nothing of it is ever executed (langchain-community 92)."""
    path = tmp_path / "m.fm"
    path.write_bytes(content)
    with pytest.raises(error):
        opened(path)
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["m.fm"]


NAMES = ["мой склад/データ é #1%20", "with space/a?b=c&d", "q'uo\"te;x/%41", "~/-dash"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_of_folder_and_file_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As str, Path, relative, by a link; and again later (faiss 3073, USearch 745)."""
    folder = tmp_path / name
    folder.mkdir(parents=True)
    path = folder / "m é.fm"
    with opened(path) as memory:
        fill(memory)
        before = everything(memory)
    monkeypatch.chdir(folder)
    link = tmp_path / "link.fm"
    link.symlink_to(path)
    for way in (
        str(path),
        path,
        "m é.fm",
        Path("m é.fm"),
        f"../{folder.name}/m é.fm",
        link,
    ):
        with opened(way) as memory:
            assert memory.path == path.resolve()
            assert everything(memory) == before
    with opened(link) as memory:
        assert memory.verify(memory.forget(IDS)).ok
        memory.compact()
    assert link.is_symlink()
    assert sorted(file.name for file in folder.iterdir()) == [path.name]


def test_plain_locale_works(tmp_path: Path) -> None:
    """``LC_ALL=C``: names, texts and ids in any script."""
    path = tmp_path / "склад é"
    remote = Remote(LC_ALL="C", LANG="C")
    remote.ask(f"m = opened({str(path)!a})")
    remote.ask(f"m.add([{'насос é'!a}], ids=[{'идентификатор'!a}])")
    assert remote.ask("m.verify(m.forget(m.ids())).ok")
    remote.ask(f"m.add([{'насос é'!a}], ids=[{'идентификатор'!a}]); m.close()")
    remote.close()
    with opened(path) as memory:
        assert memory.get("идентификатор")[0].text == "насос é"


def check_refused(memory: ForgettableMemory, before: list[Any], content: bytes) -> None:
    """Check that every change raises and nothing changes."""
    assert memory.path is not None
    for change in (
        lambda: memory.add("x"),
        lambda: memory.add(["x"], ids=["r01"]),
        lambda: memory.forget("r01"),
        lambda: memory.forget([]),
        memory.prune,
        memory.compact,
        lambda: memory.reembed(WordEmbedder(name="other")),
    ):
        with pytest.raises(StoreError):
            change()
        assert everything(memory) == before
    assert memory.path.read_bytes() == content


def test_read_only_memory_answers_and_refuses_to_change(path: Path) -> None:
    """Search works; add and forget raise, no proof (chroma-core/chroma 1441, 2446)."""
    with opened(path) as memory:
        before = everything(memory)
        proof = memory.forget("none", missing="ignore")
    content = path.read_bytes()
    with opened(path, read_only=True) as memory:
        assert everything(memory) == before
        check_refused(memory, before, content)
        assert memory.verify(proof).ok
        assert memory.audit().ok
        with opened(path) as writer:
            writer.forget("r01")
            assert "r01" not in memory
    with pytest.raises(StoreError):
        opened(path.with_name("none.fm"), read_only=True)
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all"
)
def test_folder_without_write_access_is_opened_for_reading(path: Path) -> None:
    """As a normal user: answers, and named errors for changes."""
    with opened(path) as memory:
        before = everything(memory)
    content = path.read_bytes()
    path.parent.chmod(0o555)
    try:
        with opened(path) as memory:
            assert everything(memory) == before
            check_refused(memory, before, content)
    finally:
        path.parent.chmod(0o755)


@pytest.fixture
def limited(path: Path) -> Iterator[Remote]:
    """Another process with the memory open, which can limit the size of files."""
    pytest.importorskip("resource")
    remote = Remote()
    remote.ask(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "def limit(size):\n"
        "    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n"
        "    size = hard if size is None else size\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))\n"
        f"m = opened({str(path)!r})\n"
        "before = m.digest(), m.ids()"
    )
    yield remote
    remote.close()


@pytest.mark.parametrize(
    "change",
    [
        "m.add(['w' * 100_000 + str(n) for n in range(30)])",
        "m.add(['changed'], ids=['r01'])",
        "m.forget('r01')",
        "m.forget(m.ids())",
        "m.compact()",
    ],
)
def test_full_disk_changes_nothing(path: Path, limited: Remote, change: str) -> None:
    """A named error and the old state; later it works (qdrant/qdrant 7813)."""
    content = path.read_bytes()
    for size in (0, 100, 20_000, len(content) // 2):
        limited.ask(f"limit({size})")
        with pytest.raises(RemoteError) as caught:
            limited.ask(change)
        assert caught.value.name in ("StoreError", "ErasureError")
        limited.ask("limit(None)")
        if caught.value.name == "StoreError":
            assert limited.ask("(m.digest(), m.ids()) == before")
            with opened(path) as memory:
                assert memory.ids() == IDS
                assert memory.audit().ok
    limited.ask(f"{change} and None")
    assert limited.ask("m.audit().ok")
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_after_closing_everything_is_released(path: Path) -> None:
    """No descriptor is left; the folder can be renamed and removed (chroma 2446)."""
    descriptors = Path("/proc/self/fd")

    def held() -> list[str]:
        if not descriptors.exists():
            return []
        links = [link for link in descriptors.iterdir() if link.is_symlink()]
        targets = [str(link.readlink()) for link in links]
        return [target for target in targets if str(path.parent) in target]

    memory = opened(path)
    memory.search("pump")
    memory.forget("r01")
    memory.compact()
    assert held() or not descriptors.exists()
    memory.close()
    assert held() == []
    moved = path.parent.rename(path.parent.with_name("renamed"))
    with opened(moved / path.name) as memory:
        assert len(memory) == len(IDS) - 1
    shutil.rmtree(moved)
    assert not moved.exists()


def test_reopening_gives_back_everything(path: Path) -> None:
    """Ids, texts, weights, groups, settings, embedder: as they were, ten times over."""
    with opened(path) as memory:
        before, settings = everything(memory), memory.settings
    for _ in range(3):
        with opened(path) as memory:
            assert everything(memory) == before
            assert memory.settings == settings
    with ForgettableMemory(path) as memory:  # without the embedder
        assert memory.get(IDS) == before[2]
        assert memory.search(np.ones(16), 20) == before[-4]
        assert memory.audit().ok
        assert memory.verify(memory.forget("r01")).ok


def test_other_settings_or_embedder_name_both(path: Path) -> None:
    """What is stored, what was given, and nothing is touched."""
    content = path.read_bytes()
    with pytest.raises(SettingsMismatchError) as caught:
        opened(path, gamma=2.0)
    assert (caught.value.name, caught.value.stored, caught.value.given) == (
        "gamma",
        1.0,
        2.0,
    )
    with pytest.raises(EmbedderMismatchError, match=r"toy-words.*another"):
        opened(path, embedder=WordEmbedder(name="another"))
    opened(path, gamma=1, link=0.6).close()
    assert path.read_bytes() == content


def test_newer_file_says_so(path: Path) -> None:
    """A file of a later version is not taken for damage, and not touched."""
    with path.open("r+b") as file:
        file.seek(60)
        file.write((99).to_bytes(4, "big"))
    content = path.read_bytes()
    with pytest.raises(SchemaVersionError) as caught:
        opened(path)
    assert caught.value.found == 99
    assert path.read_bytes() == content


def test_unclosed_memory_loses_nothing(tmp_path: Path) -> None:
    """There is nothing to be saved: what was acknowledged is in the file."""
    path = tmp_path / "m.fm"
    memory = opened(path)
    fill(memory)
    memory.forget("r05")
    with opened(path) as other:
        assert other.digest() == memory.digest()
        assert "r05" not in other
    memory.close()
