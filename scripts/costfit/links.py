"""The chunk law of links, fitted to copy benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from kvtrace.cost.links import load_link
from kvtrace.cost.validation import Point
from kvtrace.cost.validation.paths import PathText, parse_path
from kvtrace.cost.validation.routes import is_pipelined, port_link
from kvtrace.units import GB

_LEAST_CHUNKS = 3
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkFit:
    """A link's constants as its points give them, beside those of data/links.toml."""

    link: str
    points: int
    max_bytes_per_s: float
    op_s: float
    worst_error: float
    """Of rates, with the fitted constants."""


def fit_links(points: Sequence[Point]) -> tuple[LinkFit, ...]:
    """Links that copy benchmarks measured at three or more chunks, each on its own."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        path = parse_path(point.path)
        if point.kind != "link_chunk_bw" or not point.chunk_bytes or isinstance(path, str):
            continue
        link, count = _link_of(path)
        rows.setdefault(link, []).append((point.chunk_bytes, point.value * GB / count))
    return tuple(
        _fit(link, found) for link, found in sorted(rows.items()) if len(found) >= _LEAST_CHUNKS
    )


def _link_of(path: PathText) -> tuple[str, int]:
    link = path.links[0][0]
    if link.protocol == "pcie":
        kernel = "_kernel" if "kernel" in path.words else ""
        return f"pcie{link.generation or 5}_x16{kernel}", link.count
    return port_link(link).link, link.count


def _fit(link: str, rows: Sequence[tuple[float, float]]) -> LinkFit:
    """Formula: c / (t_op + c / B), pipelined min(c / t_op, B); least squares of log rates."""
    chunks, rates = (np.array(column) for column in zip(*rows, strict=True))
    known = load_link(link)

    def rate(logs: Floats) -> Floats:
        most, operation = np.exp(logs)
        if is_pipelined(link):
            return np.asarray(np.minimum(chunks / operation, most))
        return np.asarray(chunks / (operation + chunks / most))

    start = np.log([known.max_bytes_per_s.value, max(known.op_s.value, 1e-7)])

    def residuals(logs: Floats) -> Floats:
        return np.asarray(np.log(rate(logs) / rates))

    found = least_squares(residuals, start, loss="soft_l1")
    most, operation = np.exp(found.x)
    worst = float(np.max(np.abs(rate(found.x) / rates - 1)))
    return LinkFit(link, len(rows), float(most), float(operation), worst)
