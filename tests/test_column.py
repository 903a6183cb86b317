"""The column of metadata counts what a filter lets through."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forgetmem.column import MetadataColumn


@given(
    records=st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), max_size=30),
    before=st.integers(0, 30),
    wanted=st.sets(st.sampled_from("abc")),
)
def test_counts_are_those_of_the_records(
    records: list[tuple[int, str]], before: int, wanted: set[str]
) -> None:
    """Whether records came at first or later, row by row, alike or not."""
    first, later = records[:before], records[before:]
    rows = np.array([row for row, _ in first], dtype=np.int64)
    column = MetadataColumn(rows, [text for _, text in first])
    for part in (later[:5], later[5:]):
        for row, text in part:
            column.put(row, text)
        verdicts = np.array([text in wanted for text in column.texts], dtype=np.bool_)
        counts = column.count(6, verdicts)
        assert column.of_rows(6).shape == counts.shape == (6,)
    expected = [sum(r == row and t in wanted for r, t in records) for row in range(6)]
    assert counts.tolist() == expected
