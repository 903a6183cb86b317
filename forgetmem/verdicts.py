"""What a check found: certificates, verdicts and reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict

from forgetmem.svm import Certificate


class Document(BaseModel):
    """A value that is written to JSON and read back, and never changes."""

    # A bound can be infinite, and JSON has no number for that.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class GroupCertificate(Document):
    """How exact the weights of one group are, from its vectors and weights alone.

    Attributes
    ----------
    number : int
        Counts the groups of this document; groups are never named.
    n_vectors : int
    kkt_residual, duality_gap : float
        Dimensionless.
    bound, sharp_bound : float
        No score of any query deviates by more from the exact optimum's.
    coef_bound : float
        No coefficient deviates by more.
    tied : bool
        An inequality of the partition holds with equality; the bounds on scores hold.
    """

    number: int
    n_vectors: int
    kkt_residual: float
    duality_gap: float
    bound: float
    sharp_bound: float
    coef_bound: float
    tied: bool

    @classmethod
    def of(cls, number: int, n_vectors: int, certificate: Certificate) -> Self:
        """Wrap a solver's certificate.

        Parameters
        ----------
        number : int
        n_vectors : int
        certificate : Certificate

        Returns
        -------
        GroupCertificate
        """
        return cls(
            number=number,
            n_vectors=n_vectors,
            kkt_residual=certificate.kkt_residual,
            duality_gap=certificate.duality_gap,
            bound=certificate.bound,
            sharp_bound=certificate.sharp_bound,
            coef_bound=certificate.coef_bound,
            tied=certificate.tied,
        )


class PruneCertificate(Document):
    """Until when pruned records of one group stay without influence.

    Attributes
    ----------
    number : int
        Counts the groups of one call; groups are never named.
    pruned, retained : int
        Vectors that were removed from the group, and that are left.
    slack : float
        Smallest ``(K w)_j - 1`` of a removed vector j: its distance from coming back.
    used : float
        How much of it the additions since then have used up.
    angle : float
        Largest angle between a removed vector and its nearest survivor, in radians.
    valid : bool
        Whether every removed vector would still be reserve. Never true wrongly.
    reason : str
        Why it is no longer valid; empty while it is.
    """

    number: int
    pruned: int
    retained: int
    slack: float
    used: float
    angle: float
    valid: bool
    reason: str = ""


class Check(Document):
    """One thing that was looked at.

    Attributes
    ----------
    name : str
    outcome : {"passed", "failed", "not checked", "changed"}
        "changed" reports a later legitimate change, which is no failure.
    detail : str
    """

    name: str
    outcome: Literal["passed", "failed", "not checked", "changed"]
    detail: str = ""


class Verdict(Document):
    """What a verification found.

    Attributes
    ----------
    ok : bool
        No check failed.
    checks : tuple of Check
    reasons : tuple of str
        What failed, in words; empty if `ok`.
    """

    ok: bool
    checks: tuple[Check, ...]
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, checks: Sequence[Check]) -> Self:
        """Sum up checks.

        Parameters
        ----------
        checks : sequence of Check

        Returns
        -------
        Verdict
        """
        failed = [check for check in checks if check.outcome == "failed"]
        return cls(
            ok=not failed,
            checks=tuple(checks),
            reasons=tuple(f"{check.name}: {check.detail}" for check in failed),
        )


class AuditReport(Verdict):
    """A verdict on the whole memory.

    Attributes
    ----------
    n_records, n_vectors, n_groups : int
        Of the namespace; groups of two or more vectors.
    worst_kkt_residual, worst_bound : float
        Over all groups.
    digest : str
    digest_rebuilt : str
        Of an independent rebuild from the records, in another order.
    """

    n_records: int = 0
    n_vectors: int = 0
    n_groups: int = 0
    worst_kkt_residual: float = 0.0
    worst_bound: float = 0.0
    digest: str = ""
    digest_rebuilt: str = ""
