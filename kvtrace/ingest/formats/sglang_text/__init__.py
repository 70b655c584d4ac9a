"""SGLang text logs: batch lines, request logs in text and JSON, time stats, start-up lines.

Lines read from the sources of SGLang 0.2.15 to 0.5.23. Messages are matched at their start only.
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format
from kvtrace.ingest.formats.sglang_text.reader import SglangLog
from kvtrace.ingest.textlog.formats import log_format

FORMATS: tuple[Format, ...] = (
    log_format(
        "sglang_text",
        title="SGLang log (batch lines, request log as text or JSON, time stats)",
        best_grade="A",
        supplies=(
            "request_id",
            "session_id",
            "llm",
            "adapter",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cached_device_tokens",
            "cached_host_tokens",
            "cached_disk_tokens",
            "cached_remote_tokens",
            "output_tokens",
            "queue_ns",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
            "block_keys",
            "transfers",
            "prompt_hit_ratio",
            "prefix_hit_ratio",
            "cached_tokens",
            "computed_tokens",
            "new_requests",
            "kv_usage_ratio",
            "kv_capacity_tokens",
            "running_requests",
            "waiting_requests",
            "prompt_tokens_per_s",
            "generation_tokens_per_s",
        ),
        missing={
            "cached_tokens": "--log-requests --log-requests-level 1"
            " --log-requests-format json (level 1 holds no prompts)",
            "tier_split": "SGLang 0.5.10 or newer with --enable-cache-report"
            " (cached_tokens_details)",
            "ttft": "--enable-metrics beside --log-requests",
            "queue": "--enable-request-time-stats-logging",
            "reuse": "token ids of each prompt: --log-requests --log-requests-level 3 (kvtrace"
            " hashes them while reading), or block identity: --kv-events-config"
            ' \'{"publisher":"zmq","topic":"kv-events"}\' with a subscriber that writes a file',
        },
        versions="SGLang 0.2.15 to 0.5.23 (sources)",
        prefixes=("bracketed", "json", "formatted", "none"),
        open=SglangLog,
        enable_hint="batch lines are on by default; requests: --log-requests"
        " --log-requests-level 1 --log-requests-format json --enable-metrics"
        " --enable-cache-report",
    ),
)
