"""AIBrix gateway lines: one row a request, from its start to its end."""

from __future__ import annotations

from datetime import UTC, datetime

from kvtrace.ingest.formats.aibrix_text import FORMATS
from tests.formats.reading import DATA, confidence, read_bytes

AIBRIX = FORMATS[0]
GOOD = (DATA / "aibrix_text" / "good.log").read_bytes()
MALFORMED = (DATA / "aibrix_text" / "malformed.log").read_bytes()


def test_start_and_end_are_one_row_with_its_time() -> None:
    reading = read_bytes(AIBRIX, GOOD)
    first = reading.requests[0]
    assert (first.request_id, first.llm, first.status) == ("a1", "m", "ok")
    assert (first.prompt_tokens, first.output_tokens, first.cached_tokens) == (100, 20, None)
    assert first.e2e_ns == 1_500_000_000  # 23:59:58.75 to 00:00:00.25
    when = datetime.fromtimestamp((first.arrived_at_ns or 0) / 1e9, UTC)
    assert when.isoformat() == "2025-07-28T23:59:58.750000+00:00"  # year of the file's mtime
    assert reading.ignored == {"gateway_event": 1, "other_program": 1}


def test_starts_without_end_and_ends_without_start_are_rows_too() -> None:
    rows = read_bytes(AIBRIX, GOOD).requests
    assert [(row.request_id, row.status, row.e2e_ns, row.flags) for row in rows[1:]] == [
        ("a2", "open", None, ()),  # its id came again before an end
        ("a0", "ok", None, ("total_mismatch", "dated_by_end")),  # 7 + 1 is not 9
        ("a2", "ok", 1_000_000_000, ("no_usage",)),
    ]
    assert (rows[3].prompt_tokens, rows[3].output_tokens) == (None, None)  # 0 of 0: not told


def test_damaged_lines_are_rejected() -> None:
    reading = read_bytes(AIBRIX, MALFORMED)
    assert reading.rows == []
    assert reading.ignored == {"other_program": 1}  # `"request_e` may be anyone's
    reasons = [reason for _line, reason in reading.rejected]
    assert reasons == ["damaged_line"] * 5 + ["invalid_time", "damaged_line"]


def test_sniff() -> None:
    assert confidence(AIBRIX, GOOD) > 0.8
    assert confidence(AIBRIX, b'I0728 23:59:58.500000 1 a.go:9] "request denied" x="1"\n') == 0.0
