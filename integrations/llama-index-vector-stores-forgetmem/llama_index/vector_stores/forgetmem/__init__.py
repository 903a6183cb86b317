"""LlamaIndex on forgetmem: a vector store that can forget.

Knows LlamaIndex's nodes, filters and document stores; everything else is
`forgetmem.ForgettableMemory`, of which only public names are used.
"""

from llama_index.vector_stores.forgetmem.base import ForgetmemVectorStore
from llama_index.vector_stores.forgetmem.documents import (
    aforget_document,
    averify_document,
    forget_document,
    verify_document,
)
from llama_index.vector_stores.forgetmem.embedder import LlamaIndexEmbedder

__version__ = "0.1.0"

__all__ = [
    "ForgetmemVectorStore",
    "LlamaIndexEmbedder",
    "__version__",
    "aforget_document",
    "averify_document",
    "forget_document",
    "verify_document",
]
