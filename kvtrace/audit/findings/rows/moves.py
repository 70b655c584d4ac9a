"""Findings on the way of KV: moves, paths, links."""

from __future__ import annotations

from typing import Final

from kvtrace.audit import thresholds
from kvtrace.audit.findings import limits as limit
from kvtrace.audit.findings import modelled as by_model
from kvtrace.audit.findings.check import Check
from kvtrace.audit.findings.link_rows import LINKS_TABLE
from kvtrace.audit.findings.links import link_leaves_too_little
from kvtrace.audit.findings.moves import (
    MOVES_TABLE,
    moves_slower_than_modelled,
    moves_slower_than_recompute,
)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="net_negative_hits",
        title="Hits that cost more time than they save",
        question="Which loaded hits arrive later than they could be recomputed?",
        threshold=thresholds.NET_NEGATIVE_SHARE,
        look=by_model.net_negative_hits,
        is_replayed=True,
        action="Load only what is priced below recomputing (an arbiter, or a minimum hit length), "
        "or recompute short hits and load long ones",
        action_kind="move_less",
        production_check="Compare TTFT of requests with external hits against requests without, by "
        "prompt length: LMCache log field `cost`, SGLang `storage_prefetch_wait`; PromQL "
        "rate(vllm:external_prefix_cache_hits_total[5m])",
    ),
    Check(
        id="moves_slower_than_recompute",
        title="Observed hits bring fewer tokens a second than prefill computes",
        question="Did loading a hit take longer than computing it again would have?",
        threshold=limit.MEASURED_OVER_RECOMPUTE,
        look=moves_slower_than_recompute,
        action="Do not load from this tier until its path is faster, or load only what is priced "
        "below recomputing",
        action_kind="move_less",
        production_check="Tokens over seconds of the same lines: LMCache `Retrieved … cost`, "
        "SGLang `storage_prefetch_wait`; against vllm:request_prefill_time_seconds",
        table=MOVES_TABLE,
    ),
    Check(
        id="moves_slower_than_modelled",
        title="Observed moves are slower than the model assumes",
        question="Does KV move as fast as the options assume?",
        threshold=limit.SLOW_MOVES,
        look=moves_slower_than_modelled,
        action="Find what the path waits for (chunk size, serial copies, a shared port), or state "
        "the measured rate of the hardware, before believing a modelled option",
        action_kind="faster",
        production_check="Bytes over seconds of the connector's own lines (NIXL `Throughput "
        "(MB/s)`, LMCache `throughput`), beside the port counters of the NIC and the PCIe counters "
        "of DCGM in the same minutes",
        table=MOVES_TABLE,
    ),
    Check(
        id="link_leaves_too_little",
        title="A link is too busy for what an option would move",
        question="Does the measured load of a link leave what the option needs of it?",
        threshold=limit.LINK_LEFT,
        look=link_leaves_too_little,
        is_replayed=True,
        action="Give KV its own port or uplink, move fewer bytes, or take an option that does not "
        "cross this link; find out what the link carries today before buying",
        action_kind="move_less",
        production_check="DCGM_FI_PROF_PCIE_RX_BYTES (a rate) of each GPU; "
        "rate(node_infiniband_port_data_received_bytes_total[5m]) and "
        "rate(node_network_receive_bytes_total[5m]) of each port, in the busy hour",
        table=LINKS_TABLE,
    ),
    Check(
        id="moves_dominate",
        title="Moves take longer than prefill",
        question="After the queue, is time spent on moving KV or on computing it?",
        threshold=limit.MOVE_SHARE,
        look=by_model.moves_dominate,
        is_replayed=True,
        action="Move fewer bytes (KV quantisation, a higher threshold for loading) or shorten the "
        "path (GPU-direct, layer-wise overlap)",
        action_kind="faster",
        production_check="Log fields of the connector: NIXL `Avg xfer time (ms)`, LMCache `cost`; "
        "against vllm:request_prefill_time_seconds",
    ),
    Check(
        id="host_bounce_dominates",
        title="The host bounce eats the gain of RDMA",
        question="Is a move limited by the network or by the copy through host memory?",
        threshold=limit.BOUNCE_FACTOR,
        look=by_model.host_bounce_dominates,
        is_replayed=True,
        action="Use GPU-direct RDMA, or overlap the pull with the load layer by layer",
        action_kind="faster",
        production_check="nvidia-smi dmon -s t (PCIe rx) against the NIC's rx bytes: equal bytes "
        "on both, one after the other, are the bounce",
    ),
)
