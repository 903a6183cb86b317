"""Training: data, exact resume, clear errors, evaluation."""

from __future__ import annotations

import gzip
import json
import lzma
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor
from typer.testing import CliRunner

from forgetmem.errors import DivergedError, InvalidInputError
from forgetmem.lm.attention import GateConfig
from forgetmem.lm.checkpoint import checkpoints, load_model, load_moments
from forgetmem.lm.data import ByteBatches, RecallBatches, read_bytes, split_tail
from forgetmem.lm.evaluate import bits_per_character, recall_at_1
from forgetmem.lm.model import HybridLM, HybridLMConfig
from forgetmem.lm.train import TrainConfig, Trainer, app

TEXT = np.frombuffer(b"the cat sat on the mat; " * 400, dtype=np.uint8)
MODEL = HybridLMConfig(
    n_layer=1, n_head=2, n_embd=16, block_size=32, mix=1, gate=GateConfig(chunk=8)
)
CONFIG = TrainConfig(
    steps=12,
    batch_size=2,
    lr=1e-2,
    warmup=2,
    eval_every=6,
    save_every=4,
    log_every=1,
    eval_windows=4,
)
BATCHES = ByteBatches(TEXT, 2, 32, seed=5)


def _trainer(folder: Path | None = None, **settings: object) -> Trainer:
    config = replace(CONFIG, **settings)
    resume = folder is not None
    return Trainer(MODEL, config, BATCHES, TEXT[:500], folder=folder, resume=resume)


def test_interrupted_run_has_the_same_losses(tmp_path: Path) -> None:
    """Stopped after a checkpoint and resumed: log and weights are the same bits."""
    whole = _trainer(tmp_path / "whole")
    whole.run()
    first = _trainer(tmp_path / "parts")
    while first.step < 8:
        loss, _ = first.advance()
        line = {"step": first.step, "bpc": loss / np.log(2.0)}
        first._measure(line)
        first._write(line, 1.0)
    first.save()
    first.advance()
    second = _trainer(tmp_path / "parts")
    assert second.step == 8
    second.run()
    assert second.log == whole.log
    for mine, other in zip(
        second.model.parameters(), whole.model.parameters(), strict=True
    ):
        assert torch.equal(mine, other)


