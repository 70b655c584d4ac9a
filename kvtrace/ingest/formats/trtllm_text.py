"""TensorRT-LLM text logs: one line an engine step (`print_iter_log: true`), capacity, version.

Lines read from the sources of TensorRT-LLM 1.0 to 1.2 and of 2026 builds (PyTorch backend), where
fields move and change between `: ` and ` = `, so each is found by its name. `cached_kv_tokens` is
what the scheduled sequences hold, not what a cache hit. `prev_device_step_time` is of the step
before, and of idle time where that step was empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from kvtrace.ingest.clocks import NO_TIME, parse_iso
from kvtrace.ingest.contract import (
    Format,
    LineTime,
    LogContext,
    LogLine,
    Metric,
    SampleRow,
    Tally,
)
from kvtrace.ingest.textlog.fields import BadField, count_of
from kvtrace.ingest.textlog.formats import log_format

_ITERATION = re.compile(r"iter(?: =|:) ")
_FIELD = re.compile(
    r"([a-z][a-z_]{0,60})(?: =|:) (\{[^{}]*+\}|\[[^\[\]]*+\]|[^,{}\[\]]++)(?:, (?=[a-z])|\Z)"
)
_STATE = re.compile(r"'([a-z][a-z_]{0,60})': (\[[^\[\]]*+\]|[^,\[\]]++)(?:, (?=')|\Z)")
_MS = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)ms")
_RATIO = re.compile(r"[01](?:\.[0-9]{1,18})?(?:[eE]-[0-9]{1,2})?")
_US_STAMP = re.compile(r"([0-9]{2}-[0-9]{2})-([0-9]{4}) ([0-9:]{8})")
_VERSION = re.compile(r"Tensor ?RT[ -]LLM version: ([0-9][\w.+-]{0,40})")
_CAPACITY = re.compile(
    r"\[MemUsageChange\] Allocated [0-9.]{1,12} GiB for max tokens in paged KV cache"
    r" \(([0-9]{1,15})\)\."
)
_CAPACITY_START: Final = "[MemUsageChange] Allocated "
_MAX_MESSAGE: Final = 1 << 20
_STATES: Final = (
    ("num_ctx_requests", "iteration_context_requests", "requests", "last_batch"),
    ("num_ctx_tokens", "iteration_context_tokens", "tokens", "last_batch"),
    ("num_generation_tokens", "iteration_generation_tokens", "tokens", "last_batch"),
    ("cached_kv_tokens", "kv_used_tokens", "tokens", "instant"),
)


@dataclass(frozen=True, slots=True)
class _Step:
    """One engine step as its line says it."""

    number: int
    rank: int
    stamp: str | None
    is_empty: bool
    previous_device_s: float | None
    metrics: tuple[Metric, ...]


class TrtllmLog:
    """The TensorRT-LLM lines of one log while it is read."""

    def __init__(self, log: LogContext) -> None:
        self._context = log.context
        self._tally: Tally = log.context.tally
        self._emit = log.emit
        self._held: tuple[SampleRow, LineTime, _Step] | None = None
        self._versions: dict[str, None] = {}
        self._spellings: dict[str, None] = {}
        self._top_rank = 0

    def take(self, line: LogLine) -> bool:
        """Whether the line is TensorRT-LLM's; then it has its outcome."""
        message = line.message
        is_step = _ITERATION.match(message) is not None and "rank" in message[:200]
        if line.prefix != "trtllm" and not is_step:
            return False
        try:
            if is_step or (line.prefix == "trtllm" and _ITERATION.match(message)):
                self._iteration(line, message)
            elif not self._start(line, message):
                self._tally.ignore("other_engine_line")
        except BadField as bad:
            self._tally.reject(line.record, "damaged_line", str(bad))
        return True

    def _iteration(self, line: LogLine, message: str) -> None:
        step = _parse_step(message)
        if step.rank:
            self._top_rank = max(self._top_rank, step.rank)
            self._tally.ignore("duplicate_rank")
            return
        is_newer = "num_scheduled_requests = " in message
        self._spellings["1.2 or later" if is_newer else "1.0 or 1.1"] = None
        sample = SampleRow(
            offset=line.record.offset,
            line=line.record.line,
            observed_at_ns=None,
            engine=line.process,
            metrics=list(step.metrics),
        )
        self._tally.use()
        self._release(step)
        self._held = (sample, _time_of(line, step), step)

    def _release(self, following: _Step | None) -> None:
        """Emit the step before, with the time on the device that only the next line tells."""
        if self._held is None:
            return
        sample, time, step = self._held
        self._held = None
        is_next = following is not None and following.number == step.number + 1
        if following is not None and is_next and not step.is_empty:
            device_s = following.previous_device_s
            if device_s is not None:
                sample.metrics.append(_metric("iteration_device_s", device_s, "s", "last_batch"))
        self._emit(sample, time)

    def _start(self, line: LogLine, message: str) -> bool:
        """Whether the message is a known one of the start; then the record is used."""
        found = _VERSION.match(message)
        if found is not None:
            if not line.terminated:
                raise BadField("the file ends inside the line")
            self._versions[found[1].rstrip(".")] = None
            self._tally.use()
            return True
        if not message.startswith(_CAPACITY_START) or "paged KV cache" not in message[:200]:
            return False
        capacity = _CAPACITY.fullmatch(message)
        if capacity is None:
            raise BadField("capacity")
        # built twice where memory is measured first: the last one serves
        self._context.engine_facts["kv_capacity_tokens"] = int(capacity[1])
        self._tally.use()
        return True

    def finish(self) -> None:
        """Emit the last step; say which engine it was."""
        self._release(None)
        context = self._context
        context.engine = "tensorrt_llm"
        context.evidence_grade = "C"
        if self._top_rank:
            context.engine_facts["ranks"] = self._top_rank + 1
        if self._versions:
            context.engine_version = ", ".join(self._versions)
            context.engine_version_reason = "printed in the log"
        elif self._spellings:
            context.engine_version_reason = (
                f"not printed; iteration lines are spelled as in {', '.join(self._spellings)}"
            )


