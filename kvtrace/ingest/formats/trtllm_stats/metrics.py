"""Metrics of one iteration, by formula from its statistics."""

from __future__ import annotations

from decimal import Decimal
from typing import Final, Literal

import msgspec

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.formats.trtllm_stats.shapes import Batch, Cache, Stats
from kvtrace.ingest.values.jsonfields import count_of

_MS: Final = -3
_MAX_ADJUSTED: Final = 20

Window = Literal["instant", "interval", "cumulative", "last_batch"]


def metric(name: str, value: float, unit: str, window: Window = "instant") -> Metric:
    """One metric without parts."""
    return Metric(metric=name, value=value, unit=unit, window=window)


def request_metrics(raw: Stats) -> list[Metric]:
    """Requests, queue, computed tokens and time of one iteration."""
    batch = raw.inflight_batching_stats or Batch()
    counts: tuple[tuple[str, int | None, str, Window], ...] = (
        ("running_requests", raw.num_active_requests, "requests", "instant"),
        ("waiting_requests", raw.num_queued_requests, "requests", "instant"),
        ("finished_requests", raw.num_completed_requests, "requests", "last_batch"),
        ("new_requests", batch.num_context_requests, "requests", "last_batch"),
        ("computed_tokens", batch.num_ctx_tokens, "tokens", "last_batch"),
    )
    metrics = [
        metric(name, value, unit, window)
        for name, value, unit, window in counts
        if count_of(name, value) is not None and value is not None
    ]
    elapsed_s = _seconds("iterLatencyMS", raw.iter_latency)
    if elapsed_s is not None:
        metrics.append(metric("iteration_elapsed_s", elapsed_s, "s", "last_batch"))
    queued_s = _seconds("newActiveRequestsQueueLatencyMS", raw.queue_latency)
    started = count_of("numNewActiveRequests", raw.num_new_active_requests)
    if queued_s is not None and started:
        metrics.append(
            Metric(
                metric="queue_s",
                value=queued_s / started,
                unit="s",
                window="last_batch",
                numerator=queued_s,
                denominator=started,
            )
        )
    return metrics


def _seconds(name: str, milliseconds: Decimal | None) -> float | None:
    if milliseconds is None:
        return None
    if not milliseconds.is_finite() or milliseconds.adjusted() > _MAX_ADJUSTED:
        raise msgspec.ValidationError(f"`{name}` is not a duration")
    return None if milliseconds < 0 else float(milliseconds.scaleb(_MS))


def use_metrics(raw: Stats) -> tuple[int | None, list[Metric]]:
    """(capacity in tokens, use of the KV blocks of HBM and host)."""
    windows = list((raw.kv_cache_iteration_stats or {}).values())
    cache = raw.kv_cache_stats or Cache()
    total, used = cache.max_num_blocks, cache.used_num_blocks
    if len(windows) == 1 and windows[0].primary_max_num_blocks is not None:
        total, used = windows[0].primary_max_num_blocks, windows[0].primary_used_num_blocks
    total, used = count_of("maxNumBlocks", total), count_of("usedNumBlocks", used)
    size = count_of("tokensPerBlock", cache.tokens_per_block)
    metrics: list[Metric] = []
    if total and used is not None:
        metrics.append(_ratio("kv_usage_ratio", used, total))
    held = count_of("usedNumBlocks", used * size) if used is not None and size else None
    if held is not None:
        metrics.append(metric("kv_used_tokens", held, "tokens"))
    host_total = sum(count_of("secondary", part.secondary_max_num_blocks) or 0 for part in windows)
    host_used = sum(count_of("secondary", part.secondary_used_num_blocks) or 0 for part in windows)
    if host_total:
        metrics.append(_ratio("cpu_kv_usage_ratio", host_used, host_total))
    capacity = count_of("maxNumBlocks", total * size) if total and size else None
    return capacity, metrics


def _ratio(name: str, numerator: int, denominator: int) -> Metric:
    return Metric(
        metric=name,
        value=numerator / denominator,
        unit="ratio",
        window="instant",
        numerator=numerator,
        denominator=denominator,
    )


def moves(raw: Stats) -> list[Metric]:
    """KV bytes moved between host and HBM in one iteration."""
    windows = list((raw.kv_cache_iteration_stats or {}).values())
    loaded = [part.iter_onboard_bytes for part in windows if part.iter_onboard_bytes is not None]
    stored = [part.iter_offload_bytes for part in windows if part.iter_offload_bytes is not None]
    return [
        metric(name, sum(parts), "bytes", "last_batch")
        for name, parts in (("kv_loaded_bytes", loaded), ("kv_stored_bytes", stored))
        if parts and all(count_of(name, part) is not None for part in parts)
    ]


def block_counters(cache: Cache | None) -> tuple[int, int] | None:
    """(reused, missed) blocks since the start of the engine."""
    if cache is None or cache.reused_blocks is None or cache.missed_blocks is None:
        return None
    count_of("reusedBlocks", cache.reused_blocks)
    count_of("missedBlocks", cache.missed_blocks)
    return cache.reused_blocks, cache.missed_blocks


def blocks_of_iteration(raw: Stats) -> tuple[int, int] | None:
    """(reused, missed) blocks of the iteration, over all attention windows."""
    reused = missed = 0
    windows = raw.kv_cache_iteration_stats or {}
    for part in windows.values():
        if part.iter_reused_blocks is None or part.iter_missed_blocks is None:
            return None
        reused += count_of("iterReusedBlocks", part.iter_reused_blocks) or 0
        missed += count_of("iterMissedBlocks", part.iter_missed_blocks) or 0
    return (reused, missed) if windows else None


def hits(reused: int, missed: int, window: Window, window_ns: int | None) -> Metric:
    """Reused blocks of those looked up; no value where none was looked up."""
    looked_up = reused + missed
    return Metric(
        metric="prefix_hit_ratio",
        value=reused / looked_up if looked_up else None,
        unit="ratio",
        hit_unit="blocks",
        window=window,
        window_ns=window_ns,
        numerator=reused,
        denominator=looked_up,
    )
