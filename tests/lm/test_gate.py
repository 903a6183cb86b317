"""The gates: batched equals exact, gradients equal finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from forgetmem.errors import InvalidInputError
from forgetmem.lm.batched_factors import solve_in_torch
from forgetmem.lm.gate import batched_gate, decision_values, exact_gate, warm_up
from forgetmem.lm.solvers import (
    Solver,
    solve_by_pivoting,
    solve_maintained,
)
from forgetmem.svm import OneClassSVM
from forgetmem.svm.gradient import sensitivities

SOLVERS = pytest.mark.parametrize(
    "solver", [solve_by_pivoting, solve_in_torch, solve_maintained]
)
BATCHED = pytest.mark.parametrize("solver", [solve_by_pivoting, solve_in_torch])

REGIMES = {
    "raw": (0.7, 0.25, 0.25),
    "saturated": (3.0, 1.0, 0.25),
    "wide": (0.3, 0.25, 0.25),
    "boxed": (0.2, 0.25, 0.05),
    "tight box": (0.5, 0.5, 1.0 / 24.0),
    "hard margin": (0.4, 0.5, 1.0),
}


def _keys(scale: float, *, P: int = 6, n: int = 96, D: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    centres = torch.randn(P, 5, D, generator=generator, dtype=torch.float64)
    which = torch.randint(0, 5, (P, n), generator=generator)
    noise = torch.randn(P, n, D, generator=generator, dtype=torch.float64)
    near = torch.gather(centres, 1, which[..., None].expand(-1, -1, D))
    return scale * (near + noise)


@BATCHED
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batched_gate_is_the_exact_gate(
    solver: Solver, regime: str, dtype: torch.dtype
) -> None:
    """Partitions agree on all problems, coefficients within 1e-10."""
    scale, gamma, C = REGIMES[regime]
    keys = _keys(scale).to(dtype)
    gammas = torch.full((len(keys),), gamma)
    ends = (24, 48, 96)
    batched = batched_gate(keys, gammas, ends, C=C, solver=solver)
    exact = exact_gate(keys, gammas, ends, C=C)
    for role in (lambda a: a > 0.0, lambda a: a >= C):
        assert torch.equal(role(batched.alpha), role(exact.alpha))
    assert (batched.alpha - exact.alpha).abs().max() <= 1e-10
    assert (batched.rho - exact.rho).abs().max() <= 1e-10
    assert torch.allclose(batched.alpha.sum(-1), torch.ones(6, 3).double())
    assert batched.report.problems == 18
    assert batched.report.ungated == 0


def test_box_is_met_and_counted() -> None:
    """Problems whose coefficients meet C are solved with the box, and counted."""
    keys, gammas = _keys(0.2), torch.full((6,), 0.25)
    gate = batched_gate(keys, gammas, (24, 96), C=0.05)
    assert gate.report.boxed > 0
    assert gate.alpha.max() <= 0.05
    free = batched_gate(_keys(3.0), gammas, (24, 96), C=0.25)
    assert free.report.boxed == free.report.exact == 0


def test_every_key_at_its_bound_is_solved_exactly() -> None:
    """With 1/C keys all are bounded, which only the exact solver handles."""
    keys = _keys(0.5, n=20).requires_grad_()
    gate = batched_gate(keys, torch.ones(6), (10, 20), C=0.1)
    assert gate.report.exact >= 6
    assert torch.equal(
        gate.alpha[:, 0, :10], torch.full((6, 10), 0.1, dtype=torch.float64)
    )
    gate.rho.sum().backward()
    assert keys.grad is not None and keys.grad.isfinite().all()


@BATCHED
def test_degenerate_gates_are_ungated_and_counted(solver: Solver) -> None:
    """Keys that are not finite give an ungated problem, never NaN in the others."""
    keys = _keys(0.7).requires_grad_()
    with torch.no_grad():
        keys[1, 3] = torch.nan
        keys[4, 60, 2] = torch.inf
    gate = batched_gate(keys, torch.full((6,), 0.25), (24, 96), solver=solver)
    assert gate.report.ungated == 3
    assert gate.ungated.tolist()[1] == [True, True]
    assert gate.ungated.tolist()[4] == [False, True]
    assert gate.alpha.isfinite().all() and gate.rho.isfinite().all()


@pytest.mark.parametrize("gamma", [float("nan"), 0.0])
def test_bad_bandwidth_ungates(gamma: float) -> None:
    """A bandwidth that is no positive number never raises inside a training step."""
    gate = batched_gate(_keys(0.7), torch.full((6,), gamma), (24, 96))
    assert gate.alpha.isfinite().all()


def test_exact_gate_refuses_keys_that_are_not_finite() -> None:
    """An audit does not pass over NaN."""
    keys = _keys(0.7)
    keys[0, 0, 0] = torch.nan
    with pytest.raises(InvalidInputError):
        exact_gate(keys, torch.ones(6), (24,))


def test_duplicate_keys_share_their_coefficient() -> None:
    """Exact duplicates are an ordinary problem, thanks to the ridge."""
    keys = _keys(0.7, n=32).repeat(1, 2, 1)
    gate = batched_gate(keys, torch.full((6,), 0.25), (64,))
    assert torch.allclose(gate.alpha[..., :32], gate.alpha[..., 32:], atol=1e-12)


def test_constant_keys_are_uniform() -> None:
    """Equal keys get equal coefficients."""
    gate = batched_gate(torch.ones(2, 16, 4), torch.ones(2), (8, 16))
    assert torch.allclose(gate.alpha[:, 1], torch.full((2, 16), 1 / 16).double())


@SOLVERS
@pytest.mark.parametrize("C", [0.25, 0.12])
def test_gradients_of_coefficients_and_offset(solver: Solver, C: float) -> None:
    """Coefficients and rho pass a double-precision gradcheck in keys and gamma."""
    keys = _keys(0.6, P=2, n=20, D=3).requires_grad_()
    gamma = torch.tensor([0.4, 0.8], dtype=torch.float64, requires_grad=True)

    def both(keys: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
        gate = batched_gate(keys, gamma, (10, 15, 20), C=C, solver=solver)
        return gate.alpha, gate.rho

    fast = solver is solve_in_torch
    assert torch.autograd.gradcheck(
        both, (keys, gamma), atol=1e-6, nondet_tol=1e-10, fast_mode=fast
    )


@SOLVERS
def test_gradients_of_decision_values(solver: Solver) -> None:
    """Decision values pass a double-precision gradcheck in queries, keys and gamma."""
    keys = _keys(0.6, P=2, n=20, D=3)
    queries = (keys[:, :4] + 0.3).requires_grad_()
    keys.requires_grad_()
    gamma = torch.tensor([0.4, 0.8], dtype=torch.float64, requires_grad=True)

    def values(queries: Tensor, keys: Tensor, gamma: Tensor) -> Tensor:
        gate = batched_gate(keys, gamma, (10, 20), solver=solver)
        return decision_values(queries, keys, gamma, gate)

    fast = solver is solve_in_torch
    leaves = (queries, keys, gamma)
    assert torch.autograd.gradcheck(
        values, leaves, atol=1e-6, nondet_tol=1e-10, fast_mode=fast
    )


def test_decision_values_are_those_of_the_solver() -> None:
    """They equal `OneClassSVM.decision_function`."""
    keys, queries = _keys(0.6), _keys(0.8)[:, :5]
    gate = batched_gate(keys, torch.full((6,), 0.5), (48, 96))
    values = decision_values(queries, keys, torch.full((6,), 0.5), gate)
    svm = OneClassSVM(0.5, 0.25, 1e-3).fit(keys[2].numpy())
    expected = svm.decision_function(queries[2].numpy())
    assert np.allclose(values[2, 1].numpy(), expected, atol=1e-12)


@SOLVERS
def test_reserve_keys_have_no_weight_and_no_gradient(solver: Solver) -> None:
    """A reserve key has coefficient 0 and its gradient is 0, both exactly."""
    keys = functional.normalize(_keys(1.0), dim=-1).requires_grad_()
    gate = batched_gate(keys, torch.full((6,), 1.0), (96,), solver=solver)
    reserve = gate.alpha[:, 0] == 0.0
    assert 0.1 < reserve.double().mean() < 0.9
    ((gate.alpha * torch.arange(96)).sum() + gate.rho.sum()).backward()
    assert keys.grad is not None
    assert (keys.grad[reserve] == 0.0).all()
    assert (keys.grad[~reserve] != 0.0).any()


def test_gradients_of_batched_and_exact_gate_agree() -> None:
    """Also where prefixes lose support keys and where C binds."""
    for scale, gamma, C in REGIMES.values():
        grads = []
        for gate_of in (batched_gate, exact_gate):
            keys = _keys(scale).requires_grad_()
            gate = gate_of(keys, torch.full((6,), gamma), (24, 48, 96), C=C)
            weight = torch.linspace(-1, 1, gate.alpha.numel()).view_as(gate.alpha)
            ((weight * gate.alpha).sum() + gate.rho.sum()).backward()
            assert keys.grad is not None
            grads.append(keys.grad)
        assert torch.allclose(*grads, rtol=1e-7, atol=1e-9)


def test_threads_do_not_change_the_result() -> None:
    """Problems are divided among torch's threads; each is solved by one."""
    keys, gammas = _keys(0.5), torch.full((6,), 0.25)
    found = []
    before = torch.get_num_threads()
    try:
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            found.append(batched_gate(keys, gammas, (24, 96)).alpha)
    finally:
        torch.set_num_threads(before)
    assert torch.equal((found[0] > 0), (found[1] > 0))
    assert torch.allclose(found[0], found[1], atol=1e-13)


