"""Usage objects of every producer, with numbers by hand, and the contradictory ones."""

from __future__ import annotations

import msgspec
import pytest

from kvtrace.ingest.usage import (
    TokenUsage,
    parsed_count,
    read_attributes,
    read_buckets,
    read_usage,
)


def counts(usage: TokenUsage | None) -> tuple[int | None, ...]:
    """(prompt, cached, written, output, reasoning)."""
    assert usage is not None
    return (
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    )


SETTLED: list[tuple[str, dict[str, object], tuple[int | None, ...]]] = [
    # OpenAI chat, vLLM, SGLang: the prompt includes the cache
    (
        "openai",
        {
            "prompt_tokens": 1000,
            "completion_tokens": 50,
            "prompt_tokens_details": {"cached_tokens": 640, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
        (1000, 640, None, 50, 20),
    ),
    # null details are unknown, also with a total
    (
        "openai",
        {"prompt_tokens": 25, "completion_tokens": 4, "prompt_tokens_details": None},
        (25, None, None, 4, None),
    ),
    (
        "openai",
        {"prompt_tokens": 25, "completion_tokens": 4, "prompt_tokens_details": {}},
        (25, None, None, 4, None),
    ),
    # a measured zero stays one
    (
        "openai",
        {"prompt_tokens": 25, "prompt_tokens_details": {"cached_tokens": 0}},
        (25, 0, None, None, None),
    ),
    # LiteLLM for Anthropic: reads and writes are in prompt_tokens, and stand beside it again
    (
        "openai",
        {
            "prompt_tokens": 900,
            "completion_tokens": 10,
            "prompt_tokens_details": {"cached_tokens": 300, "cache_creation_tokens": 500},
            "cache_read_input_tokens": 300,
            "cache_creation_input_tokens": 500,
        },
        (900, 300, 500, 10, None),
    ),
    # Moonshot writes cached_tokens at the top
    ("openai", {"prompt_tokens": 90, "cached_tokens": 64}, (90, 64, None, None, None)),
    (
        "responses",
        {
            "input_tokens": 800,
            "input_tokens_details": {"cached_tokens": 512, "cache_write_tokens": 256},
            "output_tokens": 70,
            "output_tokens_details": {"reasoning_tokens": 60},
        },
        (800, 512, 256, 70, 60),
    ),
    # Codex rollouts
    (
        "responses",
        {
            "input_tokens": 500,
            "cached_input_tokens": 400,
            "output_tokens": 30,
            "reasoning_output_tokens": 12,
            "total_tokens": 530,
        },
        (500, 400, None, 30, 12),
    ),
    # Anthropic: 10 + 300 + 200; the object cache_creation is its own
    (
        "anthropic",
        {
            "input_tokens": 1000,
            "cache_read_input_tokens": 300,
            "cache_creation_input_tokens": 200,
            "cache_creation": {"ephemeral_5m_input_tokens": 150, "ephemeral_1h_input_tokens": 50},
            "output_tokens": 5,
        },
        (1500, 300, 200, 5, None),
    ),
    # only the split of the writes is known: 150 + 50
    (
        "anthropic",
        {
            "input_tokens": 1000,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 150, "ephemeral_1h_input_tokens": 50},
            "output_tokens": 5,
        },
        (1200, 0, 200, 5, None),
    ),
    # two iterations: prompt (10 + 90) + (20 + 180 + 60), cached 90 + 180, written 0 + 60, output 7
    (
        "anthropic",
        {
            "input_tokens": 20,
            "cache_read_input_tokens": 180,
            "cache_creation_input_tokens": 60,
            "output_tokens": 4,
            "iterations": [
                {
                    "input_tokens": 10,
                    "cache_read_input_tokens": 90,
                    "cache_creation_input_tokens": 0,
                    "output_tokens": 3,
                },
                {
                    "input_tokens": 20,
                    "cache_read_input_tokens": 180,
                    "cache_creation_input_tokens": 60,
                    "output_tokens": 4,
                },
            ],
        },
        (360, 270, 60, 7, None),
    ),
    # Bedrock: 100 + 40 + 20
    (
        "bedrock",
        {
            "inputTokens": 100,
            "cacheReadInputTokens": 40,
            "cacheWriteInputTokens": 20,
            "outputTokens": 9,
        },
        (160, 40, 20, 9, None),
    ),
    # DeepSeek: hit + miss is the prompt
    (
        "deepseek",
        {"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36, "completion_tokens": 2},
        (100, 64, None, 2, None),
    ),
    # Gemini: the output leaves thoughts out, 80 + 120
    (
        "gemini",
        {
            "promptTokenCount": 4000,
            "cachedContentTokenCount": 3072,
            "candidatesTokenCount": 80,
            "thoughtsTokenCount": 120,
        },
        (4000, 3072, None, 200, 120),
    ),
    # unless the total says that it includes them: 4000 + 200
    (
        "gemini",
        {
            "prompt_token_count": 4000,
            "candidates_token_count": 200,
            "thoughts_token_count": 120,
            "total_token_count": 4200,
        },
        (4000, None, None, 200, 120),
    ),
    # cut off while thinking: no candidates
    (
        "gemini",
        {"promptTokenCount": 10, "thoughtsTokenCount": 7, "totalTokenCount": 17},
        (10, None, None, 7, 7),
    ),
    # xAI: reasoning stands beside the completion, 100 + 10 + 30 = 140
    (
        "openai",
        {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "completion_tokens_details": {"reasoning_tokens": 30},
            "total_tokens": 140,
        },
        (100, None, None, 40, 30),
    ),
    (
        "cohere",
        {
            "billed_units": {"input_tokens": 5, "output_tokens": 3},
            "tokens": {"input_tokens": 90, "output_tokens": 3},
            "cached_tokens": 64,
        },
        (90, 64, None, 3, None),
    ),
    ("plain", {"input_tokens": 12, "output_tokens": 3}, (12, None, None, 3, None)),
]


@pytest.mark.parametrize(("shape", "usage", "expected"), SETTLED)
def test_producers(shape: str, usage: dict[str, object], expected: tuple[int | None, ...]) -> None:
    found = read_usage(usage)
    assert found is not None
    assert (found.shape, found.is_assumed, found.flags) == (shape, False, ())
    assert counts(found) == expected


def test_places_of_newer_vllm() -> None:
    found = read_usage(
        {
            "prompt_tokens": 100,
            "prompt_tokens_details": {
                "local_cached_tokens": 32,
                "external_cached_tokens": 16,
                "created_cache_tokens": 48,
            },
        }
    )
    assert found is not None
    assert counts(found) == (100, 48, 48, None, None)  # 32 + 16
    assert (found.cached_device_tokens, found.cached_external_tokens) == (32, 16)


def test_one_place_alone_is_not_the_sum() -> None:
    found = read_usage(
        {"prompt_tokens": 100, "prompt_tokens_details": {"external_cached_tokens": 16}}
    )
    assert found is not None
    assert (found.cached_tokens, found.cached_external_tokens) == (None, 16)


def test_more_cached_than_prompt_means_left_out_even_under_openai_names() -> None:
    found = read_usage({"prompt_tokens": 3, "cache_read_input_tokens": 90, "completion_tokens": 1})
    assert found is not None
    assert (found.prompt_tokens, found.rule) == (93, "cached_exceeds_prompt")


def test_an_impossible_count_that_its_total_confirms_stays_as_it_is() -> None:
    # 10 + 5 = 15: the prompt is 10, and 64 cached of it cannot be
    usage: dict[str, object] = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 64},
    }
    found = read_usage(usage)
    assert found is not None
    assert (found.prompt_tokens, found.cached_tokens, found.rule) == (10, 64, "total")


