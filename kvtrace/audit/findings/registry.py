"""The registry of findings: one row a check, with threshold, action and production check."""

from __future__ import annotations

from typing import Final

from kvtrace.audit import thresholds as limit
from kvtrace.audit.findings import latency as by_latency
from kvtrace.audit.findings import measured as by_log
from kvtrace.audit.findings import modelled as by_model
from kvtrace.audit.findings.check import Check, Evidence, Hit
from kvtrace.audit.findings.kv_events import RESTORED_TABLE, restored_tokens
from kvtrace.audit.findings.moves import (
    MOVES_TABLE,
    moves_slower_than_modelled,
    moves_slower_than_recompute,
)
from kvtrace.audit.findings.prefill import PREFILL_TABLE, hits_not_faster_measured
from kvtrace.audit.findings.running import LINKS_TABLE, link_leaves_too_little
from kvtrace.audit.findings.sampling import log_is_sampled
from kvtrace.audit.findings.trend import high_hit_ratio_slow_ttft
from kvtrace.audit.record import Finding
from kvtrace.audit.window import replayed_on

_SEVERITY_ORDER: Final = {"critical": 0, "warning": 1, "info": 2}


def find_all(evidence: Evidence) -> list[Finding]:
    """What the checks found: critical first, then in the order of the registry."""
    found = [(check, hit) for check in CHECKS if (hit := check.look(evidence)) is not None]
    found.sort(key=lambda pair: _SEVERITY_ORDER[pair[1].severity])
    return [_finding(check, hit, evidence) for check, hit in found]


