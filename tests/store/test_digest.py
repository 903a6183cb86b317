"""The digest tree: a function of the leaves, kept up to date bucket by bucket."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from forgetmem.store.digest import (
    BUCKETS,
    DigestTree,
    bucket_of,
    leaf,
    settings_digest,
)

SETTINGS = bytes(32)
names = st.sampled_from([f"r{number}" for number in range(30)])
steps = st.lists(st.tuples(names, st.none() | st.binary(min_size=4, max_size=4)))


@given(steps)
def test_any_history_ends_at_the_root_of_what_is_left(history):
    """Puts and discards in any order give the root of a tree built afresh."""
    tree, left = DigestTree(), {}
    for name, value in history:
        if value is None:
            tree.discard(name)
            left.pop(name, None)
        else:
            tree.put(name, value)
            left[name] = value
        tree.root(SETTINGS)
    fresh = DigestTree()
    for name in sorted(left, reverse=True):
        fresh.put(name, left[name])
    assert tree.root(SETTINGS) == fresh.root(SETTINGS)
    assert len(tree) == len(left)
    assert all(tree.get(name) == left.get(name) for name, _ in history)


def test_the_root_is_the_one_of_the_documented_formula():
    """Computed here with nothing but SHA-256."""
    tree = DigestTree()
    leaves = {f"id {number}": leaf(bytes([number]) * 32, 1) for number in range(50)}
    for name, value in leaves.items():
        tree.put(name, value)
    buckets = [[] for _ in range(BUCKETS)]
    for name, value in leaves.items():
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big")
        buckets[number % 1024].append(value)
        assert bucket_of(name) == number % 1024
    hashes = [
        hashlib.sha256(b"forgetmem bucket 1\0" + b"".join(sorted(bucket))).digest()
        for bucket in buckets
    ]
    whole = b"forgetmem root 1\0" + SETTINGS + b"".join(hashes)
    assert tree.root(SETTINGS) == hashlib.sha256(whole).digest()


def test_the_root_depends_on_content_role_and_settings():
    """Each of them alone changes it."""
    roots = set()
    for content, role, settings in [(0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1)]:
        tree = DigestTree()
        tree.put("a", leaf(bytes([content]) * 32, role))
        roots.add(tree.root(settings_digest({"n": settings})))
    assert len(roots) == 4


def test_the_order_of_settings_does_not_matter():
    """Settings are hashed as canonical JSON."""
    assert settings_digest({"a": 1, "b": 2.0}) == settings_digest({"b": 2.0, "a": 1})
