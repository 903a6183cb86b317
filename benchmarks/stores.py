"""Vector stores behind one interface, each through its own public calls.

A store is opened in a folder, filled once, and asked for the largest inner products of
unit vectors. `delete` is what its users call to delete; `clean_up` is the call that its
documentation offers for getting rid of what was deleted, if there is one. Everything
runs with one thread and fixed seeds where the interface lets one choose.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

#: Ids and scores, best first; the larger a score, the better.
Answer = list[tuple[str, float]]


class Store:
    """What every store does."""

    name: ClassVar[str]
    #: Distributions that it needs.
    packages: ClassVar[tuple[str, ...]]
    #: How records are deleted, for the table.
    deletion: ClassVar[str]
    #: The documented call that cleans up after a deletion; empty if there is none.
    cleaning: ClassVar[str] = ""
    #: Whether it holds texts and ids beside the vectors.
    holds_texts: ClassVar[bool] = True
    exhaustive: ClassVar[bool] = True
    #: So many records at most: some take seconds for a thousand.
    most: ClassVar[int] = 1_000_000
    #: The share of the records that is deleted.
    share: ClassVar[float] = 0.01

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        """Fill the store."""
        raise NotImplementedError

    def search(self, query: np.ndarray, k: int) -> Answer:
        """Find the nearest."""
        raise NotImplementedError

    def delete(self, ids: Sequence[str]) -> None:
        """Delete, and make it durable."""
        raise NotImplementedError

    def clean_up(self) -> None:
        """Do what the documentation offers."""

    def close(self) -> None:
        """Let go of the files."""

    def state(self) -> str:
        """A digest of all that answers depend on, if the store has one."""
        return ""


def number(id: str) -> int:
    """The number in an id, for stores that know numbers only."""
    return int(id.split("-")[1])


class Forgetmem(Store):
    """This library."""

    name = "**forgetmem**"
    packages = ("forgetmem",)
    deletion = "`forget(ids)`"
    cleaning = "`compact()`"
    ranking: ClassVar[Any] = "similarity"

    def __init__(self, folder: Path) -> None:
        from forgetmem import ForgettableMemory

        super().__init__(folder)
        self.memory = ForgettableMemory(folder / "memory.forgetmem")

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        self.memory.add(texts, ids=ids, embeddings=X)

    def search(self, query: np.ndarray, k: int) -> Answer:
        hits = self.memory.search(query, k, ranking=self.ranking)
        return [(hit.id, hit.score) for hit in hits]

    def delete(self, ids: Sequence[str]) -> None:
        self.memory.forget(ids)

    def clean_up(self) -> None:
        self.memory.compact()

    def state(self) -> str:
        return self.memory.digest()

    def close(self) -> None:
        self.memory.close()


class ForgetmemSupport(Forgetmem):
    """This library, with its own ranking."""

    name = "**forgetmem**, support ranking"
    ranking = "support"


class Chroma(Store):
    """Chroma in a folder, HNSW."""

    name = "Chroma"
    packages = ("chromadb",)
    deletion = "`collection.delete(ids)`"
    cleaning = "`chroma vacuum`"
    exhaustive = False

    def __init__(self, folder: Path) -> None:
        import chromadb

        super().__init__(folder)
        settings = chromadb.Settings(anonymized_telemetry=False)
        self.client = chromadb.PersistentClient(str(folder / "chroma"), settings)
        self.collection = self.client.get_or_create_collection(
            "records",
            configuration={"hnsw": {"space": "ip", "num_threads": 1}},
            embedding_function=None,
        )

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        step = 1000
        for start in range(0, len(ids), step):
            part = slice(start, start + step)
            self.collection.add(
                list(ids[part]), embeddings=X[part], documents=list(texts[part])
            )

    def search(self, query: np.ndarray, k: int) -> Answer:
        found = self.collection.query(query_embeddings=query[np.newaxis], n_results=k)
        distances = found["distances"] or [[]]
        return [
            (id, -distance)
            for id, distance in zip(found["ids"][0], distances[0], strict=True)
        ]

    def delete(self, ids: Sequence[str]) -> None:
        self.collection.delete(list(ids))

    def clean_up(self) -> None:
        self.close()
        command = Path(sys.executable).parent / "chroma"
        place = str(self.folder / "chroma")
        subprocess.run(
            [command, "vacuum", "--path", place, "--force"],
            check=True,
            capture_output=True,
        )
        self.__init__(self.folder)  # type: ignore[misc]

    def close(self) -> None:
        self.client.close()


class Qdrant(Store):
    """Qdrant's local mode: vectors in RAM, pickled into SQLite."""

    name = "Qdrant, local mode"
    packages = ("qdrant-client",)
    deletion = "`client.delete(points_selector)`"
    most = 2_000

    def __init__(self, folder: Path) -> None:
        from qdrant_client import QdrantClient, models

        super().__init__(folder)
        self.client = QdrantClient(path=str(folder / "qdrant"))
        self.models = models
        if not self.client.collection_exists("records"):
            self.client.create_collection(
                "records", models.VectorParams(size=384, distance=models.Distance.DOT)
            )

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        points = [
            self.models.PointStruct(
                id=number(id), vector=x.tolist(), payload={"id": id, "text": text}
            )
            for id, text, x in zip(ids, texts, X, strict=True)
        ]
        self.client.upsert("records", points)

    def search(self, query: np.ndarray, k: int) -> Answer:
        found = self.client.query_points("records", query.tolist(), limit=k)
        return [((p.payload or {})["id"], p.score) for p in found.points]

    def delete(self, ids: Sequence[str]) -> None:
        numbers = [number(id) for id in ids]
        self.client.delete("records", self.models.PointIdsList(points=numbers))

    def close(self) -> None:
        self.client.close()


