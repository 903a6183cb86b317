"""A BERT sentence encoder whose vectors depend, bit for bit, on the text alone.

Encoding texts in padded batches changes their last bits with their neighbours, and
encoding them one at a time reads all weights once a text: three to four times slower.
Here the tokens of many texts stand unpadded under one another, and each linear layer
is applied to tiles of a few fixed numbers of rows. Attention and pooling are computed
for each text by itself, everything else row by row. So a text's vector can depend on
its neighbours only through the position of its rows within a tile.

Whether it does is a property of the matrix product on this machine, and is measured
when the encoder is loaded: the arithmetic does not depend on the numbers, so if random
rows give the same bits in every position of every tile, all rows do. Where they do not,
every text begins a tile of its own, of one size: same shape, same positions, hence the
same bits by construction. One thread computes a vector, because the number of threads
changes bits too; several vectors are computed side by side (see `workers`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from forgetmem.arrays import Float32Array
from forgetmem.embedding.workers import map_alone
from forgetmem.errors import EmbeddingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    _Take: TypeAlias = Callable[[str], Tensor]

#: What an encoder reads of a folder.
FILES = [
    "config.json",
    "tokenizer.json",
    "model.safetensors",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
]

#: Rows of a tile, largest first; each divides the one before it.
TILES = (128, 16)

#: Characters encoded together: some 500 tokens, enough to use each weight often.
PACK = 2000


class BertEncoder:
    """The encoder of a sentence-transformers folder with a BERT model.

    Parameters
    ----------
    folder : path
        Holds the `FILES`. Mean pooling, absolute positions and the exact GELU are
        what is implemented.

    Attributes
    ----------
    dimension : int
        Length of a vector.
    window : int
        Tokens that are read of a text, the two special ones included.

    Raises
    ------
    EmbeddingError
        If the folder holds something else.
    """

    def __init__(self, folder: Path) -> None:
        config = _read_config(folder)
        self.dimension: int = config["hidden_size"]
        self.window: int = config["max_seq_length"]
        self._heads: int = config["num_attention_heads"]
        self._epsilon: float = config["layer_norm_eps"]
        self._tokenizer = _load_tokenizer(folder, self.window)
        self._load_weights(folder, config["num_hidden_layers"])
        (self._tiles,) = map_alone(_usable_tiles, [self._layers[0]])

    def encode(self, texts: Sequence[str]) -> Float32Array:
        """Encode texts, each by itself as far as the result is concerned.

        Parameters
        ----------
        texts : sequence of str
            What lies beyond the window of the model is not read.

        Returns
        -------
        ndarray of shape (len(texts), dimension), float32
            Vectors of length 1.
        """
        vectors = list(map_alone(self._encode_pack, _packs(texts)))
        if not vectors:
            return np.empty((0, self.dimension), dtype=np.float32)
        return np.concatenate(vectors)

    def overlong(self, texts: Sequence[str]) -> list[int]:
        """Find the texts that do not fit into the window.

        Parameters
        ----------
        texts : sequence of str

        Returns
        -------
        list of int
            Their positions.
        """
        return [
            position
            for position, text in enumerate(texts)
            if self._tokenizer.encode(text).overflowing
        ]

    def _load_weights(self, folder: Path, n_layer: int) -> None:
        from safetensors.torch import load_file

        weights = load_file(folder / "model.safetensors")
        stem = "" if "embeddings.word_embeddings.weight" in weights else "bert."

        def take(name: str) -> Tensor:
            return weights[stem + name].float().contiguous()

        self._words = take("embeddings.word_embeddings.weight")
        self._positions = take("embeddings.position_embeddings.weight")
        self._kind = take("embeddings.token_type_embeddings.weight")[0]
        self._norm = _Norm(take, "embeddings.LayerNorm")
        self._layers = [_Layer(take, f"encoder.layer.{i}") for i in range(n_layer)]

    def _encode_pack(self, texts: list[str]) -> Float32Array:
        import torch

        tokens = [self._tokenizer.encode(text).ids for text in texts]
        with torch.inference_mode():
            pooled = self._forward(tokens).numpy().astype(np.float64)
        norms = np.sqrt((pooled * pooled).sum(axis=1, keepdims=True))
        unit: Float32Array = (pooled / norms).astype(np.float32)
        return unit

    def _forward(self, tokens: list[list[int]]) -> Tensor:
        import torch

        align = 1 if len(self._tiles) > 1 else self._tiles[0]
        spans, n_rows = _spans([len(ids) for ids in tokens], align, self._tiles[-1])
        words = torch.zeros(n_rows, dtype=torch.long)
        positions = torch.zeros(n_rows, dtype=torch.long)
        for span, ids in zip(spans, tokens, strict=True):
            words[span] = torch.tensor(ids)
            positions[span] = torch.arange(len(ids))
        x = self._words[words] + self._positions[positions] + self._kind
        x = self._norm.apply(x, self._epsilon)
        for layer in self._layers:
            x = self._through(layer, x, spans)
        return torch.stack([x[span].mean(dim=0) for span in spans])

    def _through(self, layer: _Layer, x: Tensor, spans: list[slice]) -> Tensor:
        import torch
        from torch.nn import functional

        qkv = _linear(x, *layer.qkv, self._tiles)
        mixed = torch.zeros_like(x)
        for span in spans:
            heads = qkv[span].view(-1, 3, self._heads, self.dimension // self._heads)
            q, k, v = heads.permute(1, 2, 0, 3).unsqueeze(1)
            attended = functional.scaled_dot_product_attention(q, k, v)[0]
            mixed[span] = attended.transpose(0, 1).reshape(-1, self.dimension)
        x = layer.norm_mixed.apply(
            x + _linear(mixed, *layer.mix, self._tiles), self._epsilon
        )
        hidden = functional.gelu(_linear(x, *layer.widen, self._tiles))
        return layer.norm_out.apply(
            x + _linear(hidden, *layer.narrow, self._tiles), self._epsilon
        )


class _Norm:
    """Weights of a layer normalisation."""

    def __init__(self, take: _Take, stem: str) -> None:
        self._weight, self._bias = take(f"{stem}.weight"), take(f"{stem}.bias")

    def apply(self, x: Tensor, epsilon: float) -> Tensor:
        from torch.nn import functional

        return functional.layer_norm(
            x, (x.shape[-1],), self._weight, self._bias, epsilon
        )


class _Layer:
    """Weights of one transformer layer; query, key and value in one matrix."""

    def __init__(self, take: _Take, stem: str) -> None:
        import torch

        def linear(*names: str) -> tuple[Tensor, Tensor]:
            return (
                torch.cat([take(f"{stem}.{name}.weight") for name in names]),
                torch.cat([take(f"{stem}.{name}.bias") for name in names]),
            )

        attention = "attention.self"
        self.qkv = linear(
            f"{attention}.query", f"{attention}.key", f"{attention}.value"
        )
        self.mix = linear("attention.output.dense")
        self.widen = linear("intermediate.dense")
        self.narrow = linear("output.dense")
        self.norm_mixed = _Norm(take, f"{stem}.attention.output.LayerNorm")
        self.norm_out = _Norm(take, f"{stem}.output.LayerNorm")


def _packs(texts: Sequence[str]) -> Iterator[list[str]]:
    pack: list[str] = []
    size = 0
    for text in texts:
        pack.append(text)
        size += len(text) + 8
        if size >= PACK:
            yield pack
            pack, size = [], 0
    if pack:
        yield pack


def _spans(lengths: list[int], align: int, multiple: int) -> tuple[list[slice], int]:
    """Place the texts' rows; return the places and the number of rows in all."""
    spans, start = [], 0
    for length in lengths:
        spans.append(slice(start, start + length))
        start += -(-length // align) * align
    return spans, -(-start // multiple) * multiple


def _linear(x: Tensor, weight: Tensor, bias: Tensor, tiles: Sequence[int]) -> Tensor:
    import torch

    out = x.new_empty(len(x), len(weight))
    start = 0
    for tile in tiles:
        while start + tile <= len(x):
            rows = slice(start, start + tile)
            torch.addmm(bias, x[rows], weight.t(), out=out[rows])
            start += tile
    return out


def _usable_tiles(layer: _Layer) -> tuple[int, ...]:
    """Return all tiles if a row's bits depend neither on tile nor on position."""
    import torch

    largest, smallest = TILES[0], TILES[-1:]
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        for weight, bias in (layer.qkv, layer.mix, layer.widen, layer.narrow):
            x = torch.randn(largest, weight.shape[1], generator=generator)
            expected = _linear(x, weight, bias, smallest)
            moved = _linear(x.roll(1, dims=0), weight, bias, smallest)
            same = torch.equal(moved, expected.roll(1, dims=0)) and all(
                torch.equal(_linear(x, weight, bias, (tile,)), expected)
                for tile in TILES
            )
            if not same:
                return smallest
    return TILES


def _load_tokenizer(folder: Path, window: int) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(window)
    return tokenizer


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text())
        pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
        sentence = json.loads((folder / "sentence_bert_config.json").read_text())
    except (OSError, ValueError) as error:
        raise EmbeddingError(
            f"{folder} is no complete sentence-transformers folder: {error}"
        ) from error
    supported = (
        config.get("model_type") == "bert"
        and config.get("hidden_act") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and pooling.get("pooling_mode_mean_tokens") is True
    )
    if not supported:
        raise EmbeddingError(f"{folder} holds no BERT model with mean pooling")
    return {**config, **sentence}
