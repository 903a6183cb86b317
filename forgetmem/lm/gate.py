"""The gate: coefficients of a one-class SVM on the keys before each chunk, to train.

`batched_gate` solves all sequences, heads and chunks at once and is what training uses;
`exact_gate` gives the same problems to `forgetmem.svm.OneClassSVM`. Both solve the
problem with the layer's `ridge`, so a partition and its gradient belong together. A
problem that cannot be solved is ungated and counted.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from forgetmem.errors import InvalidInputError
from forgetmem.lm.adjoint import fold
from forgetmem.lm.batched_factors import solve_in_torch
from forgetmem.lm.pivoting import BOXED, EXACT, UNGATED
from forgetmem.lm.solvers import (
    Adjoint,
    Prefixes,
    Solver,
    in_slices,
    solve_by_pivoting,
    solve_maintained,
)


@dataclass(frozen=True)
class GateReport:
    """What became of the problems of one call.

    Parameters
    ----------
    problems : int
        Sequences times heads times chunks.
    boxed : int
        Problems in which a coefficient met `C`.
    exact : int
        Problems that the batched solver handed to the exact one.
    ungated : int
        Problems without a solution (keys that are not finite): all multipliers are 1.
    support : float
        Mean share of the keys that are open; 1 for ungated problems.
    open_keys : float
        Mean number of open keys.
    """

    problems: int
    boxed: int
    exact: int
    ungated: int
    support: float
    open_keys: float


@dataclass(frozen=True)
class Gate:
    """Coefficients of all prefixes.

    Parameters
    ----------
    alpha : Tensor of shape (P, n_prefixes, n), float64
        Zero for reserve keys and beyond the end of a prefix.
    rho : Tensor of shape (P, n_prefixes), float64
    ungated : Tensor of shape (P, n_prefixes), bool
    report : GateReport
    """

    alpha: Tensor
    rho: Tensor
    ungated: Tensor
    report: GateReport


def warm_up(C: float) -> int:
    """Return below how many keys a layer does not gate: ``ceil(1 / C) + 2``.

    Parameters
    ----------
    C : float

    Returns
    -------
    int
    """
    return math.ceil(1.0 / C) + 2


class _Coefficients(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        keys: Tensor,
        gamma: Tensor,
        problems: Prefixes,
        solver: Solver,
        codes: list[Any],
    ) -> tuple[Tensor, Tensor]:
        K = problems.kernel()
        solved = solver(problems, K)
        codes.append(solved.codes)
        ctx.save_for_backward(keys, gamma, solved.alpha, K)
        ctx.adjoint = solved.adjoint
        return solved.alpha, solved.rho

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *bars: Tensor) -> tuple[Tensor | None, ...]:
        keys, gamma, alpha, K = ctx.saved_tensors
        adjoint: Adjoint = ctx.adjoint
        v = adjoint(bars[0], bars[1])
        H = _fold(K, alpha, v, keys.dtype)
        pull = H.sum(-1, keepdim=True) * keys - torch.bmm(H, keys)
        keys_bar = pull * (-2.0 * gamma.to(keys.dtype))[:, None, None]
        gamma_bar = -(keys * pull).sum((-2, -1)).to(gamma.dtype)
        return keys_bar, gamma_bar, None, None, None


def _fold(K: Tensor, alpha: Tensor, v: Tensor, dtype: torch.dtype) -> Tensor:
    # -(v alpha' + alpha v') * K summed over prefixes: what K's derivative amounts to.
    if K.is_cuda:
        product = torch.einsum("pbi,pbj->pij", v, alpha)
        return (-(product + product.transpose(1, 2)) * K).to(dtype)
    H = torch.empty(K.shape, dtype=dtype)
    matrices, coefficients = K.numpy(), alpha.detach().numpy()
    adjoints, out = v.numpy(), H.numpy()

    def work(first: int, last: int) -> None:
        fold(matrices, coefficients, adjoints, first, last, out)

    in_slices(len(K), work)
    return H


def batched_gate(
    keys: Tensor,
    gamma: Tensor,
    ends: Sequence[int],
    *,
    C: float = 0.25,
    ridge: float = 1e-3,
    solver: Solver | None = None,
) -> Gate:
    """Coefficients of all prefixes of many sequences of keys.

    Parameters
    ----------
    keys : Tensor of shape (P, n, D), float32 or float64
    gamma : Tensor of shape (P,)
        Bandwidth of each problem's kernel ``exp(-gamma * squared_distance)``.
    ends : sequence of int
        Ascending lengths of the prefixes, the last at most n. Keys beyond it are not
        looked at.
    C : float
        Largest coefficient; each prefix must have at least ``1 / C`` keys.
    ridge : float
        Added to the diagonal of the kernel matrix.
    solver : Solver, optional
        By default `solve_by_pivoting` on the CPU and `solve_in_torch` elsewhere.

    Returns
    -------
    Gate
        Differentiable with respect to `keys` and `gamma`, once, within the partition:
        a reserve key has coefficient 0 and gets a gradient of exactly 0.

    Raises
    ------
    InvalidInputError
        If a setting or a shape is bad.

    Notes
    -----
    float64 inside, whatever the dtype of the keys. O(P n**2 D) for the kernel matrices
    and O(P support**3) for the solution; memory O(P n**2).
    """
    limits = _check(keys, gamma, ends, C, ridge)
    if solver is None:
        solver = solve_in_torch if keys.is_cuda else solve_by_pivoting
    used = keys[:, : limits[-1]]
    problems = Prefixes(used, gamma, limits, float(C), float(ridge))
    codes: list[Any] = []
    alpha, rho = cast(
        tuple[Tensor, Tensor],
        _Coefficients.apply(  # type: ignore[no-untyped-call]
            used, gamma, problems, solver, codes
        ),
    )
    ungated = torch.from_numpy(codes[0] == UNGATED).to(keys.device)
    return Gate(alpha, rho, ungated, _report(alpha, limits, codes[0]))


def exact_gate(
    keys: Tensor,
    gamma: Tensor,
    ends: Sequence[int],
    *,
    C: float = 0.25,
    ridge: float = 1e-3,
) -> Gate:
    """`batched_gate` by the maintained solver, for audits.

    Parameters
    ----------
    keys, gamma, ends, C, ridge
        As for `batched_gate`.

    Returns
    -------
    Gate
        Its backward pass multiplies by the inverse that the solver maintained; nothing
        is solved a second time.

    Raises
    ------
    InvalidInputError
        If a setting or a shape is bad, or a key is not finite.
    """
    return batched_gate(keys, gamma, ends, C=C, ridge=ridge, solver=solve_maintained)


def decision_values(
    queries: Tensor, keys: Tensor, gamma: Tensor, gate: Gate, *, ridge: float = 1e-3
) -> Tensor:
    """How far inside each prefix's region the queries are; from 0 on they are inside.

    Parameters
    ----------
    queries : Tensor of shape (P, m, D)
    keys : Tensor of shape (P, n, D)
        Those that `gate` was solved for.
    gamma : Tensor of shape (P,)
    gate : Gate
    ridge : float

    Returns
    -------
    Tensor of shape (P, n_prefixes, m), float64
        ``sum_i alpha_i kernel(q, k_i) - (rho - ridge * max(alpha))``.
    """
    n = gate.alpha.shape[-1]
    apart = (queries[:, :, None].double() - keys[:, None, :n].double()).square().sum(-1)
    kernel = torch.exp(-gamma.double()[:, None, None] * apart)
    offset = gate.rho - ridge * gate.alpha.amax(-1)
    return torch.einsum("pbn,pmn->pbm", gate.alpha, kernel) - offset[..., None]


def _check(
    keys: Tensor, gamma: Tensor, ends: Sequence[int], C: float, ridge: float
) -> tuple[int, ...]:
    if keys.ndim != 3 or not keys.is_floating_point():
        raise InvalidInputError(
            f"expected keys of shape (P, n, D) in floating point, got "
            f"{tuple(keys.shape)} {keys.dtype}"
        )
    if gamma.shape != keys.shape[:1]:
        raise InvalidInputError(
            f"expected gamma of shape ({len(keys)},), got {tuple(gamma.shape)}"
        )
    if not (C > 0.0 and ridge > 0.0):
        raise InvalidInputError(
            f"expected C and ridge to be positive, got {C!r} and {ridge!r}"
        )
    limits = tuple(int(end) for end in ends)
    ascending = all(a < b for a, b in itertools.pairwise(limits))
    if not limits or not ascending or limits[-1] > keys.shape[1]:
        raise InvalidInputError(
            f"expected ascending ends up to {keys.shape[1]}, got {limits}"
        )
    if limits[0] * C < 1.0:
        raise InvalidInputError(
            f"expected prefixes of at least {math.ceil(1 / C)} keys for C={C}, got "
            f"{limits[0]}"
        )
    return limits


def _report(alpha: Tensor, ends: tuple[int, ...], codes: Any) -> GateReport:
    counts = (alpha.detach() > 0.0).sum(-1).double().cpu().numpy()
    counts = np.where(codes == UNGATED, np.array(ends), counts)
    return GateReport(
        problems=codes.size,
        boxed=int((codes == BOXED).sum()),
        exact=int((codes == EXACT).sum()),
        ungated=int((codes == UNGATED).sum()),
        support=float((counts / np.array(ends)).mean()),
        open_keys=float(counts.mean()),
    )
