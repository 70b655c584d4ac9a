"""splitwise-sim traces: lengths and arrivals."""

from __future__ import annotations

from kvtrace.ingest.formats.splitwise import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

SPLITWISE = FORMATS[0]
GOOD = (DATA / "splitwise" / "good.csv").read_bytes()
DAMAGED = (DATA / "splitwise" / "damaged.csv").read_bytes()


def test_rows_have_lengths_and_times() -> None:
    reading = read_bytes(SPLITWISE, GOOD)
    rows = reading.requests
    assert [row.arrived_at_ns for row in rows] == [0, 57_100_000, 3_250_000_000]
    assert [row.prompt_tokens for row in rows] == [374, 396, 0]
    assert [row.output_tokens for row in rows] == [44, 109, 55]
    assert [row.tenant for row in rows] == ["0", "0", "1"]
    assert [row.request_id for row in rows] == ["0", "1", "2"]
    assert [row.flags for row in rows] == [(), (), ("zero_prompt",)]
    assert reading.context.clock == "relative"
    assert reading.context.clock_resolution_ns == 100_000  # 0.0571
    assert reading.ignored == {"header": 1}


def test_damaged_rows_are_rejected() -> None:
    reading = read_bytes(SPLITWISE, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_time"),
        (3, "invalid_number"),
        (4, "negative_number"),
        (5, "wrong_cell_count"),
        (7, "invalid_time"),
    ]
    assert [row.prompt_tokens for row in reading.requests] == [12]


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "splitwise"
