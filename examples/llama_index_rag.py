"""Retrieval-augmented answers with LlamaIndex, and one document that is forgotten.

Run it with ``python examples/llama_index_rag.py``. It is offline: real embeddings
(all-MiniLM-L6-v2), real text (NIDDK fact sheets from MedQuAD, CC BY 4.0, see
examples/data/README.md), and a stand-in for a language model that quotes what it is
given.
"""

from __future__ import annotations

import json
import re
import tempfile
from itertools import groupby
from pathlib import Path
from typing import Any

from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import (
    CompletionResponse,
    CompletionResponseGen,
    CustomLLM,
    LLMMetadata,
)
from llama_index.core.node_parser import SentenceSplitter
from llama_index.vector_stores.forgetmem import (
    ForgetmemVectorStore,
    forget_document,
    verify_document,
)

from forgetmem.embedding import as_embedder

DATA = Path(__file__).parent / "data" / "fact_sheets.jsonl"
DOCUMENT = "goodpasture-syndrome"
QUESTION = "Which medications are usually given against Goodpasture syndrome?"
OTHER = "How common is Hashimoto disease in the United States?"


class MiniLM(BaseEmbedding):
    """The packaged all-MiniLM-L6-v2 as LlamaIndex takes it."""

    model_name: str = "all-MiniLM-L6-v2"

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = as_embedder().encode(texts).tolist()
        return vectors

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class QuotingModel(CustomLLM):
    """Stands in for a language model: quotes the sentence that fits best."""

    @property
    def metadata(self) -> LLMMetadata:
        """Say that everything fits into one prompt."""
        return LLMMetadata(context_window=100_000)

    def complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponse:
        """Answer LlamaIndex's question prompt."""
        _, passages, rest = prompt.split("---------------------\n")
        question = rest.split("Query: ")[1].split("\n")[0]
        return CompletionResponse(text=quote(passages.split("\n\n"), question))

    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> CompletionResponseGen:
        """Answer in one piece."""
        yield self.complete(prompt)


def quote(passages: list[str], question: str) -> str:
    names = re.findall(r"(?<=\s)[A-Z]\w+", question)
    words = set(re.findall(r"\w{5,}", question.lower()))
    sentences = re.split(r"(?<=[.!?])\s+", " ".join(passages))
    known = [text for text in sentences if all(name in text for name in names)]
    if not known:
        return "The passages do not say."
    return max(known, key=lambda text: sum(word in text.lower() for word in words))


def load() -> list[Document]:
    records = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    return [
        Document(text="\n\n".join(record["text"] for record in answers), id_=source)
        for source, answers in groupby(records, key=lambda record: record["source_id"])
    ]


def main() -> None:
    documents = load()
    with tempfile.TemporaryDirectory() as folder:
        persisted = Path(folder) / "storage"
        store = ForgetmemVectorStore(Path(folder) / "fact_sheets.forgetmem")
        index = VectorStoreIndex.from_documents(
            documents,
            storage_context=StorageContext.from_defaults(vector_store=store),
            embed_model=MiniLM(),
            transformations=[SentenceSplitter(chunk_size=200, chunk_overlap=0)],
        )
        index.storage_context.persist(persisted)
        print(f"{len(documents)} documents, {len(store.list_ids())} passages\n")
        engine = index.as_query_engine(
            llm=QuotingModel(),
            similarity_top_k=6,
            vector_store_kwargs={"ranking": "support"},
        )
        for question in (QUESTION, OTHER):
            print(f"Q: {question}\nA: {engine.query(question)}\n")

        print(f"forgetting {DOCUMENT!r} from vector store, document store and index")
        proof = forget_document(index, DOCUMENT, persist_dir=persisted)
        saved, _ = proof.save(Path(folder) / "proof.json")
        print(f"{proof.forgotten} passages forgotten, proof saved\n")
        for question in (QUESTION, OTHER):
            print(f"Q: {question}\nA: {engine.query(question)}\n")

        traces = ("Goodpasture", DOCUMENT, documents[0].hash)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        found = [
            path.name
            for path in files
            if any(trace.encode() in path.read_bytes() for trace in traces)
        ]
        print(f"files with its name, id or hash: {', '.join(found) or 'none'}")
        verdict = verify_document(index, saved)
        print(f"the proof holds: {'yes' if verdict.ok else 'no'}")
        refreshed = index.refresh_ref_docs(documents[1:])
        print(f"refreshed: {sum(refreshed)} of {len(refreshed)} others added again")
        store.close()


if __name__ == "__main__":
    main()
