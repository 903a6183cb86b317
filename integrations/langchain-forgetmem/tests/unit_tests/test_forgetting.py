"""Forgetting: gone from every read path, every file and the state, with a proof."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_forgetmem import ForgetmemRetriever, ForgetmemVectorStore

from forgetmem import ForgetProof, RecordNotFoundError

SECRET = "zq7-unique-phrase of Anna"
NOTE = "qx-secret-note"


def bytes_of(path: Path) -> bytes:
    """Read every file of the store's folder, side files included."""
    files = sorted(path.parent.iterdir())
    return b"\x00\xff\x00".join(file.read_bytes() for file in files)


def traces(text: str) -> list[bytes]:
    """Encode a text in the ways in which it might be left in a file."""
    forms = [text, text.lower(), text.encode("unicode_escape").decode()]
    return [form.encode(code) for form in forms for code in ("utf-8", "utf-16-le")]


@pytest.fixture
def filled(store: ForgetmemVectorStore) -> ForgetmemVectorStore:
    """Add one secret among other documents, near to it and far from it."""
    store.add_texts(
        [SECRET, f"{SECRET} again", "the pump failed", "the valve leaked"],
        [{"note": NOTE, "u": "u1"}, {"u": "u2"}, {"u": "u2"}, {"u": "u1"}],
        ids=["secret-id-0001", "b", "c", "d"],
    )
    return store


async def answers(store: ForgetmemVectorStore, query: str) -> Iterator[Document]:
    """Ask through every read path, sync and async."""
    vector = store.embeddings.embed_query(query) if store.embeddings else []
    retriever = ForgetmemRetriever(vectorstore=store, k=9)
    found: list[Document] = [
        *store.similarity_search(query, k=9),
        *[document for document, _ in store.similarity_search_with_score(query, k=9)],
        *store.similarity_search_by_vector(vector, k=9),
        *[d for d, _ in store.similarity_search_with_relevance_scores(query, k=9)],
        *store.max_marginal_relevance_search(query, k=9),
        *store.max_marginal_relevance_search_by_vector(vector, k=9),
        *store.support_search(query, k=9),
        *store.similarity_search(query, k=9, filter={"note": NOTE}),
        *store.similarity_search(query, k=9, filter=lambda document: True),
        *store.get_by_ids(["secret-id-0001", "b", "c", "d"]),
        *store.get_by_ids(store.list_ids()),
        *retriever.invoke(query),
        *await retriever.ainvoke(query),
        *await store.asimilarity_search(query, k=9),
        *[d for d, _ in await store.asimilarity_search_with_score(query, k=9)],
        *await store.asimilarity_search_by_vector(vector, k=9),
        *[
            d
            for d, _ in await store.asimilarity_search_with_relevance_scores(query, k=9)
        ],
        *await store.amax_marginal_relevance_search(query, k=9),
        *await store.amax_marginal_relevance_search_by_vector(vector, k=9),
        *await store.asupport_search(query, k=9),
        *await store.aget_by_ids(["secret-id-0001", "b"]),
    ]
    for search_type in ("similarity", "mmr", "support"):
        stock = store.as_retriever(search_type=search_type)
        found += [*stock.invoke(query), *await stock.ainvoke(query)]
    return iter(found)


async def test_forgotten_is_absent_from_every_read_path(
    filled: ForgetmemVectorStore,
) -> None:
    """And was there before."""
    before = {document.id async for document in _each(answers(filled, SECRET))}
    assert "secret-id-0001" in before
    filled.forget("secret-id-0001")
    found = [document async for document in _each(answers(filled, SECRET))]
    assert {document.id for document in found} == {"b", "c", "d"}
    assert "secret-id-0001" not in filled.list_ids()
    assert all(document.metadata.get("note") != NOTE for document in found)
    for hit in filled.hits(SECRET, 9):
        assert "secret-id-0001" not in hit.same + hit.similar


async def _each(documents):  # type: ignore[no-untyped-def]
    for document in await documents:
        yield document


def test_nothing_of_it_is_left_in_any_file(
    filled: ForgetmemVectorStore, path: Path
) -> None:
    """Text, id, metadata and vector, in many encodings, before and after closing."""
    (record,) = filled.memory.get("secret-id-0001")
    x = record.embedding
    assert NOTE.encode() in bytes_of(path)
    assert x.tobytes() in bytes_of(path)
    filled.delete(["secret-id-0001"])
    for _ in range(2):
        content = bytes_of(path)
        for word in (NOTE, "secret-id-0001", f"{SECRET}\x00"):
            assert not any(form in content for form in traces(word))
        for dtype in (np.float16, np.float32, np.float64):
            words = x.astype(dtype)
            assert not any(
                words[n : n + 4].tobytes() in content for n in range(len(x) - 3)
            )
        filled.close()


