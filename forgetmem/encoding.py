"""From texts to stored vectors: which embedder, what it gave, and the unit norm."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from forgetmem.arrays import Float32Array, FloatArray
from forgetmem.collection import Identity
from forgetmem.embedding import (
    DEFAULT_MODEL,
    Embedder,
    as_embedder,
    encode_checked,
    overlong,
)
from forgetmem.errors import EmbedderMismatchError, EmbeddingError, InvalidInputError

#: The embedder's name in a file that was filled with vectors only.
GIVEN_VECTORS = "vectors given by the caller"

_CHUNK = 256
_NAMED = 5
#: So many vectors are normalised at a time: what that takes stays in the cache.
_ROWS = 256


class OverlongTextWarning(UserWarning):
    """A text is longer than the embedder's window; the whole text is stored."""


class Encoder:
    """An embedder, chosen when it is first needed, and held against the file's.

    Parameters
    ----------
    embedder : Embedder or None
        None for the one that the file names, or the default.
    """

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder

    def check(self, stored: Identity | None) -> None:
        """Compare the names, without loading a model.

        Parameters
        ----------
        stored : Identity or None
            The embedder of the file's vectors.

        Raises
        ------
        EmbedderMismatchError
            If both are known and differ.
        """
        if self._embedder is None or stored is None:
            return
        if stored.name != self._embedder.name:
            raise EmbedderMismatchError(
                f"{stored.name!r} (dimension {stored.dimension})",
                repr(self._embedder.name),
            )

    def encode(
        self,
        texts: Sequence[str],
        ids: Sequence[str],
        stored: Identity | None,
        progress: bool,
    ) -> tuple[Identity, Float32Array]:
        """Embed texts for storing; warn of those beyond the model's window.

        Parameters
        ----------
        texts, ids : sequence of str
        stored : Identity or None
            The embedder of the file's vectors.
        progress : bool
            Show a progress bar.

        Returns
        -------
        identity : Identity
        vectors : ndarray of shape (n, dimension), float32
            Of norm 1.
        """
        embedder = self._resolve(stored)
        chunks = _chunks(list(texts), progress)
        vectors = np.concatenate([encode_checked(embedder, chunk) for chunk in chunks])
        cut = overlong(embedder, list(texts))
        if cut:
            named = ", ".join(repr(ids[position]) for position in cut[:_NAMED])
            more = f" and {len(cut) - _NAMED} more" if len(cut) > _NAMED else ""
            warnings.warn(
                f"the embedder reads only the beginning of the texts of {named}{more}; "
                "the whole texts are stored",
                OverlongTextWarning,
                stacklevel=4,
            )
        identity = Identity(embedder.name, vectors.shape[1])
        return identity, normalised(vectors.astype(np.float64), ids)

    def encode_query(self, text: str, stored: Identity | None) -> Float32Array:
        """Embed a query.

        Parameters
        ----------
        text : str
        stored : Identity or None

        Returns
        -------
        ndarray of shape (dimension,), float32
            Of norm 1.
        """
        vectors = encode_checked(self._resolve(stored), [text], query=True)
        return normalised_query(vectors[0].astype(np.float64))

    def identity_of_given(self, stored: Identity | None, dimension: int) -> Identity:
        """Name the embedder of vectors that a caller computed.

        Parameters
        ----------
        stored : Identity or None
        dimension : int

        Returns
        -------
        Identity
            The file's, else this encoder's, else `GIVEN_VECTORS`.
        """
        if stored is not None:
            return stored
        name = GIVEN_VECTORS if self._embedder is None else self._embedder.name
        return Identity(name, dimension)

    def _resolve(self, stored: Identity | None) -> Embedder:
        self.check(stored)
        if self._embedder is None:
            if stored is not None and stored.name != DEFAULT_MODEL:
                raise EmbeddingError(
                    f"the vectors of this memory come from {stored.name!r}; to embed "
                    "texts open it with embedder=..., or give vectors"
                )
            self._embedder = as_embedder(None)
        return self._embedder


def normalised(vectors: FloatArray, ids: Sequence[str]) -> Float32Array:
    """Divide vectors by their norms and round to float32.

    Parameters
    ----------
    vectors : ndarray of shape (n, dimension), float64
    ids : sequence of str
        For the error.

    Returns
    -------
    ndarray of shape (n, dimension), float32

    Raises
    ------
    InvalidInputError
        If a vector is zero.
    """
    unit = np.empty(vectors.shape, dtype=np.float32)
    for start in range(0, len(vectors), _ROWS):
        scaled = _scaled(vectors[start : start + _ROWS])
        norms = np.sqrt((scaled * scaled).sum(axis=1))
        if not norms.all():
            zero = ids[start + int(np.flatnonzero(norms == 0.0)[0])]
            raise InvalidInputError(
                f"the vector of {zero!r} is zero and has no direction; nothing was "
                "changed"
            )
        unit[start : start + _ROWS] = scaled / norms[:, np.newaxis]
    return unit


def normalised_query(vector: FloatArray) -> Float32Array:
    """Divide a query by its norm and round to float32; a zero query stays zero.

    Parameters
    ----------
    vector : ndarray of shape (dimension,), float64

    Returns
    -------
    ndarray of shape (dimension,), float32
    """
    if not vector.any():
        return np.zeros(len(vector), dtype=np.float32)
    unit: Float32Array = normalised(vector[np.newaxis, :], ["the query"])[0]
    return unit


def _scaled(vectors: FloatArray) -> FloatArray:
    """Scale rows by powers of two, so that squares neither overflow nor vanish."""
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    _, exponents = np.frexp(largest)
    return np.ascontiguousarray(np.ldexp(vectors, -exponents[:, np.newaxis]))


def _chunks(texts: list[str], progress: bool) -> Iterator[list[str]]:
    starts = range(0, len(texts), _CHUNK)
    if not progress:
        yield from (texts[start : start + _CHUNK] for start in starts)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("embedding", total=len(texts))
        for start in starts:
            chunk = texts[start : start + _CHUNK]
            yield chunk
            bar.advance(task, len(chunk))
