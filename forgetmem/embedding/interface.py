"""What is asked of an embedder, what can be one, and what may come back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from forgetmem.arrays import BoolArray, Float32Array
from forgetmem.embedding.minilm import DEFAULT_MODEL, default_embedder
from forgetmem.embedding.sentence_transformer import SentenceTransformerEmbedder
from forgetmem.errors import EmbeddingError, InvalidInputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@runtime_checkable
class Embedder(Protocol):
    """What a memory needs of an embedder.

    Two methods are used when an embedder has them: ``encode_query(texts)`` for
    queries, where a model treats them otherwise than passages, and
    ``overlong(texts)``, the positions of texts that the model would cut.
    """

    @property
    def name(self) -> str:
        """Name that is stored in a memory and compared when it is opened."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    def encode(self, texts: list[str]) -> Float32Array:
        """Encode texts, in order, one vector each.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        ndarray of shape (len(texts), dimension), float32
        """
        ...


AnyEmbedder: TypeAlias = (
    "Embedder | SentenceTransformer | Callable[[list[str]], Any] | str | Path | None"
)


class CallableEmbedder:
    """A function from a list of texts to their vectors.

    Parameters
    ----------
    function : callable
        Takes a list of str, returns an array of shape (n, dimension) or a list of
        vectors. It is called with as many texts as the memory adds at once.
    name : str, optional
        What is stored in memories; by default the attribute `name` of the function,
        else its module and qualified name.
    """

    def __init__(
        self, function: Callable[[list[str]], Any], *, name: str | None = None
    ) -> None:
        self._function = function
        self._name = name or _function_name(function)
        self._dimension: int | None = None

    @property
    def name(self) -> str:
        """Name that is stored in a memory and compared when it is opened."""
        return self._name

    @property
    def dimension(self) -> int:
        """Length of a vector, found by the first call."""
        if self._dimension is None:
            self.encode(["?"])
        return self._dimension or 0

    def encode(self, texts: list[str]) -> Float32Array:
        """Call the function; an exception of it passes through.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        ndarray of shape (len(texts), dimension), float32

        Raises
        ------
        EmbeddingError
            If what comes back is no matrix of numbers.
        """
        vectors = _as_float32(self._function(texts), self._name)
        if self._dimension is None and len(vectors):
            self._dimension = vectors.shape[1]
        return vectors


def as_embedder(embedder: AnyEmbedder = None) -> Embedder:
    """Return an embedder for whatever a caller may give as one.

    Parameters
    ----------
    embedder : Embedder, SentenceTransformer, callable, str, path or None
        None and the name of the default model give the default; another string is a
        local folder or a name on the hub.

    Returns
    -------
    Embedder
        `embedder` itself if it has a name, a dimension and `encode`.

    Raises
    ------
    InvalidInputError
        If it is none of these.
    """
    if embedder is None or embedder in (DEFAULT_MODEL, DEFAULT_MODEL.split("/")[1]):
        return default_embedder()
    if isinstance(embedder, str | Path):
        if not str(embedder).strip():
            raise InvalidInputError("the name of an embedder must not be empty")
        return SentenceTransformerEmbedder(embedder)
    library = sys.modules.get("sentence_transformers")
    if library is not None and isinstance(embedder, library.SentenceTransformer):
        return SentenceTransformerEmbedder(embedder)
    if hasattr(embedder, "encode"):
        return _checked_interface(embedder)
    if callable(embedder):
        return CallableEmbedder(embedder)
    raise InvalidInputError(
        "expected an embedder as an object with name, dimension and encode, a "
        "sentence-transformers model, its name or folder, or a callable; got "
        f"{type(embedder).__name__}"
    )


