"""Calls that stand in each other: found in any order, held in bounded memory."""

from __future__ import annotations

import itertools

import pytest

from kvtrace.ingest.contract import ReadContext, Record, RequestRow, Tally
from kvtrace.ingest.spans import nesting
from kvtrace.ingest.spans.calls import CallReader, Span
from kvtrace.ingest.spans.nesting import CallBook


def span(
    number: int,
    parent: int = 0,
    trace: str = "t",
    attributes: dict[str, object] | None = None,
    *,
    name: str = "s",
    scope: str = "",
) -> Span:
    return Span(
        name=name,
        scope=scope,
        trace_id=trace,
        span_id=str(number),
        parent_id=str(parent) if parent else "",
        start_ns=number,
        end_ns=number + 1,
        is_error=False,
        attributes=attributes or {},
    )


def call(number: int, **columns: object) -> RequestRow:
    row = RequestRow(offset=number, line=number)
    for name, value in columns.items():
        setattr(row, name, value)
    return row


def read(span_: Span) -> RequestRow | None:
    context = ReadContext("sample", Tally(), 0)
    return CallReader(context).row(Record(0, 1, b""), span_)


def test_spans_between_two_calls_do_not_hide_the_nesting_in_any_order() -> None:
    # agent call 1 > http 2 > gateway call 3 > http 4 > engine call 5
    rows = {
        1: call(1, session_id="conversation", cached_tokens=7, prompt_tokens=10),
        3: call(3, prompt_tokens=10, llm="m"),
        5: call(5, prompt_tokens=10, output_tokens=2),
    }
    for order in itertools.permutations((1, 2, 3, 4, 5)):
        book = CallBook(CallReader(ReadContext("sample", Tally(), 0)))
        for number in order:
            row = rows.get(number)
            fresh = None if row is None else call(number, **_known(row))
            book.add(span(number, parent=number - 1), fresh)
        (found,) = book.rest()
        assert (found.offset, found.session_id, found.llm) == (5, "conversation", "m")
        assert (found.prompt_tokens, found.cached_tokens, found.output_tokens) == (10, 7, 2)
        assert book.merged == 2


def _known(row: RequestRow) -> dict[str, object]:
    names = ("session_id", "cached_tokens", "prompt_tokens", "output_tokens", "llm")
    return {name: getattr(row, name) for name in names}


def test_cached_tokens_of_another_prompt_are_not_taken_over() -> None:
    book = CallBook(CallReader(ReadContext("sample", Tally(), 0)))
    book.add(span(1), call(1, prompt_tokens=900, cached_tokens=800))
    book.add(span(2, parent=1), call(2, prompt_tokens=1_000))
    (found,) = book.rest()
    assert (found.prompt_tokens, found.cached_tokens) == (1_000, None)


def test_calls_of_other_traces_and_without_ids_stand_alone() -> None:
    book = CallBook(CallReader(ReadContext("sample", Tally(), 0)))
    book.add(span(1), call(1))
    book.add(span(2, parent=1, trace="other"), call(2))
    nameless = Span("s", "", "", "", "", None, None, is_error=False)
    book.add(nameless, call(3))
    book.add(nameless, call(4))
    assert [row.offset for row in book.rest()] == [1, 2, 3, 4]
    assert (book.merged, book.repeated) == (0, 0)


def test_rows_go_out_in_file_order_and_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nesting, "_HELD_CALLS", 2)
    monkeypatch.setattr(nesting, "_KNOWN_SPANS", 3)
    book = CallBook(CallReader(ReadContext("sample", Tally(), 0)))
    found: list[int] = []
    for number in range(1, 10):
        book.add(span(number, parent=100 + number), call(number))
        found += [row.offset for row in book.released()]
        assert len(found) == max(number - 2, 0)
    found += [row.offset for row in book.rest()]
    assert found == list(range(1, 10))
    assert len(book._parents) == 3
    assert (book._calls, book._waiting, len(book._held)) == ({}, {}, 0)