def test_delete_takes_ids_and_nothing_else(filled: ForgetmemVectorStore) -> None:
    """No ids: refused; an empty list: nothing; unknown ids: passed over."""
    with pytest.raises(ValueError, match="needs ids"):
        filled.delete()
    with pytest.raises(ValueError, match="needs ids"):
        filled.delete(None)
    assert filled.delete([]) is True
    assert filled.delete(["nope"]) is True
    assert len(filled.list_ids()) == 4
    with pytest.raises(TypeError, match="filter"):
        filled.delete(["b"], filter={"u": "u1"})
    assert filled.delete(["b", "nope"]) is True
    assert filled.list_ids() == ["c", "d", "secret-id-0001"]
    assert filled.delete(filled.list_ids()) is True
    assert filled.list_ids() == []


async def test_async_delete_is_the_same(filled: ForgetmemVectorStore) -> None:
    """The rules hold for `adelete` too."""
    with pytest.raises(ValueError, match="needs ids"):
        await filled.adelete()
    assert await filled.adelete([]) is True
    assert await filled.adelete(["nope", "b"]) is True
    assert filled.list_ids() == ["c", "d", "secret-id-0001"]


async def test_proof_counts_what_was_there(filled: ForgetmemVectorStore) -> None:
    """Unknown ids are listed, or an error if that is asked for."""
    proof = filled.forget(["b", "nope"])
    assert (proof.forgotten, proof.not_found, proof.n_records_after) == (1, 1, 3)
    assert proof.erased_ids == ("b",)
    assert proof.not_found_ids == ("nope",)
    with pytest.raises(RecordNotFoundError, match="nope"):
        filled.forget(["c", "nope"], missing="raise")
    assert filled.list_ids() == ["c", "d", "secret-id-0001"]
    assert (await filled.averify(await filled.aforget("c"))).ok
    assert filled.similarity_search("the pump failed", k=1)[0].id != "c"


def test_a_person_is_forgotten_by_metadata(filled: ForgetmemVectorStore) -> None:
    """By dict or by function; a filter that matches none is a proof of 0."""
    proof = filled.forget(filter={"u": "u1"}, audit="rebuild")
    assert proof.forgotten == 2
    assert proof.digest_rebuilt == proof.digest_after
    assert filled.list_ids() == ["b", "c"]
    assert filled.forget(filter={"u": "u1"}).forgotten == 0
    with pytest.raises(ValueError, match="empty"):
        filled.forget(filter={})
    for wrong in ({}, {"ids": ["b"], "source": "x"}, {"filter": "u = 1"}):
        with pytest.raises(ValueError):
            filled.forget(**wrong)
    with pytest.raises(ValueError, match="exactly one"):
        filled.forget(["b"], filter=lambda document: True)
    assert filled.forget(filter=lambda d: d.page_content == "nothing").forgotten == 0
    assert filled.forget(filter=lambda d: "pump" in d.page_content).forgotten == 1
    assert filled.list_ids() == ["b"]


def test_a_source_is_forgotten_as_a_whole(embeddings: Embeddings) -> None:
    """The key that LangChain's loaders fill in, or one of the caller's."""
    metadatas = [{"source": "a.txt"}, {"source": "b.txt"}, {"source": "a.txt"}, {}]
    store = ForgetmemVectorStore(embeddings)
    store.add_texts(["one", "two", "three", "four"], metadatas, ids=list("abcd"))
    assert store.list_ids(source="a.txt") == ["a", "c"]
    assert store.forget(source="a.txt").forgotten == 2
    assert store.forget(source="a.txt").forgotten == 0
    assert store.list_ids() == ["b", "d"]
    other = ForgetmemVectorStore(embeddings, source_id_key="doc")
    other.add_texts(["one", "two"], [{"doc": "x", "source": "y"}, {"doc": 7}])
    assert other.forget(source="y").forgotten == 0
    assert other.forget(source="x").forgotten == 1
    none = ForgetmemVectorStore(embeddings, source_id_key=None)
    none.add_texts(["one"], [{"source": "x"}])
    assert none.forget(source="x").forgotten == 0


VERIFY = """
import sys
from langchain_forgetmem import ForgetmemVectorStore
store = ForgetmemVectorStore(path=sys.argv[1])
verdict = store.verify(sys.argv[2])
print(verdict.reasons)
sys.exit(0 if verdict.ok else 1)
"""


