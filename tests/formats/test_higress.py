"""Higress: JSON in JSON, numbers as texts, conversations."""

from __future__ import annotations

import pytest

from kvtrace.ingest.formats.higress import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "higress" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "higress" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_tokens_out_of_the_string() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.prompt_tokens for row in rows] == [100, 100, None, 100, 100, None, 21]
    # line 5 came from the gateway's cache
    assert [row.cached_tokens for row in rows] == [None, 64, None, None, None, None, None]
    assert [row.output_tokens for row in rows] == [10, 10, None, 10, 10, None, 17]
    assert reading.ignored == {"not_an_inference_path": 1}


def test_outcomes_and_times() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.status for row in rows] == [
        "ok",
        "ok",
        "ok",
        "ok",
        "gateway_cache_hit",
        "error",
        "ok",
    ]
    assert [row.ttft_ns for row in rows] == [450 * MS, None, None, 450 * MS, None, None, None]
    # line 2 has no duration of the gateway: that of the service
    assert [row.e2e_ns for row in rows[:3]] == [1_500 * MS, 1_400 * MS, 3 * MS]
    assert {row.arrived_at_ns for row in rows} == {START}  # 04:26:40.25 +08:00
    assert reading.context.clock == "utc"


def test_conversations() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.session_id for row in rows] == ["c1", "s2", None, "c1", None, None, None]


@pytest.mark.parametrize(
    "chat_id", ["chatcmpl-1f", "resp_1f", "msg_1f", "930c60df-bf64-41c9-a88e-3ec75f81e00e"]
)
def test_the_id_of_a_response_is_no_conversation(chat_id: str) -> None:
    line = GOOD.splitlines()[0].replace(b"c1", chat_id.encode())
    (row,) = read_bytes(ENTRY, line).requests
    assert (row.session_id, row.request_id) == (None, "h1")
    # without an id of the gateway, that of the response, which is the engine's
    (bare,) = read_bytes(ENTRY, line.replace(b'"request_id": "h1", ', b"")).requests
    assert (bare.session_id, bare.request_id) == (None, chat_id)


def test_damaged_lines() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 7)),
        (7, "invalid_json"),
    ]
    assert [row.prompt_tokens for row in reading.requests] == [100, None]


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "higress"
    assert sniffed(all_formats(), DAMAGED) == "higress"
