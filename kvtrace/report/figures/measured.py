"""What the logs measured: latency by prompt length, and the service over time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, Kind, plot_text
from kvtrace.report.charts import Panel, Series
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
    time_axis,
)
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, Origin, table_view

LATENCY_TABLES: Final = ("latency/by_prompt_bucket",)
TIME_TABLES: Final = ("latency/hit_and_ttft_over_time",)


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
_HIT_SERIES: Final[tuple[tuple[str, str, Origin], ...]] = (
    ("cached_ratio_tokens", "cached", "measured"),
    ("engine_combined_hit_ratio", "combined", "measured"),
    ("engine_prefix_hit_ratio", "engine", "measured"),
    ("engine_external_hit_ratio", "external", "measured"),
    ("reusable_ratio_tokens", "reusable", "computed"),
)
_TTFT_SERIES: Final[tuple[tuple[str, str, Origin], ...]] = (
    ("ttft_p50_ms", "ttft_p50", "measured"),
    ("ttft_p90_ms", "ttft_p90", "measured"),
    ("queue_p50_ms", "queue_p50", "measured"),
)
_TIME_PANELS: Final[tuple[tuple[str, Kind, tuple[tuple[str, str, Origin], ...]], ...]] = (
    ("hit_ratio", "ratio", _HIT_SERIES),
    ("ttft", "seconds", _TTFT_SERIES),
)


def over_time(record: AuditRecord, texts: Texts) -> ChartView:
    """Hit ratio and TTFT on one time axis, in two panels; without TTFT only the ratios."""
    table = pick_table(record, TIME_TABLES)
    columns = Columns(table) if table else None
    time = columns.find("slice_start_ns") if columns else None
    if table is None or columns is None or time is None:
        return absent("over_time", texts, "measured")
    x, axis = time_axis(columns, time, texts)
    panels: list[Panel] = []
    facts: list[str] = []
    origins: set[Origin] = set()
    for key, kind, candidates in _TIME_PANELS:
        known = [(n, words, o) for n, words, o in candidates if _is_known(columns, n)]
        series = [
            _time_series(columns, (name, time), texts(f"chart.over_time.{words}"), x, style)
            for style, (name, words, _) in enumerate(known, start=len(facts))
        ]
        if series:
            panels.append(Panel(series, Axis(texts(f"axis.{key}"), kind)))
            facts += [_range_fact(one, kind, texts) for one in series]
            origins |= {origin for _, _, origin in known}
    if not panels:
        return absent("over_time", texts, "measured")
    words = {"ratio": "_ratio", "seconds": "_ttft"}
    only = words[panels[0].axis.kind] if len(panels) == 1 else ""
    return ChartView(
        id="over_time",
        title=texts(f"chart.over_time.title{only}"),
        origin="measured" if "measured" in origins else "computed",
        origin_too="computed" if len(origins) == 2 else None,
        summary=" ".join(facts),
        figure=charts.stacked_panels(panels, x=axis),
        table=table_view(table, origin="measured" if "measured" in origins else "computed"),
    )


def _is_known(columns: Columns, name: str) -> bool:
    """Whether the table has such a column and a value in it."""
    index = columns.find(name)
    return index is not None and any(cell is not None for cell in columns.cells(index))


def _time_series(
    columns: Columns, place: tuple[str, int], label: str, x: Sequence[float | str], style: int
) -> Series:
    name, time = place
    index = columns.table.columns.index(name)
    hover = [
        f"{plot_text(label)}: {value}<br>{at}"
        for value, at in zip(columns.shown(index), columns.shown(time), strict=True)
    ]
    return Series(label, x, columns.numbers(index), PALETTE[style % len(PALETTE)], style, hover)


def _sentence_start(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


_ASIDE: Final = re.compile(r" ?[(\uff08].*[)\uff09]$")


def _range_fact(series: Series, kind: Kind, texts: Texts) -> str:
    known = [value for value in series.y if isinstance(value, int | float)]
    unit = "ratio" if kind == "ratio" else "s"
    return texts(
        "chart.over_time.fact",
        what=_sentence_start(_ASIDE.sub("", series.name)),
        low=show(min(known), unit, texts),
        high=show(max(known), unit, texts),
    )
