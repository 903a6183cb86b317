"""Does the gate help a language model? Matched-state protocol, paired seeds.

    python benchmarks/lm_quality.py --data PATH
    python benchmarks/lm_quality.py --small

PATH is a folder with ``enwik8/enwik8.train.xz``, ``enwik8/enwik8.valid.xz`` and
``tinystories/tinystories_v2_head.txt.xz``; with `--experiment` it may be a text.
Every arm has the same backbone, steps, batches and seeds. The sliding window and the
recency control see as many prefix keys as the default gate kept open on average; both
down-weighting controls learn a gain for each head, as the default gate does. Results
are written after every run; a second call continues where the first stopped. `--small`
takes a minute and reads the Shakespeare that stands in the repository.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from report import RESULTS, machine, markdown, save

PAPER = {
    "keys": "raw",
    "multiplier": "alpha",
    "gamma": 0.25,
    "learn_gamma": False,
    "gain": 0.0,
    "learn_gain": False,
}
DEFAULT = "default gate"
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    DEFAULT: ("sv", {}),
    "matched window": ("window", {}),
    "local chunk only": ("local", {}),
    "control 1/n": ("uniform", {"gain": 0.0}),
    "control recent 1/m": ("recent", {"gain": 0.0}),
    "paper's gate": ("sv", PAPER),
    "full softmax": ("softmax", {}),
    "DeltaNet": ("delta", {}),
    "linear attention": ("linear", {}),
}
MATCHED = {"window", "recent"}
#: Texts to learn and to measure on, in a folder of data sets; without the second the
#: end of the first is held out.
ENWIK8 = ("enwik8/enwik8.train.xz", "enwik8/enwik8.valid.xz")
SOURCES: dict[str, tuple[str, str | None]] = {
    "enwik8": ENWIK8,
    "paper": ENWIK8,
    "tinystories": ("tinystories/tinystories_v2_head.txt.xz", None),
}
SHAKESPEARE = Path(__file__).parents[1] / "examples" / "data" / "shakespeare.txt.gz"


@dataclass(frozen=True)
class Protocol:
    """Sizes of an experiment; they are the same for all arms."""

    steps: int
    batch: int
    lr: float
    n_embd: int = 128
    n_layer: int = 2
    n_head: int = 4
    block: int = 256
    chunk: int = 64
    warmup: int = 50
    windows: int = 256


EXPERIMENTS = {
    "enwik8": Protocol(1200, 2, 3e-3),
    "paper": Protocol(1000, 4, 1.5e-3, n_embd=256, n_layer=4, windows=128),
    "tinystories": Protocol(600, 2, 3e-3),
    "small": Protocol(20, 2, 3e-3, n_embd=32, block=64, chunk=16, windows=8),
}


def run_arm(
    name: str,
    seed: int,
    protocol: Protocol,
    texts: tuple[Any, Any],
    open_keys: float | None,
) -> dict[str, Any]:
    """Train one model and measure it."""
    from forgetmem.lm.attention import GateConfig
    from forgetmem.lm.data import ByteBatches
    from forgetmem.lm.evaluate import bits_per_character
    from forgetmem.lm.model import HybridLMConfig
    from forgetmem.lm.train import TrainConfig, Trainer

    kind, gate = ARMS[name]
    window = 128
    if open_keys is not None:
        window = max(round(open_keys), 1) + (protocol.chunk if kind == "window" else 0)
    config = HybridLMConfig(
        n_layer=protocol.n_layer,
        n_head=protocol.n_head,
        n_embd=protocol.n_embd,
        block_size=protocol.block,
        attention=kind,
        window=window,
        mix=2,
        sinusoids=True,
        gate=GateConfig(chunk=protocol.chunk, **gate),
    )
    steps, batch = protocol.steps, protocol.batch
    train = TrainConfig(
        steps=steps,
        batch_size=batch,
        lr=protocol.lr,
        warmup=protocol.warmup,
        seed=seed,
        eval_every=steps,
    )
    started = time.process_time()
    batches = ByteBatches(texts[0], batch, protocol.block, seed)
    trainer = Trainer(config, train, batches)
    trainer.run()
    late = 3 * protocol.block // 4
    found = bits_per_character(
        trainer.model, texts[1], n_windows=protocol.windows, late=late
    )
    gains = [
        [round(gain, 2) for gain in block.attention.gain().tolist()]
        for block in trainer.model.blocks
        if hasattr(block.attention, "gain") and kind != "local"
    ]
    return {
        "arm": name,
        "seed": seed,
        "window": window if kind in MATCHED else None,
        "parameters": trainer.model.n_parameters,
        "cpu_seconds": round(time.process_time() - started, 1),
        "gains": gains,
        **asdict(found),
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Means over seeds, and differences to the default gate seed by seed."""
    base = {r["seed"]: r for r in runs if r["arm"] == DEFAULT}
    rows = []
    for name in ARMS:
        mine = [r for r in runs if r["arm"] == name]
        if not mine:
            continue
        label = f"**{name}**" if name == DEFAULT else name
        cells = [label, str(len(mine))]
        for key in ("bpc", "late_bpc"):
            cells.append(f"{statistics.mean(r[key] for r in mine):.3f}")
            gaps = [r[key] - base[r["seed"]][key] for r in mine if r["seed"] in base]
            cells.append("" if name == DEFAULT else " ".join(f"{x:+.3f}" for x in gaps))
        shares = [r["support"] for r in mine if r["support"] is not None]
        cells.append(f"{statistics.mean(shares):.0%}" if shares else "–")
        rows.append(cells)
    head = ["model", "seeds", "bpc", "minus default, by seed", "bpc, last quarter"]
    return markdown([*head, "minus default, by seed", "open keys"], rows)


