"""inference-perf's requests: monotonic seconds, the server's counts win, texts are left behind."""

from __future__ import annotations

from kvtrace.ingest.formats.inference_perf import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

(INFERENCE_PERF,) = FORMATS
GOOD = (DATA / "inference_perf" / "good.json").read_bytes()
DAMAGED = (DATA / "inference_perf" / "damaged.json").read_bytes()
MS = 1_000_000


def test_a_request_with_the_servers_usage() -> None:
    reading = read_bytes(INFERENCE_PERF, GOOD)
    row = reading.requests[0]
    assert (row.llm, row.adapter, row.arrived_at_ns) == ("m-1", "a-1", 500_000 * MS)
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (1_000, 960, 5)
    assert (row.ttft_ns, row.ttft_from, row.e2e_ns) == (500 * MS, "client", 3_000 * MS)
    assert row.tpot_ns == 500 * MS  # 500.5 to 502.5 over the 4 tokens after the first
    assert (row.flags, row.is_benchmark) == ((), True)
    assert reading.context.clock == "monotonic"
    assert "canary" not in repr(reading.requests)


def test_without_usage_the_clients_counts_are_marked() -> None:
    reading = read_bytes(INFERENCE_PERF, GOOD)
    client, late, cancelled = reading.requests[1:]
    assert (client.prompt_tokens, client.cached_tokens, client.output_tokens) == (99, None, 3)
    assert client.flags == ("client_prompt_tokens", "client_output_tokens")
    assert client.ttft_ns == 500 * MS  # no token times: the first chunk
    assert (late.status, late.output_tokens, late.e2e_ns) == ("error", None, 1_500 * MS)
    assert (cancelled.status, cancelled.llm) == ("cancelled", None)
    assert "client_token_counts" in reading.note_codes


def test_damage_is_rejected_and_reversed_times_are_unknown() -> None:
    reading = read_bytes(INFERENCE_PERF, DAMAGED)
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
        (7, "invalid_json"),
    ]
    (row,) = reading.requests
    assert row.e2e_ns is None
    assert "time_order" in row.flags


def test_it_is_recognised() -> None:
    for data in (GOOD, DAMAGED, GOOD[:900]):
        assert sniffed(all_formats(), data) == "inference_perf"
