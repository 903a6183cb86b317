"""Threads, the event loop, and calls that are cancelled."""

from __future__ import annotations

import asyncio
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_forgetmem import ForgetmemRetriever, ForgetmemVectorStore


def work(store: ForgetmemVectorStore, worker: int) -> None:
    """Add, search and forget documents of one's own."""
    retriever = ForgetmemRetriever(vectorstore=store, k=3)
    for turn in range(3):
        ids = [f"w{worker:02d}-{turn}-{n}" for n in range(4)]
        texts = [f"worker{worker} turn{turn} note{n}" for n in range(4)]
        assert store.add_texts(texts, [{"w": worker}] * 4, ids=ids) == ids
        found = store.similarity_search(texts[1], k=1, filter={"w": worker})
        assert [document.id for document in found] == [ids[1]]
        assert len(retriever.invoke(texts[2])) == 3
        assert store.delete(ids[:2])
        assert [d.id for d in store.get_by_ids(ids)] == ids[2:]


def test_sixteen_threads_end_where_one_does(embeddings: Embeddings, path: Path) -> None:
    """The store is made in another thread than those that use it."""
    with ForgetmemVectorStore(embeddings, path) as store:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda worker: work(store, worker), range(16)))
        digest = store.memory.digest()
        assert store.memory.audit().ok
    serial = ForgetmemVectorStore(embeddings)
    for worker in range(16):
        work(serial, worker)
    assert serial.memory.digest() == digest


async def test_mixed_async_calls_end_where_serial_ones_do(
    store: ForgetmemVectorStore, embeddings: Embeddings
) -> None:
    """Fifty at once."""

    async def one(number: int) -> None:
        id = f"n{number}"
        await store.aadd_texts([f"note {number}"], [{"n": number}], ids=[id])
        (found,) = await store.asimilarity_search("note", k=1, filter={"n": number})
        assert found.id == id
        if number % 2:
            assert await store.adelete([id])
        else:
            assert len(await store.aget_by_ids([id])) == 1

    await asyncio.gather(*(one(number) for number in range(50)))
    serial = ForgetmemVectorStore(embeddings)
    even = range(0, 50, 2)
    serial.add_texts(
        [f"note {n}" for n in even],
        [{"n": n} for n in even],
        ids=[f"n{n}" for n in even],
    )
    assert store.memory.digest() == serial.memory.digest()


class Heartbeat:
    """Measures the largest gap between two turns of the event loop.

    What was imported is kept from Python's garbage collector meanwhile: a walk over
    all of it stops every thread for a quarter of a second, whoever caused it.
    """

    async def __aenter__(self) -> Heartbeat:
        gc.collect()
        gc.freeze()
        self.gap = 0.0
        self._task = asyncio.create_task(self._beat())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *error: object) -> None:
        gc.unfreeze()
        self._task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self._task

    async def _beat(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.02)
            self.gap = max(self.gap, time.perf_counter() - before)


async def test_event_loop_keeps_running(store: ForgetmemVectorStore) -> None:
    """While thousands of documents are added, searched and forgotten."""
    store.add_texts(["warm up", "warm up too"], [{"source": "w"}] * 2)
    store.forget(source="w")
    batch = [
        Document(f"note {n} of {n % 40}", metadata={"source": f"s{n % 2}"})
        for n in range(3000)
    ]
    async with Heartbeat() as heart:
        ids = await store.aadd_documents(batch)
        await store.asimilarity_search("note 7", k=5, filter=lambda d: "7" in str(d))
        await store.adelete(ids[:1000])
        await store.aforget(source="s1")
    assert len(store.list_ids()) == 1000
    assert heart.gap < 0.25


class Slow(Embeddings):
    """Takes its time, so that a call can be cancelled in the middle of it."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Wait, then embed."""
        time.sleep(0.15)
        return [[1.0, float(len(text))] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Embed at once."""
        return [1.0, float(len(text))]


async def test_cancelled_call_leaves_a_whole_state(tmp_path: Path) -> None:
    """A call is either not begun or completed; the store goes on."""
    path = tmp_path / "x.forgetmem"
    with ForgetmemVectorStore(Slow(), path) as store:
        store.add_texts(["x"], ids=["first"])
        texts = [f"{'x' * n}" for n in range(1, 40)]
        task = asyncio.create_task(store.aadd_texts(texts, ids=texts))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        deadline = time.monotonic() + 20
        while len(store.list_ids()) == 1 and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        assert store.list_ids() == sorted(["first", *texts])
        task = asyncio.create_task(store.adelete(texts[:20]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert len(store.list_ids()) in (20, 40)
        await store.adelete(texts[:20])
        assert store.list_ids() == sorted(["first", *texts[20:]])
        assert store.memory.audit().ok
    with ForgetmemVectorStore(Slow(), path) as again:
        assert len(again.list_ids()) == 20
