"""Keys and rows find each other, whatever came and went."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest

from forgetmem.groups import KeyTable, as_keys, as_words, order_of


def test_keys_are_those_of_a_dict() -> None:
    """Any order of giving and removing; rows are used again."""
    rng = random.Random(0)
    names = [
        hashlib.sha256(bytes([n % 256, n // 256])).digest()[:16] for n in range(900)
    ]
    free = list(range(900))
    keys, truth = KeyTable(), dict[bytes, int]()
    for _ in range(600):
        if rng.random() < 0.6:
            new = [name for name in rng.sample(names, 9) if name not in truth]
            rows = [free.pop(rng.randrange(len(free))) for _ in new]
            keys.put(np.array(rows, dtype=np.int64), new)
            truth.update(zip(new, rows, strict=True))
        elif truth:
            gone = rng.sample(sorted(truth), min(len(truth), 7))
            rows = [truth.pop(name) for name in gone]
            keys.remove(np.array(rows))
            free += rows
    assert len(truth) > 300
    assert dict(keys) == truth
    assert len(keys) == len(truth)
    found = keys.rows_of(names).tolist()
    assert found == [truth.get(name, -1) for name in names]
    assert all(keys.key(row) == name for name, row in truth.items())
    assert not keys.words[free[:10]].any()
    with pytest.raises(KeyError):
        keys[bytes(16)]


def test_words_are_in_the_order_of_the_bytes() -> None:
    """As numbers, keys sort as their bytes do, and come back."""
    rng = random.Random(1)
    names = [rng.randbytes(16) for _ in range(200)]
    words = as_words(b"".join(names))
    assert as_keys(words) == names
    assert as_keys(words[order_of(words)]) == sorted(names)
