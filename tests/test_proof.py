"""What a proof claims, what it tells nobody, and what a verification notices."""

from __future__ import annotations

import hashlib
import json
import math
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy import WordEmbedder

from forgetmem import (
    CorruptStoreError,
    ErasureError,
    ForgetProof,
    ForgettableMemory,
    ProofError,
    Verdict,
)
from forgetmem.proof import commit, commit_all
from forgetmem.store import ReadTransaction
from forgetmem.verdicts import GroupCertificate

TEXTS = {
    "a": "the pump in hall seven was replaced by anna kovacs at noon on friday",
    "b": "the pump in hall seven was replaced by anna kovacs at noon on wednesday",
    "c": "the valve of unit nine reported a leak during the night shift",
    "d": "nothing of this concerns the north gate or its two guards",
}
SECRET = bytes(range(32))


def outcome(verdict: Verdict, name: str) -> str:
    """Return what one check found."""
    (check,) = [check for check in verdict.checks if check.name == name]
    return check.outcome


def opened(path: Path | None, **options: Any) -> ForgettableMemory:
    """Open a memory with the toy embedder."""
    return ForgettableMemory(path, embedder=WordEmbedder(), **options)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[ForgettableMemory]:
    """Four records, two of them look-alikes, in a file."""
    with opened(tmp_path / "m.fm") as memory:
        memory.add(
            list(TEXTS.values()),
            ids=[f"record-{id}" for id in TEXTS],
            metadatas=[{"hall": 7, "who": f"person number {id}"} for id in TEXTS],
            source_ids=[f"document-{id}" for id in TEXTS],
        )
        yield memory


@pytest.fixture
def proof(memory: ForgettableMemory) -> ForgetProof:
    """The proof that one look-alike is forgotten."""
    return memory.forget("record-a", audit="rebuild")


def test_proof_comes_back_from_its_file_exactly(
    memory: ForgettableMemory, proof: ForgetProof, tmp_path: Path
) -> None:
    """With its key, and without it if the key is elsewhere."""
    path, key_path = proof.save(tmp_path / "proof.json")
    assert key_path is not None
    assert stat.S_IMODE(key_path.stat().st_mode) == 0o600
    loaded = ForgetProof.load(path)
    assert loaded.key == proof.key
    assert loaded.model_dump() == proof.model_dump()
    assert memory.verify(path).ok and memory.verify(str(path)).ok
    moved = key_path.rename(tmp_path / "elsewhere")
    assert ForgetProof.load(path).key is None
    for key in (moved, str(moved), proof.key):
        assert ForgetProof.load(path, key=key).key == proof.key
        assert outcome(memory.verify(path, key), "seal") == "passed"
    again, no_key = ForgetProof.load(path).save(tmp_path / "copy.json")
    assert no_key is None
    assert again.read_bytes() == path.read_bytes()


def test_proof_says_what_was_done(
    memory: ForgettableMemory, proof: ForgetProof
) -> None:
    """Counts, digests, certificates, and what it does not cover."""
    assert (proof.forgotten, proof.not_found, proof.n_records_after) == (1, 0, 3)
    assert proof.erased_ids == ("record-a",)
    assert proof.digest_after == proof.digest_rebuilt == memory.digest()
    assert [one.kind for one in proof.commitments] == ["id", "text", "vector"]
    assert proof.storage.needles > 10
    assert proof.storage.bytes_checked == memory.path.stat().st_size  # type: ignore[union-attr]
    assert any("backups" in line for line in proof.not_covered)
    verdict = memory.verify(proof)
    assert verdict.ok and not verdict.reasons
    assert {check.outcome for check in verdict.checks} == {"passed"}


