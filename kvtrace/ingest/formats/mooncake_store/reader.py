"""Reads the lines of Mooncake's master, transfer engine and store clients in text logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.ingest.contract import LineTime, LogContext, LogLine, Metric, SampleRow
from kvtrace.ingest.formats.mooncake_store.gains import Counters, Gain
from kvtrace.ingest.formats.mooncake_store.master import (
    ADMIN,
    PLAIN,
    DamagedSummary,
    MasterSummary,
    parse_master,
)
from kvtrace.ingest.formats.mooncake_store.summaries import Summaries, Summary
from kvtrace.ingest.formats.mooncake_store.transfers import ENGINE, SUMMARY_STARTS, parse_engine
from kvtrace.units import NS_PER_S

DEFAULT_INTERVAL_NS: Final = 10 * NS_PER_S
"""`kMetricReportIntervalSeconds` of the master."""
_MAX_INTERVAL_NS: Final = 600 * NS_PER_S
_STUCK_RATIO: Final = 0.95
"""Above this with no eviction the pool takes nothing new (kvcache-ai/Mooncake issue 2187)."""
_STUCK_LINES: Final = 3
_MAX_MASTERS: Final = 1_024


@dataclass(slots=True)
class _Master:
    """One master process so far."""

    time: LineTime | None = None
    full_lines: int = 0
    """Last lines in a row on which it was full and evicted nothing."""


class MooncakeLog:
    """Mooncake's lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._tally = log.context.tally
        self._emit = log.emit
        self._clock = log.clock
        self._master_counters = Counters(log.clock)
        self._client_counters = Counters(log.clock)
        self._masters: dict[str, _Master] = {}
        self._summaries = Summaries()
        self._generations: dict[str, None] = {}
        self._longest_full = 0

    def take(self, line: LogLine) -> bool:
        """Whether the line is Mooncake's; then it has its outcome."""
        if line.prefix == "none":
            return self._continuation(line)
        message = line.message
        if message.startswith((PLAIN, ADMIN)):
            self._master(line)
        elif message.startswith(ENGINE):
            self._engine(line)
        elif message.startswith(SUMMARY_STARTS):
            self._give_client(self._summaries.begin(line))
            self._tally.ignore("summary_heading")
        else:
            return False
        return True

    def _continuation(self, line: LogLine) -> bool:
        taken = self._summaries.take(line)
        if taken is None:
            return False
        kind, complete = taken
        if kind == "used":
            self._tally.use()
        elif kind == "damaged":
            self._tally.reject(line.record, "damaged_line", "client summary")
        else:
            self._tally.ignore(kind)
        self._give_client(complete)
        return True

    def _sample(self, line: LogLine, metrics: list[Metric]) -> None:
        row = SampleRow(
            offset=line.record.offset,
            line=line.record.line,
            observed_at_ns=None,
            engine=line.process,
            metrics=metrics,
        )
        self._emit(row, line.time)
        self._tally.use()

    def _engine(self, line: LogLine) -> None:
        metrics = parse_engine(line.message) if line.terminated else None
        if metrics is None:
            self._tally.reject(line.record, "damaged_line", "transfer engine statistics")
        elif not metrics:
            self._tally.ignore("no_transfers")
        else:
            self._sample(line, metrics)

    def _master(self, line: LogLine) -> None:
        try:
            if not line.terminated and not line.message.endswith("}"):
                raise DamagedSummary("the file ends inside the line")
            summary = parse_master(line.message)
        except DamagedSummary as damaged:
            self._tally.reject(line.record, "damaged_line", f"master summary: {damaged}")
            return
        self._generations[summary.generation] = None
        process = f"{line.writer or ''}|{summary.generation}"
        if len(self._masters) >= _MAX_MASTERS and process not in self._masters:
            self._masters.clear()
        master = self._masters.setdefault(process, _Master())
        gain = self._gain(summary, process, master, line.time)
        master.time = line.time
        self._watch_pool(summary, gain, master)
        self._sample(line, [*_state(summary), *_gained(summary, gain)])

    def _gain(self, summary: MasterSummary, process: str, master: _Master, time: LineTime) -> Gain:
        """What the line says of the time since the last one."""
        counters = {
            "evicted_objects": float(summary.evicted_objects),
            "evicted_bytes": summary.evicted_bytes,
        }
        if summary.asked_items is not None and summary.found_items is not None:
            counters |= {"found": summary.found_items, "asked": summary.asked_items}
        if summary.generation != "3":
            if summary.puts is not None:
                counters["puts"] = float(summary.puts)
            return self._master_counters.gain(process, counters, time)
        elapsed = None if master.time is None else self._clock.elapsed_ns(master.time, time)
        is_likely = elapsed is not None and 0 < elapsed <= _MAX_INTERVAL_NS
        window_ns = elapsed if is_likely and elapsed is not None else DEFAULT_INTERVAL_NS
        for name in ("found", "asked"):
            if name in counters:
                counters[name] *= window_ns / NS_PER_S
        return Gain(counters, "interval", window_ns)

    def _watch_pool(self, summary: MasterSummary, gain: Gain, master: _Master) -> None:
        """A full pool that evicts nothing serves old objects only."""
        is_full = summary.usage_ratio is not None and summary.usage_ratio >= _STUCK_RATIO
        is_still = is_full and gain.values["evicted_objects"] == 0
        master.full_lines = master.full_lines + 1 if is_still else 0
        self._longest_full = max(self._longest_full, master.full_lines)

    def _give_client(self, summary: Summary | None) -> None:
        """Emit what a summary says: bytes gained, bounds of latency since start."""
        if summary is None:
            return
        gain = self._client_counters.gain(summary.process, summary.totals, summary.time)
        metrics = [
            Metric(
                metric=f"pool_{verb}_bytes",
                value=gain.values[name],
                unit="bytes",
                window=gain.window,
                window_ns=gain.window_ns,
            )
            for name, verb in (("Read", "read"), ("Write", "written"))
            if name in gain.values
        ]
        for name, metric in (("Get", "pool_read_p95_le_s"), ("Put", "pool_write_p95_le_s")):
            bound = summary.p95_s.get(f"Batch {name}", summary.p95_s.get(name))
            if bound is not None:
                metrics.append(Metric(metric=metric, value=bound, unit="s", window="cumulative"))
        row = SampleRow(
            offset=summary.offset,
            line=summary.line,
            observed_at_ns=None,
            engine=summary.process.partition(" ")[0] or None,
            metrics=metrics,
        )
        self._emit(row, summary.time)

    def finish(self) -> None:
        """Emit the summaries that the file ended in, and say what the file is."""
        for summary in self._summaries.rest():
            self._give_client(summary)
        context = self._context
        context.engine = "mooncake"
        context.evidence_grade = "C"
        if self._generations:
            shown = ", ".join(sorted(self._generations))
            context.engine_facts["master_generation"] = shown
            context.engine_version_reason = (
                f"not printed; the master's summary is of generation {shown}"
            )
            context.note(
                "pool_objects_are_not_tokens",
                "The master counts objects (pages or chunks of a layer or rank); its hit ratio is"
                " of objects asked for in batch gets, not of tokens or requests.",
            )
        if self._longest_full >= _STUCK_LINES:
            context.note(
                "pool_stuck",
                f"The pool was at least {_STUCK_RATIO:.0%} full and evicted nothing over"
                f" {self._longest_full} reports: new objects find no room.",
                severity="warning",
            )


