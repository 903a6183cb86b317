"""`SVAttention`: causal, gradients, variants; and what stands beside it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from forgetmem.errors import InvalidInputError
from forgetmem.lm.attention import GateConfig, PerHead, Projections, SVAttention
from forgetmem.lm.baselines import (
    Control,
    ControlAttention,
    DeltaNet,
    LinearAttention,
    SlidingWindow,
    SoftmaxAttention,
)
from forgetmem.lm.readout import chunk_ends, gated_attention

E, H = 16, 2

GATES = {
    "default": GateConfig(chunk=8),
    "paper": GateConfig(
        chunk=8, gamma=0.25, learn_gamma=False, keys="raw", multiplier="alpha"
    ),
    "weight": GateConfig(chunk=8, multiplier="weight"),
    "rbf": GateConfig(chunk=8, readout="rbf"),
    "rbf raw": GateConfig(chunk=8, readout="rbf", keys="raw", multiplier="alpha"),
    "short": GateConfig(chunk=4),
    "gain": GateConfig(chunk=8, multiplier="weight", gain=-2.0),
}


def _modules() -> dict[str, nn.Module]:
    torch.manual_seed(1)
    found: dict[str, nn.Module] = {
        f"sv {name}": SVAttention(E, H, config) for name, config in GATES.items()
    }
    for control in Control:
        gate = GateConfig(chunk=8, gain=-0.5)
        found[control.value] = ControlAttention(E, H, control.value, gate, recent=5)
    found["softmax"] = SoftmaxAttention(E, H)
    found["unfused"] = SoftmaxAttention(E, H, fused=False)
    found["window"] = SlidingWindow(E, H, 6)
    found["linear"] = LinearAttention(E, H, chunk=8)
    found["delta"] = DeltaNet(E, H, chunk=8)
    for module in found.values():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.5)
    return {name: module.double() for name, module in found.items()}


NAMES = list(_modules())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("T", [3, 8, 29])
def test_future_changes_nothing(name: str, T: int) -> None:
    """An output depends on tokens up to its own position only, bit for bit."""
    module = _modules()[name]
    x = torch.randn(2, T, E, dtype=torch.float64)
    before = module(x)
    for place in {1, T // 2, T - 1}:
        other = x.clone()
        other[:, place:] = torch.randn_like(other[:, place:])
        assert torch.allclose(
            module(other)[:, :place], before[:, :place], rtol=0, atol=1e-12
        )
        assert not torch.allclose(module(other)[:, place:], before[:, place:])


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("sv")])
def test_gradients_of_the_whole_layer(name: str) -> None:
    """The complete readout passes a double-precision gradcheck."""
    module = _modules()[name]
    assert isinstance(module, SVAttention)
    x = torch.randn(1, 19, E, dtype=torch.float64, requires_grad=True)
    checked = {"atol": 1e-5, "nondet_tol": 1e-10, "fast_mode": True}
    assert torch.autograd.gradcheck(module, (x,), **checked)
    weights = [p for p in module.parameters() if p.requires_grad]

    def of_weights(*values: Tensor) -> Tensor:
        names = [n for n, p in module.named_parameters() if p.requires_grad]
        given = dict(zip(names, values, strict=True))
        return torch.func.functional_call(module, given, (x.detach(),))

    assert torch.autograd.gradcheck(of_weights, tuple(weights), **checked)


@pytest.mark.parametrize("name", GATES)
def test_exact_layer_equals_the_batched_one(name: str) -> None:
    """With `exact` outputs and gradients are the same up to 1e-9."""
    module = _modules()[f"sv {name}"]
    assert isinstance(module, SVAttention)
    x = torch.randn(2, 40, E, dtype=torch.float64)
    results = []
    for exact in (False, True):
        module.exact = exact
        module.zero_grad()
        y = module(x)
        y.square().sum().backward()
        grads = [p.grad for p in module.parameters() if p.grad is not None]
        results.append([y.detach(), *grads])
    for batched, exactly in zip(*results, strict=True):
        assert torch.allclose(batched, exactly, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("share", [0.2, 1.0])
def test_readout_equals_a_plain_softmax(share: float) -> None:
    """Gathering open keys changes nothing, in values and in gradients."""
    torch.manual_seed(3)
    P, T, D, chunk = 3, 21, 4, 5
    ends = chunk_ends(T, chunk)
    q, k, v = (torch.randn(P, T, D, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(P, len(ends), ends[-1], dtype=torch.float64)
    bias[torch.rand(bias.shape) > share] = -torch.inf
    own = torch.randn(P, T, dtype=torch.float64)

    def plain(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, own: Tensor) -> Tensor:
        total = torch.full((P, T, T), -torch.inf, dtype=torch.float64)
        for t in range(T):
            number = t // chunk
            first = number * chunk
            if number:
                total[:, t, :first] = bias[:, number - 1, :first]
            total[:, t, first : t + 1] = own[:, first : t + 1]
        return (q @ k.transpose(1, 2) + total).softmax(-1) @ v

    leaves = [x.requires_grad_() for x in (q, k, v, bias, own)]
    ours = gated_attention(q, k, v, bias, chunk, own)
    theirs = plain(*leaves)
    assert torch.allclose(ours, theirs, atol=1e-12)
    up = torch.randn_like(ours)
    for mine, other in zip(
        torch.autograd.grad(ours, leaves, up),
        torch.autograd.grad(theirs, leaves, up),
        strict=True,
    ):
        assert torch.allclose(mine, other, atol=1e-12)


@pytest.mark.parametrize("name", ["sv default", "uniform", "recent"])
def test_a_low_gain_closes_the_prefix(name: str) -> None:
    """With a gain of -100 a gate or a control reads its own chunk only."""
    modules = _modules()
    modules[name].load_state_dict(modules["local"].state_dict(), strict=False)
    nn.init.constant_(modules[name].gain.stored, -100.0 / PerHead.STEP)
    x = torch.randn(2, 29, E, dtype=torch.float64)
    assert torch.allclose(modules[name](x), modules["local"](x), atol=1e-12)


@pytest.mark.parametrize("learned", [True, False])
def test_gain_starts_where_it_is_told_and_learns_if_it_may(learned: bool) -> None:
    """The initial gain is the setting's; only a learned one has a gradient."""
    gate = GateConfig(chunk=8, gain=-1.5, learn_gain=learned)
    layer = SVAttention(E, H, gate)
    assert torch.equal(layer.gain(), torch.full((H,), -1.5))
    layer(torch.randn(2, 29, E)).square().sum().backward()
    found = layer.gain.stored.grad
    assert (found is not None and bool((found != 0.0).all())) == learned


