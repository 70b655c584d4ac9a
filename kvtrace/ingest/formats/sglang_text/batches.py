"""Batch lines of SGLang's scheduler, 0.2 to 0.5.23: fields by name, in any order.

A line is read whole or not at all. Every number must have its delimiter behind it, decimals their
two digits, and the fields that every version prints must be there once: a line with its middle
eaten or its end cut is not half a value.
"""

from __future__ import annotations

import re
from collections.abc import Container
from decimal import Decimal
from typing import Final, Literal, NamedTuple

import msgspec

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.values.limits import MAX_COUNT

BatchKind = Literal["prefill", "decode"]
_HEAD = re.compile(
    r"(Prefill|Decode) batch(?: \[[0-9]{1,12}\])?(?:\(mixed #running-req: ([0-9]{1,9})\))?[.,]? "
)
_COUNT = re.compile(r"[0-9]{1,16}")
_DECIMAL = re.compile(r"-?[0-9]{1,12}\.[0-9]{2,12}|-?nan|-?inf")
_WORD = re.compile(r"True|False|None|-?[0-9]{1,16}(?:\.[0-9]{1,12})?%?")
_NAME = re.compile(r"#?[A-Za-z][\w /()-]{0,60}")
_NUMBERED = re.compile(r" \[[0-9]{1,12}\]")
_MAX_CHARS: Final = 3_000
_MAX_SHAPES: Final = 256
_KIND_CHARS: Final = 6
_REQUIRED: Final[dict[BatchKind, tuple[str, ...]]] = {
    "prefill": ("#new-seq", "#new-token", "#cached-token", "#queue-req"),
    "decode": ("#running-req", "#queue-req", "gen throughput (token/s)"),
}
BATCH_STARTS: Final = ("Prefill batch", "Decode batch")


class Gauge(NamedTuple):
    """A metric that a field of a line gives."""

    metric: str
    unit: str
    window: str = "instant"
    hit_unit: str | None = None


_USAGE: Final = Gauge("kv_usage_ratio", "ratio")
_COUNTS: Final[dict[str, Gauge | None]] = {
    "#new-seq": Gauge("new_requests", "requests", "last_batch"),
    "#new-token": Gauge("computed_tokens", "tokens", "last_batch"),
    "#cached-token": Gauge("cached_tokens", "tokens", "last_batch", "tokens"),
    "#running-req": Gauge("running_requests", "requests"),
    "#queue-req": Gauge("waiting_requests", "requests"),
    "#token": Gauge("kv_used_tokens", "tokens"),
    "#full token": Gauge("kv_used_tokens", "tokens"),
    "#unbootstrapped-req": Gauge("bootstrap_requests", "requests"),
    "#bootstrap-req": Gauge("bootstrap_requests", "requests"),
    "#transferring-req": Gauge("transferring_requests", "requests"),
    "#inflight-req": Gauge("transferring_requests", "requests"),
    "#transfer-req": Gauge("transferring_requests", "requests"),
    "#prealloc-req": Gauge("preallocated_requests", "requests"),
    "#retracted-req": Gauge("retracted_requests", "requests"),
    "#pending-token": Gauge("pending_prompt_tokens", "tokens"),
    "#swa token": None,
    "#replay-token": None,
    "#optimistic-req": None,
    "#gpu token": None,
    "#cpu token": None,
    "mamba num": None,
}
"""Whole numbers by printed name; None: known, and of no use here."""
_DECIMALS: Final[dict[str, Gauge | None]] = {
    "token usage": _USAGE,
    "full token usage": _USAGE,
    "gpu token usage": _USAGE,
    "cpu token usage": Gauge("cpu_kv_usage_ratio", "ratio"),
    "swa token usage": Gauge("swa_kv_usage_ratio", "ratio"),
    "mamba usage": Gauge("mamba_usage_ratio", "ratio"),
    "input throughput (token/s)": Gauge("prompt_tokens_per_s", "tokens_per_s", "interval"),
    "gen throughput (token/s)": Gauge("generation_tokens_per_s", "tokens_per_s", "interval"),
    "pre-allocated usage": None,
    "accept len": None,
    "accept rate": None,
}
_SWITCHES: Final = ("cuda graph", "npu graph", "cpu graph", "xpu graph")
_HIT_RATE: Final = "cache hit rate"
_KNOWN_NAMES: Final = (*_COUNTS, *_DECIMALS, *_SWITCHES, _HIT_RATE)


