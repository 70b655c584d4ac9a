"""Kong: two spellings of usage, plugins beside each other, its cache."""

from __future__ import annotations

from kvtrace.ingest.formats.kong import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

ENTRY = FORMATS[0]
GOOD = (DATA / "kong" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "kong" / "damaged.jsonl").read_bytes()
MS = 1_000_000
START = 1_780_000_000_250 * MS  # 2026-05-28T20:26:40.25Z


def test_tokens_in_both_spellings() -> None:
    reading = read_bytes(ENTRY, GOOD)
    rows = reading.requests
    assert [row.prompt_tokens for row in rows] == [100, 28, 100, 28, None, 5]
    assert [row.cached_tokens for row in rows] == [64, None, None, None, None, None]
    assert [row.output_tokens for row in rows] == [10, 20, 10, 20, None, 0]
    assert reading.ignored == {"without_llm_call": 1}


def test_outcomes_and_times() -> None:
    rows = read_bytes(ENTRY, GOOD).requests
    assert [row.status for row in rows] == [
        "ok",
        "ok",
        "gateway_cache_hit",
        "ok",
        "error",
        "cancelled",
    ]
    assert [row.ttft_ns for row in rows] == [450 * MS, None, None, None, None, None]
    assert [row.e2e_ns for row in rows[:3]] == [1_500 * MS, 1_500 * MS, 9 * MS]
    assert [row.tpot_ns for row in rows] == [None] * 6  # time_per_token holds the first token too
    assert {row.arrived_at_ns for row in rows} == {START}


def test_the_proxy_counts_and_not_the_plugin_that_rewrites() -> None:
    row = read_bytes(ENTRY, GOOD).requests[3]
    assert (row.request_id, row.llm, row.prompt_tokens) == ("k5", "old", 28)
    assert row.tenant == "con-1"


def test_a_hit_of_the_cache_plugin_is_no_call_to_the_engine() -> None:
    call = (
        b'{"started_at": 1780000000250, "latencies": {"request": 5}, "response": {"status": 200},'
        b' "ai": {"ai-semantic-cache": {"cache": {"cache_status": "Hit"}}, "ai-proxy-advanced":'
        b' {"usage": {"prompt_tokens": 100, "completion_tokens": 5}, "meta": {}}}}'
    )
    alone = call[: call.index(b', "ai-proxy')] + b"}}"
    missed = call.replace(b"Hit", b"Miss")
    rows = read_bytes(ENTRY, b"\n".join((call, alone, missed))).requests
    assert [row.status for row in rows] == ["gateway_cache_hit", "gateway_cache_hit", "ok"]
    assert [row.prompt_tokens for row in rows] == [100, None, 100]


def test_what_does_not_stream_has_no_first_token() -> None:
    first = GOOD.split(b"\n")[0]
    (row,) = read_bytes(
        ENTRY, first.replace(b'"meta": {', b'"meta": {"request_mode": "oneshot", ')
    ).requests
    assert (row.ttft_ns, row.e2e_ns) == (None, 1_500 * MS)


def test_damaged_entries() -> None:
    reading = read_bytes(ENTRY, DAMAGED)
    assert reading.rejected == [
        *((line, "invalid_field") for line in range(2, 6)),
        (6, "invalid_json"),
    ]
    assert [row.flags for row in reading.requests] == [
        (),
        ("negative_latency",),
        ("time_not_an_epoch",),
    ]


def test_no_text_host_or_name_is_kept() -> None:
    assert "secret" not in repr(read_bytes(ENTRY, GOOD).rows)
    assert b"secret" in GOOD


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "kong"
    assert sniffed(all_formats(), DAMAGED) == "kong"
