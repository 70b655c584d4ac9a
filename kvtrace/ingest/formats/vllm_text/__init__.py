"""vLLM text logs, V0 and V1: requests, statistics, KV transfers, start-up and capacity.

Lines read from the sources of vLLM 0.4.2 to 0.33.0. Messages are matched by their text and only at
their start, never by file name or line number (they move with every release).
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format
from kvtrace.ingest.formats.vllm_text.express import express_kinds
from kvtrace.ingest.formats.vllm_text.reader import VllmLog
from kvtrace.ingest.textlog.formats import log_format

FORMATS: tuple[Format, ...] = (
    log_format(
        "vllm_text",
        title="vLLM text log (V0 and V1)",
        best_grade="A",
        supplies=(
            "request_id",
            "llm",
            "adapter",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "e2e_ns",
            "status",
            "block_keys",
            "prefix_hit_ratio",
            "external_prefix_hit_ratio",
            "kv_usage_ratio",
            "kv_capacity_tokens",
            "prompt_tokens_per_s",
            "running_requests",
            "waiting_requests",
            "iteration_elapsed_s",
            "moved_bytes",
            "kv_moved_bytes",
            "kv_loaded_bytes",
            "kv_stored_bytes",
        ),
        missing={
            "requests": "--enable-log-requests (on by default up to 0.9)",
            "reuse": "token ids of each prompt: VLLM_LOGGING_LEVEL=DEBUG with"
            " --enable-log-requests (from 0.11.1; before, completion requests print them at INFO);"
            " kvtrace hashes them while reading",
            "prompt_tokens": "VLLM_LOGGING_LEVEL=DEBUG with --enable-log-requests",
            "output_tokens": "--enable-log-outputs beside --enable-log-requests",
            "e2e": "--enable-log-outputs beside --enable-log-requests: V1 prints no other end",
            "cached_tokens": "--enable-prompt-tokens-details, read at the gateway",
            "tier_split": "the LMCache log of the same engine",
            "ttft": "--otlp-traces-endpoint grpc://COLLECTOR:4317",
            "queue": "--otlp-traces-endpoint grpc://COLLECTOR:4317",
            "hit_ratio": "--enable-prefix-caching, and no --disable-log-stats",
            "moves": "a KV connector; up to 0.11 NIXL_TELEMETRY_ENABLE=1 for NIXL",
            "block_events": '--kv-events-config \'{"enable_kv_cache_events":true,'
            '"publisher":"zmq"}\' and a subscriber that writes what it gets',
        },
        versions="vLLM 0.4.2 to 0.33.0 (sources), V0 and V1 engines",
        prefixes=("vllm", "formatted", "none"),
        open=VllmLog,
        express=express_kinds,
        enable_hint="statistics are on by default (--disable-log-stats turns them off); requests"
        " need --enable-log-requests from 0.10 on, token ids VLLM_LOGGING_LEVEL=DEBUG as well",
    ),
)
