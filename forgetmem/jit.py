"""One decorator for inner loops: compiled by numba at the first call, then cached.

`import forgetmem` does not load numba; the parts that compute do. No function is
compiled with ``parallel=True``: numba's thread layer may not be entered from two
threads at once, and callers of a memory use any thread. ``fastmath`` stays off, so
a result is defined by the source alone and is the same bits on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile `function` with numba; releases the interpreter lock while it runs.

    Parameters
    ----------
    function : callable
        A function in the subset of Python that numba compiles. Callers pass
        C-contiguous arrays of one fixed dtype, so that it is compiled once.

    Returns
    -------
    callable
        The compiled function, with the signature of `function`.
    """
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))
