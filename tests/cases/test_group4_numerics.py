"""One-class SVM numerics, seen from the memory: what others met, and what is right.

With ``link=-1, max_group=None`` a namespace is one SVM over all vectors. C is an
absolute number here; the ``nu`` of other packages is ``1 / (C * n)``.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quadprog
from numpy._core._multiarray_umath import __cpu_dispatch__
from remote import Remote
from toy import WordEmbedder

from forgetmem import ForgetmemError, ForgettableMemory
from forgetmem.svm import OneClassSVM

D = 12
RIDGE = 1e-8
ONE_GROUP: dict[str, Any] = {"link": -1.0, "max_group": None}


def opened(path: Path | None = None, **options: Any) -> ForgettableMemory:
    """Open a memory for vectors of twelve numbers."""
    return ForgettableMemory(path, **{"embedder": WordEmbedder(D), **options})


def filled(X: np.ndarray, order: list[int] | None = None, **options: Any) -> Any:
    """Make a memory with one record a row, in some order, by several calls."""
    memory = opened(**options)
    rows = list(range(len(X))) if order is None else order
    for part in (rows[::2], rows[1::2]):
        if part:
            ids = [f"r{row:03d}" for row in part]
            memory.add(ids, ids=ids, embeddings=X[part])
    return memory


def answers(memory: ForgettableMemory, probes: np.ndarray) -> list[Any]:
    """Ask everything whose numbers come from the solver."""
    found: list[Any] = [memory.digest(), memory.get(memory.ids())]
    for probe in probes:
        readout = memory.read(probe)
        found += [readout, memory.search(probe, 6), memory.search(probe, len(memory))]
    return found


def exact_weights(vectors: np.ndarray, gamma: float, C: float) -> np.ndarray:
    """Solve the problem with an independent QP package; warm-up as it is defined."""
    n = len(vectors)
    if n * C < 1.0:
        return np.ones(n)
    X = vectors.astype(np.float64)
    K = np.exp(-gamma * ((X[:, np.newaxis] - X[np.newaxis]) ** 2).sum(axis=2))
    Q = K + RIDGE * np.eye(n)
    A = np.column_stack([np.ones(n), np.eye(n), -np.eye(n)])
    b = np.concatenate([[1.0], np.zeros(n), -np.full(n, C)])
    alpha = quadprog.solve_qp(Q, np.zeros(n), A, b, meq=1)[0]
    g = Q @ alpha
    inner = (alpha > 1e-7) & (alpha < C - 1e-7)
    rho = np.median(g[inner]) if inner.any() else g[alpha >= C - 1e-7].max()
    return np.asarray(alpha / rho)


def check_against_qp(memory: ForgettableMemory, gamma: float, C: float) -> None:
    """Compare all weights, and the sum that every query sees, with a QP's."""
    records = memory.get(memory.ids())
    if not records:
        return
    X = np.unique([record.embedding for record in records], axis=0)
    exact = exact_weights(X, gamma, C)
    by_vector = {x.tobytes(): w for x, w in zip(X, exact, strict=True)}
    for record in records:
        assert 0.0 <= record.weight <= 1.0
        expected = by_vector[record.embedding.tobytes()]
        assert record.weight == pytest.approx(expected, abs=1e-6)
    ours = {record.embedding.tobytes(): record.weight for record in records}
    alpha = np.array([ours[x.tobytes()] for x in X])
    alpha, exact = alpha / alpha.sum(), exact / exact.sum()
    assert alpha.max() <= max(C, 1.0 / len(X)) + 1e-12
    probes = np.random.default_rng(9).standard_normal((20, D))
    probes /= np.linalg.norm(probes, axis=1)[:, np.newaxis]
    for probe in [*probes, *X.astype(np.float64)]:
        kernel = np.exp(-gamma * ((X.astype(np.float64) - probe) ** 2).sum(axis=1))
        assert kernel @ alpha == pytest.approx(kernel @ exact, abs=1e-9)


