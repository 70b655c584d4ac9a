"""SageMaker data capture: JSON lines, one invocation of an endpoint each, what went in and out.

Shape read from AWS's guide to data capture and the loader of AIPerf 0.13: `captureData` with
`endpointInput` and `endpointOutput`, each of `data` and `encoding` (JSON, BASE64 or CSV), and
`eventMetadata` with `inferenceTime` (ISO, whole seconds) and `eventId`. The payloads are those of
the container: OpenAI's chat and completions, streamed or not, and TGI's `inputs`. Usage stands in
the output; the prompt becomes block keys while it is read, and is not kept.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.families.gateways import GatewayFile
from kvtrace.ingest.prompts import Prompt
from kvtrace.ingest.prompts.chat import render_messages
from kvtrace.ingest.prompts.rows import Prompted, prompted_rows
from kvtrace.ingest.usage import TokenUsage, read_usage
from kvtrace.ingest.values.jsonfields import Ignored, count_of, decode_json
from kvtrace.ingest.values.rawvalues import NO_VALUE, name_of

_EVENT: Final = b"data:"
_LAST_EVENTS: Final = 1000
"""Lines at the end of a stream among which its usage is looked for; it is in one of the last."""
_NOTHING: Final = (b"", b"null")

ShapeT = TypeVar("ShapeT")


class _Side(msgspec.Struct, gc=False):
    data: msgspec.Raw = NO_VALUE
    encoding: str = "BASE64"


class _Capture(msgspec.Struct, gc=False):
    endpointInput: _Side | None = None
    endpointOutput: _Side | None = None


class _Metadata(msgspec.Struct, gc=False):
    eventId: str | None = None
    inferenceId: str | None = None
    inferenceTime: msgspec.Raw = NO_VALUE


class _Invocation(msgspec.Struct, gc=False):
    captureData: _Capture
    eventMetadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Input(msgspec.Struct, gc=False):
    messages: msgspec.Raw = NO_VALUE
    prompt: msgspec.Raw = NO_VALUE
    inputs: msgspec.Raw = NO_VALUE
    model: object = None


class _Details(msgspec.Struct, gc=False):
    generated_tokens: int | None = None


class _Output(msgspec.Struct, gc=False):
    usage: dict[str, object] | None = None
    model: object = None
    details: _Details | None = None


_DECODER: Final = msgspec.json.Decoder(_Invocation)
_INPUT: Final = msgspec.json.Decoder(_Input)
_OUTPUT: Final = msgspec.json.Decoder(_Output | list[_Output])
_TEXT: Final = msgspec.json.Decoder(str)
_IDS: Final = msgspec.json.Decoder(list[int])


class _CaptureFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self.gateway = GatewayFile(context)
        self.unread = 0

    def rows(self, record: Record) -> list[Prompted] | Ignored:
        """The request of one invocation.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        raw = decode_json(_DECODER, record.data)
        capture, metadata = raw.captureData, raw.eventMetadata
        given, answer = _payload(capture.endpointInput), _payload(capture.endpointOutput)
        asked = None if given is None else _decoded(_INPUT, given)
        said = None if answer is None else _last_output(answer)
        if asked is None and said is None:
            return Ignored("no_llm_payload")
        self.unread += (given is not None and asked is None) or (
            answer is not None and said is None
        )
        flags: list[str] = []
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=metadata.eventId or metadata.inferenceId,
            llm=_model_of(asked, said),
            arrived_at_ns=self.gateway.instants.raw_ns(
                "inferenceTime", metadata.inferenceTime, flags
            ),
        )
        self.gateway.fill(row, _usage_of(said), flags)
        if said is not None and said.details is not None and row.output_tokens is None:
            row.output_tokens = count_of("generated_tokens", said.details.generated_tokens)
        return [(row, None if asked is None else self._prompt(row, asked))]

    def _prompt(self, row: RequestRow, asked: _Input) -> Prompt | None:
        """The prompt; token ids become the blocks of the row at once."""
        if bytes(asked.messages) not in _NOTHING:
            try:
                return Prompt(render_messages(asked.messages), is_chat=True)
            except (msgspec.DecodeError, RecursionError):
                self.unread += 1
                return None
        text = asked.prompt if bytes(asked.prompt) not in _NOTHING else asked.inputs
        data = bytes(text)
        if data[:1] == b'"':
            return Prompt(_TEXT.decode(data).encode("utf-8", "surrogatepass"))
        if data[:1] == b"[" and self._context.prompt_hasher is not None:
            ids = _decoded(_IDS, data)
            made = None if ids is None else self._context.prompt_hasher.token_ids(ids)
            if made is not None and row.prompt_tokens in (None, made.tokens):
                row.prompt_tokens, row.block_keys = made.tokens, made.keys
        return None

    def finish(self) -> None:
        """Clock, grade and notes of the file."""
        context = self._context
        self.gateway.finish("inferenceTime")
        if context.prompt_hasher is not None and context.prompt_hasher.used:
            context.evidence_grade = None  # blocks are more than cached counts
        if self.unread:
            context.note(
                "payloads_not_read",
                f"{self.unread:,} payloads are CSV, cut, or not those of an LLM's API: what they"
                " would say is unknown",
            )


