"""TraceLab rounds: prompt counts with the cache, submission with the last input."""

from __future__ import annotations

from kvtrace.ingest.formats.tracelab import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

TRACELAB = FORMATS[0]
GOOD = (DATA / "tracelab" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "tracelab" / "damaged.jsonl").read_bytes()
DAY_NS = 1_780_272_000 * 10**9  # 2026-06-01T00:00:00Z


def at(hour: int, minute: int, millisecond: int) -> int:
    return DAY_NS + (hour * 3600 + minute * 60) * 10**9 + millisecond * 10**6


def test_rounds_have_tokens_and_times() -> None:
    reading = read_bytes(TRACELAB, GOOD)
    rows = reading.requests
    assert [row.prompt_tokens for row in rows] == [1000, 1100, 500, 520, 700]
    assert [row.cached_tokens for row in rows] == [600, 990, None, 400, 400]
    assert [row.cache_write_tokens for row in rows] == [390, 108, None, None, None]
    assert [row.output_tokens for row in rows] == [50, 20, 7, 8, 8]
    assert [row.session_id for row in rows] == ["claude:s1"] * 2 + ["codex:s2"] * 3
    assert [row.turn for row in rows] == [0, 1, 0, 1, 2]
    assert [row.request_type for row in rows] == ["claude"] * 2 + ["codex"] * 3
    # the later of two tool results submits; a round without input events has no arrival
    assert [row.arrived_at_ns for row in rows] == [
        at(5, 40, 20_151),
        at(5, 40, 25_500),
        None,
        None,
        at(6, 1, 0),
    ]
    # 23.651 - 20.151 and 26.0 - 25.5; the last round's output is earlier than its input
    assert [row.e2e_ns for row in rows] == [3_500_000_000, 500_000_000, None, None, None]
    # 400 + 120 is not 700
    assert [row.flags for row in rows] == [(), (), (), (), ("total_mismatch", "time_order")]
    assert all(row.ttft_ns is None for row in rows)
    context = reading.context
    assert (context.clock, context.evidence_grade) == ("utc", "B")
    assert reading.note_codes == {"e2e_from_events"}


def test_damaged_rounds_are_rejected() -> None:
    reading = read_bytes(TRACELAB, DAMAGED)
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (6, "invalid_json"),
    ]
    assert [row.prompt_tokens for row in reading.requests] == [10]


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "tracelab"
    assert sniffed(all_formats(), DAMAGED) == "tracelab"