def against(runs: list[dict[str, Any]], name: str, key: str) -> list[float]:
    """How much lower the default gate is than an arm, seed by seed, as a share."""
    base = {r["seed"]: r[key] for r in runs if r["arm"] == DEFAULT}
    return [
        1.0 - base[r["seed"]] / r[key]
        for r in runs
        if r["arm"] == name and r["seed"] in base
    ]


TITLES = {
    "enwik8": "enwik8, small",
    "paper": "enwik8, the paper's 3.2M parameters",
    "tinystories": "TinyStories, small",
    "small": "Shakespeare, a minute",
}


def section(result: dict[str, Any]) -> str:
    """The part of the README."""
    parts = [
        "## Does the gate help a language model?",
        "`python benchmarks/lm_quality.py --data PATH`; the same "
        "backbone (sinusoidal initial positions, a learned mix of the two tokens "
        "before), steps, batches and seeds for all. The window and the recency control "
        "see as many keys as the default gate kept open on average. Both controls "
        "learn a gain for each head, as the gate does. A plus means that the default "
        "gate is better.",
    ]
    for name, entry in result["experiments"].items():
        x, runs = Protocol(**entry["protocol"]), entry["runs"]
        size = f"{min(r['parameters'] for r in runs) / 1e6:.2f}M parameters"
        parts += [
            f"**{TITLES[name]}**: {x.n_layer} layers of width {x.n_embd}, {size}, "
            f"{x.steps:,} steps of {x.batch} x {x.block} bytes, chunk {x.chunk}; bits "
            f"per character on {x.windows} held-out windows.",
            table(runs),
        ]
        if any(r["arm"] == DEFAULT for r in runs):
            parts.append(verdict(runs))
    return "\n\n".join([*parts, SAID])


def verdict(runs: list[dict[str, Any]]) -> str:
    """Gains of the default gate in per cent, over all positions and late ones."""
    lines = []
    for name in list(ARMS)[1:]:
        shares = [against(runs, name, key) for key in ("bpc", "late_bpc")]
        if shares[0]:
            mean = [f"{statistics.mean(share):+.1%}" for share in shares]
            lines.append(f"{name} {mean[0]} ({mean[1]})")
    return (
        "The default gate has so much fewer bits (a minus: more; in brackets the last "
        "quarter of the block) than: " + ", ".join(lines) + "."
    )


