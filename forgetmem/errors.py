"""The exceptions of forgetmem.

Every error is a `ForgetmemError`, and also the builtin a caller expects::

    ForgetmemError
    ├── InvalidInputError (ValueError)
    │   ├── DimensionMismatchError          .expected .got
    │   ├── SettingsMismatchError           .name .stored .given
    │   └── DuplicateIdError                .id
    ├── NotFoundError (LookupError)
    │   ├── RecordNotFoundError             .id
    │   └── RowNotFoundError                .row
    ├── SolverError (ArithmeticError)       internal: never leaves `svm`
    │   ├── KKTViolationError               .residual .tol
    │   └── IllConditionedMarginError       .condition
    ├── EmbeddingError (RuntimeError)
    │   └── EmbedderMismatchError           .stored .given
    ├── StoreError (RuntimeError)
    │   ├── StoreBusyError                  .waited
    │   ├── SchemaVersionError              .found .supported
    │   ├── CorruptStoreError               .table .digest
    │   └── ErasureError                    .where .pending
    ├── DivergedError (ArithmeticError)     .step
    ├── ProofError (ValueError)             .reason
    └── MissingDependencyError (ImportError)  .package .extra

Messages say what was expected, what came and what to do. They never quote what
a record holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = [
    "CorruptStoreError",
    "DimensionMismatchError",
    "DivergedError",
    "DuplicateIdError",
    "EmbedderMismatchError",
    "EmbeddingError",
    "ErasureError",
    "ForgetmemError",
    "IllConditionedMarginError",
    "InvalidInputError",
    "KKTViolationError",
    "MissingDependencyError",
    "NotFoundError",
    "ProofError",
    "RecordNotFoundError",
    "RowNotFoundError",
    "SchemaVersionError",
    "SettingsMismatchError",
    "SolverError",
    "StoreBusyError",
    "StoreError",
]


class ForgetmemError(Exception):
    """Base of every error that forgetmem raises."""


class InvalidInputError(ForgetmemError, ValueError):
    """An argument has a wrong shape, type or value; nothing was changed."""


class DimensionMismatchError(InvalidInputError):
    """A vector has another dimension than the memory or the solver."""

    def __init__(self, expected: int, got: int) -> None:
        self.expected = expected
        self.got = got
        super().__init__(
            f"expected vectors of dimension {expected}, got dimension {got}"
        )


class SettingsMismatchError(InvalidInputError):
    """A memory was opened with a setting other than the stored one."""

    def __init__(self, name: str, stored: object, given: object) -> None:
        self.name = name
        self.stored = stored
        self.given = given
        super().__init__(
            f"this memory was created with {name}={stored!r}, but {name}={given!r} "
            f"was given; settings are fixed at creation, so leave {name} out or "
            "build a new memory"
        )


class DuplicateIdError(InvalidInputError):
    """One id occurs twice in one call."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"id {id!r} is given more than once in one call")


class NotFoundError(ForgetmemError, LookupError):
    """Something that was asked for is not there."""


class RecordNotFoundError(NotFoundError):
    """No record of the namespace has this id."""

    def __init__(self, id: str, others: int = 0) -> None:
        self.id = id
        more = f" (nor {others} more of the ids given)" if others else ""
        super().__init__(
            f"no record has the id {id!r}{more}; nothing was changed. "
            "Pass missing='ignore' to forget what is there"
        )


class RowNotFoundError(NotFoundError):
    """No sample of the solver is at this row."""

    def __init__(self, row: int, n_samples: int) -> None:
        self.row = row
        super().__init__(f"no sample at row {row}: there are {n_samples} samples")


class SolverError(ForgetmemError, ArithmeticError):
    """Numerical trouble inside `forgetmem.svm`; it never leaves that part."""


class KKTViolationError(SolverError):
    """An optimality residual exceeds its tolerance."""

    def __init__(self, residual: float, tol: float) -> None:
        self.residual = residual
        self.tol = tol
        super().__init__(f"KKT residual {residual:.3g} exceeds {tol:.3g}")


class IllConditionedMarginError(SolverError):
    """The bordered margin matrix is too ill-conditioned to be inverted."""

    def __init__(self, condition: float) -> None:
        self.condition = condition
        super().__init__(f"margin matrix has condition {condition:.3g}")


class EmbeddingError(ForgetmemError, RuntimeError):
    """What the embedder returned cannot be stored; nothing was changed."""


class EmbedderMismatchError(EmbeddingError):
    """A memory was opened with an embedder other than the stored one."""

    def __init__(self, stored: str, given: str) -> None:
        self.stored = stored
        self.given = given
        super().__init__(
            f"this memory was written with the embedder {stored}, but {given} was "
            "given; open it with the stored embedder, or use reembed() to rebuild it"
        )


class StoreError(ForgetmemError, RuntimeError):
    """The file of a memory cannot be read or written."""


class StoreBusyError(StoreError):
    """Another process or reader holds the store; nothing was changed."""

    def __init__(self, waited: float) -> None:
        self.waited = waited
        super().__init__(
            f"the store is held by another process or an open reader (waited "
            f"{waited:.1f} s); nothing was changed, try again"
        )


class SchemaVersionError(StoreError):
    """The file was written by an incompatible version of forgetmem."""

    def __init__(self, found: int, supported: int) -> None:
        self.found = found
        self.supported = supported
        super().__init__(
            f"the file has schema version {found}, this version of forgetmem reads "
            f"up to {supported}; upgrade forgetmem"
        )


class CorruptStoreError(StoreError):
    """The file is damaged or is no forgetmem file."""

    def __init__(
        self, message: str, *, table: str | None = None, digest: str | None = None
    ) -> None:
        self.table = table
        self.digest = digest
        super().__init__(message)


class PendingErasure(Protocol):
    """An erasure that could not be completed; `retry` tries it again."""

    def retry(self) -> object:
        """Try to remove the left bytes again; raise `ErasureError` if in vain."""
        ...


class ErasureError(StoreError):
    """Bytes that should be gone are still in a file; no proof was issued."""

    def __init__(
        self, where: Sequence[str], pending: PendingErasure | None = None
    ) -> None:
        self.where = tuple(where)
        self.pending = pending
        super().__init__(
            "the records are no longer part of the memory, but bytes are left in "
            f"its files ({'; '.join(self.where)}); no proof was issued, call "
            "error.pending.retry() once the cause is gone"
        )


class DivergedError(ForgetmemError, ArithmeticError):
    """The loss of a training run is no longer finite."""

    def __init__(self, step: int, kept: str) -> None:
        self.step = step
        super().__init__(
            f"the loss is not finite at step {step}; lower the learning rate. "
            f"The last checkpoint is kept: {kept}"
        )


class ProofError(ForgetmemError, ValueError):
    """A proof cannot be read or does not have the form of one."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class MissingDependencyError(ForgetmemError, ImportError):
    """An optional package is needed for this and is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(
            f"this needs the package {package!r}; "
            f"install it with: pip install 'forgetmem[{extra}]'"
        )
