"""Codex rollouts: each call once, its own usage, arrivals from the inputs."""

from __future__ import annotations

from kvtrace.ingest.formats.codex_rollout import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "codex_rollout" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "codex_rollout" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_every_call_once_with_its_own_usage() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.prompt_tokens for row in rows] == [1000, 1200, 1300, 1400]
    assert [row.cached_tokens for row in rows] == [0, 1024, 1152, 0]
    assert [row.output_tokens for row in rows] == [50, 30, 20, 20]
    assert reading.ignored == {
        "no_token_count": 6,
        "token_count_without_usage": 1,
        "repeated_token_count": 1,
    }


def test_session_turns_and_model() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.turn for row in rows] == [0, 1, 2, 3]
    assert {(row.session_id, row.llm) for row in rows} == {("sess-1", "codex-x")}


def test_arrival_is_the_last_input_before_the_call() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    # a message at 40.25, the output of a tool at 46.25, nothing (end at 55), a message at 60
    assert [(row.arrived_at_ns or 0) - START for row in rows] == [
        0,
        6_000 * MS,
        14_750 * MS,
        19_750 * MS,
    ]
    assert [row.flags for row in rows] == [(), (), ("time_is_end",), ()]
    assert reading.note_codes == {"arrival_from_input"}
    assert reading.context.clock == "utc"


def test_damaged_lines() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(4, 8)),
        (8, "invalid_json"),
        (9, "invalid_field"),
    ]
    assert [row.turn for row in reading.requests] == [0, 1]
    assert reading.requests[1].flags == ("time_is_end", "cached_above_prompt")  # 1100 + 50 = 1150


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "codex_rollout"
    assert sniffed(all_formats(), DAMAGED) == "codex_rollout"
