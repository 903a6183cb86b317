"""`ForgettableMemory`: add, search, read, forget, prune; where the parts meet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from forgetmem import auditing, forgetting, pruning
from forgetmem.answers import (
    Values,
    by_similarity,
    by_support,
    hits,
    readout,
    role_name,
)
from forgetmem.arrays import Float32Array, as_list, as_matrix, as_vector, check_text
from forgetmem.batch import Batch
from forgetmem.collection import Collection, fetch
from forgetmem.embedding import AnyEmbedder, as_embedder
from forgetmem.encoding import Encoder, normalised, normalised_query
from forgetmem.errors import DimensionMismatchError, InvalidInputError
from forgetmem.filters import Where, parse_filter
from forgetmem.matching import Matching
from forgetmem.metadata import load_metadata
from forgetmem.proof import ForgetProof
from forgetmem.records import Hit, Readout, Record
from forgetmem.settings import Settings
from forgetmem.state import NamespaceState
from forgetmem.store import SQLiteStore, StoredRecord
from forgetmem.verdicts import AuditReport, PruneCertificate, Verdict

#: SQLite counts the milliseconds of a timeout in 32 bits.
_LONGEST_TIMEOUT = 2e6


class Unset:
    """The type of `UNSET`: a setting that was not given."""

    def __repr__(self) -> str:
        return "UNSET"


#: A setting that is not given: the stored one, or the default of `Settings`.
UNSET = Unset()


class ForgettableMemory:
    """A retrieval memory whose state is a function of its current records.

    Parameters
    ----------
    path : str or Path, optional
        One SQLite file, created if there is none. Without it the memory lives in RAM.
    embedder : optional
        A sentence-transformers name, path or model, an `Embedder`, or a callable
        from texts to vectors. By default the packaged all-MiniLM-L6-v2. Its name and
        dimension are stored with the records.
    namespace : str
        The tenant: this object sees, weighs and counts only its records.
    gamma, C, link, diminish, ridge, alike, max_group : optional
        See `Settings` for their meaning and defaults. Fixed when the file is made; a
        value other than the stored one is an error.
    timeout : float
        Seconds to wait for other processes.
    read_only : bool
        Never change the file; implied where the file or its folder cannot be written.

    Raises
    ------
    InvalidInputError
        If a setting or the namespace is not valid; before any file exists.
    SettingsMismatchError, EmbedderMismatchError
        If the file was made with another setting or filled by another embedder.
    StoreError
        If the file cannot be opened; see `forgetmem.errors`.

    Examples
    --------
    >>> def lengths(texts):
    ...     return [[len(text), 1.0] for text in texts]
    >>> memory = ForgettableMemory(embedder=lengths)
    >>> memory.add(["a note", "another, longer note"], ids=["a", "b"])
    ['a', 'b']
    >>> proof = memory.forget("b")
    >>> memory.verify(proof).ok
    True
    >>> [hit.id for hit in memory.search("a note")]
    ['a']
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        embedder: AnyEmbedder = None,
        namespace: str = "default",
        gamma: float | Unset = UNSET,
        C: float | Unset = UNSET,
        link: float | Unset = UNSET,
        diminish: float | Unset = UNSET,
        ridge: float | Unset = UNSET,
        alike: float | Unset = UNSET,
        max_group: int | Unset | None = UNSET,
        timeout: float = 10.0,
        read_only: bool = False,
    ) -> None:
        if not check_text(namespace, "the namespace"):
            raise InvalidInputError("the namespace must not be the empty string")
        options = {
            "gamma": gamma,
            "C": C,
            "link": link,
            "diminish": diminish,
            "ridge": ridge,
            "alike": alike,
            "max_group": max_group,
        }
        given = {n: v for n, v in options.items() if not isinstance(v, Unset)}
        settings = Settings.from_given(given)
        path, timeout = _checked_path(path), _checked_timeout(timeout)
        self._encoder = Encoder(None if embedder is None else as_embedder(embedder))
        self._store = SQLiteStore(path, timeout=timeout, read_only=read_only)
        try:
            settings = self._agree(settings, given)
            self._collection = Collection(self._store, namespace, settings)
            with self._store.reading() as tx:
                self._encoder.check(self._collection.identity(tx))
        except BaseException:
            self._store.close()
            raise

    def _agree(self, settings: Settings, given: Mapping[str, object]) -> Settings:
        with self._store.reading() as tx:
            stored = tx.settings()
        if stored is None and not self._store.read_only:
            with self._store.writing() as tx:
                stored = tx.settings()
                if stored is None:
                    tx.put_settings(settings.model_dump())
        if stored is None:
            return settings
        settings = Settings.from_stored(stored)
        settings.check_given(given)
        return settings

    @property
    def path(self) -> Path | None:
        """The file, or None for a memory in RAM."""
        return None if self._store.path is None else Path(self._store.path)

    @property
    def namespace(self) -> str:
        """The namespace that this object is bound to."""
        return self._collection.namespace

    @property
    def settings(self) -> Settings:
        """What the memory computes with."""
        return self._collection.settings

    def __repr__(self) -> str:
        where = "RAM" if self.path is None else self.path.name
        return f"<ForgettableMemory {where} namespace={self.namespace!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the file. Nothing is left to be saved; closing twice is harmless."""
        with self._collection.lock:
            self._collection.forget_state()
            self._store.close()

    def __len__(self) -> int:
        with self._collection.reading() as (_, state):
            return len(state)

    def __contains__(self, id: object) -> bool:
        with self._collection.reading() as (_, state):
            return isinstance(id, str) and id in state.entries

    def ids(
        self, *, source_id: str | None = None, where: Where | None = None
    ) -> list[str]:
        """Return the ids of the namespace, all or those that are meant.

        Parameters
        ----------
        source_id : str, optional
            Only records that came from this document.
        where : dict or callable, optional
            Only records whose metadata matches; see `search`.

        Returns
        -------
        list of str
            Ascending.
        """
        condition = parse_filter(where) if where is not None else None
        with self._collection.reading() as (_, state):
            found = Matching(state, condition).all_ids()
            if source_id is None:
                return found
            return [id for id in found if state.entries[id].source_id == source_id]

    def namespaces(self) -> list[str]:
        """Return the namespaces of the file that hold records.

        Returns
        -------
        list of str
            Ascending.
        """
        with self._collection.reading() as (tx, _):
            names: list[str] = tx.namespaces()
            return names

    def add(
        self,
        texts: str | Iterable[str],
        ids: Sequence[str | None] | None = None,
        metadatas: Sequence[Mapping[str, Any] | None] | None = None,
        source_ids: str | Sequence[str | None] | None = None,
        embeddings: ArrayLike | None = None,
        *,
        progress: bool = False,
    ) -> list[str]:
        """Add records, all or none; a record whose id is there is overwritten.

        Parameters
        ----------
        texts : str or iterable of str
            One text or many.
        ids : sequence of str or None, optional
            One for each text; a None gets a random UUID.
        metadatas : sequence of dict or None, optional
            JSON values that come back exactly; copied.
        source_ids : str or sequence of str or None, optional
            The document that each record came from; one for all if it is a string.
        embeddings : array_like of shape (n, dimension), optional
            Vectors to be used instead of the embedder's; any norm but 0.
        progress : bool
            Show a progress bar while texts are embedded.

        Returns
        -------
        list of str
            The ids, in the order of the texts.

        Raises
        ------
        InvalidInputError
            If lengths differ, an id occurs twice, or a value cannot be stored; nothing
            was changed.
        EmbeddingError
            If the embedder returns something that cannot be stored; nothing was
            changed.
        ErasureError
            If an overwritten record's bytes could not be removed from the file.
        """
        records = Batch.of(texts, ids, metadatas, source_ids)
        if not records.texts:
            return []
        with self._collection.reading() as (tx, _):
            stored = self._collection.identity(tx)
        if embeddings is None:
            identity, vectors = self._encoder.encode(
                records.texts, records.ids, stored, progress
            )
        else:
            matrix = as_matrix(embeddings, stored.dimension if stored else None)
            if len(matrix) != len(records.texts):
                raise InvalidInputError(
                    f"expected one embedding a text, got {len(matrix)} for "
                    f"{len(records.texts)} texts"
                )
            vectors = normalised(matrix, records.ids)
            identity = self._encoder.identity_of_given(stored, matrix.shape[1])
        forgetting.store_records(
            self._collection, identity, records.with_vectors(vectors)
        )
        return records.ids

    def search(
        self,
        query: str | ArrayLike,
        k: int = 5,
        *,
        where: Where | None = None,
        among: Iterable[str] | None = None,
        ranking: Literal["support", "similarity"] = "support",
    ) -> list[Hit]:
        """Find the records that answer a query.

        Parameters
        ----------
        query : str or array_like of shape (dimension,)
            A text, or its vector.
        k : int
            How many hits at most, at least 0.
        where : dict or callable, optional
            A condition on the metadata, see `forgetmem.filters`, or a function of the
            metadata that tells whether a record is meant; it must not use the memory.
            With it, matching records are ranked by the same rule, support and reserve
            alike, as if no others were there.
        among : iterable of str, optional
            Ids of the only records that may be found, in the same sense; unknown ones
            have no effect.
        ranking : {"support", "similarity"}
            ``"support"`` chooses greedily among support records, those like a chosen
            one counting less: copies do not crowd the answer.
            Reserve records follow if these do not fill `k`. One hit stands for all
            records with one vector. ``"similarity"`` is the exact cosine top `k` over
            all records.

        Returns
        -------
        list of Hit
            Best first; ties go by id.

        Raises
        ------
        InvalidInputError
            If an argument is not valid.
        """
        if ranking not in ("support", "similarity"):
            raise InvalidInputError(
                f"ranking must be 'support' or 'similarity', got {ranking!r}"
            )
        count = _count(k, "k")
        condition = parse_filter(where) if where is not None else None
        chosen = None if among is None else _distinct(among)
        q, rank = self._query(query), by_support
        if ranking == "similarity":
            rank = by_similarity
        with self._collection.reading() as (tx, state):
            if not count or not len(state):
                return []
            _check_dimension(state, q)
            matching = Matching(state, condition, chosen)
            answers = rank(state, matching, q, count)
            ids = [answer.id for answer in answers]
            records = fetch(tx, self.namespace, ids)
            return hits(state, matching, q, answers, records)

    def read(
        self, query: str | ArrayLike, m: int = 10, *, values: Values | None = None
    ) -> Readout:
        """Read the memory as a whole: what its support says to a query.

        Parameters
        ----------
        query : str or array_like of shape (dimension,)
            A text, or its vector.
        m : int
            How many of the largest masses are named, at least 0.
        values : mapping or callable, optional
            What to average instead of the embeddings: a vector for each support
            record's id, or a function from a list of ids to a matrix.

        Returns
        -------
        Readout

        Raises
        ------
        InvalidInputError
            If an argument is not valid.
        """
        count, q = _count(m, "m"), self._query(query)
        with self._collection.reading() as (_, state):
            if len(state):
                _check_dimension(state, q)
            return readout(state, q, count, values)

    def get(self, ids: str | Iterable[str]) -> list[Record]:
        """Return records by id.

        Parameters
        ----------
        ids : str or iterable of str

        Returns
        -------
        list of Record
            Those that are there, in the order given.
        """
        given = [check_text(id, "an id") for id in as_list(ids, "ids")]
        wanted = list(dict.fromkeys(given))
        with self._collection.reading() as (tx, state):
            there = [id for id in wanted if id in state.entries]
            found = fetch(tx, self.namespace, there)
            return [self._record(state, record) for record in found.values()]

    def _record(self, state: NamespaceState, stored: StoredRecord) -> Record:
        row = state.entries[stored.id].row
        return Record(
            id=stored.id,
            text=stored.text,
            metadata=load_metadata(stored.metadata),
            source_id=stored.source_id,
            namespace=self.namespace,
            embedding=state.table.X[row].copy(),
            weight=float(state.weights.weight[row]),
            role=role_name(state, row),
        )

    def forget(
        self,
        ids: str | Iterable[str] | None = None,
        *,
        source_id: str | None = None,
        where: Where | None = None,
        missing: Literal["raise", "ignore"] = "raise",
        audit: Literal["rebuild"] | None = None,
    ) -> ForgetProof:
        """Erase records as if they had never been added, and prove it.

        Exactly one of `ids`, `source_id` and `where` says which.

        Parameters
        ----------
        ids : str or iterable of str, optional
        source_id : str, optional
            Every record that came from this document.
        where : dict or callable, optional
            Every record whose metadata matches; a dict must not be empty.
        missing : {"raise", "ignore"}
            Whether an unknown id is an error, or is listed in the proof.
        audit : "rebuild", optional
            Also rebuild the memory from the survivors and compare the digests.

        Returns
        -------
        ForgetProof
            With its key; save both.

        Raises
        ------
        RecordNotFoundError
            If an id is unknown; nothing was forgotten.
        InvalidInputError
            If the selection is not valid; nothing was forgotten.
        StoreBusyError
            If a reader or writer held the file for too long; nothing was forgotten.
        ErasureError
            If the records are out of the memory, but bytes are left in a file. No
            proof is issued; ``error.pending.retry()`` returns it once they are gone.
        """
        if audit not in (None, "rebuild"):
            raise InvalidInputError(f"audit must be 'rebuild' or None, got {audit!r}")
        selection = forgetting.Selection.of(ids, source_id, where, missing)
        return forgetting.forget(self._collection, selection, rebuild=audit is not None)

    def prune(self) -> list[PruneCertificate]:
        """Remove reserve records that have no influence, with certificates.

        `read` and the order and numbers of support hits stay the same, bit for bit.
        The pruned ids are gone for good; forgetting is from then on exact relative to
        what is left.

        Returns
        -------
        list of PruneCertificate
            One for each group that lost records: until when they would have stayed
            without influence. `stats` shows what became of them; `compact` drops them.
        """
        return pruning.prune(self._collection)

    def verify(
        self,
        proof: ForgetProof | str | Path,
        key: bytes | str | Path | None = None,
        *,
        public_key: bytes | None = None,
        elsewhere: Mapping[str, Iterable[str]] | None = None,
    ) -> Verdict:
        """Check a proof against the memory as it is now.

        Parameters
        ----------
        proof : ForgetProof, str or Path
            A proof, or its file.
        key : bytes, str or Path, optional
            The proof's key, or its file; by default the one that the proof carries
            or that lies beside it. Without a key, what needs it is not checked.
        public_key : bytes, optional
            Of whoever should have signed the proof.
        elsewhere : mapping of str to iterable of str, optional
            By system, the names that other systems of the proof have now.

        Returns
        -------
        Verdict
            Not ok if the proof was altered, a file holds bytes that are not accounted
            for, the weights are not optimal, or forgotten content is there again.

        Raises
        ------
        ProofError
            If the file is no proof at all.
        """
        if not isinstance(proof, ForgetProof):
            document = ForgetProof.load(proof, key)
        else:
            document = proof if key is None else proof.with_key(key)
        return auditing.verify(self._collection, document, public_key, elsewhere or {})

    def audit(self, *, deep: bool = False) -> AuditReport:
        """Check the whole memory against an independent rebuild.

        Parameters
        ----------
        deep : bool
            Also check that no vector of the file stands anywhere outside live rows in
            other encodings.

        Returns
        -------
        AuditReport
        """
        return auditing.audit(self._collection, deep=deep)

    def compact(self) -> None:
        """Rewrite the file as a function of its records; drops prune certificates."""
        self._collection.compact()

    def digest(self) -> str:
        """Return the digest of the namespace: settings, records and partition.

        Returns
        -------
        str
            Hex SHA-256; equal for equal sets of records, whatever their history.
        """
        with self._collection.reading() as (_, state):
            return self._collection.digest(state).hex()

    def stats(self) -> dict[str, Any]:
        """Return counts, sizes, settings and live prune certificates.

        Returns
        -------
        dict of str to JSON value
        """
        return auditing.stats(self._collection)

    def reembed(self, embedder: AnyEmbedder, *, progress: bool = False) -> None:
        """Rebuild all namespaces under another embedder, all or nothing.

        Parameters
        ----------
        embedder : optional
            As for the constructor.
        progress : bool
            Show a progress bar.
        """
        encoder = Encoder(as_embedder(embedder))
        forgetting.reembed(self._collection, encoder, progress=progress)
        self._encoder = encoder

    def _query(self, query: str | ArrayLike) -> Float32Array:
        if isinstance(query, str):
            check_text(query, "the query")
            with self._collection.reading() as (tx, _):
                stored = self._collection.identity(tx)
            return self._encoder.encode_query(query, stored)
        return normalised_query(as_vector(query))


def _checked_path(path: object) -> str | None:
    if path is None:
        return None
    found = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(found, str) or "\0" in found:
        raise InvalidInputError(
            f"expected the path as str or Path without NUL, got {type(path).__name__}"
        )
    return found


def _checked_timeout(timeout: Any) -> float:
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if number and 0.0 <= float(timeout) <= _LONGEST_TIMEOUT:
        return float(timeout)
    raise InvalidInputError(
        f"timeout must be between 0 and {_LONGEST_TIMEOUT:.0f} seconds, got {timeout!r}"
    )


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InvalidInputError(f"{name} must be an integer of at least 0")
    return int(value)


def _distinct(ids: Iterable[str]) -> frozenset[str]:
    if isinstance(ids, str):
        raise InvalidInputError("expected among as several ids, got one str")
    return frozenset(ids)


def _check_dimension(state: NamespaceState, q: Float32Array) -> None:
    if len(q) != state.table.dimension:
        raise DimensionMismatchError(state.table.dimension, len(q))
