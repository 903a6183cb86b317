"""What is left when documents are deleted the way LangChain and LlamaIndex offer?

200 real messages (examples/data) go into each store, 20 of them are deleted by the
framework's own call, everything is saved the documented way, and then every byte in the
store's folder is searched for what was deleted: its text, its id, its vector (float32,
or decimal numbers in JSON) and a hash of its content. Then someone indexes all 200
documents again, on purpose: what still holds their hash says "unchanged" for ever.

    python benchmarks/framework_deletes.py

Rows of packages that are not installed are left out: langchain-community (FAISS),
langchain-chroma and llama-index-vector-stores-chroma.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from langchain_forgetmem import ForgetmemVectorStore, forget_indexed
from llama_index.core import Document as Source
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore
from llama_index.vector_stores.forgetmem import (
    ForgetmemVectorStore as ForgetmemIndexStore,
)
from llama_index.vector_stores.forgetmem import forget_document
from report import machine, markdown, save

from forgetmem.embedding import as_embedder

DATA = Path(__file__).parents[1] / "examples" / "data" / "support_desk.jsonl"
N_DOCUMENTS, N_DELETED = 200, 20
PACKAGES = (
    "langchain-core",
    "langchain-community",
    "langchain-chroma",
    "llama-index-core",
    "llama-index-vector-stores-chroma",
    "chromadb",
)


class MiniLM(Embeddings):
    """The packaged model as LangChain takes it; every text is embedded once."""

    known: dict[str, list[float]] = {}  # noqa: RUF012

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed those that are new."""
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        if new:
            self.known.update(zip(new, as_embedder().encode(new).tolist(), strict=True))
        return [self.known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Embed one text."""
        return self.embed_documents([text])[0]


class IndexMiniLM(BaseEmbedding):
    """The same for LlamaIndex."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return MiniLM().embed_query(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return MiniLM().embed_query(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return MiniLM().embed_query(query)


@dataclass(frozen=True)
class Message:
    """One document."""

    id: str
    text: str


@dataclass(frozen=True)
class Case:
    """A way to delete: it fills a folder, then tells what indexing again does."""

    framework: str
    store: str
    call: str
    run: Callable[[Path], Iterator[str]]
    proof: str = "no"


@dataclass(frozen=True)
class Outcome:
    """What was found of the deleted documents in the files; counts of documents."""

    framework: str
    store: str
    call: str
    texts: int
    ids: int
    vectors: int
    hashes: int
    indexed_again: str
    proof: str
    before: dict[str, int]


def load() -> tuple[list[Message], list[Message]]:
    """Return all documents, and those that are deleted: no other holds their text."""
    rows = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
    messages = [
        Message(
            f"message-{row['id']}-{hashlib.md5(row['id'].encode()).hexdigest()}", text
        )
        for row in rows
        if len(text := " ".join(row["text"].split())) > 30
    ][:N_DOCUMENTS]
    alone = [
        one
        for one in messages
        if sum(one.text.lower() in other.text.lower() for other in messages) == 1
    ]
    return messages, alone[:: len(alone) // N_DELETED][:N_DELETED]


MESSAGES, DELETED = load()
DOOMED = {message.id for message in DELETED}


def measure(case: Case) -> Outcome:
    """Run a case, and search its files before and after the deletion."""
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        steps = case.run(folder)
        next(steps)
        before = traces(folder)
        next(steps)
        after = traces(folder)
        again = next(steps, "-")
        next(steps, None)
    own = {"framework": case.framework, "store": case.store, "call": case.call}
    return Outcome(**own, **after, indexed_again=again, proof=case.proof, before=before)


def traces(folder: Path) -> dict[str, int]:
    """Count the deleted documents of which something is in any file."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    content = b"\x00".join(path.read_bytes() for path in files)
    dense = content.translate(None, b" \n")
    return {
        kind: sum(
            any(form in content or form in dense for form in forms(one))
            for one in DELETED
        )
        for kind, forms in TRACES.items()
    }


def _vector_forms(message: Message) -> Iterator[bytes]:
    x = MiniLM().embed_query(message.text)
    for vector in (np.array(x), np.array(x) / np.linalg.norm(x)):
        yield vector.astype(np.float32)[:8].tobytes()
        yield vector[:4].tobytes()
    yield ",".join(repr(number) for number in x[:3]).encode()


def _hash_forms(message: Message) -> Iterator[bytes]:
    """Yield what LangChain and LlamaIndex make of the content."""
    yield Source(text=message.text).hash.encode()
    yield TextNode(text=message.text).hash.encode()
    text = hashlib.sha256(message.text.encode()).hexdigest()
    metadata = hashlib.sha256(json.dumps({"source": message.id}).encode()).hexdigest()
    yield hashlib.sha256((text + metadata).encode()).hexdigest().encode()


TRACES: dict[str, Callable[[Message], Iterator[bytes]]] = {
    "texts": lambda one: iter((one.text.encode(), json.dumps(one.text)[1:-1].encode())),
    "ids": lambda one: iter((one.id.encode(),)),
    "vectors": _vector_forms,
    "hashes": _hash_forms,
}


def documents() -> list[Document]:
    """Return LangChain's documents."""
    return [
        Document(one.text, id=one.id, metadata={"source": one.id}) for one in MESSAGES
    ]


def in_memory(*, saved_after: bool) -> Callable[[Path], Iterator[str]]:
    """Return LangChain's in-memory store, saved by `dump`."""

    def run(folder: Path) -> Iterator[str]:
        store = InMemoryVectorStore(MiniLM())
        store.add_documents(documents())
        store.dump(str(folder / "store.json"))
        yield "filled"
        store.delete(sorted(DOOMED))
        if saved_after:
            store.dump(str(folder / "store.json"))
        yield "saved"

    return run


def faiss(folder: Path) -> Iterator[str]:
    """Save LangChain's FAISS store."""
    from langchain_community.vectorstores import FAISS

    store = FAISS.from_documents(documents(), MiniLM(), ids=[m.id for m in MESSAGES])
    store.save_local(str(folder))
    yield "filled"
    store.delete(sorted(DOOMED))
    store.save_local(str(folder))
    yield "saved"


def chroma(folder: Path) -> Iterator[str]:
    """Keep LangChain's Chroma store in a folder."""
    from langchain_chroma import Chroma

    store = Chroma(persist_directory=str(folder), embedding_function=MiniLM())
    store.add_documents(documents())
    yield "filled"
    store.delete(sorted(DOOMED))
    yield "saved"


def ours(folder: Path) -> Iterator[str]:
    """Keep ours in a file."""
    with ForgetmemVectorStore(MiniLM(), folder / "store.forgetmem") as store:
        store.add_documents(documents())
        yield "filled"
        store.delete(sorted(DOOMED))
        yield "saved"


def indexed(
    forget: Callable[[VectorStore, InMemoryRecordManager], None],
    make: Callable[[Path], VectorStore],
) -> Callable[[Path], Iterator[str]]:
    """Return a store filled by `index()`, whose record manager is saved beside it."""

    def run(folder: Path) -> Iterator[str]:
        manager, store = InMemoryRecordManager("benchmark"), make(folder)
        given = [document.model_copy(update={"id": None}) for document in documents()]
        options = {"source_id_key": "source", "key_encoder": "sha256"}
        index(given, manager, store, **options)  # type: ignore[arg-type]
        for step in ("filled", "saved"):
            if step == "saved":
                forget(store, manager)
            keys = json.dumps(manager.list_keys())
            (folder / "record_manager.json").write_text(keys)
            if isinstance(store, InMemoryVectorStore):
                store.dump(str(folder / "store.json"))
            yield step
        result = index(given, manager, store, **options)  # type: ignore[arg-type]
        yield f"{result['num_added']} of {N_DELETED}"
        if isinstance(store, ForgetmemVectorStore):
            store.close()

    return run


def delete_from_store(store: VectorStore, manager: InMemoryRecordManager) -> None:
    """Delete as one would who has the store only."""
    if isinstance(store, InMemoryVectorStore):
        found = store.similarity_search(
            "card", 999, filter=lambda document: document.metadata["source"] in DOOMED
        )
        store.delete([document.id or "" for document in found])


def delete_from_both(store: VectorStore, manager: InMemoryRecordManager) -> None:
    """Forget from ours and the record manager."""
    assert isinstance(store, ForgetmemVectorStore)
    for source in sorted(DOOMED):
        forget_indexed(store, manager, source=source)


def llama(
    make: Callable[[Path], BasePydanticVectorStore | None],
    delete: Callable[[VectorStoreIndex, str], object],
) -> Callable[[Path], Iterator[str]]:
    """Return an index over a store, persisted before and after the deletion."""

    def run(folder: Path) -> Iterator[str]:
        store = make(folder)
        context = StorageContext.from_defaults(vector_store=store)
        sources = [Source(text=one.text, id_=one.id) for one in MESSAGES]
        built = VectorStoreIndex.from_documents(
            sources, storage_context=context, embed_model=IndexMiniLM()
        )
        context.persist(folder / "storage")
        yield "filled"
        for id in sorted(DOOMED):
            delete(built, id)
        context.persist(folder / "storage")
        yield "saved"
        again = built.refresh_ref_docs(sources)
        yield f"{sum(again)} of {N_DELETED}"
        if isinstance(store, ForgetmemIndexStore):
            store.close()

    return run


def chroma_index_store(folder: Path) -> BasePydanticVectorStore:
    """Keep LlamaIndex's Chroma store in a folder."""
    import chromadb
    from llama_index.vector_stores.chroma import ChromaVectorStore

    client = chromadb.PersistentClient(path=str(folder / "chroma"))
    return ChromaVectorStore(chroma_collection=client.create_collection("benchmark"))


CASES = [
    Case(
        "LangChain",
        "InMemoryVectorStore",
        "`delete(ids)`, the dump as it was",
        in_memory(saved_after=False),
    ),
    Case(
        "LangChain",
        "InMemoryVectorStore",
        "`delete(ids)`, dumped again",
        in_memory(saved_after=True),
    ),
    Case(
        "LangChain",
        "InMemoryVectorStore by `index()`",
        "`delete(ids)`, dumped again",
        indexed(delete_from_store, lambda folder: InMemoryVectorStore(MiniLM())),
    ),
    Case("LangChain", "FAISS", "`delete(ids)`, saved again", faiss),
    Case("LangChain", "Chroma", "`delete(ids)`", chroma),
    Case("LangChain", "**forgetmem**", "`delete(ids)` or `forget(ids)`", ours, "yes"),
    Case(
        "LangChain",
        "**forgetmem** by `index()`",
        "`forget_indexed(source=...)`",
        indexed(
            delete_from_both,
            lambda folder: ForgetmemVectorStore(MiniLM(), folder / "store.forgetmem"),
        ),
        "yes",
    ),
    Case(
        "LlamaIndex",
        "SimpleVectorStore",
        "`delete_ref_doc(id)`, persisted again",
        llama(lambda folder: None, lambda built, id: built.delete_ref_doc(id)),
    ),
    Case(
        "LlamaIndex",
        "SimpleVectorStore",
        "`delete_ref_doc(id, delete_from_docstore=True)`, persisted again",
        llama(
            lambda folder: None,
            lambda built, id: built.delete_ref_doc(id, delete_from_docstore=True),
        ),
    ),
    Case(
        "LlamaIndex",
        "Chroma",
        "`delete_ref_doc(id, delete_from_docstore=True)`, persisted again",
        llama(
            chroma_index_store,
            lambda built, id: built.delete_ref_doc(id, delete_from_docstore=True),
        ),
    ),
    Case(
        "LlamaIndex",
        "**forgetmem**",
        "`delete_ref_doc(id, delete_from_docstore=True)`, persisted again",
        llama(
            lambda folder: ForgetmemIndexStore(folder / "store.forgetmem"),
            lambda built, id: built.delete_ref_doc(id, delete_from_docstore=True),
        ),
    ),
    Case(
        "LlamaIndex",
        "**forgetmem**",
        "`forget_document(index, id)`, persisted again",
        llama(
            lambda folder: ForgetmemIndexStore(folder / "store.forgetmem"),
            forget_document,
        ),
        "yes",
    ),
]


def versions() -> dict[str, str]:
    """Return the versions of the frameworks that are installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def section(result: dict[str, Any]) -> str:
    """The part of the README."""
    header = ["store", "call", "texts", "vectors", "hashes", "indexed again", "proof"]
    rows = [
        [
            f"{one['framework']} {one['store']}",
            one["call"],
            str(one["texts"]),
            str(one["vectors"]),
            str(one["hashes"]),
            str(one["indexed_again"]),
            one["proof"],
        ]
        for one in result["outcomes"]
    ]
    return f"""## What is left after each framework's own deletions?

`{result["machine"]["command"]}`; {result["deleted"]} of {result["documents"]} messages
deleted by the framework's own call, everything saved the documented way, every byte of the
store's folder searched, and the {result["deleted"]} offered to it again.

{markdown(header, rows)}
"""


def main() -> None:
    """Run every case, print a table and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="not read: all data is made or shipped")
    parser.add_argument("--small", action="store_true", help="the same: it is small")
    small = parser.parse_args().small
    outcomes = []
    for case in CASES:
        try:
            outcomes.append(measure(case))
        except ImportError as error:
            print(f"left out: {case.framework} {case.store} ({error})")
    header = [
        "framework", "store", "deleted by", "texts left", "ids left", "vectors left",
        "content hashes left", "would be indexed again", "proof",
    ]  # fmt: skip
    rows = [[str(value) for value in asdict(one).values()][:-1] for one in outcomes]
    print(markdown(header, rows))
    save(
        "framework_deletes_small" if small else "framework_deletes",
        {
            "machine": machine(),
            "frameworks": versions(),
            "documents": len(MESSAGES),
            "deleted": len(DELETED),
            "outcomes": [asdict(one) for one in outcomes],
        },
    )


if __name__ == "__main__":
    main()
