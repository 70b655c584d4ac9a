"""Moving a hit against recomputing it, by prompt length: a panel an option, one pair of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report import charts
from kvtrace.report.axes import Axis, plot_text
from kvtrace.report.charts import Facet, Series
from kvtrace.report.figures.common import MOVE, PREFILL, Columns, absent, pick_table, show
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

MOVE_TABLES: Final = ("replay/move_by_prompt_bucket",)
MAX_PANELS: Final = 8
"""Options that the figure shows; the table has all."""


def move_against_recompute(record: AuditRecord, texts: Texts) -> ChartView:
    """Median time of the move and of recomputing, by prompt length, for each option with hits."""
    table = pick_table(record, MOVE_TABLES)
    columns = Columns(table) if table else None
    if table is None or columns is None:
        return absent("move", texts, "modelled")
    option, bucket = columns.find("option_id", "option"), columns.find("prompt_bucket")
    move = columns.find("move_p50_s", "move_p50_ns")
    again = columns.find("recompute_p50_s", "recompute_p50_ns")
    if option is None or bucket is None or move is None or again is None:
        return absent("move", texts, "modelled")
    ids = _moving(columns, option, move)
    values = [v for i in (move, again) for v in columns.numbers(i) if v is not None and v > 0]
    if not ids or not values:
        return absent("move", texts, "modelled")
    titles = {one.id: one.title for one in record.options}
    facets = [
        _facet(columns, (option, bucket, move, again), one, titles.get(one, one), texts)
        for one in ids[:MAX_PANELS]
    ]
    return ChartView(
        id="move",
        title=texts("chart.move.title"),
        origin="modelled",
        summary=_summary(facets, len(ids), texts),
        is_wide=True,
        figure=charts.facets(
            facets,
            categories=_categories(columns, bucket),
            x=Axis(texts("axis.bucket"), "category"),
            y=Axis(
                texts("axis.seconds_p50"),
                "seconds",
                log=True,
                bounds=(min(values) / 1.5, max(values) * 1.5),
            ),
        ),
        table=table_view(table, source=texts("source.replay"), origin="modelled"),
    )


def _moving(columns: Columns, option: int, move: int) -> list[str]:
    """Options that move anything."""
    pairs = zip(columns.cells(option), columns.numbers(move), strict=True)
    return list(dict.fromkeys(str(id) for id, value in pairs if value is not None and value > 0))


def _categories(columns: Columns, bucket: int) -> list[str]:
    """Buckets of all options, the smallest first."""
    pairs = zip(columns.numbers(bucket), columns.buckets(bucket), strict=True)
    return list(dict.fromkeys(name for _, name in sorted((n or 0.0, name) for n, name in pairs)))


def _facet(
    columns: Columns, indices: tuple[int, int, int, int], option_id: str, title: str, texts: Texts
) -> Facet:
    option, bucket, move, again = indices
    rows = [i for i, value in enumerate(columns.cells(option)) if str(value) == option_id]
    buckets = columns.buckets(bucket)
    names = [buckets[i] for i in rows]
    series = []
    for style, (key, colour, index) in enumerate(
        (("move", MOVE, move), ("recompute", PREFILL, again))
    ):
        numbers = columns.numbers(index)
        values = [numbers[i] for i in rows]
        name = texts(f"chart.move.{key}")
        hover = [
            f"{plot_text(title)}<br>{plot_text(name)}: {show(v, 's', texts)}<br>≥ {n}"
            for n, v in zip(names, values, strict=True)
        ]
        shown = [v if v is not None and v > 0 else None for v in values]
        series.append(Series(name, names, shown, colour, style, hover))
    return Facet(title, series)


def _slower(facet: Facet) -> list[str]:
    """Buckets in which the move takes longer at the median."""
    move, again = facet.series
    return [
        str(name)
        for name, a, b in zip(move.x, move.y, again.y, strict=True)
        if isinstance(a, int | float) and isinstance(b, int | float) and a > b
    ]


def _summary(facets: Sequence[Facet], options: int, texts: Texts) -> str:
    """Who moves slower than it recomputes at the median, and from which prompt length."""
    slower = [(facet.title, found) for facet in facets if (found := _slower(facet))]
    if not slower:
        said = texts("chart.move.never", count=str(len(facets)))
    else:
        each = texts("chart.move.join").join(
            texts("chart.move.at", option=title, buckets=", ".join(found))
            for title, found in slower
        )
        said = texts("chart.move.slower", slower=each, count=str(len(facets)))
    if options > len(facets):
        said += " " + texts("chart.move.more", options=str(options), count=str(len(facets)))
    return said
