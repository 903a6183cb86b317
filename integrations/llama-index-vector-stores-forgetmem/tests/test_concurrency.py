"""Threads, the event loop, and calls that are cancelled."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.vector_stores.forgetmem import ForgetmemVectorStore

Make = Callable[..., TextNode]
Embed = Callable[[str], list[float]]


def work(store: ForgetmemVectorStore, make: Make, worker: int) -> None:
    """Add, query and forget nodes of one's own."""
    for turn in range(3):
        source = f"w{worker:02d}-{turn}"
        nodes = [
            make(f"{source}-{n}", f"worker{worker} turn{turn} note{n}", source=source)
            for n in range(4)
        ]
        ids = [node.node_id for node in nodes]
        assert store.add(nodes) == ids
        query = VectorStoreQuery(
            query_embedding=nodes[1].embedding, doc_ids=[source], similarity_top_k=1
        )
        assert store.query(query).ids == [ids[1]]
        store.delete_nodes(ids[:2])
        assert [node.node_id for node in store.get_nodes(ids)] == ids[2:]
        if turn == 1:
            store.delete(source)


def test_sixteen_threads_end_where_one_does(make_node: Make, path: Path) -> None:
    """The store is made in another thread than those that use it."""
    with ForgetmemVectorStore(path) as store:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda worker: work(store, make_node, worker), range(16)))
        digest = store.client.digest()
        assert store.client.audit().ok
    with ForgetmemVectorStore() as serial:
        for worker in range(16):
            work(serial, make_node, worker)
        assert serial.client.digest() == digest


async def test_mixed_async_calls_end_where_serial_ones_do(
    store: ForgetmemVectorStore, make_node: Make
) -> None:
    """Fifty at once."""

    async def one(number: int) -> None:
        node = make_node(f"n{number}", f"note {number}", source=f"d{number}")
        await store.async_add([node])
        query = VectorStoreQuery(
            query_embedding=node.embedding, node_ids=[node.node_id]
        )
        assert (await store.aquery(query)).ids == [node.node_id]
        if number % 2:
            await store.adelete(f"d{number}")
        else:
            assert len(await store.aget_nodes([node.node_id])) == 1

    await asyncio.gather(*(one(number) for number in range(50)))
    with ForgetmemVectorStore() as serial:
        for n in range(0, 50, 2):
            serial.add([make_node(f"n{n}", f"note {n}", source=f"d{n}")])
        assert store.client.digest() == serial.client.digest()


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


async def test_event_loop_keeps_running(
    store: ForgetmemVectorStore, make_node: Make, vector: Embed
) -> None:
    """While thousands of nodes are added, queried and forgotten."""
    store.add([make_node("w1", "warm up"), make_node("w2", "warm up too")])
    store.clear()
    nodes = [
        make_node(f"n{n:04d}", f"note {n} of {n % 40}", source=f"s{n % 3}")
        for n in range(3000)
    ]
    async with Heartbeat() as heart:
        await store.async_add(nodes)
        await store.aquery(VectorStoreQuery(query_embedding=vector("note 7")))
        await store.adelete("s1")
        await store.adelete_nodes([f"n{n:04d}" for n in range(0, 900, 3)])
        assert len(await store.aget_nodes()) == 1700
        await store.aclear()
    assert store.list_ids() == []
    assert heart.gap < 0.25


async def test_cancelled_call_leaves_a_whole_state(
    make_node: Make, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call is either not begun or completed; the store goes on."""
    with ForgetmemVectorStore(path) as store:
        store.add([make_node("first", "x")])
        nodes = [make_node(f"n{n:02d}", f"note {n}", source="d") for n in range(40)]
        add = store.client.add

        def slow(*args: Any, **kwargs: Any) -> list[str]:
            time.sleep(0.15)
            return add(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(store.client, "add", slow)
            await cancelled(store.async_add(nodes), after=0.05)
            await until(lambda: len(store.list_ids()) == 41)
        await cancelled(store.adelete("d"), after=0.0)
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert len(store.list_ids()) in (1, 41)
        assert store.client.audit().ok
        await store.adelete("d")
    with ForgetmemVectorStore(path) as again:
        assert again.list_ids() == ["first"]


async def cancelled(call: Any, after: float) -> None:
    """Begin a call and cancel it."""
    task = asyncio.create_task(call)
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds, at most twenty seconds."""
    deadline = time.monotonic() + 20
    while not condition() and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert condition()