class QdrantOtherSqlite(Qdrant):
    """The same on an SQLite that is built without SECURE_DELETE, as most are."""

    name = "Qdrant, local mode, SQLite without SECURE_DELETE"
    packages = ("qdrant-client", "pysqlite3-binary")

    def __init__(self, folder: Path) -> None:
        sys.modules["sqlite3"] = importlib.import_module("pysqlite3")
        super().__init__(folder)


class LanceDB(Store):
    """LanceDB without an index."""

    name = "LanceDB"
    packages = ("lancedb", "pylance")
    deletion = "`table.delete(where)`"
    cleaning = "`optimize(cleanup_older_than=0, delete_unverified=True)`"
    index: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        import lancedb

        super().__init__(folder)
        self.database = lancedb.connect(str(folder / "lance"))
        names = self.database.list_tables().tables
        self.table: Any = self.database.open_table("r") if "r" in names else None

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        import pyarrow as pa

        flat = pa.array(X.ravel(), pa.float32())
        vectors = pa.FixedSizeListArray.from_arrays(flat, X.shape[1])
        columns = {"id": list(ids), "text": list(texts), "vector": vectors}
        self.table = self.database.create_table("r", pa.table(columns))
        if self.index:
            from lancedb.index import IvfFlat

            self.table.create_index("vector", config=IvfFlat(distance_type="dot"))
            self.table.wait_for_index(["vector_idx"])

    def search(self, query: np.ndarray, k: int) -> Answer:
        wanted = self.table.search(query).distance_type("dot").limit(k)
        rows = wanted.select(["id", "_distance"]).to_list()
        return [(row["id"], -row["_distance"]) for row in rows]

    def delete(self, ids: Sequence[str]) -> None:
        self.table.delete("id IN (" + ", ".join(f"'{id}'" for id in ids) + ")")

    def clean_up(self) -> None:
        self.table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)


class LanceDBManyDeleted(LanceDB):
    """LanceDB, whose clean-up rewrites files that lost more than a tenth."""

    name = "LanceDB, 15 % deleted"
    share = 0.15


class LanceDBIndexed(LanceDB):
    """LanceDB with a trained index."""

    name = "LanceDB, IVF_FLAT"
    exhaustive = False
    index = True


