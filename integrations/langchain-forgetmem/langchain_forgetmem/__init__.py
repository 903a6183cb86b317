"""LangChain on forgetmem: a vector store and a retriever that can forget.

Knows LangChain's documents, embeddings and record managers; everything else is
`forgetmem.ForgettableMemory`, of which only public names are used.
"""

from langchain_forgetmem.documents import HitDocument
from langchain_forgetmem.embeddings import LangChainEmbedder
from langchain_forgetmem.indexing import (
    aforget_indexed,
    averify_indexed,
    forget_indexed,
    verify_indexed,
)
from langchain_forgetmem.retrievers import ForgetmemRetriever
from langchain_forgetmem.vectorstores import ForgetmemVectorStore

__version__ = "0.1.0"

__all__ = [
    "ForgetmemRetriever",
    "ForgetmemVectorStore",
    "HitDocument",
    "LangChainEmbedder",
    "__version__",
    "aforget_indexed",
    "averify_indexed",
    "forget_indexed",
    "verify_indexed",
]
