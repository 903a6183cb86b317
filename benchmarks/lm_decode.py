"""How much of a context does a decoder hold, and for how long is its output the same?

    python benchmarks/lm_decode.py [--data text.gz] [--run folder]
    python benchmarks/lm_decode.py --small

Reads windows of held-out text with two decoders: one keeps every key, one drops keys
in reserve whenever a chunk is closed. Output is compared bit for bit; the certificate
says, chunk by chunk, whether it must be the same. Without `--data` the text is the
Shakespeare that stands in the repository.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from report import machine, markdown, save

if TYPE_CHECKING:
    from torch import Tensor

    from forgetmem.lm.decoding import Decoder
    from forgetmem.lm.model import HybridLM

SHAKESPEARE = Path(__file__).parents[1] / "examples" / "data" / "shakespeare.txt.gz"


def train(text: Any, steps: int) -> HybridLM:
    """A small model with the default gate."""
    from forgetmem.lm.attention import GateConfig
    from forgetmem.lm.data import ByteBatches
    from forgetmem.lm.model import HybridLMConfig
    from forgetmem.lm.train import TrainConfig, Trainer

    config = HybridLMConfig(
        n_layer=2,
        n_embd=96,
        block_size=256,
        mix=2,
        sinusoids=True,
        gate=GateConfig(chunk=16),
    )
    batches = ByteBatches(text, 4, 256)
    trainer = Trainer(config, TrainConfig(steps, 4, lr=3e-3), batches)
    trainer.run()
    return trainer.model.eval()


def compare(model: HybridLM, tokens: Tensor, margin: float) -> list[dict[str, float]]:
    """Read a text with both decoders, chunk by chunk."""
    import torch

    from forgetmem.lm.decoding import Decoder

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
    """Heads of all layers."""
    return sum(len(heads) for heads in decoder.heads)


def table(rows: list[dict[str, float]]) -> str:
    """Every other chunk of one margin."""
    cells = [
        [f"{row['read']:.0f}", *(f"{row[key]:.0%}" for key in list(row)[1:])]
        for row in rows[1::2]
    ]
    head = ["tokens read", "keys kept", "certified", "certified heads", "same bits"]
    return markdown(head, cells)


def section(result: dict[str, Any]) -> str:
    """The part of the README."""
    parts = [
        "## How much of a context does a decoder hold, at the same output?",
        f"`python benchmarks/lm_decode.py`; a model of 2 layers and width 96 after "
        f"{result['steps']} steps on Shakespeare, {result['windows']} windows of 256 "
        "held-out bytes, chunks of 16. The lean decoder drops keys in reserve; while "
        "its certificate is valid its output must be the same bits, and was in every "
        "case. With a margin only keys whose slack is more than that share of rho go.",
    ]
    for margin, rows in result["margins"].items():
        parts += [f"Margin {margin}:", table(rows)]
    return "\n\n".join(parts)


def main() -> None:
    """Train or load a model, read, print and save."""
    import torch

    from forgetmem.lm.checkpoint import load_model
    from forgetmem.lm.data import read_bytes, split_tail

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a text; a folder is not read")
    parser.add_argument("--run", type=Path, help="checkpoint of a trained model")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--margins", type=float, nargs="*", default=[0.0, 0.05])
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    if args.small:
        args.steps, args.windows, args.margins = 5, 1, [0.0]
    torch.set_num_threads(1)
    given = args.data if args.data and args.data.is_file() else SHAKESPEARE
    text, held_out = split_tail(read_bytes(given))
    model = load_model(args.run)[0].eval() if args.run else train(text, args.steps)
    size = model.config.block_size
    starts = np.linspace(0, len(held_out) - size, args.windows).astype(int)
    texts = [torch.from_numpy(held_out[s : s + size].astype(np.int64)) for s in starts]
    result: dict[str, Any] = {"machine": machine(), "margins": {}}
    result |= {"steps": args.steps, "windows": args.windows}
    for margin in args.margins:
        runs = [compare(model, text, margin) for text in texts]
        result["margins"][str(margin)] = [
            {key: float(np.mean([run[place][key] for run in runs])) for key in first}
            for place, first in enumerate(runs[0])
        ]
    save("lm_decode_small" if args.small else "lm_decode", result)
    print(section(result))


if __name__ == "__main__":
    main()
