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
from kvtrace.audit.findings.paths import pcie_contention, pool_node_bound_by_dram
from kvtrace.audit.findings.pieces import fragmented_copies, tp_replicates_kv
from kvtrace.audit.findings.rdma import host_bounce_dominates, load_is_what_is_left

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
        id="pcie_contention",
        title="Copies share PCIe",
        question="Do loads into HBM wait for each other on PCIe?",
        threshold=limit.SHARED_RATE,
        look=pcie_contention,
        action="Let fewer copies run at once (limit concurrent loads, no write-back beside loads "
        "in the busy hour), give each GPU its own PCIe uplink and NIC, or load layer by layer "
        "beside the prefill",
        action_kind="faster",
        production_check="DCGM_FI_PROF_PCIE_RX_BYTES (a rate) of all GPUs behind one switch, "
        "added up, against the rate of one alone; vLLM log `KV Transfer metrics`: "
        "`vllm:kv_offload_load_time` over `vllm:kv_offload_load_bytes`",
    ),
    Check(
        id="load_is_what_is_left",
        title="RDMA is in place, the load into HBM is the bottleneck",
        question="After RDMA, is the larger part of a move the copy from host memory into HBM?",
        threshold=limit.LOAD_SHARE,
        look=load_is_what_is_left,
        is_replayed=True,
        action="Take the host out of the way (GPU-direct RDMA), or overlap the load with the "
        "prefill layer by layer; faster ports do not help any more",
        action_kind="faster",
        production_check="DCGM_FI_PROF_PCIE_RX_BYTES near its peak while "
        "rate(node_infiniband_port_data_received_bytes_total[1m]) is not; LMCache log: `cost` of "
        "a retrieval against its size",
    ),
    Check(
        id="pool_node_bound_by_dram",
        title="The memory of pool nodes binds, not their ports",
        question="Does a pool node serve as much as its ports could carry?",
        threshold=thresholds.LINK_BINDS,
        look=pool_node_bound_by_dram,
        is_replayed=True,
        action="Spread the pool over more nodes (or all memory channels of each) before adding "
        "ports; keep hot blocks in the DRAM of the GPU nodes",
        action_kind="nearer",
        production_check="rate(node_infiniband_port_data_transmitted_bytes_total[1m]) of all "
        "ports of a pool node, added up, stays below their line rate while "
        "vllm:external_prefix_cache_hits_total wait: LMCache log `throughput`",
    ),
    Check(
        id="tp_replicates_kv",
        title="Tensor parallelism copies the KV",
        question="Does each rank hold KV that another one holds too?",
        threshold=limit.REPLICATION,
        look=tp_replicates_kv,
        action="Run attention data-parallel (SGLang --enable-dp-attention, vLLM "
        "--data-parallel-size), or a TP no larger than the number of KV heads; store one copy in "
        "tiers below HBM",
        action_kind="move_less",
        production_check="Start-up log: `Available KV cache memory` in bytes over `GPU KV cache "
        "size` in tokens, times the ranks, is TP times the KV bytes of a token of the LLM",
    ),
    Check(
        id="fragmented_copies",
        title="KV goes in pieces too small for the path",
        question="Are copies so small that their fixed cost takes as long as their bytes?",
        threshold=limit.HALF_RATE,
        look=fragmented_copies,
        action="Gather blocks before they are sent (larger chunks: LMCache chunk_size, SGLang "
        "--page-size, --hicache-mem-layout page_first; one buffer for all layers), so that each "
        "piece is a few times the size of half rate",
        action_kind="faster",
        production_check="NIXL log fields `Avg MB per transfer` over `Avg number of descriptors`: "
        "the size of a piece; `Throughput (MB/s)` beside it",
    ),
    Check(
        id="host_bounce_dominates",
        title="The host bounce eats the gain of RDMA",
        question="Is a move limited by the network or by the copy through host memory?",
        threshold=limit.BOUNCE_FACTOR,
        look=host_bounce_dominates,
        is_replayed=True,
        action="Use GPU-direct RDMA, or overlap the pull with the load layer by layer",
        action_kind="faster",
        production_check="nvidia-smi dmon -s t (PCIe rx) against the NIC's rx bytes: equal bytes "
        "on both, one after the other, are the bounce",
    ),
)
