"""From rows to what a user sees: hits with their look-alikes, and readouts."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from forgetmem.arrays import Float32Array, FloatArray, IntArray, as_matrix
from forgetmem.distances import dots
from forgetmem.errors import InvalidInputError
from forgetmem.exponential import exp
from forgetmem.groups import Role
from forgetmem.jit import compiled
from forgetmem.lookalikes import NAMED, look_alikes
from forgetmem.matching import Matching
from forgetmem.metadata import load_metadata
from forgetmem.ranking import (
    Pool,
    SupportRanking,
    nearest,
    query_distances,
    smallest,
)
from forgetmem.records import Hit, Readout, RoleName
from forgetmem.state import NamespaceState
from forgetmem.store import StoredRecord

#: So many rests of at most 2**31 have an exact sum.
_EXACT = 1 << 20

#: Added and taken away again, it rounds to a multiple of 2**32.
_COARSE = 1.5 * 2.0**84

#: Values of the support to average: by id, or computed for a list of ids.
Values = Mapping[str, ArrayLike] | Callable[[list[str]], ArrayLike]

_ROLE_NAMES: dict[int, RoleName] = {
    Role.RESERVE: "reserve",
    Role.MARGIN: "margin",
    Role.BOUNDED: "bounded",
}


def role_name(state: NamespaceState, row: int) -> RoleName:
    """Return the role of a row for a user.

    Parameters
    ----------
    state : NamespaceState
    row : int

    Returns
    -------
    {"margin", "bounded", "reserve"}
    """
    return _ROLE_NAMES[int(state.weights.role[row])]


@dataclass(frozen=True, slots=True)
class Answer:
    """One row of an answer, and the record that speaks for it."""

    row: int
    id: str


def by_support(
    state: NamespaceState, matching: Matching, q: Float32Array, k: int
) -> list[Answer]:
    """Rank by support: look-alikes do not crowd the answer.

    Parameters
    ----------
    state : NamespaceState
    matching : Matching
    q : ndarray of shape (d,), float32
    k : int

    Returns
    -------
    list of Answer
        At most `k`, one a vector, best first.
    """
    settings = state.settings
    ranking = SupportRanking(settings.gamma, settings.alike, settings.diminish)
    if matching.rows is not None:
        pool = Pool(state.table, matching.rows, matching.name)
        rows = ranking.choose(pool, q, k, [])
    else:
        support = state.table.alive & (state.weights.role != Role.RESERVE)
        pool = Pool(state.table, support, matching.name)
        rows = ranking.choose(pool, q, k, [])
        if len(rows) < k:
            reserve = state.table.alive & ~support
            rows = ranking.choose(Pool(state.table, reserve, matching.name), q, k, rows)
    return [Answer(row, matching.name(row)) for row in rows]


def by_similarity(
    state: NamespaceState, matching: Matching, q: Float32Array, k: int
) -> list[Answer]:
    """Rank by cosine over all records: the exact top `k`, ties by id.

    Parameters
    ----------
    state : NamespaceState
    matching : Matching
    q : ndarray of shape (d,), float32
    k : int

    Returns
    -------
    list of Answer
        At most `k`, one a record, best first.
    """
    pool = Pool(state.table, matching.rows, matching.name)
    rows = nearest(pool, q, k)
    cosines = dots(state.table.X[rows], q) if rows else np.empty(0)
    ranked = [
        (-cosine, id, row)
        for row, cosine in zip(rows, cosines, strict=True)
        for id in matching.first(row, k)
    ]
    return [Answer(row, id) for _, id, row in heapq.nsmallest(k, ranked)]


def hits(
    state: NamespaceState,
    matching: Matching,
    q: Float32Array,
    answers: Sequence[Answer],
    records: Mapping[str, StoredRecord],
) -> list[Hit]:
    """Put together what a search returns.

    Parameters
    ----------
    state : NamespaceState
    matching : Matching
    q : ndarray of shape (d,), float32
    answers : sequence of Answer
    records : mapping of str to StoredRecord
        Of all ids in `answers`.

    Returns
    -------
    list of Hit
    """
    rows = np.array([answer.row for answer in answers], dtype=np.int64)
    X = state.table.X
    scores = np.clip(dots(X[rows], q), -1.0, 1.0)
    kernel = exp(-state.settings.gamma * query_distances(X, rows, q))
    alike = look_alikes(state, matching, rows)
    found = []
    told = zip(answers, scores, kernel, strict=True)
    for at, (answer, score, kappa) in enumerate(told):
        record, weight = records[answer.id], float(state.weights.weight[answer.row])
        shared = matching.first(answer.row, NAMED + 1)
        same = [id for id in shared if id != answer.id]
        similar, n_similar = alike[answer.row]
        found.append(
            Hit(
                id=record.id,
                text=record.text,
                metadata=load_metadata(record.metadata),
                source_id=record.source_id,
                score=float(score),
                mass=weight * float(kappa),
                weight=weight,
                role=role_name(state, answer.row),
                same=tuple(same[:NAMED]),
                n_same=matching.count(rows[at : at + 1]) - 1,
                similar=similar,
                n_similar=n_similar,
            )
        )
    return found


@compiled
def _mean(X: Float32Array, rows: IntArray, masses: FloatArray) -> FloatArray:
    """Sum masses times rows in fixed point: the order of the rows does not matter.

    Each product is rounded to an integer of up to 62 bits, and added as a multiple of
    2**32 and a rest: both sums are exact in float64, which the processor adds by lanes.
    """
    d = X.shape[1]
    total = np.zeros(d, dtype=np.int64)
    coarse, fine = np.zeros(d), np.zeros(d)
    for start in range(0, len(rows), _EXACT):
        coarse[:] = 0.0
        fine[:] = 0.0
        for i in range(start, min(start + _EXACT, len(rows))):
            scaled = masses[i] * 4611686018427387904.0
            line = X[rows[i]]
            for j in range(d):
                value = scaled * np.float64(line[j])
                high = (value + _COARSE) - _COARSE
                coarse[j] += high
                fine[j] += np.rint(value - high)
        for j in range(d):
            total[j] += np.int64(coarse[j]) + np.int64(fine[j])
    return total.astype(np.float64) / 4611686018427387904.0


def readout(
    state: NamespaceState, q: Float32Array, m: int, values: Values | None
) -> Readout:
    """Read the whole support through its weights.

    Parameters
    ----------
    state : NamespaceState
    q : ndarray of shape (d,), float32
    m : int
        How many of the largest masses are named.
    values : mapping or callable, optional
        Instead of the embeddings: a vector by id, or a function from ids to a matrix.

    Returns
    -------
    Readout

    Raises
    ------
    InvalidInputError
        If `values` lacks a support record or has a wrong shape.
    """
    X, weight = state.table.X, state.weights.weight
    rows = np.flatnonzero(state.table.alive & (weight > 0.0))
    if not len(rows):
        empty = np.empty(0)
        return Readout(
            ids=(),
            masses=empty,
            weights=empty,
            scores=empty,
            value=np.zeros(X.shape[1]),
            novelty=1.0,
            n_support=0,
        )
    distances = query_distances(X, rows, q)
    # Relative to the nearest, so that a far query does not underflow.
    relative = weight[rows] * exp(-state.settings.gamma * (distances - distances.min()))
    masses = relative / math.fsum(relative)
    named = smallest(-masses, rows, lambda row: state.ids(row)[0], m)
    return Readout(
        ids=tuple(state.ids(int(rows[p]))[0] for p in named),
        masses=masses[named],
        weights=weight[rows[named]],
        scores=np.clip(dots(X[rows[named]], q), -1.0, 1.0),
        value=_mean(X, rows, masses)
        if values is None
        else _values(state, rows, masses, values),
        novelty=_novelty(state, q, rows, distances),
        n_support=len(rows),
    )


def _novelty(
    state: NamespaceState, q: Float32Array, rows: IntArray, distances: FloatArray
) -> float:
    nearest_rows = rows[distances == distances.min()]
    best = min(nearest_rows, key=lambda row: state.ids(int(row))[0])
    group = state.grouping.group(int(best))
    kernel = exp(-state.settings.gamma * query_distances(state.table.X, group, q))
    mass = math.fsum(state.weights.weight[group] * kernel)
    return max(0.0, 1.0 - mass)


def _values(
    state: NamespaceState, rows: IntArray, masses: FloatArray, values: Values
) -> FloatArray:
    ids = [state.ids(int(row))[0] for row in rows]
    if callable(values):
        matrix = as_matrix(values(ids))
    else:
        missing = [id for id in ids if id not in values]
        if missing:
            raise InvalidInputError(
                f"values lacks {len(missing)} of {len(ids)} support records, "
                f"first {missing[0]!r}"
            )
        matrix = as_matrix([np.asarray(values[id], dtype=np.float64) for id in ids])
    if len(matrix) != len(ids):
        raise InvalidInputError(
            f"values gave {len(matrix)} vectors for {len(ids)} support records"
        )
    weighted = matrix * masses[:, np.newaxis]
    return np.array([math.fsum(column) for column in weighted.T])
