"""From rows to what a user sees: hits with their look-alikes, and readouts."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from forgetmem.arrays import BoolArray, Float32Array, FloatArray, IntArray, as_matrix
from forgetmem.column import SEVERAL
from forgetmem.distances import dots
from forgetmem.errors import InvalidInputError
from forgetmem.filters import Filter
from forgetmem.groups import Role
from forgetmem.index import FaissIndex
from forgetmem.jit import compiled
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

#: At most so many ids of look-alikes are named.
NAMED = 20

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


class Matching:
    """The records that a `where` and a choice of ids let through; else all.

    Parameters
    ----------
    state : NamespaceState
    where : Filter or None
    among : set of str, optional
        Ids; unknown ones have no effect.
    """

    def __init__(
        self,
        state: NamespaceState,
        where: Filter | None,
        among: Set[str] | None = None,
    ) -> None:
        self._state = state
        self._where = where
        self._verdicts: dict[str, bool] = {}
        self._several: BoolArray | None = None
        self.rows: BoolArray | None = None
        self._ids: dict[int, list[str]] | None = None
        if among is not None:
            self._choose(among)
        elif where is not None:
            self._filter()

    def ids(self, row: int) -> list[str]:
        """Return the matching records with one vector, ascending.

        Parameters
        ----------
        row : int

        Returns
        -------
        list of str
        """
        if self._ids is not None:
            return self._ids.get(row, [])
        ids = self._state.ids(row)
        return ids if self._where is None else [id for id in ids if self._lets(id)]

    def count(self, rows: IntArray) -> int:
        """Count the matching records with any of some vectors.

        Parameters
        ----------
        rows : ndarray of int64
            Distinct, each with a matching record.

        Returns
        -------
        int
        """
        singly = np.full(len(rows), self._ids is not None)
        if self._several is not None:
            singly = self._several[rows]
        counted = [len(self.ids(row)) for row in rows[singly].tolist()]
        return self._state.count(rows[~singly]) + sum(counted)

    def name(self, row: int) -> str:
        """Return the id that speaks for a row.

        Parameters
        ----------
        row : int

        Returns
        -------
        str
        """
        return self.ids(row)[0]

    def all_ids(self) -> list[str]:
        """Return every matching id, ascending.

        Returns
        -------
        list of str
        """
        if self.rows is None:
            return sorted(self._state.entries)
        rows = np.flatnonzero(self.rows).tolist()
        return sorted(id for row in rows for id in self.ids(row))

    def _lets(self, id: str) -> bool:
        text = self._state.entries[id].metadata
        verdict = self._verdicts.get(text)
        if verdict is None:
            assert self._where is not None
            verdict = self._where.matches(self._state.metadata(text))
            self._verdicts[text] = verdict
        return verdict

    def _filter(self) -> None:
        """Look at every metadata text once, and singly where those of a row differ."""
        assert self._where is not None
        column = self._state.column()
        verdicts = [self._where.matches(self._state.metadata(t)) for t in column.texts]
        self._verdicts = dict(zip(column.texts, verdicts, strict=True))
        numbers = column.of_rows(len(self._state.table.X))
        self.rows = np.array([*verdicts, False], dtype=np.bool_)[numbers]
        self._several = numbers == SEVERAL
        several = np.flatnonzero(self._several).tolist()
        self.rows[several] = [bool(self.ids(row)) for row in several]

    def _choose(self, among: Iterable[str]) -> None:
        self._ids = {}
        for id in among:
            entry = self._state.entries.get(id)
            if entry is not None and (self._where is None or self._lets(id)):
                self._ids.setdefault(entry.row, []).append(id)
        for ids in self._ids.values():
            ids.sort()
        self.rows = np.zeros(len(self._state.table.X), dtype=np.bool_)
        self.rows[list(self._ids)] = True


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
        for id in matching.ids(row)
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
    X = state.table.X[rows]
    scores = np.clip(dots(X, q), -1.0, 1.0)
    kernel = np.exp(-state.settings.gamma * query_distances(X, q))
    found = []
    for answer, score, kappa in zip(answers, scores, kernel, strict=True):
        record, weight = records[answer.id], float(state.weights.weight[answer.row])
        same = [id for id in matching.ids(answer.row) if id != answer.id]
        similar, n_similar = _look_alikes(state, matching, answer.row)
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
                n_same=len(same),
                similar=similar,
                n_similar=n_similar,
            )
        )
    return found


def _look_alikes(
    state: NamespaceState, matching: Matching, row: int
) -> tuple[tuple[str, ...], int]:
    X, alike = state.table.X, state.settings.alike
    index = FaissIndex(state.table)
    if alike >= state.grouping.link:
        near = state.grouping.components.members(row)
        near = near[index.reach(near, X[row], alike)]
    else:
        near = index.within(X[row], alike)
    near = near[near != row]
    if matching.rows is not None:
        near = near[matching.rows[near]]
    closest = near
    if len(near) > NAMED:
        among = np.zeros(len(X), dtype=np.bool_)
        among[near] = True
        closest = index.search(X[row], NAMED, among).rows
    named = heapq.nsmallest(
        NAMED,
        (
            (-cosine, id)
            for other, cosine in zip(
                closest.tolist(), dots(X[closest], X[row]), strict=True
            )
            for id in matching.ids(other)
        ),
    )
    return tuple(id for _, id in named), matching.count(near)


@compiled
def _mean(X: Float32Array, rows: IntArray, masses: FloatArray) -> FloatArray:
    """Sum masses times rows in fixed point: the order of the rows does not matter."""
    d = X.shape[1]
    total = np.zeros(d, dtype=np.int64)
    for i in range(len(rows)):
        scaled = masses[i] * 4611686018427387904.0
        for j in range(d):
            total[j] += np.int64(np.rint(scaled * np.float64(X[rows[i], j])))
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
    distances = query_distances(X, q)[rows]
    # Relative to the nearest, so that a far query does not underflow.
    relative = weight[rows] * np.exp(
        -state.settings.gamma * (distances - distances.min())
    )
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
    kernel = np.exp(-state.settings.gamma * query_distances(state.table.X[group], q))
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
