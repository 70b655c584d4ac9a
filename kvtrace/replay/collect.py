"""From the lists of a run to its result."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Final

import numpy as np

from kvtrace.replay.links import FlowNet
from kvtrace.replay.load import decode_work_s
from kvtrace.replay.moves import Move
from kvtrace.replay.result import LinkUse, ReplayResult, Timeline
from kvtrace.replay.scenario import PrefillTime, Scenario
from kvtrace.replay.state import Requests
from kvtrace.replay.topology import Topology
from kvtrace.schema.arrays import FloatArray, IntArray
from kvtrace.units import NS_PER_S

_NO_WAIT_S: Final = 1 / NS_PER_S
"""A wait below the resolution of the trace's clock is rounding, not a queue."""


def collect(
    scenario: Scenario,
    *,
    requests: Requests,
    output_known: bool,
    topology: Topology,
    tier_hits: Sequence[Sequence[int]],
    net: FlowNet[Move],
    evicted_blocks: int,
    oversized: int,
    busy_s: float,
    warmup_requests: int,
) -> ReplayResult:
    """The result of a run that has ended."""
    span_s = max(requests.first_token_s) - requests.arrived_s[0] if requests.count else 0.0
    busiest = (scenario.prefill_instances or scenario.instances) * span_s
    timeline = _timeline(scenario, requests, topology, tier_hits, output_known=output_known)
    offered_load, is_overloaded = _load(scenario, requests, timeline)
    return ReplayResult(
        scenario=scenario,
        span_s=span_s,
        timeline=timeline,
        link_use=_link_use(scenario, topology, net, span_s),
        prefill_utilisation=min(1.0, busy_s / busiest) if busiest > 0 else 0.0,
        hbm_evicted_blocks=evicted_blocks,
        oversized_requests=oversized,
        offered_load=offered_load,
        is_overloaded=is_overloaded,
        preempted=tuple(requests.preempted),
        warmup_requests=warmup_requests,
    )


def _load(scenario: Scenario, requests: Requests, timeline: Timeline) -> tuple[float | None, bool]:
    """(offered load, whether the fleet was overloaded); see `ReplayResult`."""
    arrived_s = _floats(requests.arrived_s)
    if not requests.count or arrived_s[-1] <= arrived_s[0]:
        return None, False
    arrival_span_s = float(arrived_s[-1] - arrived_s[0])
    prefill_s = fsum(timeline.gpu_busy_s.tolist())
    decode_s = decode_work_s(
        _ints(requests.prompt),
        _ints(requests.output),
        decode=scenario.decode,
        room_tokens=scenario.hbm_capacity_bytes / scenario.kv_bytes_per_token,
    )
    prefilling = scenario.prefill_instances
    if prefilling:
        decoding = scenario.instances - prefilling
        offered = max(prefill_s / prefilling, decode_s / decoding) / arrival_span_s
    else:
        offered = (prefill_s + decode_s) / (scenario.instances * arrival_span_s)
    is_late = arrived_s >= arrived_s[-1] - arrival_span_s / 4
    backlog_s = float(timeline.queue_s[is_late].mean())
    return offered, offered > 1.0 or backlog_s > scenario.backlog_share * arrival_span_s


