"""Upstream metrics of serving engines, and what they become.

Names read from the sources and documentation of vLLM 0.6 to 0.33, SGLang 0.4 to 0.5.23,
TensorRT-LLM 1.x, Dynamo 1.x, llama.cpp and TGI. Mapped by formula, not by name.
"""

from __future__ import annotations

from typing import Final

from kvtrace.ingest.prometheus.uses import (
    Family,
    Program,
    Use,
    both,
    by_label,
    counter,
    counters,
    gauge,
    hit_gauge,
    mean,
    share,
    summed,
)
from kvtrace.units import GB, MIB

_EXTERNAL: Final = "external_queries"
_TIERS: Final = "cached_by_source"
_PARTS: Final = "cached_parts"


def _vllm_hits(unit: str | None, part: str) -> Family:
    """Local hits: of the look-ups in HBM, and, with a connector, of the whole prompt.

    External look-ups are the local misses, so (local hits + external hits) / local queries is the
    share of the prompt found in any tier.
    """
    if part == "hits":
        return counters(
            share("prefix_hit_ratio", "numerator", unit),
            share("prompt_hit_ratio", "numerator", unit, needs=_EXTERNAL),
        )
    return counters(
        share("prefix_hit_ratio", "denominator", unit),
        share("prompt_hit_ratio", "denominator", unit, needs=_EXTERNAL),
    )


_LATENCIES: Final[dict[str, Family]] = {
    "time_to_first_token_seconds": mean("ttft_s", quantiles="ttft"),
    "e2e_request_latency_seconds": mean("e2e_s", quantiles="e2e"),
    "time_per_output_token_seconds": mean("tpot_s"),
}
_VLLM: Final[dict[str, Family]] = {
    **_LATENCIES,
    "request_queue_time_seconds": mean("queue_s", quantiles="queue"),
    "request_prefill_time_seconds": mean("prefill_s", quantiles="prefill"),
    "request_time_per_output_token_seconds": mean("tpot_s"),
    "request_prompt_tokens": mean("request_prompt_tokens"),
    "request_prefill_kv_computed_tokens": mean("request_computed_tokens"),
    # look-ups; 0.7 to 0.8.5 count blocks, 0.9 on tokens, under one name: HELP says which
    "gpu_prefix_cache_queries": _vllm_hits("help", "queries"),
    "gpu_prefix_cache_hits": _vllm_hits("help", "hits"),
    "prefix_cache_queries": _vllm_hits("tokens", "queries"),
    "prefix_cache_hits": _vllm_hits("tokens", "hits"),
    "external_prefix_cache_queries": counters(
        Use("external_prefix_hit_ratio", "denominator", hit_unit="tokens", mark=_EXTERNAL)
    ),
    "external_prefix_cache_hits": counters(
        share("external_prefix_hit_ratio", "numerator", "tokens"),
        share("prompt_hit_ratio", "numerator", "tokens", needs=_EXTERNAL),
    ),
    "mm_cache_queries": counters(share("mm_hit_ratio", "denominator", "objects")),
    "mm_cache_hits": counters(share("mm_hit_ratio", "numerator", "objects")),
    "gpu_prefix_cache_hit_rate": hit_gauge("prefix_hit_ratio", "blocks", "cumulative"),
    "cpu_prefix_cache_hit_rate": hit_gauge("cpu_prefix_hit_ratio", "blocks", "cumulative"),
    # tokens
    "prompt_tokens": counter("prompt_tokens"),
    "generation_tokens": counter("output_tokens"),
    "prompt_tokens_cached": counter("cached_tokens"),
    "prompt_tokens_by_source": counters(
        by_label(Use("computed_tokens"), "source", "local_compute"),
        by_label(
            Use("cached_device_tokens", unless="cached_on_device"), "source", "local_cache_hit"
        ),
        by_label(Use("cached_external_tokens", unless=_TIERS), "source", "external_kv_transfer"),
    ),
    "prompt_tokens_cached_by_source": counters(
        by_label(Use("cached_device_tokens", mark="cached_on_device"), "source", "device"),
        by_label(Use("cached_host_tokens", mark=_TIERS), "source", "host"),
        by_label(Use("cached_disk_tokens", mark=_TIERS), "source", "disk"),
        by_label(Use("cached_remote_tokens", mark=_TIERS), "source", "p2p"),
        by_label(Use("cached_external_tokens", mark=_TIERS), "source", "external_unspecified"),
    ),
    "avg_prompt_throughput_toks_per_s": gauge("prompt_tokens_per_s", window="interval"),
    "avg_generation_throughput_toks_per_s": gauge("generation_tokens_per_s", window="interval"),
    # requests and HBM
    "num_requests_running": gauge("running_requests"),
    "num_requests_waiting": gauge("waiting_requests"),
    "num_requests_swapped": gauge("swapped_requests"),
    "num_preemptions": counter("preemptions"),
    "request_success": counter("finished_requests"),
    "gpu_cache_usage_perc": gauge("kv_usage_ratio"),
    "kv_cache_usage_perc": gauge("kv_usage_ratio"),
    "cpu_cache_usage_perc": gauge("cpu_kv_usage_ratio"),
    # residency (--kv-cache-metrics, a sample of blocks)
    "kv_block_lifetime_seconds": mean("kv_block_lifetime_s"),
    "kv_block_idle_before_evict_seconds": mean("kv_block_idle_before_evict_s"),
    "kv_block_reuse_gap_seconds": mean("kv_block_reuse_gap_s"),
    # moves
    "nixl_xfer_time_seconds": summed("kv_load_s"),
    "nixl_bytes_transferred": summed("kv_loaded_bytes"),
    "mooncake_xfer_time_seconds": summed("kv_move_s"),
    "mooncake_bytes_transferred": summed("kv_moved_bytes"),
    "mooncake_store_operation_bytes": counters(
        by_label(Use("pool_read_bytes"), "operation", "get", "batch_get*"),
        by_label(Use("pool_written_bytes"), "operation", "put", "batch_put*"),
    ),
    "cache_config_info": gauge("kv_capacity_tokens"),
    "kv_offload_load_bytes": counters(Use("kv_loaded_bytes", mark="offload_split")),
    "kv_offload_load_time": counter("kv_load_s"),
    "kv_offload_store_bytes": counters(Use("kv_stored_bytes", mark="offload_split")),
    "kv_offload_store_time": counter("kv_store_s"),
    "kv_offload_total_bytes": counters(
        by_label(Use("kv_loaded_bytes", unless="offload_split"), "transfer_type", "CPU_to_GPU"),
        by_label(Use("kv_stored_bytes", unless="offload_split"), "transfer_type", "GPU_to_CPU"),
    ),
    "kv_offload_total_time": counters(
        by_label(Use("kv_load_s", unless="offload_split"), "transfer_type", "CPU_to_GPU"),
        by_label(Use("kv_store_s", unless="offload_split"), "transfer_type", "GPU_to_CPU"),
    ),
}

