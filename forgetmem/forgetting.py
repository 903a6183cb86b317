"""To forget is to unlearn, remove and erase, then to prove."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import forgetmem
from forgetmem.arrays import as_ids, as_list, check_text
from forgetmem.auditing import group_certificates, rebuilt
from forgetmem.collection import Collection, Identity, fetch
from forgetmem.encoding import Encoder
from forgetmem.errors import (
    CorruptStoreError,
    ErasureError,
    InvalidInputError,
    RecordNotFoundError,
    StoreError,
)
from forgetmem.filters import Filter, Where, parse_filter
from forgetmem.groups import PruneHorizon
from forgetmem.matching import Matching
from forgetmem.proof import Commitment, ForgetProof, StorageEvidence, commit, now
from forgetmem.state import NamespaceState, NewRecord
from forgetmem.store import ReadTransaction, StoredRecord, needles_of, text_digest
from forgetmem.verdicts import GroupCertificate


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records are to be forgotten.

    Attributes
    ----------
    ids : list of str or None
    source_id : str or None
    where : Filter or None
        Exactly one of these three is given.
    ignore_missing : bool
    """

    ids: list[str] | None
    source_id: str | None
    where: Filter | None
    ignore_missing: bool

    @classmethod
    def of(
        cls,
        ids: str | Iterable[str] | None,
        source_id: str | None,
        where: Where | None,
        missing: str,
    ) -> Self:
        """Check the arguments of `ForgettableMemory.forget`.

        Parameters
        ----------
        ids, source_id, where, missing
            As given there.

        Returns
        -------
        Selection

        Raises
        ------
        InvalidInputError
            If not exactly one is given, `where` is empty, or one is not valid.
        """
        if missing not in ("raise", "ignore"):
            raise InvalidInputError(
                f"missing must be 'raise' or 'ignore', got {missing!r}"
            )
        given = [value for value in (ids, source_id, where) if value is not None]
        if len(given) != 1:
            raise InvalidInputError(
                f"give exactly one of ids, source_id and where, got {len(given)}"
            )
        if where is not None and not where:
            raise InvalidInputError(
                "an empty where would forget everything; name the records instead"
            )
        if source_id is not None:
            check_text(source_id, "a source_id")
        names = None if ids is None else _distinct(ids)
        condition = None if where is None else parse_filter(where)
        return cls(names, source_id, condition, missing == "ignore")

    def find(self, state: NamespaceState) -> tuple[list[str], list[str]]:
        """Find the records.

        Parameters
        ----------
        state : NamespaceState

        Returns
        -------
        found, missing : list of str

        Raises
        ------
        RecordNotFoundError
            If an id is unknown and that is not to be ignored.
        """
        if self.source_id is not None:
            entries = state.entries.items()
            found = [id for id, e in entries if e.source_id == self.source_id]
            return sorted(found), []
        if self.where is not None:
            return Matching(state, self.where).all_ids(), []
        names = self.ids or []
        missing = [id for id in names if id not in state.entries]
        if missing and not self.ignore_missing:
            raise RecordNotFoundError(missing[0], len(missing) - 1)
        return [id for id in names if id in state.entries], missing


def _distinct(ids: str | Iterable[str]) -> list[str]:
    given = [check_text(id, "an id") for id in as_list(ids, "ids")]
    return as_ids(dict.fromkeys(given))


@dataclass(slots=True)
class _Forgotten:
    """What is known of forgotten records until their proof is issued."""

    records: list[StoredRecord]
    vectors: dict[bytes, bytes]
    missing: list[str]
    digest_before: bytes
    digest_after: bytes
    n_after: int
    pruned: int
    survivors: Counter[object] = field(default_factory=Counter)
    groups: tuple[GroupCertificate, ...] = ()
    digest_rebuilt: bytes | None = None


class PendingForget:
    """A forget whose bytes could not all be removed yet.

    Parameters
    ----------
    collection : Collection
    gone : _Forgotten
    """

    def __init__(self, collection: Collection, gone: _Forgotten) -> None:
        self._collection = collection
        self._gone = gone

    def retry(self) -> ForgetProof:
        """Try again to remove the bytes.

        Returns
        -------
        ForgetProof
            The proof that could not be issued before.

        Raises
        ------
        ErasureError
            If bytes are still left.
        """
        return _prove(self._collection, self._gone)


def forget(
    collection: Collection, selection: Selection, *, rebuild: bool
) -> ForgetProof:
    """Erase records and prove it; see `ForgettableMemory.forget`.

    Parameters
    ----------
    collection : Collection
    selection : Selection
    rebuild : bool
        Also compare with an independent rebuild.

    Returns
    -------
    ForgetProof
    """
    with collection.lock:
        with collection.changing() as (tx, state):
            ids, missing = selection.find(state)
            gone = _gather(collection, tx, state, ids, missing)
            if ids:
                gone.survivors = _count_survivors(collection, tx, state, gone.records)
                touched = state.companions(ids)
                state.change(gone.records, [])
                gone.groups = group_certificates(state, state.groups_of(touched))
                gone.digest_after = collection.digest(state)
                gone.n_after = len(state)
            if rebuild:
                gone.digest_rebuilt = rebuilt(tx, collection, state)
        return _prove(collection, gone)


