"""SGLang's per-request metrics files: JSON lines, one file per local hour.

Lines read from the sources of SGLang 0.5.6 to 0.5.23 (`--export-metrics-to-file`): the fields of
meta_info lie flat beside `request_parameters`, which is JSON inside a JSON string and may hold the
prompt; of it only ids are looked at. Health checks are not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.families.sglang_meta import MetaInfo, fill_request, storage_waits
from kvtrace.ingest.values.jsonfields import decode_json, json_record_rows, keys_of


class _Metrics(MetaInfo, gc=False):
    request_parameters: object = None


class _Session(msgspec.Struct, gc=False):
    id: object = None


class _Parameters(msgspec.Struct, gc=False):
    rid: object = None
    session_id: object = None
    session_params: _Session | None = None
    conversation_id: object = None
    routing_key: object = None
    lora_path: object = None


_DECODER: Final = msgspec.json.Decoder(_Metrics, strict=False)
_PARAMETERS: Final = msgspec.json.Decoder(_Parameters, strict=False)


class _MetricsFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context

    def rows(self, record: Record) -> list[Row]:
        """The request of one record, and its waits for storage.

        Raises:
            msgspec.DecodeError: not JSON, or a field is missing, of the wrong type, out of range.
        """
        raw = decode_json(_DECODER, record.data)
        if raw.prompt_tokens is None and raw.e2e_latency is None and raw.finish_reason is None:
            raise msgspec.ValidationError("neither tokens nor times of a request")
        told = _parameters(raw.request_parameters)
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=_text(told.rid) if raw.id is None else str(raw.id),
            session_id=_session(told),
            adapter=_text(told.lora_path),
        )
        tier = fill_request(row, raw, self._context)
        return [row, *storage_waits(row, raw, tier)]


def _parameters(text: object) -> _Parameters:
    """Ids of the request's parameters; nothing where they are cut or no JSON."""
    if not isinstance(text, str):
        return _Parameters()
    try:
        return decode_json(_PARAMETERS, text.encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError):
        return _Parameters()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _session(told: _Parameters) -> str | None:
    of_session = None if told.session_params is None else told.session_params.id
    candidates = (told.session_id, of_session, told.conversation_id, told.routing_key)
    return next((text for value in candidates if (text := _text(value))), None)


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    context.engine = "sglang"
    yield from json_record_rows(records, context.tally, _MetricsFile(context).rows)
    if context.clock_resolution_ns is not None:
        context.clock, context.clock_reason = "utc", "request_received_ts is in epoch seconds"
    else:
        context.clock_reason = "no record has request_received_ts (--enable-metrics writes it)"


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(keys_of(item)) for item in objects)
    if ours == 0 or 2 * ours < len(objects):
        return None
    return Guess(
        0.7 + 0.28 * ours / len(objects),
        f"{ours} of {len(objects)} records have request_parameters and SGLang's meta_info",
    )


def _is_ours(keys: frozenset[str]) -> bool:
    return "request_parameters" in keys and bool(
        keys & {"e2e_latency", "completion_tokens", "cached_tokens", "finish_reason"}
    )


FORMATS: tuple[Format, ...] = (
    Format(
        name="sglang_request_metrics",
        title="SGLang request metrics file (JSON lines)",
        framing="lines",
        best_grade="B",
        supplies=(
            "request_id",
            "session_id",
            "adapter",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cached_device_tokens",
            "cached_host_tokens",
            "cached_disk_tokens",
            "cached_remote_tokens",
            "output_tokens",
            "queue_ns",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
            "transfers",
        ),
        missing={
            "reuse": "block identity: --kv-events-config"
            ' \'{"publisher":"zmq","topic":"kv-events"}\' with a subscriber that writes a file',
            "ttft": "--enable-metrics beside"
            " --export-metrics-to-file (SGLang 0.5.6 writes them only then)",
            "tier_split": "a newer SGLang (cached_tokens_details)",
            "moves": "--enable-metrics (sglang:load_back_bytes_total and its kin)",
        },
        versions="SGLang 0.5.6 to 0.5.23, request metrics exporter",
        sniff=_sniff,
        read=_read,
        enable_hint="--export-metrics-to-file --export-metrics-to-file-dir DIR --enable-metrics"
        " --enable-cache-report",
    ),
)
