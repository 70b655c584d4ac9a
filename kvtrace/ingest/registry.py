"""The table of formats. A format module exposes `FORMATS`; to add one, add its name here."""

from __future__ import annotations

import functools
import importlib
from typing import Final

from kvtrace.ingest.contract import Format

_MODULES: Final = (
    "weka",
    "baseten",
    "agentic_mooncake",
    "tracelab",
    "tair_kvcache",
    "llmservingsim",
    "splitwise",
    "vidur",
    "aibrix_trace",
    "lmcache_agent",
    "sagemaker_capture",
    "chat_text",
    "servegen",
    "mooncake",
    "azure",
    "burstgpt",
    "bailian",
    "vllm_timing",
    "vllm_text",
    "sglang_text",
    "prometheus",
    "prometheus_api",
    "dynamo_request_trace",
    "lmcache_text",
    "mooncake_store",
    "lmcache_hashes",
    "lmcache_trace",
    "sglang_request_metrics",
    "trtllm_request_metrics",
    "trtllm_stats",
    "otlp_genai",
    "jaeger",
    "vllm_bench",
    "sglang_bench",
    "aiperf",
    "genai_perf",
    "guidellm",
    "inference_perf",
    "llmperf",
    "sglang_dump",
    "nim_response",
    "kv_events",
    "dynamo_text",
    "trtllm_text",
    "aibrix_text",
    "llmd_text",
    "llamacpp_text",
    "tabbyapi_text",
    "ollama_text",
    "tgi_text",
    "litellm",
    "envoy_ai_gateway",
    "nginx_access",
    "kong",
    "higress",
    "apisix",
    "cloudflare_ai_gateway",
    "portkey",
    "helicone",
    "openrouter",
    "langfuse",
    "codex_rollout",
    "openai_batch",
    "provider_usage",
    "generic_usage",
)


@functools.cache
def all_formats() -> tuple[Format, ...]:
    """Every registered format, in the order in which ties of sniffing are resolved."""
    formats: list[Format] = []
    for name in _MODULES:
        module = importlib.import_module(f"kvtrace.ingest.formats.{name}")
        formats.extend(module.FORMATS)
    return tuple(formats)


def format_named(name: str) -> Format | None:
    """The format with this slug, or None."""
    return next((entry for entry in all_formats() if entry.name == name), None)