def store_records(
    collection: Collection, identity: Identity, records: Sequence[NewRecord]
) -> None:
    """Add records, and erase the bytes of those that they overwrite.

    A record that is there already, equal in every field, is left as it is.

    Parameters
    ----------
    collection : Collection
    identity : Identity
        The embedder of their vectors.
    records : sequence of NewRecord

    Raises
    ------
    ErasureError
        If the bytes of an overwritten record are left in a file.
    """
    with collection.lock:
        with collection.changing(identity) as (tx, state):
            new = [record for record in records if not state.holds(record)]
            ids = [record.id for record in new if record.id in state.entries]
            gone = _gather(collection, tx, state, ids, [])
            if new:
                state.change(gone.records, new)
        if ids:
            collection.store.clean(needles_of(gone.records, gone.vectors.values()))


def reembed(collection: Collection, encoder: Encoder, *, progress: bool) -> None:
    """Replace every vector of the file; see `ForgettableMemory.reembed`.

    Parameters
    ----------
    collection : Collection
    encoder : Encoder
    progress : bool
    """
    with collection.lock:
        roots, records = _all_records(collection)
        texts = [record.text for _, record in records]
        names = [record.id for _, record in records]
        if not texts:
            return
        identity, vectors = encoder.encode(texts, names, None, progress)
        again: dict[str, list[NewRecord]] = {namespace: [] for namespace in roots}
        for (namespace, old), vector in zip(records, vectors, strict=True):
            new = NewRecord(old.id, old.text, old.metadata, old.source_id, vector)
            again[namespace].append(new)
        collection.replace(identity, roots, again)
        collection.store.clean({})


def _all_records(
    collection: Collection,
) -> tuple[dict[str, bytes | None], list[tuple[str, StoredRecord]]]:
    with collection.reading() as (tx, _):
        roots = {namespace: tx.root(namespace) for namespace in tx.namespaces()}
        return roots, [
            (namespace, record)
            for namespace in roots
            for record in fetch(
                tx, namespace, [id for id, *_ in tx.records(namespace)]
            ).values()
        ]


def _gather(
    collection: Collection,
    tx: ReadTransaction,
    state: NamespaceState,
    ids: list[str],
    missing: list[str],
) -> _Forgotten:
    records = list(fetch(tx, collection.namespace, ids).values())
    rows = {state.entries[id].row for id in ids}
    vectors = {
        state.keys.key(row): state.table.X[row].tobytes() for row in sorted(rows)
    }
    digest = collection.digest(state)
    return _Forgotten(
        records,
        vectors,
        missing,
        digest_before=digest,
        digest_after=digest,
        n_after=len(state),
        pruned=sum(
            PruneHorizon.from_json(payload).pruned
            for payload in tx.certificates(collection.namespace).values()
        ),
    )


def _count_survivors(
    collection: Collection,
    tx: ReadTransaction,
    state: NamespaceState,
    records: list[StoredRecord],
) -> Counter[object]:
    """Count who else, in any namespace, has an id, a text or a vector of records."""
    shared: Counter[object] = Counter(state.survivors(records))
    others = [name for name in tx.namespaces() if name != collection.namespace]
    wanted = [(r.id, r.atom, text_digest(r.text)) for r in records]
    for features in tx.sharing(others, *map(set, zip(*wanted, strict=True))):
        shared.update(features)
    return shared


def _prove(collection: Collection, gone: _Forgotten) -> ForgetProof:
    needles = needles_of(gone.records, gone.vectors.values())
    try:
        report = collection.store.clean(needles)
    except CorruptStoreError:
        raise
    except StoreError as error:
        # The records are out of the memory: whatever is in the way can be retried.
        where = error.where if isinstance(error, ErasureError) else (str(error),)
        raise ErasureError(where, PendingForget(collection, gone)) from error
    key = secrets.token_bytes(32)
    settings = collection.settings.model_dump()
    proof = ForgetProof(
        library=f"forgetmem {forgetmem.__version__}",
        created=now(),
        forgotten=len(gone.records),
        not_found=len(gone.missing),
        n_records_after=gone.n_after,
        commitments=_commitments(key, gone),
        namespace=commit(key, "namespace", collection.namespace.encode()),
        digest_before=commit(key, "digest", gone.digest_before),
        digest_after=gone.digest_after.hex(),
        digest_rebuilt=gone.digest_rebuilt.hex() if gone.digest_rebuilt else None,
        settings=settings,
        groups=gone.groups,
        storage=StorageEvidence(
            files=len(report.files),
            bytes_checked=report.bytes_checked,
            needles=len(needles),
        ),
        reference=_reference(gone),
        erased_ids=tuple(record.id for record in gone.records),
        not_found_ids=tuple(gone.missing),
    )
    return proof.sealed(key)


def _commitments(key: bytes, gone: _Forgotten) -> tuple[Commitment, ...]:
    shared = gone.survivors
    found = [
        Commitment(
            kind="id",
            value=commit(key, "id", record.id.encode()),
            survivors=shared[record.id],
        )
        for record in gone.records
    ]
    texts = dict.fromkeys(record.text for record in gone.records)
    found += [
        Commitment(
            kind="text",
            value=commit(key, "text", text.encode()),
            survivors=shared[text_digest(text)],
        )
        for text in texts
    ]
    found += [
        Commitment(
            kind="vector", value=commit(key, "vector", vector), survivors=shared[atom]
        )
        for atom, vector in gone.vectors.items()
    ]
    found += [
        Commitment(kind="not_found", value=commit(key, "id", id.encode()))
        for id in gone.missing
    ]
    return tuple(sorted(found, key=lambda one: (one.kind, one.value)))


def _reference(gone: _Forgotten) -> str:
    if gone.pruned:
        return (
            "the memory as if the forgotten records had never been added, relative to "
            f"what was retained when {gone.pruned} reserve vectors were pruned"
        )
    return "the memory as if the forgotten records had never been added"