_SGLANG: Final[dict[str, Family]] = {
    **_LATENCIES,
    "inter_token_latency_seconds": mean("tpot_s"),
    "queue_time_seconds": mean("queue_s", quantiles="queue"),
    "uncached_prompt_tokens_histogram": both(
        mean("request_computed_tokens"), summed("computed_tokens")
    ),
    "prompt_tokens_histogram": mean("request_prompt_tokens"),
    "prompt_tokens": counters(
        Use("prompt_tokens"), share("prompt_hit_ratio", "denominator", "tokens", needs="cached")
    ),
    "generation_tokens": counter("output_tokens"),
    # a request is counted by tier, or, where the tiers are not known, as `total` (or no label)
    "cached_tokens": counters(
        by_label(Use("cached_device_tokens", mark=_PARTS), "cache_source", "device"),
        by_label(Use("cached_host_tokens", mark=_PARTS), "cache_source", "host"),
        by_label(
            Use("cached_disk_tokens", mark=_PARTS),
            "cache_source",
            "storage_file",
            "storage_HiCacheFile",
        ),
        by_label(
            Use("cached_remote_tokens", mark=_PARTS),
            "cache_source",
            "storage_mooncake*",
            "storage_Mooncake*",
            "storage_hf3fs*",
            "storage_eic*",
            "storage_redis*",
        ),
        by_label(
            Use("cached_external_tokens", mark=_PARTS),
            "cache_source",
            "storage",
            "storage_unknown",
            "storage_nixl*",
            "storage_aibrix*",
        ),
        by_label(Use("cached_tokens", mark="cached"), "cache_source", "device", "host", "storage*"),
        by_label(Use("cached_tokens", unless=_PARTS, mark="cached"), "cache_source", "", "total"),
        by_label(
            share("prompt_hit_ratio", "numerator", "tokens"),
            "cache_source",
            "device",
            "host",
            "storage*",
        ),
        by_label(
            Use("prompt_hit_ratio", "numerator", hit_unit="tokens", unless=_PARTS),
            "cache_source",
            "",
            "total",
        ),
    ),
    "cache_hit_rate": hit_gauge("prefix_hit_ratio", "tokens", "last_batch"),
    "gen_throughput": gauge("generation_tokens_per_s", window="interval"),
    "num_running_reqs": gauge("running_requests"),
    "num_queue_reqs": gauge("waiting_requests"),
    "num_requests": counter("finished_requests"),
    "token_usage": gauge("kv_usage_ratio"),
    "num_used_tokens": gauge("kv_used_tokens"),
    "max_total_num_tokens": gauge("kv_capacity_tokens"),
    # HiCache
    "evicted_tokens": counter("kv_evicted_tokens"),
    "load_back_bytes": counter("kv_loaded_bytes"),
    "load_back_duration_seconds": summed("kv_load_s"),
    "hicache_backup_bytes": counter("kv_stored_bytes"),
    "hicache_backup_duration_seconds": summed("kv_store_s"),
    "hicache_host_used_tokens": gauge("host_kv_used_tokens"),
    "hicache_host_total_tokens": gauge("host_kv_capacity_tokens"),
    "prefetched_tokens": counter("pool_read_tokens"),
    "backuped_tokens": counter("pool_written_tokens"),
    "prefetch_bandwidth": mean("pool_read_bytes_per_s", scale=float(GB)),
    "backup_bandwidth": mean("pool_write_bytes_per_s", scale=float(GB)),
    # prefill and decode apart; MB here is MiB
    "kv_transfer_total_mb": summed("kv_moved_bytes", scale=float(MIB)),
    "kv_transfer_latency_ms": summed("kv_move_s", scale=1e-3),
}

