"""`HybridLM`: shapes, causality, generation, settings."""

from __future__ import annotations

import pytest
import torch

from forgetmem.errors import InvalidInputError
from forgetmem.lm.attention import GateConfig
from forgetmem.lm.model import AttentionKind, HybridLM, HybridLMConfig, sample

KINDS = [kind.value for kind in AttentionKind]


def _model(attention: str = "sv", **settings: object) -> HybridLM:
    torch.manual_seed(0)
    config = HybridLMConfig(
        n_layer=2,
        n_head=2,
        n_embd=16,
        block_size=48,
        attention=attention,
        window=9,
        gate=GateConfig(chunk=8),
        **settings,
    )
    return HybridLM(config)


@pytest.mark.parametrize("kind", KINDS)
def test_every_attention_trains_and_is_causal(kind: str) -> None:
    """A step lowers the loss; logits do not depend on later tokens."""
    model = _model(kind, mix=2, sinusoids=True)
    tokens = torch.arange(40).repeat(2, 1) % 7
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(8):
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]
    before = model(tokens)
    other = tokens.clone()
    other[:, 20:] = 9
    assert torch.allclose(model(other)[:, :20], before[:, :20], atol=1e-5)


def test_paper_configuration_has_its_size() -> None:
    """Width 256, four layers, four heads, block 256: about 3.2 million."""
    assert 3.1e6 < HybridLM(HybridLMConfig()).n_parameters < 3.3e6


def test_settings_survive_as_plain_values() -> None:
    """`from_dict` undoes `as_dict`."""
    config = HybridLMConfig(gate=GateConfig(C=0.5), attention="delta")
    assert HybridLMConfig.from_dict(config.as_dict()) == config


def test_embedding_in_parts_is_the_embedding() -> None:
    """With the tokens before, mixing goes on where it stopped."""
    model = _model(mix=2)
    torch.nn.init.normal_(model.mix)
    tokens = torch.arange(12)[None]
    whole = model.embed(tokens)
    later = model.embed(tokens[:, 5:], 5, tokens[:, 3:5])
    assert torch.allclose(whole[:, 5:], later)


def test_generation_is_reproducible() -> None:
    """The same generator state gives the same text; temperature 0 needs none."""
    model = _model()
    start = torch.zeros(1, 1, dtype=torch.int64)
    texts = [
        model.generate(start, 60, top_k=5, generator=torch.Generator().manual_seed(3))
        for _ in range(2)
    ]
    assert torch.equal(*texts)
    assert texts[0].shape == (1, 61)
    greedy = model.generate(start, 5, temperature=0.0)
    assert torch.equal(greedy, model.generate(start, 5, temperature=0.0))


def test_top_k_keeps_the_largest_scores() -> None:
    """Nothing outside the k largest is drawn."""
    scores = torch.arange(10.0).repeat(50, 1)
    drawn = sample(scores, 5.0, 3, torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) <= {7, 8, 9}
    with pytest.raises(InvalidInputError):
        sample(scores, -1.0)


def test_reports_come_from_gated_layers() -> None:
    """One report a layer after a call; none from other attentions."""
    tokens = torch.zeros(1, 40, dtype=torch.int64)
    model = _model()
    model(tokens)
    assert len(model.gate_reports()) == 2
    other = _model("softmax")
    other(tokens)
    assert other.gate_reports() == []


def test_bad_settings_and_lengths_are_named() -> None:
    """An unknown attention, a size below 1 and a text that is too long are refused."""
    with pytest.raises(InvalidInputError, match="attention"):
        HybridLMConfig(attention="magic")
    with pytest.raises(InvalidInputError, match="n_layer"):
        HybridLMConfig(n_layer=0)
    with pytest.raises(InvalidInputError, match="48"):
        _model()(torch.zeros(1, 49, dtype=torch.int64))
