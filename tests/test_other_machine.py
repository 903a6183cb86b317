"""Given vectors lead to the same bits whatever the processor can do."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from forgetmem import ForgettableMemory
from forgetmem.svm import OneClassSVM


def digest() -> str:
    """What a solver and a memory come to, as one number."""
    found = hashlib.sha256()
    rng = np.random.default_rng(0)
    for n, gamma, C in ((60, 0.3, 1.0), (300, 0.05, 1 / 100), (400, 0.5, 1.0)):
        X = rng.normal(size=(n, 24))
        svm = OneClassSVM(gamma, C).fit(X).unlearn([3, 5]).learn(X[:2] + 0.1)
        found.update(svm.dual_coef_.tobytes() + svm.score_samples(X[:20]).tobytes())
    X = rng.normal(size=(20, 64))[rng.integers(20, size=300)]
    X += 0.3 * rng.normal(size=X.shape)
    with ForgettableMemory() as memory:
        names = [f"{row}" for row in range(len(X))]
        memory.add(names, ids=names, embeddings=X)
        memory.forget("5")
        for q in X[:20]:
            for ranking in ("support", "similarity"):
                hits = memory.search(q, 10, ranking=ranking)
                found.update(repr(hits).encode())
            found.update(memory.read(q).value.tobytes())
    return found.hexdigest()


def test_a_processor_without_wide_registers_gives_the_same_bits() -> None:
    """Numpy and BLAS are told to do without what this one has beyond the baseline."""
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    other = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(simd.get("found", [])),
        "OPENBLAS_CORETYPE": "Nehalem",
        "MKL_CBWR": "COMPATIBLE",
    }
    code = "from test_other_machine import digest; print(digest())"
    child = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env=os.environ | other,
        capture_output=True,
        text=True,
        check=True,
    )
    assert child.stdout.strip() == digest()
