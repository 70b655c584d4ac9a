#!/usr/bin/env python3
"""Draw predicted against measured: one SVG a group of kinds, and a page that shows them.

scripts/plot_validation.py POINTS.csv [-o docs/model/plots]

POINTS.csv has the columns of `kvtrace cost validate`. The figures depend on its rows and on the
cost model's constants only: run it again after either changes.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from scatter import Dot, Scatter

from kvtrace.cost.evidence import DATA_DIR, read_toml
from kvtrace.cost.validation import Prediction, validate

DEFAULT_OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "model" / "plots"


@dataclass(frozen=True, slots=True)
class Group:
    """Kinds that share a figure; rows in another unit have no place on its axes."""

    file: str
    title: str
    kinds: tuple[str, ...]
    unit: str


GROUPS = (
    Group("prefill", "Prefill and TTFT", ("prefill_ttft", "prefill_composed"), "ms"),
    Group("throughput", "Prompt throughput", ("prefill_throughput", "replay_throughput"), "tok/s"),
    Group("decode", "Decode", ("decode",), "ms"),
    Group("kv_load", "KV loads", ("kv_load",), "ms"),
    Group("links", "Links", ("link_bw", "link_chunk_bw", "kv_load"), "GB/s"),
    Group("kv_size", "KV bytes", ("kv_size",), "B"),
    Group("gains", "Gains of a tier", ("speedup", "economics", "ab_ratio"), "x"),
    Group("replay_hit", "Hit ratios", ("replay_hit",), "ratio"),
    Group("replay_ttft", "TTFT of whole runs", ("replay_ttft",), "s"),
)


def main() -> None:
    """Write the figures and their page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("points", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=DEFAULT_OUTPUT)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for name, text in render(arguments.points).items():
        (arguments.output / name).write_text(text, encoding="utf-8")
        print(arguments.output / name)


def render(points: Path) -> dict[str, str]:
    """Text of each file by name: the figures that have points, and README.md."""
    predictions = validate(points).predictions
    constants = constants_version()
    figures = {
        group.file: figure
        for group in GROUPS
        if (figure := _figure(group, predictions, constants)) is not None
    }
    files = {f"{name}.svg": figure.svg() for name, figure in figures.items()}
    return {**files, "README.md": _page(figures, predictions, constants)}


def constants_version() -> str:
    """Date of the fit, and the first eight digits of SHA-256 over all data files by name."""
    digest = hashlib.sha256()
    for path in sorted(DATA_DIR.iterdir()):
        if path.suffix in (".toml", ".csv"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    fitted = read_toml("efficiency.toml")["sources"]["fit"]["as_of"]
    return f"fitted {fitted}, data {digest.hexdigest()[:8]}"


def _figure(group: Group, predictions: tuple[Prediction, ...], constants: str) -> Scatter | None:
    shown = list(_shown(group, predictions))
    if not shown:
        return None
    errors = [one.error for one in shown if one.error is not None]
    kinds = ", ".join(group.kinds)
    return Scatter(
        title=f"{group.title}: predicted against measured",
        subtitle=f"{len(shown)} points of {kinds} · median error {100 * median(errors):.1f} %"
        " · band ±25 %",
        note=f"Constants {constants}.",
        unit=group.unit,
        dots=tuple(
            Dot(one.point.id, one.point.series or one.point.kind, one.point.value, one.predicted)
            for one in shown
            if one.predicted is not None
        ),
    )


def _shown(group: Group, predictions: tuple[Prediction, ...]) -> Iterator[Prediction]:
    """Those of the group that both axes can show."""
    for one in predictions:
        is_of_group = one.point.kind in group.kinds and one.point.unit == group.unit
        if is_of_group and one.error is not None and (one.predicted or 0) > 0 < one.point.value:
            yield one


def _page(figures: dict[str, Scatter], predictions: tuple[Prediction, ...], constants: str) -> str:
    drawn = {dot.id for figure in figures.values() for dot in figure.dots}
    unpredicted = sum(one.predicted is None for one in predictions)
    rest = len(predictions) - len(drawn) - unpredicted
    lines = [
        "# Predicted against measured, drawn",
        "",
        f"{len(predictions)} published measurements: {len(drawn)} drawn, {unpredicted} without a "
        f"prediction, {rest} not scored, in a unit of their own or at zero (`kvtrace cost "
        f"validate` lists them all). Constants: {constants}. How each kind is predicted, and what "
        "was fitted to these very rows: [validation](../validation.md).",
        "",
        "Written by `scripts/plot_validation.py POINTS.csv`; the dashed line is equality, the band "
        "±25 % of the measured value. A point's id shows where the mouse rests on it.",
    ]
    for name, figure in figures.items():
        lines += ["", f"![{figure.title}; {figure.subtitle}]({name}.svg)"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