SAID = """Read soberly: **at these budgets the selection adds nothing that plain
down-weighting of the prefix does not**. At the paper's size, after 1,000 steps, the
default gate is 3.5 % below the matched window (the bar was 2 %, the paper reports 8.6 %)
and further below full softmax, DeltaNet and linear attention. But 1/n on every key,
1/m on the most recent ones, the paper's own setting (which keeps nine keys in ten open,
so it is nearly 1/n) and no prefix at all are 1.3 to 1.8 % below the default: what is
learned in a million bytes lies within the chunk, and the less a model reads beyond it,
the better. In the small models, three seeds, the gate is below the window in every seed
on enwik8, by 0.5 %, and level with the controls; on TinyStories it is level with the
window too. The bar of beating every control is missed everywhere. Differences between seeds are as large as those between the arms that
down-weight, so the one seed at the paper's size ranks only what is far apart.

What led to the default: with a fixed scale the multiplier decides how much is read
beyond the chunk (alpha nearly shuts it, the weight leaves it open). A gain learned by
each head lowered 1,200 steps of batch 4 from 2.822 to 2.808 bits (one seed, weight
against alpha / C). Gains and bandwidths are stored divided by 8, so that AdamW moves
them fast enough: 1,000 steps on 40 facts gave a recall of 0.08 with bandwidths that
move slowly, 0.04 without the gate's gradient, and 1.00 now (start at 8, one seed each).
A ridge of 0.1 instead of 0.001 learned as well, with nearly every key open; dropped. So
was a gain that starts at -3, nearly closed: 3.064 bits against 3.048 (enwik8, seed 0)."""


def main() -> None:
    """Run what is missing."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of data sets, or a text")
    parser.add_argument("--held-out", type=Path, help="if --data is a text")
    parser.add_argument("--experiment", choices=list(SOURCES))
    parser.add_argument("--seeds", type=int, nargs="*")
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--small", action="store_true", help="a minute, other numbers")
    args = parser.parse_args()
    torch.set_num_threads(1)
    file = "lm_quality_small" if args.small else "lm_quality"
    if args.small:
        (RESULTS / f"{file}.json").unlink(missing_ok=True)
        run_missing(file, "small", texts(SHAKESPEARE, None), [0], args.arms)
    elif args.data is None:
        parser.error("--data is needed, or --small")
    else:
        for experiment in [args.experiment] if args.experiment else list(SOURCES):
            paths = args.data, args.held_out
            if args.data.is_dir():
                first, second = SOURCES[experiment]
                paths = args.data / first, args.data / second if second else None
            seeds = args.seeds or ([0] if experiment == "paper" else [0, 1, 2])
            run_missing(file, experiment, texts(*paths), seeds, args.arms)
    print(section(json.loads((RESULTS / f"{file}.json").read_text())))


def texts(path: Path, held_out: Path | None) -> tuple[Any, Any]:
    """What to learn, at most 20 MB, and what to measure on."""
    from forgetmem.lm.data import read_bytes, split_tail

    text = read_bytes(path, 20_000_000)
    return (text, read_bytes(held_out)) if held_out else split_tail(text)


def run_missing(
    file: str,
    experiment: str,
    data: tuple[Any, Any],
    seeds: list[int],
    arms: list[str],
) -> None:
    """Train the arms that the results lack; the results are written after each."""
    path, protocol = RESULTS / f"{file}.json", EXPERIMENTS[experiment]
    for seed, arm in itertools.product(seeds, arms):
        runs = load(path, experiment)[1]["runs"]
        if any((r["arm"], r["seed"]) == (arm, seed) for r in runs):
            continue
        kept = None
        if ARMS[arm][0] in MATCHED:
            kept = next(
                r["open_keys"]
                for r in runs
                if r["arm"] == DEFAULT and r["seed"] == seed
            )
        run = run_arm(arm, seed, protocol, data, kept)
        result, entry = load(path, experiment)
        entry["runs"].append(run)
        entry |= {"protocol": asdict(protocol), "train_bytes": len(data[0])}
        where = machine() | {"command": "python benchmarks/lm_quality.py --data PATH"}
        save(file, {**result, "machine": where})
        print(run, flush=True)


def load(path: Path, experiment: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was measured so far, and the part of it that is one experiment."""
    found = json.loads(path.read_text()) if path.exists() else {}
    result = {"experiments": {}, **found}
    return result, result["experiments"].setdefault(experiment, {"runs": []})


if __name__ == "__main__":
    main()
