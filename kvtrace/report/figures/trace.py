"""What the trace itself holds: capacity curve, reuse and KV bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord, CurvePoint, Table
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Mark, Panel, Series
from kvtrace.report.figures.common import (
    PALETTE,
    Columns,
    absent,
    ceiling,
    largest,
    pick_table,
    show,
)
from kvtrace.report.format import format_in, pick_scale
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, made_table, table_view

CURVE_TABLES: Final = ("reuse/capacity_curve",)
REUSE_TABLES: Final = ("reuse/by_prompt_bucket",)
MARK_TABLES: Final = ("reuse/capacity_marks",)
TIER_SIZES: Final = (
    ("hbm_cache_bytes", "hbm"),
    ("dram_idle_bytes_per_instance", "dram_idle"),
    ("pool_dram_bytes", "pool"),
)
"""How ids of assumptions end that are the size of a tier, and the words of their mark."""
KV_TABLES: Final = ("kv/bytes_distribution",)


def capacity_curve(record: AuditRecord, texts: Texts) -> ChartView:
    """Hit ratio of an LRU cache by its capacity, with the tier sizes that are known."""
    curve = record.reuse.hit_curve
    if not curve:
        reason = record.reuse.unknown_reason
        return absent(
            "curve",
            texts,
            "computed",
            reason=texts("chart.curve.missing_because", reason=reason) if reason else None,
        )
    table = pick_table(record, CURVE_TABLES) or _curve_table(curve, texts)
    return ChartView(
        id="curve",
        title=texts("chart.curve.title"),
        origin="computed",
        summary=_curve_summary(record, texts),
        figure=_curve_figure(record, texts),
        table=table_view(table, source=texts("source.hit_curve"), origin="computed"),
    )


def _sizes(curve: Sequence[CurvePoint]) -> tuple[list[float], str]:
    """Capacities and their unit: bytes where every point knows them, else blocks."""
    if all(point.capacity_bytes for point in curve):
        return [point.capacity_bytes or 0.0 for point in curve], "bytes"
    return [float(point.capacity_blocks) for point in curve], "blocks"


def _curve_figure(record: AuditRecord, texts: Texts) -> str:
    curve = record.reuse.hit_curve
    x, unit = _sizes(curve)
    series = [
        _curve_line(texts(f"chart.curve.{key}"), (x, unit), values, style, texts)
        for style, (key, values) in enumerate(
            (
                ("tokens", [point.hit_ratio_tokens for point in curve]),
                ("blocks", [point.hit_ratio_blocks for point in curve]),
            )
        )
    ]
    marks = _tier_marks(record, x, texts) if unit == "bytes" else []
    ends = [*x, *(mark.x for mark in marks)]
    return charts.lines(
        series,
        x=Axis(
            texts("axis.capacity"),
            "bytes" if unit == "bytes" else "count",
            log=True,
            bounds=(min(ends) / _MARGIN, max(ends) * _MARGIN),
        ),
        y=Axis(
            texts("axis.hit_ratio"),
            "ratio",
            bounds=(0.0, _top(series)),
        ),
        marks=marks,
    )


_MARGIN: Final = 1.25
"""How far a logarithmic axis goes on beyond its first and last point."""


def _curve_line(
    name: str,
    sizes: tuple[Sequence[float], str],
    values: Sequence[float | None],
    style: int,
    texts: Texts,
) -> Series:
    x, unit = sizes
    hover = [
        f"{plot_text(name)}: {show(v, 'ratio', texts)}<br>{show(c, unit, texts)}"
        for c, v in zip(x, values, strict=True)
    ]
    return Series(name, x, values, PALETTE[style], style, hover)


def _curve_table(curve: Sequence[CurvePoint], texts: Texts) -> Table:
    return made_table(
        "hit_curve",
        texts("chart.curve.title"),
        (
            ("capacity_blocks", "blocks", texts("column.capacity_blocks")),
            ("capacity_bytes", "bytes", texts("column.capacity_bytes")),
            ("hit_ratio_tokens", "ratio", texts("column.hit_ratio_tokens")),
            ("hit_ratio_blocks", "ratio", texts("column.hit_ratio_blocks")),
        ),
        [
            [p.capacity_blocks, p.capacity_bytes, p.hit_ratio_tokens, p.hit_ratio_blocks]
            for p in curve
        ],
    )


def _curve_summary(record: AuditRecord, texts: Texts) -> str:
    curve = record.reuse.hit_curve
    x, unit = _sizes(curve)
    key = "chart.curve.marks_fleet" if _fleet_marks(record, texts) else "chart.curve.marks"
    marks = texts(key) if _tier_marks(record, x, texts) else ""
    ends = texts(
        "chart.curve.summary",
        first=show(x[0], unit, texts),
        first_hit=show(curve[0].hit_ratio_tokens, "ratio", texts),
        last=show(x[-1], unit, texts),
        last_hit=show(curve[-1].hit_ratio_tokens, "ratio", texts),
    )
    knee = record.reuse.knee
    if knee is not None:
        size = show(knee.capacity_blocks if unit == "blocks" else knee.capacity_bytes, unit, texts)
        ratio = show(knee.hit_ratio_tokens, "ratio", texts)
        ends += f" {texts('chart.curve.knee', size=size, ratio=ratio)}"
    return f"{ends} {marks}".strip()


def _top(series: Sequence[Series]) -> float:
    return ceiling([value for one in series for value in one.y])


def _fleet_marks(record: AuditRecord, texts: Texts) -> list[Mark]:
    """Sizes of the tiers of all instances together, as the query was asked for them."""
    table = pick_table(record, MARK_TABLES)
    columns = Columns(table) if table else None
    size = columns.find("capacity_bytes") if columns else None
    label = columns.find("label") if columns else None
    if columns is None or size is None or label is None:
        return []
    rows = zip(columns.cells(label), columns.numbers(size), strict=True)
    return [
        Mark(value, texts(f"chart.curve.fleet.{code}", size=_size(value)))
        for code, value in rows
        if value and texts.has(f"chart.curve.fleet.{code}")
    ]


def _tier_marks(record: AuditRecord, x: Sequence[float], texts: Texts) -> list[Mark]:
    """Sizes of tiers, the smallest first, unless far off the axis."""
    marks = _fleet_marks(record, texts) or [
        Mark(
            float(one.value),
            texts(f"chart.curve.mark.{words}", size=_size(float(one.value))),
        )
        for end, words in TIER_SIZES
        for one in record.assumptions
        if one.id.endswith(end) and isinstance(one.value, int | float)
    ]
    near = [mark for mark in marks if min(x) / _FAR <= mark.x <= max(x) * _FAR]
    return sorted(near, key=lambda mark: mark.x)


def _size(value: float) -> str:
    scale = pick_scale("bytes", [value])
    return (scale and format_in(value, scale)) or "0"


_FAR: Final = 30.0
"""How many times beyond the ends of the curve a tier is still marked."""


def reuse_by_bucket(record: AuditRecord, texts: Texts) -> ChartView:
    """Prompt tokens and the reusable ones among them, by prompt length."""
    table = pick_table(record, REUSE_TABLES)
    columns = Columns(table) if table else None
    bucket = columns.find("prompt_bucket") if columns else None
    whole = columns.find("prompt_tokens") if columns else None
    part = columns.find("reusable_tokens") if columns else None
    if table is None or columns is None or bucket is None or whole is None or part is None:
        return absent("reuse_bucket", texts, "computed")
    if all(cell is None for cell in columns.cells(part)):
        return absent("reuse_bucket", texts, "computed")
    names = columns.buckets(bucket)
    parts = [("prompt", whole), ("reusable", part), ("cached", columns.find("cached_tokens"))]
    series = []
    for style, (key, index) in enumerate(parts):
        if index is None or not any(value is not None for value in columns.numbers(index)):
            continue
        label = texts(f"chart.reuse_bucket.{key}")
        hover = [f"{plot_text(label)}: {show(v, 'tokens', texts)}" for v in columns.cells(index)]
        colour = (PALETTE[0], PALETTE[0], PALETTE[1])[style]
        values = columns.numbers(index)
        series.append(Series(label, names, values, colour, style, hover, faint=style == 0))
    top = largest(columns, part)
    return ChartView(
        id="reuse_bucket",
        title=texts("chart.reuse_bucket.title"),
        origin="computed",
        summary=texts(
            "chart.reuse_bucket.summary",
            bucket=names[top],
            value=show(columns.cells(part)[top], "tokens", texts),
            whole=show(columns.cells(whole)[top], "tokens", texts),
        ),
        figure=charts.columns(
            series, x=Axis(texts("axis.bucket"), "category"), y=Axis(texts("axis.tokens"), "count")
        ),
        table=table_view(table, origin="computed"),
    )


def kv_bytes(record: AuditRecord, texts: Texts) -> ChartView:
    """How many requests of each size there are, and which sizes carry the bytes."""
    spread = record.kv.distribution
    table = pick_table(record, KV_TABLES)
    columns = Columns(table) if table else None
    low = columns.find("kv_bytes_bucket") if columns else None
    count = columns.find("requests") if columns else None
    held = columns.find("kv_bytes") if columns else None
    if table is None or columns is None or low is None or count is None or held is None:
        return absent("kv", texts, "computed")
    names = [f"≥ {name}" for name in columns.shown(low)]
    panels = []
    for style, (index, axis) in enumerate(
        (
            (count, Axis(texts("axis.requests"), "count")),
            (held, Axis(texts("axis.kv_bytes"), "bytes")),
        )
    ):
        unit = table.units[index]
        hover = [
            f"{n}: {show(v, unit, texts)}" for n, v in zip(names, columns.cells(index), strict=True)
        ]
        x = [value or 0.0 for value in columns.numbers(index)]
        panels.append(Panel([Series(axis.title, x, names, PALETTE[style], style, hover)], axis))
    return ChartView(
        id="kv",
        title=texts("chart.kv.title"),
        origin="computed",
        summary=texts(
            "chart.kv.summary",
            p50=show(spread.p50, "bytes", texts),
            p90=show(spread.p90, "bytes", texts),
            maximum=show(spread.maximum, "bytes", texts),
            bucket=columns.shown(low)[largest(columns, held)],
        ),
        is_wide=True,
        figure=charts.side_by_side(panels),
        table=table_view(table, origin="computed"),
    )
