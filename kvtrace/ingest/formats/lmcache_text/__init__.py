"""LMCache text logs: look-ups, loads and stores of each request, copy statistics of the server.

Lines read from the sources of LMCache 0.3.1, 0.3.7, 0.3.13, 0.4.7 and 0.5.6. `cost` of a load is
the wall time of its worker; that of a store is `offload_time` (copy to the host) plus `put_time`
(handing it to the backends, which may write later). Sizes are GiB, those of `L0<->L1` are GB.
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format
from kvtrace.ingest.formats.lmcache_text.reader import LmcacheLog
from kvtrace.ingest.textlog.formats import log_format

FORMATS: tuple[Format, ...] = (
    log_format(
        "lmcache_text",
        title="LMCache text log (in the engine, and the multiprocess server)",
        best_grade="B",
        supplies=(
            "request_id",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cached_device_tokens",
            "cached_host_tokens",
            "cached_disk_tokens",
            "cached_remote_tokens",
            "computed_tokens",
            "moved_bytes",
            "moved_tokens",
            "duration_ns",
            "kv_loaded_bytes",
            "kv_stored_bytes",
            "kv_load_bytes_per_s",
            "kv_store_bytes_per_s",
            "host_kv_used_bytes",
            "host_kv_capacity_bytes",
        ),
        missing={
            "reuse": "the multiprocess server's lookup trace (lmcache server --lookup-hash-log-dir"
            " DIR); in the engine enable_chunk_statistics: true with strategy file_hash",
            "prompt_tokens": "of the multiprocess server's requests: the engine's own log beside it"
            " (vLLM: --enable-log-requests), or --lookup-hash-log-dir DIR",
            "tier_split": "the multiprocess server, which tells L1 from L2; in the engine the log"
            " from its start on (`Created backend: …`)",
            "output_tokens": "the engine's own log (vLLM: --enable-log-outputs)",
            "ttft": "the engine's spans (vLLM: --otlp-traces-endpoint URL)",
            "queue": "the engine's spans (vLLM: --otlp-traces-endpoint URL)",
        },
        versions="LMCache 0.3.0 to 0.5.6 (sources of 0.3.1, 0.3.7, 0.3.13, 0.4.7, 0.5.6)",
        prefixes=("lmcache", "formatted", "none"),
        open=LmcacheLog,
        enable_hint="on by default at LMCACHE_LOG_LEVEL=INFO; lmcache server adds copy statistics"
        " with --enable-extra-logging --extra-logging-interval 10, and its misses at"
        " LMCACHE_LOG_LEVEL=DEBUG",
    ),
)
