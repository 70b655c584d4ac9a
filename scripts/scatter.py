"""A log-log figure of predicted against measured as SVG text: same points, same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

PLOT = 400
"""Side of the plot area; one unit is a CSS pixel."""
LEFT, TOP, BOTTOM, LEGEND = 78, 58, 64, 232
BAND = 0.25
"""Half width of the grey band, as a share of the measured value."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8c564b", "#7f7f7f")
"""Told apart by people who see fewer colours, and on white and near-black alike."""
SHAPES = ("circle", "square", "triangle", "diamond")
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.title { font-size: 15px; font-weight: 600; }
.quiet { fill: #59636e; }
.paper { fill: #ffffff; }
.frame { fill: none; stroke: #8c959f; }
.grid { stroke: #d1d9e0; }
.band { fill: #8c959f; opacity: 0.2; }
.same { stroke: #59636e; stroke-dasharray: 5 4; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .paper { fill: #0d1117; }
  .frame { stroke: #656c76; }
  .grid { stroke: #30363d; }
  .same { stroke: #9198a1; }
}
"""


@dataclass(frozen=True, slots=True)
class Dot:
    """One measurement; both values above zero."""

    id: str
    series: str
    measured: float
    predicted: float


@dataclass(frozen=True, slots=True)
class Scatter:
    """What a figure shows."""

    title: str
    subtitle: str
    note: str
    """Below the plot: which constants."""
    unit: str
    dots: tuple[Dot, ...]

    def svg(self) -> str:
        """The figure as a document of its own, for a light and a dark page."""
        low, high = _decades(
            [value for dot in self.dots for value in (dot.measured, dot.predicted)]
        )
        scale = _Scale(low, high)
        names = sorted({dot.series for dot in self.dots})
        width = LEFT + PLOT + LEGEND
        height = TOP + max(PLOT, 20 * len(names)) + BOTTOM
        body = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{_quoted(self.title)}">',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            _text(LEFT, 24, self.title, "title"),
            _text(LEFT, 44, self.subtitle, "quiet"),
            *_grid(scale, self.unit),
            *_references(scale),
            *(line for dot in self._ordered() for line in _dot(dot, scale, names)),
            *_legend(names, self.dots),
            _text(LEFT, height - 12, self.note, "quiet"),
            "</svg>",
        ]
        return "\n".join(body) + "\n"

    def _ordered(self) -> list[Dot]:
        return sorted(self.dots, key=lambda dot: (dot.series, dot.id))


@dataclass(frozen=True, slots=True)
class _Scale:
    """Decades from `low` to `high` over the side of the plot."""

    low: int
    high: int

    def x(self, value: float) -> float:
        return LEFT + PLOT * (math.log10(value) - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return TOP + PLOT - (self.x(value) - LEFT)

    @property
    def ticks(self) -> list[tuple[float, bool]]:
        """(Value, whether it is a decade) of each grid line."""
        marks = range(self.low, self.high + 1)
        step = -(-len(marks) // 9)
        found = [(10.0**mark, mark % step == 0) for mark in marks]
        if len(marks) > 4:
            return found
        between = [(factor * 10.0**mark, False) for mark in marks[:-1] for factor in (2, 5)]
        return sorted(found + between)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Exponents of the powers of ten around all values, at least one apart."""
    low = math.floor(math.log10(min(values)) + 1e-9)
    high = math.ceil(math.log10(max(values)) - 1e-9)
    return low, max(high, low + 1)


def _grid(scale: _Scale, unit: str) -> Iterator[str]:
    right, bottom = LEFT + PLOT, TOP + PLOT
    for value, is_labelled in scale.ticks:
        x, y = _n(scale.x(value)), _n(scale.y(value))
        yield f'<line class="grid" x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}"/>'
        yield f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}"/>'
        if is_labelled or len(scale.ticks) < 9:
            label = _label(value)
            yield _text(scale.x(value), bottom + 18, label, "quiet", anchor="middle")
            yield _text(LEFT - 8, scale.y(value) + 4, label, "quiet", anchor="end")
    yield f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{PLOT}" height="{PLOT}"/>'
    yield _text(LEFT + PLOT / 2, bottom + 36, f"measured, {unit}", anchor="middle")
    middle = TOP + PLOT / 2
    turned = f' transform="rotate(-90 18 {_n(middle)})"'
    yield _text(18, middle, f"predicted, {unit}", anchor="middle", more=turned)


def _references(scale: _Scale) -> Iterator[str]:
    """The band and the line of equality, cut at the frame."""
    low, high = 10.0**scale.low, 10.0**scale.high
    corners = [
        (low, low * (1 - BAND)), (high, high * (1 - BAND)),
        (high, high * (1 + BAND)), (low, low * (1 + BAND)),
    ]  # fmt: skip
    points = " ".join(f"{_n(scale.x(x))},{_n(scale.y(y))}" for x, y in corners)
    inside = f'<rect x="{LEFT}" y="{TOP}" width="{PLOT}" height="{PLOT}"/>'
    yield f'<clipPath id="plot">{inside}</clipPath>'
    yield f'<polygon class="band" clip-path="url(#plot)" points="{points}"/>'
    yield f'<line class="same" x1="{LEFT}" y1="{TOP + PLOT}" x2="{LEFT + PLOT}" y2="{TOP}"/>'


def _dot(dot: Dot, scale: _Scale, names: Sequence[str]) -> Iterator[str]:
    told = f"{dot.id}: measured {dot.measured:.4g}, predicted {dot.predicted:.4g}"
    mark = _mark(scale.x(dot.measured), scale.y(dot.predicted), names.index(dot.series))
    yield f"<g><title>{escape(told)}</title>{mark}</g>"


def _legend(names: Sequence[str], dots: Sequence[Dot]) -> Iterator[str]:
    for index, name in enumerate(names):
        count = sum(dot.series == name for dot in dots)
        y = TOP + 10 + 20 * index
        yield _mark(LEFT + PLOT + 18, y - 4, index)
        yield _text(LEFT + PLOT + 30, y, f"{name} ({count})")


def _mark(x: float, y: float, index: int) -> str:
    """The sign of a series: eight colours, then the next shape."""
    fill = f'fill="{COLOURS[index % len(COLOURS)]}" fill-opacity="0.85"'
    shape = SHAPES[index // len(COLOURS) % len(SHAPES)]
    if shape == "circle":
        return f'<circle cx="{_n(x)}" cy="{_n(y)}" r="4" {fill}/>'
    if shape == "square":
        return f'<rect x="{_n(x - 4)}" y="{_n(y - 4)}" width="8" height="8" {fill}/>'
    around = {"triangle": ((0, -5), (5, 4), (-5, 4)), "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0))}
    points = " ".join(f"{_n(x + dx)},{_n(y + dy)}" for dx, dy in around[shape])
    return f'<polygon points="{points}" {fill}/>'


def _text(
    x: float, y: float, text: str, kind: str = "", *, anchor: str = "start", more: str = ""
) -> str:
    named = f' class="{kind}"' if kind else ""
    return (
        f'<text{named} x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
    )


def _label(value: float) -> str:
    return f"{value:,.0f}" if 1 <= value < 1e6 else f"{value:g}"


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    return escape(text, {'"': "&quot;"})
