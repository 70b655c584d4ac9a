"""Statistics lines of vLLM: V0 (two lines), V1 (optional fields).

Every line is read whole or not at all: a number must be followed by its delimiter, and the fields
that every version prints must be there, so that a line with its middle eaten is not half a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from kvtrace.ingest.contract import Metric

STATS_START: Final = "Avg prompt throughput: "
V0_HITS_START: Final = "Prefix cache hit rate: GPU: "
HitRule = Literal["none", "v0", "v1"]
"""How a metric's hit unit is found: not a hit, V0 (blocks), V1 (by version)."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric of a line: unit, window, what a hit counts, and the scale of the print."""

    metric: str
    unit: str
    window: str | None = "instant"
    hit: HitRule = "none"
    shift: int = 0
    """Power of ten between the print and the unit: −2 for per cent, −3 for ms."""


@dataclass(frozen=True, slots=True)
class ParsedStats:
    """The values of one line, in print order."""

    engine: str | None
    values: tuple[tuple[MetricSpec, float | None], ...]
    features: tuple[str, ...] = ()
    """Keys of `version.FEATURES` that this line shows."""
    field_names: tuple[str, ...] = ()
    has_unknown_field: bool = False


_NUMBER = r"(-?\d{1,18}(?:\.\d{1,18})?|nan|-?inf)"
_LABEL = re.compile(r"(Engine \d{1,5}|\d{1,5} Engines Aggregated): ", re.ASCII)
_FETCH = re.compile(
    r"(\d{1,9}) waiting to start, (\d{1,9}) in progress, (\d{1,9}) completed waiting", re.ASCII
)
_FIELD = re.compile(rf"{_NUMBER}(?: tokens/s| reqs?|%)?", re.ASCII)
_NAME = re.compile(r"[A-Za-z][\w /()-]{0,60}")

_PROMPT_RATE: Final = MetricSpec("prompt_tokens_per_s", "tokens_per_s", "interval")
_OUTPUT_RATE: Final = MetricSpec("generation_tokens_per_s", "tokens_per_s", "interval")
_RUNNING: Final = MetricSpec("running_requests", "requests")
_WAITING: Final = MetricSpec("waiting_requests", "requests")
_USAGE: Final = MetricSpec("kv_usage_ratio", "ratio", shift=-2)
_CPU_USAGE: Final = MetricSpec("cpu_kv_usage_ratio", "ratio", shift=-2)
_LAST_1000: Final = "last_1000_requests"

_FIELDS: Final[dict[str, tuple[MetricSpec, str]]] = {
    # printed name: (metric, what must stand behind the number)
    "Avg prompt throughput": (_PROMPT_RATE, " tokens/s"),
    "Avg generation throughput": (_OUTPUT_RATE, " tokens/s"),
    "Running": (_RUNNING, " reqs"),
    "Waiting": (_WAITING, " reqs"),
    "Pending": (_WAITING, " reqs"),
    "Swapped": (MetricSpec("swapped_requests", "requests"), " reqs"),
    "Deferred": (MetricSpec("deferred_requests", "requests"), " reqs"),
    "Preemptions": (MetricSpec("preemptions", "requests", "interval"), ""),
    "CPU KV cache usage": (_CPU_USAGE, "%"),
    "Prefix cache hit rate": (
        MetricSpec("prefix_hit_ratio", "ratio", _LAST_1000, "v1", -2),
        "%",
    ),
    "External prefix cache hit rate": (
        MetricSpec("external_prefix_hit_ratio", "ratio", _LAST_1000, "v1", -2),
        "%",
    ),
    "MM cache hit rate": (MetricSpec("mm_hit_ratio", "ratio", _LAST_1000, "none", -2), "%"),
}
_FETCH_METRICS: Final = (
    MetricSpec("kv_fetch_waiting_requests", "requests"),
    MetricSpec("kv_fetch_running_requests", "requests"),
    MetricSpec("kv_fetch_done_requests", "requests"),
)
_SKIPPED: Final = ("Corrupted",)
"""Printed, but its counter is reset before it is printed: 0 there is no evidence."""
_FEATURE_OF: Final[dict[str, str]] = {
    "External prefix cache hit rate": "external_hit",
    "MM cache hit rate": "external_hit",
    "Deferred": "deferred",
    "KV fetch": "kv_fetch",
    "Swapped": "v0_stats",
    "Waiting": "v1_stats",
}


def _value(text: str, spec: MetricSpec) -> float | None:
    """The printed number in the metric's unit, nearest to the decimal.

    None where it measures nothing: nan, inf, or less than zero.
    """
    if "n" in text or text[0] == "-":
        return None
    return float(Decimal(text).scaleb(spec.shift)) if spec.shift else float(text)


