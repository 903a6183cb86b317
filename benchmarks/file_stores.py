"""Indexes and stores that write their whole file when they are saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from stores import Answer, Store, number


class FaissFlat(Store):
    """FAISS without any structure, with ids."""

    name = "FAISS, flat"
    packages = ("faiss-cpu",)
    deletion = "`remove_ids`, written again"
    holds_texts = False

    def __init__(self, folder: Path) -> None:
        import faiss

        super().__init__(folder)
        faiss.omp_set_num_threads(1)
        self.faiss = faiss
        self.file = str(folder / "index.faiss")
        self.index: Any = None
        if Path(self.file).exists():
            self.index = faiss.read_index(self.file)
            self._settle()

    def _settle(self) -> None:
        """Set what is not part of the file."""

    def _made(self, X: np.ndarray) -> Any:
        return self.faiss.IndexIDMap2(self.faiss.IndexFlatIP(X.shape[1]))

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        self.index = self._made(X)
        self._settle()
        self.index.add_with_ids(X, np.array([number(id) for id in ids]))
        self._save()

    def _save(self) -> None:
        self.faiss.write_index(self.index, self.file)

    def search(self, query: np.ndarray, k: int) -> Answer:
        scores, labels = self.index.search(query[np.newaxis], k)
        return [(f"{n}", float(s)) for n, s in zip(labels[0], scores[0], strict=True)]

    def delete(self, ids: Sequence[str]) -> None:
        self.index.remove_ids(np.array([number(id) for id in ids]))
        self._save()


class FaissIVF(FaissFlat):
    """FAISS with cells that are trained on the vectors."""

    name = "FAISS, IVF"
    exhaustive = False

    def _settle(self) -> None:
        self.index.nprobe = 8

    def _made(self, X: np.ndarray) -> Any:
        d = X.shape[1]
        flat, cells = self.faiss.IndexFlatIP(d), max(len(X) // 200, 1)
        index = self.faiss.IndexIVFFlat(flat, d, cells, self.faiss.METRIC_INNER_PRODUCT)
        # The index keeps a pointer; Python must keep the object.
        self.flat = flat
        index.train(X)
        return index


class FaissHNSW(FaissFlat):
    """FAISS's graph, which cannot remove: the deleted ids are filtered out."""

    name = "FAISS, HNSW"
    deletion = "none: filtered by `IDSelector`"
    exhaustive = False

    def __init__(self, folder: Path) -> None:
        self.gone: list[int] = []
        super().__init__(folder)

    def _made(self, X: np.ndarray) -> Any:
        graph = self.faiss.IndexHNSWFlat(
            X.shape[1], 16, self.faiss.METRIC_INNER_PRODUCT
        )
        graph.hnsw.efConstruction, graph.hnsw.efSearch = 200, 64
        return self.faiss.IndexIDMap2(graph)

    def search(self, query: np.ndarray, k: int) -> Answer:
        chosen = self.faiss.IDSelectorBatch(np.array(self.gone, dtype=np.int64))
        left = self.faiss.IDSelectorNot(chosen)
        # What an index that was read from a file searches with is not in the file.
        params = self.faiss.SearchParametersHNSW(sel=left, efSearch=64)
        scores, labels = self.index.search(query[np.newaxis], k, params=params)
        return [(f"{n}", float(s)) for n, s in zip(labels[0], scores[0], strict=True)]

    def delete(self, ids: Sequence[str]) -> None:
        self.gone += [number(id) for id in ids]
        self._save()


class Hnswlib(Store):
    """hnswlib, saved to a file."""

    name = "hnswlib"
    packages = ("hnswlib",)
    deletion = "`mark_deleted(label)`, saved"
    holds_texts = False
    exhaustive = False

    def __init__(self, folder: Path) -> None:
        import hnswlib

        super().__init__(folder)
        self.index = hnswlib.Index(space="ip", dim=384)
        if (folder / "index.bin").exists():
            self.index.load_index(str(folder / "index.bin"))
            self._settle()

    def _settle(self) -> None:
        self.index.set_num_threads(1)
        self.index.set_ef(64)

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        self.index.init_index(
            max_elements=len(X), M=16, ef_construction=200, random_seed=7
        )
        self._settle()
        self.index.add_items(X, [number(id) for id in ids], num_threads=1)
        self.index.save_index(str(self.folder / "index.bin"))

    def search(self, query: np.ndarray, k: int) -> Answer:
        labels, distances = self.index.knn_query(query, k)
        return [
            (f"{label}", -float(distance))
            for label, distance in zip(labels[0], distances[0], strict=True)
        ]

    def delete(self, ids: Sequence[str]) -> None:
        for id in ids:
            self.index.mark_deleted(number(id))
        self.index.save_index(str(self.folder / "index.bin"))