def test_run_leaves_log_plot_and_two_checkpoints(tmp_path: Path) -> None:
    """What a run writes can be read by other tools."""
    _trainer(tmp_path).run()
    lines = [json.loads(x) for x in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert {"bpc", "support", "ungated", "tokens_per_second"} <= lines[-1].keys()
    assert "held_out_bpc" in lines[-1]
    assert lines[-1]["bpc"] < lines[0]["bpc"]
    assert (tmp_path / "run.svg").read_text().startswith("<svg")
    assert [path.name for path in checkpoints(tmp_path)] == [
        "step-00000008",
        "step-00000012",
    ]
    model, state = load_model(tmp_path)
    assert state["step"] == 12
    assert model.config == MODEL


def test_run_without_a_folder_writes_nothing(tmp_path: Path) -> None:
    """A trainer may be used for its model only."""
    trainer = _trainer()
    trainer.run()
    assert trainer.step == 12
    assert trainer.save() is None


class _Poisoned:
    def at(self, step: int) -> tuple[Tensor, Tensor]:
        inputs, targets = BATCHES.at(step)
        return inputs, (targets if step < 6 else torch.full_like(targets, -1))


def test_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    """The error names the step and the last good checkpoint, which stays."""
    trainer = Trainer(MODEL, CONFIG, _Poisoned(), folder=tmp_path)
    with pytest.raises(DivergedError, match="step-00000004") as caught:
        trainer.run()
    assert caught.value.step == 6
    assert load_model(tmp_path)[1]["step"] == 4
    with pytest.raises(DivergedError, match="none"):
        Trainer(MODEL, CONFIG, _Poisoned()).run()


def test_resume_refuses_other_settings(tmp_path: Path) -> None:
    """A checkpoint continues only the run it belongs to."""
    _trainer(tmp_path).run()
    with pytest.raises(InvalidInputError, match="training settings"):
        _trainer(tmp_path, lr=1.0)
    with pytest.raises(InvalidInputError, match="model settings"):
        Trainer(
            replace(MODEL, n_embd=32), CONFIG, BATCHES, folder=tmp_path, resume=True
        )
    longer = _trainer(tmp_path, steps=14)
    longer.run()
    assert longer.step == 14


def test_damaged_checkpoints_are_named(tmp_path: Path) -> None:
    """A folder without one, a cut file and missing moments give clear errors."""
    with pytest.raises(InvalidInputError, match="no checkpoint"):
        load_model(tmp_path)
    trainer = _trainer(tmp_path)
    trainer.run()
    last = checkpoints(tmp_path)[-1]
    (last / "optimizer.safetensors").unlink()
    with pytest.raises(InvalidInputError, match="resume"):
        load_moments(tmp_path, trainer.model, trainer.optimizer)
    weights = last / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(InvalidInputError, match="step-00000012"):
        load_model(tmp_path)


@pytest.mark.parametrize("suffix", [".txt", ".gz", ".xz"])
def test_packed_text_is_read(tmp_path: Path, suffix: str) -> None:
    """Plain, gzip and xz files give the same bytes; a limit cuts them."""
    path = tmp_path / f"text{suffix}"
    pack = {".txt": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    path.write_bytes(pack(b"hello world"))
    assert read_bytes(path).tobytes() == b"hello world"
    assert read_bytes(path, 5).tobytes() == b"hello"


def test_bad_files_are_named(tmp_path: Path) -> None:
    """No file, an empty one, a damaged one and a short text are clear errors."""
    with pytest.raises(InvalidInputError, match="no such file"):
        read_bytes(tmp_path / "none.txt")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(InvalidInputError, match="empty"):
        read_bytes(tmp_path / "empty.txt")
    for suffix in (".gz", ".xz"):
        (tmp_path / f"bad{suffix}").write_bytes(b"no archive")
        with pytest.raises(InvalidInputError, match="cannot read"):
            read_bytes(tmp_path / f"bad{suffix}")
    with pytest.raises(InvalidInputError, match="at least"):
        ByteBatches(TEXT[:10], 1, 32)


def test_batches_depend_on_seed_and_step_only() -> None:
    """The same step gives the same windows, and targets are the next bytes."""
    inputs, targets = BATCHES.at(3)
    assert torch.equal(inputs, BATCHES.at(3)[0])
    assert not torch.equal(inputs, BATCHES.at(4)[0])
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    head, tail = split_tail(TEXT, 0.25)
    assert len(head) == 3 * len(tail)


def test_recall_questions_have_their_answers() -> None:
    """Targets are the values that stand with the keys before the separator."""
    batches = RecallBatches(5, 3)
    inputs, targets = batches.at(0)
    assert inputs.shape == (3, batches.block_size) == (3, 21)
    for row, target in zip(inputs.tolist(), targets.tolist(), strict=True):
        facts = dict(zip(row[0:10:2], row[1:10:2], strict=True))
        assert row[10] == batches.separator
        asked = [place for place in range(21) if target[place] >= 0]
        assert len(asked) == 5
        assert all(target[place] == facts[row[place]] for place in asked)
    with pytest.raises(InvalidInputError):
        RecallBatches(65, 1)


def test_number_of_facts_can_vary() -> None:
    """With `least` each batch has its own number of facts."""
    batches = RecallBatches(9, 2, least=2)
    lengths = {batches.at(step)[0].shape[1] for step in range(60)}
    assert lengths == {4 * n + 1 for n in range(2, 10)}


def test_chatter_says_three_facts_again() -> None:
    """Between facts and questions stand repetitions of three facts of the sequence."""
    batches = RecallBatches(6, 4, chatter=30)
    inputs, targets = batches.at(0)
    assert inputs.shape == (4, batches.block_size)
    for row, target in zip(inputs.tolist(), targets.tolist(), strict=True):
        facts = set(zip(row[0:12:2], row[1:12:2], strict=True))
        said = set(zip(row[12:72:2], row[13:72:2], strict=True))
        assert len(said) == 3 and said < facts
        assert row[72] == batches.separator
        asked = [place for place in range(len(row)) if target[place] >= 0]
        assert len(asked) == 6 and min(asked) == 73
        assert all((row[place], target[place]) in facts for place in asked)


def test_evaluation_of_an_untrained_model() -> None:
    """About 8 bits a byte, and recall at chance."""
    torch.manual_seed(0)
    model = HybridLM(MODEL)
    found = bits_per_character(model, TEXT, n_windows=5, batch_size=2)
    assert 7.0 < found.bpc < 9.0 and 7.0 < found.late_bpc < 9.0
    assert found.n_tokens == 5 * 32
    assert found.support is not None and 0.0 < found.support <= 1.0
    assert len(found.by_layer) == 1
    plain = bits_per_character(HybridLM(replace(MODEL, attention="softmax")), TEXT)
    assert plain.support is None
    assert recall_at_1(model, RecallBatches(4, 8), 1) < 0.3
    with pytest.raises(InvalidInputError):
        bits_per_character(model, TEXT[:20])


def test_rates_rise_and_fall() -> None:
    """Warm-up, then a cosine down to a tenth."""
    config = TrainConfig(steps=100, warmup=10, lr=1.0)
    assert config.rate(0) == pytest.approx(0.1)
    assert config.rate(10) == pytest.approx(1.0)
    assert config.rate(100) == pytest.approx(0.1)
    for bad in ({"steps": 0}, {"lr": -1.0}, {"log_every": 0}):
        with pytest.raises(InvalidInputError):
            TrainConfig(**bad)


def test_saturated_gates_are_announced(tmp_path: Path) -> None:
    """The console says it when nearly every key is support."""
    saturated = replace(MODEL, gate=GateConfig(chunk=8, gamma=1e4, keys="raw"))
    console = Console(record=True, width=120)
    Trainer(saturated, CONFIG, BATCHES, TEXT[:500]).run(console)
    assert "hardly selects" in console.export_text()


def _command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_command_trains_and_resumes(tmp_path: Path) -> None:
    """`python -m forgetmem.lm.train` writes a run, and continues it."""
    text = tmp_path / "text.txt"
    text.write_bytes(TEXT.tobytes())
    out = tmp_path / "run"
    small = ["--data", str(text), "--out", str(out), "--n-embd", "16", "--threads", "1"]
    small += ["--n-layer", "1", "--block-size", "32", "--chunk", "8", "--n-head", "2"]
    code, said = _command(*small, "--steps", "4", "--batch-size", "2")
    assert code == 0, said
    code, said = _command(*small, "--steps", "6", "--batch-size", "2")
    assert code == 1 and "--resume" in said
    code, said = _command(*small, "--steps", "6", "--batch-size", "2", "--resume")
    assert code == 0, said
    assert load_model(out)[1]["step"] == 6


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--data", "none.txt"), 1, "no such file"),
        (("--data", "none.txt", "--attention", "magic"), 1, "attention"),
        (("--data", "none.txt", "--bogus"), 2, "bogus"),
        ((), 2, "data"),
    ],
)
def test_bad_commands_say_what_is_wrong(
    arguments: tuple[str, ...], code: int, message: str
) -> None:
    """A bad flag or a missing file is a message, not a traceback."""
    found, said = _command(*arguments)
    assert found == code
    assert message in said
