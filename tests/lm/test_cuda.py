"""On an accelerator: the same gates, and the same layer up to rounding."""

from __future__ import annotations

import pytest
import torch

from forgetmem.lm.attention import GateConfig, SVAttention
from forgetmem.lm.gate import batched_gate, exact_gate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here"),
]


@pytest.mark.parametrize(("scale", "gamma"), [(1.0, 0.25), (0.2, 0.25), (3.0, 1.0)])
def test_partition_on_cuda_is_that_of_the_exact_gate(
    scale: float, gamma: float
) -> None:
    """All roles agree with the maintained solver, coefficients within 1e-10."""
    generator = torch.Generator().manual_seed(0)
    keys = scale * torch.randn(8, 192, 16, generator=generator, dtype=torch.float64)
    gammas, ends = torch.full((8,), gamma, dtype=torch.float64), (64, 128, 192)
    there = batched_gate(keys.cuda(), gammas.cuda(), ends)
    here = exact_gate(keys, gammas, ends)
    assert torch.equal(there.alpha.cpu() > 0.0, here.alpha > 0.0)
    assert torch.allclose(there.alpha.cpu(), here.alpha, rtol=0.0, atol=1e-10)


def test_layer_on_cuda_is_the_layer_on_the_cpu() -> None:
    """Outputs and gradients agree in float64."""
    torch.manual_seed(0)
    layer = SVAttention(32, 2, GateConfig(chunk=16)).double()
    x = torch.randn(2, 80, 32, dtype=torch.float64)
    found = []
    for device in ("cpu", "cuda"):
        layer.to(device).zero_grad()
        y = layer(x.to(device))
        y.square().sum().backward()
        grads = [p.grad.cpu() for p in layer.parameters() if p.grad is not None]
        found.append([y.detach().cpu(), *grads])
    for cpu, cuda in zip(*found, strict=True):
        assert torch.allclose(cpu, cuda, rtol=1e-8, atol=1e-8)
