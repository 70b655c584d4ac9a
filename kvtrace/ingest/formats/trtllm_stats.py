"""TensorRT-LLM's iteration statistics: one engine-wide observation an iteration.

Records read from the sources of TensorRT-LLM 0.12 to 1.2 and 2026 builds (`GET /metrics` of
trtllm-serve, `get_stats()`): arrays of objects, several after one another where each GET was
appended, or one object a line. `kvCacheStats` counts blocks since the start of the engine, warm-up
included before PR 12132; `kvCacheIterationStats` (2026), by attention window, counts one iteration.
Each GET drains the buffer, so that two scrapers halve the data. Also read: the statistics with
spaced keys of Triton's backend (2023), one object a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final, Literal

import msgspec

from kvtrace.ingest.clocks import parse_iso, zone_shift
from kvtrace.ingest.contract import Format, Guess, Head, Metric, ReadContext, Record, Row, SampleRow
from kvtrace.ingest.jsonfields import count_of, decode_json, json_record_rows, keys_of

_US_DATE: Final = re.compile(r"([0-9]{2})-([0-9]{2})-([0-9]{4})[ T]([0-9:.,]{8,20})")
_MS: Final = -3
_MAX_ADJUSTED: Final = 20

Window = Literal["instant", "interval", "cumulative", "last_batch"]


class _Cache(msgspec.Struct, gc=False, rename="camel"):
    max_num_blocks: int | None = None
    used_num_blocks: int | None = None
    tokens_per_block: int | None = None
    reused_blocks: int | None = None
    missed_blocks: int | None = None


class _WindowCache(msgspec.Struct, gc=False, rename="camel"):
    """`kvCacheIterationStats` of one attention window."""

    primary_max_num_blocks: int | None = None
    primary_used_num_blocks: int | None = None
    secondary_max_num_blocks: int | None = None
    secondary_used_num_blocks: int | None = None
    iter_reused_blocks: int | None = None
    iter_missed_blocks: int | None = None
    iter_onboard_bytes: int | None = None
    iter_offload_bytes: int | None = None


class _Batch(msgspec.Struct, gc=False, rename="camel"):
    num_context_requests: int | None = None
    num_ctx_tokens: int | None = None


class _Stats(msgspec.Struct, gc=False, rename="camel"):
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
    kv_cache_stats: _Cache | None = None
    kv_cache_iteration_stats: dict[str, _WindowCache] | None = None
    inflight_batching_stats: _Batch | None = None
    # Triton's backend (2023)
    spaced_time: str | None = msgspec.field(default=None, name="Timestamp")
    spaced_iter: int | None = msgspec.field(default=None, name="Iteration Counter")
    spaced_active: int | None = msgspec.field(default=None, name="Active Request Count")
    spaced_context: int | None = msgspec.field(default=None, name="Context Requests")
    spaced_context_tokens: int | None = msgspec.field(default=None, name="Total Context Tokens")
    spaced_max: int | None = msgspec.field(default=None, name="Max KV cache blocks")
    spaced_used: int | None = msgspec.field(default=None, name="Used KV cache blocks")
    spaced_tokens: int | None = msgspec.field(default=None, name="Tokens per KV cache block")


_DECODER: Final = msgspec.json.Decoder(_Stats, strict=False)


def _unspaced(raw: _Stats) -> _Stats:
    """The statistics of Triton's backend in today's fields."""
    return _Stats(
        timestamp=raw.spaced_time or raw.timestamp,
        iter=raw.spaced_iter,
        num_active_requests=raw.spaced_active,
        kv_cache_stats=_Cache(
            max_num_blocks=raw.spaced_max,
            used_num_blocks=raw.spaced_used,
            tokens_per_block=raw.spaced_tokens,
        ),
        inflight_batching_stats=_Batch(raw.spaced_context, raw.spaced_context_tokens),
    )


class _StatsFile:
    """The state of one file: clock, last counters, last iteration."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._shift = zone_shift(context.tz)
        self._counters: tuple[int, int] | None = None
        self._iteration: int | None = None
        self._observed_at_ns: int | None = None
        self._capacity_tokens: int | None = None
        self.dated = 0
        self.zoned = 0
        self.missing = 0
        self.restarts = 0
        self.has_whole_blocks = False

    def rows(self, record: Record) -> list[Row]:
        """The observation of one record.

        Raises:
            msgspec.DecodeError: not JSON, or a field is of the wrong type or out of range.
        """
        raw = decode_json(_DECODER, record.data)
        if raw.spaced_max is not None or raw.spaced_iter is not None:
            raw = _unspaced(raw)
        observed_at_ns = self._time(raw.timestamp)
        metrics = _request_metrics(raw)
        capacity_tokens, use = _use_metrics(raw)
        metrics += use
        metrics += _moves(raw)
        reused_missed = _counters(raw.kv_cache_stats)
        of_iteration = _of_iteration(raw)
        if not metrics and reused_missed is None and of_iteration is None:
            raise msgspec.ValidationError("no statistic of an iteration")
        # From here on the record is used: state may change.
        self._follow(raw.iter)
        if capacity_tokens is not None and capacity_tokens != self._capacity_tokens:
            self._capacity_tokens = capacity_tokens
            metrics.append(_metric("kv_capacity_tokens", capacity_tokens, "tokens"))
        self._learn(raw, capacity_tokens)
        window_ns = self._since_last(observed_at_ns)
        if of_iteration is not None:
            metrics.append(_hits(*of_iteration, "interval", window_ns))
        elif reused_missed is not None:
            metrics.append(self._hits_since_last(reused_missed, window_ns))
        return [
            SampleRow(
                offset=record.offset,
                line=record.line,
                observed_at_ns=observed_at_ns,
                engine=None,
                metrics=metrics,
            )
        ]

    def _hits_since_last(self, counters: tuple[int, int], window_ns: int | None) -> Metric:
        """The counters' gain; after a restart, what they gained since it."""
        last, self._counters = self._counters, counters
        if last is None:
            return _hits(*counters, "cumulative", None)
        gained = (counters[0] - last[0], counters[1] - last[1])
        if min(gained) < 0:
            self.restarts += 1
            return _hits(*counters, "interval", None)
        return _hits(*gained, "interval", window_ns)

    def _follow(self, iteration: int | None) -> None:
        """Count iterations that are not in the file."""
        if iteration is None:
            return
        if self._iteration is not None and iteration > self._iteration + 1:
            self.missing += iteration - self._iteration - 1
        self._iteration = iteration

    def _since_last(self, observed_at_ns: int | None) -> int | None:
        last, self._observed_at_ns = self._observed_at_ns, observed_at_ns
        if last is None or observed_at_ns is None or observed_at_ns <= last:
            return None
        return observed_at_ns - last

    def _learn(self, raw: _Stats, capacity_tokens: int | None) -> None:
        cache, facts = raw.kv_cache_stats, self._context.engine_facts
        if capacity_tokens is not None:
            facts["kv_capacity_tokens"] = capacity_tokens
            self.has_whole_blocks = self.has_whole_blocks or not raw.kv_cache_iteration_stats
        if cache is not None and cache.tokens_per_block:
            facts["block_size"] = cache.tokens_per_block

    def _time(self, text: str | None) -> int | None:
        """The time of an observation; `MM-DD-YYYY hh:mm:ss.ffffff` of the engine's local clock."""
        if text is None:
            return None
        match = _US_DATE.fullmatch(text)
        iso = f"{match[3]}-{match[1]}-{match[2]} {match[4]}" if match is not None else text
        time = parse_iso(iso)
        if time is None:
            raise msgspec.ValidationError("`timestamp` is not a date and time")
        context = self._context
        known = context.clock_resolution_ns or time.resolution_ns
        context.clock_resolution_ns = min(known, time.resolution_ns)
        self.dated += 1
        self.zoned += time.is_zoned
        return time.ns if time.is_zoned else self._shift(time.ns)

    def describe(self) -> None:
        """Write down the clock, and what a reader of the samples must know."""
        self._describe_clock()
        context = self._context
        if self.restarts:
            context.note(
                "counter_reset",
                f"The block counters fell {self.restarts} times: the engine was restarted.",
            )
        if self.missing:
            context.note(
                "iterations_missing",
                f"{self.missing} iterations between the first and the last are not in the file:"
                " another reader drained them (each GET empties the buffer) or they were dropped."
                " Sums over iterations are lower bounds; reuse is not, it is of counters.",
                severity="warning",
            )
        if self.has_whole_blocks:
            context.note(
                "blocks_may_include_host",
                "maxNumBlocks and usedNumBlocks held the host's blocks too before TensorRT-LLM"
                " PR 15075, if there was a host cache; capacity and use of HBM may be less.",
            )

    def _describe_clock(self) -> None:
        context = self._context
        if self.dated == 0:
            context.clock_reason = "no record has a timestamp"
        elif self.zoned == self.dated:
            context.clock, context.clock_reason = "utc", "timestamp carries a zone"
        elif context.tz is not None:
            context.clock = "utc"
            context.clock_reason = f"timestamp has no zone: taken as {context.tz} from --tz"
        else:
            context.clock = "naive"
            context.clock_reason = "timestamp has no zone: taken as UTC"
            context.note("naive_clock", "timestamp has no zone; it is taken as UTC (--tz).")


