"""What an audit shows in Python and in notebooks: its tables as frames, its charts as figures."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import polars as pl

from kvtrace.audit.record import AuditRecord, Table
from kvtrace.errors import UsageError
from kvtrace.report.figures import all_charts
from kvtrace.report.texts import Lang, load_texts, read_asset
from kvtrace.report.view import ChartView

PLOTLY_MIME: Final = "application/vnd.plotly.v1+json"
_VARIABLE: Final = re.compile(r"var\((--[a-z0-9-]+)\)")
_DEFINED: Final = re.compile(r"(--[a-z0-9-]+):\s*([^;{}]+);")


class Tables(Mapping[str, pl.DataFrame]):
    """The tables of an audit by id; a frame is made when it is asked for."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._tables = tables

    def __getitem__(self, name: str) -> pl.DataFrame:
        table = self.table(name)
        columns = {
            column: [row[place] for row in table.rows] for place, column in enumerate(table.columns)
        }
        return pl.DataFrame(columns, strict=False)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._tables))

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return f"Tables({', '.join(self)})"

    def table(self, name: str) -> Table:
        """The table with units and meanings of its columns.

        Raises:
            UsageError: there is no such table; close names are told.
        """
        if name not in self._tables:
            raise _unknown("table", name, list(self))
        return self._tables[name]


@dataclass(frozen=True, slots=True)
class AuditFigure:
    """One chart of the report; a notebook that knows plotly draws it."""

    id: str
    title: str
    summary: str
    """What it shows, in a sentence or two."""
    spec: Mapping[str, object]
    """`data` and `layout` of plotly, in the light colours of the report."""

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {PLOTLY_MIME: dict(self.spec), "text/plain": f"{self.title}: {self.summary}"}


def figure_of(record: AuditRecord, name: str, *, lang: Lang = "en") -> AuditFigure:
    """A chart of the audit by its id.

    Raises:
        UsageError: there is no such chart, or nothing to draw; then with the reason.
    """
    charts = all_charts(record, load_texts(lang))
    if name not in charts:
        raise _unknown("figure", name, sorted(charts))
    view = charts[name]
    return AuditFigure(view.id, view.title, view.summary, _spec(view))


def figure_names(record: AuditRecord) -> list[str]:
    """Ids of the charts that have something to draw."""
    charts = all_charts(record, load_texts("en"))
    return sorted(name for name, view in charts.items() if view.figure is not None)


def _spec(view: ChartView) -> dict[str, object]:
    if view.figure is None:
        raise UsageError(
            "KVT-U111",
            f"there is nothing to draw of `{view.id}`",
            cause=view.missing,
            hint="`audit.figures` lists those that can be drawn",
        )
    colours = _light()
    text = _VARIABLE.sub(lambda found: colours.get(found[1], "#333c47"), view.figure)
    spec: dict[str, object] = json.loads(text)
    return spec


@cache
def _light() -> dict[str, str]:
    """The variables of the style sheet, as they stand first: those of the light theme."""
    found: dict[str, str] = {}
    for name, value in _DEFINED.findall(read_asset("report.css")):
        found.setdefault(name, json.dumps(value.strip())[1:-1])
    return found


def _unknown(what: str, name: str, known: list[str]) -> UsageError:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    shown = " or ".join(f"`{one}`" for one in close)
    return UsageError(
        "KVT-U110",
        f"the audit has no {what} `{name}`",
        hint=f"did you mean {shown}?" if close else f"one of {', '.join(known)}",
    )
