"""Workers: results in order, nothing read far ahead, errors and locks."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from forgetmem.embedding import workers
from forgetmem.embedding.workers import ForkSafeLock, map_alone, worker_count


def test_results_come_in_order() -> None:
    """Whichever worker is first, the order is that of the items."""
    assert list(map_alone(lambda n: n * n, range(100))) == [n * n for n in range(100)]
    assert list(map_alone(str, [])) == []


def test_items_are_read_only_a_little_ahead() -> None:
    """A long list does not fill the queue before another caller's item."""
    read: list[int] = []

    def items() -> Iterator[int]:
        for n in range(1000):
            read.append(n)
            yield n

    results = map_alone(str, items())
    assert next(results) == "0"
    assert len(read) <= 2 * worker_count() + 1
    results.close()  # type: ignore[attr-defined]


def test_exception_of_the_function_is_raised_in_the_caller() -> None:
    """The first failing item ends the walk."""
    results = map_alone(lambda n: 1 // n, [1, 0, 2])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_workers_are_ours_and_few() -> None:
    """Work runs in named threads, at most eight."""
    names = set(map_alone(lambda _: threading.current_thread().name, range(50)))
    assert all(name.startswith("forgetmem") for name in names)
    assert len(names) <= worker_count() <= workers.MAX_WORKERS


def test_worker_count_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not tell usable processors, all are counted."""
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    assert worker_count() == 3


def test_lock_is_reentrant_and_open_after_renewal() -> None:
    """What a forked child does to a lock that another thread held."""
    lock = ForkSafeLock()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.current:
            held.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    lock.open()
    with lock.current, lock.current:
        release.set()
    holder.join()
