"""Train a `HybridLM` on bytes: ``python -m forgetmem.lm.train --data text.xz``."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.nn import functional

from forgetmem.errors import DivergedError, ForgetmemError, InvalidInputError
from forgetmem.lm.attention import GateConfig
from forgetmem.lm.checkpoint import (
    checkpoints,
    load_model,
    load_moments,
    save_checkpoint,
)
from forgetmem.lm.data import ByteBatches, Bytes, read_bytes, split_tail
from forgetmem.lm.evaluate import bits_per_character
from forgetmem.lm.model import HybridLM, HybridLMConfig
from forgetmem.lm.plot import save_plot

#: Above this share of open keys a gate hardly selects.
SATURATED = 0.9


class Batches(Protocol):
    """A source of batches: a function of the number of the step."""

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Make inputs and targets; a target of -1 is ignored."""
        ...


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run.

    Parameters
    ----------
    steps : int
    batch_size : int
    lr : float
        Largest learning rate of AdamW; falls to a tenth of it along a cosine.
    warmup : int
        Steps over which the rate rises from 0.
    beta1, beta2, decay, clip : float
        Of AdamW, and the largest norm of a gradient. Vectors and embeddings of
        positions are not decayed.
    seed : int
        Of the initial weights and of the batches.
    eval_every, save_every, log_every : int
        In steps.
    eval_windows : int
        Windows of the held-out text that an evaluation looks at.
    """

    steps: int = 1000
    batch_size: int = 16
    lr: float = 1e-3
    warmup: int = 50
    beta1: float = 0.9
    beta2: float = 0.95
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 0
    eval_every: int = 250
    save_every: int = 250
    log_every: int = 10
    eval_windows: int = 64

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "eval_every", "save_every", "log_every"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"expected {name} to be at least 1")
        if not 0.0 < self.lr < math.inf:
            raise InvalidInputError(f"expected lr to be positive, got {self.lr}")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step.

        Parameters
        ----------
        step : int

        Returns
        -------
        float
        """
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.lr * (0.1 + 0.9 * 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0))))


