"""llm-d endpoint picker: recognised, and never taken for evidence of hits."""

from __future__ import annotations

from kvtrace.ingest.formats.llmd_text import FORMATS
from tests.formats.reading import DATA, confidence, read_bytes

LLMD = FORMATS[0]
GOOD = (DATA / "llmd_text" / "good.jsonl").read_bytes()
MALFORMED = (DATA / "llmd_text" / "malformed.jsonl").read_bytes()


def test_routing_events_are_counted_and_give_no_rows() -> None:
    reading = read_bytes(LLMD, GOOD)
    assert reading.rows == []
    assert reading.ignored == {"routing_event": 2, "other_program": 1}
    assert confidence(LLMD, GOOD) > 0.3


def test_other_json_is_not_its_own() -> None:
    reading = read_bytes(LLMD, MALFORMED)
    assert "routing_event" not in reading.ignored
    assert confidence(LLMD, MALFORMED) == 0.0