@pytest.mark.parametrize("C", [1.0, 0.5, 1 / 3, 0.34, 0.1, 1e-6, 5.0])
def test_one_two_and_three_points_agree_with_a_qp(C: float) -> None:
    """After each add and each forget; a tiny nu too (scikit-learn 4195, 17135)."""
    X = np.random.default_rng(0).standard_normal((5, D))
    X[3] = X[0] + 0.1 * X[1]
    with opened(C=C, gamma=1.0, **ONE_GROUP) as memory:
        for row in range(5):
            memory.add([str(row)], ids=[str(row)], embeddings=X[row : row + 1])
            check_against_qp(memory, 1.0, C)
        for row in (1, 0, 4, 3, 2):
            memory.forget(str(row))
            check_against_qp(memory, 1.0, C)
            assert memory.audit().ok
        assert len(memory) == 0


@pytest.mark.parametrize("C", [1.0, 0.2, 0.05])
@pytest.mark.parametrize("gamma", [0.1, 1.0, 8.0])
def test_thirty_points_agree_with_a_qp(gamma: float, C: float) -> None:
    """Before and after a block is forgotten."""
    X = np.random.default_rng(1).standard_normal((30, D))
    with filled(X, C=C, gamma=gamma, **ONE_GROUP) as memory:
        check_against_qp(memory, gamma, C)
        memory.forget(memory.ids()[::3])
        check_against_qp(memory, gamma, C)


def test_constant_data_is_inside(tmp_path: Path) -> None:
    """Ten copies of one text, then one: no anomaly (scikit-learn 17382)."""
    for options in ({}, ONE_GROUP, {"C": 0.1}):
        with opened(**options) as memory:
            memory.add(["one text"] * 10, ids=[f"c{n}" for n in range(10)])
            for left in (10, 1):
                (hit,) = memory.search("one text", 10)
                assert hit.score == pytest.approx(1.0, abs=1e-6)
                assert hit.n_same == left - 1
                assert 0.9 < hit.weight <= 1.0
                readout = memory.read("one text")
                assert readout.novelty <= 1e-6
                assert np.isfinite(readout.value).all()
                assert memory.read("quite another matter").novelty > 0.5
                assert memory.audit().ok
                memory.forget([f"c{n}" for n in range(1, 10)], missing="ignore")


def test_nothing_depends_on_the_order_of_samples() -> None:
    """Six orders, with and without ten that are forgotten (cjlin1/libsvm 98)."""
    rng = np.random.default_rng(2)
    X = np.concatenate([c + 0.15 * rng.standard_normal((10, D)) for c in np.eye(D)[:5]])
    probes = rng.standard_normal((12, D))
    for options in ({}, ONE_GROUP, {"C": 0.15, "link": 0.8}):
        seen = []
        for seed in range(6):
            order = random.Random(seed).sample(range(40), 40)
            extra = random.Random(seed).sample(range(40, 50), 10 * (seed % 2))
            mixed = random.Random(-seed).sample(order + extra, len(order + extra))
            with filled(X, mixed, **options) as memory:
                if extra:
                    memory.forget([f"r{row:03d}" for row in extra])
                seen.append(answers(memory, probes))
        assert all(one == seen[0] for one in seen)


REPORT = """
rng = np.random.default_rng(2)
X = np.concatenate([c + 0.2 * rng.standard_normal((60, 64)) for c in np.eye(64)[:5]])
probes = rng.standard_normal((20, 64))
report = []
for options in (dict(), dict(link=-1.0, max_group=None), dict(C=0.02, link=0.5)):
    m = ForgettableMemory(embedder=WordEmbedder(64), gamma=2.0, **options)
    ids = [f"r{n:03d}" for n in range(300)]
    m.add(ids[:150], ids=ids[:150], embeddings=X[:150])
    m.add(ids[150:], ids=ids[150:], embeddings=X[150:])
    m.forget(ids[::7])
    roles = [record.role for record in m.get(m.ids())]
    weights = [record.weight.hex() for record in m.get(m.ids())]
    reads = [m.read(q) for q in probes]
    masses = [x.hex() for r in reads for x in (*r.masses, *r.value, r.novelty)]
    hits = [(h.id, h.score.hex(), h.mass.hex(), h.similar)
            for q in probes for h in m.search(q, 12)]
    report.append([m.digest(), roles, weights, masses, hits])
"""


