"""Single requests as shown: their place in the log, their timeline as bars, the filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.drilldown.record import Drilldown, TracedRequest
from kvtrace.audit.record import AuditRecord
from kvtrace.report.figures.common import show
from kvtrace.report.format import Scale, format_in, format_value, pick_scale, safe_text
from kvtrace.report.texts import Texts

PARTS: Final = ("queue", "lookup", "pull", "load", "prefill")
"""Of a TTFT, in the order in which they come."""
KINDS: Final = ("lost", "slow")


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of a timeline, in percent of the longest one that is shown."""

    part: str
    left: float
    width: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The bars of one request, and the same in words."""

    label: str
    bars: tuple[Bar, ...]
    end: float
    """Percent: where the first token comes."""
    words: str


@dataclass(frozen=True, slots=True)
class RequestView:
    """One request."""

    kind: str
    bucket: str
    title: str
    place: str | None
    """`file:line`; null where it is no request of the log."""
    sentence: str
    measured: str | None
    timelines: tuple[Timeline, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a filter."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class DrilldownView:
    """The section."""

    sentences: tuple[str, ...]
    rows: tuple[RequestView, ...]
    kinds: tuple[Choice, ...]
    buckets: tuple[Choice, ...]
    axis: tuple[str, str]
    """First and last mark of the common time axis."""


def drilldown_view(record: AuditRecord, texts: Texts) -> DrilldownView | None:
    """Null where nothing was replayed."""
    found = record.drilldown
    if found is None:
        return None
    longest = max((max(one.ttft_s, one.without_s) for one in found.rows), default=0.0)
    scale = pick_scale("s", [longest]) or Scale("s", 1.0)
    shown_kinds = [kind for kind in KINDS if any(row.kind == kind for row in found.rows)]
    buckets = sorted({row.prompt_bucket for row in found.rows})
    return DrilldownView(
        sentences=tuple(_sentences(found, texts)),
        rows=tuple(_request(row, longest, scale, texts) for row in found.rows),
        kinds=tuple(Choice(kind, texts(f"drill.kind.{kind}")) for kind in shown_kinds),
        buckets=tuple(Choice(str(one), _bucket(one, texts)) for one in buckets),
        axis=(format_in(0.0, scale) or "", format_in(longest, scale) or ""),
    )


def _sentences(found: Drilldown, texts: Texts) -> Iterator[str]:
    option = safe_text(found.title)
    yield texts(f"drill.option.{found.why_option}", option=option)
    lost = sum(row.kind == "lost" for row in found.rows)
    whole = format_value(found.requests, "requests") or ""
    if found.lost:
        yield texts(
            "drill.lost",
            shown=format_value(lost, ""),
            lost=format_value(found.lost, ""),
            requests=whole,
        )
    else:
        yield texts("drill.none_lost", requests=whole)
    yield texts("drill.slow", shown=format_value(len(found.rows) - lost, ""))
    key = "drill.measured" if found.measured_ttft else "drill.not_measured"
    yield texts(key, known=format_value(found.measured_ttft, ""), requests=whole)


def _request(row: TracedRequest, longest: float, scale: Scale, texts: Texts) -> RequestView:
    parts = [(part, float(getattr(row, f"{part}_s"))) for part in PARTS]
    timelines = [_timeline("as_replayed", parts, longest, scale, texts)]
    if row.kind == "lost":
        again = [("queue", row.queue_s), ("prefill", row.without_s - row.queue_s)]
        timelines.append(_timeline("recomputed", again, longest, scale, texts))
    key = "drill.request_lost" if row.kind == "lost" else "drill.request_slow"
    return RequestView(
        kind=row.kind,
        bucket=str(row.prompt_bucket),
        title=texts(
            "drill.title",
            rank=format_value(row.request_rank, ""),
            tokens=show(row.prompt_tokens, "tokens", texts),
        ),
        place=None if row.file is None else f"{safe_text(row.file)}:{row.line}",
        sentence=texts(
            key,
            ttft=format_in(row.ttft_s, scale),
            regret=format_in(row.regret_s, scale),
            without=format_in(row.without_s, scale),
            moved=show(row.moved_bytes, "bytes", texts, name="moved_bytes"),
            hit=show(row.hit_tokens, "tokens", texts),
        ),
        measured=_measured(row, scale, texts),
        timelines=tuple(timelines),
    )


def _measured(row: TracedRequest, scale: Scale, texts: Texts) -> str | None:
    told = [
        texts(f"drill.figure.{name}", value=value)
        for name, value in (
            (
                "ttft",
                None if row.measured_ttft_s is None else format_in(row.measured_ttft_s, scale),
            ),
            (
                "queue",
                None if row.measured_queue_s is None else format_in(row.measured_queue_s, scale),
            ),
            ("cached", format_value(row.measured_cached_tokens, "tokens")),
        )
        if value is not None
    ]
    return None if not told else texts("drill.logged", figures=", ".join(told))


def _timeline(
    name: str,
    parts: Sequence[tuple[str, float]],
    longest: float,
    scale: Scale,
    texts: Texts,
) -> Timeline:
    label = texts(f"drill.timeline.{name}")
    bars, at = [], 0.0
    per_second = 100.0 / longest if longest > 0 else 0.0
    for part, seconds in parts:
        if seconds > 0:
            bars.append(Bar(part, round(at * per_second, 3), round(seconds * per_second, 3)))
        at += seconds
    words = ", ".join(
        f"{texts(f'drill.part.{part}')} {format_in(seconds, scale)}"
        for part, seconds in parts
        if seconds > 0
    )
    return Timeline(label, tuple(bars), round(at * per_second, 3), f"{label}: {words}")


def _bucket(lower: int, texts: Texts) -> str:
    return texts("drill.bucket", tokens=format_value(lower, "tokens"))
