"""Threads in which torch computes with one thread each.

A matrix product gives other last bits with two threads than with one, so an encoder
whose vectors must not depend on the machine's settings computes with one. The number
of threads is a property of the calling thread and, for threads that are born later,
of the process; setting it in a caller's thread would slow down the caller's own
models. So work is handed to threads of ours, and everything else keeps its settings.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

#: More threads than this would wait for memory, not for each other.
MAX_WORKERS = 8


class _Pool:
    """The process's workers; started at first use, and anew in a forked child."""

    def __init__(self) -> None:
        self.forget_threads()
        os.register_at_fork(after_in_child=self.forget_threads)

    def forget_threads(self) -> None:
        """Start over: threads do not survive a fork, and locks may be held."""
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def executor(self) -> ThreadPoolExecutor:
        """Return the running executor."""
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(
                    worker_count(),
                    thread_name_prefix="forgetmem",
                    initializer=_compute_alone,
                )
            return self._executor


def worker_count() -> int:
    """Tell how many workers there are: one a usable processor, at most 8.

    Returns
    -------
    int
    """
    usable = getattr(os, "sched_getaffinity", None)
    count = len(usable(0)) if usable else os.cpu_count() or 1
    return min(count, MAX_WORKERS)


def map_alone(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Apply `function` to each item in the workers, and yield results in order.

    Parameters
    ----------
    function : callable
        May use torch, which then computes with one thread; safe to be called from
        several threads at once.
    items : iterable
        Read only a few items ahead, so that another caller's single item does not
        wait behind a long list.

    Yields
    ------
    object
        What `function` returned; an exception of it is raised here.
    """
    executor = _pool.executor()
    pending: deque[Future[R]] = deque()
    rest = iter(items)
    try:
        for item in itertools.islice(rest, 2 * worker_count()):
            pending.append(executor.submit(function, item))
        while pending:
            result = pending.popleft().result()
            for item in itertools.islice(rest, 1):
                pending.append(executor.submit(function, item))
            yield result
    finally:
        for future in pending:
            future.cancel()


class ForkSafeLock:
    """A reentrant lock that is open in a forked child, whoever held it before.

    Use it as ``with lock.current:``, so that what is released is what was taken.

    Attributes
    ----------
    current : RLock
        The lock of this process.
    """

    def __init__(self) -> None:
        self.open()
        _locks.add(self)

    def open(self) -> None:
        """Replace the lock by a fresh one."""
        self.current = threading.RLock()


def _open_locks() -> None:
    for lock in list(_locks):
        lock.open()


def _compute_alone() -> None:
    import torch

    with _setting_threads:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        # That also set the default of threads yet to come; another thread puts it
        # back, because only a thread's own number would be changed by this one.
        restore = threading.Thread(target=torch.set_num_threads, args=(before,))
        restore.start()
        restore.join()


_setting_threads = threading.Lock()
_pool = _Pool()
_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open_locks)