_TRTLLM: Final[dict[str, Family]] = {
    **_LATENCIES,
    "request_queue_time_seconds": mean("queue_s", quantiles="queue"),
    "request_success": counter("finished_requests"),
    "prompt_tokens": counters(
        Use("prompt_tokens"), share("prompt_hit_ratio", "denominator", "tokens", needs="cached")
    ),
    "generation_tokens": counter("output_tokens"),
    "prompt_cached_tokens": counters(
        Use("cached_tokens", mark="cached"), share("prompt_hit_ratio", "numerator", "tokens")
    ),
    "kv_cache_hit_rate": hit_gauge("prefix_hit_ratio", "blocks", "cumulative"),
    "kv_cache_utilization": gauge("kv_usage_ratio"),
    "num_requests_running": gauge("running_requests"),
    "num_active_requests": gauge("running_requests"),
    "num_requests_waiting": gauge("waiting_requests"),
    "num_queued_requests": gauge("waiting_requests"),
}

_DYNAMO: Final[dict[str, Family]] = {
    "time_to_first_token_seconds": mean("ttft_s", quantiles="ttft"),
    "inter_token_latency_seconds": mean("tpot_s"),
    "request_duration_seconds": mean("e2e_s", quantiles="e2e"),
    "input_sequence_tokens": Family(
        "histogram",
        (
            *mean("request_prompt_tokens").uses,
            *summed("prompt_tokens").uses,
            share("prompt_hit_ratio", "denominator", "tokens", suffix="sum", needs="cached"),
        ),
    ),
    "output_sequence_tokens": summed("output_tokens"),
    "cached_tokens": Family(
        "histogram",
        (
            Use("cached_tokens", suffix="sum", mark="cached"),
            share("prompt_hit_ratio", "numerator", "tokens", suffix="sum"),
        ),
    ),
    "queued_requests": gauge("waiting_requests"),
    "inflight_requests": gauge("running_requests"),
}

_LLAMACPP: Final[dict[str, Family]] = {
    # cached tokens are not in it
    "prompt_tokens": counter("computed_tokens"),
    "tokens_predicted": counter("output_tokens"),
    "requests_processing": gauge("running_requests"),
    "requests_deferred": gauge("waiting_requests"),
    "kv_cache_usage_ratio": gauge("kv_usage_ratio"),
    "kv_cache_tokens": gauge("kv_used_tokens"),
}

_TGI: Final[dict[str, Family]] = {
    "request_queue_duration": mean("queue_s", quantiles="queue"),
    "request_duration": mean("e2e_s", quantiles="e2e"),
    "request_mean_time_per_token_duration": mean("tpot_s"),
    "request_input_length": both(mean("request_prompt_tokens"), summed("prompt_tokens")),
    "request_generated_tokens": summed("output_tokens"),
    "request_success": counter("finished_requests"),
    "queue_size": gauge("waiting_requests"),
    "batch_current_size": gauge("running_requests"),
}

ENGINES: Final[tuple[Program, ...]] = (
    Program("vllm", ("vllm_",), _VLLM),
    Program("sglang", ("sglang_",), _SGLANG),
    Program("trtllm", ("trtllm_",), _TRTLLM),
    Program("dynamo", ("dynamo_frontend_",), _DYNAMO),
    Program("llamacpp", ("llamacpp_",), _LLAMACPP),
    Program("tgi", ("tgi_",), _TGI),
)
