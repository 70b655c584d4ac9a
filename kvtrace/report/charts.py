"""Figures as JSON for the vendored plotly.js; the only importer of plotly.

Five shapes serve every chart. Colours are names of CSS variables, `var(--c-move)`: the script of
the page resolves them, and again when the theme changes. Colour never works alone: lines have
dashes and symbols, bars have patterns. Labels from a log are escaped, because plotly reads markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from kvtrace.report.axes import Axis, axis_layout, category_rows, log10, plot_text

MAX_POINTS: Final = 2_000
"""Most x values of one series; more are thinned evenly, the first and last kept."""
_T = TypeVar("_T")
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "x", "cross")
_PATTERNS: Final = ("", "/", ".", "x", "-", "\\")


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
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    """Ends of the interval of each number; empty: none are drawn."""


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


@dataclass(frozen=True, slots=True)
class Facet:
    """One of several small panels that share both axes and the legend."""

    title: str
    series: Sequence[Series]


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
    layout = _layout(height) | {
        "xaxis": axis_layout(x, [v for one in series for v in one.x]),
        "yaxis": axis_layout(y, [v for one in series for v in (*one.y, *one.low, *one.high)])
        | {"rangemode": "tozero"},
    }
    _add_marks(layout, marks, x=x)
    return _dump([_line(one) for one in series], layout)


def columns(series: Sequence[Series], *, x: Axis, y: Axis, height: int = 340) -> str:
    """Vertical bars side by side over categories; the whole is faint."""
    layout = _layout(height) | {
        "barmode": "group",
        "bargap": 0.22,
        "bargroupgap": 0.06,
        "xaxis": axis_layout(x, [v for one in series for v in one.x]),
        "yaxis": axis_layout(y, [v for one in series for v in one.y]) | {"rangemode": "tozero"},
    }
    return _dump([_bar(one, horizontal=False) for one in series], layout)


def bars(series: Sequence[Series], *, x: Axis, mode: Literal["stack", "overlay"] = "stack") -> str:
    """Horizontal bars: the categories are `y` of the series, top to bottom."""
    rows = _categories(series)
    layout = _layout(_rows_height(rows)) | {
        "barmode": mode,
        "bargap": 0.34,
        "xaxis": axis_layout(x, _lengths(series, mode)) | {"rangemode": "tozero"},
        "yaxis": category_rows(rows),
    }
    return _dump([_bar(one, horizontal=True) for one in series], layout)


def dots(series: Sequence[Series], *, x: Axis) -> str:
    """Horizontal dot plot: one symbol per series, one row per category."""
    rows = _categories(series)
    layout = _layout(_rows_height(rows)) | {
        "xaxis": axis_layout(x, [v for one in series for v in one.x]),
        "yaxis": category_rows(rows) | {"showgrid": True},
    }
    return _dump([_line(one, mode="markers", size=11) for one in series], layout)


def swings(
    series: Sequence[Series], *, middle: float, x: Axis, middle_label: str, zero_label: str
) -> str:
    """Horizontal bars from one middle to each end, zero in sight: where the sign would turn."""
    rows = _categories(series)
    values = [v for one in series for v in one.x]
    layout = _layout(_rows_height(rows)) | {
        "barmode": "overlay",
        "bargap": 0.34,
        "xaxis": axis_layout(x, [*values, middle, 0.0]),
        "yaxis": category_rows(rows),
    }
    known = [*(v for v in values if isinstance(v, int | float)), middle, 0.0]
    margin = (max(known) - min(known)) * _SWING_MARGIN
    layout["xaxis"] |= {"range": [min(known) - margin, max(known) + margin]}
    _add_marks(layout, [Mark(middle, middle_label), Mark(0.0, zero_label)], x=x)
    traces = []
    for one in series:
        reach = [v - middle if isinstance(v, int | float) else None for v in one.x]
        traces.append(_bar(one, horizontal=True) | {"x": reach, "base": middle})
    return _dump(traces, layout)


_SWING_MARGIN: Final = 0.04
"""Room beyond the longest bar, as a share of the axis."""


def side_by_side(panels: Sequence[Panel]) -> str:
    """Horizontal bars in panels that share their rows."""
    rows = _categories([one for panel in panels for one in panel.series])
    grid = {"rows": 1, "columns": len(panels), "pattern": "coupled", "xgap": 0.18}
    layout = _layout(_rows_height(rows)) | {
        "barmode": "stack",
        "bargap": 0.34,
        "grid": grid,
        "yaxis": category_rows(rows),
    }
    traces: list[dict[str, Any]] = []
    for number, panel in enumerate(panels, start=1):
        axis = axis_layout(panel.axis, _lengths(panel.series, "stack")) | {"rangemode": "tozero"}
        layout[_nth("xaxis", number)] = axis
        place = {"xaxis": _nth("x", number), "yaxis": "y"}
        traces.extend(_bar(one, horizontal=True) | place for one in panel.series)
    return _dump(traces, layout, panels=len(panels))


def stacked_panels(panels: Sequence[Panel], *, x: Axis) -> str:
    """Panels one above the other on one shared x axis, each with its own y; never a dual axis."""
    height = 110 + 160 * len(panels)
    grid = {"rows": len(panels), "columns": 1, "pattern": "coupled", "ygap": 0.3}
    layout = _layout(height) | {"grid": grid | {"xside": "bottom plot"}}
    layout["xaxis"] = axis_layout(x, [v for p in panels for one in p.series for v in one.x])
    layout["annotations"] = [
        _panel_title(panel.axis.title, number) for number, panel in enumerate(panels, start=1)
    ]
    layout["legend"] |= {"y": 1 + 34 / height}
    traces = []
    for number, panel in enumerate(panels, start=1):
        axis = axis_layout(panel.axis, [v for one in panel.series for v in one.y])
        axis |= {"rangemode": "tozero", "title": None, "nticks": 6}
        layout[_nth("yaxis", number)] = axis
        for one in panel.series:
            place = {"xaxis": "x", "yaxis": _nth("y", number)}
            group = {"legendgroup": plot_text(one.name), "showlegend": panel.named}
            traces.append(_line(one) | place | group)
    return _dump(traces, layout, panels=len(panels))


def facets(
    panels: Sequence[Facet], *, categories: Sequence[str], x: Axis, y: Axis, columns: int = 4
) -> str:
    """Lines in a grid of panels on one shared pair of axes; the first panel names the series."""
    width = min(columns, len(panels))
    rows = -(-len(panels) // width)
    layout = _layout(120 + 200 * rows)
    layout["grid"] = {
        "rows": rows,
        "columns": width,
        "pattern": "coupled",
        "xgap": 0.06,
        "ygap": 0.42,
    }
    values = [v for panel in panels for one in panel.series for v in one.y]
    for column in range(1, width + 1):
        axis = axis_layout(x, categories)
        axis |= {"categoryorder": "array", "categoryarray": list(categories)}
        axis |= {"title": None} if column != (width + 1) // 2 else {}
        layout[_nth("xaxis", column)] = axis
    for row in range(1, rows + 1):
        axis = axis_layout(y, values)
        layout[_nth("yaxis", row)] = axis | ({"title": None} if row != (rows + 1) // 2 else {})
    traces: list[dict[str, Any]] = []
    titles = []
    for number, panel in enumerate(panels):
        place = {
            "xaxis": _nth("x", number % width + 1),
            "yaxis": _nth("y", number // width + 1),
        }
        titles.append(_facet_title(panel.title, place))
        group = {"showlegend": number == 0}
        traces.extend(
            _line(one, size=6) | place | group | {"legendgroup": plot_text(one.name)}
            for one in panel.series
        )
    layout["annotations"] = titles
    layout["legend"] |= {"y": 1 + 34 / layout["height"]}
    return _dump(traces, layout, panels=len(panels))


def _facet_title(text: str, place: Mapping[str, str]) -> dict[str, Any]:
    return {
        "text": plot_text(text, width=20),
        "xref": f"{place['xaxis']} domain",
        "yref": f"{place['yaxis']} domain",
        "x": 0,
        "y": 1.02,
        "xanchor": "left",
        "yanchor": "bottom",
        "align": "left",
        "showarrow": False,
        "font": {"size": 11.5, "color": "var(--soft)"},
    }


def _nth(axis: str, number: int) -> str:
    """Name of the n-th axis: `x`, `x2`, `x3`."""
    return axis if number == 1 else f"{axis}{number}"


def _panel_title(text: str, number: int) -> dict[str, Any]:
    """The axis title above its panel, where it does not need to be turned."""
    return {
        "text": plot_text(text),
        "xref": "paper",
        "yref": f"{_nth('y', number)} domain",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 12.5, "color": "var(--soft)"},
    }


def _layout(height: int) -> dict[str, Any]:
    return {
        "template": "none",
        "height": height,
        "margin": {"l": 64, "r": 16, "t": 44, "b": 40},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "var(--font-plot)", "size": 12.5, "color": "var(--ink)"},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "traceorder": "normal",
        },
        "hovermode": "closest",
        "dragmode": False,
        "hoverlabel": {
            "bgcolor": "var(--paper)",
            "bordercolor": "var(--line-strong)",
            "font": {"color": "var(--ink)"},
            "align": "left",
        },
        "modebar": {
            "bgcolor": "rgba(0,0,0,0)",
            "color": "var(--muted)",
            "activecolor": "var(--ink)",
        },
        "uirevision": "keep",
    }


def _line(series: Series, *, mode: str = "lines+markers", size: int = 7) -> dict[str, Any]:
    style = series.style % len(_DASHES)
    return {
        "type": "scatter",
        "name": plot_text(series.name),
        "x": thin(series.x),
        "y": thin(series.y),
        "mode": mode if len(series.x) <= 60 else "lines",
        "line": {"color": series.colour, "width": 2.25, "dash": _DASHES[style]},
        "marker": {"symbol": _SYMBOLS[style], "size": size, "color": series.colour},
        "connectgaps": False,
    } | (_hover(series) | _whiskers(series))


def _whiskers(series: Series) -> dict[str, Any]:
    """The interval around each number, on the axis that holds numbers."""
    if not series.low:
        return {}
    is_upright = any(isinstance(value, int | float) for value in series.y)
    values = series.y if is_upright else series.x
    bars = {
        "type": "data",
        "symmetric": False,
        "array": thin([_reach(v, end) for v, end in zip(values, series.high, strict=True)]),
        "arrayminus": thin([_reach(v, end) for v, end in zip(values, series.low, strict=True)]),
        "color": series.colour,
        "thickness": 1.5,
        "width": 4,
    }
    return {"error_y" if is_upright else "error_x": bars}


def _reach(value: float | str | None, end: float | None) -> float:
    """How far the drawn line goes from the number to an end of its interval."""
    return abs(end - value) if isinstance(value, int | float) and end is not None else 0.0


def _hover(series: Series) -> dict[str, Any]:
    if not series.hover:
        return {}
    return {"hovertext": thin(series.hover), "hovertemplate": "%{hovertext}<extra></extra>"}


def _bar(series: Series, *, horizontal: bool) -> dict[str, Any]:
    pattern = {
        "shape": _PATTERNS[series.style % len(_PATTERNS)],
        "fillmode": "overlay",
        "fgcolor": "var(--paper)",
        "fgopacity": 0.55,
        "size": 7,
        "solidity": 0.22,
    }
    labels: dict[str, Any] = {}
    if series.labels:
        inside = {"insidetextfont": {"color": "var(--paper)"}}
        labels = {"text": thin(series.hover), "textposition": "auto"} | inside
    return (
        {
            "type": "bar",
            "name": plot_text(series.name),
            "x": thin(series.x),
            "y": thin(series.y),
            "orientation": "h" if horizontal else "v",
            "marker": {
                "color": series.colour,
                "opacity": 0.32 if series.faint else 1,
                "line": {"width": 0},
                "pattern": pattern,
            },
            "textangle": 0,
            "cliponaxis": False,
        }
        | _hover(series)
        | labels
    )


def _categories(series: Sequence[Series]) -> list[str]:
    return list(dict.fromkeys(str(value) for one in series for value in one.y))


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


def _add_marks(layout: dict[str, Any], marks: Sequence[Mark], *, x: Axis) -> None:
    """A dotted line at each mark, its label above the plot on a line of its own.

    On a log axis shapes take the value, annotations its log10.
    """
    if not marks:
        return
    layout["shapes"] = [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": mark.x,
            "x1": mark.x,
            "y0": 0,
            "y1": 1,
            "line": {"color": "var(--muted)", "width": 1.25, "dash": "dot"},
        }
        for mark in marks
    ]
    low, high = layout["xaxis"].get("range") or (0.0, 1.0)
    rows = len(marks)
    layout["annotations"] = [
        {
            "x": place,
            "y": 1,
            "xref": "x",
            "yref": "paper",
            "yshift": _MARK_ROW_PX * (rows - row) - 10,
            "text": plot_text(mark.label),
            "showarrow": False,
            "xanchor": "left" if place < (low + high) / 2 else "right",
            "yanchor": "middle",
            "font": {"size": 11.5, "color": "var(--soft)"},
        }
        for row, mark in enumerate(marks)
        for place in (log10(mark.x) if x.log else mark.x,)
    ]
    layout["height"] += _MARK_ROW_PX * rows
    layout["margin"] |= {"t": 44 + _MARK_ROW_PX * rows}
    layout["legend"] |= {"yref": "container", "y": 0.99, "yanchor": "top"}


_MARK_ROW_PX: Final = 17


def _dump(traces: Sequence[dict[str, Any]], layout: dict[str, Any], *, panels: int = 1) -> str:
    """JSON of the figure, built and checked by plotly in one go.

    A legend of one entry a panel says nothing that the axis does not.
    """
    import plotly.graph_objects as go

    figure = go.Figure(
        data=list(traces), layout=layout | {"showlegend": len(traces) > panels}, skip_invalid=False
    )
    shown: Mapping[str, Any] = figure.to_dict()
    return json.dumps(shown, sort_keys=True, allow_nan=False, separators=(",", ":"))
