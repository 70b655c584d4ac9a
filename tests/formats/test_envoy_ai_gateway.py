"""Envoy AI Gateway: keys of any operator, absent values, lost clients."""

from __future__ import annotations

import pytest

from kvtrace.ingest.formats.envoy_ai_gateway import FORMATS, role_of
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "envoy_ai_gateway" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "envoy_ai_gateway" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_tokens_of_a_request() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    # line 2: 90 cached and 7 written do not fit in 3, so 3 + 90 + 7; line 6 is a health check
    assert [row.line for row in rows] == [1, 2, 3, 4, 5, 7]
    assert [row.prompt_tokens for row in rows] == [100, 100, None, None, 100, 40]
    assert [row.cached_tokens for row in rows] == [64, 90, None, None, 0, 32]
    assert [row.cache_write_tokens for row in rows] == [None, 7, None, None, None, None]
    assert [row.output_tokens for row in rows] == [10, 5, None, None, 10, 4]
    assert read_bytes(ENTRY, GOOD).ignored == {"not_an_inference_path": 1}


def test_outcomes_and_times() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.status for row in rows] == ["ok", "ok", "error", "cancelled", "cancelled", "ok"]
    assert [row.e2e_ns for row in rows] == [
        1_500 * MS,
        900 * MS,
        12 * MS,
        1_500 * MS,
        1_500 * MS,
        20_500_000,
    ]
    assert rows[0].arrived_at_ns == START
    assert [row.ttft_ns for row in rows] == [None] * 6  # time to the headers is no TTFT
    assert reading.context.clock == "utc"


def test_other_names_for_the_same() -> None:
    row = read_bytes(ENTRY, GOOD).requests[5]
    assert (row.request_id, row.session_id, row.user, row.llm) == ("e7", "s7", "u-1", "tiny-llm")
    assert row.tenant is None
    assert row.request_type == "completions"


@pytest.mark.parametrize(
    ("key", "role"),
    [
        ("gen_ai.usage.input_tokens", "input"),
        ("io.envoy.ai_gateway:llm_output_token", "output"),
        ("llmCachedInputToken", "other"),
        ("gen_ai.usage.reasoning_output_tokens", "other"),
        ("gen_ai.request.max_tokens", "other"),
        ("gen_ai.usage.cache_creation.input_tokens", "write"),
        ("@timestamp", "start"),
        ("x-envoy-upstream-service-time", "other"),
        ("response_duration", "other"),
        ("grpc_status", "other"),
        ("X-Session-Id", "session"),
        ("k" * 101, "other"),
    ],
)
def test_role_of_a_key(key: str, role: str) -> None:
    assert role_of(key) == role


def test_what_nothing_settles_is_noted() -> None:
    reading = read_bytes(ENTRY, GOOD)
    assert reading.note_codes == {"cache_semantics_assumed"}  # line 7 has a total
    assert reading.context.notes[0].message.endswith("otel as including it (1).")


def test_damaged_lines() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 7)),
        (7, "invalid_json"),
    ]
    assert reading.requests[1].flags == ("negative_duration",)


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "envoy_ai_gateway"
    assert sniffed(all_formats(), DAMAGED) == "envoy_ai_gateway"
