"""Writers of literal formats: a table, one small function a file, all telling the same story."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.synth.formats import (
    benchmarks,
    clients,
    engines,
    gateways,
    responses,
    servers,
    simulators,
    telemetry,
    traces,
)
from kvtrace.synth.formats.scene import Lines, Scene, at_the_end, by_arrival, document, table


@dataclass(frozen=True, slots=True)
class Writer:
    """One file in one format."""

    format: str
    """Name of the format in the registry."""
    file: str
    lines: Lines
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
    Writer(
        "litellm_spend_logs",
        "litellm-spend.csv",
        table(gateways.LITELLM_SPEND_LOGS, gateways.litellm_spend_cells),
    ),
    Writer("envoy_ai_gateway", "envoy-ai-gateway.jsonl", at_the_end(gateways.envoy_ai_gateway)),
    Writer("kong", "kong.jsonl", at_the_end(gateways.kong)),
    Writer("nginx_access", "nginx-access.jsonl", at_the_end(gateways.nginx_access)),
    Writer("langfuse", "langfuse.jsonl", at_the_end(gateways.langfuse)),
    Writer("helicone", "helicone.jsonl", at_the_end(gateways.helicone)),
    Writer("openrouter", "openrouter.jsonl", at_the_end(gateways.openrouter)),
    Writer("portkey", "portkey.jsonl", at_the_end(gateways.portkey)),
    Writer(
        "cloudflare_ai_gateway",
        "cloudflare-ai-gateway.jsonl",
        at_the_end(gateways.cloudflare_ai_gateway),
    ),
    Writer("higress", "higress.jsonl", at_the_end(gateways.higress)),
    Writer("apisix", "apisix.jsonl", at_the_end(gateways.apisix)),
    Writer("helicone_csv", "helicone.csv", table(gateways.HELICONE_CSV, gateways.helicone_cells)),
    Writer("openai_batch", "openai-batch.jsonl", at_the_end(responses.openai_batch)),
    Writer("provider_usage", "provider-usage.jsonl", at_the_end(responses.provider_usage)),
    Writer("generic_usage", "generic-usage.jsonl", at_the_end(responses.generic_usage)),
    Writer("nim_response", "nim-response.jsonl", at_the_end(responses.nim_response)),
    Writer("vllm_bench", "vllm-bench.json", benchmarks.vllm_bench),
    Writer("sglang_bench", "sglang-bench.jsonl", benchmarks.sglang_bench),
    Writer(
        "genai_perf",
        "genai-perf.json",
        document(benchmarks.genai_perf_head, benchmarks.genai_perf, benchmarks.GENAI_PERF_TAIL),
    ),
    Writer(
        "guidellm",
        "benchmarks.json",
        document(benchmarks.guidellm_head, benchmarks.guidellm, benchmarks.GUIDELLM_TAIL),
    ),
    Writer(
        "inference_perf",
        "per_request_lifecycle_metrics.json",
        document(benchmarks.list_head, benchmarks.inference_perf, benchmarks.LIST_TAIL),
    ),
    Writer(
        "llmperf",
        "llmperf-responses.json",
        document(benchmarks.list_head, benchmarks.llmperf, benchmarks.LIST_TAIL),
    ),
    Writer(
        "trtllm_request_metrics",
        "trtllm-metrics.jsonl",
        at_the_end(engines.trtllm_request_metrics),
        blocks_of=engines.TRTLLM_BLOCK_TOKENS,
    ),
    Writer(
        "jaeger", "jaeger.json", document(clients.jaeger_head, clients.jaeger, clients.JAEGER_TAIL)
    ),
    Writer("splitwise", "splitwise.csv", simulators.splitwise),
    Writer("vidur", "vidur.csv", table(simulators.VIDUR, simulators.vidur_cells)),
    Writer("llmservingsim", "llmservingsim.jsonl", simulators.llmservingsim),
    Writer("llmservingsim_results", "llmservingsim-results.csv", simulators.llmservingsim_results),
    Writer("aibrix_trace", "aibrix-workload.jsonl", by_arrival(simulators.aibrix_trace)),
    Writer("tair_kvcache", "tair-kvcache.jsonl", by_arrival(simulators.tair_kvcache)),
    Writer("tracelab", "round_trace.jsonl", at_the_end(simulators.tracelab)),
    Writer("agentic_mooncake", "agentic-mooncake.jsonl", simulators.agentic_mooncake),
    Writer("weka", "weka.jsonl", simulators.weka),
    Writer("tabbyapi_text", "tabbyapi.log", servers.tabbyapi_text),
    Writer("tgi_text", "tgi.log", servers.tgi_text),
    Writer("ollama_text", "ollama.log", servers.ollama_text),
    Writer("aibrix_text", "aibrix-gateway.log", servers.aibrix_text),
)
FORMATS: Final = tuple(dict.fromkeys(writer.format for writer in WRITERS))
"""Formats that can be written."""

__all__ = ["FORMATS", "WRITERS", "Scene", "Writer"]
