"""What is refused is refused by a named error, before anything has changed."""

from __future__ import annotations

import numpy as np
import pytest

from forgetmem.errors import (
    DimensionMismatchError,
    InvalidInputError,
    RowNotFoundError,
)
from forgetmem.svm import OneClassSVM, fit_many, solution_certificate

BAD = [0, -1.0, float("nan"), float("inf"), "0.1", "scale", True, None, np.True_, 1j]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("name", ["gamma", "C"])
def test_bad_settings_are_refused(name: str, value: object) -> None:
    """Zero, negative, not finite, bool, str: none of them is a gamma or a C."""
    with pytest.raises(InvalidInputError, match=f"expected {name} to be a positive"):
        OneClassSVM(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        fit_many([], **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [*BAD[1:], -1e-300])
def test_bad_ridges_are_refused(value: object) -> None:
    """A ridge of 0 is allowed, nothing else that is not positive."""
    with pytest.raises(InvalidInputError, match="expected ridge to be 0 or"):
        OneClassSVM(ridge=value)  # type: ignore[arg-type]


def test_ridges_beyond_any_sense_are_refused() -> None:
    """What would overflow with the kernel values is an error of its own."""
    with pytest.raises(InvalidInputError, match=r"at most 2\*\*500"):
        OneClassSVM(ridge=1e200)


def test_unknown_kernels_are_refused() -> None:
    """The error names those there are."""
    with pytest.raises(InvalidInputError, match="'rbf', 'linear', got 'poly'"):
        OneClassSVM(kernel="poly")


def test_numbers_of_other_types_are_settings_too() -> None:
    """Integers and numpy numbers are taken as floats."""
    svm = OneClassSVM(gamma=np.float32(0.5), C=1, ridge=np.int64(0))
    assert (svm.gamma, svm.C, svm.ridge) == (0.5, 1.0, 0.0)


@pytest.mark.parametrize(
    "X", [[1.0], [[np.nan, 1.0]], [["a", "b"]], np.ones((2, 2, 2)), [[np.inf, 0.0]]]
)
def test_bad_rows_change_nothing(X: object) -> None:
    """Fit, learn and the scores refuse them, and the state stays as it was."""
    svm = OneClassSVM(gamma=0.3).fit(np.eye(2))
    for call in (svm.fit, svm.learn, svm.score_samples, svm.decision_function):
        with pytest.raises(InvalidInputError):
            call(X)  # type: ignore[arg-type]
    assert np.array_equal(svm.X_, np.eye(2))
    with pytest.raises(InvalidInputError):
        fit_many([np.eye(2), X])  # type: ignore[list-item]


def test_another_dimension_is_refused_even_when_all_rows_have_gone() -> None:
    """The number of columns is fixed by the first rows, until the next fit."""
    svm = OneClassSVM().fit(np.eye(2)).unlearn([0, 1])
    for call in (svm.learn, svm.score_samples):
        with pytest.raises(DimensionMismatchError) as caught:
            call(np.eye(3))
        assert (caught.value.expected, caught.value.got) == (2, 3)
    assert svm.fit(np.eye(3)).n_samples == 3


@pytest.mark.parametrize("rows", [3, -1, [0, 3], [0, -1], np.array([5])])
def test_rows_that_are_not_there_are_refused_as_a_whole(rows: object) -> None:
    """If one of several rows does not exist, none is removed."""
    svm = OneClassSVM().fit(np.eye(3))
    with pytest.raises(RowNotFoundError):
        svm.unlearn(rows)  # type: ignore[arg-type]
    assert svm.n_samples == 3


@pytest.mark.parametrize("rows", [[0, 0], True, [1.0], "0", None, [[0]]])
def test_rows_must_be_distinct_integers(rows: object) -> None:
    """A bool, a float, a str or a repeated row is refused."""
    svm = OneClassSVM().fit(np.eye(3))
    with pytest.raises(InvalidInputError):
        svm.unlearn(rows)  # type: ignore[arg-type]
    assert svm.n_samples == 3


def test_unlearning_nothing_does_nothing() -> None:
    """An empty list of rows is not an error."""
    svm = OneClassSVM().fit(np.eye(3))
    assert svm.unlearn([]).learn(np.zeros((0, 3))).n_samples == 3


@pytest.mark.parametrize("dual_coef", [[1.0], [np.nan, 0, 0], "abc", [[1, 0, 0]]])
def test_bad_starting_coefficients_are_refused(dual_coef: object) -> None:
    """They must be one finite number a row; whether they are feasible is no matter."""
    with pytest.raises(InvalidInputError):
        OneClassSVM().fit(np.eye(3), dual_coef)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        solution_certificate(np.eye(3), dual_coef)  # type: ignore[arg-type]


def test_rows_of_the_linear_kernel_must_not_overflow() -> None:
    """Huge rows are refused there, and are far from everything under the RBF."""
    huge = np.array([[1e200, 0.0], [0.0, 1.0]])
    svm = OneClassSVM(kernel="linear").fit(np.eye(2))
    for call in (svm.fit, svm.learn, svm.score_samples):
        with pytest.raises(InvalidInputError, match=r"2\*\*250"):
            call(huge)
    with pytest.raises(InvalidInputError):
        fit_many([huge], kernel="linear")
    with pytest.raises(InvalidInputError):
        solution_certificate(huge, [0.5, 0.5], kernel="linear")
    assert OneClassSVM().fit(huge).dual_coef_.tolist() == [0.5, 0.5]
    assert OneClassSVM(gamma=1e308).fit([[1e300], [-1e300]]).rho_ == 0.5 + 5e-9


def test_numpy_numbers_name_rows() -> None:
    """An array of no dimension is one row."""
    svm = OneClassSVM(0.5, ridge=1e-8).fit(np.eye(4))
    assert svm.unlearn(np.array(1)).unlearn(np.array([0, 1])).n_samples == 1