class Usearch(Store):
    """usearch, saved to a file."""

    name = "usearch"
    packages = ("usearch",)
    deletion = "`remove(keys)`, saved"
    holds_texts = False
    exhaustive = False

    def __init__(self, folder: Path) -> None:
        from usearch.index import Index

        super().__init__(folder)
        self.file = str(folder / "index.usearch")
        self.index: Any = Index(ndim=384, metric="ip", dtype="f32")
        if Path(self.file).exists():
            self.index.load(self.file)

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        keys = np.array([number(id) for id in ids], dtype=np.uint64)
        self.index.add(keys, X, threads=1)
        self.index.save(self.file)

    def search(self, query: np.ndarray, k: int) -> Answer:
        found = self.index.search(query, k, threads=1)
        return [
            (f"{key}", -float(distance))
            for key, distance in zip(found.keys, found.distances, strict=True)
        ]

    def delete(self, ids: Sequence[str]) -> None:
        self._remove(ids, compact=False)

    def _remove(self, ids: Sequence[str], *, compact: bool) -> None:
        keys = np.array([number(id) for id in ids], dtype=np.uint64)
        self.index.remove(keys, compact=compact, threads=1)
        self.index.save(self.file)


class UsearchCompact(Usearch):
    """usearch that also removes the links to what is removed."""

    name = "usearch, compact"
    deletion = "`remove(keys, compact=True)`, saved"

    def delete(self, ids: Sequence[str]) -> None:
        self._remove(ids, compact=True)


class _Given:
    """An embedder that knows the vectors that were given; nothing else is asked."""

    def __init__(self) -> None:
        self.known: dict[str, list[float]] = {}

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.known[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.known[text]


class LangChainInMemory(Store):
    """LangChain's in-memory store, dumped."""

    name = "LangChain, in memory"
    packages = ("langchain-core",)
    deletion = "`delete(ids)`, dumped again"
    most = 2_000

    def __init__(self, folder: Path) -> None:
        from langchain_core.vectorstores import InMemoryVectorStore

        super().__init__(folder)
        self.file = str(folder / "store.json")
        self.given: Any = _Given()
        if Path(self.file).exists():
            self.store = InMemoryVectorStore.load(self.file, self.given)
        else:
            self.store = InMemoryVectorStore(self.given)

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        self.given.known = dict(zip(texts, X.tolist(), strict=True))
        self.store.add_texts(list(texts), ids=list(ids))
        self.store.dump(self.file)

    def search(self, query: np.ndarray, k: int) -> Answer:
        found = self.store.similarity_search_with_score_by_vector(query.tolist(), k)
        return [(document.id or "", float(score)) for document, score in found]

    def delete(self, ids: Sequence[str]) -> None:
        self.store.delete(list(ids))
        self.store.dump(self.file)


class LangChainFAISS(Store):
    """LangChain's FAISS store, saved."""

    name = "LangChain, FAISS"
    packages = ("langchain-community", "faiss-cpu")
    deletion = "`delete(ids)`, saved again"
    #: Its default is the squared distance.
    trusted: ClassVar[dict[str, bool]] = {"allow_dangerous_deserialization": True}

    def __init__(self, folder: Path) -> None:
        import faiss
        from langchain_community.vectorstores import FAISS

        super().__init__(folder)
        faiss.omp_set_num_threads(1)
        self.given: Any = _Given()
        self.made, self.store = FAISS, None
        if (folder / "index.faiss").exists():
            self.store = FAISS.load_local(str(folder), self.given, **self.trusted)

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        pairs = list(zip(texts, X.tolist(), strict=True))
        self.store = self.made.from_embeddings(pairs, self.given, ids=list(ids))
        self.store.save_local(str(self.folder))

    def search(self, query: np.ndarray, k: int) -> Answer:
        found = self.store.similarity_search_with_score_by_vector(query.tolist(), k)
        return [(document.id, -float(score)) for document, score in found]

    def delete(self, ids: Sequence[str]) -> None:
        self.store.delete(list(ids))
        self.store.save_local(str(self.folder))
