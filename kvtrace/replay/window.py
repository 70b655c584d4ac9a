"""Which part of a trace to replay, on what arrivals, and on how many instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol

import numpy as np

from kvtrace.errors import ModelError
from kvtrace.replay.blocks import atom_arrays
from kvtrace.replay.load import decode_work_s, prefill_work_s
from kvtrace.replay.scenario import DecodeTime, PrefillTime
from kvtrace.schema.arrays import COARSE_CLOCK_NS, BoolArray, IntArray, RequestTrace
from kvtrace.units import NS_PER_S, S_PER_HOUR


class SizedDeployment(Protocol):
    """What sizing needs of a deployment (`kvtrace.cost.deployment.Deployment` has it)."""

    @property
    def prefill(self) -> PrefillTime:
        """Prefill seconds on one instance."""
        ...

    @property
    def decode(self) -> DecodeTime:
        """Decode step seconds on one instance."""
        ...

    @property
    def kv_bytes_per_token(self) -> float:
        """All ranks of an instance together."""
        ...

    @property
    def group_cache_bytes(self) -> float:
        """HBM for KV per instance; a group of data-parallel attention is one."""
        ...

    @property
    def pp(self) -> int:
        """Pipeline stages, which work on different requests at once."""
        ...


@dataclass(frozen=True, slots=True)
class WindowedTrace:
    """A window of a trace together with what came before it, for caches that start warm."""

    trace: RequestTrace
    """The history and the window; nothing after it."""
    first: int
    """Index of the window's first request: the `warmup_requests` of a replay."""

    @property
    def scored(self) -> slice:
        """The window's requests in `trace`, and in anything that has a row for each of them."""
        return slice(self.first, self.trace.requests)

    @property
    def window(self) -> RequestTrace:
        """The window alone, first arrival 0: rows as in the timeline of its replay."""
        return slice_requests(self.trace, self.first, self.trace.requests)


def peak_window(trace: RequestTrace, seconds: float = S_PER_HOUR) -> RequestTrace:
    """The busiest window of `seconds` by prompt tokens (the first of equals), with new dense ids.

    Every window that starts at an arrival and spans [start, start + seconds) is tried. The whole
    trace comes back if it is not longer, or has no clock. Caches start empty in the window: the
    hits of its first minutes are a lower bound; see `peak_window_with_history`.
    """
    first, last = _peak(trace, seconds, trace.prompt_tokens)
    return trace if last - first == trace.requests else slice_requests(trace, first, last)


def peak_window_with_history(
    trace: RequestTrace,
    seconds: float = S_PER_HOUR,
    *,
    history_s: float | None = None,
    work_tokens: IntArray | None = None,
) -> WindowedTrace:
    """The busiest window (as `peak_window`) with the requests before it.

    `history_s` bounds them: only what arrived so many seconds before the window counts. Without it
    the history is all of the trace before the window. `work_tokens` (requests,) is what a request
    has to compute; None: its whole prompt.
    """
    first, last = _peak(trace, seconds, trace.prompt_tokens if work_tokens is None else work_tokens)
    begin = 0
    if history_s is not None and first:
        since = int(trace.arrived_at_ns[first]) - round(history_s * NS_PER_S)
        begin = int(np.searchsorted(trace.arrived_at_ns, since, side="left"))
    if (begin, last) == (0, trace.requests):
        return WindowedTrace(trace, first)
    return WindowedTrace(slice_requests(trace, begin, last), first - begin)


def _peak(trace: RequestTrace, seconds: float, work_tokens: IntArray) -> tuple[int, int]:
    """(first, end) of the busiest window; the whole trace if it is not longer or has no clock."""
    arrived = trace.arrived_at_ns
    length = round(seconds * NS_PER_S)
    if not trace.has_clock or trace.requests == 0 or int(arrived[-1] - arrived[0]) < length:
        return 0, trace.requests
    first = np.searchsorted(arrived, arrived, side="left")
    last = np.searchsorted(arrived, arrived + length, side="left")
    tokens = np.minimum(work_tokens, np.iinfo(np.int64).max // trace.requests)
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(tokens)))
    best = int(np.argmax(total[last] - total[first]))
    return int(first[best]), int(last[best])


def within_limit(trace: RequestTrace, max_tokens: float) -> tuple[RequestTrace, int]:
    """(the requests that an engine accepts, how many it refuses).

    An engine refuses what exceeds its context limit, prompt and output together; nothing that such
    a row says (a broken length, most likely) reaches sizes and times. The caller tells the count.
    """
    fits = _fits(trace, max_tokens)
    refused = trace.requests - int(fits.sum())
    return (select_requests(trace, fits), refused) if refused else (trace, 0)


def _fits(trace: RequestTrace, max_tokens: float) -> BoolArray:
    tokens = trace.prompt_tokens.astype(np.float64) + trace.output_tokens
    return np.asarray(tokens <= max_tokens, dtype=np.bool_)


