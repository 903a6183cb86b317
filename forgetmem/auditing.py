"""What anyone can check afterwards, from the file alone."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from forgetmem.arrays import IntArray
from forgetmem.collection import Collection, fetch
from forgetmem.errors import CorruptStoreError, MissingDependencyError
from forgetmem.groups import PruneHorizon, Role
from forgetmem.proof import Commitment, Elsewhere, ForgetProof, commit, commit_all
from forgetmem.state import NamespaceState, NewRecord
from forgetmem.store import ReadTransaction, needles_of
from forgetmem.svm import fit_many
from forgetmem.verdicts import (
    AuditReport,
    Check,
    GroupCertificate,
    PruneCertificate,
    Verdict,
)

#: Above the residual that correctly rounded weights can have: 4 ulp a coefficient.
KKT_TOLERANCE = 1e-12

#: So many vectors are committed to at a time.
_AT_ONCE = 256


def group_certificates(
    state: NamespaceState, groups: list[IntArray]
) -> tuple[GroupCertificate, ...]:
    """Certify the weights of some groups from their vectors and weights alone.

    Parameters
    ----------
    state : NamespaceState
    groups : list of ndarray of int64

    Returns
    -------
    tuple of GroupCertificate
    """
    return tuple(
        GroupCertificate.of(number, len(rows), certificate)
        for number, (rows, certificate) in enumerate(
            zip(groups, state.weights.certificates(groups), strict=True)
        )
    )


def rebuilt(
    tx: ReadTransaction, collection: Collection, state: NamespaceState
) -> bytes:
    """Build the namespace again from its records, in another order.

    Parameters
    ----------
    tx : ReadTransaction
    collection : Collection
    state : NamespaceState
        Gives the vectors; nothing else of it is used.

    Returns
    -------
    bytes of length 32
        The digest of what was built.
    """
    fresh = NamespaceState(collection.settings, state.table.dimension)
    texts = dict(tx.texts(collection.namespace))
    records = [
        NewRecord(
            id,
            texts[id],
            entry.metadata,
            entry.source_id,
            state.table.X[entry.row],
        )
        for id, entry in sorted(state.entries.items(), reverse=True)
    ]
    if records:
        fresh.change([], records)
    return collection.digest(fresh)


def verify(
    collection: Collection,
    proof: ForgetProof,
    public_key: bytes | None,
    elsewhere: Mapping[str, Iterable[str]],
) -> Verdict:
    """Check a proof against the file; see `ForgettableMemory.verify`.

    Parameters
    ----------
    collection : Collection
    proof : ForgetProof
    public_key : bytes or None
    elsewhere : mapping of str to iterable of str

    Returns
    -------
    Verdict
    """
    checks = [_whole(proof), _sealed(proof), *_signed(proof, public_key)]
    checks += _rebuilt_equal(proof)
    checks += _opening(collection, "failed")
    checks += [*_storage(collection), _digests(collection)]
    if checks[-1].outcome == "failed":
        return Verdict.of(checks)  # what the rows say cannot be relied on
    with collection.reading() as (tx, state):
        checks.append(_optimal(state)[0])
        checks.append(_same_state(collection, state, proof))
        checks.append(_absent(tx, proof))
    checks += [_absent_elsewhere(proof, one, elsewhere) for one in proof.elsewhere]
    return Verdict.of(checks)


def audit(collection: Collection, *, deep: bool) -> AuditReport:
    """Check the whole memory; see `ForgettableMemory.audit`.

    Parameters
    ----------
    collection : Collection
    deep : bool

    Returns
    -------
    AuditReport
    """
    checks = [*_opening(collection, "changed"), *_storage(collection)]
    checks.append(_digests(collection))
    if checks[-1].outcome == "failed":
        return AuditReport.of(checks)  # what the rows say cannot be relied on
    if deep:
        checks.append(_residue(collection))
    with collection.reading() as (tx, state):
        optimal, certificates = _optimal(state)
        digest, other = collection.digest(state), rebuilt(tx, collection, state)
        same = digest == other
        checks += [
            optimal,
            Check(
                name="rebuild",
                outcome="passed" if same else "failed",
                detail="the digest equals that of an independent rebuild"
                if same
                else "an independent rebuild from the records has another digest",
            ),
        ]
        verdict = Verdict.of(checks)
        return AuditReport(
            ok=verdict.ok,
            checks=verdict.checks,
            reasons=verdict.reasons,
            n_records=len(state),
            n_vectors=len(state.table),
            n_groups=len(certificates),
            worst_kkt_residual=max((c.kkt_residual for c in certificates), default=0.0),
            worst_bound=max((c.sharp_bound for c in certificates), default=0.0),
            digest=digest.hex(),
            digest_rebuilt=other.hex(),
        )


def stats(collection: Collection) -> dict[str, Any]:
    """Count what there is; see `ForgettableMemory.stats`.

    Parameters
    ----------
    collection : Collection

    Returns
    -------
    dict of str to JSON value
    """
    with collection.reading() as (tx, state):
        groups = state.grouping.groups()
        identity = collection.identity(tx)
        reserve = state.table.alive & (state.weights.role == Role.RESERVE)
        horizons = tx.certificates(collection.namespace).values()
        path = collection.store.path
        return {
            "namespace": collection.namespace,
            "records": len(state),
            "vectors": len(state.table),
            "support": len(state.table) - int(reserve.sum()),
            "reserve": int(reserve.sum()),
            "groups": len(groups),
            "largest_group": max((len(rows) for rows in groups), default=1),
            "embedder": identity.name if identity else None,
            "dimension": identity.dimension if identity else None,
            "settings": collection.settings.model_dump(),
            "path": path,
            "file_bytes": Path(path).stat().st_size if path else 0,
            "prune_certificates": [
                prune_certificate(number, PruneHorizon.from_json(payload)).model_dump()
                for number, payload in enumerate(horizons)
            ],
        }


def prune_certificate(number: int, horizon: PruneHorizon) -> PruneCertificate:
    """Tell a user what a horizon says.

    Parameters
    ----------
    number : int
    horizon : PruneHorizon

    Returns
    -------
    PruneCertificate
    """
    return PruneCertificate(
        number=number,
        pruned=horizon.pruned,
        retained=horizon.retained,
        slack=horizon.slack,
        used=horizon.used,
        angle=horizon.angle,
        valid=not horizon.reason,
        reason=horizon.reason,
    )


def _whole(proof: ForgetProof) -> Check:
    whole = proof.is_whole()
    return Check(
        name="checksum",
        outcome="passed" if whole else "failed",
        detail="" if whole else "the proof was altered after it was issued",
    )


def _sealed(proof: ForgetProof) -> Check:
    if proof.key is None:
        return Check(
            name="seal",
            outcome="not checked",
            detail="needs the key: whether anyone altered proof and checksum together",
        )
    sealed = proof.is_sealed_by(proof.key)
    return Check(
        name="seal",
        outcome="passed" if sealed else "failed",
        detail="" if sealed else "the proof was not issued with this key",
    )


def _signed(proof: ForgetProof, public_key: bytes | None) -> list[Check]:
    outcome: Literal["passed", "failed", "not checked"]
    if public_key is not None:
        signed = proof.is_signed_by(public_key)
        detail = "" if signed else "the holder of this key did not sign this proof"
        outcome = "passed" if signed else "failed"
    elif proof.signature is None:
        return []
    else:
        named = bytes.fromhex(proof.signature.public_key)
        outcome, detail = "not checked", "needs the public key: who signed"
        with contextlib.suppress(MissingDependencyError):
            if not proof.is_signed_by(named):
                outcome, detail = "failed", "the signature does not fit the proof"
    return [Check(name="signature", outcome=outcome, detail=detail)]


def _rebuilt_equal(proof: ForgetProof) -> list[Check]:
    if proof.digest_rebuilt is None:
        return []
    same = proof.digest_rebuilt == proof.digest_after
    return [
        Check(
            name="rebuild",
            outcome="passed" if same else "failed",
            detail="" if same else "the rebuild at the time had another digest",
        )
    ]


def _opening(
    collection: Collection, outcome: Literal["failed", "changed"]
) -> list[Check]:
    """Say what was found at opening: a killed process leaves it, or who planted it."""
    opening = collection.store.opening
    if opening is None or opening.ok:
        return []
    done = "found" if collection.store.read_only else "found, and removed,"
    detail = (
        f"{done} at opening, left by an interrupted write or put there by others: "
        f"{'; '.join(opening.findings)}"
    )
    return [Check(name="opening", outcome=outcome, detail=detail)]


def _storage(collection: Collection) -> list[Check]:
    report = collection.store.check_structure()
    if report.ok:
        detail = (
            f"{report.bytes_checked} bytes in {len(report.files)} files are "
            "accounted for"
        )
        return [Check(name="storage", outcome="passed", detail=detail)]
    found = "; ".join(report.findings)
    return [Check(name="storage", outcome="failed", detail=found)]


def _residue(collection: Collection) -> Check:
    """Look for what live records hold, in many encodings, outside live rows."""
    needles: dict[str, bytes] = {}
    with collection.reading() as (tx, _):
        for namespace in tx.namespaces():
            ids = [id for id, *_ in tx.records(namespace)]
            records = fetch(tx, namespace, ids).values()
            vectors = [vector for _, vector in tx.vectors(namespace)]
            for label, needle in needles_of(records, vectors, deep=True).items():
                needles[f"{len(needles)} {label}"] = needle
    found = collection.store.find(needles)
    return Check(
        name="residue",
        outcome="failed" if found else "passed",
        detail=f"copies of live records stand outside live rows: {'; '.join(found)}"
        if found
        else f"none of {len(needles)} byte strings stands outside live rows",
    )


def _digests(collection: Collection) -> Check:
    try:
        collection.store.check_rows()
    except CorruptStoreError as error:
        return Check(name="digest", outcome="failed", detail=str(error))
    return Check(
        name="digest", outcome="passed", detail="every record matches its digests"
    )


def _optimal(state: NamespaceState) -> tuple[Check, tuple[GroupCertificate, ...]]:
    groups = state.grouping.groups()
    certificates = group_certificates(state, groups)
    worst = max((c.kkt_residual for c in certificates), default=0.0)
    single = state.table.alive.copy()
    for rows in groups:
        single[rows] = False
    alone = state.weights.weight[single]
    largest = 1.0 + state.settings.ridge  # entry of the matrix: its rounding's unit
    right = worst <= KKT_TOLERANCE * largest
    right = right and bool((alone == _weight_alone(state)).all())
    return (
        Check(
            name="optimality",
            outcome="passed" if right else "failed",
            detail=f"the largest KKT residual of {len(groups)} groups is {worst:.2g}",
        ),
        certificates,
    )


def _weight_alone(state: NamespaceState) -> float:
    """Return the weight of a vector that nothing resembles."""
    settings = state.settings
    solution = fit_many(
        [np.zeros((1, 1))], gamma=settings.gamma, C=settings.C, ridge=settings.ridge
    )[0]
    return float(solution.weights[0])


def _same_state(
    collection: Collection, state: NamespaceState, proof: ForgetProof
) -> Check:
    key, name = proof.key, collection.namespace.encode()
    if key is not None and commit(key, "namespace", name) != proof.namespace:
        return Check(
            name="state",
            outcome="failed",
            detail="the proof speaks of another namespace than this memory is bound to",
        )
    if proof.settings != collection.settings.model_dump():
        return Check(
            name="state",
            outcome="failed",
            detail="the proof speaks of a memory with other settings",
        )
    if collection.digest(state).hex() == proof.digest_after:
        return Check(
            name="state", outcome="passed", detail="is the state that was proved"
        )
    return Check(
        name="state",
        outcome="changed",
        detail="not the state that was proved: records were added or forgotten since, "
        "or this is another memory or namespace",
    )


def _absent(tx: ReadTransaction, proof: ForgetProof) -> Check:
    key = proof.key
    if key is None:
        return Check(
            name="content",
            outcome="not checked",
            detail="needs the key: whether forgotten content was added again",
        )
    allowed: dict[tuple[str, str], int] = {
        (one.kind, one.value): one.survivors for one in proof.commitments
    }
    found = _count_commitments(tx, key, proof.commitments)
    again: Counter[str] = Counter()
    for (kind, value), count in found.items():
        if count > allowed[kind, value]:
            again[kind] += 1
    if not again:
        return Check(name="content", outcome="passed", detail="nothing is there again")
    named = ", ".join(f"{count} {kind}(s)" for kind, count in sorted(again.items()))
    return Check(
        name="content",
        outcome="failed",
        detail=f"forgotten content is there again: {named}",
    )


def _absent_elsewhere(
    proof: ForgetProof, one: Elsewhere, elsewhere: Mapping[str, Iterable[str]]
) -> Check:
    key = proof.key
    if key is None or one.system not in elsewhere:
        return Check(
            name=one.system,
            outcome="not checked",
            detail="needs the key, and the names that this system has now",
        )
    now = {commit(key, one.system, name.encode()) for name in elsewhere[one.system]}
    again = len(now.intersection(one.removed))
    return Check(
        name=one.system,
        outcome="failed" if again else "passed",
        detail=f"{again} of {len(one.removed)} removed names are there again",
    )


def _count_commitments(
    tx: ReadTransaction, key: bytes, commitments: tuple[Commitment, ...]
) -> Counter[tuple[str, str]]:
    """Count the records that have what is committed to, by kind and value."""
    wanted: dict[str, set[str]] = {"id": set(), "text": set(), "vector": set()}
    for one in commitments:
        wanted.setdefault(one.kind, set()).add(one.value)
    found: Counter[tuple[str, str]] = Counter()

    def count(kind: str, contents: Iterable[bytes]) -> None:
        values = commit_all(key, kind, contents)
        if not wanted[kind].isdisjoint(values):
            found.update((kind, value) for value in values if value in wanted[kind])

    for namespace in tx.namespaces():
        vectors: dict[bytes, tuple[str, str]] = {}
        stream = tx.vectors(namespace)
        while some := list(itertools.islice(stream, _AT_ONCE)):
            values = commit_all(key, "vector", (vector for _, vector in some))
            for (atom, _), value in zip(some, values, strict=True):
                if value in wanted["vector"]:
                    vectors[atom] = "vector", value
        for rows, _ in tx.many_records(namespace, whole=True):
            count("id", (row[0].encode() for row in rows))
            count("text", (row[6].encode() for row in rows))
            found.update(vectors[row[3]] for row in rows if row[3] in vectors)
    return found