def _state(summary: MasterSummary) -> list[Metric]:
    """What the pool holds."""
    values: list[tuple[str, float | None, str]] = [
        ("pool_used_bytes", summary.used_bytes, "bytes"),
        ("pool_capacity_bytes", summary.capacity_bytes, "bytes"),
        ("pool_objects", float(summary.objects), "objects"),
    ]
    if summary.has_ssd:
        values += [
            ("pool_ssd_used_bytes", summary.ssd_used_bytes, "bytes"),
            ("pool_ssd_capacity_bytes", summary.ssd_capacity_bytes, "bytes"),
        ]
    if summary.clients is not None:
        values.append(("pool_clients", float(summary.clients), "clients"))
    metrics = [
        Metric(metric=name, value=value, unit=unit, window="instant")
        for name, value, unit in values
    ]
    if summary.usage_ratio is not None:
        metrics.append(
            Metric(
                metric="pool_usage_ratio",
                value=summary.usage_ratio,
                unit="ratio",
                window="instant",
                numerator=summary.used_bytes,
                denominator=summary.capacity_bytes,
            )
        )
    return metrics


def _gained(summary: MasterSummary, gain: Gain) -> list[Metric]:
    """What happened over the window."""
    values: list[tuple[str, float, str]] = [
        ("pool_evicted_objects", gain.values["evicted_objects"], "objects"),
        ("pool_evicted_bytes", gain.values["evicted_bytes"], "bytes"),
    ]
    if summary.failed_allocations is not None:
        values.append(("pool_failed_allocations", float(summary.failed_allocations), "requests"))
    metrics = [
        Metric(metric=name, value=value, unit=unit, window=gain.window, window_ns=gain.window_ns)
        for name, value, unit in values
    ]
    if "asked" in gain.values and "found" in gain.values:
        found, asked = gain.values["found"], gain.values["asked"]
        metrics.append(
            Metric(
                metric="pool_hit_ratio",
                value=found / asked if asked > 0 and found <= asked else None,
                unit="ratio",
                hit_unit="objects",
                window=gain.window,
                window_ns=gain.window_ns,
                numerator=found,
                denominator=asked,
            )
        )
    return metrics
