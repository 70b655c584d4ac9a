"""Two audits side by side, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvtrace.audit.compare.comparison import Comparison, FindingChange, Row, Standing
from kvtrace.audit.record import Cell
from kvtrace.report.format import format_in, format_value, pick_scale, safe_text
from kvtrace.report.view import label_of

_STANDINGS: Final[Mapping[Standing, str]] = {
    "equal": "equal",
    "no_difference_shown": "no difference shown",
    "differs": "differs",
    "differs_without_interval": "differs, no interval",
    "unknown": "cannot be compared",
    "other_unit": "other unit",
}
_TEXT_UNITS: Final = ("name", "names", "flag", "text")
_MOST_ASSUMPTIONS: Final = 12


def comparison_lines(one: Comparison, width: int = 100) -> list[str]:
    """Cautions, verdict, numbers, options, findings, assumptions, data."""
    return [
        f"A  {safe_text(one.a)}",
        f"B  {safe_text(one.b)}",
        *_cautions(one),
        "",
        *_verdict(one),
        "",
        *_rows("numbers that carry the verdict", one.numbers, width),
        *_options(one, width),
        *_findings(one),
        *_assumptions(one, width),
        *_rows("data that differ", one.data, width),
    ]


def _cautions(one: Comparison) -> Iterator[str]:
    if one.is_like_for_like:
        yield "like for like: the same trace, service, window and program"
        return
    yield "not like for like, so that a difference need not come from what you changed:"
    yield from (f"  {safe_text(caution.message, limit=400)}" for caution in one.cautions)


def _verdict(one: Comparison) -> Iterator[str]:
    outcome, confidence = one.verdict.rows[:2]
    changed = "the verdict changed" if one.verdict.is_changed else "the verdict is the same"
    yield f"verdict    {outcome.a} → {outcome.b}: {changed}"
    yield f"confidence {confidence.a} → {confidence.b}"
    yield f"A says     {_whole(one.verdict.a_headline)}"
    yield f"B says     {_whole(one.verdict.b_headline)}"


def _whole(text: str) -> str:
    return safe_text(text, limit=max(len(text), 1))


def _options(one: Comparison, width: int) -> Iterator[str]:
    """Of each common option the figures that are not equal."""
    for option in one.options:
        rows = [row for row in option.rows if row.standing != "equal" and row.a != row.b]
        told = [row for row in rows if row.standing != "no_difference_shown"]
        alike = [row.title or label_of(row.id) for row in rows if row not in told]
        shown = [*_rows(f"option {option.id} (modelled)", told, width)][:-1]
        if alike:
            shown = shown or [f"option {option.id} (modelled)"]
            shown += [f"  no difference shown: {safe_text(', '.join(alike), limit=400)}"]
        yield from [*shown, ""] if shown else ()
    for word, ids in (("gained", one.options_gained), ("lost", one.options_lost)):
        if ids:
            yield from (f"options {word}: {', '.join(ids)}", "")


def _findings(one: Comparison) -> Iterator[str]:
    yield f"findings: {len(one.findings_kept):,} in both with the same severity"
    yield from map(_finding, one.findings)
    yield ""


def _finding(one: FindingChange) -> str:
    title = safe_text(one.title)
    if one.change == "severity":
        return f"  ~ {one.id}: {one.a_severity} → {one.b_severity}, {title}"
    mark, severity = ("+", one.b_severity) if one.change == "gained" else ("-", one.a_severity)
    return f"  {mark} {one.id} ({severity}): {title}"


def _assumptions(one: Comparison, width: int) -> list[str]:
    left = len(one.assumptions) - _MOST_ASSUMPTIONS
    shown = list(_rows("assumptions that differ", one.assumptions[:_MOST_ASSUMPTIONS], width))
    return [*shown[:-1], f"  and {left:,} more in --json", ""] if left > 0 else shown


def _rows(title: str, rows: Sequence[Row], width: int) -> Iterator[str]:
    """A titled list, two lines or more a figure, and an empty line; nothing without rows."""
    if not rows:
        return
    yield title
    for row in sorted(rows, key=_is_unchanged):  # those that changed first, else in their order
        yield from _row(row, width)
    yield ""


def _is_unchanged(row: Row) -> int:
    """0: differs; 1: cannot be told; 2: the same."""
    if row.standing == "equal" or (row.a == row.b and row.unit == row.a_unit):
        return 2
    return 0 if row.standing.startswith("differs") else 1


def _row(row: Row, width: int) -> Iterator[str]:
    a = _shown(row.a, (row.a_low, row.a_high), row.a_unit, row)
    b = _shown(row.b, (row.b_low, row.b_high), row.unit, row)
    less = _in_unit(row.difference, row.unit, row)
    parts = [f"A {a}", f"B {b}", *([] if row.difference is None else [f"B less A {less}"])]
    yield f"  {safe_text(row.title) or label_of(row.id)}: {_STANDINGS[row.standing]}"
    line = "    " + "   ".join(parts)
    yield from [line] if len(line) <= width else [f"    {part}" for part in parts]


def _shown(value: Cell, ends: tuple[float | None, float | None], unit: str, row: Row) -> str:
    """A value with its interval, in one unit for the whole row."""
    text = _in_unit(value, unit, row)
    if None in ends or ends[0] == ends[1]:
        return text
    low, high = (_in_unit(end, unit, row) for end in ends)
    return f"{text} ({low} – {high})"


def _in_unit(value: Cell, stated: str, row: Row) -> str:
    unit = "" if stated in _TEXT_UNITS else stated
    ends = (row.a, row.b, row.a_low, row.a_high, row.b_low, row.b_high, row.difference)
    scale = pick_scale(unit, ends, name=row.id) if row.unit == row.a_unit else None
    if scale is not None and not isinstance(value, str):
        return format_in(value, scale) or "unknown"
    text = format_value(value, unit, name=row.id)
    return "unknown" if text is None else safe_text(text)
