"""NIM responses with stats: lengths and times, the text stepped over."""

from __future__ import annotations

from kvtrace.ingest.formats.nim_response import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

NIM = FORMATS[0]
GOOD = (DATA / "nim_response" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "nim_response" / "damaged.jsonl").read_bytes()


def test_lengths_and_times_of_a_response() -> None:
    first, second = read_bytes(NIM, GOOD).requests
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (700, 512, 20)
    assert (first.queue_ns, first.ttft_ns, first.tpot_ns) == (12_500_000, 110_250_000, 20_500_000)
    assert (first.request_id, first.llm, first.ttft_from) == ("nim-1", "tiny-llm", "arrival")
    # no llm_output_token_length: the length of the response
    assert (second.prompt_tokens, second.cached_tokens, second.output_tokens) == (9, None, 2)
    assert (second.ttft_ns, second.flags) == (None, ("negative_ttft",))


def test_chunks_without_stats_are_ignored_and_text_is_not_kept() -> None:
    reading = read_bytes(NIM, GOOD)
    assert reading.ignored == {"without_stats": 1}
    assert "secret" not in repr(reading.rows)


def test_arrival_is_the_second_of_creation() -> None:
    reading = read_bytes(NIM, GOOD)
    assert reading.requests[0].arrived_at_ns == 1_780_000_000_000_000_000
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 10**9)
    assert read_bytes(NIM, DAMAGED).context.clock == "order"


def test_damaged_responses_are_rejected() -> None:
    reading = read_bytes(NIM, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_json"),
    ]
    assert [row.request_id for row in reading.requests] == ["nim-1"]


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "nim_response"
    assert sniffed(all_formats(), DAMAGED) == "nim_response"
