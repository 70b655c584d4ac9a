"""How producers name their token counts, and whether their prompt count includes the cache.

Read from OpenAI 3.57, Anthropic 2.14, LiteLLM 1.110, Langfuse 5.0, vLLM 0.33 and the documents of
the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Shape:
    """How one producer names its counts; `a/b` is key b of the object a."""

    name: str
    marks: tuple[str, ...]
    """One of these keys makes it this shape."""
    prompt: tuple[str, ...]
    cached: tuple[str, ...]
    write: tuple[str, ...]
    output: tuple[str, ...]
    reasoning: tuple[str, ...]
    total: tuple[str, ...]
    is_inclusive: bool
    settled_by: tuple[str, ...] | None = ()
    """Keys that only a producer of this definition writes; none needed: the names settle it."""
    is_reasoning_apart: bool = False
    """Reasoning is not in the output count."""


_CACHED: Final = ("cache_read_input_tokens", "cached_input_tokens", "cached_tokens")
_WRITE: Final = ("cache_creation_input_tokens", "cache_write_tokens")
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details", "input_token_details")
_DETAILS_CACHED: Final = tuple(
    f"{details}/{name}" for details in _DETAILS for name in ("cached_tokens", "cache_read")
)
_DETAILS_WRITE: Final = tuple(
    f"{details}/{name}"
    for details in _DETAILS
    for name in (
        "cache_write_tokens",
        "cache_creation_tokens",
        "created_cache_tokens",
        "cache_creation",
    )
)
_REASONING: Final = tuple(
    f"{details}/reasoning_tokens"
    for details in ("completion_tokens_details", "output_tokens_details")
)

SHAPES: Final[tuple[Shape, ...]] = (
    Shape(
        name="gemini",
        marks=("promptTokenCount", "candidatesTokenCount", "prompt_token_count"),
        prompt=("promptTokenCount", "prompt_token_count"),
        cached=("cachedContentTokenCount", "cached_content_token_count"),
        write=(),
        output=("candidatesTokenCount", "candidates_token_count"),
        reasoning=("thoughtsTokenCount", "thoughts_token_count"),
        total=("totalTokenCount", "total_token_count"),
        is_inclusive=True,
        is_reasoning_apart=True,
    ),
    Shape(
        name="bedrock",
        marks=("cacheReadInputTokens", "cacheWriteInputTokens", "cacheReadInputTokenCount"),
        prompt=("inputTokens",),
        cached=("cacheReadInputTokens", "cacheReadInputTokenCount"),
        write=("cacheWriteInputTokens", "cacheWriteInputTokenCount"),
        output=("outputTokens",),
        reasoning=("reasoningTokens",),
        total=("totalTokens",),
        is_inclusive=False,
    ),
    Shape(
        name="ai_sdk",
        marks=("cachedInputTokens",),
        prompt=("inputTokens", "promptTokens"),
        cached=("cachedInputTokens",),
        write=(),
        output=("outputTokens", "completionTokens"),
        reasoning=("reasoningTokens",),
        total=("totalTokens",),
        is_inclusive=True,
        settled_by=None,
    ),
    Shape(
        name="agent_libraries",  # dagger, pi-ai, ruby_llm and their kin
        marks=("inputTokens", "outputTokens", "cacheRead", "cacheWrite"),
        prompt=("inputTokens", "input"),
        cached=("cachedTokenReads", "cachedTokens", "cacheRead"),
        write=("cachedTokenWrites", "cacheCreationTokens", "cacheWrite"),
        output=("outputTokens", "output"),
        reasoning=(),
        total=("totalTokens",),
        is_inclusive=False,
        settled_by=None,
    ),
    Shape(
        name="deepseek",
        marks=("prompt_cache_hit_tokens", "prompt_cache_miss_tokens"),
        prompt=("prompt_tokens",),
        cached=("prompt_cache_hit_tokens",),
        write=(),
        output=("completion_tokens",),
        reasoning=_REASONING,
        total=("total_tokens",),
        is_inclusive=True,
    ),
    Shape(
        name="openai",  # and LiteLLM, which adds Anthropic's reads and writes to prompt_tokens
        marks=("prompt_tokens", "completion_tokens"),
        prompt=("prompt_tokens",),
        cached=(*_DETAILS_CACHED, *_CACHED),
        write=(*_DETAILS_WRITE, *_WRITE),
        output=("completion_tokens",),
        reasoning=(*_REASONING, "reasoning_tokens"),
        total=("total_tokens",),
        is_inclusive=True,
    ),
    Shape(
        name="cohere",
        marks=("billed_units", "tokens"),
        prompt=("tokens/input_tokens", "billed_units/input_tokens"),
        cached=("cached_tokens",),
        write=(),
        output=("tokens/output_tokens", "billed_units/output_tokens"),
        reasoning=(),
        total=(),
        is_inclusive=True,
    ),
    Shape(
        name="responses",
        marks=(*_DETAILS, "cached_input_tokens"),
        prompt=("input_tokens",),
        cached=(*_DETAILS_CACHED, "cached_input_tokens"),
        write=_DETAILS_WRITE,
        output=("output_tokens",),
        reasoning=(*_REASONING, "reasoning_output_tokens"),
        total=("total_tokens",),
        is_inclusive=True,
    ),
    Shape(
        name="anthropic",
        marks=("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
        prompt=("input_tokens",),
        cached=("cache_read_input_tokens",),
        write=("cache_creation_input_tokens",),
        output=("output_tokens",),
        reasoning=(),
        total=("total_tokens",),
        is_inclusive=False,
        settled_by=("cache_creation", "iterations", "server_tool_use", "service_tier"),
    ),
    Shape(
        name="plain",
        marks=("input_tokens", "output_tokens"),
        prompt=("input_tokens",),
        cached=("cached_tokens",),
        write=(),
        output=("output_tokens",),
        reasoning=_REASONING,
        total=("total_tokens",),
        is_inclusive=True,
        settled_by=None,
    ),
)
"""In the order in which they are tried."""

OTEL: Final = Shape(
    name="otel",
    marks=(),
    prompt=(
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.usage.prompt_tokens",
        "llm.token_count.prompt",
    ),
    cached=(
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.cached_input_tokens",
        "gen_ai.usage.input_tokens.cached",
        "gen_ai.usage.cached_tokens",
        "llm.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    write=(
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "gen_ai.usage.input_tokens.cache_write",
        "llm.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    output=(
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    reasoning=("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
    total=("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total"),
    is_inclusive=True,
    settled_by=None,
)
OTEL_SPEC_KEYS: Final = frozenset(
    ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens")
)
"""Came into the conventions together with the rule that the prompt count includes the cache
(semantic-conventions, pull request 3163); the other names are older or of other makers."""
OTEL_KEYS: Final = frozenset(
    (*OTEL.prompt, *OTEL.cached, *OTEL.write, *OTEL.output, *OTEL.reasoning, *OTEL.total)
)
"""The attributes that `read_attributes` looks at."""

LANGFUSE: Final = Shape(
    name="langfuse",
    marks=("input", "output"),
    prompt=("input",),
    cached=(),
    write=(),
    output=("output",),
    reasoning=(),
    total=("total",),
    is_inclusive=False,
    settled_by=None,
    is_reasoning_apart=True,
)
