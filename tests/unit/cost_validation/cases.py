"""Points as rows of a file, from what a test states and nothing else."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from kvtrace.cost.validation import Point, read_points

COLUMNS = (
    *("id", "series", "kind", "metric", "value", "unit", "tol_rel", "model", "gpu", "n_gpus"),
    *("tp", "weight_dtype", "kv_dtype", "new_tokens", "cached_tokens", "concurrency", "bytes"),
    *("path", "chunk_bytes", "engine", "provenance", "source", "note"),
)


def csv_text(*rows: dict[str, object]) -> str:
    """A file of these rows; cells that a row leaves out are empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for number, row in enumerate(rows):
        writer.writerow({"id": f"P{number}", "series": "s", "value": 1, "unit": "ms", **row})
    return file.getvalue()


def points(folder: Path, *rows: dict[str, object]) -> tuple[Point, ...]:
    """The points of a file of these rows."""
    path = folder / "points.csv"
    path.write_text(csv_text(*rows), encoding="utf-8")
    return read_points(path)


def point(folder: Path, **cells: object) -> Point:
    """The point of one row."""
    return points(folder, cells)[0]