def test_flipped_bits_of_a_proof_are_noticed(
    memory: ForgettableMemory, proof: ForgetProof, tmp_path: Path
) -> None:
    """In every byte: it is refused, or a checksum, seal or signature does not fit."""
    path, _ = proof.sign(SECRET).save(tmp_path / "proof.json")
    content = path.read_bytes()
    chance = random.Random(3)
    readable = 0
    with path.open("r+b", buffering=0) as file:
        for position in range(len(content)):
            for bit in chance.sample(range(8), 3):
                file.seek(position)
                file.write(bytes([content[position] ^ 1 << bit]))
                try:
                    loaded = ForgetProof.load(path, key=proof.key)
                except ProofError:
                    continue
                readable += 1
                assert loaded.signature is not None
                named = bytes.fromhex(loaded.signature.public_key)
                assert not (loaded.is_whole() and loaded.is_signed_by(named)), position
                if readable % 20 == 0:
                    assert not memory.verify(loaded).ok
                    blind = loaded.model_copy(update={"key": None})
                    assert not memory.verify(blind).ok
            file.seek(position)
            file.write(content[position : position + 1])
    assert readable > 500
    assert memory.verify(path).ok


def test_every_flipped_bit_of_a_key_is_noticed(
    memory: ForgettableMemory, proof: ForgetProof
) -> None:
    """The seal does not fit."""
    assert proof.key is not None
    for position in range(32):
        for bit in range(8):
            key = bytearray(proof.key)
            key[position] ^= 1 << bit
            assert not proof.is_sealed_by(bytes(key))
    assert outcome(memory.verify(proof, bytes(key)), "seal") == "failed"
    for wrong in (b"", b"x" * 31, b"x" * 33):
        with pytest.raises(ProofError, match="32 bytes"):
            memory.verify(proof, wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"forgotten": 2},
        {"n_records_after": 4},
        {"commitments": ()},
        {"digest_after": "0" * 64},
        {"groups": ()},
        {"created": "2020-01-01T00:00:00+00:00"},
        {"settings": {}},
        {"reference": "another state"},
        {"not_covered": ()},
    ],
    ids=lambda change: next(iter(change)),
)
def test_altered_proof_needs_the_key_to_be_sealed_again(
    memory: ForgettableMemory, proof: ForgetProof, change: dict[str, Any]
) -> None:
    """Whoever has no key can mend the checksum, but not the seal."""
    altered = proof.model_copy(update=change)
    assert not memory.verify(altered).ok
    mended = altered.model_copy(update={"checksum": altered._checksum(altered.mac)})
    assert outcome(memory.verify(mended), "checksum") == "passed"
    assert outcome(memory.verify(mended), "seal") == "failed"
    blind = memory.verify(mended.model_copy(update={"key": None}))
    assert outcome(blind, "seal") == "not checked"


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"null", b"[]", b"\xff\xfe", b'{"format": "forgetmem-proof/2"}'],
)
def test_file_that_is_no_proof_is_refused(
    memory: ForgettableMemory, tmp_path: Path, content: bytes
) -> None:
    """A named error, whatever the file holds."""
    path = tmp_path / "proof.json"
    path.write_bytes(content)
    with pytest.raises(ProofError):
        memory.verify(path)


def test_proof_is_refused_in_any_other_form(proof: ForgetProof, tmp_path: Path) -> None:
    """Other spaces, another order, further fields, upper case: not as it was saved."""
    path, _ = proof.sign(SECRET).save(tmp_path / "proof.json")
    text = path.read_text()
    fields = json.loads(text)
    upper = json.loads(text)
    upper["signature"]["value"] = upper["signature"]["value"].upper()
    forms = [
        json.dumps(fields),
        json.dumps(dict(reversed(fields.items())), indent=2) + "\n",
        json.dumps({**fields, "note": "x"}, indent=2) + "\n",
        json.dumps(upper, indent=2) + "\n",
        text + "\n",
        "\ufeff" + text,
        text.replace('"forgotten": 1', '"forgotten": 1, "forgotten": 1'),
    ]
    for form in forms:
        path.write_text(form)
        with pytest.raises(ProofError):
            ForgetProof.load(path)
    path.write_text(text)
    ForgetProof.load(path)


def test_key_never_takes_the_place_of_the_proof(
    proof: ForgetProof, tmp_path: Path
) -> None:
    """A proof cannot be saved under the name of its key."""
    with pytest.raises(ProofError, match="suffix"):
        proof.save(tmp_path / "proof.key")
    assert list(tmp_path.glob("*.key")) == []
    path, key = proof.save(tmp_path / "proof")
    assert key == tmp_path / "proof.key"
    assert ForgetProof.load(path).key == proof.key