def test_open_control_is_full_attention() -> None:
    """Multiplier 1 on every prefix key is softmax attention."""
    modules = _modules()
    modules["open"].load_state_dict(modules["softmax"].state_dict(), strict=False)
    nn.init.zeros_(modules["open"].gain.stored)
    x = torch.randn(2, 29, E, dtype=torch.float64)
    assert torch.allclose(modules["open"](x), modules["softmax"](x), atol=1e-12)


def test_unfused_softmax_is_the_fused_one() -> None:
    """Both are the same function."""
    modules = _modules()
    modules["unfused"].load_state_dict(modules["softmax"].state_dict())
    x = torch.randn(2, 29, E, dtype=torch.float64)
    assert torch.allclose(modules["unfused"](x), modules["softmax"](x), atol=1e-12)


@pytest.mark.parametrize("kind", [LinearAttention, DeltaNet])
def test_chunks_do_not_change_a_recurrence(
    kind: type[LinearAttention] | type[DeltaNet],
) -> None:
    """Chunked linear attention and DeltaNet equal their token by token form."""
    torch.manual_seed(2)
    chunked = kind(E, H, chunk=7).double()
    single = kind(E, H, chunk=1).double()
    single.load_state_dict(chunked.state_dict())
    x = torch.randn(2, 23, E, dtype=torch.float64)
    assert torch.allclose(chunked(x), single(x), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_batch_of_one_is_a_row_of_a_batch(name: str) -> None:
    """Values and gradients of a sequence do not depend on the others beside it."""
    module = _modules()[name]
    x = torch.randn(2, 77, E, dtype=torch.float64)
    found = []
    for batch in (x, x[:1]):
        leaf = batch.clone().requires_grad_()
        y = module(leaf)
        y[0].square().sum().backward()
        assert leaf.grad is not None
        found.append((y[0].detach(), leaf.grad[0]))
    for both, alone in zip(*found, strict=True):
        assert torch.allclose(both, alone, rtol=1e-9, atol=1e-9)


def test_report_tells_the_support() -> None:
    """The last call's counts are kept; without a gated prefix there are none."""
    module = _modules()["sv default"]
    assert isinstance(module, SVAttention)
    module(torch.randn(2, 40, E, dtype=torch.float64))
    assert module.report is not None
    assert module.report.problems == 2 * H * 4
    assert 0.0 < module.report.support <= 1.0
    module(torch.randn(2, 8, E, dtype=torch.float64))
    assert module.report is None


def test_nan_in_one_sequence_stays_there() -> None:
    """The other sequences of a batch are what they are without it."""
    module = _modules()["sv default"]
    x = torch.randn(2, 40, E, dtype=torch.float64)
    alone = module(x)[1]
    x[0, 3] = torch.nan
    assert torch.allclose(module(x)[1], alone, atol=1e-12)
    assert module.report.ungated > 0


@pytest.mark.parametrize(
    "settings",
    [
        {"C": 0.0},
        {"gamma": -1.0},
        {"ridge": float("inf")},
        {"chunk": 0},
        {"keys": "cooked"},
        {"multiplier": "x"},
        {"readout": "x"},
        {"gain": float("nan")},
    ],
)
def test_bad_gate_settings_are_named(settings: dict[str, object]) -> None:
    """A setting out of range is refused."""
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        GateConfig(**settings)


def test_bad_sizes_are_named() -> None:
    """Heads that do not divide the width, and an empty window, are refused."""
    with pytest.raises(InvalidInputError):
        Projections(10, 3)
    with pytest.raises(InvalidInputError):
        SlidingWindow(E, H, 0)
