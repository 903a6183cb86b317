"""Does the gate help a language model? Matched-state protocol, paired seeds.

    python benchmarks/lm_quality.py --data enwik8.train.xz --held-out enwik8.valid.xz

Every arm has the same backbone, steps, batches and seeds. The sliding window and the
recency control see as many prefix keys as the default gate kept open on average.
Results are written after every run; a second call continues where the first stopped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from report import RESULTS, machine, markdown

from forgetmem.lm.attention import GateConfig
from forgetmem.lm.data import ByteBatches, read_bytes, split_tail
from forgetmem.lm.evaluate import bits_per_character
from forgetmem.lm.model import HybridLMConfig
from forgetmem.lm.train import TrainConfig, Trainer

PAPER = {"keys": "raw", "multiplier": "alpha", "gamma": 0.25, "learn_gamma": False}
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "default gate": ("sv", {}),
    "local chunk only": ("local", {}),
    "control 1/n": ("uniform", {}),
    "control recent 1/m": ("recent", {}),
    "matched window": ("window", {}),
    "paper's gate": ("sv", PAPER),
    "full softmax": ("softmax", {}),
    "DeltaNet": ("delta", {}),
    "linear attention": ("linear", {}),
    "gate alpha, unit keys": ("sv", {"multiplier": "alpha"}),
}


def run_arm(
    name: str, seed: int, args: argparse.Namespace, open_keys: float | None
) -> dict[str, Any]:
    kind, gate = ARMS[name]
    config = HybridLMConfig(
        n_layer=args.n_layer,
        n_head=4,
        n_embd=args.n_embd,
        block_size=args.block,
        attention=kind,
        mix=2,
        sinusoids=True,
        gate=replace(GateConfig(chunk=args.chunk), **gate),
    )
    if open_keys is not None:
        kept = round(open_keys)
        config = replace(config, window=kept + (args.chunk if kind == "window" else 0))
    train = TrainConfig(
        steps=args.steps,
        batch_size=args.batch,
        lr=args.lr,
        seed=seed,
        eval_every=args.steps,
    )
    started = time.perf_counter()
    text = read_bytes(args.data, args.limit)
    text, held_out = (
        (text, read_bytes(args.held_out)) if args.held_out else split_tail(text)
    )
    trainer = Trainer(config, train, ByteBatches(text, args.batch, args.block, seed))
    trainer.run()
    found = bits_per_character(
        trainer.model, held_out, n_windows=args.windows, late=3 * args.block // 4
    )
    return {
        "arm": name,
        "seed": seed,
        "window": config.window if kind in {"window", "recent"} else None,
        "seconds": round(time.perf_counter() - started, 1),
        **asdict(found),
    }


def table(runs: list[dict[str, Any]]) -> str:
    rows = []
    base = {r["seed"]: r for r in runs if r["arm"] == "default gate"}
    for name in ARMS:
        mine = [r for r in runs if r["arm"] == name]
        if not mine:
            continue
        pairs = [(r, base[r["seed"]]) for r in mine if r["seed"] in base]
        cells = [name, str(len(mine))]
        for key in ("bpc", "late_bpc"):
            cells.append(f"{statistics.mean(r[key] for r in mine):.4f}")
            gaps = [r[key] - other[key] for r, other in pairs]
            cells.append(" ".join(f"{gap:+.4f}" for gap in gaps))
        share = mine[0]["support"]
        cells.append("–" if share is None else f"{share:.0%}")
        rows.append(cells)
    head = ["arm", "seeds", "bpc", "minus default, by seed"]
    return markdown([*head, "late bpc", "minus default, by seed", "support"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--held-out", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--chunk", type=int, default=64)
    parser.add_argument("--n-embd", type=int, default=128)
    parser.add_argument("--n-layer", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--windows", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--arms", nargs="*", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--name", default="lm_quality")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    path = RESULTS / f"{args.name}.json"
    runs = json.loads(path.read_text())["runs"] if path.exists() else []
    done = {(r["arm"], r["seed"]) for r in runs}
    settings = {k: str(v) for k, v in vars(args).items() if k not in {"arms", "name"}}
    settings |= {key: Path(settings[key]).name for key in ("data", "held_out")}
    for seed in range(args.seeds):
        for name in args.arms:
            if (name, seed) in done:
                continue
            kept = None
            if ARMS[name][0] in {"window", "recent"}:
                kept = next(
                    r["open_keys"]
                    for r in runs
                    if r["arm"] == "default gate" and r["seed"] == seed
                )
            runs.append(run_arm(name, seed, args, kept))
            RESULTS.mkdir(exist_ok=True)
            where = machine() | {"command": f"python benchmarks/{Path(__file__).name}"}
            result = {"settings": settings, "machine": where, "runs": runs}
            path.write_text(json.dumps(result, indent=1) + "\n")
            print(runs[-1], flush=True)
    print(table(runs))


if __name__ == "__main__":
    main()
