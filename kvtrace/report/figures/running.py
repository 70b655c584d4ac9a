"""What the running system did: hit ratios, room for KV, queues, tokens, moves and links over time.

One figure a table. Series of different units or windows never share a panel: each panel's title
says what its numbers count and over which time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import AuditRecord, Cell
from kvtrace.report import charts
from kvtrace.report.axes import Axis, Kind, plot_text
from kvtrace.report.charts import Panel, Series
from kvtrace.report.figures.common import PALETTE, Columns, pick_table, show, time_axis
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView, table_view

_TIME: Final = "slice_start_ns"
_MAX_LINES: Final = 6
"""Most lines of one panel; the largest are drawn, the table has all."""


@dataclass(frozen=True, slots=True)
class _Figure:
    """One figure: its table, what is drawn, and what tells panels and lines apart."""

    id: str
    table: str
    value: str
    kind: Kind
    unit: str
    panels: tuple[str, ...] = ()
    """Columns whose values each get a panel; their words stand in its title."""
    lines: tuple[str, ...] = ()
    """Columns whose values each get a line in a panel."""
    value_too: str | None = None
    """A second column, in panels of its own."""


_FIGURES: Final = (
    _Figure(
        "running_hits",
        "samples/hit_ratio_over_time",
        "hit_ratio",
        "ratio",
        "ratio",
        panels=("hit_unit", "window"),
        lines=("metric", "source_id", "engine"),
    ),
    _Figure(
        "running_kv",
        "samples/kv_usage",
        "mean_ratio",
        "ratio",
        "ratio",
        lines=("metric", "source_id"),
    ),
    _Figure(
        "running_queue",
        "samples/queue_depth",
        "mean_requests",
        "count",
        "",
        lines=("metric", "source_id"),
    ),
    _Figure(
        "running_tokens",
        "samples/token_rates",
        "tokens_per_s",
        "count",
        "tokens/s",
        panels=("measured_as",),
        lines=("metric", "source_id"),
    ),
    _Figure(
        "running_moves",
        "samples/transfer_throughput",
        "wall_bytes_per_s",
        "traffic",
        "bytes/s",
        lines=("way", "source_id"),
        value_too="moving_bytes_per_s",
    ),
    _Figure(
        "running_links",
        "links/measured_bytes",
        "rx_bytes_per_s",
        "traffic",
        "bytes/s",
        panels=("link",),
        lines=("device", "file_id"),
        value_too="tx_bytes_per_s",
    ),
)
_WORDS: Final = {
    "metric": "metric.",
    "way": "way.",
    "link": "link.",
    "window": "window.",
    "measured_as": "measured_as.",
}
"""Prefix of the texts for the values of a column."""


def running(record: AuditRecord, texts: Texts) -> list[ChartView]:
    """The figures that there is data for."""
    drawn = (_draw(record, texts, figure) for figure in _FIGURES)
    return [view for view in drawn if view is not None]


@dataclass(frozen=True, slots=True)
class _Read:
    """A table, its time axis, and which of its identifying columns vary."""

    columns: Columns
    x: Sequence[float | str]
    times: Sequence[str]
    varying: frozenset[str]

    def cells(self, name: str) -> list[Cell]:
        index = self.columns.find(name)
        return [None] * len(self.x) if index is None else self.columns.cells(index)

    def keys(self, names: Sequence[str]) -> list[tuple[Cell, ...]]:
        """Per row, the values of these columns."""
        return list(zip(*(self.cells(name) for name in names), strict=True)) or [()] * len(self.x)


def _draw(record: AuditRecord, texts: Texts, figure: _Figure) -> ChartView | None:
    table = pick_table(record, (figure.table,))
    columns = Columns(table) if table else None
    time = columns.find(_TIME) if columns else None
    if table is None or columns is None or time is None:
        return None
    x, axis = time_axis(columns, time, texts)
    varying = frozenset(name for name in ("source_id", "file_id") if _varies(columns, name))
    read = _Read(columns, x, columns.shown(time), varying)
    panels = [
        panel
        for value in (figure.value, figure.value_too)
        if value is not None
        for panel in _panels(read, figure, value, texts)
    ]
    if not panels:
        return None
    title = texts(f"chart.{figure.id}.title")
    places = set(read.keys(figure.panels))
    if figure.panels and len(places) == 1:
        title = f"{title} ({_meaning(figure, places.pop(), texts)})"
    facts = [
        _fact(one, panel.axis.title if len(panels) > 1 else "", figure, texts)
        for panel in panels
        for one in panel.series
    ]
    return ChartView(
        id=figure.id,
        title=title,
        origin="measured",
        summary=" ".join(facts),
        figure=charts.stacked_panels(panels, x=axis),
        table=table_view(table),
    )


def _varies(columns: Columns, name: str) -> bool:
    index = columns.find(name)
    return index is not None and len(set(columns.cells(index))) > 1


def _panels(read: _Read, figure: _Figure, value: str, texts: Texts) -> list[Panel]:
    """One panel for each combination of the columns that keep series apart."""
    index = read.columns.find(value)
    if index is None:
        return []
    numbers = read.columns.numbers(index)
    places = read.keys(figure.panels)
    found: list[Panel] = []
    for place in dict.fromkeys(places):
        rows = [i for i, key in enumerate(places) if key == place and numbers[i] is not None]
        if rows:
            title = texts(f"axis.{figure.id}.{value}", of=_meaning(figure, place, texts))
            series = _lines(read, figure, index, rows, texts)
            found.append(Panel(series, Axis(title, figure.kind)))
    return found


def _meaning(figure: _Figure, place: tuple[Cell, ...], texts: Texts) -> str:
    """What a panel counts and over which window, in words."""
    words: list[str] = []
    for name, value in zip(figure.panels, place, strict=True):
        if name == "hit_unit":
            unit = texts("running.unit_unknown") if value is None else _word("unit.", value, texts)
            words.append(texts("samples.of", unit=unit) if value is not None else unit)
        elif value is None:
            words.append(texts("running.window_unknown"))
        else:
            words.append(_word(_WORDS[name], value, texts))
    return ", ".join(words)


def _word(prefix: str, value: Cell, texts: Texts) -> str:
    key = f"{prefix}{value}"
    return texts(key) if texts.has(key) else str(value)


def _lines(
    read: _Read, figure: _Figure, index: int, rows: Sequence[int], texts: Texts
) -> list[Series]:
    """The lines of a panel, the largest ones where there are many."""
    numbers, shown = read.columns.numbers(index), read.columns.shown(index)
    keys = read.keys(figure.lines)
    groups: dict[tuple[Cell, ...], list[int]] = {}
    for row in rows:
        groups.setdefault(keys[row], []).append(row)
    order = list(groups)
    largest = sorted(order, key=lambda key: -max(numbers[i] or 0.0 for i in groups[key]))
    kept = set(largest[:_MAX_LINES])
    found: list[Series] = []
    for key in order:
        if key not in kept:
            continue
        mine = groups[key]
        name = _line_name(read, figure, key, texts)
        style = len(found)
        found.append(
            Series(
                name,
                [read.x[i] for i in mine],
                [numbers[i] for i in mine],
                PALETTE[style % len(PALETTE)],
                style,
                [f"{plot_text(name)}: {shown[i]}<br>{read.times[i]}" for i in mine],
            )
        )
    return found


def _line_name(read: _Read, figure: _Figure, key: tuple[Cell, ...], texts: Texts) -> str:
    words: list[str] = []
    for name, value in zip(figure.lines, key, strict=True):
        if name == "source_id":
            words += [texts("running.source", id=value)] if name in read.varying else []
        elif name == "file_id":
            words += [texts("running.file", id=value)] if name in read.varying else []
        elif value is not None:
            words.append(_word(_WORDS[name], value, texts) if name in _WORDS else str(value))
    return " ".join(words) or texts("running.unnamed")


def _fact(series: Series, means: str, figure: _Figure, texts: Texts) -> str:
    known = [value for value in series.y if isinstance(value, int | float)]
    return texts(
        "chart.samples.fact",
        what=f"{series.name[:1].upper()}{series.name[1:]}",
        means=f" ({means})" if means else "",
        low=show(min(known), figure.unit, texts, name="moved"),
        high=show(max(known), figure.unit, texts, name="moved"),
    )
