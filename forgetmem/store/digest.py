"""The digest of a namespace: a Merkle root kept up to date bucket by bucket.

A record stands in the bucket that the SHA-256 of its id names, as a leaf of its
content and its role. A bucket's hash is taken over its sorted leaves, the root
over all bucket hashes and a hash of the settings. So the root is a function of the
current records, and a change costs one bucket.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np

BUCKETS = 1024

_SETTINGS_TAG = b"forgetmem settings 1\x00"
_BUCKET_TAG = b"forgetmem bucket 1\x00"
_ROOT_TAG = b"forgetmem root 1\x00"
_EMPTY = hashlib.sha256(_BUCKET_TAG).digest()
_ROLES = [bytes((role,)) for role in range(256)]


def bucket_of(id: str) -> int:
    """Return the bucket of an id.

    Parameters
    ----------
    id : str
        A record's id.

    Returns
    -------
    int
        ``0 <= bucket < 1024``, from the SHA-256 of the id.
    """
    head = hashlib.sha256(id.encode()).digest()[:2]
    return int.from_bytes(head, "big") % BUCKETS


def leaf(content: bytes, role: int) -> bytes:
    """Return the leaf of a record.

    Parameters
    ----------
    content : bytes of length 32
        The record's content digest.
    role : int
        0 to 255, the role of its atom.

    Returns
    -------
    bytes of length 33
        Both, one after the other.
    """
    return content + _ROLES[role]


def many_leaves(contents: Sequence[bytes], roles: Sequence[int]) -> list[bytes]:
    """Return the leaves of many records.

    Parameters
    ----------
    contents : sequence of bytes of length 32
    roles : sequence of int
        As for `leaf`.

    Returns
    -------
    list of bytes of length 33
    """
    return [
        content + _ROLES[role] for content, role in zip(contents, roles, strict=True)
    ]


def settings_digest(settings: Mapping[str, object]) -> bytes:
    """Return the digest of a memory's settings.

    Parameters
    ----------
    settings : mapping of str to JSON value
        As stored in the file.

    Returns
    -------
    bytes of length 32
        SHA-256 of their canonical JSON.
    """
    text = json.dumps(
        dict(settings), sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(_SETTINGS_TAG + text.encode()).digest()


class DigestTree:
    """Leaves by id, and the root over them.

    Examples
    --------
    >>> one, other = DigestTree(), DigestTree()
    >>> one.put("a", b"first")
    >>> one.put("b", b"second")
    >>> other.put("b", b"second")
    >>> one.discard("a")
    >>> one.root(b"settings") == other.root(b"settings")
    True
    """

    def __init__(self) -> None:
        self._leaves: list[dict[str, bytes]] = [{} for _ in range(BUCKETS)]
        self._hashes = [_EMPTY] * BUCKETS
        self._stale: set[int] = set()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, id: str, leaf: bytes) -> None:
        """Set the leaf of an id.

        Parameters
        ----------
        id : str
            A record's id.
        leaf : bytes
            Its leaf, all of one length within a tree.
        """
        bucket = bucket_of(id)
        leaves = self._leaves[bucket]
        self._size += id not in leaves
        leaves[id] = leaf
        self._stale.add(bucket)

    def fill(self, ids: Sequence[str], leaves: Sequence[bytes]) -> None:
        """Set the leaves of many ids that have none.

        Parameters
        ----------
        ids : sequence of str
            Distinct.
        leaves : sequence of bytes
            One for each.
        """
        sha256, buckets = hashlib.sha256, self._leaves
        heads = b"".join([sha256(id.encode()).digest()[:2] for id in ids])
        numbers = (np.frombuffer(heads, dtype=">u2") % BUCKETS).tolist()
        for number, id, leaf in zip(numbers, ids, leaves, strict=True):
            buckets[number][id] = leaf
        self._size += len(numbers)
        self._stale.update(range(BUCKETS))

    def discard(self, id: str) -> None:
        """Remove the leaf of an id, if there is one.

        Parameters
        ----------
        id : str
            A record's id.
        """
        bucket = bucket_of(id)
        if self._leaves[bucket].pop(id, None) is not None:
            self._size -= 1
            self._stale.add(bucket)

    def get(self, id: str) -> bytes | None:
        """Return the leaf of an id.

        Parameters
        ----------
        id : str
            A record's id.

        Returns
        -------
        bytes or None
            None if there is none.
        """
        return self._leaves[bucket_of(id)].get(id)

    def root(self, settings: bytes) -> bytes:
        """Return the root; only buckets that changed are hashed again.

        Parameters
        ----------
        settings : bytes
            Digest of the settings, see `settings_digest`.

        Returns
        -------
        bytes of length 32
            A function of the leaves and the settings.
        """
        for bucket in self._stale:
            body = b"".join(sorted(self._leaves[bucket].values()))
            self._hashes[bucket] = hashlib.sha256(_BUCKET_TAG + body).digest()
        self._stale.clear()
        return hashlib.sha256(b"".join((_ROOT_TAG, settings, *self._hashes))).digest()
