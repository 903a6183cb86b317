"""`link`, `alike` and `gamma` for an embedder, from fixed sentences.

The sentences ship with the package. They are never a user's records: a setting that is
computed from records would remember the deleted ones.
"""

from __future__ import annotations

import functools
import json
import warnings
from importlib.resources import files
from typing import TypedDict

import numpy as np
from pydantic import BaseModel, ConfigDict

from forgetmem.arrays import FloatArray
from forgetmem.embedding import AnyEmbedder, as_embedder, encode_checked

#: Kernel value at a cosine of `link`, for every embedder: 0.2, as with the defaults.
_KERNEL_AT_LINK = float(np.exp(-8.0 * 2.0 * (1.0 - 0.9)))
#: A link this close to 1 would join nothing but copies, whatever the embedder.
_LARGEST_LINK = 0.999


class EmbedderSettings(TypedDict, total=False):
    """The arguments of `ForgettableMemory` that depend on the embedder."""

    link: float
    alike: float
    gamma: float


class Calibration(BaseModel):
    """Settings that suit an embedder, and the cosines they come from.

    Attributes
    ----------
    embedder : str
        Its name.
    link, alike : float
        Halfway between paraphrases and small edits; the same number.
    gamma : float
        Such that the kernel is 0.2 at a cosine of `link`.
    edits : float
        Cosine that 95 % of the pairs exceed which differ by small edits.
    paraphrases : float
        Cosine that 5 % of the pairs exceed which say the same in other words.
    related : float
        Median of pairs that say different things about one matter.
    unrelated : float
        Median of pairs that have nothing to do with one another.
    separated : bool
        Whether edits lie above paraphrases, as they should.
    """

    model_config = ConfigDict(frozen=True)

    embedder: str
    link: float
    alike: float
    gamma: float
    edits: float
    paraphrases: float
    related: float
    unrelated: float
    separated: bool

    def settings(self) -> EmbedderSettings:
        """Return the arguments for `ForgettableMemory`.

        Returns
        -------
        dict
            ``link``, ``alike`` and ``gamma``.
        """
        return {"link": self.link, "alike": self.alike, "gamma": self.gamma}


def calibrate(embedder: AnyEmbedder = None) -> Calibration:
    """Choose `link`, `alike` and `gamma` for an embedder.

    Two records should count as look-alikes if one is the other with small edits, not if
    it says the same in other words. Where that line runs depends on the embedder: some
    give unrelated texts a cosine of 0, others 0.7.

    Parameters
    ----------
    embedder : Embedder, SentenceTransformer, str, path or callable, optional
        As for `ForgettableMemory`.

    Returns
    -------
    Calibration
        The same for the same embedder, always.

    Raises
    ------
    EmbeddingError
        If the embedder's vectors cannot be used.

    Warns
    -----
    UserWarning
        If edits do not lie above paraphrases.

    Examples
    --------
    >>> from forgetmem import ForgettableMemory, calibrate
    >>> chosen = calibrate()
    >>> with ForgettableMemory(**chosen.settings()) as memory:
    ...     ids = memory.add(["Who is on call?"])
    """
    found = as_embedder(embedder)
    columns = [_unit(encode_checked(found, list(column))) for column in _sentences()]
    first, edited, reworded, other = columns
    edits = float(np.quantile(_cosines(first, edited), 0.05))
    paraphrases = float(np.quantile(_cosines(first, reworded), 0.95))
    if edits <= paraphrases:
        warnings.warn(
            f"the embedder {found.name!r} does not tell small edits from paraphrases; "
            "settings for it mean little",
            stacklevel=2,
        )
    link = round(min((edits + paraphrases) / 2.0, _LARGEST_LINK), 3)
    return Calibration(
        embedder=found.name,
        link=link,
        alike=link,
        gamma=round(float(-np.log(_KERNEL_AT_LINK)) / (2.0 * (1.0 - link)), 2),
        edits=edits,
        paraphrases=paraphrases,
        related=float(np.median(_cosines(first, other))),
        unrelated=float(np.median(_cosines(first, np.roll(first, 5, axis=0)))),
        separated=edits > paraphrases,
    )


@functools.cache
def _sentences() -> tuple[tuple[str, ...], ...]:
    # A statement, the same with small edits, a paraphrase, another on the same matter.
    text = (files("forgetmem") / "calibration_pairs.json").read_text(encoding="utf-8")
    return tuple(zip(*json.loads(text)["rows"], strict=True))


def _unit(vectors: np.ndarray) -> FloatArray:
    X = vectors.astype(np.float64)
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _cosines(one: FloatArray, other: FloatArray) -> FloatArray:
    return np.asarray((one * other).sum(axis=1))
