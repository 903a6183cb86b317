"""`OneClassSVM`: an exact one-class SVM that learns and unlearns rows."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from forgetmem.arrays import FloatArray, IntArray, as_matrix, as_vector
from forgetmem.errors import InvalidInputError, RowNotFoundError
from forgetmem.svm.certificate import Certificate, certify
from forgetmem.svm.kernel import as_kernel, check_lengths, kernel_row
from forgetmem.svm.maintained import Maintained
from forgetmem.svm.partition import Box, Role, Statuses

_LARGEST_RIDGE = 2.0**500


def positive(name: str, value: object, *, zero: bool = False) -> float:
    """Return a setting as a float, if it is a finite positive number.

    Parameters
    ----------
    name : str
        How the error names it.
    value : object
    zero : bool
        Whether 0 is allowed.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        If it is a bool, no real number, NaN, infinite or negative.
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_):
        number = float(value)
        if math.isfinite(number) and (number > 0.0 or (zero and number == 0.0)):
            return number
    least = "0 or a positive number" if zero else "a positive number"
    raise InvalidInputError(f"expected {name} to be {least}, got {value!r}")


class OneClassSVM:
    """Exact one-class SVM whose state depends on the set of its rows only.

    Minimises ``a' (K + ridge I) a / 2`` over ``sum(a) = 1, 0 <= a <= C``. Learning and
    unlearning rows in any order ends in the same float64 numbers, bit for bit, as
    fitting the rows that are left.

    Parameters
    ----------
    gamma : float
        Of the RBF kernel ``exp(-gamma * squared_distance)``. It is never derived from
        the data.
    C : float
        Largest coefficient. ``C = 1 / (nu * n)`` in terms of `nu` and a number of
        samples; it is not adapted when samples come and go. From 1 on the margin is
        hard.
    ridge : float
        Added to the diagonal of the kernel matrix: part of the problem, and what makes
        the optimum unique for duplicates too. Without it, copies may share their weight
        in any way, and how they do depends on the order.
    kernel : str
        ``"rbf"`` or ``"linear"``.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n_samples,), float64
        Coefficients, zeros included; they sum to 1 up to rounding.
    rho_ : float
        ``(K + ridge I) a`` is this on the margin.
    offset_ : float
        ``rho_ - ridge * max(dual_coef_)``: what a score must reach to be inside.
    weights_ : ndarray of shape (n_samples,), float64
        ``dual_coef_ / rho_``.
    support_, margin_, bounded_, reserve_ : ndarray of int64
        Rows with a positive coefficient, with one between 0 and C, with C, with 0.

    Notes
    -----
    With ``n * C < 1`` (the warm-up) no coefficients are feasible: they are all ``1/n``,
    `rho_` is ``1/n`` and all weights are 1. With no samples `rho_` is 1 and every score
    is 0. If no sample is on the margin, `rho_` is the largest ``(K + ridge I) a`` of a
    bounded one.

    The problem is that of the kernel matrix in float64. Where `ridge` is lost in the
    rounding of that matrix (below 1e-9 of its largest entry) and a margin system is
    singular, or a tie cannot be decided, a larger one is used; `certificate` then says
    how far that is from the problem, and its sharp bound may be infinite. A coefficient
    within ``2**-80 * min(C, 1)`` of a bound counts as on it.

    Unlike scikit-learn's, `dual_coef_` has an entry for every sample and sums to 1.

    Examples
    --------
    >>> svm = OneClassSVM(gamma=0.04, ridge=0.0).fit([[-1, 0], [1, 0], [0, 0.9]])
    >>> svm.dual_coef_.tolist()
    [0.5, 0.5, 0.0]
    >>> svm.learn([[0, -10]]).unlearn(3).dual_coef_.tolist()
    [0.5, 0.5, 0.0]
    """

    def __init__(
        self,
        gamma: float = 8.0,
        C: float = 1.0,
        ridge: float = 1e-8,
        *,
        kernel: str = "rbf",
    ) -> None:
        self.gamma = positive("gamma", gamma)
        self.C = positive("C", C)
        self.ridge = positive("ridge", ridge, zero=True)
        if self.ridge > _LARGEST_RIDGE:
            raise InvalidInputError(f"expected ridge to be at most 2**500, got {ridge}")
        self.kernel = as_kernel(kernel)
        self.box = Box(self.C)
        self._dimension: int | None = None
        self._maintained = self._begin(np.zeros((0, 0)), None)

    def fit(self, X: ArrayLike, dual_coef: ArrayLike | None = None) -> OneClassSVM:
        """Forget everything and learn the rows of `X`.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
        dual_coef : array_like of shape (n_samples,), optional
            Coefficients to start from. They change the time it takes, not the result.

        Returns
        -------
        OneClassSVM
            Itself.

        Raises
        ------
        InvalidInputError
            If `X` is no finite matrix, or `dual_coef` no finite vector of that length.
        """
        rows = as_matrix(X)
        check_lengths(self.kernel, rows)
        start = None if dual_coef is None else as_vector(dual_coef, len(rows))
        self._maintained = self._begin(rows, start)
        self._dimension = rows.shape[1]
        return self

    def _begin(self, X: FloatArray, start: FloatArray | None) -> Maintained:
        return Maintained(self.kernel, self.gamma, self.ridge, self.box, X, start)

    def learn(self, X: ArrayLike) -> OneClassSVM:
        """Learn more rows; they follow those that are there.

        Parameters
        ----------
        X : array_like of shape (n_new, n_features)

        Returns
        -------
        OneClassSVM
            Itself.

        Raises
        ------
        InvalidInputError
            If `X` is no finite matrix.
        DimensionMismatchError
            If it has another number of columns than the rows learned before.

        Notes
        -----
        O(margin**2 + margin * n_samples) for each breakpoint on the path of a row. Many
        rows at once are solved for together, from the coefficients there are.
        """
        new = as_matrix(X, self._dimension)
        if self._dimension is None:
            return self.fit(new)
        check_lengths(self.kernel, new)
        self._maintained.learn(new)
        return self

    def unlearn(self, rows: int | Iterable[int]) -> OneClassSVM:
        """Remove rows; the others keep their order.

        Parameters
        ----------
        rows : int or iterable of int
            Positions, ``0 <= row < n_samples``.

        Returns
        -------
        OneClassSVM
            Itself.

        Raises
        ------
        InvalidInputError
            If a position is no integer, or is given twice.
        RowNotFoundError
            If there is no row at a position; nothing is removed then.

        Notes
        -----
        A reserve row costs O(n_samples), others O(margin**2 + margin * n_samples) for
        each breakpoint on the one path along which they leave together.
        """
        self._maintained.unlearn(self._as_rows(rows))
        return self

    def _as_rows(self, rows: object) -> list[int]:
        if isinstance(rows, np.ndarray):
            rows = rows.tolist()
        many = rows if isinstance(rows, Iterable) else [rows]
        found: dict[int, None] = {}
        for row in many:
            if not isinstance(row, numbers.Integral) or isinstance(row, bool):
                raise InvalidInputError(f"expected rows as integers, got {row!r}")
            place = int(row)
            if not 0 <= place < self.n_samples:
                raise RowNotFoundError(place, self.n_samples)
            if place in found:
                raise InvalidInputError(f"row {place} is given more than once")
            found[place] = None
        return list(found)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self._maintained.samples.slots)

    @property
    def X_(self) -> FloatArray:  # noqa: N802
        """The rows, as learned."""
        return self._maintained.samples.rows

    @property
    def dual_coef_(self) -> FloatArray:
        """Coefficient of each row."""
        return self._maintained.alpha

    @property
    def rho_(self) -> float:
        """``(K + ridge I) a`` on the margin."""
        return self._maintained.rho

    @property
    def offset_(self) -> float:
        """Score from which on a vector is inside."""
        return self.rho_ - self.ridge * float(self.dual_coef_.max(initial=0.0))

    @property
    def weights_(self) -> FloatArray:
        """``dual_coef_ / rho_`` of each row."""
        if self._maintained.optimum is None:
            return np.ones(self.n_samples)
        return weights(self.dual_coef_, self.rho_)

    @property
    def partition_(self) -> Statuses:
        """`Role` of each row; in the warm-up all are on the margin."""
        return self._maintained.partition

    @property
    def support_(self) -> IntArray:
        """Rows with a positive coefficient."""
        return np.flatnonzero(self.partition_ != Role.RESERVE)

    @property
    def margin_(self) -> IntArray:
        """Rows with a coefficient between 0 and C."""
        return np.flatnonzero(self.partition_ == Role.MARGIN)

    @property
    def bounded_(self) -> IntArray:
        """Rows with the coefficient C."""
        return np.flatnonzero(self.partition_ == Role.BOUNDED)

    @property
    def reserve_(self) -> IntArray:
        """Rows with the coefficient 0."""
        return np.flatnonzero(self.partition_ == Role.RESERVE)

    @property
    def rescues_(self) -> int:
        """Changes since the last `fit` that the active set had to finish."""
        return self._maintained.rescues

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Kernel mean of each vector: ``sum_i dual_coef_i * kernel(x, x_i)``.

        Parameters
        ----------
        X : array_like of shape (n_queries, n_features)

        Returns
        -------
        ndarray of shape (n_queries,), float64
            Each entry depends on its vector and on the set of rows only, bit for bit.

        Raises
        ------
        InvalidInputError
            If `X` is no finite matrix.
        DimensionMismatchError
            If it has another number of columns than the rows.
        """
        queries = as_matrix(X, self._dimension)
        check_lengths(self.kernel, queries)
        support = self.support_
        rows, coefficients = self.X_[support], self.dual_coef_[support]
        out = np.empty(len(queries))
        for place, query in enumerate(queries):
            values = kernel_row(self.kernel, self.gamma, rows, query)
            out[place] = math.fsum((coefficients * values).tolist())
        return out

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """``score_samples(X) - offset_``: from 0 on a vector is inside.

        Parameters
        ----------
        X : array_like of shape (n_queries, n_features)

        Returns
        -------
        ndarray of shape (n_queries,), float64

        Raises
        ------
        InvalidInputError
            If `X` is no finite matrix.
        DimensionMismatchError
            If it has another number of columns than the rows.
        """
        return self.score_samples(X) - self.offset_

    def certificate(self) -> Certificate:
        """Bound the distance of the stored coefficients from the true optimum.

        Returns
        -------
        Certificate
            From the kernel matrix and `dual_coef_` alone.
        """
        samples = self._maintained.samples
        K = np.ascontiguousarray(samples.K[np.ix_(samples.slots, samples.slots)])
        found = certify(K, self.dual_coef_, samples.ridge, self.box)
        return found.scaled(samples.scale)


def weights(alpha: FloatArray, rho: float) -> FloatArray:
    """``alpha / rho``, 0 where alpha is 0 even if rho is 0.

    Parameters
    ----------
    alpha : ndarray of float64
    rho : float

    Returns
    -------
    ndarray of float64
    """
    out = np.zeros(len(alpha))
    with np.errstate(divide="ignore", over="ignore"):
        np.divide(alpha, rho, out=out, where=alpha != 0.0)
    return out
