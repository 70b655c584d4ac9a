"""First-order ranges: what the model's own constants leave open in a replayed figure.

No replay is repeated: a constant is moved to its low and high end, and what depends on it directly
is worked out again. Queues that would change with it are not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kvtrace.audit.bounds import knows_flops
from kvtrace.audit.record import CurvePoint, Quantity
from kvtrace.audit.slo.ends import Speed
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.efficiency import EfficiencyTable, efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.hardware import HardwareProfile, Network
from kvtrace.cost.transfer import MovePath
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.arrays import BoolArray, FloatArray
from kvtrace.units import format_rate

_GEMM: Final = ".gemm_"
_WIRES: Final = ("tcp", "rdma_bounce", "rdma_direct")
_PATHS: Final = {
    "dram_idle": "dram_pcie",
    "dram_bought": "dram_pcie",
    **{f"pool_dram_{wire}": f"pool_{wire}" for wire in _WIRES},
    **{f"pool_peer_{wire}": f"pool_{wire}" for wire in _WIRES},
}
"""Path of the cost model by the option, without what it changes beside its tiers."""


def path_of_option(option_id: str) -> str | None:
    """The path that the option's loads take; null where no single path says it."""
    return _PATHS.get(re.sub(r"(_kv_routing|_fp8|_isolated|_own_instances)*$", "", option_id))


@dataclass(frozen=True, slots=True)
class NetNegative:
    """Loaded hits that are slower than recomputing them, over the range of the path's constants."""

    low: int
    """Every move shorter by what high rates and low latencies make of one alone."""
    value: int
    high: int
    """Every move longer by what low rates and high latencies make of one alone."""
    hits: int
    slow_bytes_per_s: float
    fast_bytes_per_s: float

    def quantity(self, option_id: str) -> Quantity:
        """As the record shows it."""
        return Quantity(
            id=f"net_negative_hits:{option_id}",
            title="loaded hits that are slower than recomputing",
            value=self.value,
            low=self.low,
            high=self.high,
            unit="requests",
            source=f"replay; low and high: {format_rate(self.fast_bytes_per_s)} and "
            f"{format_rate(self.slow_bytes_per_s)} for one move alone, first order",
            kind="modelled",
        )


def net_negative_range(result: ReplayResult, deployment: Deployment) -> NetNegative | None:
    """The count at both ends of the path's constants; null where the path is not modelled here."""
    path_id = path_of_option(result.scenario.option_id)
    if path_id is None:
        return None
    loaded = result.timeline.moved_bytes > 0
    recompute = result.timeline.recompute_hit_s[loaded]
    slow, fast = (_path(deployment, path_id, speed) for speed in ("slow", "fast"))
    shortest, seconds, longest = _move_ends(result, loaded, deployment, path_id)
    value = int((seconds > recompute).sum())
    return NetNegative(
        low=min(value, int((shortest > recompute).sum())),
        value=value,
        high=max(value, int((longest > recompute).sum())),
        hits=int(loaded.sum()),
        slow_bytes_per_s=slow.bytes_per_s,
        fast_bytes_per_s=fast.bytes_per_s,
    )


