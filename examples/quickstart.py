"""A memory in a few lines: add, search, forget, verify.

Run it with ``python examples/quickstart.py``. It uses 300 of the questions in
examples/data (Banking77, CC BY 4.0) and leaves nothing behind.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from forgetmem import ForgettableMemory

DATA = Path(__file__).parent / "data" / "support_desk.jsonl"


def main() -> None:
    lines = DATA.read_text(encoding="utf-8").splitlines()
    messages = [json.loads(line) for line in lines[:300]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "desk.forgetmem"
        with ForgettableMemory(path) as memory:
            memory.add(
                [message["text"] for message in messages],
                ids=[message["id"] for message in messages],
                metadatas=[message["metadata"] for message in messages],
            )
            print(f"{len(memory)} messages in {path.name}\n")

            question = "somebody took my card"
            print(f"search: {question}")
            hits = memory.search(question, k=3)
            for hit in hits:
                alike = f"  (and {hit.n_similar} like it)" if hit.n_similar else ""
                print(f"  {hit.score:.2f}  {hit.text}{alike}")

            proof = memory.forget(hits[0].id)
            proof.save(Path(folder) / "proof.json")
            print(f"\nforgotten: {proof.forgotten} message, {len(memory)} are left")
            print(f"the proof holds: {memory.verify(proof).ok}")

            print(f"\nsearch again: {question}")
            for hit in memory.search(question, k=3):
                print(f"  {hit.score:.2f}  {hit.text}")


if __name__ == "__main__":
    main()
