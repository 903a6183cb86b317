"""The fused multiply-add, for compiled code.

It is the one operation that is asked for by name: nothing else is contracted or
reassociated by a compiler, so the numbers are the same bits everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from numba import types
from numba.extending import intrinsic


def _fma(typing: Any, a: Any, b: Any, c: Any) -> Any:  # pragma: no cover
    # Runs while numba compiles, not when it loads what is cached.
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), generate


#: ``a * b + c``, rounded once.
fma = cast(Callable[[float, float, float], float], intrinsic(_fma))
