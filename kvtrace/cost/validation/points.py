"""Published measurements, read strictly from a CSV file: one row, one point."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvtrace.errors import InputError, Location

REQUIRED: Final = ("id", "kind", "metric", "value", "unit")
"""Columns without which a row says nothing."""
_FILLED: Final = REQUIRED[:-1]
"""Of these, cells that no row may leave empty; a ratio has no unit."""
_TEXTS: Final = ("id", "series", "kind", "metric", "unit", "model", "gpu", "weight_dtype",
                 "kv_dtype", "path", "engine", "provenance", "source", "note")  # fmt: skip
_COUNTS: Final = ("n_gpus", "tp", "new_tokens", "cached_tokens", "concurrency", "bytes",
                  "chunk_bytes")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """One published measurement; a null is a cell that was left empty."""

    line: int
    id: str
    series: str
    kind: str
    metric: str
    value: float
    unit: str
    tol_rel: float | None
    """How far the point itself is trusted, as a share of its value."""
    model: str
    gpu: str
    n_gpus: int | None
    tp: int | None
    weight_dtype: str
    kv_dtype: str
    new_tokens: int | None
    """Prompt tokens that are computed."""
    cached_tokens: int | None
    """Prompt tokens that are there already."""
    concurrency: int | None
    bytes: int | None
    """What moved, replication included."""
    path: str
    chunk_bytes: int | None
    engine: str
    provenance: str
    source: str
    note: str
    is_untokenised: bool = False
    """Measured inside the engine: no text was made tokens, by a note of any row of its source."""

    @property
    def words(self) -> str:
        """Engine and note in lower case, where the conditions of a run are written."""
        return f"{self.engine} {self.note}".lower()


def read_points(path: Path) -> tuple[Point, ...]:
    """All points of the file, in its order.

    Columns beyond the known ones are left alone; one of the known ones may be absent unless it is
    required.

    Raises:
        InputError: unreadable, a required column is missing, or a row cannot be read as it stands.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            _check_header(reader.fieldnames, path)
            points = tuple(_point(row, reader.line_num, path) for row in reader)
    except OSError as error:
        raise InputError(
            "KVT-C090", f"cannot read `{path}`", where=Location(str(path)), cause=error.strerror
        ) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(
            "KVT-C091", f"`{path}` is not CSV", where=Location(str(path)), cause=str(error)
        ) from error
    _check_ids(points, path)
    inside = {point.source for point in points if "no (de)token" in point.note.lower()}
    return tuple(replace(point, is_untokenised=point.source in inside) for point in points)


def _check_header(names: object, path: Path) -> None:
    header = list(names) if isinstance(names, list) else []
    missing = [name for name in REQUIRED if name not in header]
    twice = sorted({name for name in header if header.count(name) > 1})
    if not missing and not twice:
        return
    cause = f"no column {', '.join(missing)}" if missing else f"two columns {', '.join(twice)}"
    raise InputError(
        "KVT-C092",
        f"`{path}` does not have the columns of validation points",
        where=Location(str(path), 1),
        cause=cause,
        hint=f"the header is {','.join((*_TEXTS[:5], 'value', 'tol_rel', '…'))}",
    )


def _check_ids(points: tuple[Point, ...], path: Path) -> None:
    seen: dict[str, int] = {}
    for point in points:
        first = seen.setdefault(point.id, point.line)
        if first != point.line:
            raise _fault(path, point.line, f"id `{point.id}` is taken by line {first}")


def _point(row: Mapping[str | None, object], line: int, path: Path) -> Point:
    if None in row or any(value is None for value in row.values()):
        raise _fault(path, line, "the row has more or fewer cells than the header")
    cells = {str(name): str(value).strip() for name, value in row.items()}
    for name in _FILLED:
        if not cells[name]:
            raise _fault(path, line, f"`{name}` is empty")
    value = _number(cells, "value", line, path)
    if value is None:
        raise _fault(path, line, "`value` is empty")
    text = {name: cells.get(name, "") for name in _TEXTS}
    count = {name: _count(cells, name, line, path) for name in _COUNTS}
    return Point(
        line=line,
        value=value,
        tol_rel=_number(cells, "tol_rel", line, path),
        id=text["id"],
        series=text["series"],
        kind=text["kind"],
        metric=text["metric"],
        unit=text["unit"],
        model=text["model"],
        gpu=text["gpu"],
        n_gpus=count["n_gpus"],
        tp=count["tp"],
        weight_dtype=text["weight_dtype"],
        kv_dtype=text["kv_dtype"],
        new_tokens=count["new_tokens"],
        cached_tokens=count["cached_tokens"],
        concurrency=count["concurrency"],
        bytes=count["bytes"],
        path=text["path"],
        chunk_bytes=count["chunk_bytes"],
        engine=text["engine"],
        provenance=text["provenance"],
        source=text["source"],
        note=text["note"],
    )


def _number(cells: Mapping[str, str], name: str, line: int, path: Path) -> float | None:
    text = cells.get(name, "")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise _fault(path, line, f"`{name}` is `{text}`, not a number")
    if name == "tol_rel" and number < 0:
        raise _fault(path, line, f"`{name}` is `{text}`, below zero")
    return number


def _count(cells: Mapping[str, str], name: str, line: int, path: Path) -> int | None:
    number = _number(cells, name, line, path)
    if number is None:
        return None
    if number < 0 or number != int(number):
        raise _fault(path, line, f"`{name}` is `{cells[name]}`, not a whole number from 0")
    return int(number)


def _fault(path: Path, line: int, cause: str) -> InputError:
    return InputError(
        "KVT-C093",
        f"a row of `{path}` cannot be read",
        where=Location(str(path), line),
        cause=cause,
        hint="correct the row or take it out; cells that are not known stay empty",
    )
