"""What does the exact gate cost? Forward and backward, one process, paired ratios.

    python benchmarks/lm_speed.py [--steps 9] [--long]

The paper's configuration: width 256, 4 layers, 4 heads, batch 16 of 256 bytes. Every
round times every arm once, and a ratio is the median over rounds. CPU time is given
beside wall time: on a busy machine it is the one to trust. `--long` adds time and peak
memory against block length, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from report import machine, markdown, save
from torch import Tensor
from torch.nn import functional

from forgetmem.lm.attention import GateConfig
from forgetmem.lm.gate import batched_gate, exact_gate
from forgetmem.lm.model import HybridLM, HybridLMConfig
from forgetmem.lm.readout import chunk_ends

PAPER = GateConfig(keys="raw", multiplier="alpha", gamma=0.25, learn_gamma=False)
ALL = GateConfig(keys="raw", gamma=1e4)


def fista(keys: Tensor, gamma: Tensor, ends: tuple[int, ...], C: float) -> Tensor:
    """The paper's way: 80 steps for the support, then one ridged solve."""
    keys = keys[:, : ends[-1]]
    n = keys.shape[1]
    apart = torch.cdist(keys, keys).square()
    K = torch.exp(-gamma[:, None, None] * apart)[:, None] + 1e-3 * torch.eye(n)
    valid = torch.arange(n) < torch.tensor(ends)[:, None]
    with torch.no_grad():
        step = 1.0 / K.sum(-1).amax(-1, keepdim=True)
        a = valid / valid.sum(-1, keepdim=True) + torch.zeros(len(keys), 1, 1)
        z, t = a, 1.0
        for _ in range(80):
            raw = z - step * (K @ z[..., None])[..., 0]
            new = _to_box(raw.masked_fill(~valid, -torch.inf), C)
            s = (1.0 + (1.0 + 4.0 * t * t) ** 0.5) / 2.0
            z, a, t = new + (t - 1.0) / s * (new - a), new, s
        support = a > 1e-5
    inner = support[..., :, None] & support[..., None, :]
    Q = torch.where(inner, K, torch.eye(n))
    w = torch.linalg.solve(Q, support.to(K.dtype)[..., None])[..., 0]
    return torch.where(support, w, 0.0).clamp(min=0.0) / w.sum(-1, keepdim=True)


def _to_box(x: Tensor, C: float) -> Tensor:
    # Projection onto the capped simplex by bisection.
    low, high = x.amax(-1, keepdim=True) - C - 1.0, x.amax(-1, keepdim=True)
    for _ in range(30):
        middle = (low + high) / 2
        above = (x - middle).clamp(0.0, C).sum(-1, keepdim=True) > 1.0
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (x - high).clamp(0.0, C)