def _finding(check: Check, hit: Hit, evidence: Evidence) -> Finding:
    table = hit.table or check.table
    is_built = table in (PREFILL_TABLE, MOVES_TABLE, LINKS_TABLE)
    window = replayed_on(evidence.window) if check.is_replayed else ""
    return Finding(
        id=check.id,
        title=hit.title or check.title,
        severity=hit.severity,
        confidence=hit.confidence,
        message=f"{hit.message}. {window}" if window else hit.message,
        evidence=list(hit.evidence),
        table=table if is_built or table in evidence.queries else None,
        threshold=check.threshold.quantity(),
        action=check.action,
        action_kind=check.action_kind,
        production_check=check.production_check,
    )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="high_hit_ratio_slow_ttft",
        title="Hit ratio up, TTFT up too",
        question="Did TTFT get worse while the hit ratio got better?",
        threshold=limit.TTFT_RISE,
        look=high_hit_ratio_slow_ttft,
        action="Judge the cache by TTFT per prompt-length bucket and by bytes moved, not by its "
        "hit ratio; take away the cause that is named first",
        action_kind="measure",
        production_check="PromQL: histogram_quantile(0.5, sum by (le) "
        "(rate(vllm:time_to_first_token_seconds_bucket[5m]))) beside "
        "rate(vllm:prefix_cache_hits_total[5m]) / rate(vllm:prefix_cache_queries_total[5m])",
        table="latency/hit_and_ttft_thirds",
    ),
    Check(
        id="queueing_dominates",
        title="TTFT is queue, not prefill",
        question="Does a request wait longer than it is worked on before its first token?",
        threshold=limit.QUEUE_SHARE,
        look=by_log.queueing_dominates,
        action="Add capacity or shed load before a cache: raise the number of instances, or limit "
        "admission, until the queue is short; then measure prefill again",
        action_kind="faster",
        production_check="PromQL: histogram_quantile(0.5, sum by (le) "
        "(rate(vllm:request_queue_time_seconds_bucket[5m]))) against the same of "
        "vllm:request_prefill_time_seconds; SGLang: sglang:queue_time_seconds",
        table="latency/summary",
    ),
    Check(
        id="tail_cause",
        title="What the slow tail has that the rest has not",
        question="Is the slow tail of TTFT made by length, by bytes moved or by queueing?",
        threshold=limit.TAIL_AUC,
        look=by_latency.tail_cause,
        action="Act on the cause that is named: capacity or admission for queueing, fewer bytes or "
        "a faster path for moves, isolation of long prompts for length; log what is missing",
        action_kind="measure",
        production_check="PromQL: histogram_quantile(0.9, …) of vllm:request_queue_time_seconds "
        "beside vllm:request_prefill_time_seconds and vllm:time_to_first_token_seconds",
        table="latency/tail_causes",
    ),
    Check(
        id="hits_do_not_help",
        title="Hits do not bring the first token sooner",
        question="At equal prompt length and load, is TTFT shorter with more cached tokens?",
        threshold=limit.HIT_HELP,
        look=by_latency.hits_do_not_help,
        action="Find what the hits wait for (queue, lookup, pull, load) before adding more of "
        "them; load only hits that are priced below recomputing",
        action_kind="move_less",
        production_check="Switch the cache or its lower tier off on one of two equal instances for "
        "an hour, and compare vllm:time_to_first_token_seconds by prompt length",
        table="latency/ttft_by_cached_share",
    ),
    Check(
        id="net_negative_hits",
        title="Hits that cost more time than they save",
        question="Which loaded hits arrive later than they could be recomputed?",
        threshold=limit.NET_NEGATIVE_SHARE,
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
        id="hits_not_faster_measured",
        title="Measured prefill with hits is no faster than recomputing",
        question="Is the first token of a reused prompt sooner than recomputing would give it?",
        threshold=limit.MEASURED_OVER_RECOMPUTE,
        look=hits_not_faster_measured,
        action="Load only hits that are priced below recomputing, or recompute what HBM does not "
        "hold, until the path to the pool is faster",
        action_kind="move_less",
        production_check="Prefill time of requests with hits below HBM against those without, by "
        "prompt length: vllm:request_prefill_time_seconds beside "
        "vllm:external_prefix_cache_hits; LMCache log field `cost`",
        table=PREFILL_TABLE,
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
    Check(
        id="hits_end_at_hbm",
        title="HBM already holds the working set",
        question="Does HBM alone serve the reuse that there is?",
        threshold=limit.NEARLY_ALL,
        look=by_model.hits_end_at_hbm,
        is_replayed=True,
        action="Keep prefix caching on and route for it; do not buy a tier below HBM",
        action_kind="nearer",
        production_check="PromQL: rate(vllm:prefix_cache_hits_total[1h]) / "
        "rate(vllm:prefix_cache_queries_total[1h]) is near the reusable ratio",
        table="reuse/capacity_curve",
    ),
    Check(
        id="working_set_fits_dram",
        title="Idle DRAM holds the working set",
        question="Does the idle DRAM of the GPU nodes serve the reuse that HBM drops?",
        threshold=limit.NEARLY_ALL,
        look=by_model.working_set_fits_dram,
        is_replayed=True,
        action="Switch on local offload to host DRAM before a pool (vLLM --kv-offloading-size, "
        "SGLang --enable-hierarchical-cache)",
        action_kind="nearer",
        production_check="Free memory of the GPU nodes, and the host hit ratio after the switch: "
        "vllm:prompt_tokens_cached_by_source, sglang:cached_tokens_total{cache_source='host'}",
        table="reuse/capacity_curve",
    ),
    Check(
        id="pool_adds_little",
        title="A pool adds few hits",
        question="How many hits does a pool serve beyond the best option without one?",
        threshold=limit.LITTLE,
        look=by_model.pool_adds_little,
        is_replayed=True,
        action="Take the best option without a pool; look at a pool again when the working set "
        "has outgrown it",
        action_kind="nearer",
        production_check="PromQL: rate(vllm:external_prefix_cache_hits_total[1h]) against "
        "rate(vllm:prefix_cache_hits_total[1h]) in a trial with two instances",
    ),
    Check(
        id="restored_tokens",
        title="Tokens computed again (KV events)",
        question="How much of what the fleet computes had it computed before?",
        threshold=limit.RESTORED_SHARE,
        look=restored_tokens,
        action="Weigh these tokens, and no more, against the cost of a pool: first route requests "
        "to the instance that holds their blocks, then offload to the DRAM of the GPU nodes",
        action_kind="nearer",
        production_check="The same events during a trial: tokens of BlockStored on medium GPU with "
        "the tier against without; PromQL: rate(vllm:external_prefix_cache_hits_total[1h])",
        table=RESTORED_TABLE,
    ),
    Check(
        id="reuse_unknown",
        title="Reuse is unknown",
        question="Does the data identify blocks?",
        threshold=limit.Threshold(
            "evidence_grade", 1, "grade A", "exact: without block identity no cache can be replayed"
        ),
        look=by_log.reuse_unknown,
        action="Log block identity for two busy hours; the verdict names the flag",
        action_kind="measure",
        production_check="PromQL, as a first hint: rate(vllm:prefix_cache_hits_total[1h]) / "
        "rate(vllm:prefix_cache_queries_total[1h])",
        table="coverage/fields",
    ),
    Check(
        id="log_is_sampled",
        title="Requests are missing from the log",
        question="Does the log hold all requests of the service?",
        threshold=limit.LOG_WHOLE,
        look=log_is_sampled,
        action="Log all requests for two busy hours, or sample whole sessions; read reuse as a "
        "lower bound until then",
        action_kind="measure",
        production_check="Rows of the log an hour against "
        "increase(vllm:request_success_total[1h]) or increase(sglang:num_requests_total[1h])",
        table="coverage/over_time",
    ),
    Check(
        id="window_too_short",
        title="The window is short",
        question="Does the window hold enough time and enough requests?",
        threshold=limit.MIN_SPAN,
        look=by_log.window_too_short,
        action="Log a busy day, or at least an hour with 1 000 requests",
        action_kind="measure",
        production_check="First and last time stamp of the log",
        table="coverage/over_time",
    ),
    Check(
        id="quality_violations",
        title="Rows that break the rules of the data",
        question="Does the data agree with itself?",
        threshold=limit.Threshold("violations", 1, "rows", "exact: none is expected"),
        look=by_log.quality_violations,
        action="Look at the rows with `kvtrace query`, and leave out what is wrong at its source",
        action_kind="measure",
        production_check="The named query over the dataset; no row is good",
    ),
    Check(
        id="block_size_hides_reuse",
        title="Large blocks hide reuse",
        question="How much reuse can lie inside blocks that do not match as a whole?",
        threshold=limit.BLOCK_LOSS,
        look=by_log.block_size_hides_reuse,
        action="Read the reuse as a lower bound; hash at the block size of the engine to close it",
        action_kind="measure",
        production_check="Block size at start-up: vLLM `block_size` in cache_config_info, SGLang "
        "--page-size",
        table="reuse/definitions",
    ),
    Check(
        id="clock_coarse",
        title="The clock is coarser than the arrivals",
        question="Is the order of arrivals known from the clock?",
        threshold=limit.Threshold(
            "clock_step_over_gap",
            1,
            "times",
            "exact: with more than one arrival a step the order inside it is lost",
        ),
        look=by_log.clock_coarse,
        action="Log arrivals in milliseconds; until then take modelled queues as uncertain",
        action_kind="measure",
        production_check="Digits of the time stamps in the log",
    ),
    Check(
        id="decode_dominates",
        title="Decode dominates the end-to-end time",
        question="How much of a request's time can a faster prefill take away?",
        threshold=limit.DECODE_SHARE,
        look=by_log.decode_dominates,
        action="If end-to-end time is the goal, work on decode (batching, speculative decoding); a "
        "cache helps TTFT only",
        action_kind="faster",
        production_check="PromQL: rate(vllm:request_decode_time_seconds_sum[5m]) / "
        "rate(vllm:e2e_request_latency_seconds_sum[5m])",
        table="latency/summary",
    ),
)
"""In the order in which equally severe findings are shown."""
