"""Do settings chosen from shipped sentences suit an embedder, never seen before?

    python benchmarks/calibration.py --data PATH
    python benchmarks/calibration.py --small

Recall@10 of support ranking with the default settings and with those of
`forgetmem.calibrate`, against plain cosine and MMR of the same embedder: MiniLM, the
static embedder of the package ``wordllama`` (left out if not installed), and MiniLM
with a large common part in every vector, whose cosines all lie between 0.7 and 1.
Needs the folder ``scifact`` of `corpora`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from corpora import SEED, Collection, embed, minilm, options, parsed, scifact, small
from report import machine, markdown, save
from retrieval import COSINE, interval, judge, memory, mmr

#: Length of the part that all vectors of the crowded embedder share.
COMMON = 1.5
METHODS = [
    COSINE,
    "MMR, λ 0.5",
    "MMR, λ 0.7",
    "support ranking, MiniLM's settings",
    "support ranking, calibrated",
]


def crowded(texts: list[str]) -> np.ndarray:
    """MiniLM's vectors with a common part: all cosines are (c + 2.25) / 3.25."""
    X = embed(texts)
    return np.hstack([X, np.full((len(X), 1), COMMON)])


def wordllama(texts: list[str]) -> np.ndarray:
    """Static vectors without a transformer."""
    from wordllama import WordLlama

    place = Path(sys.modules["wordllama"].__file__ or "").parent
    model = WordLlama.load(cache_dir=place, disable_download=True)
    return np.asarray(model.embed(texts, norm=True))


def measure(
    encode: Callable[[list[str]], np.ndarray],
    collections: list[Collection],
    cache: Path,
) -> dict[str, Any]:
    """The settings of one embedder, and what they are worth."""
    from forgetmem import calibrate

    chosen = calibrate(encode)
    out: dict[str, Any] = {"calibration": chosen.model_dump(), "collections": {}}
    for collection in collections:
        part = collection.parts[0]
        X, Q = embed(part.texts, encode, cache), embed(part.queries, encode, cache)
        methods = [
            memory("similarity"),
            mmr(0.5),
            mmr(0.7),
            memory("support"),
            memory("support", **chosen.settings()),
        ]
        scores = [judge(part, method(X, Q)[0])[:, 0] for method in methods]
        out["collections"][collection.name] = {
            "recall": {
                m: float(s.mean()) for m, s in zip(METHODS, scores, strict=True)
            },
            "calibrated_minus_cosine": interval(scores[-1] - scores[0]),
        }
    return out


def table(result: dict[str, Any]) -> str:
    """Cosines and settings, then recall."""
    settings, recalls = [], []
    for name, one in result["embedders"].items():
        c = one["calibration"]
        numbers = (c["unrelated"], c["related"], c["paraphrases"], c["edits"])
        settings.append(
            [name, *(f"{x:.2f}" for x in numbers), f"{c['link']:.3f}", f"{c['gamma']}"]
        )
        for collection, found in one["collections"].items():
            mean, low, high = found["calibrated_minus_cosine"]
            cells = [f"{found['recall'][m]:.3f}" for m in METHODS]
            recalls.append(
                [name, collection, *cells, f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"]
            )
    head = [
        "embedder",
        "unrelated",
        "related",
        "paraphrases",
        "edits",
        "`link`",
        "`gamma`",
    ]
    first = markdown(head, settings)
    head = ["recall@10", "collection", *METHODS, "calibrated - cosine"]
    return f"{first}\n\n{markdown(head, recalls)}"


def section(result: dict[str, Any]) -> str:
    """The part of the README."""
    return f"""## Do settings from shipped sentences suit an embedder?

`{result["machine"]["command"]}`. `forgetmem.calibrate(embedder)` embeds 32 invented
statements, each with small edits, as a paraphrase, and with another statement on the same
matter, and puts `link` = `alike` halfway between paraphrases (95th percentile) and edits
(5th); `gamma` such that the kernel is 0.2 there. A user's records are never looked at.
*crowded*: MiniLM with a common part in every vector.

{table(result)}
"""


def main() -> None:
    """Run every embedder."""
    given = parsed(options(__doc__))
    chosen = small() if given.small else list(scifact(given.data / "scifact"))
    found = {}
    for name, encode in (
        ("MiniLM", minilm),
        ("wordllama", wordllama),
        ("crowded", crowded),
    ):
        print(name, file=sys.stderr)
        try:
            found[name] = measure(encode, chosen, given.cache)
        except ModuleNotFoundError as error:
            print(f"left out: {error}", file=sys.stderr)
    result = {"machine": machine(), "seed": SEED, "embedders": found}
    print(table(result))
    save("calibration_small" if given.small else "calibration", result)


if __name__ == "__main__":
    main()
