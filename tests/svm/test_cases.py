"""Faults that users of one-class SVMs reported elsewhere, and what is right."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from svm.regimes import exact
from svm.test_exactness import same

from forgetmem.svm import OneClassSVM

_DIGEST = """
import hashlib, numpy as np
from forgetmem.svm import OneClassSVM
digest = hashlib.sha256()
X = np.random.default_rng(0).normal(size=(420, 6)) * [1, 1, 1, 1, 0.1, 0.01]
for gamma, C in ((0.05, 1.0), (0.9, 1.0), (0.9, 1 / 200)):
    svm = OneClassSVM(gamma, C).fit(X).unlearn([3, 77]).learn(X[3:4])
    digest.update(svm.dual_coef_.tobytes() + np.float64(svm.rho_).tobytes())
print(digest.hexdigest())
"""


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("nu", [1e-6, 0.02, 1 / 3, 0.5, 1.0])
def test_few_points_and_tiny_nu_are_exact(n: int, nu: float) -> None:
    """With one to three points, or almost no outliers allowed, nothing goes wrong."""
    X = np.array([[0.0, 1.0], [1.0, 0.2], [0.3, -0.8]])[:n]
    C = 1 / (nu * n)
    svm = OneClassSVM(gamma=0.7, C=C)
    for row in range(n):
        svm.learn(X[row : row + 1])
    truth = exact(X, 0.7, C, 1e-8)
    assert svm.dual_coef_.tolist() == [float(a) for a in truth.alpha]
    assert (svm.decision_function(X)[svm.margin_] >= -1e-15).all()
    assert svm.unlearn(0).n_samples == n - 1


def test_permutations_and_passing_rows_leave_no_trace() -> None:
    """Forty rows in six orders, with and without ten that are forgotten again."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 6))
    plain = OneClassSVM(gamma=0.2, C=0.1).fit(X[:40])
    for _ in range(6):
        order = rng.permutation(40)
        svm = OneClassSVM(gamma=0.2, C=0.1).fit(np.vstack([X[order], X[40:]]))
        svm.unlearn(range(40, 50))
        assert same(plain, svm, order)
        scores = plain.decision_function(X)
        assert np.array_equal(scores, svm.decision_function(X))


def test_threads_and_kernels_of_blas_leave_no_trace() -> None:
    """One thread or two, one OpenBLAS kernel or another: the same bits."""
    digests = set()
    for threads, core in (("1", "Haswell"), ("2", "SkylakeX"), ("2", "Sandybridge")):
        settings = {
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "OPENBLAS_CORETYPE": core,
        }
        child = subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env=os.environ | settings,
            capture_output=True,
            check=True,
            text=True,
        )
        digests.add(child.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("n", [4, 10, 25])
def test_an_empty_margin_does_not_loop_for_ever(n: int) -> None:
    """Near-orthogonal rows with nu n a whole number: add and forget in turn."""
    X = np.eye(n + 3)
    for count in range(1, n + 1):
        svm = OneClassSVM(gamma=4.0, C=1 / count).fit(X[:n])
        for extra in range(n, n + 3):
            svm.learn(X[extra : extra + 1]).unlearn(0)
        fresh = OneClassSVM(gamma=4.0, C=1 / count).fit(X[3:])
        assert same(svm, fresh, slice(None))


@pytest.mark.parametrize("backwards", [False, True])
def test_copies_leave_one_at_a_time_in_either_order(backwards: bool) -> None:
    """Five identical rows, five 1e-9 apart and ten others."""
    rng = np.random.default_rng(2)
    one = rng.normal(size=(1, 5))
    near = one + 1e-9 * rng.normal(size=(5, 5))
    X = np.vstack([np.repeat(one, 5, axis=0), near, rng.normal(size=(10, 5))])
    for C in (1.0, 0.125):
        svm = OneClassSVM(gamma=0.4, C=C).fit(X)
        left = list(range(20))
        for _ in range(10):
            place = len(left) - 11 if backwards else 0
            svm.unlearn(place)
            del left[place]
            fresh = OneClassSVM(gamma=0.4, C=C).fit(X[left])
            assert same(svm, fresh, slice(None))


@pytest.mark.parametrize("scale", [1e-8, 1e4])
@pytest.mark.parametrize("gamma", [1e-12, 1e6])
def test_fits_of_any_scale_return(scale: float, gamma: float) -> None:
    """Rows scaled by 1e-8 and 1e4 with the widest and the narrowest kernels."""
    X = scale * np.random.default_rng(3).normal(size=(40, 4))
    for C in (1.0, 1 / 16):
        svm = OneClassSVM(gamma=gamma, C=C).fit(X)
        assert svm.dual_coef_.sum() == pytest.approx(1.0, abs=1e-14)
        assert svm.certificate().sharp_bound < 1e-11
        keep = np.delete(np.arange(40), [1, 30])
        fresh = OneClassSVM(gamma=gamma, C=C).fit(X[keep])
        assert same(svm.unlearn([1, 30]), fresh, slice(None))