def encode_checked(
    embedder: Embedder, texts: Sequence[str], *, query: bool = False
) -> Float32Array:
    """Encode texts, and check that what comes back can be stored.

    Parameters
    ----------
    embedder : Embedder
    texts : sequence of str
    query : bool, default False
        Whether the texts are queries: `encode_query` is used where there is one,
        and vectors of zeros are let through.

    Returns
    -------
    ndarray of shape (len(texts), dimension), float32, C-contiguous

    Raises
    ------
    EmbeddingError
        For a wrong number of vectors, a wrong dimension, NaN, infinity (also after
        rounding to float32) or a vector of zeros; texts are named by position. An
        exception of the embedder passes through as it is.
    """
    encode = getattr(embedder, "encode_query", None) if query else None
    vectors = _as_float32((encode or embedder.encode)(list(texts)), embedder.name)
    if len(vectors) != len(texts):
        raise EmbeddingError(
            f"embedder {embedder.name} returned {len(vectors)} vectors for "
            f"{len(texts)} texts"
        )
    if not len(texts):
        return np.empty((0, embedder.dimension), dtype=np.float32)
    if vectors.shape[1] != embedder.dimension:
        raise EmbeddingError(
            f"embedder {embedder.name} returned vectors of dimension "
            f"{vectors.shape[1]}, expected {embedder.dimension}"
        )
    _refuse(
        np.invert(np.isfinite(vectors).all(axis=1)), "NaN or infinity", embedder.name
    )
    if not query:
        _refuse(np.invert(vectors.any(axis=1)), "nothing but zeros", embedder.name)
    return vectors


def overlong(embedder: Embedder, texts: Sequence[str]) -> list[int]:
    """Find the texts that the embedder would not read to their end.

    Parameters
    ----------
    embedder : Embedder
    texts : sequence of str

    Returns
    -------
    list of int
        Their positions; none if the embedder does not say what it reads.
    """
    find = getattr(embedder, "overlong", None)
    return list(find(list(texts))) if find is not None else []


def _checked_interface(embedder: Any) -> Embedder:
    # The values of `name` and `dimension` are not asked for: that may load a model.
    missing = [
        name
        for name in ("name", "dimension")
        if name not in getattr(embedder, "__dict__", {})
        and not hasattr(type(embedder), name)
    ]
    if missing or not callable(embedder.encode):
        raise InvalidInputError(
            f"an embedder needs a name, a dimension and a method encode; "
            f"{type(embedder).__name__} lacks {' and '.join(missing) or 'encode'}"
        )
    found: Embedder = embedder
    return found


def _as_float32(vectors: Any, name: str) -> Float32Array:
    try:
        raw = np.asarray(vectors)
        if raw.dtype.kind not in "fiu":
            raise TypeError(f"dtype {raw.dtype}")
    except (TypeError, ValueError, RuntimeError) as error:
        raise EmbeddingError(
            f"embedder {name} returned {type(vectors).__name__}, which is no array of "
            f"real numbers with equally long rows ({error})"
        ) from error
    if raw.size == 0 and raw.ndim == 1:
        return np.empty((0, 0), dtype=np.float32)
    if raw.ndim != 2:
        raise EmbeddingError(
            f"embedder {name} returned an array of shape {raw.shape}, expected "
            "(number of texts, dimension)"
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(raw, dtype=np.float32)


def _refuse(bad: BoolArray, what: str, name: str) -> None:
    positions = np.flatnonzero(bad)
    if len(positions):
        shown = ", ".join(map(str, positions[:5])) + (", ..." * (len(positions) > 5))
        raise EmbeddingError(
            f"embedder {name} returned {what} for {len(positions)} of {len(bad)} "
            f"texts, at position {shown}"
        )


def _function_name(function: Callable[[list[str]], Any]) -> str:
    given = getattr(function, "name", None)
    if isinstance(given, str) and given:
        return given
    qualified = getattr(function, "__qualname__", None)
    if qualified is None:
        raise InvalidInputError(
            f"a {type(function).__name__} has no name to store in a memory; give it an "
            "attribute `name`, or use CallableEmbedder(function, name=...)"
        )
    return f"{function.__module__}.{qualified}"
