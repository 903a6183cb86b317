"""LangChain embeddings as an embedder of a memory."""

from __future__ import annotations

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

#: Where LangChain's embedding classes keep the name of their model, best first.
_MODEL_FIELDS = ("model", "model_name", "model_id", "repo_id", "deployment_name")


class LangChainEmbedder:
    """What a memory needs of an embedder, on top of LangChain's `Embeddings`.

    Parameters
    ----------
    embeddings : Embeddings
    name : str, optional
        What is stored in the memory's file and compared when it is opened. By default
        the class, with the name of its model where it tells one.
    """

    def __init__(self, embeddings: Embeddings, *, name: str | None = None) -> None:
        self.embeddings = embeddings
        self._name = name or _name_of(embeddings)
        self._dimension: int | None = None

    @property
    def name(self) -> str:
        """Name that is stored in a memory and compared when it is opened."""
        return self._name

    @property
    def dimension(self) -> int:
        """Length of a vector, found by the first call."""
        if self._dimension is None:
            self.encode_query(["?"])
        return self._dimension or 0

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Embed texts that are to be stored.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        ndarray of shape (len(texts), dimension), float32
        """
        return self._matrix(self.embeddings.embed_documents(texts))

    def encode_query(self, texts: list[str]) -> NDArray[np.float32]:
        """Embed queries, which some models treat otherwise.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        ndarray of shape (len(texts), dimension), float32
        """
        return self._matrix([self.embeddings.embed_query(text) for text in texts])

    def _matrix(self, vectors: list[list[float]]) -> NDArray[np.float32]:
        matrix = np.asarray(vectors, dtype=np.float32)
        if self._dimension is None and matrix.ndim == 2:
            self._dimension = matrix.shape[1]
        return matrix


def _name_of(embeddings: Embeddings) -> str:
    kind = type(embeddings)
    fields = (getattr(embeddings, field, None) for field in _MODEL_FIELDS)
    model = next((value for value in fields if isinstance(value, str) and value), None)
    place = f"{kind.__module__}.{kind.__qualname__}"
    return f"{place}({model})" if model else place