OLDER = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__),
}


def test_bits_do_not_depend_on_the_number_of_threads() -> None:
    """One and two threads of BLAS and OpenMP (cjlin1/libsvm 220)."""
    one = Remote(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    two = Remote(OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2", MKL_NUM_THREADS="2")
    for remote in (one, two):
        remote.tell(REPORT)
    for remote in (one, two):
        remote.answer()
    assert one.ask("report") == two.ask("report")
    one.close()
    two.close()


@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({}, id="libraries"),
        pytest.param({"NUMBA_CPU_NAME": "generic"}, id="all", marks=pytest.mark.slow),
    ],
)
def test_other_processor_has_the_same_partition(extra: dict[str, str]) -> None:
    """An older core type: digest, roles and order the same, weights to 1e-12."""
    here, older = Remote(), Remote(**OLDER, **extra)
    for remote in (here, older):
        remote.tell(REPORT)
    for remote in (here, older):
        remote.answer()
    for ours, theirs in zip(here.ask("report"), older.ask("report"), strict=True):
        assert ours[:2] == theirs[:2]
        assert [hit[0] for hit in ours[4]] == [hit[0] for hit in theirs[4]]
        for mine, other in zip(ours[2] + ours[3], theirs[2] + theirs[3], strict=True):
            assert float.fromhex(mine) == pytest.approx(float.fromhex(other), abs=1e-12)
    here.close()
    older.close()


def near_orthogonal(n: int) -> np.ndarray:
    """Make unit vectors that have little to do with one another."""
    X = (
        np.eye(D)[np.arange(n) % D]
        * np.where(np.arange(n) < D, 1.0, -1.0)[:, np.newaxis]
    )
    return X + 1e-3 * np.random.default_rng(5).standard_normal((n, D))


def step(
    memory: ForgettableMemory, X: np.ndarray, row: int, options: dict[str, Any]
) -> None:
    """Add a row, or forget it if it is there; then compare with a fresh memory."""
    id = f"r{row:03d}"
    if id in memory:
        memory.forget(id)
    else:
        memory.add([id], ids=[id], embeddings=X[row : row + 1])
    rows = [int(id[1:]) for id in memory.ids()]
    with filled(X, rows[::-1], **options) as fresh:
        assert memory.digest() == fresh.digest()
        assert memory.get(memory.ids()) == fresh.get(fresh.ids())


@pytest.mark.parametrize("whole", [2, 4, 8, 16])
def test_empty_margin_set_is_a_state_like_any_other(whole: int) -> None:
    """All at the bound when n is 1/C; in five seconds (diehl/Incremental-SVM 1)."""
    X, started = near_orthogonal(whole + 3), time.perf_counter()
    options = {"C": 1.0 / whole, "gamma": 0.5, **ONE_GROUP}
    with opened(**options) as memory:
        for row in [*range(whole + 3), *range(whole + 2, 0, -1)]:
            step(memory, X, row, options)
            if len(memory) == whole:
                roles = {record.role for record in memory.get(memory.ids())}
                assert roles == {"bounded"}
    assert time.perf_counter() - started < 60.0


