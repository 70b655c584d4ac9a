"""What the logs measured: latency by prompt length, and the service over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.charts import Axis, Kind, Panel, Series, plot_text
from kvtrace.report.figures.common import (
    MOVE,
    PALETTE,
    PREFILL,
    QUEUE,
    Columns,
    absent,
    largest,
    pick_table,
    show,
)
from kvtrace.report.format import format_instant, is_instant
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

LATENCY_TABLES: Final = ("latency/by_prompt_bucket",)
TIME_TABLES: Final = ("latency/hit_and_ttft_over_time",)
SAMPLE_TABLES: Final = ("samples/over_time",)


def latency_by_bucket(record: AuditRecord, texts: Texts) -> ChartView:
    """Queue against prefill by prompt length, as the logs measured them."""
    table = pick_table(record, LATENCY_TABLES)
    columns = Columns(table) if table else None
    bucket = columns.find("prompt_bucket") if columns else None
    if table is None or columns is None or bucket is None:
        return absent("latency", texts, "measured")
    names = columns.buckets(bucket)
    series = []
    facts: dict[str, str] = {}
    log = _spans_decades(columns)
    zeros = False
    for style, (key, colour) in enumerate((("queue", QUEUE), ("prefill", PREFILL), ("ttft", MOVE))):
        index = columns.find(f"{key}_p50_ns", f"{key}_p50_s", f"{key}_p50_ms")
        values = columns.numbers(index) if index is not None else []
        if index is None or not any(v is not None and v > 0 for v in values):
            continue
        label = texts(f"part.{key}")
        hover = [
            f"{plot_text(label)} P50: {show(v, 's', texts)}<br>≥ {n}"
            for n, v in zip(names, values, strict=True)
        ]
        zeros = zeros or (log and 0.0 in values)
        shown = [None if log and v == 0 else v for v in values]
        series.append(Series(label, names, shown, colour, style, hover))
        top = largest(columns, index)
        facts[key] = texts(
            "chart.latency.fact", part=label, bucket=names[top], value=show(values[top], "s", texts)
        )
    if not series:
        return absent("latency", texts, "measured")
    return ChartView(
        id="latency",
        title=texts("chart.latency.title"),
        origin="measured",
        summary=" ".join([*facts.values(), *([texts("chart.latency.zeros")] if zeros else [])]),
        figure=charts.lines(
            series,
            x=Axis(texts("axis.bucket"), "category"),
            y=Axis(texts("axis.seconds_p50"), "seconds", log=log),
        ),
        table=table_view(table),
    )


def _spans_decades(columns: Columns) -> bool:
    """Whether the medians are too far apart for a linear axis to show them all."""
    names = [name for name in columns.table.columns if name.split("_p50_")[0] in _STAGES]
    indices = [columns.table.columns.index(name) for name in names if "_p50_" in name]
    known = [v for i in indices for v in columns.numbers(i) if v is not None and v > 0]
    return bool(known) and max(known) > 100 * min(known)


_STAGES: Final = ("queue", "prefill", "ttft")
_TIME_PANELS: Final[tuple[tuple[str, Kind, tuple[tuple[str, str], ...]], ...]] = (
    (
        "hit_ratio",
        "ratio",
        (
            ("cached_ratio_tokens", "cached"),
            ("engine_prefix_hit_ratio", "engine"),
            ("reusable_ratio_tokens", "reusable"),
        ),
    ),
    (
        "ttft",
        "seconds",
        (("ttft_p50_ms", "ttft_p50"), ("ttft_p90_ms", "ttft_p90"), ("queue_p50_ms", "queue_p50")),
    ),
)


def over_time(record: AuditRecord, texts: Texts) -> ChartView:
    """Hit ratio and TTFT on one time axis, in two panels."""
    table = pick_table(record, TIME_TABLES)
    columns = Columns(table) if table else None
    time = columns.find("slice_start_ns") if columns else None
    if table is None or columns is None or time is None:
        return absent("over_time", texts, "measured")
    x, axis = _time_axis(columns, time, texts)
    panels: list[Panel] = []
    facts: list[str] = []
    for key, kind, candidates in _TIME_PANELS:
        series: list[Series] = []
        for name, words in candidates:
            index = columns.find(name)
            if index is not None and any(v is not None for v in columns.numbers(index)):
                style = len(series) + 3 * len(panels)
                one = _time_series(
                    columns, index, time, texts(f"chart.over_time.{words}"), x, style
                )
                series.append(one)
                facts.append(_range_fact(one, kind, texts))
        if series:
            panels.append(Panel(series, Axis(texts(f"axis.{key}"), kind)))
    if not panels:
        return absent("over_time", texts, "measured")
    return ChartView(
        id="over_time",
        title=texts("chart.over_time.title"),
        origin="measured",
        summary=" ".join(facts),
        figure=charts.stacked_panels(panels, x=axis),
        table=table_view(table),
    )


def _time_axis(columns: Columns, index: int, texts: Texts) -> tuple[list[float | str], Axis]:
    """Instants as dates where the clock is a wall clock, else seconds from the log's start."""
    name, unit = columns.table.columns[index], columns.table.units[index]
    cells = [cell if isinstance(cell, int | float) else 0 for cell in columns.cells(index)]
    if any(is_instant(cell, unit, name) for cell in cells):
        return [format_instant(cell) for cell in cells], Axis(texts("axis.clock"), "date")
    return [value or 0.0 for value in columns.numbers(index)], Axis(texts("axis.time"), "seconds")


