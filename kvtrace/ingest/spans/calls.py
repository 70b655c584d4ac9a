"""Which spans are calls of a language model, and the request that each of them describes.

Attributes read from the sources of vLLM 0.6 to 0.33 (`SpanAttributes`: span `llm_request`, times in
seconds since arrival), SGLang 0.5 and TensorRT-LLM 1.x (the same names), the OpenTelemetry GenAI
conventions up to 0.66b2 with their older names, OpenLLMetry (`llm.request.type`,
`cache_read_input_tokens`) and OpenInference (`llm.token_count.*`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import (
    CacheProofs,
    Producer,
    ReadContext,
    Record,
    RequestRow,
    Unsettled,
)
from kvtrace.ingest.prompts.bodies import BodyReader
from kvtrace.ingest.spans.attributes import Attributes
from kvtrace.ingest.spans.prompts import prompt_of
from kvtrace.ingest.usage import OTEL_KEYS
from kvtrace.ingest.values.jsonfields import between_ns, flag_lengths, mean_per_token_ns
from kvtrace.schema.manifest import Status

ENGINE_SPAN: Final = "llm_request"
"""Name of the span of vLLM and TensorRT-LLM."""
CALL_COLUMNS: Final = (
    "request_id",
    "session_id",
    "user",
    "llm",
    "request_type",
    "arrived_at_ns",
    "prompt_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "queue_ns",
    "prefill_ns",
    "ttft_ns",
    "tpot_ns",
    "e2e_ns",
    "status",
    "block_keys",
)
"""The columns that spans can fill."""
_LATENCY: Final = "gen_ai.latency."
_V0_NAMES: Final = (f"{_LATENCY}time_in_scheduler", f"{_LATENCY}time_in_model_forward")
_OPERATION: Final = ("gen_ai.operation.name", "llm.request.type")
_CALLS: Final = ("chat", "completion", "text_completion", "text.completion", "generate_content")
"""Starts of operations that run a prefill; agents, tools, embeddings, re-ranking do not."""
_SESSION: Final = (
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.session_id",
)
_USER: Final = (
    "enduser.id",
    "user.id",
    "llm.user",
    "traceloop.association.properties.user_id",
)
_ENGINES: Final = (("sglang", "sglang"), ("vllm", "vllm"), ("trt", "tensorrt_llm"))
"""What the instrumentation's name holds → the engine."""
_VLLM_NAMES: Final = (
    *_V0_NAMES,
    f"{_LATENCY}time_in_model_prefill",
    "gen_ai.usage.num_sequences",
)
_ENGINE_TIMES: Final = (f"{_LATENCY}e2e", f"{_LATENCY}time_in_queue")
_INVALID_FLAG: Final = "invalid_attribute"
_PROVIDER: Final = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
_CANCELLED: Final = ("cancel", "499")


@dataclass(slots=True)
class Span:
    """One span, whatever wrote it down. Attributes of its resource are not in it."""

    name: str
    scope: str
    """Name of the instrumentation that made it."""
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int | None
    end_ns: int | None
    is_error: bool
    attributes: Mapping[str, object] = field(default_factory=dict)
    version: str = ""
    """Of the instrumentation."""

    @property
    def is_engine(self) -> bool:
        """Whether an engine wrote it, which counts the whole prompt and measures its times."""
        return self.name == ENGINE_SPAN or any(name in self.attributes for name in _ENGINE_TIMES)


