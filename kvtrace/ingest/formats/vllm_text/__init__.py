"""vLLM text logs, V0 and V1: requests, statistics, start-up and capacity.

Lines read from the sources of vLLM 0.4.2 to 0.33.0. Messages are matched by their text and only at
their start, never by file name or line number (they move with every release).
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format
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
        ),
        missing={
            "reuse, and the capacity curve": "token ids of each prompt: VLLM_LOGGING_LEVEL=DEBUG"
            " with --enable-log-requests --enable-log-outputs (kvtrace hashes them while reading)",
            "cached tokens of a request": "--enable-prompt-tokens-details, read at the gateway",
            "TTFT and queue time of a request": "--otlp-traces-endpoint",
            "prompt tokens of chat requests": "--enable-log-requests with the request logger at"
            " level DEBUG",
            "end of a request in V1": "--enable-log-outputs beside --enable-log-requests",
        },
        versions="vLLM 0.4.2 to 0.33.0 (sources), V0 and V1 engines",
        prefixes=("vllm", "formatted", "none"),
        open=VllmLog,
        enable_hint="statistics are on by default (--disable-log-stats turns them off); requests"
        " need --enable-log-requests from 0.10 on",
    ),
)
