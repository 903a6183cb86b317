"""The exponential function and the logarithm are accurate, and the same everywhere."""

from __future__ import annotations

import hashlib
from decimal import Decimal, localcontext

import numpy as np
import pytest

from forgetmem.exponential import exp, exp_into, log


@pytest.mark.parametrize("width", [1e-3, 1.0, 30.0, 745.0])
def test_values_are_within_one_unit_in_the_last_place(width: float) -> None:
    """Against forty digits."""
    x = -width * np.random.default_rng(0).random(500)
    with localcontext() as context:
        context.prec = 40
        for value, found in zip(x.tolist(), exp(x).tolist(), strict=True):
            unit = Decimal(float(np.spacing(found)))
            assert abs(Decimal(found) - Decimal(value).exp()) < unit


def test_special_values_are_exact() -> None:
    """0 gives 1; what is too far below 0 gives 0, and subnormal numbers before that."""
    x = np.array([0.0, -0.0, -1e-300, -745.2, -1e9, -np.inf])
    assert exp(x).tolist() == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert exp(np.array([-745.0, -720.0])).tolist() == [5e-324, 2.03223080241e-313]


def test_the_bits_are_the_same_on_every_machine() -> None:
    """The digest was taken on another processor than yours, or on another day."""
    x = -np.arange(40_000) / 64.0
    digest = hashlib.sha256(exp(x).tobytes()).hexdigest()
    assert digest == "41e378488614a3a7f135a192ce8b12f5883b6946aece948487c7a91c534e2424"


def test_an_entry_does_not_know_its_place() -> None:
    """Slices and shapes change nothing, and the function may write in place."""
    x = -np.random.default_rng(1).random((7, 130)) * 50
    whole = exp(x)
    assert whole.shape == x.shape
    assert np.array_equal(whole[:, 3:], exp(x[:, 3:]))
    assert [exp(row[i : i + 1])[0] for i, row in enumerate(x)] == [
        row[i] for i, row in enumerate(whole)
    ]
    flat = x.reshape(-1)
    exp_into(flat, flat)
    assert np.array_equal(flat.reshape(x.shape), whole)


def test_it_never_falls_and_stays_below_one() -> None:
    """Over a fine grid, across the borders of the reduction."""
    found = exp(np.linspace(-3.0, 0.0, 200_001))
    assert (np.diff(found) >= 0.0).all()
    assert found.max() == 1.0


@pytest.mark.parametrize("least", [0.999, 0.5, 1e-3, 2.0**-52])
def test_logarithms_are_accurate_and_not_above_0(least: float) -> None:
    """Against forty digits, between the least that the ranking asks for and 1."""
    x = least + (1.0 - least) * np.random.default_rng(2).random(500)
    found = log(np.append(x, [least, 1.0]))
    assert found[-1] == 0.0
    assert (found <= 0.0).all()
    with localcontext() as context:
        context.prec = 40
        for value, one in zip([*x.tolist(), least], found.tolist(), strict=False):
            assert abs(Decimal(one) - Decimal(value).ln()) <= 3 * Decimal(
                float(np.spacing(abs(one)))
            )
    digest = hashlib.sha256(log(np.arange(1, 40_001) / 40_000.0).tobytes()).hexdigest()
    assert digest == "5faf59eba462e4879fe647c33ddc9e64768dfe0c24f766429bf284023f27f9c3"
