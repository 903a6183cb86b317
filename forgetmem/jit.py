"""One decorator for inner loops: compiled by numba at the first call, then cached.

`import forgetmem` does not load numba; the parts that compute do. No function is
compiled with ``parallel=True``: numba's thread layer may not be entered from two
threads at once, and callers of a memory use any thread. ``fastmath`` stays off, but for
sums that only bound others, so a result is defined by the source alone and is the same
bits on every machine.

Machine code holds that of the functions it calls, from other files too, but numba looks
only at a function's own file to see whether its cached code is stale. Here the key of a
cached function has the digest of all compiled sources in it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache

F = TypeVar("F", bound=Callable[..., object])


@functools.cache
def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        source = path.read_bytes()
        if b"@compiled" in source:
            digest.update(source)
    return digest.hexdigest()


class _Cache(FunctionCache):
    def _index_key(self, sig: Any, codegen: Any) -> Any:
        own: Any = super()
        return (*own._index_key(sig, codegen), _digest())


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
    return _cached(function, fastmath=False)


def compiled_for_bounds(function: F) -> F:
    """Compile `function` so that its sums may be taken in any order, which is faster.

    Only for numbers that are compared with a margin for rounding: no result may depend
    on their last digits.

    Parameters
    ----------
    function : callable
        As for `compiled`.

    Returns
    -------
    callable
        The compiled function, with the signature of `function`.
    """
    return _cached(function, fastmath={"reassoc", "contract"})


def _cached(function: F, fastmath: bool | set[str]) -> F:
    cache: Any = _Cache
    dispatcher: Any = numba.njit(nogil=True, error_model="numpy", fastmath=fastmath)(
        function
    )
    dispatcher._cache = cache(function)
    return cast(F, dispatcher)