def test_total_says_that_anthropic_names_are_inclusive() -> None:
    # 11935 + 200 = 12135
    found = read_usage(
        {
            "input_tokens": 11935,
            "cache_read_input_tokens": 5758,
            "cache_creation_input_tokens": 6174,
            "output_tokens": 200,
            "total_tokens": 12135,
        }
    )
    assert found is not None
    assert (found.prompt_tokens, found.rule, found.is_inclusive) == (11935, "total", True)


def test_without_any_evidence_the_usual_reading_is_assumed() -> None:
    found = read_usage({"input_tokens": 500, "cache_read_input_tokens": 100, "output_tokens": 1})
    assert found is not None
    assert (found.prompt_tokens, found.rule, found.is_assumed) == (600, "usual", True)
    dagger = read_usage({"inputTokens": 500, "cachedTokenReads": 100, "outputTokens": 1})
    assert dagger is not None
    assert (dagger.prompt_tokens, dagger.is_assumed) == (600, True)
    ai_sdk = read_usage({"inputTokens": 500, "cachedInputTokens": 100, "outputTokens": 1})
    assert ai_sdk is not None
    assert (ai_sdk.prompt_tokens, ai_sdk.is_assumed) == (500, True)


def test_a_total_that_fits_nothing_is_flagged() -> None:
    found = read_usage({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 99})
    assert found is not None
    assert (found.prompt_tokens, found.output_tokens) == (10, 5)
    assert found.flags == ("total_mismatch",)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 99, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36},
        {
            "prompt_tokens": 99,
            "prompt_tokens_details": {
                "cached_tokens": 9,
                "local_cached_tokens": 4,
                "external_cached_tokens": 4,
            },
        },
        {
            "input_tokens": 1,
            "cache_creation_input_tokens": 7,
            "cache_creation": {"ephemeral_5m_input_tokens": 5},
        },
        # an instrumentation whose total includes the cache in an input that cannot hold it
        {
            "input_tokens": 10,
            "cache_read_input_tokens": 64,
            "output_tokens": 5,
            "total_tokens": 15,
        },
    ],
)
def test_parts_that_disagree_are_flagged(usage: dict[str, object]) -> None:
    found = read_usage(usage)
    assert found is not None
    assert "usage_contradiction" in found.flags


