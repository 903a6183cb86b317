"""Several processes, handles, threads and forks on one memory."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from remote import Remote, RemoteError
from toy import WordEmbedder

from forgetmem import (
    EmbedderMismatchError,
    ForgettableMemory,
    RecordNotFoundError,
    StoreBusyError,
)

TEXTS = [f"pump number {n % 4} was checked {n}" for n in range(12)]
IDS = [f"r{n:02}" for n in range(len(TEXTS))]


def opened(path: Path | None, namespace: str = "default", **options: Any) -> Any:
    """Open a memory with the toy embedder."""
    options = {"embedder": WordEmbedder(), "namespace": namespace, **options}
    return ForgettableMemory(path, **options)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small memory that is closed."""
    path = tmp_path / "m.fm"
    with opened(path, alike=0.5) as memory:
        fill(memory)
    return path


def fill(memory: ForgettableMemory, first: int = 0) -> None:
    """Add the records of the small memory."""
    memory.add(
        TEXTS[first:],
        ids=IDS[first:],
        metadatas=[{"n": n} for n in range(first, len(TEXTS))],
        source_ids=[f"s{n}" for n in range(first, len(TEXTS))],
    )


@pytest.fixture(scope="module")
def others() -> Iterator[list[Remote]]:
    """Three other processes, started together."""
    remotes = [Remote(OMP_NUM_THREADS="1") for _ in range(3)]
    for remote in remotes:
        remote.tell("1")
    assert [remote.answer() for remote in remotes] == [1, 1, 1]
    yield remotes
    for remote in remotes:
        remote.close()


