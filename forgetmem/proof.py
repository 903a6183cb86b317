"""`ForgetProof`: what is claimed about a forget, and how anyone checks it.

A proof can be published: ids, texts and vectors stand in it only as HMACs
under a key that is saved beside it for whoever asked. It names no survivor.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from forgetmem.errors import MissingDependencyError, ProofError
from forgetmem.verdicts import Document, GroupCertificate

FORMAT: Literal["forgetmem-proof/1"] = "forgetmem-proof/1"

#: What no file scan and no solver can show.
NOT_COVERED = (
    "backups, snapshots and copies made by other systems",
    "the operating system's page cache, freed disk blocks and SSD remapping",
    "memory of other live processes",
    "weights of models that were trained on the records",
)


#: 32 and 64 bytes as hex, in the one way in which they are written.
Hex32 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Hex64 = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class Commitment(Document):
    """One forgotten thing, recognisable with the key only.

    Attributes
    ----------
    kind : {"id", "text", "vector", "not_found"}
    value : str
        HMAC-SHA256 under the key of the tagged bytes, as hex.
    survivors : int
        Records, in any namespace, that legitimately share it.
    """

    kind: Literal["id", "text", "vector", "not_found"]
    value: Hex32
    survivors: int = 0


class StorageEvidence(Document):
    """What was seen on disk after the records were erased.

    Attributes
    ----------
    files : int
        Files of the memory that were looked at; 0 for a memory in RAM.
    bytes_checked : int
        Every one of them was accounted for: live, structural or zero.
    needles : int
        Byte strings of the forgotten records that were searched outside live cells
        and not found.
    """

    files: int
    bytes_checked: int
    needles: int


class Elsewhere(Document):
    """What another system, which had traces of the records, removed with them.

    Attributes
    ----------
    system : str
        Which one, for example ``"langchain record manager"``.
    removed : tuple of str
        HMAC under the key of each name (a key, an id) that is no longer there.
    """

    system: str
    removed: tuple[Hex32, ...]


class Signature(Document):
    """An Ed25519 signature of a proof.

    Attributes
    ----------
    public_key, value : str
        32 and 64 bytes as hex.
    """

    public_key: Hex32
    value: Hex64


class ForgetProof(Document):
    """The document a user keeps about one forget.

    Attributes
    ----------
    created : str
        UTC time in ISO 8601; not part of any state.
    forgotten, not_found, n_records_after : int
        Counts.
    commitments : tuple of Commitment
    namespace : str
        HMAC of the namespace's name.
    digest_before : str
        HMAC of the digest before: a bare one would let a holder of the survivors
        test guesses.
    digest_after : str
        The digest after, equal to that of a memory that never held the records.
    digest_rebuilt : str or None
        The digest of an independent rebuild from the survivors, if one was asked for.
    settings : dict
        The problem that is solved.
    groups : tuple of GroupCertificate
        Of every group that the records were in.
    storage : StorageEvidence
    elsewhere : tuple of Elsewhere
        Of other systems that removed traces; a memory cannot look into them.
    reference : str
        The state that this speaks of.
    not_covered : tuple of str
        What this does not speak of.
    checksum : str
        SHA-256 of all of the above and of `mac`.
    mac : str
        HMAC of all of the above under the key.
    signature : Signature or None
    key : bytes or None
        32 bytes; saved in a file of its own, never in the proof.
    erased_ids, not_found_ids : tuple of str
        For the caller of `forget` only; never saved.
    """

    format: Literal["forgetmem-proof/1"] = FORMAT
    library: str
    created: str
    forgotten: int
    not_found: int
    n_records_after: int
    commitments: tuple[Commitment, ...]
    namespace: Hex32
    digest_before: Hex32
    digest_after: Hex32
    digest_rebuilt: Hex32 | None
    settings: dict[str, Any]
    groups: tuple[GroupCertificate, ...]
    storage: StorageEvidence
    elsewhere: tuple[Elsewhere, ...] = ()
    reference: str
    not_covered: tuple[str, ...] = NOT_COVERED
    checksum: Hex32 = ""
    mac: Hex32 = ""
    signature: Signature | None = None
    key: bytes | None = Field(default=None, exclude=True, repr=False)
    erased_ids: tuple[str, ...] = Field(default=(), exclude=True, repr=False)
    not_found_ids: tuple[str, ...] = Field(default=(), exclude=True, repr=False)

    def sealed(self, key: bytes) -> Self:
        """Return this proof with its checksum, its HMAC and its key.

        Parameters
        ----------
        key : bytes of length 32

        Returns
        -------
        ForgetProof
        """
        mac = commit(key, "proof", self.body())
        update = {"checksum": self._checksum(mac), "mac": mac, "key": key}
        return self.model_copy(update=update)

    def also_removed(self, system: str, names: Iterable[str]) -> Self:
        """Return this proof with what another system removed, sealed again.

        Parameters
        ----------
        system : str
            Which one.
        names : iterable of str
            What it no longer has; stands in the proof as HMACs only.

        Returns
        -------
        ForgetProof
            Without a signature: sign what is to be published.

        Raises
        ------
        ProofError
            If this proof was loaded without its key.
        """
        if self.key is None:
            raise ProofError("a proof can be extended with its key only")
        key = self.key
        removed = sorted({commit(key, system, name.encode()) for name in names})
        entry = Elsewhere(system=system, removed=tuple(removed))
        update = {"elsewhere": (*self.elsewhere, entry), "signature": None}
        return self.model_copy(update=update).sealed(key)

    def is_whole(self) -> bool:
        """Tell whether the checksum fits: nothing was changed by accident.

        Returns
        -------
        bool
        """
        return hmac.compare_digest(self.checksum, self._checksum(self.mac))

    def is_sealed_by(self, key: bytes) -> bool:
        """Tell whether the HMAC fits: nothing was changed by anyone without the key.

        Parameters
        ----------
        key : bytes of length 32

        Returns
        -------
        bool
        """
        return hmac.compare_digest(self.mac, commit(key, "proof", self.body()))

    def _checksum(self, mac: str) -> str:
        return hashlib.sha256(self.body() + mac.encode()).hexdigest()

    def body(self) -> bytes:
        """Return what checksum, HMAC and signature are taken over.

        Returns
        -------
        bytes
            Canonical JSON of everything but these three.
        """
        content = self.model_dump(mode="json", exclude={"checksum", "mac", "signature"})
        return json.dumps(
            content, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()

    def save(self, path: str | Path) -> tuple[Path, Path | None]:
        """Write the proof, and its key into a file of the same name beside it.

        Parameters
        ----------
        path : str or Path
            For the proof, which may be published. The key goes to the same name
            with the suffix ``.key``, readable by its owner only: it is for whoever
            asked to be forgotten.

        Returns
        -------
        proof : Path
        key : Path or None
            None if this proof was loaded without its key.

        Raises
        ------
        ProofError
            If the key's file would take the proof's place.
        """
        proof_path = Path(path)
        if proof_path.suffix == ".key":
            raise ProofError(
                f"{proof_path.name} would be the file of the key; give the proof "
                "another suffix"
            )
        proof_path.write_bytes(self._file())
        if self.key is None:
            return proof_path, None
        key_path = proof_path.with_suffix(".key")
        key_path.touch(mode=0o600)
        key_path.write_bytes(self.key)
        return proof_path, key_path

    @classmethod
    def load(cls, path: str | Path, key: str | Path | bytes | None = None) -> Self:
        """Read a proof, and its key if it lies beside it.

        Parameters
        ----------
        path : str or Path
        key : bytes, str or Path, optional
            The key, or its file. Without it, the file of the same name with the
            suffix ``.key`` is read if it is there.

        Returns
        -------
        ForgetProof

        Raises
        ------
        ProofError
            If the file is no proof, differs by any byte from the form that `save`
            writes, or the key is not 32 bytes.
        """
        proof_path = Path(path)
        content = proof_path.read_bytes()
        try:
            proof = cls.model_validate_json(content)
        except ValidationError as error:
            raise ProofError(
                f"{proof_path.name} is no forgetmem proof, or was damaged "
                f"({error.error_count()} fields cannot be read)"
            ) from error
        if proof._file() != content:
            raise ProofError(f"{proof_path.name} is not as it was saved")
        beside = proof_path.with_suffix(".key")
        if key is None and beside.exists():
            key = beside
        return proof if key is None else proof.with_key(key)

    def with_key(self, key: bytes | str | Path) -> Self:
        """Return this proof with a key.

        Parameters
        ----------
        key : bytes, str or Path
            32 bytes, or the file that holds them.

        Returns
        -------
        ForgetProof

        Raises
        ------
        ProofError
            If the key is not 32 bytes.
        """
        secret = key if isinstance(key, bytes) else Path(key).read_bytes()
        if len(secret) != 32:
            raise ProofError(f"a proof's key has 32 bytes, got {len(secret)}")
        return self.model_copy(update={"key": secret})

    def _file(self) -> bytes:
        return self.model_dump_json(indent=2).encode() + b"\n"

    def sign(self, private_key: bytes) -> Self:
        """Return this proof with an Ed25519 signature.

        Parameters
        ----------
        private_key : bytes of length 32
            A raw Ed25519 private key.

        Returns
        -------
        ForgetProof

        Raises
        ------
        MissingDependencyError
            If `cryptography` is not installed.
        ProofError
            If the key has a wrong length.
        """
        ed25519 = _ed25519()
        if len(private_key) != 32:
            raise ProofError(
                f"an Ed25519 private key has 32 bytes, got {len(private_key)}"
            )
        signer = ed25519.Ed25519PrivateKey.from_private_bytes(private_key)
        signature = Signature(
            public_key=signer.public_key().public_bytes_raw().hex(),
            value=signer.sign(self.body()).hex(),
        )
        return self.model_copy(update={"signature": signature})

    def is_signed_by(self, public_key: bytes) -> bool:
        """Tell whether the holder of a key signed exactly this proof.

        Parameters
        ----------
        public_key : bytes of length 32
            A raw Ed25519 public key.

        Returns
        -------
        bool

        Raises
        ------
        MissingDependencyError
            If `cryptography` is not installed.
        """
        ed25519 = _ed25519()
        if self.signature is None or self.signature.public_key != public_key.hex():
            return False
        verifier = ed25519.Ed25519PublicKey.from_public_bytes(public_key)
        try:
            verifier.verify(bytes.fromhex(self.signature.value), self.body())
        except Exception as error:
            if type(error).__name__ in ("InvalidSignature", "ValueError"):
                return False
            raise
        return True


def commit(key: bytes, tag: str, content: bytes) -> str:
    """Commit to some bytes under a key.

    Parameters
    ----------
    key : bytes of length 32
    tag : str
        What the bytes are: ``"id"``, ``"text"``, ``"vector"``, ...
    content : bytes

    Returns
    -------
    str
        HMAC-SHA256 of the tag, a zero byte and the content, as hex.
    """
    return hmac.digest(key, tag.encode() + b"\x00" + content, "sha256").hex()


def commit_all(key: bytes, tag: str, contents: Iterable[bytes]) -> list[str]:
    """Do what `commit` does of many things, from one keyed state.

    Parameters
    ----------
    key : bytes of length 32
    tag : str
    contents : iterable of bytes
        As for `commit`.

    Returns
    -------
    list of str
    """
    keyed = hmac.new(key, tag.encode() + b"\x00", "sha256")
    found = []
    for content in contents:
        state = keyed.copy()
        state.update(content)
        found.append(state.hexdigest())
    return found


def now() -> str:
    """Return the time for a document.

    Returns
    -------
    str
        UTC, ISO 8601, to the second.
    """
    return datetime.now(UTC).isoformat(timespec="seconds")


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise MissingDependencyError("cryptography", "sign") from error
    return ed25519
