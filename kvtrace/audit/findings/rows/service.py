"""Findings on what the running service shows: latency, queues, hits as measured."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings import latency as by_latency
from kvtrace.audit.findings import limits as limit
from kvtrace.audit.findings import measured as by_log
from kvtrace.audit.findings.check import Check
from kvtrace.audit.findings.prefill import PREFILL_TABLE, hits_not_faster_measured
from kvtrace.audit.findings.trend import high_hit_ratio_slow_ttft

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
