"""Cloudflare: its cache is no KV, metadata in a string."""

from __future__ import annotations

from kvtrace.ingest.formats.cloudflare_ai_gateway import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "cloudflare_ai_gateway" / "good.json").read_bytes()
DAMAGED = (DATA / "cloudflare_ai_gateway" / "damaged.jsonl").read_bytes()
MS = 1_000_000


def test_tokens_and_outcomes() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.prompt_tokens for row in rows] == [100, 100, None, 100]
    assert [row.cached_tokens for row in rows] == [None] * 4
    assert [row.status for row in rows] == ["ok", "gateway_cache_hit", "error", "error"]
    assert [row.e2e_ns for row in rows[:2]] == [1_500 * MS, 6 * MS]
    assert reading.context.evidence_grade == "L"


def test_clock_counts_seconds() -> None:
    reading = read_bytes(ENTRY, GOOD)
    assert reading.requests[0].arrived_at_ns == 1_780_000_000_000 * MS
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 1_000 * MS)


def test_ids_out_of_the_metadata() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [(row.session_id, row.user) for row in rows] == [("s1", "u1")] * 2 + [(None, None)] * 2


def test_entries_alone() -> None:
    data = (DATA / "cloudflare_ai_gateway" / "lines.jsonl").read_bytes()
    rows = read_bytes(ENTRY, data).requests
    assert [row.status for row in rows] == ["ok", "gateway_cache_hit"]
    assert [(row.tenant, row.user) for row in rows] == [(None, "u1"), ("t1", None)]
    assert sniffed(all_formats(), data) == "cloudflare_ai_gateway"


def test_damaged_entries() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 6)),
        (6, "invalid_json"),
    ]
    assert [row.request_id for row in reading.requests] == ["d1", "d7"]


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "cloudflare_ai_gateway"
    assert sniffed(all_formats(), DAMAGED) == "cloudflare_ai_gateway"
