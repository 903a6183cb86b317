"""A retrieval memory that can forget: exactly, with a proof, on disk too."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from forgetmem.errors import (
    CorruptStoreError,
    DimensionMismatchError,
    DuplicateIdError,
    EmbedderMismatchError,
    EmbeddingError,
    ErasureError,
    ForgetmemError,
    InvalidInputError,
    MissingDependencyError,
    NotFoundError,
    ProofError,
    RecordNotFoundError,
    RowNotFoundError,
    SchemaVersionError,
    SettingsMismatchError,
    StoreBusyError,
    StoreError,
)

if TYPE_CHECKING:
    from forgetmem.calibration import Calibration, calibrate
    from forgetmem.embedding import Embedder, SentenceTransformerEmbedder
    from forgetmem.memory import ForgettableMemory
    from forgetmem.proof import ForgetProof
    from forgetmem.records import Hit, Readout, Record
    from forgetmem.verdicts import AuditReport, PruneCertificate, Verdict

__version__ = "0.1.0"

__all__ = [
    "AuditReport",
    "Calibration",
    "CorruptStoreError",
    "DimensionMismatchError",
    "DuplicateIdError",
    "Embedder",
    "EmbedderMismatchError",
    "EmbeddingError",
    "ErasureError",
    "ForgetProof",
    "ForgetmemError",
    "ForgettableMemory",
    "Hit",
    "InvalidInputError",
    "MissingDependencyError",
    "NotFoundError",
    "ProofError",
    "PruneCertificate",
    "Readout",
    "Record",
    "RecordNotFoundError",
    "RowNotFoundError",
    "SchemaVersionError",
    "SentenceTransformerEmbedder",
    "SettingsMismatchError",
    "StoreBusyError",
    "StoreError",
    "Verdict",
    "__version__",
    "calibrate",
]

#: Where the names live that load numba, pydantic or more; imported at first use.
_HOMES = {
    "AuditReport": "verdicts",
    "Calibration": "calibration",
    "Embedder": "embedding",
    "ForgetProof": "proof",
    "ForgettableMemory": "memory",
    "Hit": "records",
    "PruneCertificate": "verdicts",
    "Readout": "records",
    "Record": "records",
    "SentenceTransformerEmbedder": "embedding",
    "Verdict": "verdicts",
    "calibrate": "calibration",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"forgetmem.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
