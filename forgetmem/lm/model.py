"""`HybridLM`: a small decoder over bytes with any attention in its slot."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from forgetmem.errors import InvalidInputError
from forgetmem.lm.attention import GateConfig, SVAttention
from forgetmem.lm.baselines import (
    Control,
    ControlAttention,
    DeltaNet,
    LinearAttention,
    SlidingWindow,
    SoftmaxAttention,
)
from forgetmem.lm.gate import GateReport


class AttentionKind(enum.Enum):
    """What can stand in the attention slot of a block."""

    SV = "sv"
    SOFTMAX = "softmax"
    UNFUSED = "unfused"
    WINDOW = "window"
    LINEAR = "linear"
    DELTA = "delta"
    LOCAL = "local"
    UNIFORM = "uniform"
    RECENT = "recent"


@dataclass(frozen=True)
class HybridLMConfig:
    """Settings of a `HybridLM`.

    Parameters
    ----------
    vocab_size, n_layer, n_head, n_embd : int
    block_size : int
        Most tokens in a context.
    attention : str
        The value of an `AttentionKind`.
    window : int
        Tokens that the sliding window sees; the recency control sees this many keys
        before the chunk.
    mix : int
        So many previous tokens are mixed into each embedding with learned weights. 0
        for none; 2 lets small models leave bigram statistics early.
    mix_start : float
        Initial value of these weights; with 0.5 recall of facts is learned at once.
    sinusoids : bool
        Whether the learned positions start from sinusoids instead of noise.
    gate : GateConfig
        Of ``"sv"``; its chunk and gain are also those of the controls.
    """

    vocab_size: int = 256
    n_layer: int = 4
    n_head: int = 4
    n_embd: int = 256
    block_size: int = 256
    attention: str = "sv"
    window: int = 128
    mix: int = 0
    mix_start: float = 0.0
    sinusoids: bool = False
    gate: GateConfig = field(default_factory=GateConfig)

    def __post_init__(self) -> None:
        kinds = [kind.value for kind in AttentionKind]
        if self.attention not in kinds:
            raise InvalidInputError(
                f"expected attention out of {kinds}, got {self.attention!r}"
            )
        for name in ("vocab_size", "n_layer", "n_head", "n_embd", "block_size"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"expected {name} to be at least 1")

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values.

        Returns
        -------
        dict
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, settings: dict[str, Any]) -> HybridLMConfig:
        """Undo `as_dict`.

        Parameters
        ----------
        settings : dict

        Returns
        -------
        HybridLMConfig
        """
        return cls(**{**settings, "gate": GateConfig(**settings["gate"])})


def build_attention(config: HybridLMConfig) -> nn.Module:
    """Make the attention that `config` names.

    Parameters
    ----------
    config : HybridLMConfig

    Returns
    -------
    Module
        From ``(B, T, n_embd)`` to the same shape.
    """
    E, H, chunk = config.n_embd, config.n_head, config.gate.chunk
    kind = AttentionKind(config.attention)
    makers: dict[AttentionKind, Callable[[], nn.Module]] = {
        AttentionKind.SV: lambda: SVAttention(E, H, config.gate),
        AttentionKind.SOFTMAX: lambda: SoftmaxAttention(E, H),
        AttentionKind.UNFUSED: lambda: SoftmaxAttention(E, H, fused=False),
        AttentionKind.WINDOW: lambda: SlidingWindow(E, H, config.window),
        AttentionKind.LINEAR: lambda: LinearAttention(E, H, chunk=chunk),
        AttentionKind.DELTA: lambda: DeltaNet(E, H, chunk=chunk),
    }
    if kind in makers:
        return makers[kind]()
    control = Control(kind.value).value
    return ControlAttention(E, H, control, config.gate, recent=config.window)


class Block(nn.Module):
    """Pre-norm attention and a two-layer perceptron, each with a residual connection.

    Parameters
    ----------
    config : HybridLMConfig
    """

    def __init__(self, config: HybridLMConfig) -> None:
        super().__init__()
        E = config.n_embd
        self.norm_attention = nn.LayerNorm(E)
        self.attention = build_attention(config)
        self.norm_mlp = nn.LayerNorm(E)
        self.mlp = nn.Sequential(
            nn.Linear(E, 4 * E, bias=False), nn.GELU(), nn.Linear(4 * E, E, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform; ``(B, T, n_embd)`` to the same shape."""
        x = x + self.attention(self.norm_attention(x))
        y: Tensor = x + self.mlp(self.norm_mlp(x))
        return y


