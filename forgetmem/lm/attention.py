"""`SVAttention`: attention whose prefix is gated by a one-class SVM on its keys."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from forgetmem.errors import InvalidInputError
from forgetmem.lm.gate import Gate, GateReport, batched_gate, exact_gate, warm_up
from forgetmem.lm.readout import chunk_ends, gated_attention


class Readout(enum.Enum):
    """How a query reads the keys: by the SVM's own kernel, or by softmax scores."""

    RBF = "rbf"
    SOFTMAX = "softmax"


class Multiplier(enum.Enum):
    """What a prefix key's weight in the readout is multiplied by.

    The coefficient itself (the paper's), the coefficient as a share of `C`, or the
    weight ``alpha / rho``.
    """

    ALPHA = "alpha"
    SHARE = "share"
    WEIGHT = "weight"


class GateKeys(enum.Enum):
    """What the SVM is fitted on: the keys as they are, or divided by their norm."""

    RAW = "raw"
    UNIT = "unit"


@dataclass(frozen=True)
class GateConfig:
    """Settings of the gate of a layer.

    Parameters
    ----------
    chunk : int
        Tokens that read one frozen prefix.
    C : float
        Largest coefficient.
    gamma : float
        Initial bandwidth.
    ridge : float
        Part of the problem: added to the diagonal of the kernel matrix.
    learn_gamma : bool
        Whether each head learns its bandwidth.
    keys : {"unit", "raw"}
    multiplier : {"weight", "share", "alpha"}
    readout : {"softmax", "rbf"}
    gain : float
        Initial value of what is added to the logarithm of each multiplier of a prefix.
    learn_gain : bool
        Whether each head learns its gain, and so how much it reads beyond the chunk.
    """

    chunk: int = 64
    C: float = 0.25
    gamma: float = 2.0
    ridge: float = 1e-3
    learn_gamma: bool = True
    keys: str = "unit"
    multiplier: str = "weight"
    readout: str = "softmax"
    gain: float = -1.0
    learn_gain: bool = True

    def __post_init__(self) -> None:
        for name in ("C", "gamma", "ridge"):
            value = getattr(self, name)
            if not 0.0 < value < float("inf"):
                raise InvalidInputError(f"expected {name} to be positive, got {value}")
        if not math.isfinite(self.gain):
            raise InvalidInputError(f"expected gain to be finite, got {self.gain}")
        if self.chunk < 1:
            raise InvalidInputError(
                f"expected chunk to be at least 1, got {self.chunk}"
            )
        for name, kind in (
            ("keys", GateKeys),
            ("multiplier", Multiplier),
            ("readout", Readout),
        ):
            names = [member.value for member in kind]
            if getattr(self, name) not in names:
                raise InvalidInputError(
                    f"expected {name} out of {names}, got {getattr(self, name)!r}"
                )


