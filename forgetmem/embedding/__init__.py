"""EMBEDDERS: texts to vectors. Knows texts and models, never ids, files or solvers.

The same text must give the same vector whatever stands beside it in a batch; the
embedders here keep that bit for bit on one machine. No model is loaded, and torch is
not imported, before the first text is encoded.
"""

from forgetmem.embedding.interface import (
    AnyEmbedder,
    CallableEmbedder,
    Embedder,
    as_embedder,
    encode_checked,
    overlong,
)
from forgetmem.embedding.minilm import DEFAULT_MODEL
from forgetmem.embedding.sentence_transformer import SentenceTransformerEmbedder

__all__ = [
    "DEFAULT_MODEL",
    "AnyEmbedder",
    "CallableEmbedder",
    "Embedder",
    "SentenceTransformerEmbedder",
    "as_embedder",
    "encode_checked",
    "overlong",
]
