"""Findings on what the running service shows: latency, queues, hits as measured."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings import latency as by_latency
from kvtrace.audit.findings import limits as limit
from kvtrace.audit.findings import measured as by_log
from kvtrace.audit.findings.check import Check
from kvtrace.audit.findings.hit_price import HIT_PRICE_TABLE, hits_save_compute_lose_time
from kvtrace.audit.findings.prefill import PREFILL_TABLE, hits_not_faster_measured
from kvtrace.audit.findings.tails import long_prompts_hurt_short, tail_is_bytes
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
        id="hits_save_compute_lose_time",
        title="A hit saves compute and loses time",
        question="At equal prompt length, does a hit take more time than it saves?",
        threshold=limit.HIT_LOSS,
        look=hits_save_compute_lose_time,
        action="Load only what is priced below recomputing it (a minimum hit length, or an "
        "arbiter), and shorten the way of what is loaded: layer by layer beside the prefill, or "
        "GPU-direct",
        action_kind="move_less",
        production_check="Mean of vllm:time_to_first_token_seconds beside those of "
        "vllm:request_prefill_time_seconds and vllm:request_queue_time_seconds, cache on against "
        "off: rate(…_sum[5m]) / rate(…_count[5m]); what remains is the move; LMCache log field "
        "`cost`",
        table=HIT_PRICE_TABLE,
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
        id="long_prompts_hurt_short",
        title="Long prompts hurt short ones",
        question="Do short prompts wait for long ones?",
        threshold=limit.LONG_ADDS,
        look=long_prompts_hurt_short,
        action="Isolate long prompts: instances or a queue of their own (a router rule by prompt "
        "length), or smaller prefill chunks (vLLM --max-num-batched-tokens, "
        "--long-prefill-token-threshold; SGLang --chunked-prefill-size); faster links do not cure "
        "a queue",
        action_kind="nearer",
        production_check="PromQL: histogram_quantile(0.99, sum by (le) "
        "(rate(vllm:time_to_first_token_seconds_bucket[5m]))) of an instance without long prompts "
        "beside one with them; rate(vllm:request_prompt_tokens_bucket[5m]) says which has them",
    ),
    Check(
        id="tail_is_bytes",
        title="P99 is made of KV bytes",
        question="Are the slowest first tokens those that move most KV?",
        threshold=limit.BYTES_IN_TAIL,
        look=tail_is_bytes,
        action="Move fewer bytes for the largest prompts (KV quantisation, a head that is "
        "recomputed while the tail loads), or keep what they load in host DRAM; a larger pool "
        "lengthens this tail",
        action_kind="move_less",
        production_check="Log fields of the connector: NIXL `P90 xfer time (ms)` beside `Avg MB "
        "per transfer`, LMCache `size` and `cost`; against histogram_quantile(0.99, sum by (le) "
        "(rate(vllm:time_to_first_token_seconds_bucket[5m])))",
        table="replay/move_by_kv_bucket",
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
