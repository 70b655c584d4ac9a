"""KV cache events: what engines and KV layers say of each block that they store and remove."""

from __future__ import annotations

from typing import Final

from kvtrace.ingest.contract import Format
from kvtrace.ingest.formats.kv_events.lmcache import read_lmcache, sniff_lmcache
from kvtrace.ingest.formats.kv_events.reader import read_kv_events, sniff_kv_events
from kvtrace.ingest.formats.kv_events.trtllm import read_trtllm, sniff_trtllm

_COLUMNS: Final = ("instance", "sequence", "change", "block_key", "block_tokens", "medium")
_NO_REQUESTS: Final = (
    "a request log of the same hours beside it (vLLM: --enable-log-requests; SGLang:"
    " --export-metrics-to-file --export-metrics-to-file-dir DIR)"
)
_NO_HITS: Final = (
    "usage with cached tokens in a gateway log (vLLM: --enable-prompt-tokens-details; SGLang:"
    " --enable-cache-report): a reused block makes no event"
)

FORMATS: tuple[Format, ...] = (
    Format(
        name="kv_events",
        title="KV events of vLLM, SGLang and the Mooncake master, captured as JSON lines",
        framing="lines",
        best_grade="C",
        supplies=("observed_at_ns", *_COLUMNS, "parent_key"),
        missing={
            "requests": _NO_REQUESTS,
            "cached_tokens": _NO_HITS,
            "block_events": "a replay endpoint, asked when a number is missing (vLLM:"
            ' "replay_endpoint":"tcp://*:5558" in --kv-events-config)',
        },
        versions="vLLM 0.9.1 to 0.33 (vllm/distributed/kv_events.py: arrays, maps from 0.25),"
        " SGLang 0.5.6 to 0.5.23 (sglang/srt/disaggregation/kv_events.py), Mooncake store"
        " (KV event subscriber guide, 2025); the wrapper of the capture is kvtrace's own",
        sniff=sniff_kv_events,
        read=read_kv_events,
        enable_hint="vLLM: --kv-events-config"
        ' \'{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557"}\'; SGLang:'
        ' --kv-events-config \'{"publisher":"zmq","endpoint":"tcp://*:5557"}\'. Subscribe, and'
        ' write each message as a line {"topic": …, "seq": …, "payload_hex": …}; a file or a topic'
        " for each engine",
    ),
    Format(
        name="trtllm_kv_events",
        title="KV cache events of TensorRT-LLM (JSON)",
        framing="lines",
        best_grade="C",
        supplies=(*_COLUMNS, "parent_key", "from_medium", "kv_capacity_blocks"),
        missing={
            "observation_times": "TensorRT-LLM gives events a number only",
            "requests": "trtllm-serve with return_perf_metrics: true and GET /perf_metrics",
            "hit_ratio": "numReusedBlocks and numMissedBlocks of GET /metrics"
            " (enable_iter_perf_stats: true)",
        },
        versions="TensorRT-LLM 0.20 to 1.2 (KVCacheEventSerializer in tensorrt_llm/_utils.py)",
        sniff=sniff_trtllm,
        read=read_trtllm,
        enable_hint="kv_cache_config: {event_buffer_max_size: 65536, enable_block_reuse: true} in"
        " the options file, then POST /kv_cache_events every second and append what it returns",
    ),
    Format(
        name="lmcache_cache_events",
        title="Cache-event batches of LMCache servers (JSON)",
        framing="lines",
        best_grade="C",
        supplies=("observed_at_ns", *_COLUMNS),
        missing={
            "requests": "LMCache at INFO (LMCACHE_LOG_LEVEL=INFO), or"
            " --lookup-hash-log-dir DIR for block identity",
            "block_events": "KV events of the engine (vLLM: --kv-events-config)",
        },
        versions="LMCache 0.5 (lmcache/v1/mp_coordinator/api.py)",
        sniff=sniff_lmcache,
        read=read_lmcache,
        enable_hint="run the LMCache servers with their coordinator and record its event stream"
        " (POST /events or the Kafka topic), one batch a line",
    ),
)
