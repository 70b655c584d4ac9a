"""vLLM spans in OTLP JSON: integers as strings, V0 and V1, other programs' spans passed over."""

from __future__ import annotations

from kvtrace.ingest.formats.vllm_otel import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

LINES, DOCUMENT = FORMATS
FOLDER = DATA / "vllm_otel"
GOOD = (FOLDER / "good.json").read_bytes()
WHOLE = (FOLDER / "document.json").read_bytes()
DAMAGED = (FOLDER / "damaged.json").read_bytes()
MS = 1_000_000


def test_a_v1_span_is_a_request_with_its_times() -> None:
    row = read_bytes(LINES, GOOD).requests[0]
    assert row.arrived_at_ns == 1_780_000_000_123_456_789
    assert (row.request_id, row.llm) == ("span-1", "tiny-llm")
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (2_048, None, 5)
    assert (row.queue_ns, row.prefill_ns) == (125 * MS, 400 * MS)
    assert (row.ttft_ns, row.ttft_from, row.e2e_ns) == (625 * MS, "arrival", 3_000 * MS)
    assert row.tpot_ns == 500 * MS  # 2.0 s of decode over the 4 tokens after the first
    assert (row.status, row.flags) == ("ok", ())


def test_a_v0_span_lacks_times_that_follow_from_others() -> None:
    reading = read_bytes(LINES, GOOD)
    row = reading.requests[1]
    assert (row.prompt_tokens, row.output_tokens) == (300, 9)
    assert row.prefill_ns == 500 * MS  # 0.75 s to the first token, 0.25 s of it in the queue
    assert row.e2e_ns == 1_000 * MS  # end of the span
    assert row.tpot_ns is None  # two sequences share the tokens
    assert row.status == "error"
    assert reading.context.engine_version == "V0"


def test_exports_without_a_span_of_vllm_are_ignored() -> None:
    reading = read_bytes(LINES, GOOD)
    assert len(reading.requests) == 2
    assert reading.ignored == {"no_vllm_span": 1}
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 1)


def test_one_document_over_many_lines_reads_the_same() -> None:
    assert sniffed(all_formats(), WHOLE) == "vllm_otel_document"
    reading = read_bytes(DOCUMENT, WHOLE)
    assert [row.request_id for row in reading.requests] == ["span-1", "span-2"]
    assert reading.context.tally.used == 1


def test_unusable_attributes_are_unknown_and_damaged_exports_rejected() -> None:
    reading = read_bytes(LINES, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_json"),
        (3, "invalid_json"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
    ]
    (row,) = reading.requests
    assert (row.request_id, row.arrived_at_ns, row.e2e_ns) == (None, None, None)
    assert (row.prompt_tokens, row.output_tokens, row.ttft_ns, row.queue_ns) == (None,) * 4
    assert row.flags == ("invalid_attribute",)


def test_it_is_recognised_and_spans_of_others_are_not() -> None:
    assert sniffed(all_formats(), GOOD) == "vllm_otel"
    assert sniffed(all_formats(), DAMAGED) == "vllm_otel"
    assert sniffed((LINES, DOCUMENT), GOOD.splitlines()[2]) is None


def test_a_long_export_is_recognised_by_its_start() -> None:
    start = WHOLE[: len(WHOLE) // 2]
    assert sniffed(all_formats(), start) == "vllm_otel_document"
