"""What a caller adds, checked as a whole before anything is embedded or written."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from forgetmem.arrays import Float32Array, as_ids, as_list, check_text
from forgetmem.errors import InvalidInputError
from forgetmem.metadata import check_metadata
from forgetmem.state import NewRecord


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts with their ids, canonical metadata and sources.

    Attributes
    ----------
    texts, ids, metadatas : list of str
    source_ids : list of str or None
    """

    texts: list[str]
    ids: list[str]
    metadatas: list[str]
    source_ids: list[str | None]

    @classmethod
    def of(
        cls,
        texts: str | Iterable[str],
        ids: str | Sequence[str | None] | None,
        metadatas: Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None,
        source_ids: str | Sequence[str | None] | None,
    ) -> Self:
        """Check the arguments of `ForgettableMemory.add`.

        Parameters
        ----------
        texts, ids, metadatas, source_ids
            As given there.

        Returns
        -------
        Batch

        Raises
        ------
        InvalidInputError
            If lengths differ, an id occurs twice, or a value cannot be stored.
        """
        if isinstance(texts, str):
            ids = [ids] if isinstance(ids, str) else ids
            metadatas = [metadatas] if isinstance(metadatas, Mapping) else metadatas
        checked = [check_text(text, "a text") for text in as_list(texts, "texts")]
        size = len(checked)
        names = _one_each(ids, size, "ids")
        return cls(
            checked,
            as_ids([str(uuid.uuid4()) if id is None else id for id in names]),
            [
                check_metadata(value)
                for value in _one_each(metadatas, size, "metadatas")
            ],
            [
                None if source is None else check_text(source, "a source_id")
                for source in (
                    [source_ids] * size
                    if isinstance(source_ids, str)
                    else _one_each(source_ids, size, "source_ids")
                )
            ],
        )

    def with_vectors(self, vectors: Float32Array) -> list[NewRecord]:
        """Pair every record with its vector.

        Parameters
        ----------
        vectors : ndarray of shape (n, dimension), float32
            Of norm 1.

        Returns
        -------
        list of NewRecord
        """
        return [
            NewRecord(id, text, metadata, source_id, vector)
            for id, text, metadata, source_id, vector in zip(
                self.ids,
                self.texts,
                self.metadatas,
                self.source_ids,
                vectors,
                strict=True,
            )
        ]


def _one_each(values: Any, size: int, name: str) -> list[Any]:
    if values is None:
        return [None] * size
    if isinstance(values, str | Mapping):
        raise InvalidInputError(
            f"expected {name} as a sequence with one entry a text, "
            f"got one {type(values).__name__}"
        )
    found = as_list(values, name)
    if len(found) != size:
        raise InvalidInputError(
            f"expected {size} {name}, one a text, got {len(found)}; nothing was changed"
        )
    return found
