"""The coefficients of all prefixes on any device, by batched factors in torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from forgetmem.lm.pivoting import BOXED, FREE, UNSOLVED, Codes
from forgetmem.lm.solvers import Prefixes, Solved, rescue


def solve_in_torch(problems: Prefixes, K: Tensor) -> Solved:
    """Solve all problems and prefixes at once with batched Cholesky factors.

    Parameters
    ----------
    problems : Prefixes
    K : Tensor of shape (P, n, n), float64
        On any device.

    Returns
    -------
    Solved
    """
    search = _Search(problems, K)
    search.run()
    codes: Codes = np.full(search.done.shape, UNSOLVED, dtype=np.int8)
    codes[search.done.cpu().numpy()] = FREE
    codes[(search.done & search.boxed).cpu().numpy()] = BOXED
    alpha, rho = search.alpha.cpu().numpy(), search.rho.cpu().numpy()
    rescued = rescue(problems, codes, alpha, rho)
    batched = torch.from_numpy(codes <= BOXED).to(K.device)
    margin = search.margin & batched[..., None]

    def adjoint(alpha_bar: Tensor, rho_bar: Tensor) -> Tensor:
        zero = torch.zeros_like(alpha_bar)
        right = torch.stack(
            [torch.where(margin, alpha_bar, zero), margin.double()], dim=-1
        )
        x, ones = torch.cholesky_solve(right, search.factor).unbind(-1)
        mu = (x.sum(-1) + rho_bar) / ones.sum(-1)
        v = torch.where(margin, x - mu[..., None] * ones, zero)
        for (p, b), held in rescued.items():
            end = problems.ends[b]
            bar = alpha_bar[p, b, :end].cpu().numpy()
            part = held.adjoint(bar, float(rho_bar[p, b]))
            v[p, b, :end] = torch.from_numpy(part).to(v.device)
        return v

    device = K.device
    return Solved(
        torch.from_numpy(alpha).to(device),
        torch.from_numpy(rho).to(device),
        codes,
        adjoint,
    )


class _Search:
    # Block principal pivoting on all problems together; see `pivoting` for the steps.

    LIMIT = 60

    def __init__(self, problems: Prefixes, K: Tensor) -> None:
        P, n, _ = K.shape
        self.C, self.ridge = problems.C, problems.ridge
        self.inside = self.C * (1.0 - 1e-13)
        eye = torch.eye(n, dtype=K.dtype, device=K.device)
        self.Q = (K + problems.ridge * eye)[:, None]
        ends: Sequence[int] = problems.ends
        places = torch.arange(n, device=K.device)
        self.valid = places < torch.tensor(ends, device=K.device)[:, None]
        self.margin = self.valid.expand(P, -1, -1).clone()
        self.bounded = torch.zeros_like(self.margin)
        self.boxed = torch.zeros(P, len(ends), dtype=torch.bool, device=K.device)
        self.done = torch.zeros_like(self.boxed)
        self.fewest = torch.full(self.boxed.shape, n + 1, device=K.device)
        self.patience = torch.full_like(self.fewest, 3)
        self.alpha = torch.zeros(self.margin.shape, dtype=K.dtype, device=K.device)
        self.rho = torch.zeros(self.boxed.shape, dtype=K.dtype, device=K.device)
        self.factor = K.new_empty(0)
        self.eye = eye

    def run(self) -> None:
        for _ in range(self.LIMIT):
            g, sound = self._point()
            wrong = self._wrong(g)
            above = (self.margin & (self.alpha > self.C)).any(-1) & ~self.boxed
            right = ~wrong.any(-1) & sound
            self.done |= right & ~above
            if bool(self.done.all()):
                return
            begin = right & above
            self.boxed |= begin
            over = begin[..., None] & self.margin & (self.alpha > self.C)
            self._exchange(torch.where(begin[..., None], over, wrong), begin)

    def _point(self) -> tuple[Tensor, Tensor]:
        inner = self.margin[..., :, None] & self.margin[..., None, :]
        self.factor, info = torch.linalg.cholesky_ex(
            torch.where(inner, self.Q, self.eye)
        )
        at_bound = self.C * self.bounded.to(self.Q.dtype)
        pushed = (self.Q @ at_bound[..., None])[..., 0]
        free = self.margin.to(self.Q.dtype)
        rights = torch.stack([free, -pushed * free], dim=-1)
        ones, shift = torch.cholesky_solve(rights, self.factor).unbind(-1)
        rest = 1.0 - at_bound.sum(-1)
        rho = (rest - shift.sum(-1)) / ones.sum(-1)
        alpha = (shift + rho[..., None] * ones) * free + at_bound
        open_ = ~self.done
        self.alpha = torch.where(open_[..., None], alpha, self.alpha)
        self.rho = torch.where(open_, rho, self.rho)
        sound = (info == 0) & self.rho.isfinite()
        return (self.Q @ self.alpha[..., None])[..., 0], sound

    def _wrong(self, g: Tensor) -> Tensor:
        h = g - self.rho[..., None]
        slop = 1e-13 * (self.rho.abs() + self.ridge)[..., None]
        outside = ~(self.alpha > 0.0)
        outside |= self.boxed[..., None] & ~(self.alpha < self.inside)
        reserve = self.valid & ~self.margin & ~self.bounded
        wrong = (self.margin & outside) | (reserve & (h < -slop))
        return wrong | (self.bounded & (h > slop))

    def _exchange(self, wrong: Tensor, begin: Tensor) -> None:
        count = wrong.sum(-1)
        better = (count < self.fewest) | begin
        self.fewest = torch.where(better, count, self.fewest)
        single = ~better & (self.patience <= 0)
        self.patience = torch.where(better, 3, (self.patience - 1).clamp(min=0))
        n = wrong.shape[-1]
        places = torch.arange(n, device=wrong.device)
        last = torch.where(wrong, places, -1).amax(-1, keepdim=True)
        wrong = torch.where(single[..., None], places == last, wrong)
        wrong = wrong & ~self.done[..., None]
        upper = (
            self.margin & wrong & self.boxed[..., None] & (self.alpha >= self.inside)
        )
        entering = wrong & ~self.margin
        self.margin = (self.margin & ~wrong) | entering
        self.bounded = (self.bounded & ~wrong) | upper
