"""Helicone: exports as JSON and CSV, its own status codes, its cache."""

from __future__ import annotations

from kvtrace.ingest.formats.helicone import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "helicone" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "helicone" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_tokens_and_outcomes() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.status for row in rows] == [
        "ok",
        "ok",
        "gateway_cache_hit",
        "cancelled",
        "error",
        "ok",
        "ok",
        "error",
    ]
    assert [row.prompt_tokens for row in rows] == [100, 100, 100, 100, None, 100, 100, 100]
    assert [row.cached_tokens for row in rows] == [64, None, None, 64, None, 64, 64, 64]
    assert [row.output_tokens for row in rows] == [10, 10, 10, 0, None, 10, 10, 10]


def test_times_and_ids() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert {row.arrived_at_ns for row in rows} == {START}
    assert [row.ttft_ns for row in rows] == [450 * MS] + [None] * 4 + [450 * MS] * 2 + [None]
    assert [row.e2e_ns for row in rows[:3]] == [1_500 * MS, 1_500 * MS, 5 * MS]
    assert [row.session_id for row in rows[:2]] == ["s1", None]
    assert rows[5].session_id == "s6"
    assert (rows[0].user, rows[0].tenant) == ("u1", None)
    assert reading.context.clock == "naive"


def test_without_a_total_the_meaning_of_the_prompt_count_is_assumed() -> None:
    notes = {note.code: note.message for note in read_bytes(ENTRY, GOOD).context.notes}
    assert notes["cache_semantics_assumed"].endswith("openai as including it (1).")  # h6
    flagged = [
        row.request_id
        for row in read_bytes(ENTRY, GOOD).requests
        if "cache_semantics_assumed" in row.flags
    ]
    assert flagged == ["h6"]


def test_rows_of_the_csv() -> None:
    data = (DATA / "helicone" / "export.csv").read_bytes()
    reading = read_bytes(FORMATS[1], data)
    first, second = reading.requests
    assert (first.prompt_tokens, first.cached_tokens, first.ttft_ns) == (100, 64, 450 * MS)
    assert (second.line, second.status, second.prompt_tokens) == (4, "error", None)
    assert (second.arrived_at_ns, second.e2e_ns) == (START + 1_000 * MS, 20 * MS)
    assert "secret" not in repr(reading.rows)
    assert sniffed(all_formats(), data) == "helicone_csv"


def test_damaged_rows_of_the_csv() -> None:
    data = (DATA / "helicone" / "damaged.csv").read_bytes()
    assert read_bytes(FORMATS[1], data).rejected == [
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "wrong_cell_count"),
    ]


def test_damaged_entries() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 6)),
        (6, "invalid_json"),
    ]
    assert reading.requests[1].flags == ("negative_delay_ms", "negative_time_to_first_token")


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "helicone"
    assert sniffed(all_formats(), DAMAGED) == "helicone"
