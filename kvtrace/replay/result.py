"""What a replay returns: one timeline per request, and the ledger of every link."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kvtrace.replay.scenario import Scenario
from kvtrace.schema.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Timeline:
    """Per request, in trace order; seconds. ttft = queue + lookup + pull + load + prefill, where
    queue counts only what the move did not hide.
    """

    instance: npt.NDArray[np.int32]
    queue_s: FloatArray
    lookup_s: FloatArray
    pull_s: FloatArray
    load_s: FloatArray
    prefill_s: FloatArray
    stall_s: FloatArray
    """Of the prefill: waits for a load that ran beside it."""
    ttft_s: FloatArray
    tpot_s: FloatArray
    """NaN where the output length is unknown or 1."""
    e2e_s: FloatArray
    gpu_busy_s: FloatArray
    """Seconds of the instance that the request's prefill (and sync load) took: its share of what
    its steps took beyond decoding alone, by single-request price of the tokens in each."""
    recompute_s: FloatArray
    """Counterfactual: prefill of the whole prompt with nothing cached, alone in its steps."""
    recompute_hit_s: FloatArray
    """Counterfactual of the loaded part: prefill with the HBM hit alone, minus prefill as it was;
    both at the price of a request that shares no step."""
    hit_tokens: Mapping[str, IntArray]
    """By tier id (`hbm` first): tokens served from it."""
    computed_tokens: IntArray
    declined_tokens: IntArray
    """Found below HBM when the tiers were last asked, and not loaded by decision."""
    declined_move_s: FloatArray
    """What loading them would have taken, links as they were at that moment."""
    declined_recompute_s: FloatArray
    """What computing them takes at the price of a request alone."""
    moved_bytes: FloatArray
    """Bytes loaded for the request over its last stage."""
    handoff_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """From the first token until the KV is on the decode instance; part of `e2e_s` and `tpot_s`.
    Empty where instances prefill and decode."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What crossed one kind of link."""

    link_id: str
    links: int
    """How many such links there are."""
    bytes_read: float
    bytes_written: float
    busy_s: float
    """Seconds with at least one flow, summed over the links."""
    utilisation: float
    """Bytes over what the links could have moved in the replayed span, 0..1."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One replayed scenario."""

    scenario: Scenario
    span_s: float
    """First arrival to last first-token."""
    timeline: Timeline
    link_use: tuple[LinkUse, ...]
    prefill_utilisation: float
    """Seconds in steps with prefill (and sync loads) over instances × span, 0..1. It saturates
    when the fleet is overloaded: see `offered_load`."""
    hbm_evicted_blocks: int
    oversized_requests: int = 0
    """Requests whose KV alone exceeds the HBM of an instance; served anyway, in an empty one."""
    offered_load: float | None = None
    """Busy seconds needed per instance-second of the arrival span: Σ `gpu_busy_s`, and the output
    tokens at the fullest batch that HBM holds, over instances × (last - first arrival); the larger
    of the two where prefill and decode have instances of their own. Above 1 the queue grows as long
    as requests arrive. None where all arrive at once."""
    is_overloaded: bool = False
    """The offered load is above 1, or requests of the last quarter of the arrival span queue for
    more than `Scenario.backlog_share` of the span on average: times then say how long the trace
    was, not how fast the option is."""
    preempted: tuple[tuple[int, float, float], ...] = ()
    """(request, seconds at which it gave its HBM up, seconds at which it went on) of every
    preemption, on the clock of the trace; empty unless `Scenario.kv_admission` is as_needed."""
    warmup_requests: int = 0
    """Requests before the replayed ones that filled the caches; nothing else here counts them."""
