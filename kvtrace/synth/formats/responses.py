"""Responses with their usage, as providers give them and batch services and servers keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kvtrace.synth.formats.gateways import Fields, created_s
from kvtrace.synth.formats.scene import (
    Scene,
    e2e_ns,
    epoch_s,
    ms_of,
    openai_usage,
    session_name,
    total_tokens,
)
from kvtrace.synth.story import Served


def generic_usage(one: Served, scene: Scene) -> Fields:
    """A row of a log of one's own under plain names: decimal ms."""
    return {
        "request_id": one.request.request_id,
        "ts": epoch_s(one.arrived_at_ns),
        "prompt_tokens": one.request.prompt_tokens,
        "completion_tokens": one.request.output_tokens,
        "cached_tokens": one.cached_tokens,
        "session_id": session_name(one),
        "model": scene.engine.model,
        "ttft_ms": ms_of(one.ttft_ns),
        "latency_ms": ms_of(e2e_ns(one)),
    }


def _anthropic(one: Served) -> Fields:
    """Anthropic's input tokens leave out those that were read from a cache."""
    usage = {
        "input_tokens": one.request.prompt_tokens - one.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": one.cached_tokens,
        "output_tokens": one.request.output_tokens,
    }
    return {"usage": usage}


def _bedrock(one: Served) -> Fields:
    usage = {
        "inputTokens": one.request.prompt_tokens - one.cached_tokens,
        "outputTokens": one.request.output_tokens,
        "totalTokens": total_tokens(one),
        "cacheReadInputTokens": one.cached_tokens,
        "cacheWriteInputTokens": 0,
    }
    return {"usage": usage}


def _gemini(one: Served) -> Fields:
    usage = {
        "promptTokenCount": one.request.prompt_tokens,
        "cachedContentTokenCount": one.cached_tokens,
        "candidatesTokenCount": one.request.output_tokens,
        "totalTokenCount": total_tokens(one),
    }
    return {"usageMetadata": usage}


def _deepseek(one: Served) -> Fields:
    usage = {
        "prompt_tokens": one.request.prompt_tokens,
        "completion_tokens": one.request.output_tokens,
        "total_tokens": total_tokens(one),
        "prompt_cache_hit_tokens": one.cached_tokens,
        "prompt_cache_miss_tokens": one.request.prompt_tokens - one.cached_tokens,
    }
    return {"usage": usage}


def _openai_responses(one: Served) -> Fields:
    usage = {
        "input_tokens": one.request.prompt_tokens,
        "input_tokens_details": {"cached_tokens": one.cached_tokens},
        "output_tokens": one.request.output_tokens,
        "total_tokens": total_tokens(one),
    }
    return {"object": "response", "usage": usage}


def _openai_chat(one: Served) -> Fields:
    return {"object": "chat.completion", "usage": openai_usage(one)}


_PROVIDERS: Final[tuple[Callable[[Served], Fields], ...]] = (
    _openai_chat,
    _anthropic,
    _gemini,
    _bedrock,
    _deepseek,
    _openai_responses,
)


def provider_usage(one: Served, scene: Scene) -> Fields:
    """An entry of a log of one's own with a response; sessions take turns among the providers."""
    provider = _PROVIDERS[one.request.session % len(_PROVIDERS)]
    return {
        "ts": epoch_s(one.arrived_at_ns),
        "id": one.request.request_id,
        "session_id": session_name(one),
        "model": scene.engine.model,
        **provider(one),
        "ttft_ms": ms_of(one.ttft_ns),
        "latency_ms": ms_of(e2e_ns(one)),
    }


def openai_batch(one: Served, scene: Scene) -> Fields:
    """A result of OpenAI's batch API or of vLLM's run-batch: the second of arrival alone."""
    request_id = one.request.request_id
    body = {
        "id": request_id,
        "object": "chat.completion",
        "created": created_s(one),
        "model": scene.engine.model,
        "choices": [],
        "usage": openai_usage(one),
    }
    return {
        "id": f"batch_req_{request_id}",
        "custom_id": f"{session_name(one)}-{one.request.turn}",
        "response": {"status_code": 200, "request_id": request_id, "body": body},
        "error": None,
    }


def nim_response(one: Served, scene: Scene) -> Fields:
    """A response of NVIDIA NIM with its statistics: decimal ms, the second of arrival."""
    tokens = {
        "response_token_length": one.request.output_tokens,
        "time_to_first_token_in_ms": ms_of(one.ttft_ns),
    }
    stats = {
        "type": "NIM LLM Model Stats",
        "version": "0.1.0",
        "llm_input_token_length": one.request.prompt_tokens,
        "llm_output_token_length": one.request.output_tokens,
        "generation_time_in_ms": ms_of(e2e_ns(one) - one.ttft_ns),
        "time_in_queue_in_ms": ms_of(one.scheduled_at_ns - one.queued_at_ns),
        "response_tokens": tokens,
    }
    return {
        "id": one.request.request_id,
        "object": "chat.completion",
        "created": created_s(one),
        "model": scene.engine.model,
        "choices": [],
        "usage": openai_usage(one),
        "stats": stats,
    }