class SqliteVec(Store):
    """sqlite-vec: a virtual table for vectors, a plain one for texts."""

    name = "sqlite-vec"
    packages = ("sqlite-vec", "pysqlite3-binary")
    deletion = "`DELETE`"
    cleaning = "`VACUUM`"

    def __init__(self, folder: Path) -> None:
        import pysqlite3
        import sqlite_vec

        super().__init__(folder)
        self.db = pysqlite3.connect(str(folder / "vec.sqlite"), isolation_level=None)
        self.db.enable_load_extension(True)
        sqlite_vec.load(self.db)
        self.db.executescript(
            "CREATE TABLE IF NOT EXISTS record"
            " (n INTEGER PRIMARY KEY, id TEXT UNIQUE, text TEXT);"
            "CREATE VIRTUAL TABLE IF NOT EXISTS vector USING vec0"
            " (n INTEGER PRIMARY KEY, x float[384]);"
        )

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        numbers = [number(id) for id in ids]
        rows = zip(numbers, ids, texts, strict=True)
        vectors = zip(numbers, (x.tobytes() for x in X), strict=True)
        self.db.execute("BEGIN")
        self.db.executemany("INSERT INTO record VALUES (?, ?, ?)", rows)
        self.db.executemany("INSERT INTO vector VALUES (?, ?)", vectors)
        self.db.execute("COMMIT")

    def search(self, query: np.ndarray, k: int) -> Answer:
        rows = self.db.execute(
            "SELECT id, distance FROM (SELECT n, distance FROM vector"
            " WHERE x MATCH ? AND k = ?) JOIN record USING (n) ORDER BY distance",
            (query.tobytes(), k),
        )
        return [(id, -distance) for id, distance in rows]

    def delete(self, ids: Sequence[str]) -> None:
        numbers = [(number(id),) for id in ids]
        self.db.execute("BEGIN")
        self.db.executemany("DELETE FROM record WHERE n = ?", numbers)
        self.db.executemany("DELETE FROM vector WHERE n = ?", numbers)
        self.db.execute("COMMIT")

    def clean_up(self) -> None:
        self.db.execute("VACUUM")

    def close(self) -> None:
        self.db.close()


class MilvusLite(Store):
    """Milvus Lite in a folder."""

    name = "Milvus Lite, FLAT"
    packages = ("milvus-lite", "pymilvus")
    deletion = "`client.delete(ids)`"
    cleaning = "`flush()`, `compact()`"
    kind: ClassVar[str] = "FLAT"

    def __init__(self, folder: Path) -> None:
        from pymilvus import DataType, MilvusClient

        super().__init__(folder)
        self.client = MilvusClient(str(folder / "milvus.db"))
        if not self.client.has_collection("records"):
            schema = MilvusClient.create_schema()
            options = {"datatype": DataType.VARCHAR, "max_length": 512}
            schema.add_field("id", is_primary=True, **options)
            schema.add_field("text", **options)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=384)
            params = MilvusClient.prepare_index_params()
            params.add_index("vector", index_type=self.kind, metric_type="IP")
            self.client.create_collection("records", schema=schema, index_params=params)
        self.client.load_collection("records")

    def add(self, ids: Sequence[str], texts: Sequence[str], X: np.ndarray) -> None:
        rows = [
            {"id": id, "text": text, "vector": x.tolist()}
            for id, text, x in zip(ids, texts, X, strict=True)
        ]
        for start in range(0, len(rows), 1000):
            self.client.insert("records", rows[start : start + 1000])
        self.client.flush("records")

    def search(self, query: np.ndarray, k: int) -> Answer:
        found = self.client.search("records", [query.tolist()], limit=k)
        return [(hit["id"], hit["distance"]) for hit in found[0]]

    def delete(self, ids: Sequence[str]) -> None:
        self.client.delete("records", ids=list(ids))

    def clean_up(self) -> None:
        self.client.flush("records")
        self.client.compact("records")

    def close(self) -> None:
        self.client.close()


class MilvusLiteHNSW(MilvusLite):
    """Milvus Lite with a graph index."""

    name = "Milvus Lite, HNSW"
    exhaustive = False
    kind = "HNSW"
