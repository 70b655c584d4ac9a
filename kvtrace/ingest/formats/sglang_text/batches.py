"""Batch lines of SGLang's scheduler, 0.2 to 0.5.23: fields by name, in any order.

A line is read whole or not at all. Every number must have its delimiter behind it, decimals their
two digits, and the fields that every version prints must be there once: a line with its middle
eaten or its end cut is not half a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, NamedTuple

from kvtrace.ingest.contract import Metric
from kvtrace.ingest.limits import MAX_COUNT

BatchKind = Literal["prefill", "decode"]
_HEAD = re.compile(
    r"(Prefill|Decode) batch(?: \[[0-9]{1,12}\])?(?:\(mixed #running-req: ([0-9]{1,9})\))?[.,]? "
)
_COUNT = re.compile(r"[0-9]{1,16}")
_DECIMAL = re.compile(r"-?[0-9]{1,12}\.[0-9]{2,12}|-?nan|-?inf")
_WORD = re.compile(r"True|False|None|-?[0-9]{1,16}(?:\.[0-9]{1,12})?%?")
_NAME = re.compile(r"#?[A-Za-z][\w /()-]{0,60}")
_MAX_CHARS: Final = 3_000
_REQUIRED: Final[dict[BatchKind, tuple[str, ...]]] = {
    "prefill": ("#new-seq", "#new-token", "#cached-token", "#queue-req"),
    "decode": ("#running-req", "#queue-req", "gen throughput (token/s)"),
}
BATCH_STARTS: Final = ("Prefill batch", "Decode batch")


class _Gauge(NamedTuple):
    metric: str
    unit: str
    window: str = "instant"


_USAGE: Final = _Gauge("kv_usage_ratio", "ratio")
_COUNTS: Final[dict[str, _Gauge | None]] = {
    "#new-seq": _Gauge("new_requests", "requests", "last_batch"),
    "#new-token": _Gauge("computed_tokens", "tokens", "last_batch"),
    "#cached-token": _Gauge("cached_tokens", "tokens", "last_batch"),
    "#running-req": _Gauge("running_requests", "requests"),
    "#queue-req": _Gauge("waiting_requests", "requests"),
    "#token": _Gauge("kv_used_tokens", "tokens"),
    "#full token": _Gauge("kv_used_tokens", "tokens"),
    "#unbootstrapped-req": _Gauge("bootstrap_requests", "requests"),
    "#bootstrap-req": _Gauge("bootstrap_requests", "requests"),
    "#transferring-req": _Gauge("transferring_requests", "requests"),
    "#inflight-req": _Gauge("transferring_requests", "requests"),
    "#transfer-req": _Gauge("transferring_requests", "requests"),
    "#prealloc-req": _Gauge("preallocated_requests", "requests"),
    "#retracted-req": _Gauge("retracted_requests", "requests"),
    "#pending-token": _Gauge("pending_prompt_tokens", "tokens"),
    "#swa token": None,
    "#replay-token": None,
    "#optimistic-req": None,
    "#gpu token": None,
    "#cpu token": None,
    "mamba num": None,
}
"""Whole numbers by printed name; None: known, and of no use here."""
_DECIMALS: Final[dict[str, _Gauge | None]] = {
    "token usage": _USAGE,
    "full token usage": _USAGE,
    "gpu token usage": _USAGE,
    "cpu token usage": _Gauge("cpu_kv_usage_ratio", "ratio"),
    "swa token usage": _Gauge("swa_kv_usage_ratio", "ratio"),
    "mamba usage": _Gauge("mamba_usage_ratio", "ratio"),
    "input throughput (token/s)": _Gauge("prompt_tokens_per_s", "tokens_per_s", "interval"),
    "gen throughput (token/s)": _Gauge("generation_tokens_per_s", "tokens_per_s", "interval"),
    "pre-allocated usage": None,
    "accept len": None,
    "accept rate": None,
}
_SWITCHES: Final = ("cuda graph", "npu graph", "cpu graph", "xpu graph")
_HIT_RATE: Final = "cache hit rate"
_KNOWN_NAMES: Final = (*_COUNTS, *_DECIMALS, *_SWITCHES, _HIT_RATE)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one line says."""

    kind: BatchKind
    fields: dict[str, str]
    """Value text by printed name, in print order."""
    features: tuple[str, ...]
    """Keys of `version.FEATURES` that this line shows."""
    unknown: tuple[str, ...]
    """Names of fields that are not known here."""

    def count(self, name: str) -> int | None:
        """The whole number printed under the name; None where it is not printed."""
        text = self.fields.get(name)
        return None if text is None else int(text)


