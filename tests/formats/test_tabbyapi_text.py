"""TabbyAPI metrics lines: cached and new tokens, times from totals and rates."""

from __future__ import annotations

from datetime import UTC, datetime

from kvtrace.ingest.formats.tabbyapi_text import FORMATS
from tests.formats.reading import DATA, confidence, read_bytes

TABBY = FORMATS[0]
GOOD = (DATA / "tabbyapi_text" / "good.log").read_bytes()
MALFORMED = (DATA / "tabbyapi_text" / "malformed.log").read_bytes()


def test_newer_line_has_cached_tokens_and_times() -> None:
    row = read_bytes(TABBY, GOOD).requests[0]
    assert (row.request_id, row.prompt_tokens, row.cached_tokens) == ("aa", 4024, 1024)
    assert (row.computed_tokens, row.output_tokens) == (3000, 21)
    assert (row.queue_ns, row.prefill_ns) == (50_000_000, 3_000_000_000)  # 3 000 at 1 000 a second
    assert (row.ttft_ns, row.ttft_from) == (3_050_000_000, "arrival")
    assert row.tpot_ns == 50_000_000  # 21 tokens at 21 a second are 1 s, over 20 gaps
    assert row.e2e_ns == 4_050_000_000
    when = datetime.fromtimestamp((row.arrived_at_ns or 0) / 1e9, UTC)
    assert when.isoformat() == "2026-09-12T09:00:35.950000+00:00"
    assert row.flags == ()


def test_indeterminate_rates_are_unknown() -> None:
    row = read_bytes(TABBY, GOOD).requests[1]
    assert (row.prompt_tokens, row.cached_tokens, row.computed_tokens) == (500, 500, 0)
    assert (row.prefill_ns, row.ttft_ns, row.tpot_ns) == (None, None, None)
    assert row.flags == ("total_mismatch",)  # 500 + 0 is not 501


def test_older_line_does_not_know_cached_tokens() -> None:
    reading = read_bytes(TABBY, GOOD)
    row = reading.requests[2]
    assert (row.prompt_tokens, row.cached_tokens, row.computed_tokens) == (300, None, None)
    assert (row.prefill_ns, row.e2e_ns, row.arrived_at_ns) == (None, 5 * 10**9, None)
    assert "cached_tokens_not_printed" in reading.note_codes
    assert reading.context.evidence_grade == "B"
    assert reading.ignored == {"access_line": 1, "other_text": 1}
    older = read_bytes(TABBY, GOOD.splitlines()[3] + b"\n")
    assert older.context.evidence_grade == "L"


def test_damaged_and_wrapped_lines_are_rejected() -> None:
    reading = read_bytes(TABBY, MALFORMED)
    assert reading.rows == []
    assert reading.rejected == [
        (1, "damaged_line"),
        (3, "damaged_line"),
        (4, "damaged_line"),
        (5, "invalid_field"),
        (6, "damaged_line"),
    ]
    assert reading.ignored == {"other_text": 1}  # the rest of the wrapped line


def test_sniff() -> None:
    assert confidence(TABBY, GOOD) > 0.7
    assert confidence(TABBY, b"Metrics: served\n") == 0.0
