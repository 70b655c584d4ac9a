"""Axes of a chart: titles, ticks that a person reads, rows of names. No chart is built here."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from kvtrace.report.format import Scale, format_tick, pick_scale, safe_text

Kind = Literal["seconds", "bytes", "traffic", "ratio", "count", "category", "date"]
_UNIT: Final = {"seconds": "s", "bytes": "bytes", "traffic": "bytes"}
_SMALLEST: Final = {"seconds": "s", "bytes": "B", "traffic": "B"}


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis; seconds, bytes and shares get ticks that a person reads."""

    title: str
    kind: Kind
    log: bool = False
    bounds: tuple[float, float] | None = None


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


def axis_layout(axis: Axis, values: Sequence[float | str | None]) -> dict[str, Any]:
    """An axis as plotly takes it, its ticks chosen by `values`."""
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
    shared |= {"type": "log" if axis.log else "linear"} | _ticks(axis, *ends)
    shared |= {"zeroline": ends[0] < 0, "zerolinecolor": "var(--line-strong)"}
    if axis.bounds is not None:
        shared |= {"range": [log10(end) if axis.log else end for end in axis.bounds]}
    return shared


def _ticks(axis: Axis, low: float, high: float) -> dict[str, Any]:
    """Ticks that a person reads, all in one unit: of the largest, or of the middle decade."""
    if axis.kind == "ratio":
        return {"tickformat": ".0%"}
    if axis.kind == "count" and not axis.log:
        return {"tickformat": "~s"} if max(abs(low), abs(high)) >= 6 else {"dtick": 1}
    unit = _UNIT.get(axis.kind, "")
    is_far = axis.log and 0 < low * _FAR < high
    typical = math.sqrt(low * high) if is_far else high
    scale = pick_scale(unit, [typical], name=axis.kind) or Scale(_SMALLEST.get(axis.kind, ""), 1.0)
    ticks = _log_ticks(low, high, scale.size) if axis.log else _linear_ticks(low, high, scale.size)
    labels = [format_tick(tick, scale).strip() for tick in ticks]
    return {"tickmode": "array", "tickvals": ticks, "ticktext": labels} if ticks else {}


_FAR: Final = 1e4
"""How far apart the ends of a logarithmic axis are when its middle sets the unit."""


def _log_ticks(low: float, high: float, size: float) -> list[float]:
    """Decades of the unit inside the range; finer ones when the range is narrow."""
    decades = [size * 10.0**e for e in range(-15, 16)]
    inside = [step for step in decades if low / 1.6 <= step <= high * 1.6]
    if len(inside) >= 3:
        return inside[:: 1 + len(inside) // 9]
    fine = [step * m for step in decades for m in (1, 2, 5)]
    return [step for step in fine if low / 1.2 <= step <= high * 1.2]


def _linear_ticks(low: float, high: float, size: float) -> list[float]:
    """At most eight round multiples of the unit, zero among them."""
    low, high = min(low, 0.0), max(high, 0.0)
    if high == low:
        return []
    steps = (m * size * 10.0**e for e in range(-6, 7) for m in (1.0, 2.0, 2.5, 5.0))
    step = next((one for one in steps if (high - low) / one <= 6), high - low)
    first = -math.ceil(-low / step)
    return [step * i for i in range(first, int(high / step) + 2)]


def log10(value: float) -> float:
    """Where a value stands on a logarithmic axis."""
    return math.log10(value)


def category_rows(rows: Sequence[str]) -> dict[str, Any]:
    """A vertical axis of names, the first on top."""
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