class Projections(nn.Module):
    """The linear maps around any attention: to heads, and back.

    Parameters
    ----------
    n_embd, n_head : int
    """

    def __init__(self, n_embd: int, n_head: int) -> None:
        super().__init__()
        if n_head < 1 or n_embd % n_head:
            raise InvalidInputError(
                f"expected n_embd to be a multiple of n_head, got {n_embd} and {n_head}"
            )
        self.n_head = n_head
        self.into = nn.Linear(n_embd, 3 * n_embd, bias=False)
        self.out = nn.Linear(n_embd, n_embd, bias=False)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Make queries, keys and values for each head.

        Parameters
        ----------
        x : Tensor of shape (B, T, n_embd)

        Returns
        -------
        tuple of Tensor of shape (B, H, T, D)
        """
        B, T, E = x.shape
        parts = self.into(x).view(B, T, 3, self.n_head, E // self.n_head)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        return q, k, v

    def merge(self, y: Tensor) -> Tensor:
        """Join the heads.

        Parameters
        ----------
        y : Tensor of shape (B, H, T, D)

        Returns
        -------
        Tensor of shape (B, T, n_embd)
        """
        joined: Tensor = self.out(y.transpose(1, 2).flatten(2))
        return joined


class _Unit(torch.autograd.Function):
    # k / |k|, with a backward pass in a third of the time of torch's.
    @staticmethod
    def forward(ctx: Any, k: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(k, dim=-1, keepdim=True)
        inverse = norm.clamp_(min=1e-12).reciprocal_()
        unit: Tensor = k * inverse
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, bar: Tensor) -> Tensor:
        unit, inverse = ctx.saved_tensors
        along = (bar * unit).sum(-1, keepdim=True)
        k_bar: Tensor = torch.addcmul(bar, unit, along, value=-1.0).mul_(inverse)
        return k_bar


class PerHead(nn.Module):
    """A number for each head that may be learned: a gain or a log-bandwidth.

    Parameters
    ----------
    n_head : int
    start : float
    learned : bool

    Notes
    -----
    AdamW moves a parameter by about the learning rate a step, whatever its scale.
    These have to cross several units within a training run, so they are stored divided
    by `STEP`.
    """

    STEP = 8.0

    def __init__(self, n_head: int, start: float, *, learned: bool) -> None:
        super().__init__()
        stored = torch.full((n_head,), start / self.STEP)
        self.stored = nn.Parameter(stored, requires_grad=learned)

    def forward(self) -> Tensor:
        """Return the numbers; shape ``(n_head,)``."""
        return self.stored * self.STEP


class SVAttention(nn.Module):
    """Causal multi-head attention with a gate on everything before the chunk.

    The queries of a chunk read a one-class SVM that is fitted on the keys before it:
    keys in reserve are closed, the others are scaled by their multiplier. Within the
    chunk attention is plain and causal.

    Parameters
    ----------
    n_embd, n_head : int
    config : GateConfig

    Attributes
    ----------
    exact : bool
        Whether to use the maintained solver, for audits; False at first.
    report : GateReport or None
        Of the last call; None before the first, and if no prefix was gated.

    Notes
    -----
    With fewer keys than `warm_up` a prefix is read ungated. With the readout ``"rbf"``
    the weight of a key is its multiplier times ``kernel(q, k)``, normalised; keys of
    the own chunk, which no SVM has seen yet, have the multiplier 1.
    """

    def __init__(self, n_embd: int, n_head: int, config: GateConfig) -> None:
        super().__init__()
        self.config = config
        self.projections = Projections(n_embd, n_head)
        self.log_gamma = PerHead(
            n_head, math.log(config.gamma), learned=config.learn_gamma
        )
        self.gain = PerHead(n_head, config.gain, learned=config.learn_gain)
        self.exact = False
        self.report: GateReport | None = None

    def gate_keys(self, k: Tensor) -> Tensor:
        """Return what the SVM is fitted on.

        Parameters
        ----------
        k : Tensor of shape (..., D)

        Returns
        -------
        Tensor of shape (..., D)
        """
        if self.config.keys == GateKeys.UNIT.value:
            return cast(Tensor, _Unit.apply(k))  # type: ignore[no-untyped-call]
        return k

    def scores(
        self, q: Tensor, k: Tensor, gamma: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Make queries and keys whose inner product, plus a bias, is the score.

        Parameters
        ----------
        q, k : Tensor of shape (P, T, D)
        gamma : Tensor of shape (P,)

        Returns
        -------
        q, k : Tensor of shape (P, T, D)
        bias : Tensor of shape (P, T)
            Up to a term of the query alone, ``-gamma * squared_distance`` or ``q . k /
            sqrt(D)``.
        """
        if self.config.readout == Readout.SOFTMAX.value:
            return q * q.shape[-1] ** -0.5, k, k.new_zeros(k.shape[:2])
        q, k = self.gate_keys(q), self.gate_keys(k)
        bias = -gamma.to(k.dtype)[:, None] * (k * k).sum(-1)
        return q * (2.0 * gamma.to(q.dtype))[:, None, None], k, bias

    def forward(self, x: Tensor) -> Tensor:
        """Attend.

        Parameters
        ----------
        x : Tensor of shape (B, T, n_embd)

        Returns
        -------
        Tensor of shape (B, T, n_embd)
        """
        B, T, _ = x.shape
        H, chunk = self.projections.n_head, self.config.chunk
        q, k, v = (part.reshape(B * H, T, -1) for part in self.projections.heads(x))
        gamma = self.log_gamma().exp().expand(B, H).reshape(-1)
        bias = self._log_multipliers(self.gate_keys(k), gamma, chunk_ends(T, chunk))
        bias = bias + self.gain().repeat(B)[:, None, None]
        q, k, key_bias = self.scores(q, k, gamma)
        rbf = self.config.readout == Readout.RBF.value
        if rbf:
            bias = bias + key_bias[:, None, : bias.shape[2]]
        y = gated_attention(q, k, v, bias, chunk, key_bias if rbf else None)
        return self.projections.merge(y.view(B, H, T, -1))

    def _log_multipliers(
        self, keys: Tensor, gamma: Tensor, ends: tuple[int, ...]
    ) -> Tensor:
        # (P, n_prefixes, n), 0 in prefixes that are too short to be gated.
        config = self.config
        gated = tuple(end for end in ends if end >= warm_up(config.C))
        self.report = None
        n = ends[-1] if ends else 0
        if not gated:
            return keys.new_zeros(len(keys), len(ends), n)
        solve = exact_gate if self.exact else batched_gate
        gate = solve(keys, gamma, gated, C=config.C, ridge=config.ridge)
        self.report = gate.report
        bias = log_multipliers(gate, config).to(keys.dtype)
        short = keys.new_zeros(len(keys), len(ends) - len(gated), n)
        return torch.cat([short, bias], dim=1)


def log_multipliers(gate: Gate, config: GateConfig) -> Tensor:
    """Logarithm of each key's multiplier.

    Parameters
    ----------
    gate : Gate
    config : GateConfig

    Returns
    -------
    Tensor of the shape of ``gate.alpha``, float64
        Minus infinity for reserve keys, 0 throughout an ungated prefix.
    """
    opened = gate.alpha > 0.0
    logs = torch.where(opened, gate.alpha, 1.0).log()
    if config.multiplier == Multiplier.SHARE.value:
        logs = logs - torch.tensor(config.C, dtype=logs.dtype).log()
    elif config.multiplier == Multiplier.WEIGHT.value:
        rho = torch.where(gate.ungated, 1.0, gate.rho)
        logs = logs - rho.log()[..., None]
    logs = torch.where(opened, logs, -torch.inf)
    return torch.where(gate.ungated[..., None], 0.0, logs)
