"""One proof can speak of the other systems that had traces of the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy import WordEmbedder

from forgetmem import ForgetProof, ForgettableMemory, ProofError

SYSTEM = "a list of keys"


@pytest.fixture
def memory() -> ForgettableMemory:
    """Two records."""
    memory = ForgettableMemory(embedder=WordEmbedder())
    memory.add(["the pump failed", "the valve leaked"], ids=["a", "b"])
    return memory


def test_other_systems_stand_in_the_proof_without_their_names(
    memory: ForgettableMemory, tmp_path: Path
) -> None:
    """Only HMACs are saved; the file and its seal cover them."""
    proof = memory.forget("a").also_removed(SYSTEM, ["key-of-a", "key-of-a"])
    path, _ = proof.save(tmp_path / "proof.json")
    assert b"key-of-a" not in path.read_bytes()
    loaded = ForgetProof.load(path)
    assert loaded.elsewhere == proof.elsewhere
    assert [len(one.removed) for one in loaded.elsewhere] == [1]
    assert memory.verify(loaded).ok
    other = loaded.model_copy(update={"elsewhere": ()})
    assert not memory.verify(other).ok


def test_verification_looks_where_it_is_told_to(memory: ForgettableMemory) -> None:
    """Names that are there again are a failure; systems not shown are not checked."""
    proof = memory.forget("a").also_removed(SYSTEM, ["key-of-a", "another"])

    def outcome(proof: ForgetProof, names: list[str] | None) -> str:
        shown = {} if names is None else {SYSTEM: names}
        verdict = memory.verify(proof, elsewhere=shown)
        (check,) = [one for one in verdict.checks if one.name == SYSTEM]
        assert verdict.ok == (check.outcome != "failed")
        return check.outcome

    assert outcome(proof, []) == "passed"
    assert outcome(proof, ["key-of-b"]) == "passed"
    assert outcome(proof, ["key-of-b", "key-of-a"]) == "failed"
    assert outcome(proof, None) == "not checked"
    without_key = proof.model_copy(update={"key": None})
    assert outcome(without_key, ["key-of-a"]) == "not checked"


def test_signature_is_dropped_and_can_be_made_again(memory: ForgettableMemory) -> None:
    """What was signed is not what the longer proof says."""
    secret = bytes(range(32))
    signed = memory.forget("a").sign(secret)
    longer = signed.also_removed(SYSTEM, ["key-of-a"])
    assert signed.signature is not None
    assert longer.signature is None
    again = longer.sign(secret)
    assert again.signature is not None
    assert memory.verify(again, public_key=bytes.fromhex(again.signature.public_key)).ok


def test_only_the_holder_of_the_key_can_extend_a_proof(
    memory: ForgettableMemory, tmp_path: Path
) -> None:
    """A proof without its key stays as it is."""
    path, key = memory.forget("a").save(tmp_path / "proof.json")
    assert key is not None
    key.unlink()
    with pytest.raises(ProofError, match="key"):
        ForgetProof.load(path).also_removed(SYSTEM, ["x"])
