"""Derivatives of the coefficients of all prefixes, compiled, in float64."""

from __future__ import annotations

import numpy as np

from forgetmem.arrays import Float32Array, FloatArray, IntArray
from forgetmem.jit import compiled
from forgetmem.lm.factor import extend, substitute
from forgetmem.lm.pivoting import BOXED, FREE, MARGIN, RESERVE, Codes, leave


@compiled
def _regroup(
    K: FloatArray,
    ridge: float,
    wanted: IntArray,
    held: IntArray,
    factored: int,
    U: FloatArray,
) -> int:
    # Turn the factor of the keys `held` into one of `wanted`, in an order of its own.
    status = np.zeros(len(K), dtype=np.int8)
    status[wanted] = MARGIN
    count, factored = leave(status, held, factored, factored, U)
    status[held[:count]] = RESERVE
    for key in wanted:
        if status[key] == MARGIN:
            held[count] = key
            count += 1
    extend(K, ridge, held, factored, count, U)
    return count


@compiled
def adjoint_prefixes(
    K: FloatArray,
    ridge: float,
    first: int,
    last: int,
    orders: IntArray,
    sizes: IntArray,
    codes: Codes,
    kept: bool,
    factors: FloatArray,
    alphas: FloatArray,
    rhos: FloatArray,
    alpha_bars: FloatArray,
    rho_bars: FloatArray,
    out: FloatArray,
) -> None:
    """Solve the adjoint systems of `solve_prefixes`, from the last prefix to the first.

    Writes v with ``Q v + mu 1 = alpha_bar`` and ``sum(v) = -rho_bar`` on the margin.
    The factor of a prefix is made from that of the next one: the keys that came later
    leave it, those that left come back. `kept` says that `factors` are still those of
    the last prefixes. Without bounded keys ``Q^-1 1`` is ``alpha / rho``.
    """
    n = K.shape[1]
    for p in range(first, last):
        U = factors[p]
        held = np.empty(n, dtype=np.int64)
        factored = 0
        if kept and codes[p, -1] <= BOXED:
            factored = sizes[p, -1]
            held[:factored] = orders[p, -1, :factored]
        for b in range(sizes.shape[1] - 1, -1, -1):
            count = sizes[p, b]
            if count == 0:
                continue
            factored = _regroup(K[p], ridge, orders[p, b, :count], held, factored, U)
            ones = np.ones(count)
            x = np.empty(count)
            for q in range(count):
                x[q] = alpha_bars[p, b, held[q]]
            if codes[p, b] == FREE:
                for q in range(count):
                    ones[q] = alphas[p, b, held[q]] / rhos[p, b]
            else:
                substitute(U, count, ones)
            substitute(U, count, x)
            mu = (x.sum() + rho_bars[p, b]) / ones.sum()
            for q in range(count):
                out[p, b, held[q]] = x[q] - mu * ones[q]


@compiled
def fold(
    K: FloatArray,
    alphas: FloatArray,
    adjoints: FloatArray,
    first: int,
    last: int,
    out: Float32Array | FloatArray,
) -> None:
    """Write ``-(sum over prefixes of v alpha' + alpha v') * K``, entry by entry."""
    n = K.shape[1]
    line = np.empty(n)
    for p in range(first, last):
        for i in range(n):
            line[:] = 0.0
            some = False
            for b in range(alphas.shape[1]):
                a, v = alphas[p, b, i], adjoints[p, b, i]
                if a == 0.0 and v == 0.0:
                    continue
                some = True
                x, y = alphas[p, b], adjoints[p, b]
                for j in range(n):
                    line[j] -= v * x[j] + a * y[j]
            if some:
                for j in range(n):
                    out[p, i, j] = line[j] * K[p, i, j]
            else:
                out[p, i, :] = 0.0
