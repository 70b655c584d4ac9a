"""BurstGPT traces: relative seconds, failures by empty response, sessions where given."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.formats.burstgpt import FORMATS
from kvtrace.ingest.modelnames import NameBook
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, decoded, read_bytes, sniffed

BURST = FORMATS[0]
GOOD_V1 = (DATA / "burstgpt" / "good_v1.csv").read_bytes()
GOOD_V3 = (DATA / "burstgpt" / "good_v3.csv").read_bytes()
MALFORMED = (DATA / "burstgpt" / "malformed.csv").read_bytes()


def test_timestamp_is_never_an_epoch() -> None:
    reading = read_bytes(BURST, GOOD_V3)
    start = 19_440_110_000_000_000
    arrivals = [row.arrived_at_ns for row in reading.requests]
    assert arrivals == [start, start + 1_250_000_000, start + 2_000_000_000]
    assert reading.context.clock == "relative"
    assert reading.context.clock_resolution_ns == 10_000_000


def test_elapsed_time_is_the_full_duration() -> None:
    rows = read_bytes(BURST, GOOD_V3).requests
    assert [row.e2e_ns for row in rows] == [43_000_000_000, 500_000_000, 0]
    assert all(row.ttft_ns is None for row in rows)


def test_v1_has_no_duration_and_no_session() -> None:
    rows = read_bytes(BURST, GOOD_V1).requests
    assert [(row.e2e_ns, row.session_id) for row in rows] == [(None, None), (None, None)]
    assert [row.llm for row in rows] == ["ChatGPT", "GPT-4"]
    assert [row.request_type for row in rows] == ["conversation", "api"]


def test_empty_response_is_an_error() -> None:
    assert [row.status for row in read_bytes(BURST, GOOD_V1).requests] == ["ok", "error"]
    assert [row.status for row in read_bytes(BURST, GOOD_V3).requests] == ["ok", "ok", "error"]


def test_empty_session_is_unknown() -> None:
    sessions = [row.session_id for row in read_bytes(BURST, GOOD_V3).requests]
    assert sessions == ["00000000-0000-4000-8000-00000000000a", None, None]


def test_bad_rows_are_rejected_with_their_line() -> None:
    reading = read_bytes(BURST, MALFORMED)
    assert reading.rejected == [
        (3, "negative_number"),
        (4, "invalid_number"),
        (5, "invalid_number"),
        (8, "wrong_cell_count"),
        (9, "number_too_large"),
    ]
    assert [row.llm for row in reading.requests] == ["ChatGPT", "ChatGPT", "Chat,GPT"]
    assert [row.flags for row in reading.requests] == [(), ("total_mismatch",), ()]


def test_it_is_recognised_by_its_header() -> None:
    assert sniffed(all_formats(), GOOD_V1) == "burstgpt"
    assert sniffed(all_formats(), GOOD_V3) == "burstgpt"


@pytest.mark.shared
def test_v1_excerpt(shared_dir: Path) -> None:
    path = shared_dir / "trace_excerpts" / "burstgpt_v1_style.csv"
    rows = read_bytes(BURST, decoded(path)).requests
    assert [row.prompt_tokens for row in rows] == [472, 1087, 417, 900, 34]
    assert sum(row.output_tokens or 0 for row in rows) == 531
    assert [row.status for row in rows] == ["ok", "ok", "ok", "error", "ok"]


@pytest.mark.shared
def test_v3_excerpt(shared_dir: Path) -> None:
    path = shared_dir / "trace_excerpts" / "burstgpt_v3_style.csv"
    rows = read_bytes(BURST, decoded(path)).requests
    assert [row.arrived_at_ns for row in rows] == [
        (19_440_110 + s) * 10**9 for s in (0, 51, 90, 91, 93)
    ]
    assert [row.e2e_ns for row in rows] == [s * 10**9 for s in (43, 2, 12, 1, 0)]
    assert [row.status for row in rows] == ["ok", "ok", "ok", "ok", "error"]
    assert sum(row.prompt_tokens or 0 for row in rows) == 2_742
    assert sum(row.output_tokens or 0 for row in rows) == 621
    assert rows[0].session_id == rows[2].session_id != rows[1].session_id
    assert rows[3].session_id is None


def test_kinds_of_log_are_names_and_only_conversations_have_sessions() -> None:
    placed = GOOD_V3.replace(b"19440111.25,,", b"19440111.25,-,")
    rows = read_bytes(BURST, placed).requests
    assert [row.request_type for row in rows] == ["conversation", "api", "api"]
    assert [row.session_id is None for row in rows] == [False, True, True]
    # a text with spaces would be shown as hidden-1
    assert all(NameBook().kind(str(row.request_type)) == row.request_type for row in rows)
