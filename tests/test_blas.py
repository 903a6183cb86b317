"""BLAS is left as it was found."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from forgetmem.blas import one_blas_thread


def blas_threads() -> set[int]:
    """Return the numbers of threads of the loaded BLAS libraries."""
    return {
        library["num_threads"]
        for library in threadpool_info()
        if library["user_api"] == "blas"
    }


def test_overlapping_limits_are_lifted_by_the_last() -> None:
    """Two that enter and leave crosswise, as two threads do, leave no limit behind."""
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert blas_threads() == {1}
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before
