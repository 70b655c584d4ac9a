"""Vidur traces: with arrivals, and lengths alone."""

from __future__ import annotations

from kvtrace.ingest.formats.vidur import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

VIDUR = FORMATS[0]
ARRIVALS = (DATA / "vidur" / "arrivals.csv").read_bytes()
LENGTHS = (DATA / "vidur" / "lengths.csv").read_bytes()
DAMAGED = (DATA / "vidur" / "damaged.csv").read_bytes()


def test_rows_have_lengths_and_times() -> None:
    reading = read_bytes(VIDUR, ARRIVALS)
    assert [row.arrived_at_ns for row in reading.requests] == [0, 1_500_000_000, None]
    assert [row.prompt_tokens for row in reading.requests] == [100, 200, 300]
    assert [row.output_tokens for row in reading.requests] == [7, 8, 9]
    assert reading.context.clock == "relative"
    assert reading.note_codes == {"arrival_unknown"}


def test_lengths_alone_have_no_clock() -> None:
    reading = read_bytes(VIDUR, LENGTHS)
    assert [row.prompt_tokens for row in reading.requests] == [3772, 2015]
    # 2015 + 156 is 2171, not 2170
    assert [row.flags for row in reading.requests] == [(), ("total_mismatch",)]
    assert reading.context.clock == "order"


def test_damaged_rows_are_rejected() -> None:
    reading = read_bytes(VIDUR, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_number"),
        (3, "invalid_time"),
        (4, "invalid_number"),
        (6, "wrong_cell_count"),
    ]
    assert [row.arrived_at_ns for row in reading.requests] == [2_000_000_000]


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), ARRIVALS) == "vidur"
    assert sniffed(all_formats(), LENGTHS) == "vidur"
