"""What can be read and written inside one transaction.

The names of a memory's parts (namespace, id, key) are the caller's; the rows are
checked on their way out, so that a damaged row is an error and never an answer.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forgetmem.arrays import Float32Array
from forgetmem.errors import CorruptStoreError, StoreError
from forgetmem.store.codec import (
    SEAL_SIZE,
    STATES,
    StoredRecord,
    atom_key,
    atom_keys,
    content_of,
    contents_of,
    text_digest,
    unpack_state,
    unpack_states,
)

if TYPE_CHECKING:
    import sqlite3

    from forgetmem.store.connection import Connection

_CHUNK = 1024
#: Vectors that are read at a time: few enough to stay in the processor's cache.
_VECTORS = 256
_NAMESPACES = """
WITH RECURSIVE names(name) AS (
    SELECT min(namespace) FROM record
    UNION ALL
    SELECT (SELECT min(namespace) FROM record WHERE namespace > name)
    FROM names WHERE name IS NOT NULL
) SELECT name FROM names WHERE name IS NOT NULL
"""


class ReadTransaction:
    """One consistent view of the file; closed by the store.

    Parameters
    ----------
    connection : Connection
        With a transaction begun.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._cursors: list[sqlite3.Cursor] = []

    @property
    def _file(self) -> Connection:
        if self._connection is None or self._connection.foreign:
            raise StoreError("this transaction is over; begin another one")
        return self._connection

    @property
    def is_open(self) -> bool:
        """Whether the store has not closed it yet."""
        return self._connection is not None

    def close(self) -> None:
        """Reset what is still being read, so that the store can end the transaction."""
        for cursor in self._cursors:
            with contextlib.suppress(Exception):
                cursor.close()
        self._connection = None

    def _chunks(
        self, sql: str, parameters: Sequence[Any], size: int = _CHUNK
    ) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self._file.execute(sql, parameters)
        self._cursors.append(cursor)
        while rows := self._file.fetch(cursor, size):
            yield rows
        self._cursors.remove(cursor)

    def _stream(self, sql: str, parameters: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        for rows in self._chunks(sql, parameters):
            yield from rows

    def settings(self) -> dict[str, object] | None:
        """Return the settings of the memory.

        Returns
        -------
        dict of str to JSON value, or None
            None in a file that has never been given any.
        """
        rows = self._file.rows("SELECT name, value FROM setting ORDER BY name")
        try:
            return {name: json.loads(value) for name, value in rows} or None
        except (TypeError, ValueError) as error:
            raise CorruptStoreError(
                "a setting cannot be read: the file is damaged", table="setting"
            ) from error

    def namespaces(self) -> list[str]:
        """Return the namespaces that hold records.

        Returns
        -------
        list of str
            In code point order.
        """
        return [name for (name,) in self._file.rows(_NAMESPACES)]

    def all_namespaces(self) -> list[str]:
        """Return the namespaces that any table speaks of.

        Returns
        -------
        list of str
            More than `namespaces` only in a damaged file.
        """
        sql = " UNION ".join(
            f"SELECT namespace FROM {table}"
            for table in ("record", "atom", "vector", "root", "certificate")
        )
        return [name for (name,) in self._file.rows(sql)]

    def count(self, namespace: str) -> int:
        """Return how many records a namespace holds.

        Parameters
        ----------
        namespace : str
            Its name.

        Returns
        -------
        int
            0 for an unknown one.
        """
        sql = "SELECT count(*) FROM record WHERE namespace = ?"
        return int(self._file.scalar(sql, (namespace,)))

    def records(
        self, namespace: str
    ) -> Iterator[tuple[str, str | None, str, bytes, bytes, bytes]]:
        """Yield the records of a namespace without their texts, in id order.

        Parameters
        ----------
        namespace : str
            Its name.

        Yields
        ------
        tuple of (str, str or None, str, bytes, bytes, bytes)
            Id, source, metadata, atom, digest of the text and content, checked against
            each other.
        """
        for rows, contents in self.many_records(namespace):
            for row, content in zip(rows, contents, strict=True):
                yield *row[:5], content

    def many_records(
        self, namespace: str, *, whole: bool = False
    ) -> Iterator[tuple[list[tuple[Any, ...]], list[bytes]]]:
        """Yield what `records` does, many at a time.

        Parameters
        ----------
        namespace : str
            Its name.
        whole : bool
            Whether texts are read too, and checked against their digests.

        Yields
        ------
        tuple of (list of tuple, list of bytes)
            Id, source, metadata, atom, digest of the text, seal and perhaps text of
            each record; and the contents.
        """
        columns = "id, source_id, metadata, atom, text_digest, seal"
        for rows in self._chunks(
            f"SELECT {columns}{', text' if whole else ''} FROM record "
            "WHERE namespace = ? ORDER BY id",
            (namespace,),
        ):
            if whole:
                for row in rows:
                    _check_text(row[6], row[4])
            yield rows, _checked_contents(rows)

    def texts(self, namespace: str) -> Iterator[tuple[str, str]]:
        """Yield the texts of a namespace in id order.

        Parameters
        ----------
        namespace : str
            Its name.

        Yields
        ------
        tuple of (str, str)
            Id and text, checked against the record's digest.
        """
        sql = "SELECT id, text, text_digest FROM record WHERE namespace = ? ORDER BY id"
        for id, text, sha in self._stream(sql, (namespace,)):
            _check_text(text, sha)
            yield id, text

    def atoms(self, namespace: str) -> Iterator[tuple[bytes, bytes, bytes, float, int]]:
        """Yield the atoms of a namespace in key order.

        Parameters
        ----------
        namespace : str
            Its name.

        Yields
        ------
        tuple of (bytes, bytes, bytes, float, int)
            Key, component, part, weight and role.
        """
        sql = "SELECT key, state FROM atom WHERE namespace = ? ORDER BY key"
        for rows in self._chunks(sql, (namespace,)):
            for key, state in rows:
                yield key, *unpack_state(key, state)

    def states(self, namespace: str) -> tuple[bytes, NDArray[Any]]:
        """Return the atoms of a namespace as arrays, in key order.

        Parameters
        ----------
        namespace : str
            Its name.

        Returns
        -------
        tuple of (bytes, ndarray of `forgetmem.store.codec.STATES`)
            All keys, one after the other; component, part, weight and role of each.
        """
        sql = "SELECT key, state FROM atom WHERE namespace = ? ORDER BY key"
        keys, states = bytearray(), [np.empty(0, dtype=STATES)]
        for rows in self._chunks(sql, (namespace,)):
            states.append(unpack_states(rows))
            keys += b"".join([key for key, _ in rows])
        return bytes(keys), np.concatenate(states)

    def vectors(self, namespace: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the vectors of a namespace in key order.

        Parameters
        ----------
        namespace : str
            Its name.

        Yields
        ------
        tuple of (bytes, bytes)
            Key and little-endian float32 numbers, checked against each other.
        """
        sql = "SELECT key, vector FROM vector WHERE namespace = ? ORDER BY key"
        for rows in self._chunks(sql, (namespace,), _VECTORS):
            _check_vectors([key for key, _ in rows], [vector for _, vector in rows])
            yield from rows

    def matrix(
        self,
        namespace: str,
        dimension: int,
        room: Callable[[int], Float32Array] | None = None,
    ) -> tuple[list[bytes], Float32Array]:
        """Return all vectors of a namespace as one array.

        Parameters
        ----------
        namespace : str
            Its name.
        dimension : int
            The length of every vector.
        room : callable, optional
            Gives an array with so many rows, to be filled.

        Returns
        -------
        tuple of (list of bytes, ndarray of shape (n, dimension), float32)
            Keys in order, and their vectors.
        """
        sql = "SELECT count(*) FROM vector WHERE namespace = ?"
        size = int(self._file.scalar(sql, (namespace,)))
        keys: list[bytes] = []
        array = (
            np.empty((size, dimension), dtype=np.float32)
            if room is None
            else room(size)
        )
        sql = "SELECT key, vector FROM vector WHERE namespace = ? ORDER BY key"
        for rows in self._chunks(sql, (namespace,), _VECTORS):
            names, vectors = [key for key, _ in rows], [vector for _, vector in rows]
            _check_vectors(names, vectors)
            for other in set(map(len, vectors)) - {4 * dimension}:
                raise CorruptStoreError(
                    f"a stored vector has {other // 4} dimensions instead of "
                    f"{dimension}: the file is damaged",
                    table="vector",
                )
            start = len(keys)
            keys += names
            joined = np.frombuffer(b"".join(vectors), "<f4")
            array[start : len(keys)] = joined.reshape(len(rows), dimension)
        return keys, array

    def get(self, namespace: str, ids: Iterable[str]) -> dict[str, StoredRecord]:
        """Return whole records.

        Parameters
        ----------
        namespace : str
            Where they are.
        ids : iterable of str
            Their names.

        Returns
        -------
        dict of str to StoredRecord
            Those that are there, in the order given, checked against their digests.
        """
        sql = (
            "SELECT source_id, metadata, atom, text_digest, seal, text FROM record "
            "WHERE namespace = ? AND id = ?"
        )
        found: dict[str, StoredRecord] = {}
        for id in ids:
            for source, metadata, atom, sha, seal, text in self._file.rows(
                sql, (namespace, id)
            ):
                content = _checked_content(id, source, metadata, atom, sha, seal)
                _check_text(text, sha)
                found[id] = StoredRecord(id, text, metadata, source, atom, content)
        return found

    def get_vectors(self, namespace: str, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return vectors by key.

        Parameters
        ----------
        namespace : str
            Where they are.
        keys : iterable of bytes
            Keys of atoms.

        Returns
        -------
        dict of bytes to bytes
            Those that are there, checked against their keys.
        """
        sql = "SELECT vector FROM vector WHERE namespace = ? AND key = ?"
        found: dict[bytes, bytes] = {}
        for key in keys:
            for (vector,) in self._file.rows(sql, (namespace, key)):
                _check_vector(key, vector)
                found[key] = vector
        return found

    def sharing(
        self,
        namespaces: Iterable[str],
        ids: Iterable[str],
        atoms: Iterable[bytes],
        texts: Iterable[bytes],
    ) -> list[tuple[str, bytes, bytes]]:
        """Find the records of some namespaces that share something with given ones.

        Parameters
        ----------
        namespaces : iterable of str
            Where they are; every record there is looked at.
        ids : iterable of str
            Names.
        atoms : iterable of bytes
            Keys of vectors.
        texts : iterable of bytes
            Digests of texts, see `text_digest`.

        Returns
        -------
        list of (str, bytes, bytes)
            Id, atom and text digest of each record that has one of them.
        """
        names, keys, digests = frozenset(ids), frozenset(atoms), frozenset(texts)
        sql = "SELECT id, atom, text_digest FROM record WHERE namespace = ?"
        return [
            row
            for namespace in namespaces
            for row in self._stream(sql, (namespace,))
            if row[1] in keys or row[2] in digests or row[0] in names
        ]

    def root(self, namespace: str) -> bytes | None:
        """Return the stored digest root of a namespace.

        Parameters
        ----------
        namespace : str
            Its name.

        Returns
        -------
        bytes of length 32, or None
            None for an empty namespace.
        """
        sql = "SELECT digest FROM root WHERE namespace = ?"
        found: bytes | None = self._file.scalar(sql, (namespace,))
        return found

    def certificates(self, namespace: str) -> dict[bytes, str]:
        """Return the live prune certificates of a namespace.

        Parameters
        ----------
        namespace : str
            Its name.

        Returns
        -------
        dict of bytes to str
            Payload by group key.
        """
        sql = (
            "SELECT group_key, payload FROM certificate WHERE namespace = ? "
            "ORDER BY group_key"
        )
        return dict(self._file.rows(sql, (namespace,)))


def _checked_content(
    id: str, source: str | None, metadata: str, atom: bytes, sha: bytes, seal: bytes
) -> bytes:
    """Return a row's content digest, or raise if its seal does not fit."""
    try:
        content = content_of(id, source, metadata, atom, sha)
    except (AttributeError, TypeError) as error:
        raise _mistyped("record") from error
    if content[:SEAL_SIZE] != seal:
        raise CorruptStoreError(
            "a record does not match its seal: the file is damaged",
            table="record",
            digest=content.hex(),
        )
    return content


def _checked_contents(rows: list[tuple[Any, ...]]) -> list[bytes]:
    """Return the content digests of rows, or raise if a seal does not fit."""
    with contextlib.suppress(AttributeError, TypeError):
        contents = contents_of(rows)
        if all(
            content[:SEAL_SIZE] == row[5]
            for content, row in zip(contents, rows, strict=True)
        ):
            return contents
    return [_checked_content(*row[:6]) for row in rows]


def _check_text(text: str, sha: bytes) -> None:
    try:
        found = text_digest(text)
    except (AttributeError, TypeError) as error:
        raise _mistyped("record") from error
    if found != sha:
        raise CorruptStoreError(
            "a record's text does not match its digest: the file is damaged",
            table="record",
            digest=found.hex(),
        )


def _check_vector(key: bytes, vector: bytes) -> None:
    try:
        found = atom_key(vector)
    except TypeError as error:
        raise _mistyped("vector") from error
    if found != key:
        raise CorruptStoreError(
            "a stored vector does not match its key: the file is damaged",
            table="vector",
            digest=found.hex(),
        )


def _check_vectors(keys: list[bytes], vectors: list[bytes]) -> None:
    with contextlib.suppress(TypeError):
        if atom_keys(vectors) == keys:
            return
    for key, vector in zip(keys, vectors, strict=True):
        _check_vector(key, vector)


def _mistyped(table: str) -> CorruptStoreError:
    return CorruptStoreError(
        "a column holds a value of another kind: the file is damaged", table=table
    )