class Shape:
    """Lines with the same fields in the same order, and what stands around them."""

    def __init__(self, kind: BatchKind, head: str, names: tuple[str, ...], end: str) -> None:
        self.kind = kind
        self.place_of = {name: place for place, name in enumerate(names)}
        self.has_rate = _HIT_RATE in self.place_of
        self.unknown = tuple(name for name in names if name not in _KNOWN_NAMES)
        self.features = _features(
            kind,
            self.place_of,
            has_comma_head=head.endswith(", "),
            has_comma_end=end.startswith(","),
        )
        self.gauges: list[tuple[int, Gauge]] = []
        """(place, gauge) of each metric; the first field of a metric counts."""
        for name, place in self.place_of.items():
            gauge = _COUNTS.get(name) or _DECIMALS.get(name)
            if gauge is not None and all(gauge.metric != seen.metric for _, seen in self.gauges):
                self.gauges.append((place, gauge))
        self._pattern = _line_pattern(head, names, end)

    def match(self, message: str) -> tuple[str, ...] | None:
        """The values of a line of this shape, as printed; None for any other line."""
        found = None if self._pattern is None else self._pattern.fullmatch(message)
        return None if found is None else found.groups()


class Batch(msgspec.Struct, frozen=True, gc=False):
    """What one line says."""

    shape: Shape
    values: tuple[str, ...]
    """As printed, in print order."""

    @property
    def kind(self) -> BatchKind:
        """Prefill or decode."""
        return self.shape.kind

    def text(self, name: str) -> str | None:
        """The value printed under the name; None where it is not printed."""
        place = self.shape.place_of.get(name)
        return None if place is None else self.values[place]

    def count(self, name: str) -> int | None:
        """The whole number printed under the name; None where it is not printed."""
        text = self.text(name)
        return None if text is None else int(text)


class BatchParser:
    """Parses batch lines; remembers their shapes, for nearly all lines of a log have few."""

    def __init__(self) -> None:
        self._last: dict[str, Shape] = {}
        self._shapes: dict[tuple[str, tuple[str, ...], str], Shape] = {}

    def parse(self, message: str) -> Batch | None:
        """The batch line; None if it is damaged."""
        if len(message) > _MAX_CHARS:
            return None
        start = message[:_KIND_CHARS]
        shape = self._last.get(start)
        if shape is not None:
            values = shape.match(message)
            if values is not None:
                return Batch(shape, values)
        batch = self._careful(message)
        if batch is not None:
            self._last[start] = batch.shape
        return batch

    def _careful(self, message: str) -> Batch | None:
        head = _HEAD.match(message)
        if head is None:
            return None
        kind: BatchKind = "prefill" if head[1] == "Prefill" else "decode"
        body = message[head.end() :].rstrip(" ")
        fields: dict[str, str] = {}
        for part in body.removesuffix(",").split(", "):
            name, colon, text = part.partition(": ")
            if not colon or name in fields or not _fits(name, text):
                return None
            fields[name] = text
        if head[2] is not None and "#running-req" not in fields:
            fields["#running-req"] = head[2]
        if not all(name in fields for name in _REQUIRED[kind]):
            return None
        end = message[head.end() + len(body.removesuffix(",")) :]
        key = (head.group(), tuple(fields), end)
        if _NUMBERED.search(key[0]):
            key = (_NUMBERED.sub(" [0]", key[0]), *key[1:])
        shape = self._shapes.get(key)
        if shape is None:
            shape = Shape(kind, *key)
            if len(self._shapes) < _MAX_SHAPES:
                self._shapes[key] = shape
        return Batch(shape, tuple(fields.values()))


def _line_pattern(head: str, names: tuple[str, ...], end: str) -> re.Pattern[str] | None:
    """A pattern of whole lines of one shape; None where the head holds a value."""
    if "(mixed" in head:
        return None
    start = re.escape(head).replace(re.escape(" [0]"), r" \[[0-9]{1,12}\]")
    fields = ", ".join(f"{re.escape(name)}: ({_value_pattern(name)})" for name in names)
    return re.compile(start + fields + re.escape(end))


