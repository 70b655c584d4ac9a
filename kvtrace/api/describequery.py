"""What queries say of themselves, for people: the list by topic, and one query in full."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from kvtrace.api.query_results import to_json
from kvtrace.query.docs import example_command
from kvtrace.query.header import ColumnInfo, ParamInfo, QueryInfo
from kvtrace.report.text.table import fitted_table


@dataclass(frozen=True, slots=True)
class QueryDescription:
    """One query."""

    info: QueryInfo

    def to_json(self) -> str:
        """All that it says of itself."""
        info = self.info
        return to_json(
            {
                "name": info.name,
                "question": info.question,
                "grain": info.grain,
                "params": [
                    {"name": one.name, "type": one.type, "default": one.default}
                    for one in info.params
                ],
                "reads": list(info.reads),
                "order": info.order,
                "notes": list(info.notes),
                "columns": [
                    {"name": one.name, "unit": one.unit, "meaning": one.meaning}
                    for one in info.columns
                ],
                "example": example_command(info),
            }
        )

    def to_text(self, width: int = 100) -> str:
        """Question, grain, parameters, tables, notes, columns and an example."""
        info = self.info
        facts = [
            ("grain", info.grain),
            *(("param", described_param(one)) for one in info.params),
            ("reads", ", ".join(info.reads)),
            ("order", info.order),
            ("note", " ".join(info.notes)),
        ]
        parts = [
            *textwrap.wrap(f"{info.name}: {info.question}" if info.question else info.name, width),
            "",
            *(line for label, text in facts if text for line in _fact(label, text, width)),
            "",
            _columns(info.columns, width),
            "",
            f"run it: {example_command(info)}",
        ]
        return "\n".join(parts)


def described_param(param: ParamInfo) -> str:
    """A parameter with its type and default."""
    kind = f" {param.type}" if param.type else ""
    return f"{param.name}{kind}, {param.default or 'null'} unless given"


def list_lines(infos: Sequence[QueryInfo], width: int) -> list[str]:
    """Names and questions by topic, questions wrapped beside the names."""
    if not infos:
        return []
    label = max(len(info.name) for info in infos) + 2
    lines: list[str] = []
    for topic, group in groupby(infos, key=lambda info: info.name.partition("/")[0]):
        lines += [*([""] if lines else []), topic]
        for info in group:
            wrapped = textwrap.wrap(
                info.question,
                width,
                initial_indent=f"  {info.name:<{label}}",
                subsequent_indent=" " * (label + 2),
            )
            lines += wrapped or [f"  {info.name}"]
    return lines


def _fact(label: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=f"{label:<7}", subsequent_indent=" " * 7)


def _columns(columns: Sequence[ColumnInfo], width: int) -> str:
    """Columns with unit and meaning, the meaning wrapped."""
    if not columns:
        return "no column says what it means"
    name = max(len("column"), *(len(one.name) for one in columns))
    unit = max(len("unit"), *(len(one.unit) for one in columns))
    room = width - name - unit - 4
    if room < len("meaning") * 3:
        rows = [(one.name, one.unit, one.meaning) for one in columns]
        return fitted_table(("column", "unit", "meaning"), rows, width)
    lines = [f"{'column':<{name}}  {'unit':<{unit}}  meaning"]
    for one in columns:
        lines += textwrap.wrap(
            one.meaning,
            width,
            initial_indent=f"{one.name:<{name}}  {one.unit:<{unit}}  ",
            subsequent_indent=" " * (name + unit + 4),
        ) or [f"{one.name:<{name}}  {one.unit}".rstrip()]
    return "\n".join(lines)
