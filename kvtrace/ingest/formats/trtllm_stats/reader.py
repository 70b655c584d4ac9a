"""Records to observations: counters differenced, iterations followed, the clock described."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from kvtrace.ingest.clocks import parse_iso, zone_shift
from kvtrace.ingest.contract import Metric, ReadContext, Record, Row, SampleRow
from kvtrace.ingest.formats.trtllm_stats.metrics import (
    block_counters,
    blocks_of_iteration,
    hits,
    metric,
    moves,
    request_metrics,
    use_metrics,
)
from kvtrace.ingest.formats.trtllm_stats.shapes import Stats, decode_stats

_US_DATE: Final = re.compile(r"([0-9]{2})-([0-9]{2})-([0-9]{4})[ T]([0-9:.,]{8,20})")


class StatsFile:
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
        raw = decode_stats(record.data)
        observed_at_ns = self._time(raw.timestamp)
        metrics = request_metrics(raw)
        capacity_tokens, use = use_metrics(raw)
        metrics += use
        metrics += moves(raw)
        reused_missed = block_counters(raw.kv_cache_stats)
        of_iteration = blocks_of_iteration(raw)
        if not metrics and reused_missed is None and of_iteration is None:
            raise msgspec.ValidationError("no statistic of an iteration")
        # From here on the record is used: state may change.
        self._follow(raw.iter)
        if capacity_tokens is not None and capacity_tokens != self._capacity_tokens:
            self._capacity_tokens = capacity_tokens
            metrics.append(metric("kv_capacity_tokens", capacity_tokens, "tokens"))
        self._learn(raw, capacity_tokens)
        window_ns = self._since_last(observed_at_ns)
        if of_iteration is not None:
            metrics.append(hits(*of_iteration, "last_batch", None))
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
            return hits(*counters, "cumulative", None)
        gained = (counters[0] - last[0], counters[1] - last[1])
        if min(gained) < 0:
            self.restarts += 1
            return hits(*counters, "interval", None)
        return hits(*gained, "interval", window_ns)

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

    def _learn(self, raw: Stats, capacity_tokens: int | None) -> None:
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
                f"The block counters fell: the engine was restarted (times: {self.restarts}).",
            )
        if self.missing:
            context.note(
                "iterations_missing",
                f"Iterations between first and last that are not in the file: {self.missing};"
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