def _time_series(
    columns: Columns, index: int, time: int, label: str, x: Sequence[float | str], style: int
) -> Series:
    hover = [
        f"{plot_text(label)}: {value}<br>{at}"
        for value, at in zip(columns.shown(index), columns.shown(time), strict=True)
    ]
    return Series(label, x, columns.numbers(index), PALETTE[style % len(PALETTE)], style, hover)


def _range_fact(series: Series, kind: Kind, texts: Texts) -> str:
    known = [value for value in series.y if isinstance(value, int | float)]
    unit = "ratio" if kind == "ratio" else "s"
    return texts(
        "chart.over_time.fact",
        what=series.name,
        low=show(min(known), unit, texts),
        high=show(max(known), unit, texts),
    )


SAMPLE_METRICS: Final[tuple[tuple[str, Kind], ...]] = (
    ("prefix_hit_ratio", "ratio"),
    ("external_prefix_hit_ratio", "ratio"),
    ("kv_usage_ratio", "ratio"),
    ("waiting_requests", "count"),
    ("running_requests", "count"),
)


def samples(record: AuditRecord, texts: Texts) -> ChartView:
    """What the engine said of itself, one panel per metric."""
    table = pick_table(record, SAMPLE_TABLES)
    columns = Columns(table) if table else None
    needed = (
        [columns.find(n) for n in ("observed_at_ns", "metric", "value", "engine")]
        if columns
        else []
    )
    if table is None or columns is None or None in needed:
        return absent("samples", texts, "measured")
    time, metric, value, engine = (index for index in needed if index is not None)
    x, axis = _time_axis(columns, time, texts)
    values, names = columns.numbers(value), columns.cells(metric)
    panels, facts = [], []
    for wanted, kind in SAMPLE_METRICS:
        rows = [i for i, name in enumerate(names) if name == wanted and values[i] is not None]
        if not rows:
            continue
        panels.append(
            Panel(
                _sample_lines(columns, rows, (engine, value, time), x, wanted),
                Axis(plot_text(wanted), kind),
            )
        )
        if kind == "ratio":
            whole = Series(wanted, [], [values[i] for i in rows], "")
            facts.append(_range_fact(whole, kind, texts))
    if not panels:
        return absent("samples", texts, "measured")
    return ChartView(
        id="samples",
        title=texts("chart.samples.title"),
        origin="measured",
        summary=" ".join(facts) or texts("chart.samples.summary"),
        figure=charts.stacked_panels(panels, x=axis),
        table=table_view(table),
    )


def _sample_lines(
    columns: Columns,
    rows: Sequence[int],
    indices: tuple[int, int, int],
    x: Sequence[float | str],
    metric: str,
) -> list[Series]:
    """One line per engine, at most six."""
    engine, value, time = indices
    labels = [str(cell) if cell is not None else "" for cell in columns.cells(engine)]
    values, shown, at = columns.numbers(value), columns.shown(value), columns.shown(time)
    lines = []
    for style, one in enumerate(dict.fromkeys(labels[i] for i in rows)):
        mine = [i for i in rows if labels[i] == one]
        name = f"{metric} {one}".strip()
        hover = [f"{plot_text(name)}: {shown[i]}<br>{at[i]}" for i in mine]
        lines.append(
            Series(
                name,
                [x[i] for i in mine],
                [values[i] for i in mine],
                PALETTE[style % len(PALETTE)],
                style,
                hover,
            )
        )
    return lines[:6]
