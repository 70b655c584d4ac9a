"""The first screen: what an engineer reads in the terminal before opening the page."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

from kvtrace.audit.record import AuditRecord, Cell, Finding, Quantity
from kvtrace.report.format import NBSP, format_value, is_count, safe_text
from kvtrace.report.texts import load_texts

WIDTH: Final = 100
"""Most columns of a line."""
MAX_LINES: Final = 20
_LABEL: Final = 12
_MILLION: Final = 1_000_000
_SEVERITIES: Final = ("critical", "warning", "info")
_MARKS: Final = {"critical": "!!", "warning": "! ", "info": "- "}


def render_console(
    record: AuditRecord, *, report_path: Path, audit_path: Path, dataset_path: Path, reused: bool
) -> list[str]:
    """12 to 20 lines of at most 100 columns: data, validity, verdict, numbers, findings, paths.

    Paths are never cut, so that they can be pasted; a long one makes its line longer.
    """
    dataset = f"{dataset_path}  (reused: the input has not changed)" if reused else dataset_path
    head = [*_data_lines(record), *_verdict_lines(record), *_number_lines(record)]
    paths = [
        "",
        f"{'report':<{_LABEL}}{report_path}",
        f"{'audit':<{_LABEL}}{audit_path}",
        f"{'dataset':<{_LABEL}}{dataset}",
    ]
    room = MAX_LINES - len(head) - len(paths)
    return [*head, *_finding_lines(record, room), *paths]


def _line(label: str, text: str) -> str:
    """One line: label and text, cut at the width."""
    return f"{label:<{_LABEL}}{_cut(text, WIDTH - _LABEL)}".rstrip()


def _cut(text: str, width: int) -> str:
    plain = text.replace(NBSP, " ")
    return plain if len(plain) <= width else f"{plain[: width - 1].rstrip()}…"


def _wrapped(label: str, text: str, *, lines: int) -> list[str]:
    """At most `lines` lines, the following ones under the text of the first."""
    pieces = textwrap.wrap(
        safe_text(text).replace(NBSP, " "), WIDTH - _LABEL, break_on_hyphens=False
    ) or [""]
    if len(pieces) > lines:
        pieces[lines - 1] = _cut(f"{pieces[lines - 1]} …", WIDTH - _LABEL)
    return [_line(label if i == 0 else "", piece) for i, piece in enumerate(pieces[:lines])]


def _known(value: float | None, unit: str) -> str:
    return format_value(value, unit) or "unknown"


def _data_lines(record: AuditRecord) -> list[str]:
    data = record.data
    span = "no clock" if data.span_s is None else f"span {_known(data.span_s, 's')}"
    tokens = (
        f"{_known(data.prompt_tokens, '')} prompt + {_known(data.output_tokens, '')} output tokens"
    )
    grade = load_texts("en")(f"grade.{data.evidence_grade}.short")
    files = f"{len(data.files):,} file{'' if len(data.files) == 1 else 's'}"
    rejected = f"{data.rejected:,} record{'' if data.rejected == 1 else 's'} rejected"
    return [
        _line("data", f"{_known(data.requests, 'requests')}, {tokens}, {span}"),
        _line("evidence", f"grade {data.evidence_grade}, {grade}; {files}, {rejected}"),
        _line("validity", _validity(record)),
    ]


def _validity(record: AuditRecord) -> str:
    """The gravest statement, and how many more there are."""
    ordered = sorted(record.data.validity, key=lambda one: _SEVERITIES.index(one.severity))
    if not ordered:
        return "nothing to object"
    more = f" (+{len(ordered) - 1} more in the report)" if len(ordered) > 1 else ""
    first = f"{ordered[0].severity}: {safe_text(ordered[0].message)}"
    return f"{_cut(first, WIDTH - _LABEL - len(more))}{more}"


def _verdict_lines(record: AuditRecord) -> list[str]:
    verdict = record.verdict
    outcome = load_texts("en")(f"verdict.outcome.{verdict.outcome}").upper()
    why = "; ".join(safe_text(reason) for reason in verdict.confidence_reasons)
    confidence = f"{verdict.confidence}{': ' if why else ''}{why}"
    lines = ["", _line("verdict", outcome), *_wrapped("", verdict.headline, lines=2)]
    lines.append(_line("confidence", confidence))
    if verdict.next_measurement is not None:
        lines += _wrapped("measure", verdict.next_measurement.question, lines=1)
        lines += _wrapped("", f"with {verdict.next_measurement.flag}", lines=2)
    return lines


def _number_lines(record: AuditRecord) -> list[str]:
    numbers = record.verdict.carrying_numbers[:3]
    return [_line("numbers" if i == 0 else "", _number(one)) for i, one in enumerate(numbers)]


def _number(quantity: Quantity) -> str:
    title = safe_text(quantity.title or quantity.id.replace("_", " "))
    value = _short(quantity.value, quantity.unit, quantity.id)
    if value is None:
        reason = safe_text(quantity.interval_reason) or "no reason given"
        return f"{title}: unknown ({reason})"
    low, high = (_short(end, quantity.unit, quantity.id) for end in (quantity.low, quantity.high))
    interval = f" ({low} – {high})" if low and high and low != high else ""
    return f"{title}: {value}{interval}, {quantity.kind}"


def _short(value: Cell, unit: str, name: str) -> str | None:
    """A number that fits a line beside its interval: millions as M, money without its period."""
    if isinstance(value, int | float) and is_count(unit) and abs(value) >= _MILLION:
        return f"{value / _MILLION:,.1f}M"
    return format_value(value, "USD" if unit == "USD/month" else unit, name=name)


def _finding_lines(record: AuditRecord, room: int) -> list[str]:
    """The gravest findings, one line each, as many as there is room for."""
    ordered: list[Finding] = sorted(
        record.findings, key=lambda finding: _SEVERITIES.index(finding.severity)
    )
    if not ordered:
        return [_line("findings", "none")]
    shown = ordered[: max(1, min(5, room))]
    if len(shown) < len(ordered) and len(shown) == room:
        shown = shown[:-1] or shown
    lines = [
        _line("findings" if i == 0 else "", f"{_MARKS[f.severity]} {safe_text(f.title)}  [{f.id}]")
        for i, f in enumerate(shown)
    ]
    if len(shown) < len(ordered):
        lines.append(_line("", f"   and {len(ordered) - len(shown):,} more in the report"))
    return lines
