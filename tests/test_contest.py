"""The contest chooses what a greedy choice with all values up to date would."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forgetmem.contest import Contest
from forgetmem.distances import squared_distances
from forgetmem.index import VectorTable
from forgetmem.ranking import SupportRanking


def near_copies(n: int, spread: float) -> VectorTable:
    """Make a table of rows about one centre, a few of them twice."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal(48) + spread * rng.standard_normal((n, 48))
    X[n // 2 : n // 2 + 5] = X[:5]
    table = VectorTable(48)
    table.add((X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32))
    return table


def eager(
    table: VectorTable, keys: np.ndarray, ranking: SupportRanking, answer: list[int]
) -> list[int]:
    """Bring all values up to date after every choice; equal ones go by number."""
    values, found = keys.copy(), list(answer)
    for row in answer:
        values += ranking.log_factors(squared_distances(table.X, table.X[row]))
    values[answer] = -math.inf
    while len(found) < 40:
        found.append(int(np.argmax(values)))
        values += ranking.log_factors(squared_distances(table.X, table.X[found[-1]]))
        values[found[-1]] = -math.inf
    return found


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.2, 3.0])
@pytest.mark.parametrize("diminish", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("answer", [[], [7, 501]])
def test_contest_is_the_eager_choice(
    spread: float, diminish: float, answer: list[int]
) -> None:
    """With ties, near-copies, rows that enter late and an answer that was begun."""
    table = near_copies(1000, spread)
    ranking = SupportRanking(8.0, 0.9, diminish)
    q = table.X[3]
    keys = -ranking.gamma * squared_distances(table.X, q)
    order = np.argsort(-keys, kind="stable")
    contest = Contest(table, lambda row: f"{row:04d}", ranking.log_factors, answer)
    for end in (50, 300, 1000):
        rows = contest.new(order[:end])
        contest.enter(rows, keys[rows])
        left = keys[order[end:]]
        contest.run(40, float(left.max(initial=-math.inf)))
    assert contest.answer == eager(table, keys, ranking, answer)
