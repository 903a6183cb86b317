"""Retrieval-augmented answers with LangChain, and one source that is forgotten.

Run it with ``python examples/langchain_rag.py``. It is offline: real embeddings
(all-MiniLM-L6-v2), real text (NIDDK fact sheets from MedQuAD, CC BY 4.0, see
examples/data/README.md), and a stand-in for a chat model that quotes what it is given.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.documents import Document
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnablePassthrough
from langchain_forgetmem import (
    ForgetmemRetriever,
    ForgetmemVectorStore,
    forget_indexed,
    verify_indexed,
)
from semantic_text_splitter import TextSplitter

DATA = Path(__file__).parent / "data" / "fact_sheets.jsonl"
SOURCE = "goodpasture-syndrome"
QUESTION = "Which medications are usually given against Goodpasture syndrome?"
OTHER = "How common is Hashimoto disease in the United States?"
PROMPT = ChatPromptTemplate.from_template(
    "Answer from these passages only.\n\n{passages}\n\nQuestion: {question}"
)


class QuotingModel(BaseChatModel):
    """Stands in for a chat model: quotes the sentence that fits best."""

    @property
    def _llm_type(self) -> str:
        return "quoting"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        passages, question = str(messages[-1].content).split("\n\nQuestion: ")
        message = AIMessage(quote(passages.split("\n\n")[1:], question))
        return ChatResult(generations=[ChatGeneration(message=message)])


def quote(passages: list[str], question: str) -> str:
    names = re.findall(r"(?<=\s)[A-Z]\w+", question)
    words = set(re.findall(r"\w{5,}", question.lower()))
    sentences = re.split(r"(?<=[.!?])\s+", " ".join(passages))
    known = [text for text in sentences if all(name in text for name in names)]
    if not known:
        return "The passages do not say."
    return max(known, key=lambda text: sum(word in text.lower() for word in words))


def load() -> list[Document]:
    splitter = TextSplitter(800)
    records = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    return [
        Document(
            passage, metadata={**record["metadata"], "source": record["source_id"]}
        )
        for record in records
        for passage in splitter.chunks(record["text"])
    ]


def chain(store: ForgetmemVectorStore) -> Runnable[str, str]:
    retriever = ForgetmemRetriever(vectorstore=store, k=6)
    passages = retriever | (
        lambda found: "\n\n".join(document.page_content for document in found)
    )
    steps: Runnable[str, Any] = {
        "passages": passages,
        "question": RunnablePassthrough(),
    } | PROMPT
    return steps | QuotingModel() | StrOutputParser()


def main() -> None:
    documents, manager = load(), InMemoryRecordManager("fact sheets")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fact_sheets.forgetmem"
        with ForgetmemVectorStore(path=path) as store:
            options: dict[str, Any] = {
                "source_id_key": "source",
                "key_encoder": "sha256",
            }
            result = index(documents, manager, store, **options)
            print(f"indexed {result['num_added']} passages\n")
            answer = chain(store)
            for question in (QUESTION, OTHER):
                print(f"Q: {question}\nA: {answer.invoke(question)}\n")

            print(f"forgetting the source {SOURCE!r} from store and record manager")
            proof = forget_indexed(store, manager, source=SOURCE)
            saved, _ = proof.save(Path(folder) / "proof.json")
            print(f"{proof.forgotten} passages forgotten, proof saved\n")
            for question in (QUESTION, OTHER):
                print(f"Q: {question}\nA: {answer.invoke(question)}\n")

            found = b"Goodpasture" in path.read_bytes()
            print(f"its name is in the file: {'yes' if found else 'no'}")
            verdict = verify_indexed(store, manager, saved)
            print(f"the proof holds: {'yes' if verdict.ok else 'no'}")
            rest = [one for one in documents if one.metadata["source"] != SOURCE]
            again = index(rest, manager, store, cleanup="full", **options)
            print(f"indexed again: {again['num_skipped']} skipped, none added")


if __name__ == "__main__":
    main()
