"""Compile the inner loops ahead of their first use: ``python -m forgetmem.warmup``.

The first memory on a machine compiles for about half a minute; the result is kept on
disk. An image or an installation that runs this once has it behind it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from forgetmem.memory import ForgettableMemory


def warm_up() -> None:
    """Use every part of a small memory once."""
    rng = np.random.default_rng(0)
    centres = np.repeat(rng.standard_normal((3, 16)), [2, 12, 60], axis=0)
    X = centres + 0.2 * rng.standard_normal(centres.shape)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warmup.forgetmem"
        with ForgettableMemory(path, link=0.7) as memory:
            ids = memory.add([f"text {row}" for row in range(len(X))], embeddings=X)
            memory.add(["one more"], embeddings=X[-1:] + 0.01)
            memory.search(X[0])
            memory.search(X[0], ranking="similarity")
            memory.read(X[0])
            memory.verify(memory.forget(ids[-1]))
            memory.prune()
            memory.compact()


if __name__ == "__main__":
    warm_up()
