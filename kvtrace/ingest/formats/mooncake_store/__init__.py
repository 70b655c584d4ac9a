"""Mooncake text logs: master summaries, transfer engine statistics, client summaries.

Lines read from the sources of Mooncake from June 2025 to mid-2026 (v0.3.8 and v0.3.9 among them).
`Get` of the master is a question about metadata; the data goes past it, between the clients.
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format
from kvtrace.ingest.formats.mooncake_store.reader import MooncakeLog
from kvtrace.ingest.textlog.formats import log_format

FORMATS: tuple[Format, ...] = (
    log_format(
        "mooncake_store",
        title="Mooncake log (master, transfer engine, store client)",
        best_grade="C",
        supplies=(
            "pool_hit_ratio",
            "pool_used_bytes",
            "pool_capacity_bytes",
            "pool_usage_ratio",
            "pool_ssd_used_bytes",
            "pool_ssd_capacity_bytes",
            "pool_objects",
            "pool_clients",
            "pool_evicted_objects",
            "pool_evicted_bytes",
            "pool_failed_allocations",
            "pool_read_bytes",
            "pool_written_bytes",
            "pool_read_p95_le_s",
            "pool_write_p95_le_s",
            "transfer_bytes_per_s",
            "transfer_tasks",
            "transfer_slow_ratio",
        ),
        missing={
            "requests": "the engine's log, or that of the KV layer above the store (LMCache at"
            " LMCACHE_LOG_LEVEL=INFO, SGLang --export-metrics-to-file)",
            "cached_tokens": "the engine's log: the master counts objects, not tokens (SGLang"
            " --export-metrics-to-file, LMCache at INFO)",
            "reuse": "token ids or block hashes from the engine (vLLM --kv-events-config, LMCache"
            " --lookup-hash-log-dir DIR)",
            "moves": "time of single moves: LMCache at INFO (`Retrieved … cost … ms`); here only"
            " rates and latency buckets (MC_TE_METRIC=1)",
        },
        versions="Mooncake, June 2025 to mid-2026: three generations of the master's summary and"
        " one interim spelling (sources of v0.3.8, v0.3.9 and PR 2082)",
        prefixes=("glog", "none"),
        open=MooncakeLog,
        enable_hint="the master's summary is on by default (enable_metric_reporting);"
        " MC_TE_METRIC=1 for the transfer engine; for store clients MC_STORE_CLIENT_METRIC=1"
        " MC_STORE_CLIENT_METRIC_INTERVAL=10",
    ),
)