def _payload(side: _Side | None) -> bytes | None:
    """The bytes of a captured payload; None if there is none, or it is CSV or damaged."""
    if side is None:
        return None
    data = bytes(side.data)
    if data[:1] in (b"{", b"["):
        return data
    if data[:1] != b'"' or side.encoding == "CSV":
        return None if data in _NOTHING else b""
    text = _TEXT.decode(data)
    if side.encoding == "JSON":
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _decoded(decoder: msgspec.json.Decoder[ShapeT], data: bytes) -> ShapeT | None:
    try:
        return decode_json(decoder, data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _last_output(answer: bytes) -> _Output | None:
    """The output, of a stream the last event that has usage (or any); None if it is no LLM's."""
    found = _decoded(_OUTPUT, answer)
    if isinstance(found, list):
        return found[0] if found else None
    if found is not None:
        return found
    last = None
    for line in reversed(answer.splitlines()[-_LAST_EVENTS:]):
        event = line.removeprefix(_EVENT).strip()
        if not line.startswith((_EVENT, b"{")) or event == b"[DONE]":
            continue
        output = _decoded(_OUTPUT, event)
        if isinstance(output, _Output):
            last = last or output
            if output.usage:
                return output
    return last


def _usage_of(said: _Output | None) -> TokenUsage | None:
    return read_usage(said.usage) if said is not None and said.usage else None


def _model_of(asked: _Input | None, said: _Output | None) -> str | None:
    return (name_of(said.model) if said else None) or (name_of(asked.model) if asked else None)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _CaptureFile(context)
    yield from prompted_rows(records, context, file.rows)
    file.finish()


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum({"captureData", "eventMetadata"} <= entry.keys() for entry in objects)
    if not ours or 2 * ours < len(objects):
        return None
    return Guess(0.99, f"{ours} of {len(objects)} objects have captureData and eventMetadata")


FORMATS: tuple[Format, ...] = (
    Format(
        name="sagemaker_capture",
        title="SageMaker data capture (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "output_tokens",
            "block_keys",
        ),
        missing={
            "ttft": "data capture has one time, that of the invocation; request spans"
            " (vLLM: --otlp-traces-endpoint)",
            "e2e": "CloudWatch's ModelLatency, or request spans",
            "sessions": "data capture has no session id",
            "cached_tokens": "vLLM containers: --enable-prompt-tokens-details",
        },
        versions="Amazon SageMaker data capture, eventVersion 0; payloads of OpenAI's API and TGI",
        sniff=_sniff,
        read=_read,
        enable_hint="DataCaptureConfig(enable_capture=True, sampling_percentage=100,"
        " capture_options=['Input', 'Output'], json_content_types=['application/json'])",
    ),
)
