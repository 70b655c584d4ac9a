"""What ranks exchange in each layer: all-reduce, dispatch and combine of experts, hand-over."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtrace.cost.efficiency import EfficiencyTable
from kvtrace.cost.evidence import Constant
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.layout import Layout
from kvtrace.cost.llm import LlmShape

ACTIVATION_BYTES = 2.0
"""Bytes of one activation element that ranks exchange (bf16)."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Seconds that the ranks of an instance exchange activations."""

    token_s: float
    """Per token of a group."""
    allreduces: int
    """All-reduces of one step: each has a start of its own."""
    alltoalls: int
    """Dispatches and combines of one step."""
    handovers: int
    """Hand-overs between pipeline stages of one step."""
    evidence: tuple[Constant, ...]


def build_exchange(
    llm: LlmShape,
    hardware: HardwareProfile,
    layout: Layout,
    *,
    weight_dtype: str,
    table: EfficiencyTable,
) -> Exchange:
    """What the ranks of `layout` exchange.

    Formula, seconds a token:
        all-reduce   one of hidden x 2 B a layer after attention, one after the feed-forward, at
                     the all-reduce rate of TP ranks
        experts      with data-parallel attention, instead of the second: see `alltoall_token_s`
        hand-over    (PP - 1) hidden x 2 B at the rate of the link between two stages
    """
    sparse = llm.experts.layers if llm.experts is not None and layout.dp > 1 else 0
    reduced = 2 * llm.layers - sparse if layout.tp > 1 else 0
    seconds, used = 0.0, []
    row = llm.hidden * ACTIVATION_BYTES
    if reduced:
        share, rate = table.allreduce(hardware, layout.tp)
        seconds += reduced * row / rate
        used.append(share)
    if sparse and layout.ep > 1:
        each, constants = alltoall_token_s(llm, hardware, layout, weight_dtype, table)
        seconds += sparse * each
        used += constants
    if layout.pp > 1:
        seconds += (layout.pp - 1) * row / (layout.tp * stage_bytes_per_s(hardware, layout))
    return Exchange(
        token_s=seconds,
        allreduces=reduced,
        alltoalls=2 * sparse if layout.ep > 1 else 0,
        handovers=layout.pp - 1,
        evidence=tuple(used),
    )


def alltoall_bytes(llm: LlmShape, layout: Layout, *, weight_dtype: str, gpus_per_node: int) -> (
    tuple[float, float]
):  # fmt: skip
    """Bytes of one token and layer to other ranks of its node, and to other nodes.

    Formula: hidden x (dispatch + combine bytes) x copies, with ep (1 - (1 - 1 / ep)^k) distinct
    ranks, a share 1 - 1 / ep of them others; between nodes one copy a node, which its ranks pass on
    over their own links.
    Source: DeepSeek-V3 technical report (arXiv 2412.19437), section 3.2.2: dispatch in 8 bits,
    combine in 16, one copy to each node over the network, then over NVLink.
    Assumes: experts are drawn evenly over ranks and nodes.
    """
    if llm.experts is None or layout.ep == 1:
        return 0.0, 0.0
    dispatch = 1.0 if weight_dtype in ("fp8", "nvfp4") else ACTIVATION_BYTES
    row = llm.hidden * (dispatch + ACTIVATION_BYTES)
    nodes = math.ceil(layout.stage_ranks / gpus_per_node)
    return (
        row * _others(layout.ep, llm.experts.active),
        row * _others(nodes, llm.experts.active),
    )


def alltoall_token_s(
    llm: LlmShape,
    hardware: HardwareProfile,
    layout: Layout,
    weight_dtype: str,
    table: EfficiencyTable,
) -> tuple[float, tuple[Constant, ...]]:
    """Seconds of dispatch and combine of one token and layer, and the constants behind them.

    Formula: max(bytes to ranks / (TP x scale-up rate), bytes to nodes / (TP x a port's rate)): both
    run at once, and the ranks of a group send a share of its tokens each.
    """
    near, far = alltoall_bytes(
        llm, layout, weight_dtype=weight_dtype, gpus_per_node=hardware.gpus_per_node
    )
    inside, outside = table.shared["alltoall_scaleup"], table.shared["alltoall_network"]
    scaleup = hardware.gpu.scaleup_bytes_per_s
    link = hardware.host_link.max_bytes_per_s if scaleup is None else scaleup
    ports = min(1.0, hardware.rdma.ports_per_node.value / hardware.gpus_per_node)
    port = hardware.rdma.port.peak_bytes_per_s.value * ports
    seconds = near / (layout.tp * link.value * inside.value)
    if far:
        seconds = max(seconds, far / (layout.tp * port * outside.value))
        return seconds, (inside, outside)
    return seconds, (inside,)


def stage_bytes_per_s(hardware: HardwareProfile, layout: Layout) -> float:
    """Rate of one rank to its peer of the next stage: in the node, else over its port."""
    if layout.gpus > hardware.gpus_per_node:
        ports = min(1.0, hardware.rdma.ports_per_node.value / hardware.gpus_per_node)
        return hardware.rdma.port.max_bytes_per_s.value * ports
    scaleup = hardware.gpu.scaleup_bytes_per_s
    return (hardware.host_link.max_bytes_per_s if scaleup is None else scaleup).value


def _others(places: int, drawn: int) -> float:
    """Distinct places other than one's own among `places`, for `drawn` draws, expected."""
    return (places - 1) * (1.0 - (1.0 - 1.0 / places) ** drawn)