def slice_requests(trace: RequestTrace, lo: int, hi: int) -> RequestTrace:
    """Requests `lo` to `hi` (exclusive) as a trace of their own: first arrival 0, new dense ids."""
    keep = np.zeros(trace.requests, dtype=np.bool_)
    keep[lo:hi] = True
    return select_requests(trace, keep)


def select_requests(trace: RequestTrace, keep: BoolArray) -> RequestTrace:
    """The requests to keep as a trace of their own: first arrival 0, new dense ids."""
    counts = np.diff(trace.run_offset)
    runs = np.repeat(keep, counts)
    arrived = trace.arrived_at_ns[keep]
    part = replace(
        trace,
        request_key=trace.request_key[keep],
        arrived_at_ns=_from_zero(arrived) if len(arrived) else arrived,
        prompt_tokens=trace.prompt_tokens[keep],
        output_tokens=trace.output_tokens[keep],
        session=trace.session[keep],
        run_offset=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts[keep]))),
        run_start=trace.run_start[runs],
        run_blocks=trace.run_blocks[runs],
    )
    return densify(part)


def densify(trace: RequestTrace) -> RequestTrace:
    """Dense ids anew: rank of a block's first (request, position) over exactly these requests.

    Atoms are ranked by first appearance (their blocks appear together, in order); runs that have
    become consecutive inside a request are joined.
    """
    offset, atoms, edges = atom_arrays(trace)
    if not len(atoms):
        return replace(trace, distinct_blocks=0)
    seen, first = np.unique(atoms, return_index=True)
    weight = np.diff(edges)
    order = seen[np.argsort(first, kind="stable")]
    new_start = np.zeros(len(weight), dtype=np.int64)
    new_start[order] = np.cumsum(weight[order]) - weight[order]
    start = new_start[atoms]
    blocks = weight[atoms]
    is_head = np.ones(len(atoms), dtype=np.bool_)
    is_head[1:] = start[1:] != start[:-1] + blocks[:-1]
    is_head[offset[:-1][offset[:-1] < offset[1:]]] = True
    heads = np.flatnonzero(is_head)
    return replace(
        trace,
        run_offset=np.searchsorted(heads, offset).astype(np.int64),
        run_start=start[heads],
        run_blocks=np.add.reduceat(blocks, heads),
        distinct_blocks=int(weight[order].sum()),
    )


def spread_arrivals(
    trace: RequestTrace, seed: int, *, coarse_clock_ns: int = COARSE_CLOCK_NS
) -> RequestTrace:
    """Arrivals on a clock coarser than `coarse_clock_ns`, spread uniformly inside its step.

    Order is kept. The generator is numpy's PCG64 on `seed`: the same seed gives the same arrivals
    everywhere. Spread a trace before or after cutting it, but history and window together.
    """
    resolution = trace.clock_resolution_ns
    if not trace.has_clock or resolution <= coarse_clock_ns or trace.requests == 0:
        return trace
    inside = np.random.default_rng(seed).integers(0, resolution, size=trace.requests)
    spread = np.sort(trace.arrived_at_ns + inside)
    return replace(trace, arrived_at_ns=_from_zero(spread), clock_resolution_ns=1)


def _from_zero(arrived: IntArray) -> IntArray:
    return np.asarray(arrived - arrived[0], dtype=np.int64)


def size_fleet(
    trace: RequestTrace,
    deployment: SizedDeployment,
    target_utilisation: float,
    *,
    max_tokens: int | None = None,
) -> int:
    """Instances that serve the busiest hour, recomputing everything, at or below the target.

    Formula: ceil(work / (target · window)), work = Σ prefill_s(prompt, 0) / pp + Σ (output - 1) ·
    step_s(b, b · context) / b, with b the batch that HBM can hold at the mean context: the cheapest
    decode there is. Window = the busiest hour, or first to last arrival of a shorter trace.
    Requests of more than `max_tokens` (prompt and output), or of more than the HBM of an instance
    holds, do not count: no instance can serve them, however many there are.
    1 where the trace has no clock or no duration.
    Assumes: a size for a fair comparison, which the caller states; it is not what is deployed.

    Raises:
        ModelError: the target is not in (0, 1].
    """
    if not 0 < target_utilisation <= 1:
        raise ModelError(
            "KVT-R002",
            f"a target utilisation of {target_utilisation:g} is not in (0, 1]",
            hint="0.7 leaves room for bursts",
        )
    room_tokens = deployment.group_cache_bytes / deployment.kv_bytes_per_token
    limit = room_tokens if max_tokens is None else min(room_tokens, max_tokens)
    peak = peak_window(within_limit(trace, limit)[0])
    window_s = int(peak.arrived_at_ns[-1]) / NS_PER_S if peak.requests else 0.0
    if not peak.has_clock or window_s <= 0:
        return 1
    work_s = prefill_work_s(peak.prompt_tokens, deployment.prefill) / deployment.pp
    if peak.output_known:
        work_s += decode_work_s(
            peak.prompt_tokens,
            peak.output_tokens,
            decode=deployment.decode,
            room_tokens=room_tokens,
        )
    return max(1, ceil(work_s / (target_utilisation * window_s) - 1e-9))
