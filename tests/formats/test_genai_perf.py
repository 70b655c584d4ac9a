"""genai-perf's profile export: times of responses, counts from usage chunks, no texts."""

from __future__ import annotations

from kvtrace.ingest.formats.genai_perf import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

(GENAI_PERF,) = FORMATS
GOOD = (DATA / "genai_perf" / "good.json").read_bytes()
DAMAGED = (DATA / "genai_perf" / "damaged.json").read_bytes()
MS = 1_000_000


def test_a_stream_has_times_and_the_counts_of_its_usage() -> None:
    reading = read_bytes(GENAI_PERF, GOOD)
    row = reading.requests[0]
    assert (row.arrived_at_ns, row.session_id, row.llm) == (1_780_000_000_000 * MS, "s-1", "m-1")
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (600, 512, 4)
    assert (row.ttft_ns, row.e2e_ns, row.tpot_ns) == (100 * MS, 400 * MS, 100 * MS)
    assert (row.ttft_from, row.status, row.is_benchmark) == ("client", "ok", True)
    assert "done_counts_as_end" in reading.note_codes
    assert "canary" not in repr(reading.requests)


def test_no_response_is_a_failure_and_a_whole_body_no_first_token() -> None:
    failed, whole = read_bytes(GENAI_PERF, GOOD).requests[1:]
    assert (failed.status, failed.ttft_ns, failed.e2e_ns, failed.llm) == ("error",) + (None,) * 3
    assert (whole.ttft_ns, whole.e2e_ns) == (None, 300 * MS)
    assert (whole.prompt_tokens, whole.output_tokens) == (7, 1)


def test_empty_responses_alone_are_a_failure() -> None:
    document = (
        b'{"experiments": [{"requests": [{"timestamp": 1780000000000000000, "response_timestamps":'
        b' [1780000000100000000], "response_outputs": [{"response": ""}]}, {"timestamp":'
        b' 1780000000000000000, "response_timestamps": [1780000000100000000,'
        b' 1780000000200000000], "response_outputs": [{"response": "data: {}"},'
        b' {"response": ""}]}]}]}'
    )
    assert [row.status for row in read_bytes(GENAI_PERF, document).requests] == ["error", "ok"]


def test_small_times_are_no_dates() -> None:
    reading = read_bytes(GENAI_PERF, GOOD.replace(b"178000000", b"17"))
    assert reading.context.clock == "monotonic"
    assert reading.requests[0].ttft_ns == 100 * MS


def test_damage_is_rejected() -> None:
    reading = read_bytes(GENAI_PERF, DAMAGED)
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (6, "invalid_json"),
    ]
    (row,) = reading.requests
    assert (row.e2e_ns, row.flags) == (None, ("time_order",))


def test_it_is_recognised_whole_and_by_its_start() -> None:
    assert sniffed(all_formats(), GOOD) == "genai_perf"
    assert sniffed(all_formats(), DAMAGED) == "genai_perf"
    assert sniffed(all_formats(), GOOD[: len(GOOD) - 200]) == "genai_perf"