def _timeline(
    scenario: Scenario,
    requests: Requests,
    topology: Topology,
    tier_hits: Sequence[Sequence[int]],
    *,
    output_known: bool,
) -> Timeline:
    arrived_s = _floats(requests.arrived_s)
    lookup_s, pull_s, load_s = map(_floats, (requests.lookup_s, requests.pull_s, requests.load_s))
    started_s = _floats(requests.started_s)
    ttft_s = _floats(requests.first_token_s) - arrived_s
    waited_s = started_s - arrived_s - lookup_s - pull_s - load_s
    e2e_s = _floats(requests.e2e_s) if output_known else np.full(requests.count, np.nan)
    steps = np.asarray(requests.output, dtype=np.float64) - 1
    is_decoded = steps > 0
    tpot_s = np.full(requests.count, np.nan)
    np.divide(e2e_s - ttft_s, steps, out=tpot_s, where=is_decoded)
    hit_tokens = {"hbm": _ints(requests.hbm_hit)}
    hit_tokens |= {spec.tier_id: np.zeros(requests.count, np.int64) for spec in scenario.tiers}
    for tier, hits in zip(topology.tiers, tier_hits, strict=True):
        hit_tokens[tier.spec.tier_id] += _ints(hits)
    recompute_s, recompute_hit_s = _counterfactuals(requests, scenario.prefill, tier_hits)
    return Timeline(
        instance=np.asarray(requests.instance, dtype=np.int32),
        queue_s=np.where(waited_s < _NO_WAIT_S, 0.0, waited_s),
        lookup_s=lookup_s,
        pull_s=pull_s,
        load_s=load_s,
        stall_s=_floats(requests.stall_s),
        prefill_s=_floats(requests.first_token_s) - started_s,
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        e2e_s=e2e_s,
        gpu_busy_s=_floats(requests.gpu_s),
        recompute_s=recompute_s,
        recompute_hit_s=recompute_hit_s,
        hit_tokens=hit_tokens,
        computed_tokens=_ints(requests.computed),
        declined_tokens=_ints(requests.declined),
        declined_move_s=_floats(requests.declined_move_s),
        declined_recompute_s=_floats(requests.declined_recompute_s),
        moved_bytes=_floats(requests.moved_bytes),
        handoff_s=_floats(requests.handoff_s if scenario.prefill_instances else ()),
    )


def _counterfactuals(
    requests: Requests, prefill: PrefillTime, tier_hits: Sequence[Sequence[int]]
) -> tuple[FloatArray, FloatArray]:
    """(whole prompt computed, computing what was loaded): seconds of requests alone in their steps.

    Decode that rides along is left out.
    """
    loaded = _sums(tier_hits, requests.count)
    whole: dict[int, float] = {0: 0.0}
    recompute_s: list[float] = []
    recompute_hit_s: list[float] = []
    for request, prompt in enumerate(requests.prompt):
        pure_s = requests.pure_s[request]
        hit = prompt - requests.computed[request]
        if not hit:
            whole[prompt] = pure_s
        elif prompt not in whole:
            whole[prompt] = prefill.prefill_s(prompt, 0)
        recompute_s.append(whole[prompt])
        above = max(0, hit - loaded[request])
        if above == hit:
            recompute_hit_s.append(0.0)
        elif above:
            recompute_hit_s.append(prefill.prefill_s(prompt - above, above) - pure_s)
        else:
            recompute_hit_s.append(whole[prompt] - pure_s)
    return _floats(recompute_s), _floats(recompute_hit_s)


def _sums(rows: Sequence[Sequence[int]], count: int) -> list[int]:
    total = np.zeros(count, dtype=np.int64)
    for row in rows:
        total += _ints(row)
    return total.tolist()


def _link_use(
    scenario: Scenario, topology: Topology, net: FlowNet[Move], span_s: float
) -> tuple[LinkUse, ...]:
    """One row per kind of link, in order of first use in the chain; throttles are no links.

    Writes that drain after the last first token are counted in bytes; utilisation is capped at 1.
    """
    rows: list[LinkUse] = []
    for link_id in dict.fromkeys(topology.link_ids):
        if link_id not in scenario.links:
            continue
        links = [index for index, kind in enumerate(topology.link_ids) if kind == link_id]
        read = sum(net.read_bytes[link] for link in links)
        written = sum(net.written_bytes[link] for link in links)
        could_move = sum(topology.bytes_per_s[link] for link in links) * span_s
        rows.append(
            LinkUse(
                link_id=link_id,
                links=len(links),
                bytes_read=read,
                bytes_written=written,
                busy_s=sum(net.busy_s[link] for link in links),
                utilisation=min(1.0, (read + written) / could_move) if could_move > 0 else 0.0,
            )
        )
    return tuple(rows)


def _floats(values: Sequence[float]) -> FloatArray:
    return np.asarray(values, dtype=np.float64)


def _ints(values: Sequence[int]) -> IntArray:
    return np.asarray(values, dtype=np.int64)
