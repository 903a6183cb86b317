"""Reading a gated prefix and a plain causal chunk by one softmax, with its gradient.

Queries of one chunk see the keys before it, each with a bias (the logarithm of its
multiplier; minus infinity closes it), and the keys of their own chunk up to themselves.
Only open keys are gathered, so a sparse gate makes the layer cheaper.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: With a larger share of open keys than this, gathering costs more than it saves.
_DENSE = 0.7


def chunk_ends(n_tokens: int, chunk: int) -> tuple[int, ...]:
    """Lengths of the prefixes before the second, third, ... chunk.

    Parameters
    ----------
    n_tokens, chunk : int

    Returns
    -------
    tuple of int
    """
    return tuple(range(chunk, n_tokens, chunk))


def gated_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    chunk: int,
    own_bias: Tensor | None = None,
) -> Tensor:
    """Attend to the open keys of the prefix and causally within the chunk.

    Parameters
    ----------
    q, k, v : Tensor of shape (P, T, D)
        Scores are ``q . k`` plus a bias: scale q before.
    bias : Tensor of shape (P, n_prefixes, n)
        For each prefix of `chunk_ends` and each key; minus infinity closes a key.
    chunk : int
    own_bias : Tensor of shape (P, T), optional
        Bias of a key for queries of its own chunk; 0 if not given.

    Returns
    -------
    Tensor of shape (P, T, D)
    """
    out = _GatedAttention.apply(  # type: ignore[no-untyped-call]
        q, k, v, bias, chunk, own_bias
    )
    return cast(Tensor, out)


class _GatedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor,
        chunk: int,
        own_bias: Tensor | None,
    ) -> Tensor:
        T = q.shape[1]
        out = q.new_empty(q.shape)
        places, weights = [], []
        for number, start in enumerate(range(0, T, chunk)):
            end = min(start + chunk, T)
            place = _open_places(bias[:, number - 1, :start]) if start else None
            scores = torch.bmm(
                q[:, start:end], _take(k, place, start, end).transpose(1, 2)
            )
            n_prefix = scores.shape[2] - (end - start)
            if n_prefix:
                prefix = bias[:, number - 1, :start]
                if place is not None:
                    prefix = prefix.gather(1, place)
                scores[:, :, :n_prefix] += prefix[:, None]
            own = scores[:, :, n_prefix:]
            if own_bias is not None:
                own += own_bias[:, None, start:end]
            own += _future(end - start, q)
            P = torch.softmax(scores, -1, out=scores)
            torch.bmm(P, _take(v, place, start, end), out=out[:, start:end])
            places.append(place)
            weights.append(P)
        ctx.chunk, ctx.places = chunk, places
        ctx.save_for_backward(q, k, v, bias, *weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out_bar: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, *weights = ctx.saved_tensors
        q_bar, k_bar, v_bar = (part.new_zeros(part.shape) for part in (q, k, v))
        bias_bar = torch.zeros_like(bias)
        own_bar = q.new_zeros(q.shape[:2])
        out_bar = out_bar.contiguous()
        for number, (P, place) in enumerate(zip(weights, ctx.places, strict=True)):
            start = number * ctx.chunk
            end = start + P.shape[1]
            bar = out_bar[:, start:end]
            P_bar = torch.bmm(bar, _take(v, place, start, end).transpose(1, 2))
            S = torch.ops.aten._softmax_backward_data(P_bar, P, -1, P.dtype)
            torch.bmm(S, _take(k, place, start, end), out=q_bar[:, start:end])
            _give(
                k_bar, place, start, end, torch.bmm(S.transpose(1, 2), q[:, start:end])
            )
            _give(v_bar, place, start, end, torch.bmm(P.transpose(1, 2), bar))
            sums = S.sum(1)
            n_prefix = P.shape[2] - P.shape[1]
            own_bar[:, start:end] = sums[:, n_prefix:]
            if place is not None:
                bias_bar[:, number - 1].scatter_(1, place, sums[:, :n_prefix])
            elif n_prefix:
                bias_bar[:, number - 1, :start] = sums[:, :n_prefix]
        own = own_bar if ctx.needs_input_grad[5] else None
        return q_bar, k_bar, v_bar, bias_bar, None, own


def _open_places(bias: Tensor) -> Tensor | None:
    # The open keys of each problem, and closed ones to fill up; None for all keys.
    opened = bias > -torch.inf
    most = int(opened.sum(-1).max()) if opened.numel() else 0
    if most > _DENSE * bias.shape[1]:
        return None
    order = opened.to(torch.uint8).sort(dim=-1, descending=True, stable=True).indices
    return order[:, :most]


def _take(x: Tensor, place: Tensor | None, start: int, end: int) -> Tensor:
    # Rows of the open keys of the prefix, then those of the chunk.
    if place is None:
        return x[:, :end]
    P, T, D = x.shape
    own = torch.arange(start, end, device=x.device).expand(P, -1)
    rows = _flat(torch.cat([place, own], dim=1), T)
    return x.reshape(P * T, D)[rows].view(P, -1, D)


def _give(
    total: Tensor, place: Tensor | None, start: int, end: int, part: Tensor
) -> None:
    # Add to the rows that `_take` took; no row is taken twice.
    if place is None:
        total[:, :end] += part
        return
    P, T, D = total.shape
    n_prefix = place.shape[1]
    total[:, start:end] += part[:, n_prefix:]
    rows = _flat(place, T)
    flat = total.view(P * T, D)
    flat[rows] += part[:, :n_prefix].reshape(-1, D)


def _flat(place: Tensor, T: int) -> Tensor:
    first = torch.arange(0, len(place) * T, T, device=place.device)
    return (place + first[:, None]).reshape(-1)


def _future(length: int, like: Tensor) -> Tensor:
    return torch.full(
        (length, length), -torch.inf, dtype=like.dtype, device=like.device
    ).triu_(1)
