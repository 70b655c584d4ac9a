"""Formats of the registry that are not written, and why."""

from __future__ import annotations

from typing import Final

_TEXTS: Final = "it is made of prompt texts, and a story has none"
_ENGINE: Final = "it tells of iterations or layers inside an engine that the story does not have"
_TOTALS: Final = "it holds totals over time, no requests: `prometheus` has those of the story"

UNWRITTEN: Final[dict[str, str]] = {
    "baseten": _TEXTS,
    "chat_text": _TEXTS,
    "codex_rollout": "a file holds one session of an agent with its tool calls",
    "dynamo_text": "`dynamo_request_trace` says of Dynamo's requests what the story knows",
    "llamacpp_text": _ENGINE,
    "llmd_text": "it tells which engine was picked, and the story has one",
    "lmcache_agent": _TEXTS,
    "lmcache_cache_events": "`kv_events` tells of blocks, and the pool drops none",
    "lmcache_trace": "it is a binary trace of calls to a store below the blocks of the story",
    "mooncake_store": "it tells of segments and transfers inside a store, and the story has none",
    "openai_batch_input": _TEXTS,
    "prometheus_api": _TOTALS,
    "sagemaker_capture": _TEXTS,
    "servegen": "it holds distributions, no requests: write them as a profile",
    "sglang_dump": "it is a pickle of SGLang's own objects, prompts included",
    "trtllm_kv_events": "`kv_events` tells of the same blocks",
    "trtllm_stats": _ENGINE,
    "trtllm_text": _ENGINE,
    "vllm_timeseries": _TOTALS,
}
"""Why a format of the registry cannot be written, by its name."""