class Trainer:
    """Trains a model, step by step, and can go on where it stopped.

    Parameters
    ----------
    model_config : HybridLMConfig
    config : TrainConfig
    batches : Batches
    held_out : ndarray of uint8, optional
        Text to measure bits per character on.
    folder : Path, optional
        For checkpoints, ``log.jsonl`` and ``run.svg``; without it nothing is written.
    resume : bool
        Whether to continue from the last checkpoint of `folder`.

    Attributes
    ----------
    model : HybridLM
    step : int
        Steps done.
    log : list of dict
        What ``log.jsonl`` holds.

    Notes
    -----
    With the same number of threads, an interrupted run that is resumed has the same
    losses, bit for bit, as one that was not.
    """

    def __init__(
        self,
        model_config: HybridLMConfig,
        config: TrainConfig,
        batches: Batches,
        held_out: Bytes | None = None,
        *,
        folder: Path | None = None,
        resume: bool = False,
    ) -> None:
        self.config, self.batches = config, batches
        self.held_out, self.folder = held_out, folder
        self.step = 0
        self.log: list[dict[str, Any]] = []
        if resume and folder is not None and checkpoints(folder):
            self.model, state = load_model(folder)
            self._check_resumed(model_config, state)
            self.optimizer = self._optimizer()
            load_moments(folder, self.model, self.optimizer)
            self.step = state["step"]
            self.log = _read_log(folder, self.step)
        else:
            torch.manual_seed(config.seed)
            self.model = HybridLM(model_config)
            self.optimizer = self._optimizer()

    def _check_resumed(self, config: HybridLMConfig, state: dict[str, Any]) -> None:
        if self.model.config != config:
            raise InvalidInputError(
                "the checkpoint was written with other model settings; leave them out "
                "or use a new folder"
            )
        before = {**state["train"], "steps": None}
        if before != {**asdict(self.config), "steps": None}:
            raise InvalidInputError(
                "the checkpoint was written with other training settings; leave them "
                "out or use a new folder"
            )

    def _optimizer(self) -> torch.optim.AdamW:
        config = self.config
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        decayed = [p for n, p in named if p.ndim > 1 and n != "positions.weight"]
        plain = [p for n, p in named if not (p.ndim > 1 and n != "positions.weight")]
        groups = [
            {"params": decayed, "weight_decay": config.decay},
            {"params": plain, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            groups, lr=config.lr, betas=(config.beta1, config.beta2)
        )

    def run(self, console: Console | None = None) -> None:
        """Train to the end.

        Parameters
        ----------
        console : Console, optional
            Shows a progress bar.

        Raises
        ------
        DivergedError
            If a loss is not finite; the weights are those of the last step.
        """
        started, tokens = time.perf_counter(), 0
        with _progress(console, self.config.steps, self.step) as show:
            while self.step < self.config.steps:
                loss, count = self.advance()
                tokens += count
                speed = tokens / (time.perf_counter() - started)
                bits = loss / math.log(2.0)
                line: dict[str, Any] = {"step": self.step, "bpc": bits}
                self._measure(line)
                last = self.step == self.config.steps
                if last or self.step % self.config.log_every == 0 or len(line) > 2:
                    self._write(line, speed)
                show(self.step, f"{bits:.3f} bits {speed:,.0f} tokens/s", line)
                if last or self.step % self.config.save_every == 0:
                    self.save()
        if self.folder is not None:
            save_plot(self.log, self.folder / "run.svg")

    def advance(self) -> tuple[float, int]:
        """Do one step.

        Returns
        -------
        loss : float
            Before the step, in nats per token.
        count : int
            Tokens in the batch.

        Raises
        ------
        DivergedError
            If the loss is not finite; nothing is changed then.
        """
        inputs, targets = self.batches.at(self.step)
        device = self.model.tokens.weight.device
        logits = self.model(inputs.to(device))
        loss = functional.cross_entropy(
            logits.flatten(0, 1), targets.to(device).flatten(), ignore_index=-1
        )
        value = float(loss.detach())
        if not math.isfinite(value):
            kept = checkpoints(self.folder)[-1:] if self.folder is not None else []
            raise DivergedError(self.step, str(kept[0]) if kept else "there is none")
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.rate(self.step)
        self.optimizer.step()
        self.step += 1
        return value, inputs.numel()

    def _measure(self, line: dict[str, Any]) -> None:
        reports = self.model.gate_reports()
        due = self.step % self.config.eval_every == 0
        if self.held_out is not None and (due or self.step == self.config.steps):
            windows = self.config.eval_windows
            found = bits_per_character(self.model, self.held_out, n_windows=windows)
            line |= {"held_out_bpc": found.bpc, "held_out_late_bpc": found.late_bpc}
            if found.support is not None:
                line["support"] = found.support
                line["saturated"] = max(found.by_layer) > SATURATED
        if reports and self.step % self.config.log_every == 0:
            line["support"] = sum(r.support for r in reports) / len(reports)
            line["boxed"] = sum(r.boxed for r in reports)
            line["exact"] = sum(r.exact for r in reports)
            line["ungated"] = sum(r.ungated for r in reports)

    def _write(self, line: dict[str, Any], speed: float) -> None:
        self.log.append(line)
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "tokens_per_second": round(speed)}) + "\n")

    def save(self) -> Path | None:
        """Write a checkpoint.

        Returns
        -------
        Path or None
            None without a folder.
        """
        if self.folder is None:
            return None
        state = {"step": self.step, "train": asdict(self.config)}
        return save_checkpoint(self.folder, self.model, self.optimizer, state)


def _read_log(folder: Path, step: int) -> list[dict[str, Any]]:
    # What was logged after the checkpoint is dropped, also from the file.
    path = folder / "log.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    kept = [line for line in lines if line["step"] <= step]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    for line in kept:
        line.pop("tokens_per_second", None)
    return kept


