"""Several handles, threads, forks and processes on one file."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from store.making import Item, dump, erase, found_in_files, make_items, put, root

from forgetmem.errors import StoreBusyError, StoreError
from forgetmem.store import SQLiteStore, session
from forgetmem.store.connection import Connection

spawning = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")


@pytest.fixture
def path(tmp_path) -> Path:
    """A small memory that is closed."""
    path = tmp_path / "notes.forgetmem"
    with SQLiteStore(path) as store:
        put(store, make_items(30))
    return path


def test_two_handles_see_each_other(path):
    """Writes, erasures and compactions of one show in the other's version."""
    with SQLiteStore(path) as one, SQLiteStore(path) as two:
        seen = two.version()
        for change in (
            lambda: put(one, [Item("b", "text")]),
            lambda: erase(one, make_items(5)),
            one.compact,
            lambda: put(one, make_items(3, seed=9)),
            lambda: erase(one, make_items(28)),
            one.clean,
        ):
            own = one.version()
            change()
            assert one.version() == own
            assert dump(two) == dump(one)
        assert two.version() != seen
        seen = two.version()
        dump(one), dump(two), one.check_structure(), two.find({"x": b"y" * 20})
        assert two.version() == seen


def test_the_version_counts_others_changes_inside_transactions(path):
    """Read where it is used, it cannot change until the transaction ends."""
    with SQLiteStore(path) as one, SQLiteStore(path) as two:
        before = two.version()
        put(one, [Item("b", "text")])
        with two.writing() as tx:
            assert two.version() != before
            tx.put_settings({"gamma": 1.0})
            inside = two.version()
        assert two.version() == inside
        with one.reading():
            assert one.version() == one.version()


def test_a_second_writer_waits_and_then_gives_up(path):
    """A named error within the timeout; the first one is not disturbed."""
    with SQLiteStore(path) as one, SQLiteStore(path, timeout=0.2) as two:
        start = time.monotonic()
        with one.writing() as tx:
            tx.erase_records("default", [make_items(1)[0].record.id])
            with pytest.raises(StoreBusyError), two.writing():
                pass
            assert dump(two)
            tx.put_root("default", root(tx, "default"))
        assert time.monotonic() - start < 5
        put(two, [Item("b", "text")])
        assert dump(one) == dump(two)


def test_opening_gives_way_to_a_writer(path):
    """A store opens while another one is inside a long transaction."""
    with SQLiteStore(path) as one, one.writing() as tx:
        tx.put_settings({"gamma": 2.0})
        start = time.monotonic()
        with SQLiteStore(path) as two:
            assert two.opening is None
            assert dump(two)
        assert time.monotonic() - start < 2


def test_raw_reads_do_not_drop_locks(path):
    """POSIX drops a process's locks when it closes any descriptor of the file."""
    with SQLiteStore(path) as one, one.writing() as tx:
        tx.put_settings({"gamma": 2.0})
        SQLiteStore(path, read_only=True).close()
        SQLiteStore(path).close()
        with SQLiteStore(f"{path}-2") as beside:
            beside.check_structure()
        child = spawning.Process(target=expect_busy, args=(path,))
        child.start()
        child.join(30)
        assert child.exitcode == 0


def expect_busy(path: Path) -> None:
    """Fail unless somebody else is writing."""
    with (
        SQLiteStore(path, timeout=0.1) as store,
        pytest.raises(StoreBusyError),
        store.writing(),
    ):
        pass


def test_a_neighbour_in_use_keeps_its_locks(path):
    """Looking whether a file beside is another memory does not unlock that one."""
    beside = Path(f"{path}-2")
    with (
        SQLiteStore(path) as store,
        SQLiteStore(beside) as other,
        other.writing() as tx,
    ):
        tx.put_settings({"gamma": 2.0})
        assert store.check_structure().ok
        child = spawning.Process(target=expect_busy, args=(beside,))
        child.start()
        child.join(30)
        assert child.exitcode == 0


def test_many_threads_share_one_store(path):
    """Each puts, reads and erases its own; nothing is lost and nothing is left."""
    items = make_items(80, seed=7)
    with SQLiteStore(path) as store:

        def work(number: int) -> None:
            own = items[number * 10 : number * 10 + 10]
            for item in own:
                put(store, [item])
                assert store.version() == store.version()
            with store.reading() as tx:
                found = tx.get("default", [item.record.id for item in own])
            assert len(found) == 10
            erase(store, own[:5])
            assert store.clean().ok

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        with store.reading() as tx:
            assert tx.count("default") == 30 + 40
        store.check_rows()
        gone = [item for start in range(0, 80, 10) for item in items[start : start + 5]]
        assert found_in_files(path, gone) == []