def _value_pattern(name: str) -> str:
    """Values that need no second look."""
    if name in _COUNTS:
        return r"[0-9]{1,15}"
    if name in _DECIMALS:
        return _DECIMAL.pattern
    if name == _HIT_RATE:
        return rf"(?:{_DECIMAL.pattern})%"
    return r"True|False" if name in _SWITCHES else _WORD.pattern


def _fits(name: str, text: str) -> bool:
    """Whether the value is one that the field can have."""
    if name in _COUNTS:
        return _COUNT.fullmatch(text) is not None and int(text) <= MAX_COUNT
    if name in _DECIMALS:
        return _DECIMAL.fullmatch(text) is not None
    if name == _HIT_RATE:
        return text.endswith("%") and _DECIMAL.fullmatch(text, 0, len(text) - 1) is not None
    if name in _SWITCHES:
        return text in ("True", "False")
    return _NAME.fullmatch(name) is not None and _WORD.fullmatch(text) is not None


def looks_spliced(name: str) -> bool:
    """Whether an unknown name may be the start of a known one and the end of another."""
    return any(
        any(known.startswith(name[:cut]) for known in _KNOWN_NAMES)
        and any(known.endswith(name[cut:]) for known in _KNOWN_NAMES)
        for cut in range(1, len(name))
    )


def looks_like_batch_rest(text: str) -> bool:
    """Whether a line without prefix is the torn-off end of a batch line."""
    tail = text[-600:]
    is_ended = ", #queue-req: " in tail or " throughput (token/s): " in tail
    return is_ended and (", token usage: " in tail or "#running-req: " in tail)


def _features(
    kind: BatchKind, fields: Container[str], *, has_comma_head: bool, has_comma_end: bool
) -> tuple[str, ...]:
    features = []
    if _HIT_RATE in fields:
        features.append("hit_rate_and_usage" if "token usage" in fields else "hit_rate_alone")
    elif kind == "prefill":
        features.append("no_hit_rate")
    if has_comma_head:
        features.append("comma_head")
    if has_comma_end:
        features.append("comma_end")
    if "#unbootstrapped-req" in fields:
        features.append("unbootstrapped")
    if kind == "prefill" and any(name in fields for name in _SWITCHES):
        features.append("prefill_graph")
    if "#pending-token" in fields:
        features.append("pending")
    return tuple(features)


def to_metrics(batch: Batch) -> list[Metric]:
    """Metrics of one line, with the share of its prompts that was cached."""
    metrics = [
        Metric(
            metric=gauge.metric,
            value=_value(batch.values[place]),
            unit=gauge.unit,
            hit_unit=gauge.hit_unit,
            window=gauge.window,
        )
        for place, gauge in batch.shape.gauges
    ]
    if batch.kind == "prefill":
        cached, new = batch.count("#cached-token") or 0, batch.count("#new-token") or 0
        metrics.append(prompt_hit(float(cached), float(new), window="last_batch"))
        rate = since_start(batch)
        if rate is not None:
            metrics.append(rate)
    return metrics


def _value(text: str) -> float | None:
    """The printed number; None for nan and inf."""
    return None if "n" in text else float(text)


def prompt_hit(cached: float, new: float, *, window: str, window_ns: int | None = None) -> Metric:
    """Formula: cached / (cached + new), null for an empty batch; new is rounded up to pages."""
    return Metric(
        metric="prompt_hit_ratio",
        value=cached / (cached + new) if cached + new else None,
        unit="ratio",
        hit_unit="tokens",
        window=window,
        window_ns=window_ns,
        numerator=cached,
        denominator=cached + new,
    )


def since_start(batch: Batch) -> Metric | None:
    """The printed hit rate of versions up to 0.4.2, when HBM was the only cache."""
    text = batch.text(_HIT_RATE)
    if text is None:
        return None
    number = text.removesuffix("%")
    return Metric(
        metric="prefix_hit_ratio",
        value=None if "n" in number else float(Decimal(number).scaleb(-2)),
        unit="ratio",
        hit_unit="tokens",
        window="cumulative",
    )
