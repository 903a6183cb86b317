"""Decoding with exact gates, dropped keys under certificate, and forgetting spans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from forgetmem.errors import (
    DuplicateIdError,
    InvalidInputError,
    ProofError,
    RecordNotFoundError,
)
from forgetmem.lm.attention import GateConfig
from forgetmem.lm.context import HeadContext
from forgetmem.lm.decoding import Decoder
from forgetmem.lm.model import HybridLM, HybridLMConfig
from forgetmem.lm.session import Session, SpanProof
from forgetmem.svm import OneClassSVM


def _model(**gate: object) -> HybridLM:
    torch.manual_seed(4)
    config = HybridLMConfig(
        n_layer=2,
        n_head=2,
        n_embd=16,
        block_size=96,
        mix=2,
        gate=GateConfig(chunk=8, **gate),
    )
    model = HybridLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.3)
    for block in model.blocks:
        block.attention.exact = True
    return model.double().eval()


def _text(n: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "gate",
    [
        {},
        {"multiplier": "alpha", "keys": "raw", "gamma": 0.05},
        {"multiplier": "weight"},
        {"readout": "rbf"},
        {"C": 0.1},
        {"multiplier": "weight", "gain": -2.0},
    ],
)
@pytest.mark.parametrize("step", [1, 5, 61])
def test_decoder_is_the_model(gate: dict[str, object], step: int) -> None:
    """Token by token, in pieces or at once: the scores are those of the layer."""
    model, tokens = _model(**gate), _text(61)
    decoder = Decoder(model)
    parts = [decoder.extend(part) for part in tokens.split(step)]
    assert torch.allclose(torch.cat(parts), model(tokens[None])[0], atol=1e-9)


def test_dropping_changes_no_bit_while_certified() -> None:
    """Reserve keys go, outputs stay the same bits; the report says how long."""
    compared = 0
    for seed in range(4):
        model, tokens = _model(gamma=0.3), _text(8, seed).repeat(12)
        whole, lean = Decoder(model), Decoder(model, drop=True)
        for part in tokens.split(8):
            certified = lean.report().certified
            scores = whole.extend(part), lean.extend(part)
            if certified:
                assert torch.equal(*scores)
                compared += 1
        report = lean.report()
        assert report.keys_held < whole.report().keys_held == report.keys_read
        assert report.tokens_read == 96
        assert report.certified == (report.expired == 0)
    assert compared >= 8


def test_certificate_never_says_valid_wrongly() -> None:
    """Over random runs a dropped key that would come back has expired by then."""
    random = np.random.default_rng(5)
    came_back = held = 0
    for _ in range(60):
        config = GateConfig(chunk=8, C=float(random.choice([0.15, 0.25, 1.0])))
        gamma = float(random.choice([0.2, 1.0, 4.0]))
        lean, whole = HeadContext(gamma, config), OneClassSVM(gamma, config.C, 1e-3)
        dropped: list[int] = []
        rows: list[int] = []
        centre = random.normal(size=(3, 3))
        for turn in range(8):
            noise = random.choice([0.05, 0.5])
            X = centre[random.integers(0, 3, 8)] + noise * random.normal(size=(8, 3))
            keys = torch.from_numpy(X)
            lean.learn(keys, keys, keys, 0)
            whole.learn(X)
            rows += range(8 * turn, 8 * turn + 8)
            back = [row for row in dropped if whole.dual_coef_[row] > 0.0]
            if lean.horizon.valid:
                assert not back
                assert np.array_equal(lean.svm.dual_coef_, whole.dual_coef_[rows])
                held += bool(dropped)
            came_back += bool(back)
            gone = np.flatnonzero(lean.svm.dual_coef_ == 0.0)
            if lean.drop_reserve():
                dropped += [rows[place] for place in gone]
                rows = [row for row in rows if row not in dropped]
            assert len(lean) == len(rows)
    assert came_back > 20
    assert held > 5


def test_unlearned_keys_leave_the_exact_gate_of_the_others() -> None:
    """Coefficients after `unlearn` are those of a fit without the span, bit for bit."""
    random = np.random.default_rng(0)
    X = [torch.from_numpy(random.normal(size=(9, 4))) for _ in range(3)]
    head = HeadContext(0.5, GateConfig())
    for owner, part in enumerate(X):
        head.learn(part, part, part, owner)
    keys, values = head.unlearn(1)
    assert torch.equal(keys, X[1]) and torch.equal(values, X[1])
    fresh = OneClassSVM(0.5, 0.25, 1e-3).fit(torch.cat([X[0], X[2]]).numpy())
    assert np.array_equal(head.svm.dual_coef_, fresh.dual_coef_)
    assert head.certificate().sharp_bound < 1e-12


def test_unlearning_ends_what_was_promised_of_dropped_keys() -> None:
    """After it the certificate is expired, whatever was dropped before."""
    X = torch.zeros(8, 3, dtype=torch.float64)
    X[:, 0] = torch.linspace(0, 1, 8)
    head = HeadContext(1.0, GateConfig(C=1.0))
    for owner in (0, 1):
        head.learn(X + owner, X, X, owner)
    assert head.drop_reserve() > 0 and head.horizon.valid
    head.unlearn(0)
    assert not head.horizon.valid


def test_margin_keeps_keys_that_may_come_back() -> None:
    """With a margin fewer keys are dropped."""
    X = torch.zeros(24, 3, dtype=torch.float64)
    X[:, 0] = torch.linspace(0, 1, 24)
    counts = []
    for margin in (0.0, 0.05, 10.0):
        head = HeadContext(1.0, GateConfig(C=1.0))
        head.learn(X, X, X, 0)
        counts.append(head.drop_reserve(margin))
    assert counts[0] > counts[1] > counts[2] == 0


def test_forget_and_readd_restores_the_readout() -> None:
    """Unlearning a span and learning its keys again ends within 1e-12."""
    random = np.random.default_rng(1)
    X = [torch.from_numpy(random.normal(size=(9, 4))) for _ in range(3)]
    head = HeadContext(0.5, GateConfig())
    for owner, part in enumerate(X):
        head.learn(part, part, 2 * part, owner)

    def readout() -> Tensor:
        rows, logs = head.open_rows()
        places = torch.from_numpy(rows)
        scores = X[0] @ head.keys[places].T + torch.from_numpy(logs)
        return scores.softmax(-1) @ head.values[places]

    before = readout()
    keys, values = head.unlearn(1)
    assert (readout() - before).abs().max() > 1e-6
    head.learn(keys, keys, values, 1)
    assert (readout() - before).abs().max() < 1e-12


def _session(*spans: str) -> Session:
    session = Session(_model())
    for name in spans:
        session.feed(name, f"this is what {name} says. ")
    return session


def test_rebuild_equals_a_session_that_never_read_the_span() -> None:
    """Digest and predictions are the same bits."""
    session, fresh = _session("a", "b", "c"), _session("a", "c")
    assert session.digest() != fresh.digest()
    proof = session.forget("b", way="rebuild")
    assert session.digest() == fresh.digest() == proof.digest_after
    assert torch.equal(session.predict("who?"), fresh.predict("who?"))
    assert session.spans == ("a", "c")
    assert session.verify(proof)


def test_gate_removes_the_keys_and_bounds_the_rest() -> None:
    """No key of the span is left, and every gate is the refit's up to the bounds."""
    session = _session("a", "b", "c")
    n_tokens = len("this is what b says. ")
    proof = session.forget("b", way="gate")
    assert proof.tokens_forgotten == n_tokens
    assert proof.keys_forgotten == 4 * n_tokens
    assert proof.gates == 4 and proof.sharp_bound < 1e-12
    for heads in session.decoder.heads:
        for head in heads:
            assert 1 not in head.owners
            svm = head.svm
            again = OneClassSVM(svm.gamma, svm.C, svm.ridge).fit(svm.X_)
            assert np.array_equal(svm.dual_coef_, again.dual_coef_)
    assert session.verify(proof)
    session.feed("d", "more")
    assert not session.verify(proof)


