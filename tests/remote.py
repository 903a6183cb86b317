"""Another process that does what it is told, line by line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_LOOP = """
import json, os, sys, time
from pathlib import Path
import numpy as np
from toy import WordEmbedder
import forgetmem
from forgetmem import ForgettableMemory

def opened(path, name="default", timeout=10.0, **options):
    return ForgettableMemory(
        path, embedder=WordEmbedder(), namespace=name, timeout=timeout, **options)

names = {**globals()}
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    code = json.loads(line)
    try:
        try:
            value = eval(compile(code, "told", "eval"), names)
        except SyntaxError:
            value = exec(compile(code, "told", "exec"), names)
        answer = {"value": value}
        text = json.dumps(answer)
    except BaseException as error:
        text = json.dumps({"error": type(error).__name__, "message": str(error)})
    out.write(text + "\\n")
    out.flush()
"""


class RemoteError(Exception):
    """What went wrong in the other process."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(f"{name}: {message}")


class Remote:
    """A Python process with `ForgettableMemory` and the toy embedder at hand."""

    def __init__(self, **environment: str) -> None:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LOOP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **environment,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            },
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, code: str) -> None:
        """Have it run code, and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the value of what it was told first."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process ended with {self._process.wait()}"
        answer = json.loads(line)
        if "error" in answer:
            raise RemoteError(answer["error"], answer["message"])
        return answer["value"]

    def ask(self, code: str) -> Any:
        """Have it run code, and wait for the value."""
        self.tell(code)
        return self.answer()

    def kill(self) -> None:
        """End it as ``kill -9`` does."""
        self._process.kill()
        self._end()

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._process.wait(timeout=60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