class FistaLayer:
    """Puts `fista` in the place of a layer's batched gate."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, keys: Tensor, gamma: Tensor, ends: tuple[int, ...]) -> Tensor:
        alpha = fista(keys, gamma, ends, self.module.config.C)
        return torch.where(alpha > 0.0, alpha.clamp(min=1e-30).log(), -torch.inf)


def build(
    attention: str = "sv", gate: GateConfig | None = None, **more: Any
) -> HybridLM:
    torch.manual_seed(0)
    gate = gate or GateConfig()
    return HybridLM(HybridLMConfig(attention=attention, gate=gate, **more))


def arms() -> dict[str, HybridLM]:
    found = {
        "softmax, torch SDPA": build("softmax"),
        "softmax, unfused": build("unfused"),
        "hybrid, raw keys at initialisation": build(gate=PAPER),
        "hybrid, unit keys (default)": build(),
        "hybrid, every key support": build(gate=ALL),
        "sliding window 128": build("window"),
        "linear attention": build("linear"),
        "DeltaNet": build("delta"),
        "hybrid, FISTA and a ridged solve": build(gate=PAPER),
    }
    for block in found["hybrid, FISTA and a ridged solve"].blocks:
        block.attention._log_multipliers = FistaLayer(block.attention)
    return found


def one_step(model: HybridLM, tokens: Tensor) -> None:
    loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    model.zero_grad()


def timed(work: Callable[[], None]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def speed(steps: int) -> dict[str, Any]:
    models = arms()
    tokens = torch.randint(
        0, 256, (16, 256), generator=torch.Generator().manual_seed(0)
    )
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    for turn in range(steps + 1):
        for name, model in models.items():
            if "FISTA" in name and turn > 3:
                continue
            spent = timed(lambda model=model: one_step(model, tokens))
            if turn:
                times[name].append(spent)
    found: dict[str, Any] = {}
    for name, spent in times.items():
        reports = models[name].gate_reports()
        found[name] = {
            "wall": statistics.median(x[0] for x in spent),
            "cpu": statistics.median(x[1] for x in spent),
            "support": [round(r.support, 4) for r in reports],
            "boxed": sum(r.boxed for r in reports),
            "exact": sum(r.exact for r in reports),
        }
        for against in ("softmax, torch SDPA", "softmax, unfused"):
            pairs = list(zip(spent, times[against], strict=False))
            for place, clock in enumerate(("wall", "cpu")):
                ratio = statistics.median(a[place] / b[place] for a, b in pairs)
                found[name][f"{clock} / {against}"] = ratio
    return found


def agreement() -> dict[str, Any]:
    """Compare the batched with the exact gate on the keys of a model."""
    same = problems = 0
    worst = 0.0
    tokens = torch.randint(0, 256, (4, 256), generator=torch.Generator().manual_seed(1))
    for gate in (PAPER, GateConfig(), replace(PAPER, gamma=0.02), ALL):
        model = build(gate=gate)
        x = model.embed(tokens)
        for block in model.blocks:
            layer = block.attention
            _, k, _ = layer.projections.heads(block.norm_attention(x))
            keys = layer.gate_keys(k.flatten(0, 1)).detach()
            gamma = layer.log_gamma.exp().detach().repeat(len(tokens))
            pair = [
                solve(keys, gamma, chunk_ends(256, 64))
                for solve in (batched_gate, exact_gate)
            ]
            equal = (pair[0].alpha > 0.0) == (pair[1].alpha > 0.0)
            equal &= (pair[0].alpha >= 0.25) == (pair[1].alpha >= 0.25)
            same += int(equal.all(-1).sum())
            problems += pair[0].report.problems
            worst = max(worst, float((pair[0].alpha - pair[1].alpha).abs().max()))
            x = block(x)
    return {"problems": problems, "same partition": same, "largest difference": worst}


def long_block(attention: str, block: int) -> dict[str, Any]:
    """Time and peak memory of one sequence; run in a fresh process."""
    torch.set_num_threads(1)
    model = build(attention, block_size=block, window=256)
    tokens = torch.randint(
        0, 256, (1, block), generator=torch.Generator().manual_seed(0)
    )
    one_step(model, tokens)
    wall, cpu = timed(lambda: one_step(model, tokens))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    support = [round(r.support, 3) for r in model.gate_reports()]
    return {"wall": wall, "cpu": cpu, "peak MiB": round(peak), "support": support}


def long_blocks() -> list[dict[str, Any]]:
    rows = []
    for block in (256, 512, 1024, 2048, 4096):
        for attention in ("softmax", "window", "sv"):
            done = subprocess.run(
                [sys.executable, __file__, "--one", attention, str(block)],
                capture_output=True,
                text=True,
                check=True,
            )
            rows.append(
                {"attention": attention, "block": block, **json.loads(done.stdout)}
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(long_block(args.one[0], int(args.one[1]))))
        return
    torch.set_num_threads(args.threads)
    where = machine() | {"command": "python benchmarks/lm_speed.py"}
    result: dict[str, Any] = {"machine": where, "threads": args.threads}
    result["agreement"] = agreement()
    print(result["agreement"])
    result["speed"] = speed(args.steps)
    rows = [
        [
            name,
            f"{x['wall']:.3f}",
            f"{x['cpu']:.3f}",
            f"{x['cpu / softmax, torch SDPA']:.2f}",
            f"{x['cpu / softmax, unfused']:.2f}",
            f"{x['wall / softmax, torch SDPA']:.2f}",
        ]
        for name, x in result["speed"].items()
    ]
    head = ["model", "wall s/step", "CPU s/step", "CPU vs SDPA", "CPU vs unfused"]
    print(markdown([*head, "wall vs SDPA"], rows))
    if args.long:
        result["long"] = long_blocks()
    save("lm_speed", result)


if __name__ == "__main__":
    main()