def test_verification_of_a_rebuild_reads_again() -> None:
    """Keys that were tampered with are found."""
    session = _session("a", "b")
    proof = session.forget("a", way="rebuild")
    session.decoder.heads[0][0].values[0, 0] += 1.0
    tampered = replace(proof, digest_after=session.digest())
    assert not session.verify(tampered)


def test_forgetting_the_last_span_leaves_no_tail() -> None:
    """The bytes that are mixed into the next embedding are those that are left."""
    session, fresh = _session("a", "b"), _session("a")
    session.forget("b", way="gate")
    assert session.decoder.tail == fresh.decoder.tail


def test_edit_is_forget_and_feed() -> None:
    """The new text is read after the others."""
    session, fresh = _session("a", "b"), _session("b")
    session.edit("a", "another text", way="rebuild")
    fresh.feed("a", "another text")
    assert session.digest() == fresh.digest()
    assert session.spans == ("b", "a")


def test_predictions_leave_the_session_alone() -> None:
    """`predict` and `generate` change nothing and repeat themselves."""
    session = _session("a")
    before = session.digest()
    first = session.generate("q", 20)
    assert len(first) == 20
    assert first == session.generate("q", 20)
    assert session.predict("q").shape == (1, 256)
    assert session.digest() == before
    assert session.report().tokens_read == len("this is what a says. ")


def test_proofs_survive_a_file(tmp_path: Path) -> None:
    """`load` undoes `save`; anything else is refused."""
    proof = _session("a", "b").forget("a")
    proof.save(tmp_path / "proof.json")
    assert SpanProof.load(tmp_path / "proof.json") == proof
    (tmp_path / "other.json").write_text('{"x": 1}')
    for name in ("other.json", "none.json"):
        with pytest.raises(ProofError):
            SpanProof.load(tmp_path / name)


def test_bad_requests_change_nothing() -> None:
    """Unknown spans and ways, doubles, empty and long texts are named."""
    session = _session("a")
    before = session.digest()
    with pytest.raises(RecordNotFoundError):
        session.forget("b")
    with pytest.raises(InvalidInputError, match="way"):
        session.forget("a", way="magic")
    with pytest.raises(DuplicateIdError):
        session.feed("a", "again")
    for empty in (lambda: session.feed("b", ""), lambda: session.predict("")):
        with pytest.raises(InvalidInputError, match="empty"):
            empty()
    with pytest.raises(InvalidInputError, match="empty"):
        session.generate("", 1)
    with pytest.raises(InvalidInputError, match="more tokens"):
        session.feed("b", "x" * 97)
    assert session.digest() == before
    plain = HybridLM(HybridLMConfig(n_layer=1, n_embd=16, attention="softmax"))
    with pytest.raises(InvalidInputError, match="sv"):
        Session(plain)