def _parse_step(message: str) -> _Step:
    """The step of an iteration line.

    Raises:
        BadField: it is not whole, or a field holds something else than it must.
    """
    if len(message) > _MAX_MESSAGE:
        raise BadField("longer than any line of its kind")
    fields = _pairs(_FIELD, message)
    states = fields.get("states", "")
    if "iter" not in fields or not (states.startswith("{") and states.endswith("}")):
        raise BadField("`iter` or `states` is missing")
    number = count_of("iter", fields["iter"])
    rank = count_of("rank", fields.get("global_rank") or fields.get("rank"))
    if number is None:
        raise BadField("`iter` is not a count")
    state = _pairs(_STATE, states[1:-1])
    metrics: list[Metric] = []
    if "host_step_time" in fields:
        host_s = _seconds("host_step_time", fields["host_step_time"])
        metrics.append(_metric("iteration_elapsed_s", host_s, "s", "last_batch"))
    scheduled = count_of("num_scheduled_requests", fields.get("num_scheduled_requests"))
    if "num_scheduled_requests" in fields:
        metrics.append(_metric("running_requests", scheduled, "requests", "instant"))
    if "kv_cache_util" in fields:
        metrics.append(_metric("kv_usage_ratio", _ratio(fields["kv_cache_util"]), "ratio"))
    counts = {name: count_of(name, state.get(name)) for name, *_ in _STATES}
    metrics.extend(
        _metric(metric, counts[name], unit, window)
        for name, metric, unit, window in _STATES
        if name in state
    )
    work = (counts["num_ctx_tokens"], counts["num_generation_tokens"])
    return _Step(
        number=number,
        rank=rank or 0,
        stamp=fields.get("timestamp"),
        is_empty=scheduled == 0 or (scheduled is None and not any(work)),
        previous_device_s=_seconds("prev_device_step_time", fields.get("prev_device_step_time")),
        metrics=tuple(metrics),
    )


def _pairs(pattern: re.Pattern[str], text: str) -> dict[str, str]:
    """Name to value of all pairs that the text consists of.

    Raises:
        BadField: something else stands there, or a name comes twice.
    """
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = pattern.match(text, at)
        if match is None or match[1] in found:
            raise BadField("fields of the iteration")
        found[match[1]] = match[2]
        at = match.end()
    return found


def _metric(name: str, value: float | None, unit: str, window: str | None = "instant") -> Metric:
    return Metric(
        metric=name, value=None if value is None else float(value), unit=unit, window=window
    )


def _seconds(name: str, text: str | None) -> float | None:
    """Seconds of `50.5ms`; None for `N/A`."""
    if text is None or text == "N/A":
        return None
    match = _MS.fullmatch(text)
    if match is None:
        raise BadField(f"`{name}` is not a duration")
    return float(Decimal(match[1]).scaleb(-3))


def _ratio(text: str) -> float | None:
    if text == "N/A":
        return None
    if _RATIO.fullmatch(text) is None:
        raise BadField("`kv_cache_util` is not a ratio")
    return float(text)


def _time_of(line: LogLine, step: _Step) -> LineTime:
    """The stamps of the line; where it has none, the time that the message states."""
    if line.time != NO_TIME or step.stamp is None:
        return line.time
    us_style = _US_STAMP.fullmatch(step.stamp)
    iso = step.stamp if us_style is None else f"{us_style[2]}-{us_style[1]} {us_style[3]}"
    parsed = parse_iso(iso)
    return NO_TIME if parsed is None else NO_TIME._replace(naive_ns=parsed.ns)


FORMATS: tuple[Format, ...] = (
    log_format(
        "trtllm_text",
        title="TensorRT-LLM iteration log",
        best_grade="C",
        supplies=(
            "iteration_elapsed_s",
            "iteration_device_s",
            "iteration_context_requests",
            "iteration_context_tokens",
            "iteration_generation_tokens",
            "running_requests",
            "kv_usage_ratio",
            "kv_used_tokens",
        ),
        missing={
            "cached_tokens": "return_perf_metrics: true (reused blocks of each"
            " request at /perf_metrics)",
            "hit_ratio": "enable_iter_perf_stats: true, with GET /metrics scraped",
            "reuse": "kv_cache_config: {event_buffer_max_size: 1048576}, with"
            " POST /kv_cache_events read in time",
        },
        versions="TensorRT-LLM 1.0 to 1.2 and 2026 builds (sources), PyTorch backend",
        prefixes=("trtllm", "formatted", "none"),
        open=TrtllmLog,
        enable_hint="print_iter_log: true in the file of --extra_llm_api_options",
    ),
)
