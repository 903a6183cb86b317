"""Until when pruned vectors stay without influence.

A removed vector j of a group has slack ``h_j = (K w)_j - 1 >= 0``. With the weights
now, ``|(K w_now)_j - (K w)_j| <= |w_now - w|_K`` by Cauchy and Schwarz, so as long as
that norm is at most the smallest slack, j would still be reserve, and everything else
is as if it were there. What could bring it back in another way ends the certificate:
a forget in the group, a split, too many members, or a newcomer outside the group that
might have been linked to j.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from forgetmem.arrays import IntArray
from forgetmem.distances import dots, squared_distances
from forgetmem.errors import CorruptStoreError
from forgetmem.exponential import exp
from forgetmem.groups.grouping import Grouping
from forgetmem.groups.keys import KeyTable
from forgetmem.groups.weights import GroupWeights
from forgetmem.index import VectorTable

#: Above all rounding in slacks, norms and angles.
_MARGIN = 1e-7


def _checksum(fields: Mapping[str, object]) -> str:
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class PruneHorizon:
    """The scalars of one group that lost vectors; no part of the state.

    Attributes
    ----------
    pruned, retained : int
        Vectors that were removed from the group, and that were left.
    slack : float
        Smallest slack of a removed vector, rounded down.
    used : float
        Norm of the change of the weights since then, rounded up.
    angle : float
        Largest angle between a removed vector and its nearest survivor, rounded up.
    whole : bool
        The group was a whole component, not a part of a divided one.
    weights : mapping of str to float
        Weights of the retained vectors at the time, by hex key; empty once expired.
    reason : str
        Why it expired; empty while it is valid.
    """

    pruned: int
    retained: int
    slack: float
    used: float
    angle: float
    whole: bool
    weights: Mapping[str, float]
    reason: str = ""

    @classmethod
    def from_json(cls, payload: str) -> PruneHorizon:
        """Read a horizon back.

        Parameters
        ----------
        payload : str
            What `to_json` returned.

        Returns
        -------
        PruneHorizon

        Raises
        ------
        CorruptStoreError
            If it was changed since: no digest of the memory covers it.
        """
        try:
            fields = json.loads(payload)
            checksum = fields.pop("checksum")
            if checksum != _checksum(fields):
                raise ValueError
            return cls(**fields)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptStoreError(
                "a prune certificate does not match its checksum: the file is damaged; "
                "compact() drops it",
                table="certificate",
            ) from error

    def to_json(self) -> str:
        """Write a horizon.

        Returns
        -------
        str
            JSON with a checksum; floats come back exactly.
        """
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({**fields, "checksum": _checksum(fields)}, sort_keys=True)

    def expired(self, reason: str) -> PruneHorizon:
        """Return this horizon, expired, without anything of the retained vectors.

        Parameters
        ----------
        reason : str

        Returns
        -------
        PruneHorizon
        """
        return replace(self, weights={}, reason=reason)


def horizon_of(
    table: VectorTable,
    keys: KeyTable,
    weights: GroupWeights,
    gamma: float,
    retained: IntArray,
    removed: IntArray,
    whole: bool,
) -> PruneHorizon:
    """Measure how far removed vectors are from coming back.

    Parameters
    ----------
    table : VectorTable
        Still with the removed rows.
    keys : KeyTable
        Key of each row.
    weights : GroupWeights
    gamma : float
    retained, removed : ndarray of int64
        Rows of one group.
    whole : bool
        The group is a whole component.

    Returns
    -------
    PruneHorizon
    """
    X, w = table.X[retained], weights.weight[retained]
    slack, angle = math.inf, 0.0
    for row in removed:
        kernel = exp(-gamma * squared_distances(X, table.X[row]))
        slack = min(slack, math.fsum(kernel * w) - 1.0)
        cosine = min(1.0, float(dots(X, table.X[row]).max()))
        angle = max(angle, math.acos(cosine))
    named = {
        keys.key(row).hex(): float(value)
        for row, value in zip(retained.tolist(), w, strict=True)
    }
    return PruneHorizon(
        pruned=len(removed),
        retained=len(retained),
        slack=max(0.0, slack - _MARGIN),
        used=0.0,
        angle=angle + _MARGIN,
        whole=whole,
        weights=named,
    )


class Horizons:
    """The horizons of a namespace, kept up with what is added and forgotten.

    Parameters
    ----------
    table : VectorTable
    row_of : mapping of bytes to int
        Row of each key.
    grouping : Grouping
    weights : GroupWeights
    gamma : float
    """

    def __init__(
        self,
        table: VectorTable,
        row_of: Mapping[bytes, int],
        grouping: Grouping,
        weights: GroupWeights,
        gamma: float,
    ) -> None:
        self._table = table
        self._row_of = row_of
        self._grouping = grouping
        self._weights = weights
        self._gamma = gamma
        self.by_key: dict[bytes, PruneHorizon] = {}

    def add(self, horizon: PruneHorizon) -> None:
        """Take up a new horizon, under a name that tells nothing.

        Parameters
        ----------
        horizon : PruneHorizon
        """
        # A hash of the retained keys would outlive a forget, and two prunes of one
        # group can retain the same vectors.
        self.by_key[secrets.token_bytes(16)] = horizon

    def after_forget(self, gone: Iterable[bytes], touched: IntArray) -> None:
        """Expire what a forget touches; called before the vectors leave the table.

        Parameters
        ----------
        gone : iterable of bytes
            Keys that are forgotten.
        touched : ndarray of int64
            Rows of the components that held them.
        """
        if not self.by_key:
            return
        names = {key.hex() for key in gone}
        rows = set(touched.tolist())
        for key, horizon in self._valid():
            retained = set(self._retained(horizon).tolist())
            if names & horizon.weights.keys() or rows & retained:
                self.by_key[key] = horizon.expired(
                    "a record of its group was forgotten"
                )

    def after_prune(self, gone: Iterable[bytes]) -> None:
        """Expire what counts on vectors that are pruned in their turn.

        Parameters
        ----------
        gone : iterable of bytes
            Keys that are pruned.
        """
        names = {key.hex() for key in gone}
        for key, horizon in self._valid():
            if names & horizon.weights.keys():
                self.by_key[key] = horizon.expired(
                    "a vector that it was measured by was pruned too"
                )

    def after_add(self, rows: IntArray) -> None:
        """Use up or expire what an addition touches; called after the solve.

        Parameters
        ----------
        rows : ndarray of int64
            Rows that are new.
        """
        for key, horizon in self._valid():
            self.by_key[key] = self._checked(horizon, rows)

    def _valid(self) -> list[tuple[bytes, PruneHorizon]]:
        return [(key, h) for key, h in self.by_key.items() if not h.reason]

    def _retained(self, horizon: PruneHorizon) -> IntArray:
        rows = [self._row_of.get(bytes.fromhex(name), -1) for name in horizon.weights]
        return np.array([row for row in rows if row >= 0], dtype=np.int64)

    def _checked(self, horizon: PruneHorizon, rows: IntArray) -> PruneHorizon:
        retained = self._retained(horizon)
        group = self._grouping.group(int(retained[0]))
        if not np.isin(retained, group).all():
            return horizon.expired("its group was split")
        component = self._grouping.components.members(int(retained[0]))
        if not horizon.whole and np.isin(rows, component).any():
            return horizon.expired("its divided component has grown")
        outside = rows[~np.isin(rows, component)]
        if self._comes_near(horizon, retained, outside):
            return horizon.expired("a later record might have been linked to it")
        limit = self._grouping.max_group
        size = len(component) + self._pruned_in(group)
        if horizon.whole and limit is not None and size > limit:
            return horizon.expired("its group has become too large")
        horizon = replace(horizon, used=self._distance(horizon, group))
        if horizon.used > horizon.slack:
            return horizon.expired("later records have used up its slack")
        return horizon

    def _pruned_in(self, group: IntArray) -> int:
        members = set(group.tolist())
        return sum(
            horizon.pruned
            for _, horizon in self._valid()
            if members & set(self._retained(horizon).tolist())
        )

    def _comes_near(
        self, horizon: PruneHorizon, retained: IntArray, outside: IntArray
    ) -> bool:
        link = min(1.0, max(-1.0, self._grouping.link))
        reach = math.acos(link) + horizon.angle
        if not len(outside):
            return False
        if reach >= math.pi:
            return True
        X = self._table.X[retained]
        nearest = max(float(dots(X, self._table.X[row]).max()) for row in outside)
        return nearest >= math.cos(reach) - _MARGIN

    def _distance(self, horizon: PruneHorizon, group: IntArray) -> float:
        before = {
            self._row_of[bytes.fromhex(name)]: weight
            for name, weight in horizon.weights.items()
        }
        change = self._weights.weight[group] - np.array(
            [before.get(int(row), 0.0) for row in group]
        )
        moved = group[change != 0.0]
        change = change[change != 0.0]
        X = np.ascontiguousarray(self._table.X[moved])
        square = 0.0
        for x, step in zip(X, change, strict=True):
            kernel = exp(-self._gamma * squared_distances(X, x))
            square += float(step) * math.fsum(kernel * change)
        return math.sqrt(max(0.0, square)) + (_MARGIN if len(moved) else 0.0)