def test_sensitivities_are_empty_without_a_margin() -> None:
    """In the warm-up nothing depends on the kernel matrix."""
    held = sensitivities(OneClassSVM(1.0, 0.1).fit(np.eye(4)))
    assert not held.adjoint(np.ones(4), 1.0).any()


def test_warm_up_is_longer_than_the_solver_needs() -> None:
    """Below ceil(1/C) + 2 keys a layer does not gate."""
    assert warm_up(0.25) == 6
    assert warm_up(0.3) == 6


@pytest.mark.parametrize(
    ("keys", "gamma", "ends", "C"),
    [
        (torch.ones(4, 3), torch.ones(4), (4,), 0.5),
        (torch.ones(2, 4, 3), torch.ones(3), (4,), 0.5),
        (torch.ones(2, 4, 3), torch.ones(2), (), 0.5),
        (torch.ones(2, 4, 3), torch.ones(2), (4, 4), 0.5),
        (torch.ones(2, 4, 3), torch.ones(2), (5,), 0.5),
        (torch.ones(2, 4, 3), torch.ones(2), (2, 4), 0.3),
        (torch.ones(2, 4, 3), torch.ones(2), (4,), 0.0),
    ],
)
def test_bad_arguments_are_named(
    keys: Tensor, gamma: Tensor, ends: tuple[int, ...], C: float
) -> None:
    """Shapes and settings that make no problem are refused."""
    with pytest.raises(InvalidInputError):
        batched_gate(keys, gamma, ends, C=C)
