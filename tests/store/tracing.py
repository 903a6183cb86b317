"""Kills a child process at its n-th write, sync, rename, link or unlink.

The child is traced with ``ptrace``, so that the code under test has no hooks. At the
entry of the call it is killed, and the call is not made any more.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Callable

_TRACEME, _SYSCALL, _SETOPTIONS, _INFO = 0, 24, 0x4200, 0x420E
_GOOD_STOPS, _ENTRY = 1, 1

_CALLS = {
    "x86_64": {
        1: "write", 18: "pwrite64", 74: "fsync", 75: "fdatasync", 77: "ftruncate",
        82: "rename", 86: "link", 87: "unlink", 263: "unlinkat", 264: "renameat",
        265: "linkat", 316: "renameat2",
    },
    "aarch64": {
        64: "write", 68: "pwrite64", 82: "fsync", 83: "fdatasync", 46: "ftruncate",
        35: "unlinkat", 37: "linkat", 38: "renameat", 276: "renameat2",
    },
}.get(platform.machine(), {})  # fmt: skip


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.argtypes = [ctypes.c_long] * 2 + [ctypes.c_void_p] * 2
    library.ptrace.restype = ctypes.c_long
    return library


def why_not() -> str:
    """Return why this cannot be done here, or the empty string."""
    if sys.platform != "linux" or not _CALLS:
        return "ptrace is used as Linux on x86-64 and ARM has it"
    names, _ = run(lambda: None, None)
    return "" if names is not None else "ptrace is not allowed here"


def run(action: Callable[[], object], kill_at: int | None):
    """Run an action in a child that is killed at one of its calls.

    Returns the names of the calls so far, and whether the child was killed; None and
    False if tracing is not allowed.
    """
    library = _library()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if library.ptrace(_TRACEME, 0, None, None) == 0:
                os.kill(os.getpid(), signal.SIGSTOP)
                action()
                code = 0
            else:
                code = 77
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        return None, False
    library.ptrace(_SETOPTIONS, pid, None, ctypes.c_void_p(_GOOD_STOPS))
    return _follow(library, pid, kill_at)


def _follow(library: ctypes.CDLL, pid: int, kill_at: int | None):
    names: list[str] = []
    info = ctypes.create_string_buffer(88)
    deliver = 0
    while True:
        library.ptrace(_SYSCALL, pid, None, ctypes.c_void_p(deliver))
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            return names, True
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "the child failed"
            return names, False
        deliver = 0
        if os.WSTOPSIG(status) != signal.SIGTRAP | 0x80:
            deliver = os.WSTOPSIG(status)
            continue
        library.ptrace(_INFO, pid, ctypes.c_void_p(88), ctypes.addressof(info))
        number = int.from_bytes(info.raw[24:32], sys.byteorder)
        if info.raw[0] == _ENTRY and number in _CALLS:
            names.append(_CALLS[number])
            if len(names) == kill_at:
                os.kill(pid, signal.SIGKILL)
