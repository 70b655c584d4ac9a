"""How the kernels run: as plain Python over lists, or compiled over arrays; the same integers."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from functools import cache
from typing import Final, Literal, TypeAlias, cast

import numpy as np

from kvtrace.schema.arrays import BoolArray, IntArray

COMPILE_FROM_REFS: Final = 6_000_000
"""Block references over all runs of one kernel from which a compiler pays: some ten seconds of
Python against a JIT of several."""

Mode = Literal["auto", "python", "numba"]
Ints: TypeAlias = MutableSequence[int]
Bools: TypeAlias = Sequence[bool]
Kernel: TypeAlias = Callable[..., None]
Argument: TypeAlias = "IntArray | BoolArray | int"


def run_kernel(
    kernel: Kernel, arguments: Sequence[Argument], *, is_compiled: bool
) -> list[IntArray]:
    """Call a kernel that fills some of its arrays; returns its arrays in order, filled.

    Lists are much faster than arrays where nothing is compiled.
    """
    given = [
        one if isinstance(one, int) else (one.copy() if is_compiled else one.tolist())
        for one in arguments
    ]
    (compiled(kernel) if is_compiled else kernel)(*given)
    return [np.asarray(one) for one in given if not isinstance(one, int)]


def is_worth_compiling(mode: Mode, refs: int) -> bool:
    """Whether a kernel that will walk so many references in all is compiled."""
    return mode == "numba" or (mode == "auto" and refs >= COMPILE_FROM_REFS)


@cache
def compiled(kernel: Kernel) -> Kernel:
    """The kernel as machine code, which is cached beside its module."""
    from numba import njit

    return cast("Kernel", njit(cache=True)(kernel))
