"""How many facts does a context hold, and does forgetting one work in a trained model?

    python benchmarks/lm_recall.py [--steps 400] [--trials 200]

Three parts: raw capacity of the readouts at the same state size; models trained on
facts, with and without gate; and forgetting facts in a session of a trained model,
beside decaying its values to 1 %.
"""

from __future__ import annotations

import argparse
import string
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from report import machine, markdown, save
from torch.nn import functional

from forgetmem.lm.attention import GateConfig
from forgetmem.lm.context import HeadContext
from forgetmem.lm.data import RecallBatches
from forgetmem.lm.evaluate import recall_at_1
from forgetmem.lm.model import HybridLM, HybridLMConfig
from forgetmem.lm.session import Session
from forgetmem.lm.train import TrainConfig, Trainer

KEYS = string.ascii_uppercase + string.ascii_lowercase
VALUES = "0123456789!@#$%^&*()[]{}<>"


def capacity(n_pairs: int, D: int, trials: int, seed: int = 0) -> dict[str, float]:
    """Recall of random unit keys and random values, read once each.

    All states hold ``D * D`` numbers but the gate's, which holds its support: with
    ``n_pairs = D / 2`` keys and values it is the same number.
    """
    random = torch.Generator().manual_seed(seed)
    right = dict.fromkeys(("support vectors", "DeltaNet", "linear attention"), 0)
    held = 0
    for _ in range(trials):
        k = functional.normalize(torch.randn(n_pairs, D, generator=random), dim=-1)
        v = functional.normalize(torch.randn(n_pairs, D, generator=random), dim=-1)
        k, v = k.double(), v.double()
        head = HeadContext(8.0, GateConfig(C=1.0, multiplier="weight"))
        head.learn(k, k, v, 0)
        rows, logs = head.open_rows()
        held += len(rows)
        apart = torch.cdist(k, head.keys[torch.from_numpy(rows)]).square()
        weights = (torch.from_numpy(logs) - 8.0 * apart).softmax(-1)
        state = torch.zeros(D, D, dtype=torch.float64)
        for key, value in zip(k, v, strict=True):
            state += torch.outer(key, value - key @ state)
        read = {
            "support vectors": weights @ head.values[torch.from_numpy(rows)],
            "DeltaNet": k @ state,
            "linear attention": k @ (k.T @ v),
        }
        for name, found in read.items():
            chosen = (found @ v.T).argmax(-1)
            right[name] += int((chosen == torch.arange(n_pairs)).sum())
    shares = {name: count / (trials * n_pairs) for name, count in right.items()}
    return {**shares, "support": held / trials}


def trained(
    attention: str, gate: GateConfig, n_pairs: int, args: argparse.Namespace
) -> tuple[HybridLM, dict[str, Any]]:
    alphabets = {"keys": KEYS.encode(), "values": VALUES.encode(), "separator": 63}
    batches = RecallBatches(n_pairs, 32, **alphabets)
    varied = RecallBatches(n_pairs, 32, least=2, **alphabets)
    config = HybridLMConfig(
        n_layer=2,
        n_head=4,
        n_embd=64,
        block_size=256,
        attention=attention,
        mix=2,
        mix_start=0.5,
        sinusoids=True,
        gate=gate,
    )
    train = TrainConfig(steps=args.steps, batch_size=32, lr=4e-3, seed=args.seed)
    trainer = Trainer(config, train, varied)
    started = time.perf_counter()
    trainer.run()
    model = trainer.model.eval()
    share = recall_at_1(model, batches)
    reports = [round(report.support, 3) for report in model.gate_reports()]
    spent = round(time.perf_counter() - started)
    return model, {"recall@1": share, "support": reports, "seconds": spent}


def answer(session: Session, key: str) -> str:
    letters = torch.tensor(list(VALUES.encode()))
    return VALUES[int(session.predict("?" + key)[-1][letters].argmax())]


def decayed(session: Session, owner: int, share: float) -> None:
    """Shrink the multipliers of a span: what forgetting by decay amounts to."""
    for heads in session.decoder.heads:
        for head in heads:
            head.open_rows = partial(_shrunk, head, head.open_rows, owner, share)


def _shrunk(head: Any, open_rows: Any, owner: int, share: float) -> Any:
    rows, logs = open_rows()
    return rows, logs + np.log(share) * (head.owners[rows] == owner)