FOUND = "'r05' in [hit.id for hit in m.search({}, 12{})]"
TEXT = repr(TEXTS[5])
VIEWS = {
    "in": "'r05' in m",
    "get": "'r05' in [record.id for record in m.get(['r05'])]",
    "ids": "'r05' in m.ids()",
    "len": "len(m) == 12",
    "stats": "m.stats()['records'] == 12",
    "search": FOUND.format(TEXT, ""),
    "similarity": FOUND.format(TEXT, ", ranking='similarity'"),
    "vector": FOUND.format(f"WordEmbedder().encode([{TEXT}])[0]", ""),
    "where": FOUND.format(TEXT, ", where={'n': 5}"),
    "look-alikes": f"any('r05' in hit.similar for hit in m.search({TEXT}, 12))",
    "read": f"'r05' in m.read({TEXT}, 12).ids",
}
ENDS = {
    "ids": "m.forget('r05', missing='ignore').forgotten",
    "source": "m.forget(source_id='s5').forgotten",
    "filter": "m.forget(where={'n': 5}).forgotten",
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_one_process_forgot_no_other_shows(
    path: Path, others: list[Remote], name: str
) -> None:
    """Whatever the other asks first (weaviate/weaviate 3868)."""
    other = others[0]
    other.ask(f"m = opened({str(path)!r})")
    assert other.ask(VIEWS[name]) is True
    with opened(path) as memory:
        proof = memory.forget("r05")
        assert other.ask(VIEWS[name]) is False
        assert other.ask("m.digest()") == memory.digest() == proof.digest_after
        assert other.ask("m.audit().ok")
    other.ask("m.close()")


@pytest.mark.parametrize("name", ENDS)
def test_what_one_process_forgot_no_other_finds_to_forget(
    path: Path, others: list[Remote], name: str
) -> None:
    """By id, source or filter: there is nothing any more."""
    other = others[0]
    other.ask(f"m = opened({str(path)!r})")
    assert other.ask("'r05' in m")
    with opened(path) as memory:
        memory.forget("r05")
        assert other.ask(ENDS[name]) == 0
        assert other.ask("m.digest()") == memory.digest()
    other.ask("m.close()")


def test_what_one_process_adds_or_overwrites_the_other_shows(
    path: Path, others: list[Remote]
) -> None:
    """In both directions, and after a compaction and a pruning, too."""
    other = others[0]
    other.ask(f"m = opened({str(path)!r})")
    with opened(path) as memory:
        memory.add(["a crane in the hall"], ids=["new"])
        assert other.ask("m.search('crane hall', 1)[0].id") == "new"
        other.ask("m.add(['a boiler in the yard'], ids=['new'])")
        assert memory.get("new")[0].text == "a boiler in the yard"
        assert memory.search("boiler yard", 1)[0].id == "new"
        other.ask("m.compact()")
        assert memory.search("boiler yard", 1)[0].id == "new"
        memory.compact()
        other.ask("len(m.prune())")
        assert memory.ids() == other.ask("m.ids()")
        assert memory.digest() == other.ask("m.digest()")
        other.ask("m.forget(m.ids()).forgotten")
        assert len(memory) == 0
        assert memory.search("boiler") == []
    other.ask("m.close()")


def test_readers_never_see_a_half_done_change(path: Path, others: list[Remote]) -> None:
    """Three processes read while one writes: pairs are there together, or not."""
    for other in others:
        other.ask(f"m = opened({str(path)!r})")
        other.tell(
            "end = time.monotonic() + 2.0\n"
            "seen, wrong = 0, []\n"
            "while time.monotonic() < end:\n"
            "    ids = set(m.ids())\n"
            "    odd = [i for i in ids if i[:2] == 'a-' and 'b-' + i[2:] not in ids]\n"
            "    hits = m.search('pump number 3', 40)\n"
            "    bad = [h.id for h in hits if h.id[:2] in ('a-', 'b-')"
            " and h.id[2:] not in h.text]\n"
            "    wrong += odd + bad\n"
            "    seen += 1\n"
        )
    end = time.monotonic() + 2.0
    changes = 0
    with opened(path) as memory:
        while time.monotonic() < end:
            pair = [f"a-{changes}", f"b-{changes}"]
            memory.add([f"pump number {changes} here"] * 2, ids=pair)
            if changes % 3 == 2:
                memory.forget([f"a-{changes - 1}", f"b-{changes - 1}"])
            if changes % 10 == 9:
                memory.compact()
            changes += 1
        for other in others:
            assert other.answer() is None
            assert other.ask("wrong") == []
            assert other.ask("seen") > 3
            assert other.ask("m.digest()") == memory.digest()
            other.ask("m.close()")
        assert changes > 5
        assert memory.audit().ok


def test_several_processes_write_and_lose_nothing(
    path: Path, others: list[Remote]
) -> None:
    """Each adds and forgets records of its own; the end is that of a serial run."""
    for number, other in enumerate(others):
        other.ask(f"m = opened({str(path)!r}, timeout=60.0)")
        other.tell(
            f"for n in range(12):\n"
            f"    m.add([f'pump {{n}} of {number}'], ids=[f'{number}-{{n}}'])\n"
            f"    if n % 3 == 1: m.forget(f'{number}-{{n - 1}}')\n"
            f"    if n % 4 == 3: m.add(['changed'], ids=[f'{number}-{{n}}'])\n"
        )
    for other in others:
        other.answer()
    with opened(path) as memory, opened(None, alike=0.5) as serial:
        kept = [
            (f"{number}-{n}", "changed" if n % 4 == 3 else f"pump {n} of {number}")
            for number in range(3)
            for n in range(12)
            if n % 3
        ]
        fill(serial)
        serial.add([text for _, text in kept], ids=[id for id, _ in kept])
        assert memory.ids() == serial.ids()
        assert memory.digest() == serial.digest()
        assert memory.audit().ok
    for other in others:
        other.ask("m.close()")


def test_second_writer_waits_and_then_says_who_is_in_the_way(
    path: Path, others: list[Remote]
) -> None:
    """Opening and reading go on; a write ends in the stated time (chroma 7040)."""
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    other = others[0]
    started = time.monotonic()
    other.ask(f"m = opened({str(path)!r}, timeout=0.5)")
    assert other.ask("m.search('pump', 1)[0].id")
    assert other.ask("len(m)") == len(TEXTS)
    for write in ("m.add(['x'])", "m.forget('r01')", "m.prune()", "m.compact()"):
        with pytest.raises(RemoteError) as caught:
            other.ask(write)
        assert caught.value.name == "StoreBusyError"
    assert time.monotonic() - started < 15.0
    assert other.ask("len(m)") == len(TEXTS)
    holder.execute("COMMIT")
    holder.close()
    assert other.ask("m.forget('r01').forgotten") == 1
    other.ask("m.close()")


def test_reader_of_another_process_blocks_the_commit(
    path: Path, others: list[Remote]
) -> None:
    """An open read transaction elsewhere: wait, then error, no proof, no change."""
    other = others[0]
    other.ask(
        f"import sqlite3\n"
        f"c = sqlite3.connect({str(path)!r}, isolation_level=None)\n"
        f"c.execute('BEGIN')\n"
        f"c.execute('SELECT count(*) FROM record').fetchone()\n"
    )
    with opened(path, timeout=0.4) as memory:
        before = memory.digest()
        with pytest.raises(StoreBusyError):
            memory.forget("r03")
        assert memory.digest() == before
        assert "r03" in memory
        other.ask("c.close()")
        assert memory.verify(memory.forget("r03")).ok


def test_killed_process_holds_nobody_up(path: Path) -> None:
    """Its locks are gone, its half-written change too."""
    victim = Remote()
    victim.ask(f"m = opened({str(path)!r})")
    with opened(path) as memory:
        before = memory.digest()
        victim.tell("with m._collection.changing() as (tx, s): time.sleep(60)")
        time.sleep(0.3)
        victim.kill()
        assert memory.digest() == before
        assert memory.verify(memory.forget("r00")).ok


def test_two_handles_never_write_back_what_was_forgotten(path: Path) -> None:
    """Through one or the other, alternating (ryaker/SparrowDB 441)."""
    with opened(path) as one, opened(path) as two, opened(None, alike=0.5) as model:
        fill(model)
        chance = random.Random(1)
        for step in range(40):
            handle = chance.choice([one, two])
            ids = handle.ids()
            if chance.random() < 0.5 or not ids:
                text, id = f"pump number {step % 6} again", f"n{step % 9}"
                handle.add([text], ids=[id])
                model.add([text], ids=[id])
            else:
                gone = chance.sample(ids, min(len(ids), 2))
                handle.forget(gone)
                model.forget(gone)
            assert one.digest() == two.digest() == model.digest()
        assert one.search("pump", 9) == two.search("pump", 9) == model.search("pump", 9)
        one.compact()
        two.compact()
        assert one.audit().ok and two.audit().ok


def test_tenants_do_not_see_one_another(path: Path) -> None:
    """Own groups, weights, searches and digests; a namespace lives by its records."""
    with opened(path) as one, opened(path, "other") as two:
        digest, hits = one.digest(), one.search("pump", 20)
        assert two.search("pump", 20) == [] and len(two) == 0
        two.add(TEXTS[:3], ids=IDS[:3])
        assert one.digest() == digest
        assert one.search("pump", 20) == hits
        assert one.namespaces() == ["default", "other"]
        one.forget(IDS)
        assert two.ids() == IDS[:3]
        assert two.namespaces() == ["other"]
        with pytest.raises(RecordNotFoundError):
            one.forget(IDS[0])
        two.forget(IDS[:3])
        assert one.namespaces() == []


def test_emptied_memory_takes_another_embedder(
    path: Path, others: list[Remote]
) -> None:
    """Another process that still has the old one is told so."""
    other = others[0]
    other.ask(f"m = opened({str(path)!r})")
    with opened(path) as memory:
        with pytest.raises(EmbedderMismatchError):
            opened(path, embedder=WordEmbedder(8, name="another"))
        memory.forget(IDS)
    with opened(path, embedder=WordEmbedder(8, name="another")) as memory:
        memory.add(["a crane"], ids=["c"])
        assert memory.search("crane", 1)[0].id == "c"
        for call in ("m.search('crane')", "m.add(['x'])"):
            with pytest.raises(RemoteError) as caught:
                other.ask(call)
            assert caught.value.name == "EmbedderMismatchError"
        with pytest.raises(RemoteError) as caught:
            other.ask("m.search(np.ones(16))")
        assert caught.value.name == "DimensionMismatchError"
        assert other.ask("m.get('c')[0].text") == "a crane"
        assert other.ask("m.verify(m.forget('c')).ok")
        assert len(memory) == 0
    other.ask("m.close()")


# Threads and forks.


def act(memory: ForgettableMemory, worker: int, until: Callable[[int], bool]) -> int:
    """Add, overwrite, forget and search records of one worker."""
    step = 0
    while until(step):
        id = f"w{worker}-{step % 7}"
        memory.add([f"pump {worker} {step}"], ids=[id], metadatas=[{"w": worker}])
        assert memory.get(id)[0].text == f"pump {worker} {step}"
        hits = memory.search(f"pump {worker}", 3, where={"w": worker})
        assert all(hit.metadata == {"w": worker} for hit in hits)
        if step % 3 == 2:
            proof = memory.forget(f"w{worker}-{(step - 1) % 7}")
            assert proof.forgotten == 1
        step += 1
    return step


@pytest.mark.parametrize("in_file", [True, False], ids=["file", "RAM"])
def test_eight_threads_end_as_a_serial_run_does(tmp_path: Path, in_file: bool) -> None:
    """Three seconds of adding, forgetting and searching (mem0ai/mem0 3184)."""
    seconds = 3.0 if in_file else 1.0
    end = time.monotonic() + seconds
    with (
        opened(tmp_path / "m.fm" if in_file else None) as memory,
        ThreadPoolExecutor(8) as pool,
    ):
        futures = [
            pool.submit(act, memory, worker, lambda _: time.monotonic() < end)
            for worker in range(8)
        ]
        steps = [future.result(timeout=120) for future in futures]
        with opened(None) as serial:
            for worker, count in enumerate(steps):
                act(serial, worker, lambda step, count=count: step < count)
            assert memory.ids() == serial.ids()
            assert memory.digest() == serial.digest()
            assert memory.search("pump", 40) == serial.search("pump", 40)
        assert memory.audit().ok


async def test_a_memory_may_be_used_from_an_event_loop(tmp_path: Path) -> None:
    """Made in the main thread, used by fifty tasks in executor threads."""
    with opened(tmp_path / "m.fm") as memory:

        async def task(number: int) -> str:
            (id,) = await asyncio.to_thread(
                memory.add, [f"pump {number}"], ids=[f"t{number}"]
            )
            hits = await asyncio.to_thread(memory.search, f"pump {number}", 3)
            assert hits
            if number % 2:
                proof = await asyncio.to_thread(memory.forget, id)
                assert (await asyncio.to_thread(memory.verify, proof)).ok
            return id

        ids = await asyncio.gather(*(task(number) for number in range(50)))
        assert memory.ids() == sorted(ids[::2])


def in_child(action: Callable[[], object]) -> None:
    """Run an action in a forked child; fail if it fails or takes too long."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except BaseException as error:
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(code)
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_shares_the_file_and_harms_nobody(path: Path) -> None:
    """Parent and child write in turn through the handle from before the fork."""
    with opened(path) as memory:
        memory.search("pump")

        def child() -> None:
            assert memory.ids() == IDS
            memory.add(["of the child"], ids=["child"])
            assert memory.verify(memory.forget("r00")).ok
            assert memory.audit().ok

        in_child(child)
        assert memory.ids() == ["child", *IDS[1:]]
        memory.forget("child")
        with opened(None, alike=0.5) as fresh:
            fill(fresh, 1)
            assert memory.digest() == fresh.digest()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_copies_a_memory_in_ram() -> None:
    """The child has all records, and what it does is its own affair."""
    with opened(None) as memory:
        memory.add(TEXTS, ids=IDS)
        digest, hits = memory.digest(), memory.search("pump", 20)

        def child() -> None:
            assert memory.ids() == IDS
            assert memory.digest() == digest
            assert memory.search("pump", 20) == hits
            assert memory.verify(memory.forget(IDS[:6])).ok
            memory.add(["x"], ids=["x"])
            assert memory.audit().ok

        in_child(child)
        assert memory.digest() == digest
        assert memory.audit().ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_midst_of_another_thread_does_not_hang(path: Path) -> None:
    """The child can use the memory although a thread of the parent held its locks."""
    with opened(path) as memory:
        stop = threading.Event()

        def busy() -> None:
            number = 0
            while not stop.is_set():
                memory.add([f"busy {number}"], ids=["busy"])
                number += 1

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            for _ in range(5):
                in_child(lambda: np.testing.assert_(len(memory) >= len(TEXTS)))
        finally:
            stop.set()
            thread.join()
        assert memory.audit().ok
