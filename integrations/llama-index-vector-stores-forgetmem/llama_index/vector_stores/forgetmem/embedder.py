"""A LlamaIndex embedding model as the embedder of a memory."""

from __future__ import annotations

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from numpy.typing import NDArray


class LlamaIndexEmbedder:
    """What a memory needs of an embedder, on top of LlamaIndex's `BaseEmbedding`.

    Parameters
    ----------
    embed_model : BaseEmbedding
        Its class and ``model_name`` are stored in the memory's file and compared when
        it is opened.
    """

    def __init__(self, embed_model: BaseEmbedding) -> None:
        self.embed_model = embed_model
        self._dimension: int | None = None

    @property
    def name(self) -> str:
        """Name that is stored in a memory and compared when it is opened."""
        kind = type(self.embed_model)
        return f"{kind.__module__}.{kind.__qualname__}({self.embed_model.model_name})"

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
        return self._matrix(self.embed_model.get_text_embedding_batch(texts))

    def encode_query(self, texts: list[str]) -> NDArray[np.float32]:
        """Embed queries, which some models treat otherwise.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        ndarray of shape (len(texts), dimension), float32
        """
        return self._matrix(
            [self.embed_model.get_query_embedding(text) for text in texts]
        )

    def _matrix(self, vectors: list[list[float]]) -> NDArray[np.float32]:
        matrix = np.asarray(vectors, dtype=np.float32)
        if self._dimension is None and matrix.ndim == 2:
            self._dimension = matrix.shape[1]
        return matrix
