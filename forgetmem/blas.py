"""One thread for each matrix product, while several products run at once."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_users = 0
_limit: Any = None


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread a product; the last to leave restores what was before.

    Its own threads wait for each other in busy loops, which on a loaded machine takes
    several times as long as one thread needs.
    """
    global _users, _limit
    with _lock:
        if not _users:
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                _limit.restore_original_limits()


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
