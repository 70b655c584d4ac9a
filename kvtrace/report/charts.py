"""Figures as JSON for the vendored plotly.js; the only importer of plotly.

Five shapes serve every chart. Colours are names of CSS variables, `var(--c-move)`: the script of
the page resolves them, and again when the theme changes. Colour never works alone: lines have
dashes and symbols, bars have patterns. Labels from a log are escaped, because plotly reads markup.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from kvtrace.report.format import format_value, safe_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

MAX_POINTS: Final = 2_000
"""Most x values of one series; more are thinned evenly, the first and last kept."""
_T = TypeVar("_T")
Kind = Literal["seconds", "bytes", "traffic", "ratio", "count", "category", "date"]
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "x", "cross")
_PATTERNS: Final = ("", "/", ".", "x", "-", "\\")
_GIB: Final = float(1 << 30)
_UNIT: Final = {"seconds": "s", "bytes": "bytes", "traffic": "bytes", "ratio": "ratio"}
_STEPS: Final[dict[str, tuple[float, ...]]] = {
    "seconds": (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 36_000),
    "bytes": tuple(m * _GIB * 1024.0**e for e in (-2, -1, 0, 1, 2) for m in (1, 10, 100)),
    "traffic": tuple(10.0**e for e in range(19)),
    "count": tuple(10.0**e for e in range(13)),
    "ratio": (1e-4, 1e-3, 1e-2, 0.1, 1),
}


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis; seconds, bytes and shares get ticks that a person reads."""

    title: str
    kind: Kind
    log: bool = False
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One series in display order; `style` picks dash, symbol and pattern."""

    name: str
    x: Sequence[float | str]
    y: Sequence[float | str | None]
    colour: str
    style: int = 0
    hover: Sequence[str] = ()
    labels: bool = False
    """Whether the hover text stands at the bars."""
    faint: bool = False
    """The whole, of which the other series are parts."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at `x` with a label."""

    x: float
    label: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One of several panels of a figure."""

    series: Sequence[Series]
    axis: Axis
    bars: bool = False
    named: bool = True
    """Whether its series stand in the legend; panels of the same series name them once."""


def plot_text(value: str, *, width: int | None = None) -> str:
    """`value` as plotly shows it literally, wrapped at `width` characters."""
    text = safe_text(value, limit=120)
    if width is None:
        return html.escape(text, quote=False)
    lines: list[str] = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(html.escape(line[:60], quote=False) for line in lines[:3])


def thin(values: Sequence[_T], limit: int = MAX_POINTS) -> list[_T]:
    """At most `limit` of the values, evenly picked, the first and last among them."""
    if len(values) <= limit:
        return list(values)
    last = len(values) - 1
    return [values[round(i * last / (limit - 1))] for i in range(limit)]


def lines(
    series: Sequence[Series], *, x: Axis, y: Axis, marks: Sequence[Mark] = (), height: int = 360
) -> str:
    """Lines with markers over one shared pair of axes."""
    figure = _figure(height)
    for one in series:
        figure.add_trace(_line(one))
    figure.update_xaxes(_axis(x, [v for one in series for v in one.x]))
    figure.update_yaxes(_axis(y, [v for one in series for v in one.y]))
    for mark in marks:
        _add_mark(figure, mark, log=x.log)
    return _dump(figure)


def columns(
    series: Sequence[Series], *, x: Axis, y: Axis, marks: Sequence[Mark] = (), height: int = 340
) -> str:
    """Vertical bars side by side over categories; the whole is faint."""
    figure = _figure(height)
    for one in series:
        figure.add_trace(_bar(one, horizontal=False))
    figure.update_layout(barmode="group", bargap=0.22, bargroupgap=0.06)
    figure.update_xaxes(_axis(x, [v for one in series for v in one.x]))
    figure.update_yaxes(_axis(y, [v for one in series for v in one.y]) | {"rangemode": "tozero"})
    for mark in marks:
        _add_mark(figure, mark, log=x.log)
    return _dump(figure)


def bars(series: Sequence[Series], *, x: Axis, mode: Literal["stack", "overlay"] = "stack") -> str:
    """Horizontal bars: the categories are `y` of the series, top to bottom."""
    rows = _categories(series)
    figure = _figure(_rows_height(rows))
    for one in series:
        figure.add_trace(_bar(one, horizontal=True))
    figure.update_layout(barmode=mode, bargap=0.34)
    figure.update_xaxes(_axis(x, _lengths(series, mode)) | {"rangemode": "tozero"})
    figure.update_yaxes(_category_rows(rows))
    return _dump(figure)


def dots(series: Sequence[Series], *, x: Axis) -> str:
    """Horizontal dot plot: one symbol per series, one row per category."""
    rows = _categories(series)
    figure = _figure(_rows_height(rows))
    for one in series:
        figure.add_trace(_line(one, mode="markers", size=11))
    figure.update_xaxes(_axis(x, [v for one in series for v in one.x]))
    figure.update_yaxes(_category_rows(rows) | {"showgrid": True})
    return _dump(figure)


def side_by_side(panels: Sequence[Panel]) -> str:
    """Horizontal bars in panels that share their rows."""
    from plotly.subplots import make_subplots

    rows = _categories([one for panel in panels for one in panel.series])
    figure = _figure(
        _rows_height(rows),
        make_subplots(rows=1, cols=len(panels), shared_yaxes=True, horizontal_spacing=0.06),
    )
    for column, panel in enumerate(panels, start=1):
        for one in panel.series:
            figure.add_trace(_bar(one, horizontal=True), row=1, col=column)
        axis = _axis(panel.axis, _lengths(panel.series, "stack"))
        figure.update_xaxes(axis | {"rangemode": "tozero"}, row=1, col=column)
        figure.update_yaxes(
            _category_rows(rows) | {"showticklabels": column == 1}, row=1, col=column
        )
    figure.update_layout(barmode="stack", bargap=0.34)
    return _dump(figure)


def stacked_panels(panels: Sequence[Panel], *, x: Axis) -> str:
    """Panels one above the other on one shared x axis, each with its own y; never a dual axis."""
    from plotly.subplots import make_subplots

    figure = _figure(
        110 + 160 * len(panels),
        make_subplots(
            rows=len(panels),
            cols=1,
            shared_xaxes=True,
            vertical_spacing=0.42 / (len(panels) + 1),
            subplot_titles=[plot_text(panel.axis.title) for panel in panels],
        ),
    )
    values: list[float | str | None] = []
    for row, panel in enumerate(panels, start=1):
        for one in panel.series:
            line = _line(one).update(showlegend=panel.named, legendgroup=plot_text(one.name))
            figure.add_trace(line, row=row, col=1)
            values.extend(one.x)
        axis = _axis(panel.axis, [v for one in panel.series for v in one.y])
        figure.update_yaxes(
            axis | {"rangemode": "tozero", "title": None, "nticks": 6}, row=row, col=1
        )
    figure.update_annotations(x=0, xanchor="left", font={"size": 12.5, "color": "var(--soft)"})
    figure.update_layout(legend={"y": 1 + 34 / (110 + 160 * len(panels))})
    shared = _axis(x, values)
    figure.update_xaxes({k: v for k, v in shared.items() if k != "title"})
    figure.update_xaxes({"title": shared["title"]}, row=len(panels), col=1)
    return _dump(figure)


def _figure(height: int, figure: go.Figure | None = None) -> go.Figure:
    import plotly.graph_objects as go

    figure = go.Figure() if figure is None else figure
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 64, "r": 16, "t": 44, "b": 40},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "var(--font-plot)", "size": 12.5, "color": "var(--ink)"},
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        showlegend=True,
        hovermode="closest",
        dragmode=False,
        hoverlabel={
            "bgcolor": "var(--paper)",
            "bordercolor": "var(--line-strong)",
            "font": {"color": "var(--ink)"},
            "align": "left",
        },
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": "var(--muted)", "activecolor": "var(--ink)"},
        uirevision="keep",
    )
    return figure


def _line(series: Series, *, mode: str = "lines+markers", size: int = 7) -> go.Scatter:
    import plotly.graph_objects as go

    style = series.style % len(_DASHES)
    return go.Scatter(
        name=plot_text(series.name),
        x=thin(series.x),
        y=thin(series.y),
        mode=mode if len(series.x) <= 60 else "lines",
        line={"color": series.colour, "width": 2.25, "dash": _DASHES[style]},
        marker={"symbol": _SYMBOLS[style], "size": size, "color": series.colour},
        hovertext=thin(series.hover) or None,
        hovertemplate="%{hovertext}<extra></extra>" if series.hover else None,
        connectgaps=False,
    )


def _bar(series: Series, *, horizontal: bool) -> go.Bar:
    import plotly.graph_objects as go

    pattern = {
        "shape": _PATTERNS[series.style % len(_PATTERNS)],
        "fillmode": "overlay",
        "fgcolor": "var(--paper)",
        "fgopacity": 0.55,
        "size": 7,
        "solidity": 0.22,
    }
    return go.Bar(
        name=plot_text(series.name),
        x=thin(series.x),
        y=thin(series.y),
        orientation="h" if horizontal else "v",
        marker={
            "color": series.colour,
            "opacity": 0.32 if series.faint else 1,
            "line": {"width": 0},
            "pattern": pattern,
        },
        hovertext=thin(series.hover) or None,
        hovertemplate="%{hovertext}<extra></extra>" if series.hover else None,
        text=thin(series.hover) if series.labels else None,
        textposition="auto" if series.labels else None,
        textangle=0,
        cliponaxis=False,
    )


def _axis(axis: Axis, values: Sequence[float | str | None]) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "title": {
            "text": plot_text(axis.title),
            "font": {"size": 12, "color": "var(--muted)"},
            "standoff": 10,
        },
        "gridcolor": "var(--line)",
        "linecolor": "var(--line-strong)",
        "zeroline": False,
        "tickfont": {"color": "var(--muted)"},
        "automargin": True,
    }
    if axis.kind == "category":
        return shared | {"type": "category", "showgrid": False, "showline": True}
    if axis.kind == "date":
        return shared | {"type": "date"}
    numbers = [value for value in values if isinstance(value, int | float)]
    ends = axis.bounds or ((min(numbers), max(numbers)) if numbers else (0.0, 1.0))
    shared |= {"type": "log" if axis.log else "linear"}
    ticks = _log_ticks(axis.kind, *ends) if axis.log else _linear_ticks(axis.kind, *ends)
    if ticks:
        unit = _UNIT.get(axis.kind, "")
        labels = [format_value(tick, unit, name=axis.kind) or "" for tick in ticks]
        shared |= {"tickmode": "array", "tickvals": ticks, "ticktext": labels}
    elif axis.kind == "ratio":
        shared |= {"tickformat": ".0%"}
    elif axis.kind == "count":
        shared |= {"tickformat": "~s"} if ends[1] >= 6 else {"dtick": 1}
    if axis.bounds is not None:
        shared |= {"range": [_log10(end) if axis.log else end for end in axis.bounds]}
    return shared


def _log_ticks(kind: Kind, low: float, high: float) -> list[float]:
    """Round values inside the range; finer ones when the range is narrow."""
    inside = [step for step in _STEPS[kind] if low / 1.6 <= step <= high * 1.6]
    if len(inside) >= 3:
        return inside
    fine = [step * m for step in _STEPS[kind] for m in (1, 2, 5)]
    return [step for step in fine if low / 1.2 <= step <= high * 1.2]


def _linear_ticks(kind: Kind, low: float, high: float) -> list[float]:
    """Ticks for bytes and seconds, whose labels carry a unit; none for the others."""
    if kind not in ("bytes", "traffic", "seconds") or high <= 0:
        return []
    bases: Sequence[float] = _STEPS[kind]
    if kind == "bytes":  # tenths of the unit that the largest value is printed in
        unit = max(
            (_GIB * 1024.0**e for e in (-3, -2, -1, 0, 1, 2, 3)), key=lambda u: u * (u <= high)
        )
        bases = (unit / 10, unit, unit * 10, unit * 100)
    steps = (m * step for step in bases for m in (1.0, 2.0, 2.5, 5.0))
    step = next((one for one in sorted(steps) if high / one <= 6), high)
    return [step * i for i in range(int(high / step) + 2)]


def _log10(value: float) -> float:
    return math.log10(value)


def _categories(series: Sequence[Series]) -> list[str]:
    return list(dict.fromkeys(str(value) for one in series for value in one.y))


def _category_rows(rows: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": list(reversed(rows)),
        "automargin": True,
        "showgrid": False,
        "gridcolor": "var(--line)",
        "ticklabelstandoff": 8,
        "tickfont": {"color": "var(--ink)"},
        "title": None,
    }


def _lengths(series: Sequence[Series], mode: str) -> list[float | str | None]:
    """How far the bars reach, for the ticks: stacked ones stand end to end."""
    if mode != "stack":
        return [v for one in series for v in one.x]
    ends: dict[str, float] = {}
    for one in series:
        for name, value in zip(one.y, one.x, strict=True):
            if isinstance(value, int | float):
                ends[str(name)] = ends.get(str(name), 0.0) + value
    return list(ends.values())


def _rows_height(rows: Sequence[str]) -> int:
    """Room for every row, whose label may take several lines."""
    lines_of_text = max((row.count("<br>") + 1 for row in rows), default=1)
    return 108 + max(len(rows), 1) * max(36, 16 * lines_of_text + 8)


def _add_mark(figure: go.Figure, mark: Mark, *, log: bool) -> None:
    """A dotted line at the mark. On a log axis shapes take the value, annotations its log10."""
    figure.add_shape(
        type="line",
        xref="x",
        yref="paper",
        x0=mark.x,
        x1=mark.x,
        y0=0,
        y1=1,
        line={"color": "var(--muted)", "width": 1.25, "dash": "dot"},
    )
    figure.add_annotation(
        x=_log10(mark.x) if log else mark.x,
        y=1,
        xref="x",
        yref="paper",
        text=plot_text(mark.label),
        showarrow=False,
        textangle=-90,
        xanchor="right",
        yanchor="top",
        font={"size": 11, "color": "var(--muted)"},
    )


def _dump(figure: go.Figure) -> str:
    """JSON of the figure; a legend of one entry a panel says nothing that the axis does not."""
    panels = len({trace.xaxis or "x" for trace in figure.data} | {""}) - 1
    panels = max(panels, len({trace.yaxis or "x" for trace in figure.data}))
    figure.update_layout(showlegend=len(figure.data) > panels)
    shown: Mapping[str, Any] = figure.to_dict()
    return json.dumps(shown, sort_keys=True, allow_nan=False, separators=(",", ":"))