def _verify_elsewhere(path: Path, proof: Path) -> int:
    command = [sys.executable, "-c", VERIFY, str(path), str(proof)]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_proof_holds_in_another_process(
    filled: ForgetmemVectorStore, path: Path, tmp_path: Path
) -> None:
    """With folder and proof only; not after the document was added again."""
    proof, key = filled.forget("secret-id-0001").save(tmp_path / "proof.json")
    assert key is not None
    content = proof.read_text("utf-8")
    for word in (SECRET, NOTE, "secret-id-0001", "notes.forgetmem"):
        assert word not in content
    filled.close()
    assert _verify_elsewhere(path, proof) == 0
    embeddings = filled.embeddings
    with ForgetmemVectorStore(embeddings, path) as again:
        assert again.verify(proof, key).ok
        again.add_texts([SECRET], ids=["another-id"])
        verdict = again.verify(proof)
        assert not verdict.ok
        assert "there again" in " ".join(verdict.reasons)
    assert _verify_elsewhere(path, proof) == 1


def test_altered_proofs_and_planted_bytes_are_found(
    filled: ForgetmemVectorStore, path: Path, tmp_path: Path
) -> None:
    """The checker has teeth."""
    saved, _ = filled.forget(["secret-id-0001", "b"]).save(tmp_path / "proof.json")
    document = ForgetProof.load(saved)
    altered = document.model_copy(update={"forgotten": 3})
    assert not filled.verify(altered).ok
    assert filled.verify(document).ok
    filled.close()
    path.with_name(path.name + "-wal").write_bytes(SECRET.encode() * 9)
    with ForgetmemVectorStore(filled.embeddings, path) as again:
        verdict = again.verify(saved)
        left = SECRET.encode() in bytes_of(path)
        assert verdict.ok != left


def test_history_leaves_no_trace_in_state_or_answers(
    embeddings: Embeddings, tmp_path: Path
) -> None:
    """A store that forgot equals one that never knew, bit for bit."""
    base = [f"note {n} on pump {n % 7}" for n in range(40)]
    ids = [f"id{n:02d}" for n in range(40)]
    plain = ForgetmemVectorStore(embeddings, tmp_path / "plain.forgetmem")
    plain.add_texts(base, ids=ids)
    store = ForgetmemVectorStore(embeddings, tmp_path / "walked.forgetmem")
    store.add_texts(base[20:], ids=ids[20:])
    for n in range(5):
        store.add_texts([f"note {n} on pump", f"x {n}"], ids=["x", f"y{n}"])
        store.delete(["x"])
    store.add_texts(base[:20], ids=ids[:20])
    store.forget(filter=lambda document: (document.id or "").startswith("y"))
    assert store.memory.digest() == plain.memory.digest()
    for n in range(20):
        query = f"note {n} on the pump"
        assert store.hits(query, 50) == plain.hits(query, 50)
        assert store.similarity_search_with_score(
            query, 50
        ) == plain.similarity_search_with_score(query, 50)
        assert store.max_marginal_relevance_search(
            query
        ) == plain.max_marginal_relevance_search(query)
    for one in (store, plain):
        one.memory.compact()
        one.close()
    walked = (tmp_path / "walked.forgetmem").read_bytes()
    assert walked == (tmp_path / "plain.forgetmem").read_bytes()


def test_cycles_of_adding_and_forgetting_do_not_grow_the_folder(
    store: ForgetmemVectorStore, path: Path
) -> None:
    """Constant size, same files, no old versions."""
    sizes, names = set(), set()
    for cycle in range(8):
        ids = store.add_texts([f"note {cycle} {n}" * 20 for n in range(20)])
        store.delete(ids)
        sizes.add(sum(file.stat().st_size for file in path.parent.iterdir()))
        names.add(tuple(sorted(file.name for file in path.parent.iterdir())))
    assert len(names) == 1
    assert max(sizes) - min(sizes) <= 2 * 32768


def test_what_is_left_keeps_its_place(store: ForgetmemVectorStore) -> None:
    """Each remaining text finds itself; the forgotten nearest ones take no places."""
    texts = [f"word{n} common" for n in range(12)]
    store.add_texts(texts, ids=[f"i{n:02d}" for n in range(12)])
    near = store.similarity_search("word3 common", k=5)
    store.delete([document.id or "" for document in near])
    left = store.list_ids()
    assert len(left) == 7
    for id in left:
        text = texts[int(id[1:])]
        assert [d.id for d in store.similarity_search(text, k=1)] == [id]
    assert len(store.similarity_search("word3 common", k=7)) == 7
