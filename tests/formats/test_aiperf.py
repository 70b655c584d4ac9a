"""AIPerf's records: units are read, warm-up left out, counts of server and client kept apart."""

from __future__ import annotations

from kvtrace.ingest.formats.aiperf import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

(AIPERF,) = FORMATS
GOOD = (DATA / "aiperf" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "aiperf" / "damaged.jsonl").read_bytes()
MS = 1_000_000


def test_a_request_with_the_servers_counts() -> None:
    row = read_bytes(AIPERF, GOOD).requests[0]
    assert (row.request_id, row.session_id, row.turn) == ("id-1", "c-1", 0)
    assert row.arrived_at_ns == 1_780_000_001_000 * MS
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (1_000, 960, 4)
    assert (row.ttft_ns, row.ttft_from, row.e2e_ns) == (500 * MS, "client", 2_000 * MS)
    assert row.tpot_ns == 500 * MS  # 1.5 s over the 3 tokens after the first
    assert (row.status, row.flags, row.is_benchmark) == ("ok", (), True)


def test_units_are_those_of_each_metric() -> None:
    row = read_bytes(AIPERF, GOOD).requests[1]
    assert (row.ttft_ns, row.e2e_ns, row.tpot_ns) == (250 * MS, 500 * MS, 250 * MS)
    assert (row.prompt_tokens, row.output_tokens, row.cached_tokens) == (77, 2, None)
    assert row.flags == ("client_prompt_tokens", "client_output_tokens")


def test_warm_up_is_left_out_and_failures_keep_what_is_known() -> None:
    reading = read_bytes(AIPERF, GOOD)
    assert reading.ignored == {"warmup": 1}
    failed, cancelled = reading.requests[2:4]
    assert (failed.status, cancelled.status) == ("error", "cancelled")
    assert (failed.prompt_tokens, failed.output_tokens, failed.ttft_ns) == (50, None, None)
    assert (failed.e2e_ns, cancelled.e2e_ns) == (10 * MS, 20 * MS)  # from the ends
    assert (reading.context.clock, reading.context.evidence_grade) == ("utc", None)
    assert "canary" not in repr(reading.requests)


def test_the_servers_cached_tokens_are_never_set_against_the_clients_prompt() -> None:
    client, split = read_bytes(AIPERF, GOOD).requests[4:]
    assert (client.prompt_tokens, client.cached_tokens) == (100, None)
    assert client.e2e_ns == 500 * MS  # a unit that nobody knows: from the ends
    assert "unknown_unit" in client.flags
    assert (split.prompt_tokens, split.cached_tokens) == (120, 90)  # 90 read + 30 missed


def test_damage_is_rejected() -> None:
    reading = read_bytes(AIPERF, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_json"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
        (7, "invalid_field"),
        (9, "invalid_json"),
    ]
    whole, without_ttft = reading.requests
    assert whole.request_id == "id-2"
    assert (without_ttft.ttft_ns, without_ttft.tpot_ns) == (None, None)


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "aiperf"
    assert sniffed(all_formats(), DAMAGED) == "aiperf"