def _metric(name: str, value: float, unit: str, window: Window = "instant") -> Metric:
    return Metric(metric=name, value=value, unit=unit, window=window)


def _request_metrics(raw: _Stats) -> list[Metric]:
    """Requests, queue, computed tokens and time of one iteration."""
    batch = raw.inflight_batching_stats or _Batch()
    counts: tuple[tuple[str, int | None, str, Window], ...] = (
        ("running_requests", raw.num_active_requests, "requests", "instant"),
        ("waiting_requests", raw.num_queued_requests, "requests", "instant"),
        ("finished_requests", raw.num_completed_requests, "requests", "last_batch"),
        ("new_requests", batch.num_context_requests, "requests", "last_batch"),
        ("computed_tokens", batch.num_ctx_tokens, "tokens", "last_batch"),
    )
    metrics = [
        _metric(name, value, unit, window)
        for name, value, unit, window in counts
        if count_of(name, value) is not None and value is not None
    ]
    elapsed_s = _seconds("iterLatencyMS", raw.iter_latency)
    if elapsed_s is not None:
        metrics.append(_metric("iteration_elapsed_s", elapsed_s, "s", "last_batch"))
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


def _use_metrics(raw: _Stats) -> tuple[int | None, list[Metric]]:
    """(capacity in tokens, use of the KV blocks of HBM and host)."""
    windows = list((raw.kv_cache_iteration_stats or {}).values())
    cache = raw.kv_cache_stats or _Cache()
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
        metrics.append(_metric("kv_used_tokens", held, "tokens"))
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