@pytest.mark.parametrize("options", [{}, ONE_GROUP, {"C": 0.1, **ONE_GROUP}])
@pytest.mark.parametrize("backwards", [False, True])
def test_copies_and_near_copies_go_one_by_one(
    options: dict[str, Any], backwards: bool
) -> None:
    """Each time as if never there (misvm 15, smile 174, primal_svm 2)."""
    rng = np.random.default_rng(6)
    centre = rng.standard_normal(D)
    X = np.concatenate(
        [
            np.repeat(centre[np.newaxis], 5, axis=0),
            centre + 1e-9 * rng.standard_normal((5, D)),
            centre + 1e-6 * rng.standard_normal((5, D)),
            rng.standard_normal((5, D)),
        ]
    )
    probes = np.concatenate([X[::4], rng.standard_normal((4, D))])
    with filled(X, **options) as memory:
        order = list(range(15))
        for row in order[::-1] if backwards else order:
            memory.forget(f"r{row:03d}")
            left = [int(id[1:]) for id in memory.ids()]
            with filled(X, left, **options) as fresh:
                assert answers(memory, probes) == answers(fresh, probes)
            assert memory.audit().ok


@pytest.mark.parametrize("scale", [1e-8, 2.0**-100, 1.0, 1e4, 2.0**100])
@pytest.mark.parametrize("gamma", [1e-12, 1e-3, 1e6, 1e300])
def test_any_scale_and_width_returns(scale: float, gamma: float) -> None:
    """Or a named error and an unchanged state, never a hang (scikit-learn 6617)."""
    rng = np.random.default_rng(7)
    X = np.concatenate([rng.standard_normal((6, D)), np.ones((4, D))])
    X[7:] += 1e-5 * rng.standard_normal((3, D))
    started = time.perf_counter()
    with filled(scale * X, gamma=gamma, **ONE_GROUP) as memory:
        assert memory.audit().ok
        memory.forget(["r001", "r008"])
        assert memory.audit().ok
        readout = memory.read(scale * X[0])
        assert np.isfinite(readout.masses).all()
        assert math.fsum(memory.read(X[0], 20).masses) == pytest.approx(1.0)
        if math.frexp(scale)[0] == 0.5:  # powers of two change no bit of a direction
            with filled(X, gamma=gamma, **ONE_GROUP) as plain:
                plain.forget(["r001", "r008"])
                assert plain.digest() == memory.digest()
    assert time.perf_counter() - started < 20.0


@pytest.mark.parametrize("ridge", [0.0, 1e-17, 1e-12, 1.0, 1e6])
@pytest.mark.parametrize("spread", [1.0, 1e-3, 1e-7])
def test_any_ridge_returns_or_leaves_everything_as_it_was(
    ridge: float, spread: float
) -> None:
    """Without a ridge look-alikes may have no unique optimum: then a named error."""
    rng = np.random.default_rng(8)
    X = 1.0 + spread * rng.standard_normal((14, D))
    with opened(ridge=ridge) as memory:
        memory.add(["first"], ids=["first"], embeddings=[-X[0]])
        before = memory.digest()
        ids = [f"r{n:02d}" for n in range(len(X))]
        try:
            memory.add(ids, ids=ids, embeddings=X)
        except ForgetmemError:
            assert ridge < 1e-13 and spread < 1.0
            assert memory.digest() == before
            assert memory.ids() == ["first"]
        else:
            proof = memory.forget(ids[::2])
            assert memory.verify(proof).ok
        assert memory.audit().ok