def faded(session: Session, owner: int, share: float) -> None:
    """Shrink the values of a span."""
    for heads in session.decoder.heads:
        for head in heads:
            mask = torch.from_numpy(head.owners == owner)
            head.values = torch.where(mask[:, None], share * head.values, head.values)


def forgetting(model: HybridLM, n_facts: int, trials: int) -> dict[str, Any]:
    random = np.random.default_rng(0)
    counts = dict.fromkeys(
        (
            "before",
            "after gate",
            "after rebuild",
            "multipliers decayed to 1 %",
            "values decayed to 1 %",
            "others same",
        ),
        0,
    )
    others_before = others_after = bits = 0
    for _ in range(trials):
        keys = random.permutation(list(KEYS))[:n_facts].tolist()
        values = random.choice(list(VALUES), n_facts).tolist()
        facts = dict(zip(keys, values, strict=True))
        secret = keys[int(random.integers(n_facts))]
        session, other, never = Session(model), Session(model), Session(model)
        for key, value in facts.items():
            session.feed(key, key + value)
            other.feed(key, key + value)
            if key != secret:
                never.feed(key, key + value)
        before = {key: answer(session, key) for key in keys}
        counts["before"] += before[secret] == facts[secret]
        owner = list(facts).index(secret)
        for how, shrink in (("multipliers", decayed), ("values", faded)):
            shrunk = Session(model)
            for key, value in facts.items():
                shrunk.feed(key, key + value)
            shrink(shrunk, owner, 0.01)
            right = answer(shrunk, secret) == facts[secret]
            counts[f"{how} decayed to 1 %"] += right
        session.forget(secret, way="gate")
        after = {key: answer(session, key) for key in keys}
        counts["after gate"] += after[secret] == facts[secret]
        rest = [key for key in keys if key != secret]
        counts["others same"] += all(before[key] == after[key] for key in rest)
        others_before += sum(before[key] == facts[key] for key in rest)
        others_after += sum(after[key] == facts[key] for key in rest)
        other.forget(secret, way="rebuild")
        bits += other.digest() == never.digest()
        counts["after rebuild"] += answer(other, secret) == facts[secret]
    shares = {name: count / trials for name, count in counts.items()}
    asked = trials * (n_facts - 1)
    return {
        **shares,
        "others right before": others_before / asked,
        "others right after": others_after / asked,
        "rebuild equal bit for bit": bits / trials,
        "chance": 1.0 / len(VALUES),
        "trials": trials,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pairs", type=int, nargs="*", default=[10, 40])
    parser.add_argument("--name", default="lm_recall")
    args = parser.parse_args()
    torch.set_num_threads(1)
    where = machine() | {"command": "python benchmarks/lm_recall.py"}
    result: dict[str, Any] = {"machine": where, "steps": args.steps}
    result["capacity"] = {
        f"{n} pairs, D {D}": capacity(n, D, 50)
        for n, D in ((10, 16), (40, 16), (40, 32), (40, 80))
    }
    for name, found in result["capacity"].items():
        print(name, found, flush=True)
    gate = GateConfig(chunk=16, multiplier="weight", gamma=4.0)
    arms = {
        "gate: weight, gamma 4": ("sv", gate),
        "gate: share, gamma 1 (language default)": ("sv", GateConfig(chunk=16)),
        "full softmax": ("softmax", gate),
        "local chunk only": ("local", gate),
        "DeltaNet": ("delta", gate),
        "linear attention": ("linear", gate),
    }
    result["trained"] = {}
    for n_pairs in args.pairs:
        for name, (attention, settings) in arms.items():
            model, found = trained(attention, settings, n_pairs, args)
            result["trained"][f"{n_pairs} pairs, {name}"] = found
            print(n_pairs, name, found, flush=True)
            save(args.name, result)
            if n_pairs == 10 and name.startswith("gate: weight"):
                result["forgetting"] = forgetting(model, 10, args.trials)
                print(result["forgetting"], flush=True)
                save(args.name, result)
    rows = [
        [name, f"{x['recall@1']:.3f}", str(x["support"])]
        for name, x in result["trained"].items()
    ]
    print(markdown(["model", "recall@1", "support by layer"], rows))


if __name__ == "__main__":
    main()
