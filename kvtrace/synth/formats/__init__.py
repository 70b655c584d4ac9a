"""Writers of literal formats: a table, one small function a file, all telling the same story."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from kvtrace.synth.formats import clients, engines, telemetry, traces
from kvtrace.synth.formats.scene import Scene


@dataclass(frozen=True, slots=True)
class Writer:
    """One file in one format."""

    format: str
    """Name of the format in the registry."""
    file: str
    lines: Callable[[Scene], Iterator[str]]
    blocks_of: int = 1
    """Tokens of which a block must be a multiple."""
    by_chunk: bool = False
    """A chunk of the pool must be a multiple of a block."""


WRITERS: Final = (
    Writer("mooncake", "mooncake.jsonl", traces.mooncake),
    Writer("bailian", "bailian.jsonl", traces.bailian, blocks_of=traces.BAILIAN_BLOCK_TOKENS),
    Writer("azure", "azure.csv", traces.azure),
    Writer("burstgpt", "burstgpt.csv", traces.burstgpt),
    Writer("dynamo_request_trace", "dynamo-request-trace.jsonl", traces.dynamo_request_trace),
    Writer("lmcache_hashes", "lmcache-hashes.jsonl", traces.lmcache_hashes, by_chunk=True),
    Writer("vllm_text", "vllm-server.log", engines.vllm_text),
    Writer("vllm_timing", "request-metrics.jsonl", engines.vllm_timing),
    Writer("kv_events", "kv-events.jsonl", engines.vllm_kv_events),
    Writer("sglang_text", "sglang-server.log", engines.sglang_batches),
    Writer("sglang_text", "sglang-requests.jsonl", engines.sglang_requests),
    Writer("sglang_request_metrics", "sglang-metrics.log", engines.sglang_request_metrics),
    Writer("lmcache_text", "lmcache.log", engines.lmcache_text),
    Writer("prometheus", "metrics.prom", telemetry.prometheus),
    Writer("litellm", "litellm.jsonl", clients.litellm),
    Writer("otlp_genai", "otlp-spans.jsonl", clients.otlp_genai),
    Writer("aiperf", "profile_export.jsonl", clients.aiperf),
)
FORMATS: Final = tuple(dict.fromkeys(writer.format for writer in WRITERS))
"""Formats that can be written."""

__all__ = ["FORMATS", "WRITERS", "Scene", "Writer"]