REGIMES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "random": lambda rng: rng.standard_normal((18, D)),
    "clusters": lambda rng: (
        np.repeat(rng.standard_normal((3, D)), 6, axis=0)
        + 0.1 * rng.standard_normal((18, D))
    ),
    "near copies": lambda rng: np.ones((18, D)) + 1e-7 * rng.standard_normal((18, D)),
    "copies": lambda rng: np.repeat(rng.standard_normal((6, D)), 3, axis=0),
    "line": lambda rng: np.outer(np.linspace(-1, 1, 18), np.ones(D)) + np.eye(D)[0],
    "symmetric": lambda rng: np.concatenate([np.eye(D), -np.eye(D)])[:18],
    "square": lambda rng: np.array(
        [[x, y, *[0.1] * (D - 2)] for x, y in itertools.product([-1, 0.5, 1], repeat=2)]
    ),
    "chain": lambda rng: np.column_stack(
        [np.cos(np.arange(18) / 4), np.sin(np.arange(18) / 4), *np.zeros((D - 2, 18))]
    ),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "one group": ONE_GROUP,
    "link -1, pairs": {"link": -1.0, "max_group": 2},
    "link 1": {"link": 1.0},
    "no limit": {"link": 0.5, "max_group": None},
    "alike below link": {"link": 0.95, "alike": 0.3},
    "all alike": {"alike": -1.0, "diminish": 0.5},
    "nothing twice": {"alike": 0.5, "diminish": 0.0},
    "no diminishing": {"diminish": 1.0},
    "exactly alike": {"alike": 1.0},
    "soft": {"C": 0.3, "link": 0.3},
    "soft, whole": {"C": 1 / 6, **ONE_GROUP},
    "very soft": {"C": 1e-3, "link": 0.0},
    "large C": {"C": 7.0, "link": 0.3},
    "no ridge needed": {"ridge": 1e-3, "gamma": 1e-3, "link": 0.2, "max_group": 3},
}


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_setting_keeps_the_promise(name: str, regime: str) -> None:
    """Whatever the settings and the data: as if the forgotten had never been there."""
    rng = np.random.default_rng(11)
    X, options = REGIMES[regime](rng), OPTIONS[name]
    probes = np.concatenate([rng.standard_normal((3, D)), X[:2]])
    gone = [f"r{row:03d}" for row in range(0, len(X), 4)]
    kept = [row for row in range(len(X)) if row % 4]
    with filled(X, **options) as memory, filled(X, kept[::-1], **options) as fresh:
        proof = memory.forget(gone, audit="rebuild")
        assert proof.digest_rebuilt == proof.digest_after == fresh.digest()
        assert answers(memory, probes) == answers(fresh, probes)
        assert memory.verify(proof).ok
        for hits in (memory.search(probe, len(kept)) for probe in probes):
            assert len({hit.id for hit in hits}) == len(hits)
            assert all(0.0 <= hit.weight <= 1.0 for hit in hits)
            assert all(-1.0 <= hit.score <= 1.0 for hit in hits)
        if options.get("diminish") == 1.0:
            check_plain_order(memory, probes)


def check_plain_order(memory: ForgettableMemory, probes: np.ndarray) -> None:
    """Without diminishing, the support comes in the order of the distance."""
    for probe in probes:
        hits = [hit for hit in memory.search(probe, 50) if hit.role != "reserve"]
        scores = np.array([hit.score for hit in hits])
        assert (np.diff(scores) <= 1e-6).all()  # norms are 1 to float32's rounding


def steps(n: int) -> Iterator[int]:
    """Yield the numbers of an add-and-forget walk that ends at zero."""
    yield from range(n)
    yield from reversed(range(n))


@pytest.mark.parametrize("limit", [2, 3, 5])
def test_groups_are_divided_and_joined_by_count_alone(limit: int) -> None:
    """Around `max_group`: one more, one less, and back, as if made so at once."""
    rng = np.random.default_rng(12)
    X = np.ones((2 * limit + 2, D)) + 0.03 * rng.standard_normal((2 * limit + 2, D))
    options = {"max_group": limit}
    with opened(**options) as memory:
        for row in steps(len(X)):
            step(memory, X, row, options)
            assert memory.stats()["largest_group"] <= limit


def test_long_arcs_of_look_alikes_are_solved_exactly() -> None:
    """A chain that wanders: optimal, and the same in any order of its rows."""
    residuals, same = [], []
    for seed in (7, 8, 12):
        angles = np.sort(np.random.default_rng(seed).random(300)) * 5.0
        X = np.column_stack([np.cos(angles), np.sin(angles)])
        one, two = OneClassSVM(gamma=8.0).fit(X), OneClassSVM(gamma=8.0).fit(X[::-1])
        same.append(np.array_equal(one.dual_coef_, two.dual_coef_[::-1]))
        residuals += [one.certificate().kkt_residual, two.certificate().kkt_residual]
    assert all(same)
    assert max(residuals) <= 1e-12