class _Show(Protocol):
    def __call__(self, step: int, text: str, line: dict[str, Any]) -> None: ...


@contextmanager
def _progress(console: Console | None, steps: int, done: int) -> Iterator[_Show]:
    columns = ("{task.completed}/{task.total}", BarColumn(), TimeRemainingColumn())
    quiet = console is None
    with Progress(
        *columns, TextColumn("{task.description}"), console=console, disable=quiet
    ) as bar:
        task = bar.add_task("", total=steps, completed=done)

        def show(step: int, text: str, line: dict[str, Any]) -> None:
            bar.update(task, completed=step, description=text)
            if "held_out_bpc" in line:
                more = f", support {line['support']:.0%}" if "support" in line else ""
                bar.print(
                    f"step {step}: held out {line['held_out_bpc']:.3f} bits{more}"
                )
            if line.get("saturated"):
                bar.print(
                    "nearly every key is support in some layer: its gate hardly selects"
                )

        yield show


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[Path, typer.Option(help="Text to learn: plain, .gz or .xz.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/lm"),
    attention: Annotated[str, typer.Option(help="sv, softmax, window, ...")] = "sv",
    held_out: Annotated[Path | None, typer.Option(help="Text to measure on.")] = None,
    steps: int = 1000,
    batch_size: int = 16,
    lr: float = 1e-3,
    n_layer: int = 4,
    n_head: int = 4,
    n_embd: int = 256,
    block_size: int = 256,
    chunk: int = GateConfig.chunk,
    C: float = GateConfig.C,
    gamma: float = GateConfig.gamma,
    ridge: float = GateConfig.ridge,
    keys: Annotated[
        str, typer.Option(help="unit or raw keys in the gate.")
    ] = GateConfig.keys,
    multiplier: Annotated[
        str, typer.Option(help="weight, share or alpha.")
    ] = GateConfig.multiplier,
    readout: Annotated[str, typer.Option(help="softmax or rbf.")] = GateConfig.readout,
    gain: Annotated[
        float, typer.Option(help="Log-factor on the prefix, at first.")
    ] = GateConfig.gain,
    window: Annotated[int, typer.Option(help="Of the sliding window.")] = 128,
    mix: Annotated[int, typer.Option(help="Tokens mixed into an embedding.")] = 2,
    seed: int = 0,
    eval_every: int = 250,
    save_every: int = 250,
    limit: Annotated[int | None, typer.Option(help="Read only so many bytes.")] = None,
    threads: Annotated[int | None, typer.Option(help="Of torch.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue the run in --out.")] = False,
) -> None:
    """Train a byte-level language model."""
    console = Console(stderr=True)
    try:
        if threads is not None:
            torch.set_num_threads(max(threads, 1))
        gate = GateConfig(
            chunk=chunk,
            C=C,
            gamma=gamma,
            ridge=ridge,
            keys=keys,
            multiplier=multiplier,
            readout=readout,
            gain=gain,
        )
        model = HybridLMConfig(
            n_layer=n_layer,
            n_head=n_head,
            n_embd=n_embd,
            block_size=block_size,
            attention=attention,
            window=window,
            mix=mix,
            sinusoids=True,
            gate=gate,
        )
        config = TrainConfig(
            steps=steps,
            batch_size=batch_size,
            lr=lr,
            seed=seed,
            eval_every=eval_every,
            save_every=save_every,
        )
        text = read_bytes(data, limit)
        text, tail = (text, read_bytes(held_out)) if held_out else split_tail(text)
        if not resume and checkpoints(out):
            raise InvalidInputError(
                f"{out} holds a run already; pass --resume or another --out"
            )
        batches = ByteBatches(text, batch_size, block_size, seed)
        Trainer(model, config, batches, tail, folder=out, resume=resume).run(console)
    except ForgetmemError as error:
        console.print(f"error: {error}", style="red", highlight=False, markup=False)
        raise typer.Exit(1) from None


if __name__ == "__main__":
    app()