def failures(queue) -> list[str]:
    """Return what children have reported."""
    found = []
    while not queue.empty():
        found.append(queue.get())
    return found


def read_for(path: Path, seconds: float, failed) -> None:
    """Read all rows again and again, and compare them with their root."""
    try:
        with SQLiteStore(path) as store:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                store.check_rows()
                store.version()
    except BaseException as error:
        failed.put("".join(traceback.format_exception(error)))


def test_several_processes_read_while_one_writes_and_compacts(path):
    """No error, and never a state between two transactions."""
    failed = spawning.Queue()
    readers = [
        spawning.Process(target=read_for, args=(path, 2.0, failed)) for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    end = time.monotonic() + 2.0
    with SQLiteStore(path) as store:
        cycle = 0
        while time.monotonic() < end:
            items = make_items(20, seed=cycle, longest=500)
            put(store, items)
            erase(store, items[3:])
            store.clean()
            if cycle % 3 == 0:
                store.compact()
            cycle += 1
        store.check_rows()
    for reader in readers:
        reader.join(30)
        assert reader.exitcode == 0
    assert failures(failed) == []
    assert cycle > 3


def write_for(path: Path, number: int, seconds: float, failed) -> None:
    """Put, erase and compact; wait for others."""
    try:
        with SQLiteStore(path, timeout=30.0) as store:
            end = time.monotonic() + seconds
            cycle = 0
            while time.monotonic() < end:
                items = make_items(10, seed=1000 * number + cycle, longest=400)
                put(store, items, f"writer {number}")
                erase(store, items[1:], f"writer {number}")
                if cycle % 4 == number:
                    store.compact()
                cycle += 1
    except BaseException as error:
        failed.put("".join(traceback.format_exception(error)))


def test_several_processes_write_in_turn(path):
    """They wait for each other, also while one replaces the file."""
    failed = spawning.Queue()
    writers = [
        spawning.Process(target=write_for, args=(path, number, 2.0, failed))
        for number in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert failures(failed) == []
    with SQLiteStore(path) as store:
        store.check_rows()
        assert store.check_structure().ok


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_child(action) -> int:
    """Run an action in a forked child, and return its exit code."""
    pid = os.fork()
    if pid == 0:  # pragma: no cover - runs in the child
        signal.alarm(20)
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@needs_fork
def test_a_child_opens_its_own_connection(path):
    """It reads and writes, and the parent goes on."""
    with SQLiteStore(path) as store:
        version = store.version()

        def work() -> None:
            assert len(dump(store)["default"][0]) == 30
            put(store, [Item("child", "text")])
            store.close()

        assert in_child(work) == 0
        assert store.version() != version
        put(store, [Item("parent", "text")])
        with store.reading() as tx:
            assert tx.get("default", ["child", "parent"]).keys() == {"child", "parent"}


@needs_fork
def test_a_fork_inside_a_transaction_belongs_to_the_parent(path):
    """The child can neither use it nor end it; the parent commits."""
    with SQLiteStore(path) as store:
        with store.writing() as tx:
            tx.put_settings({"gamma": 2.0})

            def work() -> None:
                with pytest.raises(StoreError):
                    tx.settings()
                assert len(dump(store)["default"][0]) == 30

            assert in_child(work) == 0
            pid = os.fork()
            if pid:
                tx.erase_records("default", [make_items(1)[0].record.id])
                tx.erase_atoms("default", [make_items(1)[0].atom.key])
                tx.put_root("default", root(tx, "default"))
        if pid == 0:  # pragma: no cover - runs in the child
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        with store.reading() as tx:
            assert tx.settings() == {"gamma": 2.0}
            assert tx.count("default") == 29
        store.check_rows()


@needs_fork
def test_a_fork_while_another_thread_is_at_work(path, monkeypatch):
    """The child does not wait for a lock that nobody will release."""
    monkeypatch.setattr(session, "_FORK_WAIT", 0.1)
    with SQLiteStore(path) as store:
        entered, leave = threading.Event(), threading.Event()

        def read() -> None:
            with store.reading() as tx:
                tx.settings()
                entered.set()
                leave.wait()

        thread = threading.Thread(target=read)
        thread.start()
        entered.wait()
        try:
            assert in_child(lambda: dump(store)) == 0
        finally:
            leave.set()
            thread.join()


@needs_fork
def test_a_memory_in_ram_is_copied_by_a_fork():
    """Child and parent go separate ways."""
    with SQLiteStore() as store:
        put(store, make_items(3))

        def work() -> None:
            assert len(dump(store)["default"][0]) == 3
            erase(store, make_items(3))
            assert store.clean().ok

        assert in_child(work) == 0
        assert len(dump(store)["default"][0]) == 3


def test_without_such_locks_the_folder_is_the_gate(path, monkeypatch):
    """Other systems lack them; compaction still waits for whoever is inside."""
    monkeypatch.setattr("forgetmem.store.gate.locks_files", lambda: False)
    monkeypatch.setattr("forgetmem.store.files.locks_files", lambda: False)
    check_compaction_waits(path)


def test_a_file_system_without_locks_is_an_error(path, monkeypatch):
    """Named, instead of a memory that two processes could spoil."""

    def refuse(fd, kind, byte):
        if kind != fcntl.F_UNLCK:
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr("forgetmem.store.gate._set", refuse)
    with pytest.raises(StoreError, match="no locks"):
        SQLiteStore(path)


def test_whoever_wants_to_be_alone_is_not_kept_out_by_newcomers(path):
    """Readers that come one after the other do not starve a compaction."""
    stop = spawning.Event()
    readers = [spawning.Process(target=read_until, args=(path, stop)) for _ in range(3)]
    for reader in readers:
        reader.start()
    time.sleep(0.3)
    try:
        with SQLiteStore(path, timeout=5.0) as store:
            for _ in range(5):
                store.compact()
    finally:
        stop.set()
        for reader in readers:
            reader.join(30)
            assert reader.exitcode == 0


def read_until(path: Path, stop) -> None:
    """Be inside a reading transaction nearly always."""
    with SQLiteStore(path) as store:
        while not stop.is_set():
            with store.reading() as tx:
                tx.settings()
                time.sleep(0.02)


def test_threads_wait_at_the_gate_too(path):
    """In one process: compaction waits for a reader, a reader for a compaction."""
    with SQLiteStore(path, timeout=0.1) as one, SQLiteStore(path) as two:
        entered, leave = threading.Event(), threading.Event()

        def read() -> None:
            with two.reading():
                entered.set()
                leave.wait()

        thread = threading.Thread(target=read)
        thread.start()
        entered.wait()
        with pytest.raises(StoreBusyError):
            one.compact()
        leave.set()
        thread.join()
        with one._session.replacing():
            opener = SQLiteStore(path.with_name("other"), timeout=0.1)
            opener.close()
            with pytest.raises(StoreBusyError):
                SQLiteStore(path, timeout=0.1)
        one.compact()
        dump(two)


def stay_inside(path: Path, entered, leave) -> None:
    """Be inside a reading transaction for a while."""
    with SQLiteStore(path) as store, store.reading():
        entered.set()
        leave.wait(60)


def check_compaction_waits(path: Path) -> None:
    """Compact while another process reads, and when it is done."""
    entered, leave = spawning.Event(), spawning.Event()
    reader = spawning.Process(target=stay_inside, args=(path, entered, leave))
    reader.start()
    assert entered.wait(60)
    with SQLiteStore(path, timeout=0.2) as store:
        before = dump(store)
        with pytest.raises(StoreBusyError):
            store.compact()
        leave.set()
        reader.join(60)
        assert reader.exitcode == 0
        store.compact()
        assert dump(store) == before


def test_compaction_waits_for_other_processes(path):
    """A named error within the timeout, and then it works."""
    check_compaction_waits(path)


def test_a_failed_rollback_closes_the_connection(path, monkeypatch):
    """The journal is played back by the next one; the version tells of it."""
    with SQLiteStore(path) as store:
        before, version = dump(store), store.version()
        execute = Connection.execute

        def refuse(connection, sql, parameters=()):
            if sql in ("COMMIT", "ROLLBACK"):
                raise StoreError("the system reported an input or output error")
            return execute(connection, sql, parameters)

        with monkeypatch.context() as patch:
            patch.setattr(Connection, "execute", refuse)
            with pytest.raises(StoreError, match="input or output"):
                put(store, make_items(3, seed=4))
        assert dump(store) == before
        assert store.version() != version


def test_only_our_own_change_keeps_the_version(path):
    """If somebody was faster in between, it is not resumed."""
    with SQLiteStore(path) as store:
        version = store.version()
        store._session._resume((version[0] + 7, 7), ((0, 0), 0))
        assert store.version() == version
        stamp = store._session.connection().stamp()
        store._session._resume((version[0] + 7, 7), stamp)
        assert store.version() == (version[0] + 7, 7)


def test_looking_does_not_wait_for_readers(path):
    """A check, and a write that changes nothing, need no exclusive lock."""
    with (
        SQLiteStore(path, timeout=0.1) as store,
        SQLiteStore(path) as other,
        other.reading() as tx,
    ):
        tx.settings()
        assert store.check_structure().ok
        assert store.clean().ok
        with store.writing() as nothing:
            nothing.erase_records("default", ["nobody"])
            nothing.erase_certificates()