def test_opentelemetry_includes_the_cache_unless_the_numbers_forbid_it() -> None:
    inclusive = read_attributes(
        {
            "gen_ai.usage.input_tokens": "2048",
            "gen_ai.usage.output_tokens": "10",
            "gen_ai.usage.cache_read.input_tokens": "1024",
        }
    )
    assert counts(inclusive) == (2048, 1024, None, 10, None)
    assert inclusive is not None
    assert (inclusive.rule, inclusive.is_assumed, inclusive.is_open) == ("spec", False, True)
    exclusive = read_attributes(
        {
            "gen_ai.usage.input_tokens": 3,
            "gen_ai.usage.cache_read_input_tokens": 5758,
            "gen_ai.usage.cache_creation_input_tokens": 6174,
            "gen_ai.usage.output_tokens": 200,
        }
    )
    assert counts(exclusive) == (11935, 5758, 6174, 200, None)
    older = read_attributes({"gen_ai.usage.prompt_tokens": 5, "gen_ai.usage.completion_tokens": 1})
    assert counts(older) == (5, None, None, 1, None)
    inference = read_attributes(
        {"llm.token_count.prompt": 9, "llm.token_count.prompt_details.cache_read": 0}
    )
    assert counts(inference) == (9, 0, None, None, None)
    assert read_attributes({"gen_ai.request.model": "m"}) is None


