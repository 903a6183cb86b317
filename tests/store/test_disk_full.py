"""No room: a named error, the whole old state, and a retry that works."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from store.making import dump, erase, files_of, found_in_files, make_items, put

from forgetmem.errors import StoreError
from forgetmem.store import SQLiteStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="limits need a fork")


def limited(action: Callable[[], object], room: int) -> int:
    """Run an action in a child whose files may have so many bytes; return its code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(60)
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
            action()
            code = 0
        except AssertionError as error:
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def path(tmp_path) -> Path:
    """A memory of some hundred kilobytes."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, make_items(60, longest=600))
    return path


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.7, 1.0])
def test_no_room_to_add(path, share):
    """Before the journal, in it, or in the file itself; also while going on."""
    with SQLiteStore(path) as store:
        before = dump(store)
    room = int(path.stat().st_size * share)

    def work() -> None:
        with SQLiteStore(path) as store:
            for _ in range(2):
                with pytest.raises(StoreError):
                    put(store, make_items(200, seed=1, longest=600))
                assert dump(store) == before
                assert store.check_structure().ok

    assert limited(work, room) == 0
    with SQLiteStore(path) as store:
        assert dump(store) == before
        put(store, make_items(200, seed=1, longest=600))
        assert len(dump(store)["default"][0]) == 260
    assert [name for name, _ in files_of(path)] == [path.name]


@pytest.mark.parametrize("room", [0, 512, 20_000, 40_000, 150_000])
def test_no_room_to_erase(path, room):
    """The journal has no room: the error comes, nothing is erased."""
    items = make_items(60, longest=600)
    with SQLiteStore(path) as store:
        before = dump(store)

    def work() -> None:
        with SQLiteStore(path) as store:
            try:
                erase(store, items[::3])
            except StoreError:
                assert dump(store) == before
            else:
                assert len(dump(store)["default"][0]) == 40

    assert limited(work, room) == 0
    with SQLiteStore(path) as store:
        erase(store, items[::3])
        assert store.clean().ok
    assert found_in_files(path, items[::3]) == []


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_no_room_to_compact(path, share):
    """The old file stays, and no draft is left."""
    with SQLiteStore(path) as store:
        store.compact()
        before = dump(store)
        stamp = path.stat()
    room = int(path.stat().st_size * share)

    def work() -> None:
        with SQLiteStore(path) as store:
            with pytest.raises(StoreError):
                store.compact()
            assert dump(store) == before

    assert limited(work, room) == 0
    assert path.stat().st_mtime_ns == stamp.st_mtime_ns
    assert [name for name, _ in files_of(path)] == [path.name]
    with SQLiteStore(path) as store:
        store.compact()
        assert dump(store) == before


def test_no_room_to_create(tmp_path):
    """No file, and no draft of one."""
    path = tmp_path / "notes.forgetmem"

    def work() -> None:
        with pytest.raises(StoreError):
            SQLiteStore(path)

    assert limited(work, 1000) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may mount"
)
def test_a_full_disk(tmp_path):
    """The same on a small file system that is really full."""
    import subprocess

    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        path = folder / "notes.forgetmem"
        items = make_items(60, longest=600)
        with SQLiteStore(path) as store:
            put(store, items)
            before = dump(store)
            with pytest.raises(StoreError, match="full"):
                put(store, make_items(900, seed=1, longest=600))
            assert dump(store) == before
            filler = folder / "filler"
            with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
                while file.write(bytes(4096)):
                    pass
            with pytest.raises(StoreError):
                erase(store, items[::2])
            with pytest.raises(StoreError):
                store.compact()
            assert dump(store) == before
            filler.unlink()
            erase(store, items[::2])
            assert store.clean().ok
        assert found_in_files(path, items[::2]) == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)
