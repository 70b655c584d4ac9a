"""Which part of a trace to replay, on what arrivals, and on how many instances."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, fsum
from typing import Final, Protocol

import numpy as np

from kvtrace.errors import ModelError
from kvtrace.replay.blocks import atom_arrays
from kvtrace.replay.scenario import DecodeTime, PrefillTime
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.units import NS_PER_MS, NS_PER_S, S_PER_HOUR

COARSE_CLOCK_NS: Final = 100 * NS_PER_MS
"""Arrivals on a coarser clock than this come in bursts that nobody sent: a prefill takes about as
long as the clock's step, so they are spread."""


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
    def hbm_cache_bytes(self) -> float:
        """HBM for KV per instance."""
        ...


def peak_window(trace: RequestTrace, seconds: float = S_PER_HOUR) -> RequestTrace:
    """The busiest window of `seconds` by prompt tokens (the first of equals), with new dense ids.

    Every window that starts at an arrival and spans [start, start + seconds) is tried. The whole
    trace comes back if it is not longer, or has no clock. Caches start empty in the window: the
    hits of its first minutes are a lower bound.
    """
    arrived = trace.arrived_at_ns
    length = round(seconds * NS_PER_S)
    if not trace.has_clock or trace.requests == 0 or int(arrived[-1] - arrived[0]) < length:
        return trace
    first = np.searchsorted(arrived, arrived, side="left")
    last = np.searchsorted(arrived, arrived + length, side="left")
    total = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(trace.prompt_tokens)))
    best = int(np.argmax(total[last] - total[first]))
    return slice_requests(trace, int(first[best]), int(last[best]))


def slice_requests(trace: RequestTrace, lo: int, hi: int) -> RequestTrace:
    """Requests `lo` to `hi` (exclusive) as a trace of their own: first arrival 0, new dense ids."""
    runs = slice(int(trace.run_offset[lo]), int(trace.run_offset[hi]))
    arrived = trace.arrived_at_ns[lo:hi]
    part = replace(
        trace,
        request_key=trace.request_key[lo:hi],
        arrived_at_ns=arrived - arrived[0] if hi > lo else arrived,
        prompt_tokens=trace.prompt_tokens[lo:hi],
        output_tokens=trace.output_tokens[lo:hi],
        session=trace.session[lo:hi],
        run_offset=trace.run_offset[lo : hi + 1] - trace.run_offset[lo],
        run_start=trace.run_start[runs],
        run_blocks=trace.run_blocks[runs],
    )
    return _densify(part)


def _densify(trace: RequestTrace) -> RequestTrace:
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


def spread_arrivals(trace: RequestTrace, seed: int) -> RequestTrace:
    """Arrivals coarser than 100 ms, spread uniformly inside their resolution; order kept.

    The generator is numpy's PCG64 on `seed`: the same seed gives the same arrivals everywhere.
    """
    resolution = trace.clock_resolution_ns
    if not trace.has_clock or resolution <= COARSE_CLOCK_NS or trace.requests == 0:
        return trace
    inside = np.random.default_rng(seed).integers(0, resolution, size=trace.requests)
    spread = np.sort(trace.arrived_at_ns + inside)
    return replace(trace, arrived_at_ns=_from_zero(spread), clock_resolution_ns=1)


def _from_zero(arrived: IntArray) -> IntArray:
    return np.asarray(arrived - arrived[0], dtype=np.int64)


def size_fleet(trace: RequestTrace, deployment: SizedDeployment, target_utilisation: float) -> int:
    """Instances that serve the busiest hour, recomputing everything, at or below the target.

    Formula: ceil(work / (target · window)), work = Σ prefill_s(prompt, 0) + Σ (output - 1) ·
    step_s(b, b · context) / b, with b the batch that HBM can hold at the mean context: the cheapest
    decode there is. Window = the busiest hour, or first to last arrival of a shorter trace.
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
    peak = peak_window(trace)
    window_s = int(peak.arrived_at_ns[-1]) / NS_PER_S if peak.requests else 0.0
    if not peak.has_clock or window_s <= 0:
        return 1
    work_s = _prefill_work_s(peak, deployment.prefill) + _decode_work_s(peak, deployment)
    return max(1, ceil(work_s / (target_utilisation * window_s) - 1e-9))


def _prefill_work_s(trace: RequestTrace, prefill: PrefillTime) -> float:
    lengths, counts = np.unique(trace.prompt_tokens, return_counts=True)
    return fsum(
        count * prefill.prefill_s(length, 0)
        for length, count in zip(lengths.tolist(), counts.tolist(), strict=True)
        if length > 0
    )


def _decode_work_s(trace: RequestTrace, deployment: SizedDeployment) -> float:
    """Seconds of one instance for all output tokens after the first ones, at the fullest batch."""
    if not trace.output_known:
        return 0.0
    steps = int(np.maximum(trace.output_tokens - 1, 0).sum())
    if not steps:
        return 0.0
    context = float(trace.prompt_tokens.mean() + trace.output_tokens.mean() / 2)
    room = deployment.hbm_cache_bytes / (deployment.kv_bytes_per_token * max(1.0, context))
    batch = max(1.0, min(float(trace.requests), room))
    return steps * deployment.decode.step_s(batch, batch * context) / batch