class CallReader:
    """Turns the spans of one file into requests, and remembers what they say of the file."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._bodies = BodyReader(context)
        self._has_start = self._has_v0 = self._has_cached = False
        self._engines: set[str | None] = set()

    def row(self, record: Record, span: Span) -> RequestRow | None:
        """The request of a span; None if it is no call of a language model."""
        told = Attributes(span.attributes)
        if not _is_call(span, told):
            return None
        flags: list[str] = []
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=told.text("gen_ai.request.id", "gen_ai.response.id"),
            session_id=told.text(*_SESSION),
            user=told.text(*_USER),
            llm=told.text("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"),
            request_type=told.text(*_OPERATION),
            arrived_at_ns=self._start(span),
            status=_status(span, told),
        )
        self._fill_tokens(row, span, told, flags)
        if span.is_engine:
            engine = _engine(span, told)
            self._engines.add(engine)
            self._has_v0 = self._has_v0 or told.has_any(*_V0_NAMES)
            _fill_engine_times(row, span, told, flags, engine=engine)
        else:
            _fill_client_times(row, span, told, flags)
        if told.is_odd:
            flags.append(_INVALID_FLAG)
        row.flags = tuple(flags)
        flag_lengths(row)
        self._fill_blocks(row, span)
        return row

    def _fill_blocks(self, row: RequestRow, span: Span) -> None:
        """The block keys of the prompt, if the span has it.

        They are made at once: a call may be held for long, and its prompt must not be.
        """
        found = prompt_of(span.attributes) if self._bodies.is_on else None
        if found is None:
            return
        counted, flags = row.prompt_tokens, row.flags
        if counted is not None and row.unsettled is not None:
            row.prompt_tokens = counted + row.unsettled.left_out_tokens
            self._bodies.fill(row, found[0], beside=found[1])
            row.prompt_tokens = counted
            if row.block_keys is not None:
                return
            row.flags = flags
        self._bodies.fill(row, found[0], beside=found[1])

    def _start(self, span: Span) -> int | None:
        if span.start_ns is None or not 0 < span.start_ns <= INT64_MAX:
            return None
        self._has_start = True
        return span.start_ns

    def _fill_tokens(self, row: RequestRow, span: Span, told: Attributes, flags: list[str]) -> None:
        """The inclusive prompt, what of it came from a cache, and the output.

        Engines count the whole prompt; of others, calls of the same producer tell where a call
        does not itself.
        """
        usage = told.usage()
        if usage is None:
            return
        row.prompt_tokens, row.output_tokens = usage.prompt_tokens, usage.output_tokens
        row.cached_tokens = usage.cached_tokens
        row.cache_write_tokens = usage.cache_write_tokens
        self._has_cached = self._has_cached or row.cached_tokens is not None
        flags.extend(usage.flags)
        if span.is_engine:
            return
        producer = Producer(span.scope, span.version, (told.text(*_PROVIDER) or "").lower())
        if usage.is_open:
            left_out = (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0)
            is_by_spec = usage.rule == "spec"
            row.unsettled = Unsettled(
                producer=producer, left_out_tokens=left_out, is_by_spec=is_by_spec
            )
        elif usage.is_proof:
            self.prove(producer, row.line, is_inclusive=bool(usage.is_inclusive))

    def prove(self, producer: Producer, line: int, *, is_inclusive: bool) -> None:
        """A call shows what the prompt counts of its producer include."""
        proofs = self._context.cache_proofs.setdefault(producer, CacheProofs())
        proofs.add(line, is_inclusive=is_inclusive)

    def settle(self, call: RequestRow, open_: Unsettled, prompt_tokens: int) -> None:
        """The engine inside a call says how long the prompt is, and so what the call counts."""
        is_inclusive = prompt_tokens == call.prompt_tokens
        self.prove(open_.producer, call.line, is_inclusive=is_inclusive)
        call.prompt_tokens, call.unsettled = prompt_tokens, None
        hasher = self._context.prompt_hasher
        if call.block_keys is not None and hasher is not None:
            call.block_keys = call.block_keys[: -(-prompt_tokens // hasher.block_tokens)]

    def describe(self, start_name: str, *, resolution_ns: int) -> None:
        """Write down clock, engine and grade."""
        context = self._context
        if self._has_start:
            context.clock, context.clock_resolution_ns = "utc", resolution_ns
            context.clock_reason = f"{start_name} is epoch time"
        engines = self._engines - {None}
        if len(engines) == 1:
            (context.engine,) = engines
        if self._has_v0:
            context.engine_version = "V0"
            context.engine_version_reason = "spans have time_in_scheduler or time_in_model_forward"
        self._bodies.describe()
        if not self._has_cached:
            context.evidence_grade = "L"


def _is_call(span: Span, told: Attributes) -> bool:
    if span.name == ENGINE_SPAN:
        return True
    kind = told.text("openinference.span.kind")
    if kind is not None:
        return kind.upper() == "LLM"
    operation = told.text(*_OPERATION)
    if operation is not None:
        return operation.lower().startswith(_CALLS)
    return told.has_any(*OTEL_KEYS, f"{_LATENCY}e2e")


def _engine(span: Span, told: Attributes) -> str | None:
    """The engine that wrote the span, by its instrumentation, else by its attributes."""
    scope = span.scope.lower()
    for part, engine in _ENGINES:
        if part in scope:
            return engine
    return "vllm" if span.name == ENGINE_SPAN and told.has_any(*_VLLM_NAMES) else None


def _status(span: Span, told: Attributes) -> Status:
    kind = told.text("error.type")
    if kind is not None and any(word in kind.lower() for word in _CANCELLED):
        return "cancelled"
    if '"abort"' in (told.text("gen_ai.response.finish_reasons") or ""):
        return "cancelled"
    return "error" if span.is_error or kind is not None else "ok"


def _fill_engine_times(
    row: RequestRow, span: Span, told: Attributes, flags: list[str], *, engine: str | None
) -> None:
    """Times as the engine measured them; where it did not, from others or the ends of the span.

    Formula: prefill = ttft - queue (V0); tpot = decode / (output - 1) of a single sequence.
    SGLang's `time_in_model_prefill` begins when the request is sent to the scheduler and so holds
    the queue, which stands nowhere: neither is known.
    """
    row.queue_ns = told.seconds_ns(f"{_LATENCY}time_in_queue")
    row.ttft_ns = told.seconds_ns(f"{_LATENCY}time_to_first_token")
    row.ttft_from = None if row.ttft_ns is None else "arrival"
    row.e2e_ns = told.seconds_ns(f"{_LATENCY}e2e")
    if row.e2e_ns is None:
        row.e2e_ns = between_ns(row.arrived_at_ns, span.end_ns or None, flags)
    if engine != "sglang":
        row.prefill_ns = told.seconds_ns(f"{_LATENCY}time_in_model_prefill")
    if row.prefill_ns is None:
        row.prefill_ns = between_ns(row.queue_ns, row.ttft_ns, flags)
    decode_ns = told.seconds_ns(f"{_LATENCY}time_in_model_decode")
    if decode_ns is None:
        decode_ns = between_ns(row.ttft_ns, row.e2e_ns, flags)
    sequences = told.count("gen_ai.usage.num_sequences", "gen_ai.request.n")
    if sequences in (None, 1):
        row.tpot_ns = mean_per_token_ns(decode_ns, row.output_tokens)


def _fill_client_times(row: RequestRow, span: Span, told: Attributes, flags: list[str]) -> None:
    """Times that the caller saw: the first chunk, and the whole span."""
    row.ttft_ns = told.seconds_ns("gen_ai.response.time_to_first_chunk")
    row.ttft_from = None if row.ttft_ns is None else "client"
    row.e2e_ns = between_ns(row.arrived_at_ns, span.end_ns or None, flags)
    if told.count("gen_ai.request.choice.count") in (None, 1):
        decode_ns = between_ns(row.ttft_ns, row.e2e_ns, flags)
        row.tpot_ns = mean_per_token_ns(decode_ns, row.output_tokens)
