"""Requests and their blocks as arrays: what `reuse` and `replay` walk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kvtrace.units import NS_PER_MS

IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

COARSE_CLOCK_NS: Final = 100 * NS_PER_MS
"""Arrivals on a coarser clock than this come in bursts that nobody sent: a prefill takes about as
long as the clock's step, so a replay spreads them."""


@dataclass(frozen=True, slots=True)
class RequestTrace:
    """`ok` headline requests of one cache domain in arrival order (ties: request_key).

    Dense block ids are the rank of a block's first (request, position) over exactly these rows, so
    a request is a few runs of consecutive ids.
    """

    request_key: IntArray
    """(requests,)"""
    arrived_at_ns: IntArray
    """(requests,) non-decreasing, from the first arrival = 0."""
    prompt_tokens: IntArray
    """(requests,)"""
    output_tokens: IntArray
    """(requests,) 0 where unknown; see `output_known`."""
    session: IntArray
    """(requests,) dense session number, -1 where the source names none."""
    run_offset: IntArray
    """(requests + 1,) runs of request i are run_offset[i] .. run_offset[i + 1]."""
    run_start: IntArray
    """(runs,) first dense block id of the run."""
    run_blocks: IntArray
    """(runs,) blocks in the run."""
    block_size_tokens: int
    distinct_blocks: int
    has_clock: bool
    """False where rows only have an order; arrived_at_ns is then all zero."""
    output_known: bool
    clock_resolution_ns: int
    """Step of the clock: different arrivals are at least this far apart; 1 where it is fine.

    Where most requests share their instant this is the smallest step between two instants (a clock
    of 3 s that jitters by 1 ms has about 3 s), else the greatest common divisor of all arrivals.
    """

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.request_key)

    def blocks_per_request(self) -> IntArray:
        """(requests,) blocks of each request, a partial last block included."""
        totals = np.concatenate(([0], np.cumsum(self.run_blocks)))
        return np.asarray(
            totals[self.run_offset[1:]] - totals[self.run_offset[:-1]], dtype=np.int64
        )