class HybridLM(nn.Module):
    """A decoder with learned positions and an output layer tied to the embedding.

    Parameters
    ----------
    config : HybridLMConfig
    """

    def __init__(self, config: HybridLMConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocab_size, config.n_embd)
        self.positions = nn.Embedding(config.block_size, config.n_embd)
        start = torch.full((config.mix, config.n_embd), config.mix_start)
        self.mix = nn.Parameter(start)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(config.n_embd)
        self.apply(_initialise)
        scale = 0.02 / math.sqrt(2 * config.n_layer)
        for name, weight in self.named_parameters():
            if name.endswith(("projections.out.weight", "mlp.2.weight")):
                nn.init.normal_(weight, std=scale)
        if config.sinusoids:
            with torch.no_grad():
                self.positions.weight.copy_(_sinusoids(config))

    @property
    def n_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def embed(
        self, tokens: Tensor, first: int = 0, before: Tensor | None = None
    ) -> Tensor:
        """Embeddings of tokens at their positions.

        Parameters
        ----------
        tokens : Tensor of shape (B, T), int64
        first : int
            Position of the first one.
        before : Tensor of shape (B, mix), int64, optional
            The tokens before it; without them mixing starts from nothing.

        Returns
        -------
        Tensor of shape (B, T, n_embd)
        """
        T = tokens.shape[1]
        if first + T > self.config.block_size:
            raise InvalidInputError(
                f"expected at most {self.config.block_size} tokens in a context, got "
                f"{first + T}"
            )
        x = self.tokens(tokens)
        if self.config.mix:
            n_before = 0 if before is None else before.shape[1]
            earlier = x if before is None else torch.cat([self.tokens(before), x], 1)
            mixed = x
            for lag in range(1, self.config.mix + 1):
                moved = functional.pad(earlier, (0, 0, lag, 0))[:, n_before:][:, :T]
                mixed = mixed + self.mix[lag - 1] * moved
            x = mixed
        y: Tensor = x + self.positions.weight[first : first + T]
        return y

    def logits(self, x: Tensor) -> Tensor:
        """Scores of the next token.

        Parameters
        ----------
        x : Tensor of shape (B, T, n_embd)
            What the last block returned.

        Returns
        -------
        Tensor of shape (B, T, vocab_size)
        """
        return functional.linear(self.norm(x), self.tokens.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Predict each next token.

        Parameters
        ----------
        tokens : Tensor of shape (B, T), int64

        Returns
        -------
        Tensor of shape (B, T, vocab_size)

        Raises
        ------
        InvalidInputError
            If there are more tokens than `block_size`.
        """
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.logits(x)

    def gate_reports(self) -> list[GateReport]:
        """Collect the reports of the last call from the layers that have a gate.

        Returns
        -------
        list of GateReport
        """
        found = []
        for module in self.modules():
            if isinstance(module, SVAttention) and module.report is not None:
                found.append(module.report)
        return found

    @torch.no_grad()
    def generate(
        self,
        tokens: Tensor,
        n_new: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Continue a text by sampling; the context is cut to `block_size`.

        Parameters
        ----------
        tokens : Tensor of shape (B, T), int64
        n_new : int
        temperature : float
            0 takes the most likely token each time.
        top_k : int, optional
            Sample from so many tokens only.
        generator : Generator, optional

        Returns
        -------
        Tensor of shape (B, T + n_new), int64
        """
        for _ in range(n_new):
            scores = self(tokens[:, -self.config.block_size :])[:, -1]
            chosen = sample(scores, temperature, top_k, generator)
            tokens = torch.cat([tokens, chosen[:, None]], dim=1)
        return tokens


def sample(
    scores: Tensor,
    temperature: float,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw one token for each row.

    Parameters
    ----------
    scores : Tensor of shape (B, vocab_size)
    temperature : float
        0 takes the largest score.
    top_k : int, optional
    generator : Generator, optional

    Returns
    -------
    Tensor of shape (B,), int64
    """
    if temperature < 0.0:
        raise InvalidInputError(f"expected a temperature from 0 on, got {temperature}")
    if temperature == 0.0:
        return scores.argmax(-1)
    scores = scores / temperature
    if top_k is not None:
        least = scores.topk(min(top_k, scores.shape[-1])).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    return torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def _sinusoids(config: HybridLMConfig) -> Tensor:
    places = torch.arange(config.block_size)[:, None].float()
    pairs = torch.arange(0, config.n_embd, 2).float() / config.n_embd
    angles = places * torch.exp(-math.log(10_000.0) * pairs)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    return 0.02 * math.sqrt(2.0) * waves[:, : config.n_embd]