def _moves(raw: _Stats) -> list[Metric]:
    """KV bytes moved between host and HBM in one iteration."""
    windows = list((raw.kv_cache_iteration_stats or {}).values())
    loaded = [part.iter_onboard_bytes for part in windows if part.iter_onboard_bytes is not None]
    stored = [part.iter_offload_bytes for part in windows if part.iter_offload_bytes is not None]
    return [
        _metric(name, sum(parts), "bytes", "last_batch")
        for name, parts in (("kv_loaded_bytes", loaded), ("kv_stored_bytes", stored))
        if parts and all(count_of(name, part) is not None for part in parts)
    ]


def _counters(cache: _Cache | None) -> tuple[int, int] | None:
    """(reused, missed) blocks since the start of the engine."""
    if cache is None or cache.reused_blocks is None or cache.missed_blocks is None:
        return None
    count_of("reusedBlocks", cache.reused_blocks)
    count_of("missedBlocks", cache.missed_blocks)
    return cache.reused_blocks, cache.missed_blocks


def _of_iteration(raw: _Stats) -> tuple[int, int] | None:
    """(reused, missed) blocks of the iteration, over all attention windows."""
    reused = missed = 0
    windows = raw.kv_cache_iteration_stats or {}
    for part in windows.values():
        if part.iter_reused_blocks is None or part.iter_missed_blocks is None:
            return None
        reused += count_of("iterReusedBlocks", part.iter_reused_blocks) or 0
        missed += count_of("iterMissedBlocks", part.iter_missed_blocks) or 0
    return (reused, missed) if windows else None


def _hits(reused: int, missed: int, window: Window, window_ns: int | None) -> Metric:
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


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _StatsFile(context)
    context.engine = "tensorrt_llm"
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


_CAMEL: Final = frozenset({"kvCacheStats", "kvCacheIterationStats", "inflightBatchingStats"})
_SPACED: Final = frozenset({"Max KV cache blocks", "Used KV cache blocks"})


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(keys_of(item)) for item in objects)
    if ours == 0 or 2 * ours < len(objects):
        return None
    return Guess(
        0.7 + 0.28 * ours / len(objects),
        f"{ours} of {len(objects)} records have TensorRT-LLM's statistics of an iteration",
    )


def _is_ours(keys: frozenset[str]) -> bool:
    return bool(keys & _CAMEL) or keys >= _SPACED


FORMATS: tuple[Format, ...] = (
    Format(
        name="trtllm_stats",
        title="TensorRT-LLM iteration statistics (JSON)",
        framing="json",
        best_grade="C",
        supplies=(
            "prefix_hit_ratio",
            "kv_usage_ratio",
            "kv_used_tokens",
            "kv_capacity_tokens",
            "cpu_kv_usage_ratio",
            "running_requests",
            "waiting_requests",
            "finished_requests",
            "new_requests",
            "computed_tokens",
            "queue_s",
            "iteration_elapsed_s",
            "kv_loaded_bytes",
            "kv_stored_bytes",
        ),
        missing={
            "anything per request": "return_perf_metrics: true, and GET /perf_metrics polled into"
            " a file",
            "reuse at another cache size": "block identity: event_buffer_max_size > 0 in"
            " kv_cache_config, and GET /kv_cache_events written to a file",
            "the time zone": "--tz, as the engine's host has it",
        },
        versions="TensorRT-LLM 0.12 to 1.2 IterationStats, 2026 kvCacheIterationStats; Triton's"
        " tensorrtllm_backend of 2023",
        sniff=_sniff,
        read=_read,
        enable_hint="enable_iter_perf_stats: true in the trtllm-serve YAML; poll GET /metrics into"
        " a file from one place only, since each GET empties the buffer",
    ),
)
