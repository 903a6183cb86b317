"""The values a user holds: records, hits and readouts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from forgetmem.arrays import Float32Array, FloatArray

#: Margin and bounded records are the support; reserve records have weight 0.
RoleName = Literal["margin", "bounded", "reserve"]


def _as_list(array: FloatArray | Float32Array | None) -> list[float] | None:
    return None if array is None else array.tolist()


Embedding = Annotated[Float32Array, PlainSerializer(_as_list, return_type=list[float])]
Vector = Annotated[FloatArray, PlainSerializer(_as_list, return_type=list[float])]


class _Value(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        mine, theirs = self.__dict__, other.__dict__
        return all(_equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b)


class Record(_Value):
    """One stored item.

    Attributes
    ----------
    id : str
        Unique in its namespace.
    text : str
        The whole text, also where the embedder's window is shorter.
    metadata : dict
        As given; a copy.
    source_id : str or None
        The document the record came from.
    namespace : str
    embedding : ndarray of shape (dimension,), float32
        The stored vector, of norm 1 up to rounding.
    weight : float
        ``dual_coef / rho``, in [0, 1]: 1 for a record that nothing resembles, shared
        among look-alikes, 0 for reserve.
    role : {"margin", "bounded", "reserve"}
    """

    id: str
    text: str
    metadata: dict[str, Any]
    source_id: str | None
    namespace: str
    embedding: Embedding = Field(repr=False)
    weight: float
    role: RoleName


class Hit(_Value):
    """One answer of a search.

    Attributes
    ----------
    id, text, metadata, source_id
        Of the record that speaks for its vector: the smallest matching id.
    score : float
        Cosine with the query, in [-1, 1].
    mass : float
        ``weight * kernel(query, record)``, in [0, 1].
    weight : float
        See `Record`.
    role : {"margin", "bounded", "reserve"}
    same : tuple of str
        Other matching records with the identical vector: at most 20 ids, ascending.
    n_same : int
        How many there are.
    similar : tuple of str
        Matching look-alikes (cosine of at least ``alike``), nearest first, at most
        20 ids.
    n_similar : int
        How many there are.
    """

    id: str
    text: str
    metadata: dict[str, Any]
    source_id: str | None
    score: float
    mass: float
    weight: float
    role: RoleName
    same: tuple[str, ...] = ()
    n_same: int = 0
    similar: tuple[str, ...] = ()
    n_similar: int = 0


class Readout(_Value):
    """What the memory as a whole says to a query.

    Attributes
    ----------
    ids : tuple of str
        The support records with the largest masses, largest first.
    masses : ndarray of shape (m,), float64
        ``weight * kernel(query, record)``, divided by the sum over all the support.
    weights, scores : ndarray of shape (m,), float64
        Weight of each, and cosine with the query.
    value : ndarray of shape (v,), float64
        Mean of the values of all the support, weighted by mass: of the stored
        embeddings, or of the values the caller gave.
    novelty : float
        In [0, 1]: 1 minus the mass of the best match's group. 1 means that nothing
        like the query was seen.
    n_support : int
        How many support vectors were read.
    """

    ids: tuple[str, ...]
    masses: Vector
    weights: Vector
    scores: Vector
    value: Vector = Field(repr=False)
    novelty: float
    n_support: int
