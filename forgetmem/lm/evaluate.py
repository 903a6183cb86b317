"""Bits per character of a model, and how well it recalls facts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from forgetmem.errors import InvalidInputError
from forgetmem.lm.data import Bytes, RecallBatches
from forgetmem.lm.model import HybridLM


@dataclass(frozen=True)
class Evaluation:
    """What `bits_per_character` measures.

    Parameters
    ----------
    bpc : float
        Bits per character over all positions.
    late_bpc : float
        Over positions from `late` on.
    support : float or None
        Mean share of open prefix keys; None without a gate.
    open_keys : float or None
        Mean number of open prefix keys.
    by_layer : tuple of float
        The share for each layer.
    n_tokens : int
    """

    bpc: float
    late_bpc: float
    support: float | None
    open_keys: float | None
    by_layer: tuple[float, ...]
    n_tokens: int


@torch.no_grad()
def bits_per_character(
    model: HybridLM,
    data: Bytes,
    *,
    n_windows: int = 64,
    batch_size: int = 16,
    late: int | None = None,
) -> Evaluation:
    """Measure a model on evenly spaced windows of a text.

    Parameters
    ----------
    model : HybridLM
    data : ndarray of uint8
    n_windows : int
        Windows of `block_size` tokens; fewer if the text is shorter.
    batch_size : int
    late : int, optional
        First of the late positions; three quarters of the block if not given.

    Returns
    -------
    Evaluation

    Raises
    ------
    InvalidInputError
        If the text is shorter than one window.
    """
    T = model.config.block_size
    most = (len(data) - 1) // T
    if most < 1:
        raise InvalidInputError(f"expected more than {T} bytes, got {len(data)}")
    late = 3 * T // 4 if late is None else late
    places = np.linspace(0, most - 1, min(n_windows, most)).astype(np.int64) * T
    device = model.tokens.weight.device
    total = np.zeros(T)
    shares, counts, weights = [], [], []
    was_training = model.training
    model.eval()
    for start in range(0, len(places), batch_size):
        windows = places[start : start + batch_size, None] + np.arange(T + 1)
        rows = torch.from_numpy(data[windows].astype(np.int64)).to(device)
        loss = functional.cross_entropy(
            model(rows[:, :-1]).transpose(1, 2), rows[:, 1:], reduction="none"
        )
        total += loss.double().sum(0).cpu().numpy()
        reports = model.gate_reports()
        if reports:
            shares.append([report.support for report in reports])
            counts.append(np.mean([report.open_keys for report in reports]))
            weights.append(len(rows))
    model.train(was_training)
    bits = total / (len(places) * math.log(2.0))
    layers = np.average(shares, axis=0, weights=weights) if shares else np.zeros(0)
    return Evaluation(
        bpc=float(bits.mean()),
        late_bpc=float(bits[late:].mean()),
        support=float(layers.mean()) if shares else None,
        open_keys=float(np.average(counts, weights=weights)) if shares else None,
        by_layer=tuple(layers.tolist()),
        n_tokens=len(places) * T,
    )


@torch.no_grad()
def recall_at_1(model: HybridLM, batches: RecallBatches, n_batches: int = 4) -> float:
    """Share of the questions whose value is the model's first choice.

    Parameters
    ----------
    model : HybridLM
    batches : RecallBatches
    n_batches : int
        Counted from a step that no training reaches.

    Returns
    -------
    float
    """
    right = asked = 0
    device = model.tokens.weight.device
    for number in range(n_batches):
        inputs, targets = batches.at(2**31 + number)
        chosen = model(inputs.to(device)).argmax(-1).cpu()
        known = targets >= 0
        right += int((chosen == targets)[known].sum())
        asked += int(known.sum())
    return right / asked