def test_infinite_bounds_come_back(proof: ForgetProof, tmp_path: Path) -> None:
    """Without a ridge a bound may be infinite, which JSON has no number for."""
    assert proof.key is not None
    endless = GroupCertificate(
        number=0,
        n_vectors=2,
        kkt_residual=0.0,
        duality_gap=0.0,
        bound=math.inf,
        sharp_bound=math.inf,
        coef_bound=math.inf,
        tied=True,
    )
    long = proof.model_copy(update={"groups": (endless,)}).sealed(proof.key)
    path, _ = long.save(tmp_path / "proof.json")
    loaded = ForgetProof.load(path)
    assert loaded.groups == (endless,)
    assert loaded.is_whole() and loaded.is_sealed_by(proof.key)
    json.loads(path.read_text(), parse_constant=pytest.fail)


def test_rebuild_that_differed_is_a_failure(
    memory: ForgettableMemory, proof: ForgetProof
) -> None:
    """Digest after and digest of the rebuild must be one."""
    assert proof.key is not None
    assert outcome(memory.verify(proof), "rebuild") == "passed"
    odd = proof.model_copy(update={"digest_rebuilt": "0" * 64}).sealed(proof.key)
    assert outcome(memory.verify(odd), "rebuild") == "failed"


def plain_digests(content: bytes) -> Iterator[str]:
    """Yield what a guesser could compute without a key."""
    for name in ("md5", "sha1", "sha256", "sha512", "blake2b", "blake2s", "sha3_256"):
        for tag in (b"", b"id\0", b"text\0", b"vector\0", b"namespace\0"):
            yield hashlib.new(name, tag + content).hexdigest()
    for tag in (b"forgetmem text 1\0", b"forgetmem atom 1\0", b"forgetmem content 1\0"):
        yield hashlib.sha256(tag + content).hexdigest()


def test_proof_tells_nothing_to_whoever_guesses(
    memory: ForgettableMemory, tmp_path: Path
) -> None:
    """No text, id, vector, metadata or source, and no hash of one without the key."""
    vector = memory.get("record-a")[0].embedding.tobytes()
    before = memory.digest()
    proof = memory.forget(["record-a", "absent"], missing="ignore", audit="rebuild")
    path, _ = proof.sign(SECRET).save(tmp_path / "proof.json")
    shown = path.read_text() + repr(proof) + str(proof.model_dump())
    shown += str(memory.verify(proof))
    secrets = ["record-", "document-", "person number", "absent", "pump", "default"]
    secrets += [*TEXTS.values(), before]
    for secret in secrets:
        assert secret not in shown
    guessable = [*(s.encode() for s in secrets), b"record-a", b"document-a", vector]
    for guess in guessable:
        for digest in plain_digests(guess):
            assert digest not in shown
            assert digest[:32] not in shown
    assert proof.key is not None
    assert proof.key.hex() not in shown and repr(proof.key) not in shown


def test_two_proofs_of_the_same_have_nothing_in_common(tmp_path: Path) -> None:
    """Each has a key of its own, so that proofs cannot be linked by content."""
    values = []
    for _ in range(2):
        with opened(None) as memory:
            memory.add(["the same text"], ids=["same"])
            proof = memory.forget("same")
            values.append({one.value for one in proof.commitments})
            values[-1] |= {proof.digest_before, proof.namespace}
    assert values[0].isdisjoint(values[1])


# What a verification notices in the memory.


@pytest.mark.parametrize("same", ["id", "text", "vector", "all"])
@pytest.mark.parametrize("namespace", ["default", "other"])
def test_forgotten_content_that_is_added_again_is_found(
    memory: ForgettableMemory, same: str, namespace: str
) -> None:
    """Under any id and in any namespace; without the key nobody could tell."""
    (record,) = memory.get("record-a")
    proof = memory.forget("record-a")
    other = memory if namespace == "default" else opened(memory.path, namespace="other")
    other.add(
        [record.text if same in ("text", "all") else "quite another text"],
        ids=[record.id if same in ("id", "all") else "new"],
        embeddings=[
            record.embedding if same in ("vector", "all") else -record.embedding
        ],
    )
    verdict = memory.verify(proof)
    assert not verdict.ok
    kinds = ["id", "text", "vector"] if same == "all" else [same]
    assert all(f"1 {kind}(s)" in " ".join(verdict.reasons) for kind in kinds)
    assert memory.verify(proof.model_copy(update={"key": None})).ok
    other.forget(record.id if same in ("id", "all") else "new")
    assert memory.verify(proof).ok
    other.close()