def parse_batch(message: str) -> Batch | None:
    """The batch line; None if it is damaged."""
    head = _HEAD.match(message) if len(message) <= _MAX_CHARS else None
    if head is None:
        return None
    kind: BatchKind = "prefill" if head[1] == "Prefill" else "decode"
    body = message[head.end() :].rstrip(" ")
    has_comma_end = body.endswith(",")
    fields: dict[str, str] = {}
    unknown: list[str] = []
    for part in body.removesuffix(",").split(", "):
        name, colon, text = part.partition(": ")
        fits = _fits(name, text)
        if not colon or name in fields or not fits:
            return None
        if fits == "unknown":
            unknown.append(name)
        fields[name] = text
    if head[2] is not None and "#running-req" not in fields:
        fields["#running-req"] = head[2]
    if not all(name in fields for name in _REQUIRED[kind]):
        return None
    has_comma_head = head.group().endswith(", ")
    features = _features(kind, fields, has_comma_head=has_comma_head, has_comma_end=has_comma_end)
    return Batch(kind, fields, features, tuple(unknown))


def _fits(name: str, text: str) -> Literal["known", "unknown", ""]:
    """Whether the value is one that the field can have; empty if it cannot."""
    if name in _COUNTS:
        fits = _COUNT.fullmatch(text) is not None and int(text) <= MAX_COUNT
    elif name in _DECIMALS:
        fits = _DECIMAL.fullmatch(text) is not None
    elif name == _HIT_RATE:
        fits = text.endswith("%") and _DECIMAL.fullmatch(text, 0, len(text) - 1) is not None
    elif name in _SWITCHES:
        fits = text in ("True", "False")
    else:
        fits = _NAME.fullmatch(name) is not None and _WORD.fullmatch(text) is not None
        return "unknown" if fits else ""
    return "known" if fits else ""


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
    kind: BatchKind, fields: dict[str, str], *, has_comma_head: bool, has_comma_end: bool
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
    metrics = []
    seen: set[str] = set()
    for name, text in batch.fields.items():
        gauge = _COUNTS.get(name) or _DECIMALS.get(name)
        if gauge is not None and gauge.metric not in seen:
            seen.add(gauge.metric)
            metrics.append(
                Metric(
                    metric=gauge.metric,
                    value=_value(text),
                    unit=gauge.unit,
                    hit_unit="tokens" if name == "#cached-token" else None,
                    window=gauge.window,
                )
            )
    if batch.kind == "prefill":
        metrics.append(_hit_of_batch(batch))
        if _HIT_RATE in batch.fields:
            metrics.append(_hit_since_start(batch.fields[_HIT_RATE]))
    return metrics


def _value(text: str) -> float | None:
    return None if "n" in text else float(text)


def _hit_of_batch(batch: Batch) -> Metric:
    """Formula: cached / (cached + new), null for an empty batch; new is rounded up to pages."""
    cached, new = batch.count("#cached-token") or 0, batch.count("#new-token") or 0
    return Metric(
        metric="prompt_hit_ratio",
        value=cached / (cached + new) if cached + new else None,
        unit="ratio",
        hit_unit="tokens",
        window="last_batch",
        numerator=float(cached),
        denominator=float(cached + new),
    )


def _hit_since_start(text: str) -> Metric:
    """The printed rate of versions up to 0.4.2, when HBM was the only cache."""
    number = text.removesuffix("%")
    return Metric(
        metric="prefix_hit_ratio",
        value=None if "n" in number else float(Decimal(number).scaleb(-2)),
        unit="ratio",
        hit_unit="tokens",
        window="cumulative",
    )
