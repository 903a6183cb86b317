"""Train a small language model, tell it facts, and make it forget one.

Run it with ``python examples/train_small_lm.py``; it takes about two minutes on two
cores. One model learns two things at once: Shakespeare (examples/data, public domain)
and to answer questions about facts that stand in its context. A fact is a capital and
a small letter, as in "Qx"; after it, "?Q" should be answered "x".
"""

from __future__ import annotations

import argparse
import string
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from forgetmem.lm.attention import GateConfig
from forgetmem.lm.data import ByteBatches, RecallBatches, read_bytes, split_tail
from forgetmem.lm.evaluate import bits_per_character, recall_at_1
from forgetmem.lm.model import HybridLMConfig
from forgetmem.lm.session import Session
from forgetmem.lm.train import TrainConfig, Trainer

TEXT = Path(__file__).parent / "data" / "shakespeare.txt.gz"
FACTS = {"A": "k", "M": "r", "Q": "x", "T": "b", "Z": "p", "L": "w", "D": "g"}


@dataclass(frozen=True)
class Mixture:
    """Batches of text and of questions in turn."""

    text: ByteBatches
    facts: RecallBatches

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        """Make the batch of one step."""
        source: ByteBatches | RecallBatches = self.facts if step % 2 else self.text
        return source.at(step)


def questions(least: int | None = None) -> RecallBatches:
    return RecallBatches(
        12,
        32,
        least=least,
        keys=string.ascii_uppercase.encode(),
        values=string.ascii_lowercase.encode(),
        separator=ord("?"),
    )


def ask(session: Session, key: str) -> str:
    letters = torch.tensor(list(string.ascii_lowercase.encode()))
    scores = session.predict("?" + key)[-1]
    return chr(int(letters[scores[letters].argmax()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--out", type=Path, help="folder for checkpoints and a plot")
    args = parser.parse_args()

    text, held_out = split_tail(read_bytes(TEXT))
    model_config = HybridLMConfig(
        n_layer=2,
        n_head=4,
        n_embd=96,
        block_size=128,
        mix=2,
        mix_start=0.5,
        sinusoids=True,
        gate=GateConfig(chunk=16, gain=0.0),
    )
    config = TrainConfig(
        steps=args.steps, batch_size=16, lr=4e-3, eval_every=args.steps, seed=1
    )
    batches = Mixture(ByteBatches(text, 16, 128, seed=1), questions(least=2))
    trainer = Trainer(model_config, config, batches, held_out, folder=args.out)
    started = time.perf_counter()
    print(f"training {trainer.model.n_parameters:,} parameters, {args.steps} steps")
    trainer.run(Console(stderr=True))
    model = trainer.model.eval()
    found = bits_per_character(model, held_out)
    print(f"trained in {time.perf_counter() - started:.0f} s")
    print(f"held-out Shakespeare: {found.bpc:.2f} bits per character")
    print(f"questions about 12 facts answered: {recall_at_1(model, questions()):.0%}")
    print(f"keys that the gates keep open: {found.support:.0%} of the prefix\n")

    start = torch.tensor([list(b"ROMEO:\n")])
    more = model.generate(
        start, 160, temperature=0.8, generator=torch.Generator().manual_seed(0)
    )
    print(bytes(more[0].tolist()).decode("utf-8", "replace"), "\n")

    session, never = Session(model), Session(model)
    for key, value in FACTS.items():
        session.feed(f"fact {key}", key + value)
        if key != "Q":
            never.feed(f"fact {key}", key + value)
    before = {key: ask(session, key) for key in FACTS}
    print("told:    ", " ".join(key + value for key, value in FACTS.items()))
    print("answers: ", " ".join(key + value for key, value in before.items()))

    gated = Session(model)
    for key, value in FACTS.items():
        gated.feed(f"fact {key}", key + value)
    proof = gated.forget("fact Q", way="gate")
    after = {key: ask(gated, key) for key in FACTS}
    print("\nforget Q: its keys leave every gate; nothing is read again")
    print("answers: ", " ".join(key + value for key, value in after.items()))
    print(f"no score is off a refit by more than {proof.sharp_bound:.1e}")
    print(f"the proof holds: {gated.verify(proof)}")

    proof = session.forget("fact Q", way="rebuild")
    same = session.digest() == never.digest()
    print("\nforget Q: what is left is read again")
    print(f"equal bit for bit to a session that never read it: {same}")
    print(f"the proof holds: {session.verify(proof)}")


if __name__ == "__main__":
    main()
