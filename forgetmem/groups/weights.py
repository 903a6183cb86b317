"""The weight and the role of every row: one exact one-class SVM a group."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TypeAlias

import numpy as np

from forgetmem.arrays import FloatArray, IntArray
from forgetmem.index import VectorTable
from forgetmem.svm import (
    Certificate,
    OneClassSVM,
    Role,
    Solution,
    fit_many,
    solution_certificates,
)

#: So many groups are certified at a time: their vectors are copied.
_CERTIFIED = 1024

Roles: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int8]]

#: From this many rows on, a group's solver is kept, so that one record costs one walk.
_KEPT_FROM = 48
#: So many squared rows, over all kept solvers, are kept at most (8 bytes each, twice).
_KEPT_SQUARES = 6_000_000


class GroupWeights:
    """Weights ``w = dual_coef / rho`` and roles, kept for all rows of a table.

    With C = 1 a row that is alone in its group is `Role.MARGIN`: in the memory as a
    whole its coefficient is below C.

    Parameters
    ----------
    table : VectorTable
        The vectors.
    gamma : float
        Of the RBF kernel.
    C : float
        Box of every group's coefficients.
    ridge : float
        Added to the diagonal of the kernel matrix; part of the problem.
    """

    def __init__(
        self, table: VectorTable, gamma: float, C: float, ridge: float
    ) -> None:
        self._table = table
        self._gamma = gamma
        self._C = C
        self._ridge = ridge
        self._weight: FloatArray = np.zeros(0)
        self._role = np.zeros(0, dtype=np.int8)
        self._kept: OrderedDict[int, tuple[OneClassSVM, IntArray]] = OrderedDict()
        self._next = 0

    @property
    def weight(self) -> FloatArray:
        """Weight of each row of the table, 0 for reserve and for free rows."""
        self._reserve()
        return self._weight[: len(self._table.X)]

    @property
    def role(self) -> Roles:
        """Role of each row of the table, as the integers of `Role`."""
        self._reserve()
        return self._role[: len(self._table.X)]

    def role_of(self, row: int) -> int:
        """Return the role of a row that was solved or restored.

        Parameters
        ----------
        row : int

        Returns
        -------
        int
        """
        return int(self._role[row])

    def restore(self, rows: IntArray, weights: FloatArray, roles: Roles) -> None:
        """Take over weights and roles that were stored.

        Parameters
        ----------
        rows : ndarray of int64
        weights : ndarray of float64
        roles : ndarray of int8
        """
        self.weight[rows] = weights
        self.role[rows] = roles

    def clear(self, rows: IntArray) -> None:
        """Drop what is kept of rows that leave the table.

        Parameters
        ----------
        rows : ndarray of int64
        """
        self.weight[rows] = 0.0
        self.role[rows] = Role.RESERVE
        gone = set(rows.tolist())
        for number in [n for n, (_, r) in self._kept.items() if gone & set(r.tolist())]:
            del self._kept[number]

    def solve(self, groups: list[IntArray]) -> None:
        """Find the weights of groups whose members changed.

        Parameters
        ----------
        groups : list of ndarray of int64
            Each with the rows of one group.
        """
        alone = [rows for rows in groups if len(rows) == 1]
        small = [rows for rows in groups if 1 < len(rows) < _KEPT_FROM]
        for rows in groups:
            if len(rows) >= _KEPT_FROM:
                solver, order = self._follow(rows)
                roles = np.zeros(len(order), dtype=np.int8)
                roles[solver.margin_] = Role.MARGIN
                roles[solver.bounded_] = Role.BOUNDED
                self._assign(order, solver.weights_, roles)
        for rows, solution in zip(small, self._fit(small), strict=True):
            self._assign(rows, solution.weights, solution.partition)
        if alone:
            solution = self._fit(alone[:1])[0]  # a vector's distance from itself is 0
            self._assign(np.concatenate(alone), solution.weights, solution.partition)

    def certificates(self, groups: list[IntArray]) -> list[Certificate]:
        """Certify the weights of some groups from their vectors and weights alone.

        Parameters
        ----------
        groups : list of ndarray of int64
            Each with the rows of one group.

        Returns
        -------
        list of Certificate
        """
        found: list[Certificate] = []
        for start in range(0, len(groups), _CERTIFIED):
            some = groups[start : start + _CERTIFIED]
            found += solution_certificates(
                [self._vectors(rows) for rows in some],
                [self._coefficients(rows) for rows in some],
                gamma=self._gamma,
                C=self._C,
                ridge=self._ridge,
            )
        return found

    def _coefficients(self, rows: IntArray) -> FloatArray:
        coefficients = self.weight[rows] / math.fsum(self.weight[rows])
        coefficients[self.role[rows] == Role.BOUNDED] = self._C
        return coefficients

    def _fit(self, groups: list[IntArray]) -> list[Solution]:
        return fit_many(
            [self._vectors(rows) for rows in groups],
            gamma=self._gamma,
            C=self._C,
            ridge=self._ridge,
        )

    def _assign(
        self,
        rows: IntArray,
        weights: FloatArray,
        roles: Roles,
    ) -> None:
        self.weight[rows] = weights
        bounded = Role.MARGIN if self._C >= 1.0 else Role.BOUNDED
        self.role[rows] = np.where(roles == Role.BOUNDED, bounded, roles)

    def _follow(self, rows: IntArray) -> tuple[OneClassSVM, IntArray]:
        number, solver, order = self._nearest(rows)
        gone = np.flatnonzero(~np.isin(order, rows))
        new = np.setdiff1d(rows, order)
        if solver is None or 4 * (len(gone) + len(new)) > len(rows):
            solver = OneClassSVM(gamma=self._gamma, C=self._C, ridge=self._ridge)
            order, new, gone = rows, rows, gone[:0]
            solver.fit(self._vectors(rows))
        else:
            if len(gone):
                solver.unlearn(gone)
            if len(new):
                solver.learn(self._vectors(new))
            order = np.concatenate([np.delete(order, gone), new])
        self._keep(number, solver, order)
        return solver, order

    def _nearest(self, rows: IntArray) -> tuple[int, OneClassSVM | None, IntArray]:
        best: tuple[int, OneClassSVM | None, IntArray] = (-1, None, rows[:0])
        shared = 0
        for number, (solver, order) in self._kept.items():
            common = int(np.isin(order, rows).sum())
            if common > shared:
                best, shared = (number, solver, order), common
        return best

    def _keep(self, number: int, solver: OneClassSVM, order: IntArray) -> None:
        self._kept.pop(number, None)
        self._kept[self._next] = (solver, order)
        self._next += 1
        squares = sum(len(order) ** 2 for _, order in self._kept.values())
        while squares > _KEPT_SQUARES and len(self._kept) > 1:
            _, (_, dropped) = self._kept.popitem(last=False)
            squares -= len(dropped) ** 2

    def _vectors(self, rows: IntArray) -> FloatArray:
        return self._table.X[rows].astype(np.float64)

    def _reserve(self) -> None:
        size = len(self._table.X)
        if size > len(self._weight):
            grown = np.zeros(max(size, len(self._weight) * 3 // 2))
            grown[: len(self._weight)] = self._weight
            roles = np.zeros(len(grown), dtype=np.int8)
            roles[: len(self._role)] = self._role
            self._weight, self._role = grown, roles
