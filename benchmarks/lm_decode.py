"""How much of a context does a decoder hold, and for how long is its output the same?

    python benchmarks/lm_decode.py --data text.gz [--run folder]

Reads windows of held-out text with two decoders: one keeps every key, one drops keys
in reserve whenever a chunk is closed. Output is compared bit for bit; the certificate
says, chunk by chunk, whether it must be the same.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import machine, markdown, save

from forgetmem.lm.attention import GateConfig
from forgetmem.lm.checkpoint import load_model
from forgetmem.lm.data import ByteBatches, read_bytes, split_tail
from forgetmem.lm.decoding import Decoder
from forgetmem.lm.model import HybridLM, HybridLMConfig
from forgetmem.lm.train import TrainConfig, Trainer


def train(text: Any, args: argparse.Namespace) -> HybridLM:
    gate = GateConfig(chunk=16, multiplier=args.multiplier, gamma=args.gamma)
    config = HybridLMConfig(
        n_layer=2, n_embd=96, block_size=256, mix=2, sinusoids=True, gate=gate
    )
    batches = ByteBatches(text, 8, 256)
    trainer = Trainer(config, TrainConfig(steps=args.steps, lr=3e-3), batches)
    trainer.run()
    return trainer.model.eval()


def compare(
    model: HybridLM, tokens: torch.Tensor, margin: float
) -> list[dict[str, float]]:
    whole, lean = Decoder(model), Decoder(model, drop=True, margin=margin)
    rows = []
    for part in tokens.split(model.config.gate.chunk):
        report = lean.report()
        same = torch.equal(whole.extend(part), lean.extend(part))
        now = lean.report()
        rows.append(
            {
                "read": now.tokens_read,
                "kept": now.keys_held / now.keys_read,
                "certified": float(report.certified),
                "certified heads": 1.0 - report.expired / report_heads(lean),
                "same": float(same),
            }
        )
        assert same or not report.certified
    return rows


def report_heads(decoder: Decoder) -> int:
    return sum(len(heads) for heads in decoder.heads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", type=Path, help="checkpoint of a trained model")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--margins", type=float, nargs="*", default=[0.0, 0.05, 0.1])
    parser.add_argument("--multiplier", default="share")
    parser.add_argument("--gamma", type=float, default=1.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    text, held_out = split_tail(read_bytes(args.data))
    model = load_model(args.run)[0].eval() if args.run else train(text, args)
    size = model.config.block_size
    starts = np.linspace(0, len(held_out) - size, args.windows).astype(int)
    texts = [torch.from_numpy(held_out[s : s + size].astype(np.int64)) for s in starts]
    found = {}
    for margin in args.margins:
        runs = [compare(model, text, margin) for text in texts]
        rows = [
            {key: float(np.mean([run[place][key] for run in runs])) for key in first}
            for place, first in enumerate(runs[0])
        ]
        found[str(margin)] = rows
        print(f"margin {margin}")
        cells = [[f"{row[key]:.2f}" for key in row] for row in rows]
        print(markdown(list(rows[0]), cells), flush=True)
    where = machine() | {"command": "python benchmarks/lm_decode.py"}
    save("lm_decode", {"machine": where, "steps": args.steps, "margins": found})


if __name__ == "__main__":
    main()