def _move_ends(
    result: ReplayResult, chosen: BoolArray, deployment: Deployment, path_id: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(chosen,) seconds of the moves at the fast end, as replayed, and at the slow end.

    Formula: replayed x (a move alone at that end / a move alone at the middle): waiting for others
    shrinks and grows as the move itself does.
    """
    moved, seconds = result.timeline.moved_bytes[chosen], move_seconds(result)[chosen]
    paths = [_path(deployment, path_id, speed) for speed in ("slow", "fast")]
    slow, fast = (path.fixed_s + moved / path.bytes_per_s for path in paths)
    middle = deployment.path(path_id)
    usual = middle.fixed_s + moved / middle.bytes_per_s
    return np.minimum(seconds * fast / usual, seconds), seconds, seconds * slow / usual


def move_over_recompute(result: ReplayResult, deployment: Deployment) -> Range | None:
    """Move over recompute time at the median loaded hit, over the constants of both.

    The low has fast moves and slow prefill, the high slow moves and fast prefill. An option whose
    path is not modelled here has no spread; null where nothing was loaded.
    """
    timeline = result.timeline
    priced = (timeline.moved_bytes > 0) & (timeline.recompute_hit_s > 0)
    if not priced.any():
        return None
    recompute = timeline.recompute_hit_s[priced]
    path_id = path_of_option(result.scenario.option_id)
    if path_id is None:
        return Range.exact(float(np.median(move_seconds(result)[priced] / recompute)))
    prefill = prefill_factor(deployment)
    ends = _move_ends(result, priced, deployment, path_id)
    low, value, high = (float(np.median(seconds / recompute)) for seconds in ends)
    return Range(low / prefill.high, value, max(value, high / prefill.low))


def at_end(deployment: Deployment, *, moves: Speed, prefill: Speed) -> Deployment:
    """The deployment with the constants of moves, and with the GEMM efficiency, at one end each."""
    return replace(
        deployment,
        hardware=_hardware_at(deployment.hardware, moves),
        efficiencies=_efficiencies_at(deployment, fast=prefill == "fast"),
    )


def _efficiencies_at(deployment: Deployment, *, fast: bool) -> EfficiencyTable:
    table = deployment.efficiencies or efficiency_table()
    own = table.family(deployment.hardware.gpu.family)
    gemm = {dtype: end_of(share, high=fast) for dtype, share in own.gemm.items()}
    return replace(table, families={**table.families, own.family: replace(own, gemm=gemm)})


def _path(deployment: Deployment, path_id: str, speed: Speed) -> MovePath:
    return replace(deployment, hardware=_hardware_at(deployment.hardware, speed)).path(path_id)


def _hardware_at(hardware: HardwareProfile, speed: Speed) -> HardwareProfile:
    """Rates and fixed seconds of moves at one end of their ranges; how many ports stays."""
    fast = speed == "fast"
    return replace(
        hardware,
        host_link=hardware.host_link.at_end(fast=fast),
        tcp=_network_at(hardware.tcp, fast=fast),
        rdma=_network_at(hardware.rdma, fast=fast),
        dram_read_bytes_per_s=end_of(hardware.dram_read_bytes_per_s, high=fast),
        dram_write_bytes_per_s=end_of(hardware.dram_write_bytes_per_s, high=fast),
        load_efficiency=end_of(hardware.load_efficiency, high=fast),
        load_contention=end_of(hardware.load_contention, high=not fast),
        handover_s=end_of(hardware.handover_s, high=not fast),
        dram_lookup_s=end_of(hardware.dram_lookup_s, high=not fast),
        pool_lookup_s=end_of(hardware.pool_lookup_s, high=not fast),
        tiers=tuple(tier.at_end(fast=fast) for tier in hardware.tiers),
    )


def _network_at(network: Network, *, fast: bool) -> Network:
    return replace(
        network,
        port=network.port.at_end(fast=fast),
        setup_s=end_of(network.setup_s, high=not fast),
    )


def end_of(constant: Constant, *, high: bool) -> Constant:
    """The constant at its low or high end; as it is where that end is not known."""
    return constant.at_end(high=high)


def prefill_factor(deployment: Deployment) -> Range:
    """Prefill seconds at the ends of the GEMM efficiency, over those at its value.

    Assumes: GEMMs are all of a prefill; attention and fixed seconds scale alike.
    """
    if not knows_flops(deployment):
        return Range.exact(1.0)
    found = [one for one in deployment.prefill.evidence if _GEMM in one.id]
    if not found or found[0].low is None or found[0].high is None or found[0].low <= 0:
        return Range.exact(1.0)
    gemm = found[0]
    return Range(gemm.value / (gemm.high or gemm.value), 1.0, gemm.value / (gemm.low or gemm.value))


def extra_ratio_range(
    curve: Sequence[CurvePoint], pool: Scenario, rival: Scenario, fleet: Fleet, block_tokens: int
) -> tuple[float, float]:
    """How far (below, above) the pool's extra hit ratio may lie, by the sizes of both.

    By the curve of one idealised cache of the trace: the pool at the low and high number of nodes,
    the rival's idle DRAM at its low and high size. (0, 0) where sizes have no range.
    """
    held = capacity_blocks(pool, block_tokens)
    below, above = 0.0, 0.0
    for tier in pool.tiers:
        few, many = _pool_sizes(fleet)
        per_byte = _tier_tokens(pool, 1.0, tier.stored_bytes_per_token) / block_tokens
        less = held - (tier.capacity_bytes - few) * per_byte
        more = held + (many - tier.capacity_bytes) * per_byte
        below += curve_ratio(curve, held) - curve_ratio(curve, less)
        above += curve_ratio(curve, more) - curve_ratio(curve, held)
    if rival.tiers:
        idle = fleet.dram_idle_bytes_per_instance
        low = idle.value if idle.low is None else idle.low
        high = idle.value if idle.high is None else idle.high
        ends = [
            capacity_blocks(rival, block_tokens, dram_bytes=size)
            for size in (low, idle.value, high)
        ]
        ratios = [curve_ratio(curve, blocks) for blocks in ends]
        below += max(ratios[2] - ratios[1], 0.0)
        above += max(ratios[1] - ratios[0], 0.0)
    return max(below, 0.0), max(above, 0.0)


def _pool_sizes(fleet: Fleet) -> tuple[float, float]:
    """DRAM of the pool at its low and at its high, in bytes."""
    size, nodes = fleet.pool_dram_bytes, fleet.pool_nodes
    few = 1.0 if nodes.low is None else nodes.low / nodes.value
    many = 1.0 if nodes.high is None else nodes.high / nodes.value
    low = size.value * few if size.low is None else size.low
    high = size.value * many if size.high is None else size.high
    return low, high


def capacity_blocks(
    scenario: Scenario, block_tokens: int, *, dram_bytes: float | None = None
) -> float:
    """Blocks that all HBM and tiers of the option hold together, as if they were one cache.

    `dram_bytes` replaces the size of a private tier.
    """
    tokens = scenario.instances * scenario.hbm_capacity_bytes / scenario.kv_bytes_per_token
    for tier in scenario.tiers:
        copies = scenario.instances if tier.scope == "instance" else 1
        is_replaced = dram_bytes is not None and tier.scope == "instance"
        size = dram_bytes if is_replaced and dram_bytes is not None else tier.capacity_bytes
        tokens += copies * _tier_tokens(scenario, size, tier.stored_bytes_per_token)
    return tokens / block_tokens


def _tier_tokens(scenario: Scenario, size_bytes: float, stored: float | None) -> float:
    return size_bytes / (scenario.kv_bytes_per_token if stored is None else stored)


def curve_ratio(curve: Sequence[CurvePoint], blocks: float) -> float:
    """Hit ratio in tokens of one cache of this capacity; straight lines between the points."""
    known = [
        (p.capacity_blocks, p.hit_ratio_tokens) for p in curve if p.hit_ratio_tokens is not None
    ]
    if not known:
        return 0.0
    return float(np.interp(blocks, [0, *(c for c, _ in known)], [0.0, *(r for _, r in known)]))


def blocks_for_ratio(curve: Sequence[CurvePoint], wanted: float) -> float | None:
    """The least capacity that hits `wanted`, straight lines between the points; null: none does.

    The reverse of `curve_ratio`.
    """
    blocks, ratio = 0.0, 0.0
    for point in curve:
        here = point.hit_ratio_tokens
        if here is None:
            continue
        if here >= wanted:
            part = 1.0 if here <= ratio else max(wanted - ratio, 0.0) / (here - ratio)
            return blocks + part * (point.capacity_blocks - blocks)
        blocks, ratio = float(point.capacity_blocks), here
    return None
