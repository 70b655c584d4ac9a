"""Azure traces: exact times, all zone forms, bad cells counted, reuse unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.errors import UsageError
from kvtrace.ingest.formats.azure import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, decoded, read_bytes, sniffed

AZURE = FORMATS[0]
GOOD_2023 = (DATA / "azure" / "good_2023.csv").read_bytes()
GOOD_2025 = (DATA / "azure" / "good_2025.csv").read_bytes()
MALFORMED = (DATA / "azure" / "malformed.csv").read_bytes()


def test_seven_fraction_digits_are_exact() -> None:
    reading = read_bytes(AZURE, GOOD_2023)
    # 2023-11-16T18:17:03Z is 1 700 158 623 s; .9799601 s is 979 960 100 ns
    assert reading.requests[0].arrived_at_ns == 1_700_158_623_979_960_100
    assert reading.context.clock_resolution_ns == 100


def test_last_row_without_line_end_counts() -> None:
    reading = read_bytes(AZURE, GOOD_2023)
    assert [row.prompt_tokens for row in reading.requests] == [480, 318, 11]
    assert [row.output_tokens for row in reading.requests] == [10, 8, 2]
    assert reading.context.tally.used == 3
    assert reading.ignored == {"header": 1}


def test_nothing_is_said_about_reuse() -> None:
    row = read_bytes(AZURE, GOOD_2023).requests[0]
    assert row.cached_tokens is None
    assert row.block_keys is None
    assert row.request_id is None
    assert AZURE.best_grade == "L"


def test_naive_clock_is_taken_as_utc_with_a_note() -> None:
    reading = read_bytes(AZURE, GOOD_2023)
    assert reading.context.clock == "naive"
    assert "naive_clock" in reading.note_codes


def test_naive_clock_moves_with_tz() -> None:
    reading = read_bytes(AZURE, GOOD_2023, tz="America/New_York")
    # New York was 5 h behind UTC on 16 November
    assert reading.requests[0].arrived_at_ns == 1_700_158_623_979_960_100 + 5 * 3600 * 10**9
    assert reading.context.clock == "utc"


def test_unknown_zone_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="not a known time zone"):
        read_bytes(AZURE, GOOD_2023, tz="Mars/Olympus")


def test_zone_forms_give_the_same_clock() -> None:
    reading = read_bytes(AZURE, GOOD_2025, tz="America/New_York")
    start = 1_728_993_600  # 2024-10-15T12:00:00Z
    assert [row.arrived_at_ns for row in reading.requests] == [
        start * 10**9 + 269_000_000,
        (start + 5) * 10**9 + 500_000_000,
        (start + 6) * 10**9,
    ]
    assert reading.context.clock == "utc"
    assert reading.context.clock_resolution_ns == 1_000_000
    assert [row.request_type for row in reading.requests] == [None, "image", "image"]


def test_bad_rows_are_rejected_with_their_line() -> None:
    reading = read_bytes(AZURE, MALFORMED)
    assert reading.rejected == [
        (3, "negative_number"),
        (4, "invalid_number"),
        (5, "invalid_time"),
        (6, "invalid_time"),
        (7, "wrong_cell_count"),
        (8, "number_too_large"),
        (9, "invalid_number"),
        (13, "invalid_time"),
    ]
    assert reading.ignored == {"header": 1, "repeated_header": 1}
    assert [row.prompt_tokens for row in reading.requests] == [12, 0, 5]
    assert reading.requests[1].flags == ("zero_prompt",)
    assert reading.blank == 1


def test_reject_details_hold_no_value_of_the_row() -> None:
    details = [detail for _, _, detail in read_bytes(AZURE, MALFORMED).context.tally.rejects]
    assert all(detail and "yesterday" not in detail for detail in details)


def test_mixed_zones_are_noted() -> None:
    data = (
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
        b"2024-05-12 00:00:00,1,1\n2024-05-12 00:00:00Z,1,1\n"
    )
    reading = read_bytes(AZURE, data)
    assert reading.context.clock == "naive"
    assert "mixed_zones" in reading.note_codes


def test_header_alone_has_no_rows() -> None:
    reading = read_bytes(AZURE, b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n")
    assert reading.rows == []
    assert reading.context.clock == "order"


def test_row_before_the_header_is_rejected() -> None:
    reading = read_bytes(AZURE, b"2024-05-12 00:00:00,1,1\n")
    assert reading.rejected == [(1, "no_header")]


def test_it_is_recognised_by_its_header() -> None:
    assert sniffed(all_formats(), GOOD_2023) == "azure"
    assert sniffed(all_formats(), GOOD_2025) == "azure"
    assert sniffed(all_formats(), MALFORMED) == "azure"


@pytest.mark.shared
def test_code_trace_of_2023_in_full(shared_dir: Path) -> None:
    reading = read_bytes(AZURE, decoded(shared_dir / "traces" / "azure2023_code.csv.gz"))
    rows = reading.requests
    assert len(rows) == 8_819
    assert sum(row.prompt_tokens or 0 for row in rows) == 18_059_974
    assert sum(row.output_tokens or 0 for row in rows) == 245_896
    assert reading.rejected == []
    times = [row.arrived_at_ns or 0 for row in rows]
    assert times == sorted(set(times))
    # 57 min 15.9 s
    assert times[-1] - times[0] == pytest.approx(3_435.9e9, abs=0.1e9)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rows", "prompt", "output"),
    [
        ("azure2023_code_head.csv", 30, 73_839, 692),
        ("azure2024_week_style.csv", 4, 10_229, 53),
        ("azure_lmm_2025_style.csv", 5, 7_325, 838),
        ("nasty/bom_crlf.csv", 2, 7_988, 18),
        ("nasty/header_only.csv", 0, 0, 0),
    ],
)
def test_excerpts_have_their_expected_sums(
    shared_dir: Path, name: str, rows: int, prompt: int, output: int
) -> None:
    reading = read_bytes(AZURE, decoded(shared_dir / "trace_excerpts" / name))
    assert len(reading.requests) == rows
    assert sum(row.prompt_tokens or 0 for row in reading.requests) == prompt
    assert sum(row.output_tokens or 0 for row in reading.requests) == output
    assert reading.rejected == []


@pytest.mark.shared
def test_utf16_excerpt_has_one_row(shared_dir: Path) -> None:
    reading = read_bytes(AZURE, decoded(shared_dir / "trace_excerpts" / "nasty" / "utf16.csv"))
    assert len(reading.requests) == 1


@pytest.mark.shared
def test_week_style_zones(shared_dir: Path) -> None:
    path = shared_dir / "trace_excerpts" / "azure2024_week_style.csv"
    reading = read_bytes(AZURE, decoded(path))
    assert [row.arrived_at_ns for row in reading.requests] == [
        1_715_472_000_003_948_000,
        1_715_472_000_009_000_000,
        1_715_472_001_000_000_000,
        1_715_472_001_500_000_000,
    ]
    assert reading.context.clock == "utc"
