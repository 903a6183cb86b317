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
    from forgetmem.embedding import Embedder, SentenceTransformerEmbedder
    from forgetmem.memory import ForgettableMemory
    from forgetmem.proof import AuditReport, ForgetProof, PruneCertificate, Verdict
    from forgetmem.records import Hit, Readout, Record

__version__ = "0.1.0"

__all__ = [
    "AuditReport",
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
]

#: Where the names live that load numba, pydantic or more; imported at first use.
_HOMES = {
    "AuditReport": "proof",
    "Embedder": "embedding",
    "ForgetProof": "proof",
    "ForgettableMemory": "memory",
    "Hit": "records",
    "PruneCertificate": "proof",
    "Readout": "records",
    "Record": "records",
    "SentenceTransformerEmbedder": "embedding",
    "Verdict": "proof",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"forgetmem.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
