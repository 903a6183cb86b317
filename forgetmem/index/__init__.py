"""CANDIDATE PREFILTER: proposes rows, decides nothing, and can be rebuilt.

Knows vectors and their rows. Must not know ids, records, groups or files. What it
returns carries a bound on every row it did not return, so that the caller can tell
when an answer is final. `FlatIndex` is the truth that `ScanIndex` is tested against.
"""

from __future__ import annotations

from forgetmem.index.candidates import Candidates, float32_error
from forgetmem.index.flat import FlatIndex
from forgetmem.index.scan import ScanIndex
from forgetmem.index.vectors import VectorTable

__all__ = [
    "Candidates",
    "FlatIndex",
    "ScanIndex",
    "VectorTable",
    "float32_error",
]
