"""SGLang's per-request metrics files: JSON lines, one file per local hour.

Lines read from the sources of SGLang 0.5.6 to 0.5.23 (`--export-metrics-to-file`): the fields of
meta_info lie flat beside `request_parameters`, which is JSON inside a JSON string and may hold the
prompt; of it only ids are looked at. Health checks are not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import (
    Format,
    Guess,
    Head,
    ReadContext,
    Record,
    RequestRow,
    Row,
    TransferRow,
)
from kvtrace.ingest.hicache import CachedDetails, fill_tiers
from kvtrace.ingest.jsonfields import (
    between_ns,
    count_of,
    decode_json,
    elapsed_ns,
    flag_lengths,
    instant_ns,
    json_record_rows,
    keys_of,
    mean_per_token_ns,
)
from kvtrace.schema.manifest import Status

_FIRST_ERROR_CODE: Final = 400


class _Finish(msgspec.Struct, gc=False):
    type: str | None = None
    status_code: object = None


class _Metrics(msgspec.Struct, gc=False):
    request_parameters: object = None
    id: str | int | None = None
    finish_reason: _Finish | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cached_tokens_details: CachedDetails | None = None
    num_retractions: int | None = None
    total_retractions: int | None = None
    e2e_latency: Decimal | None = None
    first_token_latency: Decimal | None = None
    queue_time: Decimal | None = None
    request_received_ts: Decimal | None = None
    prefill_finished_ts: Decimal | None = None
    storage_prefetch_wait: Decimal | None = None
    storage_staging_wait: Decimal | None = None


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
            arrived_at_ns=instant_ns("request_received_ts", raw.request_received_ts, self._context),
            prompt_tokens=count_of("prompt_tokens", raw.prompt_tokens),
            cached_tokens=count_of("cached_tokens", raw.cached_tokens),
            output_tokens=count_of("completion_tokens", raw.completion_tokens),
            status=_status(raw.finish_reason),
        )
        tier = fill_tiers(row, raw.cached_tokens_details, self._context)
        self._fill_times(row, raw)
        if (raw.num_retractions or 0) > 0 or (raw.total_retractions or 0) > 0:
            row.flags = (*row.flags, "retracted")
        if row.status == "ok":
            flag_lengths(row)
        else:
            _forget_zeros(row)
        return [row, *_waits(row, raw, tier)]

    def _fill_times(self, row: RequestRow, raw: _Metrics) -> None:
        flags: list[str] = []
        row.queue_ns = elapsed_ns("queue", raw.queue_time, flags)
        row.e2e_ns = elapsed_ns("e2e", raw.e2e_latency, flags)
        row.ttft_ns = elapsed_ns("ttft", raw.first_token_latency, flags)
        if raw.first_token_latency is None:
            finished_ns = instant_ns("prefill_finished_ts", raw.prefill_finished_ts, self._context)
            row.ttft_ns = between_ns(row.arrived_at_ns, finished_ns, flags)
        row.ttft_from = None if row.ttft_ns is None else "arrival"
        if row.ttft_ns is not None:
            decode_ns = between_ns(row.ttft_ns, row.e2e_ns, flags)
            row.tpot_ns = mean_per_token_ns(decode_ns, row.output_tokens)
        row.flags = (*row.flags, *flags)


def _forget_zeros(row: RequestRow) -> None:
    """An abort writes zeros for whatever it did not get to."""
    if not row.prompt_tokens:
        row.prompt_tokens = row.cached_tokens = None
        row.cached_device_tokens = row.cached_host_tokens = None
        row.cached_disk_tokens = row.cached_remote_tokens = None


def _waits(row: RequestRow, raw: _Metrics, tier: str | None) -> list[TransferRow]:
    """The serial waits for storage (to host) and for staging (host to device)."""
    from_storage = row.cached_disk_tokens if tier == "disk" else row.cached_remote_tokens
    staged = (row.cached_host_tokens or 0) + (from_storage or 0)
    flags: list[str] = []
    waits = (
        (f"{tier}>host", from_storage or 0, "storage_prefetch_wait", raw.storage_prefetch_wait),
        ("host>device", staged, "storage_staging_wait", raw.storage_staging_wait),
    )
    moves = []
    for path, tokens, name, wait in waits:
        wait_ns = elapsed_ns(name, wait, flags)
        if wait_ns and tokens:
            moves.append(
                TransferRow(
                    offset=row.offset,
                    line=row.line,
                    request_id=row.request_id,
                    started_at_ns=None,
                    direction="load",
                    path=path,
                    moved_bytes=None,
                    moved_tokens=tokens,
                    duration_ns=wait_ns,
                    ranks=None,
                )
            )
    row.flags = (*row.flags, *flags)
    return moves


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


def _status(finish: _Finish | None) -> Status:
    if finish is None or finish.type != "abort":
        return "ok"
    code = finish.status_code
    return "error" if isinstance(code, int) and code >= _FIRST_ERROR_CODE else "cancelled"


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
            "reuse at another cache size": "block identity: --kv-events-config"
            ' \'{"publisher":"zmq","topic":"kv-events"}\' with a subscriber that writes a file',
            "arrival, queue and time to first token": "--enable-metrics beside"
            " --export-metrics-to-file (SGLang 0.5.6 writes them only then)",
            "tiers before 0.5.10": "a newer SGLang (cached_tokens_details)",
            "bytes of KV moves": "--enable-metrics (sglang:load_back_bytes_total and its kin)",
        },
        versions="SGLang 0.5.6 to 0.5.23, request metrics exporter",
        sniff=_sniff,
        read=_read,
        enable_hint="--export-metrics-to-file --export-metrics-to-file-dir DIR --enable-metrics"
        " --enable-cache-report",
    ),
)
