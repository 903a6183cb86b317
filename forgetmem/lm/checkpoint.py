"""Checkpoints: a folder with the weights and the optimiser's state, and its JSON."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from forgetmem.errors import InvalidInputError
from forgetmem.lm.model import HybridLM, HybridLMConfig

_WEIGHTS, _MOMENTS, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
#: So many of the last checkpoints are kept.
_KEPT = 2


def save_checkpoint(
    folder: Path,
    model: HybridLM,
    optimizer: torch.optim.Optimizer | None,
    state: dict[str, Any],
) -> Path:
    """Write a checkpoint beside the others; older ones than the last two go.

    Parameters
    ----------
    folder : Path
        Of the run.
    model : HybridLM
    optimizer : Optimizer, optional
        Needed to resume.
    state : dict
        Plain values; ``state["step"]`` names the checkpoint.

    Returns
    -------
    Path
        Of the checkpoint. It is there as a whole or not at all.
    """
    final = folder / f"step-{state['step']:08d}"
    draft = folder / f".{final.name}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    save_file(_contiguous(model.state_dict()), draft / _WEIGHTS)
    if optimizer is not None:
        save_file(_moments(model, optimizer), draft / _MOMENTS)
    text = json.dumps({"model": model.config.as_dict(), **state}, indent=1)
    (draft / _STATE).write_text(text + "\n", encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    os.replace(draft, final)  # noqa: PTH105
    for old in checkpoints(folder)[:-_KEPT]:
        shutil.rmtree(old)
    return final


def checkpoints(folder: str | Path) -> list[Path]:
    """List the checkpoints of a run, oldest first.

    Parameters
    ----------
    folder : str or Path

    Returns
    -------
    list of Path
    """
    return sorted(Path(folder).glob("step-*"))


def load_model(path: str | Path) -> tuple[HybridLM, dict[str, Any]]:
    """Read the model of a checkpoint, or of the last one of a run.

    Parameters
    ----------
    path : str or Path
        Of a checkpoint or of a run.

    Returns
    -------
    model : HybridLM
    state : dict
        As given to `save_checkpoint`.

    Raises
    ------
    InvalidInputError
        If there is no checkpoint, or it is damaged.
    """
    place = _checkpoint(Path(path))
    try:
        state = json.loads((place / _STATE).read_text(encoding="utf-8"))
        model = HybridLM(HybridLMConfig.from_dict(state.pop("model")))
        model.load_state_dict(load_file(place / _WEIGHTS))
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise InvalidInputError(
            f"cannot read the checkpoint {place}: {error}"
        ) from error
    return model, state


def load_moments(
    path: str | Path, model: HybridLM, optimizer: torch.optim.Optimizer
) -> None:
    """Put the optimiser's state of a checkpoint into `optimizer`.

    Parameters
    ----------
    path : str or Path
    model : HybridLM
    optimizer : Optimizer
        Over the parameters of `model`.

    Raises
    ------
    InvalidInputError
        If the checkpoint has no such state, or it is damaged.
    """
    place = _checkpoint(Path(path))
    try:
        stored = load_file(place / _MOMENTS)
    except (OSError, SafetensorError) as error:
        raise InvalidInputError(f"cannot resume from {place}: {error}") from error
    for name, parameter in model.named_parameters():
        mine = {
            key.rsplit("/", 1)[1]: value
            for key, value in stored.items()
            if key.rsplit("/", 1)[0] == name
        }
        if mine:
            optimizer.state[parameter] = mine


def _checkpoint(path: Path) -> Path:
    if (path / _STATE).exists():
        return path
    found = checkpoints(path)
    if not found:
        raise InvalidInputError(f"no checkpoint in {path}")
    return found[-1]


def _moments(model: HybridLM, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    out = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            out[f"{name}/{key}"] = value
    return _contiguous(out)


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.contiguous() for name, value in tensors.items()}
