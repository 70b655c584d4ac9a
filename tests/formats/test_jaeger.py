"""Jaeger's JSON: microseconds, tags, references; the same calls as in OTLP."""

from __future__ import annotations

from kvtrace.ingest.formats.jaeger import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

(JAEGER,) = FORMATS
GOOD = (DATA / "jaeger" / "good.json").read_bytes()
DAMAGED = (DATA / "jaeger" / "damaged.json").read_bytes()
MS = 1_000_000


def test_the_engines_span_is_the_request_and_the_gateways_adds_to_it() -> None:
    reading = read_bytes(JAEGER, GOOD)
    row, failed = reading.requests
    assert row.arrived_at_ns == 1_780_000_000_123_456_000
    assert (row.request_id, row.session_id, row.llm) == ("cmpl-1", "c-1", "m-1")
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (800, 0, 5)
    assert (row.queue_ns, row.prefill_ns, row.ttft_ns) == (250 * MS, 750 * MS, 1_000 * MS)
    assert (row.e2e_ns, row.tpot_ns) == (2_000 * MS, 250 * MS)  # 1 s over 4 tokens
    assert (failed.status, failed.e2e_ns, failed.prompt_tokens) == ("error", MS, None)
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 1_000)
    assert reading.context.engine == "vllm"
    assert reading.note_codes == {"nested_calls_merged"}
    assert "canary" not in repr(reading.requests)


def test_a_document_on_one_line_and_a_trace_a_line_read_the_same() -> None:
    flat = b" ".join(GOOD.split())
    assert read_bytes(JAEGER, flat).requests[0].request_id == "cmpl-1"
    traces = flat[flat.index(b"[") : flat.rindex(b"]") + 1]
    assert len(read_bytes(JAEGER, traces).requests) == 2
    assert sniffed(all_formats(), traces) == "jaeger"


def test_damage_is_rejected_and_odd_values_are_unknown() -> None:
    reading = read_bytes(JAEGER, DAMAGED)
    assert reading.rejected == [
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_json"),
    ]
    assert reading.ignored == {"no_model_call": 1}
    (row,) = reading.requests
    assert (row.arrived_at_ns, row.e2e_ns, row.prompt_tokens, row.output_tokens) == (None,) * 4
    assert row.flags == ("invalid_attribute",)


def test_it_is_recognised_whole_and_by_its_start() -> None:
    assert sniffed(all_formats(), GOOD) == "jaeger"
    assert sniffed(all_formats(), GOOD[: len(GOOD) // 2]) == "jaeger"
    assert sniffed(all_formats(), DAMAGED) == "jaeger"