def unlabelled(message: str) -> tuple[str | None, str]:
    """(engine that the message names, the message behind that name)."""
    if message[:7] != "Engine " and " Engines Aggregated: " not in message[:40]:
        return None, message
    match = _LABEL.match(message)
    return (match[1], message[match.end() :]) if match is not None else (None, message)


def looks_like_stats_rest(text: str) -> bool:
    """Whether a line without prefix is the torn-off end of a statistics line."""
    return " KV cache usage: " in text[-600:] and " tokens/s, Running: " in text[-900:]


def parse_stats(message: str) -> ParsedStats | None:
    """The values of a V0 or V1 statistics line; None if it is not whole."""
    engine, body = unlabelled(message)
    if len(body) > 2_000:
        return None
    fields = _split_fields(body.removesuffix("."))
    if fields is None:
        return None
    values: list[tuple[MetricSpec, float | None]] = []
    features: list[str] = []
    if engine is not None:
        features.append("aggregated" if "Aggregated" in engine else "engine_label")
    has_unknown_field = False
    for name, text in fields:
        if name in _FEATURE_OF:
            features.append(_FEATURE_OF[name])
        found = _read_field(name, text)
        if found is None:
            return None
        if not found and name not in _SKIPPED:
            has_unknown_field = True
        values.extend(found)
    names = tuple(name for name, _ in fields)
    if "GPU KV cache usage" not in names and "Pending" not in names:
        features.append("device_name")  # the newest print CPU or TPU for the one device there is
        values = [(_USAGE if spec is _CPU_USAGE else spec, value) for spec, value in values]
    if not _is_whole(names, {spec.metric for spec, _ in values}):
        return None
    return ParsedStats(engine, tuple(values), tuple(features), names, has_unknown_field)


def _split_fields(body: str) -> list[tuple[str, str]] | None:
    """(name, value text) of the fields; None if something stands there that is no field."""
    fields: list[tuple[str, str]] = []
    for part in body.split(", "):
        name, colon, text = part.partition(": ")
        if colon and _NAME.fullmatch(name):
            fields.append((name, text))
        elif not colon and fields and fields[-1][0] == "KV fetch":
            fields[-1] = ("KV fetch", f"{fields[-1][1]}, {part}")
        else:
            return None
    return fields


def _read_field(name: str, text: str) -> list[tuple[MetricSpec, float | None]] | None:
    """The metrics of one field; an empty list for a field without a metric; None if damaged."""
    if name == "KV fetch":
        fetch = _FETCH.fullmatch(text)
        if fetch is None:
            return None
        return [
            (spec, float(text)) for spec, text in zip(_FETCH_METRICS, fetch.groups(), strict=True)
        ]
    known = _FIELDS.get(name)
    match = _FIELD.fullmatch(text)
    if match is None:
        return None
    if known is None:
        is_usage = name.endswith(" KV cache usage") and text.endswith("%")
        return [(_USAGE, _value(match[1], _USAGE))] if is_usage else []
    spec, tail = known
    if text[len(match[1]) :] not in (tail, tail.removesuffix("s")):
        return None
    return [(spec, _value(match[1], spec))]


def _is_whole(names: tuple[str, ...], metrics: set[str]) -> bool:
    """Whether the fields that every version prints are there, once each and in their order."""
    if len(set(names)) != len(names) or len(names) < 5:
        return False
    leading = ("Avg prompt throughput", "Avg generation throughput", "Running")
    if names[:3] != leading or not {"Waiting", "Pending"} & set(names):
        return False
    if "Pending" in names and "CPU KV cache usage" not in names:
        return False
    return "kv_usage_ratio" in metrics


_V0_HITS = re.compile(rf"Prefix cache hit rate: GPU: {_NUMBER}%, CPU: {_NUMBER}%\.?", re.ASCII)
_V0_SPECS: Final = (
    MetricSpec("prefix_hit_ratio", "ratio", "cumulative", "v0", -2),
    MetricSpec("cpu_prefix_hit_ratio", "ratio", "cumulative", "v0", -2),
)


def parse_v0_hits(message: str) -> ParsedStats | None:
    """The second line of V0 statistics; −1 means that prefix caching is off: no metric."""
    match = _V0_HITS.fullmatch(message)
    if match is None:
        return None
    values = [
        (spec, _value(text, spec))
        for spec, text in zip(_V0_SPECS, match.groups(), strict=True)
        if not text.startswith("-")
    ]
    return ParsedStats(None, tuple(values), ("v0_stats",))


def to_metrics(
    values: tuple[tuple[MetricSpec, float | None], ...], *, v1_hit_unit: str | None
) -> list[Metric]:
    """Metrics for a sample row, with what the hits of V1 count."""
    units = {"none": None, "v0": "blocks", "v1": v1_hit_unit}
    return [
        Metric(
            metric=spec.metric,
            value=value,
            unit=spec.unit,
            hit_unit=units[spec.hit],
            window=spec.window,
        )
        for spec, value in values
    ]