def test_langfuse_buckets() -> None:
    # 86 + 17817, and 17903 + 120 = 18023
    apart = read_buckets({"input": 86, "input_cached_tokens": 17817, "output": 120, "total": 18023})
    assert counts(apart) == (17903, 17817, None, 120, None)
    # 117231 + 225 = 117456: the input holds the cache already
    double = read_buckets(
        {"input": 117231, "cache_read_input_tokens": 115584, "output": 225, "total": 117456}
    )
    assert counts(double) == (117231, 115584, None, 225, None)
    # other buckets: 10 + 4 (audio) + 6 cached; 3 + 2 reasoning; 20 + 5 = 25
    several = read_buckets(
        {
            "input": 10,
            "input_audio_tokens": 4,
            "input_cache_read": 6,
            "output": 3,
            "output_reasoning_tokens": 2,
            "total": 25,
        }
    )
    assert counts(several) == (20, 6, None, 5, 2)
    unsure = read_buckets({"input": 100, "input_cached_tokens": 50, "output": 1})
    assert unsure is not None
    assert (unsure.prompt_tokens, unsure.is_assumed) == (150, True)
    renamed = read_buckets({"prompt_tokens": 7, "completion_tokens": 1})
    assert counts(renamed) == (7, None, None, 1, None)


def test_keys_of_other_meaning_are_no_buckets_and_are_not_told() -> None:
    found = read_buckets({"input": 7, "output": 1, "unit": "TOKENS", "mail@secret.invalid": "x"})
    assert counts(found) == (7, None, None, 1, None)
    with pytest.raises(msgspec.ValidationError, match=r"^`usageDetails` is not a count$"):
        read_buckets({"input": 7, "input_secret": "x"})


def test_what_is_no_usage_gives_none() -> None:
    assert read_usage({}) is None
    assert read_usage({"cost": 1, "images": 2}) is None
    assert read_buckets({}) is None


@pytest.mark.parametrize(
    "value",
    [-1, 10.5, "ten", float("nan"), float("inf"), 2**53, True, "1e999", "\u0661", [], 1e300],
)
def test_what_is_no_count_is_refused(value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match="`n`"):
        parsed_count("n", value)


@pytest.mark.parametrize(
    ("value", "count"),
    [(None, None), ("", None), ("-", None), (" 12 ", 12), (12.0, 12), ("12.0", 12), (0, 0)],
)
def test_counts_in_several_forms(value: object, count: int | None) -> None:
    assert parsed_count("n", value) == count


def test_tools_add_to_the_prompt_of_gemini() -> None:
    usage = {"promptTokenCount": 100, "toolUsePromptTokenCount": 20, "candidatesTokenCount": 10}
    found = read_usage({**usage, "totalTokenCount": 130})
    assert counts(found) == (120, None, None, 10, None)
    assert found is not None
    assert found.flags == ()


def test_the_definition_of_bedrock_wins_over_a_total_that_leaves_the_cache_out() -> None:
    usage = {"inputTokens": 100, "outputTokens": 5, "totalTokens": 105, "cacheReadInputTokens": 80}
    found = read_usage(usage)
    assert counts(found) == (180, 80, None, 5, None)
    assert found is not None
    assert (found.rule, found.flags) == ("documented", ("total_mismatch",))


def test_hits_of_deepseek_follow_from_misses() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_miss_tokens": 36}
    assert counts(read_usage(usage)) == (100, 64, None, 5, None)
    assert counts(read_usage({**usage, "prompt_cache_miss_tokens": 136})) == (
        100,
        None,
        None,
        5,
        None,
    )


def test_counts_that_contradict_each_other_are_unknown() -> None:
    hits = {"prompt_tokens": 100, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 1}
    assert counts(read_usage(hits)) == (100, None, None, None, None)
    places = {"cached_tokens": 50, "local_cached_tokens": 10, "external_cached_tokens": 10}
    split = read_usage({"prompt_tokens": 100, "prompt_tokens_details": places})
    assert split is not None
    assert (split.cached_tokens, split.cached_device_tokens) == (None, None)
    assert split.flags == ("usage_contradiction",)
