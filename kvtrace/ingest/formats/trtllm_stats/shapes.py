"""The literal shapes of an iteration's statistics: today's engine, and Triton in 2023."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.values.jsonfields import decode_json


class Cache(msgspec.Struct, gc=False, rename="camel"):
    """`kvCacheStats`: blocks now, and counters since the start of the engine."""

    max_num_blocks: int | None = None
    used_num_blocks: int | None = None
    tokens_per_block: int | None = None
    reused_blocks: int | None = None
    missed_blocks: int | None = None


class WindowCache(msgspec.Struct, gc=False, rename="camel"):
    """`kvCacheIterationStats` of one attention window."""

    primary_max_num_blocks: int | None = None
    primary_used_num_blocks: int | None = None
    secondary_max_num_blocks: int | None = None
    secondary_used_num_blocks: int | None = None
    iter_reused_blocks: int | None = None
    iter_missed_blocks: int | None = None
    iter_onboard_bytes: int | None = None
    iter_offload_bytes: int | None = None


class Batch(msgspec.Struct, gc=False, rename="camel"):
    """`inflightBatchingStats`: what one iteration ran."""

    num_context_requests: int | None = None
    num_ctx_tokens: int | None = None


class Stats(msgspec.Struct, gc=False, rename="camel"):
    """One iteration; a build writes some of these."""

    timestamp: str | None = None
    iter: int | None = None
    iter_latency: Decimal | None = msgspec.field(default=None, name="iterLatencyMS")
    queue_latency: Decimal | None = msgspec.field(
        default=None, name="newActiveRequestsQueueLatencyMS"
    )
    num_active_requests: int | None = None
    num_queued_requests: int | None = None
    num_completed_requests: int | None = None
    num_new_active_requests: int | None = None
    kv_cache_stats: Cache | None = None
    kv_cache_iteration_stats: dict[str, WindowCache] | None = None
    inflight_batching_stats: Batch | None = None
    # Triton's backend (2023)
    spaced_time: str | None = msgspec.field(default=None, name="Timestamp")
    spaced_iter: int | None = msgspec.field(default=None, name="Iteration Counter")
    spaced_active: int | None = msgspec.field(default=None, name="Active Request Count")
    spaced_context: int | None = msgspec.field(default=None, name="Context Requests")
    spaced_context_tokens: int | None = msgspec.field(default=None, name="Total Context Tokens")
    spaced_max: int | None = msgspec.field(default=None, name="Max KV cache blocks")
    spaced_used: int | None = msgspec.field(default=None, name="Used KV cache blocks")
    spaced_tokens: int | None = msgspec.field(default=None, name="Tokens per KV cache block")


_DECODER: Final = msgspec.json.Decoder(Stats, strict=False)


def decode_stats(data: bytes) -> Stats:
    """The statistics of one record, in today's fields.

    Raises:
        msgspec.DecodeError: not JSON, or a field is of the wrong type.
    """
    raw = decode_json(_DECODER, data)
    return _unspaced(raw) if raw.spaced_max is not None or raw.spaced_iter is not None else raw


def _unspaced(raw: Stats) -> Stats:
    """The statistics of Triton's backend in today's fields."""
    return Stats(
        timestamp=raw.spaced_time or raw.timestamp,
        iter=raw.spaced_iter,
        num_active_requests=raw.spaced_active,
        kv_cache_stats=Cache(
            max_num_blocks=raw.spaced_max,
            used_num_blocks=raw.spaced_used,
            tokens_per_block=raw.spaced_tokens,
        ),
        inflight_batching_stats=Batch(raw.spaced_context, raw.spaced_context_tokens),
    )
