"""The table of formats. A format module exposes `FORMATS`; to add one, add its name here.

Formats of other packages come by entry points (`plugins`).
"""

from __future__ import annotations

import functools
import importlib
from typing import Final

from kvtrace.ingest.contract import Format
from kvtrace.ingest.plugins.load import Plugin, find_plugins, plugin_formats

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
def own_formats() -> tuple[Format, ...]:
    """Every format of kvtrace, in the order in which ties of sniffing are resolved."""
    formats: list[Format] = []
    for name in _MODULES:
        module = importlib.import_module(f"kvtrace.ingest.formats.{name}")
        formats.extend(module.FORMATS)
    return tuple(formats)


@functools.cache
def all_formats() -> tuple[Format, ...]:
    """Every format that can be read: ours, then those of other packages.

    Raises:
        UsageError: a package's formats cannot be used.
    """
    own = own_formats()
    return (*own, *plugin_formats({one.name for one in own}))


def plugins() -> tuple[Plugin, ...]:
    """The packages that bring formats, those that cannot be used too."""
    return find_plugins({one.name for one in own_formats()})


def format_named(name: str) -> Format | None:
    """The format with this slug, or None."""
    return next((entry for entry in all_formats() if entry.name == name), None)