def test_many_commitments_are_those_made_one_by_one() -> None:
    """The HMAC that is written out is the standard library's."""
    contents = [b"", b"one", b"\x00" * 200, bytes(range(256)) * 40]
    for key in (bytes(32), bytes(range(32)), b"\xff" * 32):
        for tag in ("id", "text", "vector"):
            singly = [commit(key, tag, content) for content in contents]
            assert commit_all(key, tag, contents) == singly


def test_what_survivors_share_is_no_failure(memory: ForgettableMemory) -> None:
    """Same id or text elsewhere, same vector, are counted when the proof is made."""
    (record,) = memory.get("record-a")
    memory.add([record.text], ids=["twin"])
    with opened(memory.path, namespace="other") as other:
        other.add([record.text, "x"], ids=["t", "record-a"])
    proof = memory.forget("record-a")
    shared = {one.kind: one.survivors for one in proof.commitments}
    assert shared == {"id": 1, "text": 2, "vector": 2}
    assert memory.verify(proof).ok
    memory.add([record.text], ids=["third"])
    assert not memory.verify(proof).ok


def test_a_forget_looks_through_other_namespaces_only(
    memory: ForgettableMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its own, what survivors share is known without reading a record."""
    looked: list[str] = []
    sharing = ReadTransaction.sharing

    def noting(tx: ReadTransaction, namespaces: list[str], *args: Any) -> Any:
        looked.extend(namespaces)
        return sharing(tx, namespaces, *args)

    monkeypatch.setattr(ReadTransaction, "sharing", noting)
    (record,) = memory.get("record-a")
    memory.add([record.text] * 3, ids=["twin 1", "twin 2", "twin 3"])
    proof = memory.forget(["record-a", "twin 1"])
    shared = {one.survivors for one in proof.commitments if one.kind != "id"}
    assert (shared, looked) == ({2}, [])
    with opened(memory.path, namespace="other") as other:
        other.add([record.text], ids=["t"])
    proof = memory.forget("twin 2")
    shared = {one.survivors for one in proof.commitments if one.kind != "id"}
    assert (shared, looked) == ({2}, ["other"])


def test_a_memory_that_goes_on_living_does_not_fail(
    memory: ForgettableMemory, tmp_path: Path
) -> None:
    """Adding, forgetting, pruning, compacting, other tenants: all legitimate."""
    proof = memory.forget("record-a")
    memory.add([f"further note number {n}" for n in range(30)])
    assert memory.verify(proof).ok
    assert outcome(memory.verify(proof), "state") == "changed"
    memory.add(["another text"], ids=["record-b"])
    memory.forget("record-c")
    memory.prune()
    assert memory.verify(proof).ok
    with opened(memory.path, namespace="other") as other:
        other.add(["of another tenant"], ids=["x"])
        verdict = other.verify(proof)
        assert outcome(verdict, "state") == "failed"
        assert "another namespace" in verdict.reasons[0]
    memory.compact()
    memory.forget(memory.ids())
    assert memory.verify(proof).ok
    memory.reembed(WordEmbedder(8, name="shorter"))
    assert memory.verify(proof).ok
    memory.close()
    with ForgettableMemory(tmp_path / "m.fm", read_only=True) as again:
        assert again.verify(proof).ok


def test_restored_backup_fails_with_the_key(
    memory: ForgettableMemory, tmp_path: Path
) -> None:
    """A copy from before the forget holds the record."""
    backup = tmp_path / "backup.fm"
    shutil.copy(memory.path, backup)  # type: ignore[arg-type]
    proof = memory.forget("record-a")
    with opened(backup) as restored:
        verdict = restored.verify(proof)
    assert not verdict.ok
    assert outcome(verdict, "content") == "failed"


def planted(path: Path, position: int, content: bytes) -> Callable[[], None]:
    """Write bytes into a file behind everyone's back; return how to undo it."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(position)
        before = file.read(len(content))
        file.seek(position)
        file.write(content)

    def undo() -> None:
        with path.open("r+b") as file:
            file.seek(position)
            file.write(before)
            file.truncate(size)

    return undo


def test_planted_bytes_anywhere_in_the_file_are_found(
    memory: ForgettableMemory, proof: ForgetProof
) -> None:
    """In free space, in live rows, in the header or past the end: never a pass."""
    path = memory.path
    assert path is not None
    needle = TEXTS["a"].encode()[:24]
    size = path.stat().st_size
    chance = random.Random(7)
    positions = [0, 20, 72, 96, size - 24, size]
    positions += [chance.randrange(100, size - 24) for _ in range(60)]
    unreadable = []
    for position in positions:
        undo = planted(path, position, needle)
        try:
            assert not memory.verify(proof).ok, position
        except CorruptStoreError:
            unreadable.append(position)
        finally:
            undo()
        assert memory.verify(proof).ok, position
    assert len(unreadable) < len(positions) / 2


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
def test_planted_vectors_are_found_in_any_encoding(
    memory: ForgettableMemory, dtype: str
) -> None:
    """Whatever the bytes say, they belong to nothing."""
    (record,) = memory.get("record-a")
    proof = memory.forget("record-a")
    path = memory.path
    assert path is not None
    raw = record.embedding.astype(dtype).tobytes()
    content = path.read_bytes()
    free = content.index(bytes(4096))
    undo = planted(path, free + 1024, raw)
    assert outcome(memory.verify(proof), "storage") == "failed"
    assert not memory.audit(deep=True).ok
    undo()
    assert memory.verify(proof).ok


@pytest.mark.parametrize("content", [b"", b"x", TEXTS["a"].encode()])
@pytest.mark.parametrize("suffix", ["-old", "-wal", "-journal", "-shm", "-backup.zip"])
def test_files_beside_the_memory_are_found(
    memory: ForgettableMemory, proof: ForgetProof, suffix: str, content: bytes
) -> None:
    """Whatever bears the memory's name is part of it, unless it is gone afterwards."""
    side = Path(f"{memory.path}{suffix}")
    side.write_bytes(content)
    passed = memory.verify(proof).ok
    left = side.exists() and (content or suffix in ("-old", "-backup.zip"))
    assert not (passed and left)
    side.unlink(missing_ok=True)
    assert memory.verify(proof).ok


def test_forget_is_not_proved_while_a_copy_lies_beside(
    memory: ForgettableMemory,
) -> None:
    """No proof; once the copy is gone, `pending.retry()` gives it."""
    assert memory.path is not None
    side = Path(f"{memory.path}-copy.gz")
    side.write_bytes(b"packed: " + memory.path.read_bytes())
    with pytest.raises(ErasureError, match="copy") as caught:
        memory.forget("record-a", audit="rebuild")
    assert "record-a" not in memory
    assert TEXTS["a"] not in str(caught.value)
    assert caught.value.pending is not None
    with pytest.raises(ErasureError):
        caught.value.pending.retry()
    side.unlink()
    proof = caught.value.pending.retry()
    assert isinstance(proof, ForgetProof)
    assert proof.digest_rebuilt == proof.digest_after == memory.digest()
    assert memory.verify(proof).ok


def test_bytes_planted_while_closed_are_named_and_removed(
    memory: ForgettableMemory, proof: ForgetProof
) -> None:
    """Opening cleans up, and the verification says what was there."""
    path = memory.path
    assert path is not None
    memory.close()
    needle = TEXTS["a"].encode()
    planted(path, path.read_bytes().index(bytes(4096)) + 1024, needle)
    with opened(path, read_only=True) as looking:
        assert outcome(looking.verify(proof), "storage") == "failed"
    with opened(path) as again:
        verdict = again.verify(proof)
        assert not verdict.ok
        assert outcome(verdict, "opening") == "failed"
        assert outcome(verdict, "storage") == "passed"
    assert needle not in path.read_bytes()
    with opened(path) as later:
        assert {check.outcome for check in later.verify(proof).checks} == {"passed"}


def test_weights_that_are_not_optimal_are_found(memory: ForgettableMemory) -> None:
    """Even where every digest fits: the certificate trusts nothing but the vectors."""
    memory.add([TEXTS["b"] + " again", TEXTS["b"] + " once more"], ids=["e", "f"])
    proof = memory.forget("record-a")
    state = memory._collection._state
    assert state is not None
    group = max(state.grouping.groups(), key=len)
    row = int(group[np.argmax(state.weights.weight[group])])
    state.weights.weight[row] *= 1.0 + 1e-6
    assert outcome(memory.verify(proof), "optimality") == "failed"
    assert not memory.audit().ok


SCRIPT = """
import json, sys
from forgetmem import ForgettableMemory
path, proof, *key = sys.argv[1:]
with ForgettableMemory(path, read_only=True) as memory:
    verdict = memory.verify(proof, *key)
assert "torch" not in sys.modules
print(verdict.model_dump_json())
"""


def verified_elsewhere(*arguments: object) -> Verdict:
    """Verify in a new process that has no embedder."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, *map(str, arguments)],
        capture_output=True,
        check=True,
        timeout=120,
    )
    return Verdict.model_validate_json(done.stdout)


def test_another_process_verifies_with_file_proof_and_key_only(
    memory: ForgettableMemory, proof: ForgetProof, tmp_path: Path
) -> None:
    """And without the key it says what was not checked (semantica PR 1027)."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    path, key = proof.save(folder / "proof.json")
    assert key is not None
    file = folder / "copy.fm"
    shutil.copy(memory.path, file)  # type: ignore[arg-type]
    verdict = verified_elsewhere(file, path)
    assert verdict.ok
    assert {check.outcome for check in verdict.checks} == {"passed"}
    hidden = key.rename(folder / "hidden")
    verdict = verified_elsewhere(file, path)
    assert verdict.ok
    unchecked = [one.name for one in verdict.checks if one.outcome == "not checked"]
    assert unchecked == ["seal", "content"]
    memory.add([TEXTS["a"]], ids=["again"])
    shutil.copy(memory.path, file)  # type: ignore[arg-type]
    assert not verified_elsewhere(file, path, hidden).ok


def test_signature_is_checked_against_the_expected_signer(
    memory: ForgettableMemory, proof: ForgetProof, tmp_path: Path
) -> None:
    """Ed25519; another signer, another proof or no signature fail."""
    signed = proof.sign(SECRET)
    assert signed.signature is not None
    public = bytes.fromhex(signed.signature.public_key)
    path, _ = signed.save(tmp_path / "proof.json")
    assert memory.verify(path, public_key=public).ok
    assert outcome(memory.verify(path, public_key=public), "signature") == "passed"
    assert outcome(memory.verify(path), "signature") == "not checked"
    other = proof.sign(bytes(32))
    assert not memory.verify(other, public_key=public).ok
    assert not memory.verify(proof, public_key=public).ok
    moved = memory.forget("record-b").model_copy(update={"signature": signed.signature})
    assert not memory.verify(moved, public_key=public).ok
    assert not memory.verify(moved).ok
    for wrong in (b"", b"x" * 31, bytes(32)):
        assert not memory.verify(signed, public_key=wrong).ok
    for wrong in (b"", b"x" * 31, b"x" * 33):
        with pytest.raises(ProofError, match="32 bytes"):
            proof.sign(wrong)


def test_damaged_record_is_a_verdict_with_and_without_the_key(
    memory: ForgettableMemory, proof: ForgetProof, tmp_path: Path
) -> None:
    """A flipped byte of a stored text fails the verification; it does not raise."""
    path, _ = proof.save(tmp_path / "proof.json")
    memory_path = memory.path
    assert memory_path is not None
    memory.close()
    content = bytearray(memory_path.read_bytes())
    content[content.index(TEXTS["b"].encode())] ^= 1
    memory_path.write_bytes(content)
    with opened(memory_path, read_only=True) as damaged:
        for given in (proof, path, proof.model_copy(update={"key": None})):
            assert outcome(damaged.verify(given), "digest") == "failed"
        assert not damaged.audit().ok


def test_proof_of_other_settings_fails(proof: ForgetProof) -> None:
    """A proof does not verify against a memory of another make."""
    with ForgettableMemory(gamma=3.0) as other:
        verdict = other.verify(proof.model_copy(update={"key": None}))
        assert outcome(verdict, "state") == "failed"
