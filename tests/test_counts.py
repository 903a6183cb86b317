"""Digests are counted as a counter would, and nothing stays of those that are gone."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

from forgetmem.counts import DigestCounts


def test_counts_are_those_of_a_counter() -> None:
    """Any order of adding and discarding; the table grows and closes its gaps."""
    rng = random.Random(0)
    names = [hashlib.sha256(bytes([n % 256, n // 256])).digest() for n in range(900)]
    counts, truth = DigestCounts(), Counter[bytes]()
    for _ in range(800):
        some = rng.choices(names, k=rng.randint(1, 12))
        if rng.random() < 0.6:
            counts.add(some)
            truth.update(some)
        else:
            there = [name for name in dict.fromkeys(some) if truth[name]]
            counts.discard(there)
            truth.subtract(there)
    truth = +truth
    assert 300 < len(truth) == len(counts)
    assert {name: counts.count(name) for name in names} == {n: truth[n] for n in names}


def test_nothing_stays_of_what_is_gone() -> None:
    """When everything was taken back, or wiped, all slots are zero."""
    names = [hashlib.sha256(bytes([n])).digest() for n in range(200)]
    counts = DigestCounts()
    counts.add(names * 2)
    counts.discard(names)
    counts.discard([*names, b"unknown!" * 4])
    assert len(counts) == 0
    assert not counts._slots.any() and not counts._counts.any()
    counts.add(names)
    counts.wipe()
    assert not counts._slots.any() and counts.count(names[0]) == 0


def test_digests_that_begin_alike_are_told_apart() -> None:
    """No digest can be made up that is counted with another."""
    names = [b"the same" * 3 + bytes([n]) * 8 for n in range(100)]
    counts = DigestCounts()
    counts.add(names)
    assert [counts.count(name) for name in names] == [1] * 100
