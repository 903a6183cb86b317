"""What `SVAttention` is compared with, in the same slot: attentions and controls."""

from __future__ import annotations

import enum
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from forgetmem.errors import InvalidInputError
from forgetmem.lm.attention import GateConfig, PerHead, Projections
from forgetmem.lm.readout import chunk_ends, gated_attention


class SoftmaxAttention(nn.Module):
    """Full causal attention.

    Parameters
    ----------
    n_embd, n_head : int
    fused : bool
        Whether to use torch's fused kernel; without it the score matrix is formed.
    """

    def __init__(self, n_embd: int, n_head: int, *, fused: bool = True) -> None:
        super().__init__()
        self.projections = Projections(n_embd, n_head)
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        """Attend; ``(B, T, n_embd)`` to the same shape."""
        q, k, v = self.projections.heads(x)
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.projections.merge(y)
        scores = (q @ k.transpose(-2, -1)) * k.shape[-1] ** -0.5
        T = x.shape[1]
        future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        return self.projections.merge(weights @ v)


class SlidingWindow(nn.Module):
    """Causal attention to the last tokens.

    Parameters
    ----------
    n_embd, n_head : int
    window : int
        Number of tokens a query sees, itself included.
    """

    def __init__(self, n_embd: int, n_head: int, window: int) -> None:
        super().__init__()
        if window < 1:
            raise InvalidInputError(f"expected window to be at least 1, got {window}")
        self.projections = Projections(n_embd, n_head)
        self.window = window

    def forward(self, x: Tensor) -> Tensor:
        """Attend; ``(B, T, n_embd)`` to the same shape."""
        q, k, v = self.projections.heads(x)
        places = torch.arange(x.shape[1], device=x.device)
        age = places[:, None] - places
        seen = (age >= 0) & (age < self.window)
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.projections.merge(y)


class Control(enum.Enum):
    """Prefix multipliers that need no SVM.

    1 on every key, 1/n on every key, 1/m on the m most recent keys, or nothing beyond
    the chunk.
    """

    OPEN = "open"
    UNIFORM = "uniform"
    RECENT = "recent"
    LOCAL = "local"


class ControlAttention(nn.Module):
    """`SVAttention` with a control in place of its gate.

    Parameters
    ----------
    n_embd, n_head : int
    control : {"open", "uniform", "recent", "local"}
    config : GateConfig
        Only chunk and gain are used: heads learn their gains as those of a gate do.
    recent : int
        The m of the control ``"recent"``.
    """

    def __init__(
        self,
        n_embd: int,
        n_head: int,
        control: str,
        config: GateConfig,
        *,
        recent: int = 64,
    ) -> None:
        super().__init__()
        self.projections = Projections(n_embd, n_head)
        self.control = Control(control)
        self.chunk, self.recent = config.chunk, recent
        self.gain = PerHead(n_head, config.gain, learned=config.learn_gain)

    def forward(self, x: Tensor) -> Tensor:
        """Attend; ``(B, T, n_embd)`` to the same shape."""
        B, T, _ = x.shape
        heads = self.projections.heads(x)
        q, k, v = (part.reshape(-1, T, part.shape[-1]) for part in heads)
        bias = self._bias(chunk_ends(T, self.chunk), x)
        bias = bias + self.gain().repeat(B)[:, None, None]
        y = gated_attention(q * q.shape[-1] ** -0.5, k, v, bias, self.chunk)
        return self.projections.merge(y.view(B, -1, T, q.shape[-1]))

    def _bias(self, ends: tuple[int, ...], like: Tensor) -> Tensor:
        bias = like.new_full((1, len(ends), ends[-1] if ends else 0), -torch.inf)
        for number, end in enumerate(ends):
            if self.control is Control.OPEN:
                bias[0, number, :end] = 0.0
            elif self.control is Control.UNIFORM:
                bias[0, number, :end] = -math.log(end)
            elif self.control is Control.RECENT:
                count = min(self.recent, end)
                bias[0, number, end - count : end] = -math.log(count)
        return bias


class LinearAttention(nn.Module):
    """Causal linear attention with the feature map ``elu + 1``, chunk by chunk.

    Parameters
    ----------
    n_embd, n_head : int
    chunk : int
        Affects speed only.

    Notes
    -----
    Katharopoulos et al., "Transformers are RNNs", ICML 2020. The state of a head is a
    ``D * D`` matrix and a normaliser.
    """

    def __init__(self, n_embd: int, n_head: int, *, chunk: int = 64) -> None:
        super().__init__()
        self.projections = Projections(n_embd, n_head)
        self.chunk = chunk

    def forward(self, x: Tensor) -> Tensor:
        """Attend; ``(B, T, n_embd)`` to the same shape."""
        q, k, v = self.projections.heads(x)
        q, k = functional.elu(q) + 1.0, functional.elu(k) + 1.0
        v = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
        state = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
        parts = []
        for start in range(0, x.shape[1], self.chunk):
            here = slice(start, start + self.chunk)
            qc, kc, vc = q[:, :, here], k[:, :, here], v[:, :, here]
            parts.append(qc @ state + (qc @ kc.transpose(-2, -1)).tril() @ vc)
            state = state + kc.transpose(-2, -1) @ vc
        y = torch.cat(parts, dim=2)
        return self.projections.merge(y[..., :-1] / y[..., -1:])


class DeltaNet(nn.Module):
    """Linear attention that overwrites instead of adding, chunk by chunk.

    Parameters
    ----------
    n_embd, n_head : int
    chunk : int
        Affects speed only.

    Notes
    -----
    Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence
    Length", NeurIPS 2024: the products of Householder-like matrices of a chunk are one
    triangular solve. The state of a head is a ``D * D`` matrix.
    """

    def __init__(self, n_embd: int, n_head: int, *, chunk: int = 64) -> None:
        super().__init__()
        self.projections = Projections(n_embd, n_head)
        self.rate = nn.Linear(n_embd, n_head, bias=False)
        self.norm = nn.RMSNorm(n_embd // n_head)
        self.chunk = chunk

    def forward(self, x: Tensor) -> Tensor:
        """Attend; ``(B, T, n_embd)`` to the same shape."""
        q, k, v = self.projections.heads(x)
        q = functional.normalize(functional.silu(q), dim=-1)
        k = functional.normalize(functional.silu(k), dim=-1)
        rate = self.rate(x).sigmoid().transpose(1, 2)[..., None]
        state = v.new_zeros(*v.shape[:2], k.shape[-1], v.shape[-1])
        parts = []
        for start in range(0, x.shape[1], self.chunk):
            here = slice(start, start + self.chunk)
            y, state = _delta_chunk(
                q[:, :, here], k[:, :, here], v[:, :, here], rate[:, :, here], state
            )
            parts.append(y)
        return self.projections.merge(self.norm(torch.cat(parts, dim=2)))


def _delta_chunk(
    q: Tensor, k: Tensor, v: Tensor, rate: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    # With A = tril(rate k k', -1), what the chunk writes is (I + A)^-1 rate (v - k S).
    eye = torch.eye(k.shape[2], dtype=k.dtype, device=k.device)
    lower = (rate * (k @ k.transpose(-2, -1))).tril(-1) + eye
    wanted = rate * (v - k @ state)
    written = torch.linalg.solve_triangular(
        lower, wanted, upper=False, unitriangular=True
    )
    y = q @ state + (q @ k.transpose(-2, -1)).tril() @ written
    return y, state + k.transpose(-2, -1) @ written