@pytest.mark.parametrize(
    ("attributes", "is_call"),
    [
        ({"gen_ai.operation.name": "chat"}, True),
        ({"gen_ai.operation.name": "text_completion"}, True),
        ({"gen_ai.operation.name": "chat.completions"}, True),
        ({"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 5}, False),
        ({"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 5}, False),
        ({"gen_ai.operation.name": "execute_tool"}, False),
        ({"openinference.span.kind": "AGENT", "llm.token_count.prompt": 5}, False),
        ({"openinference.span.kind": "LLM"}, True),
        ({"gen_ai.usage.input_tokens": 5}, True),
        ({"gen_ai.system": "openai"}, False),
        ({"db.system": "redis"}, False),
    ],
)
def test_only_what_runs_a_prefill_is_a_call(attributes: dict[str, object], is_call: bool) -> None:
    assert (read(span(1, attributes=attributes)) is not None) is is_call


def test_counts_that_are_none_are_unknown_and_flagged() -> None:
    attributes: dict[str, object] = {
        "gen_ai.usage.input_tokens": "12",
        "gen_ai.usage.output_tokens": 1.5,
        "gen_ai.usage.cache_read.input_tokens": True,
    }
    row = read(span(1, attributes=attributes))
    assert row is not None
    assert (row.prompt_tokens, row.output_tokens, row.cached_tokens) == (12, None, None)
    assert row.flags == ("invalid_attribute",)


def test_sglangs_spans_have_cached_tokens_and_no_prefill_of_their_own() -> None:
    context = ReadContext("sample", Tally(), 0)
    reader = CallReader(context)
    attributes: dict[str, object] = {
        "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.cached_tokens": 64,
        "gen_ai.usage.completion_tokens": 3,
        "gen_ai.latency.time_to_first_token": 1.5,
        "gen_ai.latency.e2e": 2.5,
        "gen_ai.latency.time_in_model_prefill": 1.25,  # from dispatch on: the queue is in it
        "gen_ai.latency.time_in_model_decode": 1.0,
        "gen_ai.response.finish_reasons": '["abort"]',
    }
    row = reader.row(Record(0, 1, b""), span(1, attributes=attributes, scope="sglang server"))
    assert row is not None
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (100, 64, 3)
    assert (row.prefill_ns, row.queue_ns) == (None, None)
    assert (row.ttft_ns, row.tpot_ns) == (1_500_000_000, 500_000_000)
    assert (row.flags, row.status) == ((), "cancelled")  # engines count the whole prompt
    reader.describe("start", resolution_ns=1)
    assert (context.engine, context.evidence_grade) == ("sglang", None)


@pytest.mark.parametrize(
    ("scope", "attribute", "engine"),
    [
        ("vllm.llm_engine", "gen_ai.latency.e2e", "vllm"),
        ("trt.llm", "gen_ai.latency.e2e", "tensorrt_llm"),
        ("", "gen_ai.latency.time_in_model_prefill", "vllm"),
        ("", "gen_ai.latency.e2e", None),  # vLLM and TensorRT-LLM name the span alike
    ],
)
def test_the_engine_is_told_by_its_instrumentation(
    scope: str, attribute: str, engine: str | None
) -> None:
    context = ReadContext("sample", Tally(), 0)
    reader = CallReader(context)
    engine_span = span(1, attributes={attribute: 1.0}, name="llm_request", scope=scope)
    assert reader.row(Record(0, 1, b""), engine_span) is not None
    reader.describe("start", resolution_ns=1)
    assert context.engine == engine


def test_engines_that_share_a_request_are_warned_of() -> None:
    book = CallBook(CallReader(ReadContext("sample", Tally(), 0)))
    for number, (name, request_id) in enumerate(
        [("llm_request", "r"), ("llm_request", "r"), ("llm_request", "q"), ("chat", "q")], start=1
    ):
        book.add(span(number, name=name), call(number, request_id=request_id))
    book.add(span(9, trace="other", name="llm_request"), call(9, request_id="r"))
    context = ReadContext("sample", Tally(), 0)
    book.describe(context)
    assert book.twins == 1
    assert [(note.code, note.severity) for note in context.notes] == [
        ("engines_share_requests", "warning")
    ]
