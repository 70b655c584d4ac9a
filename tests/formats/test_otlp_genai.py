"""Spans of model calls in OTLP JSON: engine, gateway and agent, each call once."""

from __future__ import annotations

from dataclasses import replace

from kvtrace.ingest.formats.otlp_genai import FORMATS
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from tests.formats.reading import DATA, read_bytes, sniffed

(LINES,) = FORMATS
DOCUMENT = replace(LINES, framing="json")
"""As the pipeline reads an export that is spread over lines."""
FOLDER = DATA / "otlp_genai"
GOOD = (FOLDER / "good.json").read_bytes()
WHOLE = (FOLDER / "document.json").read_bytes()
DAMAGED = (FOLDER / "damaged.json").read_bytes()
GENAI = (FOLDER / "genai.json").read_bytes()
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
    assert reading.ignored == {"no_model_call": 1}
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 1)


def test_one_document_over_many_lines_reads_the_same() -> None:
    assert recognise(WHOLE, "sample", formats=all_formats()).framing == "json"
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
    assert sniffed(all_formats(), GOOD) == "otlp_genai"
    assert sniffed(all_formats(), DAMAGED) == "otlp_genai"
    assert sniffed((LINES,), GOOD.splitlines()[2]) is None


def test_a_long_export_is_recognised_by_its_start() -> None:
    start = WHOLE[: len(WHOLE) // 2]
    assert sniffed(all_formats(), start) == "otlp_genai"


def test_a_call_inside_another_is_one_request_of_the_innermost_span() -> None:
    reading = read_bytes(LINES, GENAI)
    row = reading.requests[0]
    # vLLM's span stands inside the gateway's, that inside an agent's; the engine's times count
    assert (row.request_id, row.llm, row.session_id) == ("chatcmpl-1", "m-1", "conv-1")
    assert row.arrived_at_ns == 1_780_000_000_100 * MS
    assert (row.prompt_tokens, row.output_tokens) == (1_000, 11)
    assert row.cached_tokens == 960  # only the gateway's span knows it
    assert (row.queue_ns, row.ttft_ns, row.ttft_from) == (50 * MS, 500 * MS, "arrival")
    assert (row.prefill_ns, row.e2e_ns, row.tpot_ns) == (450 * MS, 2_000 * MS, 150 * MS)
    assert row.unsettled is None  # the engine counts 1000 too: the gateway's 1000 hold the 960
    assert "nested_calls_merged" in reading.note_codes
    assert len(reading.requests) == 8
    assert (
        sum(row.prompt_tokens or 0 for row in reading.requests) == 14_416
    )  # 1000 + 9040 + 900 + 1412 + 2000 + 64


def test_prompts_are_inclusive_whoever_counted() -> None:
    rows = read_bytes(LINES, GENAI).requests[1:5]
    # 8000 + 1000 > 40: left out. 930 - 30 = 900: included. 1442 - 30 = 900 + 512: left out.
    assert [row.prompt_tokens for row in rows] == [9_040, 900, 1_412, 2_000]
    assert [row.cached_tokens for row in rows] == [8_000, 512, 512, 512]
    assert [row.cache_write_tokens for row in rows] == [1_000, None, None, None]
    assert [row.unsettled is None for row in rows] == [True, True, True, False]
    anthropic = rows[0]
    assert (anthropic.request_id, anthropic.llm) == ("msg-1", "c-1")
    assert (anthropic.ttft_ns, anthropic.ttft_from) == (1_000 * MS, "client")
    assert (anthropic.e2e_ns, anthropic.tpot_ns) == (2_000 * MS, 250 * MS)


def test_attempts_inside_one_call_are_requests_and_embeddings_are_not() -> None:
    reading = read_bytes(LINES, GENAI)
    failed, cancelled, last = reading.requests[5:]
    assert (failed.status, cancelled.status) == ("error", "cancelled")
    assert (failed.prompt_tokens, failed.e2e_ns) == (None, 500 * MS)
    assert (failed.session_id, cancelled.session_id, failed.user) == ("s-6", "s-6", "canary-user")
    assert (last.prompt_tokens, last.cached_tokens, last.status) == (64, 0, "ok")
    assert "repeated_spans" in reading.note_codes
    assert reading.ignored == {"no_model_call": 1}


def test_the_order_of_exports_changes_no_request() -> None:
    lines = GENAI.splitlines(keepends=True)
    turned = b"".join(reversed(lines))

    def known(data: bytes) -> set[tuple[object, ...]]:
        return {
            (row.arrived_at_ns, row.prompt_tokens, row.cached_tokens, row.session_id, row.status)
            for row in read_bytes(LINES, data).requests
        }

    # the span that is sent twice has its cached tokens in one copy only; the first counts
    assert known(turned) - known(GENAI) == {(1_780_000_012_000 * MS, 64, None, None, "ok")}
    assert len(known(turned)) == len(known(GENAI))


def test_resource_attributes_and_texts_are_nowhere() -> None:
    told = repr(read_bytes(LINES, GENAI).requests)
    assert "canary-host" not in told
    assert "canary-prompt" not in told


def test_spans_around_each_other_in_a_ring_end() -> None:
    first, second = (
        GENAI.splitlines()[2].replace(b'"parentSpanId": ""', b'"parentSpanId": "%016x"' % parent)
        for parent in (0x20, 0x21)
    )
    ring = first.replace(b'"spanId": "%016x"' % 0x20, b'"spanId": "%016x"' % 0x21) + b"\n" + second
    assert len(read_bytes(LINES, ring).requests) == 1
    itself = GENAI.splitlines()[2].replace(b'"parentSpanId": ""', b'"parentSpanId": "%016x"' % 0x20)
    assert len(read_bytes(LINES, itself).requests) == 1


def test_grade_follows_from_cached_counts() -> None:
    assert read_bytes(LINES, GOOD).context.evidence_grade == "L"
    assert read_bytes(LINES, GENAI).context.evidence_grade is None
    assert sniffed(all_formats(), GENAI) == "otlp_genai"
