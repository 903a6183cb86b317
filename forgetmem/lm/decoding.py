"""`Decoder`: reads a text chunk by chunk, or token by token, with exact gates."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from forgetmem.errors import InvalidInputError
from forgetmem.lm.attention import SVAttention
from forgetmem.lm.context import HeadContext
from forgetmem.lm.model import Block, HybridLM


@dataclass(frozen=True)
class DecodeReport:
    """The state that a decoder holds.

    Parameters
    ----------
    tokens_read : int
    keys_held : int
        Keys over all layers and heads, those of the open chunk included.
    keys_read : int
        What a cache that drops nothing holds.
    certified : bool
        Whether every dropped key is known to be in reserve still, so that all outputs
        are those of a decoder that drops nothing, bit for bit.
    expired : int
        Heads for which it is not.
    """

    tokens_read: int
    keys_held: int
    keys_read: int
    certified: bool
    expired: int


class Decoder:
    """Reads tokens with frozen, gated prefixes.

    Parameters
    ----------
    model : HybridLM
        With the attention ``"sv"``; it is not trained meanwhile.
    drop : bool
        Whether reserve keys are dropped when a chunk is closed.
    margin : float
        Keys are dropped only if their slack is more than this share of rho.

    Attributes
    ----------
    heads : list of list of HeadContext
        By layer and head.
    position : int
        Of the next token.

    Raises
    ------
    InvalidInputError
        If the model has another attention.
    """

    def __init__(
        self, model: HybridLM, *, drop: bool = False, margin: float = 0.0
    ) -> None:
        if model.config.attention != "sv":
            raise InvalidInputError(
                f"expected a model with the attention 'sv', got one with "
                f"{model.config.attention!r}"
            )
        self.model, self.drop, self.margin = model, drop, margin
        self.position = 0
        self.tail: list[int] = []
        self._own: list[tuple[Tensor, Tensor] | None] = [None] * len(model.blocks)
        self.heads: list[list[HeadContext]] = []
        for layer in self._layers():
            gammas = layer.log_gamma().detach().exp().double().tolist()
            self.heads.append([HeadContext(gamma, layer.config) for gamma in gammas])

    def _layers(self) -> list[SVAttention]:
        found = []
        for block in self.model.blocks:
            assert isinstance(block, Block) and isinstance(block.attention, SVAttention)
            found.append(block.attention)
        return found

    @property
    def open_length(self) -> int:
        """Tokens in the chunk that is not closed yet."""
        first = self._own[0]
        return 0 if first is None else first[0].shape[1]

    @torch.no_grad()
    def extend(self, tokens: Tensor, owner: int = 0) -> Tensor:
        """Read tokens; a chunk that gets full is closed.

        Parameters
        ----------
        tokens : Tensor of shape (T,), int64
        owner : int
            Number of the span they belong to.

        Returns
        -------
        Tensor of shape (T, vocab_size)
            Scores of the next token after each.

        Raises
        ------
        InvalidInputError
            If there is no position left for a token; nothing was read then.
        """
        most = self.model.config.block_size
        if self.position + len(tokens) > most:
            raise InvalidInputError(
                f"expected at most {most - self.position} more tokens in a context of "
                f"{most}, got {len(tokens)}"
            )
        chunk = self.model.config.gate.chunk
        parts, start = [], 0
        while start < len(tokens):
            end = min(start + chunk - self.open_length, len(tokens))
            parts.append(self._step(tokens[start:end]))
            if self.open_length == chunk:
                self.close(owner)
            start = end
        if not parts:
            return torch.zeros(0, self.model.config.vocab_size)
        return torch.cat(parts)

    def _step(self, tokens: Tensor) -> Tensor:
        model = self.model
        mix = model.config.mix
        before = torch.tensor([self.tail], dtype=torch.int64) if self.tail else None
        x = model.embed(tokens[None], self.position, before)
        for number, (block, layer) in enumerate(
            zip(model.blocks, self._layers(), strict=True)
        ):
            assert isinstance(block, Block)
            q, k, v = (
                part[0] for part in layer.projections.heads(block.norm_attention(x))
            )
            own = self._own[number]
            if own is not None:
                k, v = torch.cat([own[0], k], dim=1), torch.cat([own[1], v], dim=1)
            self._own[number] = (k, v)
            heads = zip(self.heads[number], q, k, v, layer.gain(), strict=True)
            y = torch.stack([_read(layer, *head) for head in heads])
            x = x + layer.projections.merge(y[None])
            x = x + block.mlp(block.norm_mlp(x))
        self.position += len(tokens)
        self.tail = (self.tail + tokens.tolist())[-mix:] if mix else []
        scores: Tensor = model.logits(x)[0]
        return scores

    def close(self, owner: int = 0) -> None:
        """Freeze the open chunk: its keys join the gated prefix.

        Parameters
        ----------
        owner : int
            Number of the span it belongs to.
        """
        for number, layer in enumerate(self._layers()):
            own = self._own[number]
            if own is None:
                continue
            gate_keys = layer.gate_keys(own[0])
            for head, gate_key, k, v in zip(
                self.heads[number], gate_keys, *own, strict=True
            ):
                head.learn(gate_key, k, v, owner)
                if self.drop:
                    head.drop_reserve(self.margin)
            self._own[number] = None

    def copy(self) -> Decoder:
        """Make a decoder that goes on from here, on its own.

        Returns
        -------
        Decoder
        """
        other = copy.copy(self)
        other.tail, other._own = list(self.tail), list(self._own)
        other.heads = [copy.deepcopy(heads) for heads in self.heads]
        return other

    def report(self) -> DecodeReport:
        """Tell what is held.

        Returns
        -------
        DecodeReport
        """
        every = [head for heads in self.heads for head in heads]
        expired = sum(not head.horizon.valid for head in every)
        held = sum(len(head) for head in every) + self.open_length * len(every)
        return DecodeReport(
            tokens_read=self.position,
            keys_held=held,
            keys_read=self.position * len(every),
            certified=expired == 0,
            expired=expired,
        )

    def digest(self) -> str:
        """Hash everything that later outputs depend on, but the weights.

        Returns
        -------
        str
            SHA-256, as hex.
        """
        state = hashlib.sha256()
        state.update(repr((self.position, self.tail)).encode())
        for heads, own in zip(self.heads, self._own, strict=True):
            for head in heads:
                parts = (head.keys, head.values)
                state.update(b"".join(x.cpu().numpy().tobytes() for x in parts))
                state.update(head.svm.dual_coef_.tobytes())
                state.update(head.owners.tobytes())
            for part in own or ():
                state.update(part.cpu().numpy().tobytes())
        return state.hexdigest()


def _read(
    layer: SVAttention,
    head: HeadContext,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gain: Tensor,
) -> Tensor:
    # The last len(q) positions of the open chunk read the prefix and the chunk.
    rows, logs = head.open_rows()
    gamma = torch.tensor([head.svm.gamma], dtype=k.dtype)
    n_open = len(rows)
    if n_open:
        places = torch.from_numpy(rows)
        k = torch.cat([head.keys[places], k])
        v = torch.cat([head.values[places], v])
    queries, keys, bias = layer.scores(q[None], k[None], gamma)
    scores = (queries @ keys.transpose(1, 2) + bias[:, None])[0]
    scores[:, :n_open] += torch.from_numpy(logs).to(scores.dtype) + gain
    T, own = len(q), len(k) - n_open
    places = torch.arange(own)
    future = places > (own - T + torch.arange(T))[:, None]
    scores[:, n_open:] = scores[:, n_open:].masked_fill(future, -torch.inf)
    return scores.softmax(-1) @ v
