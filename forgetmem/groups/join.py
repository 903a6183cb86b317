"""Exact links between many vectors, without looking at every coordinate of every pair.

For vectors split into a prefix and a rest, ``x.y <= x1.y1 + |x2||y2|``. The bound is
one inner product of the prefixes with the norm of the rest appended, so a float32
matrix product rules out most pairs. Of what is left, and only for pairs that are not
yet known to be connected, most are decided by their byte codes, the others in float64.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from forgetmem.arrays import Float32Array, IntArray
from forgetmem.blas import one_blas_thread
from forgetmem.distances import DOT_ERROR, dot_at_least
from forgetmem.index import VectorTable, float32_error
from forgetmem.index.codes import Codes, code_product, narrow_product
from forgetmem.jit import compiled

#: Unrelated vectors come as close as the threshold in their prefixes alone once in
#: some thousand times: this many standard deviations, times the root of 2.
_SPREAD = 4.67
#: Their bounds stay in a core's own cache; `_LEFT` is a multiple of `_RIGHT`.
_LEFT = 1024
_RIGHT = 256
#: So many blocks a core are multiplied before they are looked at.
_AHEAD = 4
#: So many bounds are looked at together.
_STRIDE = 64
#: Rows have norm 1 within rounding; allowed for with a margin.
_NORM = 1.01


@compiled
def find(parent: IntArray, row: int) -> int:
    """Return the root of `row`, shortening the way to it.

    Parameters
    ----------
    parent : ndarray of int64
        A forest: roots point at themselves.
    row : int

    Returns
    -------
    int
        The root.
    """
    while parent[row] != row:
        parent[row] = parent[parent[row]]
        row = parent[row]
    return row


@compiled
def _wide_dot(X: Float32Array, a: int, b: int) -> float:
    d = X.shape[1]
    whole = d - d % 8
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for t in range(0, whole, 8):
        s0 += np.float64(X[a, t]) * np.float64(X[b, t])
        s1 += np.float64(X[a, t + 1]) * np.float64(X[b, t + 1])
        s2 += np.float64(X[a, t + 2]) * np.float64(X[b, t + 2])
        s3 += np.float64(X[a, t + 3]) * np.float64(X[b, t + 3])
        s4 += np.float64(X[a, t + 4]) * np.float64(X[b, t + 4])
        s5 += np.float64(X[a, t + 5]) * np.float64(X[b, t + 5])
        s6 += np.float64(X[a, t + 6]) * np.float64(X[b, t + 6])
        s7 += np.float64(X[a, t + 7]) * np.float64(X[b, t + 7])
    tail = 0.0
    for t in range(whole, d):
        tail += np.float64(X[a, t]) * np.float64(X[b, t])
    return float((((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))) + tail)


@compiled
def _any_reaches(line: Float32Array, cut: np.float32) -> bool:
    """Tell whether any of `_STRIDE` bounds reaches a cut."""
    # A fixed number of steps, and places that cannot be negative: compiled to a few
    # instructions, a seventh of the time of the obvious loop.
    found = np.int32(0)
    for place in range(_STRIDE):
        found |= np.int32(line[np.uint64(place)] >= cut)
    return bool(found > 0)


@compiled
def _link_block(
    bounds: Float32Array,
    X: Float32Array,
    codes: Codes,
    step: float,
    errors: Float32Array,
    left: IntArray,
    right: IntArray,
    threshold: float,
    slack: float,
    parent: IntArray,
    merges: IntArray,
    unsure: IntArray,
) -> tuple[int, int]:
    merged = 0
    doubtful = 0
    cut = np.float32(threshold - slack)
    for i in range(len(left)):
        a = left[i]
        line = bounds[i]
        root_a = find(parent, a)  # stays a root: others are hung under it
        for start in range(0, len(right), _STRIDE):
            part = line[start : start + _STRIDE]
            if len(part) == _STRIDE and not _any_reaches(part, cut):
                continue
            for j in range(start, start + len(part)):
                if line[j] < cut:
                    continue
                b = right[j]
                if parent[b] == root_a:
                    continue
                root_b = find(parent, b)
                if root_a == root_b:
                    continue
                product = np.float64(code_product(codes, a, b))
                value = float(step * step * product)
                error = np.float64(errors[a]) + np.float64(errors[b])
                error = _NORM * error + np.float64(errors[a]) * np.float64(errors[b])
                if value + error < threshold - DOT_ERROR:
                    continue
                if value - error < threshold + DOT_ERROR:  # the codes cannot tell
                    value = narrow_product(X, a, X[b])
                    if value + slack < threshold:
                        continue
                    if value - slack < threshold + DOT_ERROR:
                        value = _wide_dot(X, a, b)
                if value >= threshold + DOT_ERROR:
                    parent[root_b] = root_a
                    merges[merged, 0] = root_a
                    merges[merged, 1] = root_b
                    merged += 1
                elif value >= threshold - DOT_ERROR:
                    unsure[doubtful % len(unsure), 0] = a
                    unsure[doubtful % len(unsure), 1] = b
                    doubtful += 1
    return merged, doubtful


def prefix_of(dimension: int, threshold: float) -> int:
    """Return how many coordinates tell most unrelated vectors apart.

    Half the squared distance of the prefixes of two random unit vectors has the mean
    ``m / d`` and the standard deviation ``sqrt(2 * m) / d``; linked ones have at most
    ``1 - threshold``.

    Parameters
    ----------
    dimension : int
    threshold : float
        Inner product that links two vectors.

    Returns
    -------
    int
        At most `dimension`; depends on nothing else.
    """
    near = max(1.0 - threshold, 0.0) * dimension
    root = 0.5 * (_SPREAD + math.sqrt(_SPREAD**2 + 4.0 * near))
    return min(dimension, math.ceil(root * root))


def _bounding(X: Float32Array, prefix: int) -> Float32Array:
    if X.shape[1] <= prefix + 1:
        return X
    rest = X[:, prefix:].astype(np.float64)
    norms = np.sqrt((rest * rest).sum(axis=1))
    return np.column_stack([X[:, :prefix], norms.astype(np.float32)])


def join(
    table: VectorTable,
    left: IntArray,
    right: IntArray,
    threshold: float,
    parent: IntArray,
) -> list[tuple[int, int]]:
    """Unite the trees of all linked pairs of one left and one right row.

    Parameters
    ----------
    table : VectorTable
        Vectors of norm at most about 1.
    left, right : ndarray of int64
        Rows of the table. Where both hold the same rows, each pair is looked at once if
        `left` is a leading part of `right`.
    threshold : float
        Two rows are linked if their inner product is at least this, decided exactly.
    parent : ndarray of int64
        A forest over the rows; changed in place.

    Returns
    -------
    list of (int, int)
        The roots that were united, in order: the second now hangs under the first.
    """
    merges: list[tuple[int, int]] = []
    if not len(left):
        return merges
    X = table.X
    same = np.array_equal(left, right[: len(left)])
    slack = float32_error(X.shape[1])
    prefix = prefix_of(X.shape[1], threshold)
    blocks = [
        (start, _bounding(X[right[start : start + _RIGHT]], prefix))
        for start in range(0, len(right), _RIGHT)
    ]
    found = _Found()
    for first in range(0, len(left), _LEFT):
        rows = left[first : first + _LEFT]
        bounding = _bounding(X[rows], prefix)
        done = first // _RIGHT if same else 0
        for start, bounds in _products(bounding, blocks[done:]):
            columns = right[start : start + bounds.shape[1]]
            merges += _link(
                bounds, table, rows, columns, threshold, slack, parent, found
            )
    return merges


def _products(
    left: Float32Array, blocks: list[tuple[int, Float32Array]]
) -> Iterator[tuple[int, Float32Array]]:
    """Multiply with block after block, on all cores where there are many."""

    def product(block: tuple[int, Float32Array]) -> tuple[int, Float32Array]:
        return block[0], left @ block[1].T

    with one_blas_thread():
        workers = os.cpu_count() or 1
        if len(blocks) < _AHEAD * workers:
            yield from map(product, blocks)
            return
        with ThreadPoolExecutor(workers) as pool:
            for at in range(0, len(blocks), _AHEAD * workers):
                yield from pool.map(product, blocks[at : at + _AHEAD * workers])


class _Found:
    """Room for what a block of pairs gives: what was united, and what is unsure."""

    def __init__(self) -> None:
        self.united: IntArray = np.empty((_LEFT + _RIGHT, 2), dtype=np.int64)
        self.unsure: IntArray = np.empty((4096, 2), dtype=np.int64)


def _link(
    bounds: Float32Array,
    table: VectorTable,
    left: IntArray,
    right: IntArray,
    threshold: float,
    slack: float,
    parent: IntArray,
    found: _Found,
) -> list[tuple[int, int]]:
    X, united, unsure = table.X, found.united, found.unsure
    merged, doubtful = _link_block(
        bounds,
        X,
        *table.coded,
        left,
        right,
        threshold,
        slack,
        parent,
        united,
        unsure,
    )
    merges = [(a, b) for a, b in united[:merged].tolist()] if merged else []
    if not doubtful:
        return merges
    if doubtful <= len(unsure):
        return merges + _settle(X, unsure[:doubtful], threshold, parent)
    for a in left:  # too many exact ties to keep: decide this block row by row
        linked = right[dot_at_least(X[right], X[a], threshold)]
        pairs = np.column_stack([np.full(len(linked), a), linked])
        merges += unite(pairs, parent)
    return merges


def _settle(
    X: Float32Array, pairs: IntArray, threshold: float, parent: IntArray
) -> list[tuple[int, int]]:
    linked = [
        pair for pair in pairs if dot_at_least(X[pair[:1]], X[pair[1]], threshold)[0]
    ]
    return unite(np.array(linked, dtype=np.int64).reshape(-1, 2), parent)


@compiled
def _unite_pairs(pairs: IntArray, parent: IntArray, merges: IntArray) -> int:
    merged = 0
    for number in range(len(pairs)):
        root_a = find(parent, pairs[number, 0])
        root_b = find(parent, pairs[number, 1])
        if root_a != root_b:
            parent[root_b] = root_a
            merges[merged, 0] = root_a
            merges[merged, 1] = root_b
            merged += 1
    return merged


def unite(pairs: IntArray, parent: IntArray) -> list[tuple[int, int]]:
    """Unite the trees of pairs of rows.

    Parameters
    ----------
    pairs : ndarray of shape (n, 2), int64
    parent : ndarray of int64
        A forest over the rows; changed in place.

    Returns
    -------
    list of (int, int)
        As `join` returns them.
    """
    merges = np.empty_like(pairs)
    merged = _unite_pairs(pairs, parent, merges)
    return [(a, b) for a, b in merges[:merged].tolist()]
