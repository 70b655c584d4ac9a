"""SGLang's `meta_info` of one request: counts, tiers, times and waits, whatever log carries it.

Fields read from the sources of SGLang 0.3.6 to 0.5.23. Times are decimals until they are integers:
epoch seconds do not fit a float to the nanosecond.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final

import msgspec

from kvtrace.ingest.blocks.tokens import DEFAULT_BLOCK_TOKENS, chain_token_blocks
from kvtrace.ingest.clocks import INT64_MAX, seconds_resolution_ns
from kvtrace.ingest.contract import ReadContext, RequestRow, TransferRow
from kvtrace.ingest.families.hicache import CachedDetails, fill_tiers
from kvtrace.ingest.values.jsonfields import between_ns, count_of, flag_lengths, mean_per_token_ns
from kvtrace.schema.manifest import Status
from kvtrace.units import NS_PER_S

_FIRST_ERROR_CODE: Final = 400
_TOKEN_IDS: Final = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]])
_MAX_PAGE_TOKENS: Final = 1 << 16
_MAX_NAME_CHARS: Final = 200
_MAX_ADJUSTED: Final = 9
"""Decimal exponent of the last second that fits 64 bits of nanoseconds."""


class FinishReason(msgspec.Struct, gc=False):
    """Why a request ended; only an abort is told apart."""

    type: str | None = None
    status_code: object = None


class MetaInfo(msgspec.Struct, gc=False):
    """The fields of `meta_info` that say something; everything else is skipped."""

    id: str | int | None = None
    finish_reason: FinishReason | None = None
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
    response_sent_to_client_ts: Decimal | None = None
    storage_prefetch_wait: Decimal | None = None
    storage_staging_wait: Decimal | None = None


def seconds_ns(name: str, seconds: Decimal | None) -> int | None:
    """Nanoseconds of decimal seconds, exact to the last one; None stays None.

    Raises:
        msgspec.ValidationError: not a finite number, or past 64 bits of nanoseconds.
    """
    if seconds is None:
        return None
    if seconds.adjusted() <= _MAX_ADJUSTED:
        try:
            ns = round(seconds * NS_PER_S)
        except (ValueError, ArithmeticError):  # NaN, infinity
            ns = INT64_MAX + 1
        if abs(ns) <= INT64_MAX:
            return ns
    raise msgspec.ValidationError(f"`{name}` is not a time in seconds")


def instant_of(name: str, seconds: Decimal | None, context: ReadContext) -> int | None:
    """Nanoseconds of an instant; notes the finest digit written as the clock's resolution.

    Raises:
        msgspec.ValidationError: not a finite number, or past 64 bits of nanoseconds.
    """
    ns = seconds_ns(name, seconds)
    if ns is None or seconds is None or ns <= 0:
        return None
    known = context.clock_resolution_ns
    if known is None or ns % known:
        step = seconds_resolution_ns(seconds)
        context.clock_resolution_ns = step if known is None else min(known, step)
    return ns


def _elapsed(name: str, seconds: Decimal | None, flags: list[str]) -> int | None:
    ns = seconds_ns(name, seconds)
    if ns is not None and ns < 0:
        flags.append(f"negative_{name}")
        return None
    return ns


def fill_request(row: RequestRow, meta: MetaInfo, context: ReadContext) -> str | None:
    """Fill counts, tiers, status and times; gives the tier of its storage tokens, None if none.

    `arrived_at_ns` stays what it was where meta_info does not say it.

    Raises:
        msgspec.ValidationError: a field is out of range or no number.
    """
    row.prompt_tokens = count_of("prompt_tokens", meta.prompt_tokens)
    row.cached_tokens = count_of("cached_tokens", meta.cached_tokens)
    row.output_tokens = count_of("completion_tokens", meta.completion_tokens)
    row.status = _status(meta.finish_reason)
    tier = None
    if meta.cached_tokens_details is not None:
        tier = fill_tiers(row, meta.cached_tokens_details, context)
    _fill_times(row, meta, context)
    if (meta.num_retractions or 0) > 0 or (meta.total_retractions or 0) > 0:
        row.flags = (*row.flags, "retracted")
    if row.status == "ok":
        flag_lengths(row)
    elif not row.prompt_tokens:
        _forget_zeros(row)
    return tier


def _status(finish: FinishReason | None) -> Status:
    if finish is None or finish.type != "abort":
        return "ok"
    code = finish.status_code
    return "error" if isinstance(code, int) and code >= _FIRST_ERROR_CODE else "cancelled"


def _fill_times(row: RequestRow, meta: MetaInfo, context: ReadContext) -> None:
    flags: list[str] = []
    received_ns = instant_of("request_received_ts", meta.request_received_ts, context)
    if received_ns is not None:
        row.arrived_at_ns = received_ns
    row.queue_ns = _elapsed("queue", meta.queue_time, flags)
    row.e2e_ns = e2e_ns = _elapsed("e2e", meta.e2e_latency, flags)
    ttft_ns = _elapsed("ttft", meta.first_token_latency, flags)
    if ttft_ns is None and received_ns is not None and meta.prefill_finished_ts is not None:
        finished_ns = instant_of("prefill_finished_ts", meta.prefill_finished_ts, context)
        ttft_ns = between_ns(received_ns, finished_ns, flags)
    if ttft_ns is not None:
        row.ttft_ns, row.ttft_from = ttft_ns, "arrival"
        if e2e_ns is not None:
            row.tpot_ns = mean_per_token_ns(between_ns(ttft_ns, e2e_ns, flags), row.output_tokens)
    if flags:
        row.flags = (*row.flags, *flags)


def _forget_zeros(row: RequestRow) -> None:
    """An abort writes zeros for whatever it did not get to."""
    row.prompt_tokens = row.cached_tokens = None
    row.cached_device_tokens = row.cached_host_tokens = None
    row.cached_disk_tokens = row.cached_remote_tokens = None
    if not row.output_tokens:
        row.output_tokens = None


def storage_waits(
    row: RequestRow, meta: MetaInfo, tier: str | None, *, bytes_per_token: int | None = None
) -> list[TransferRow]:
    """The serial waits for storage (to host) and for staging (host to device) of one request."""
    if meta.storage_prefetch_wait is None and meta.storage_staging_wait is None:
        return []
    from_storage = row.cached_disk_tokens if tier == "disk" else row.cached_remote_tokens
    staged = (row.cached_host_tokens or 0) + (from_storage or 0)
    flags: list[str] = []
    waits = (
        (f"{tier}>host", from_storage or 0, "storage_prefetch_wait", meta.storage_prefetch_wait),
        ("host>device", staged, "storage_staging_wait", meta.storage_staging_wait),
    )
    moves = []
    for path, tokens, name, wait in waits:
        wait_ns = _elapsed(name, wait, flags)
        if wait_ns and tokens:
            moves.append(
                TransferRow(
                    offset=row.offset,
                    line=row.line,
                    request_id=row.request_id,
                    started_at_ns=None,
                    direction="load",
                    path=path,
                    moved_bytes=_bytes_of(tokens, bytes_per_token),
                    moved_tokens=tokens,
                    duration_ns=wait_ns,
                    ranks=None,
                )
            )
    if flags:
        row.flags = (*row.flags, *flags)
    return moves


def _bytes_of(tokens: int, bytes_per_token: int | None) -> int | None:
    moved_bytes = 0 if bytes_per_token is None else tokens * bytes_per_token
    return moved_bytes if 0 < moved_bytes <= INT64_MAX else None


def whole_token_ids(listed: msgspec.Raw | str) -> list[int] | None:
    """The token ids of a JSON list; None where it is empty, cut, or holds something else."""
    try:
        return _TOKEN_IDS.decode(listed) or None
    except (msgspec.DecodeError, RecursionError):
        return None


def hash_prompt(
    row: RequestRow, token_ids: list[int] | None, context: ReadContext, *, block_tokens: int
) -> bool:
    """Give the row the keys of its blocks; whether it has them.

    Ids that are not the whole prompt (images, a template around them) are no evidence.
    """
    if token_ids is None:
        return False
    if row.prompt_tokens is None:
        row.prompt_tokens = len(token_ids)
    elif row.prompt_tokens != len(token_ids):
        row.flags = (*row.flags, "ids_differ_from_prompt")
        return False
    if context.token_key is None:
        return False
    row.block_keys = chain_token_blocks(
        token_ids, key=context.token_key, block_tokens=block_tokens, adapter=row.adapter
    )
    return True


def block_tokens_of(page_tokens: int, context: ReadContext) -> tuple[int, str]:
    """(tokens a block, why): whole pages, for pages of one token would make a key of each token."""
    if context.block_size_tokens is not None:
        return context.block_size_tokens, "stated by --block-size"
    page = page_tokens if 0 < page_tokens <= _MAX_PAGE_TOKENS else 1
    blocks = page * -(-DEFAULT_BLOCK_TOKENS // page)
    return blocks, f"token ids hashed in blocks of whole pages of {page}, at least 16 tokens"


def adapter_name(value: object) -> str | None:
    """The adapter; of a path its last part, for a path may name people and hosts."""
    if not isinstance(value, str) or not value:
        return None
    return value.rstrip("/").rsplit("/", 1)[-1][:_MAX_NAME_CHARS] or None
