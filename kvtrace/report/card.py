"""An audit as a card in a notebook: self-contained, light, every text escaped, no script."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from kvtrace.audit.record import AuditRecord, Finding, Quantity
from kvtrace.report.format import format_value, safe_text
from kvtrace.report.texts import Lang, Texts, load_texts
from kvtrace.report.view import quantity_view

_MOST_FINDINGS: Final = 3
_MOST_NUMBERS: Final = 3
_MARKS: Final = {"critical": "!!", "warning": "!", "info": "·"}
_SEVERITIES: Final = tuple(_MARKS)
_BOX: Final = (
    "font:14px/1.5 system-ui,sans-serif;max-width:46em;padding:14px 18px;"
    "border:1px solid currentColor;border-radius:8px"
)


def render_card(record: AuditRecord, *, lang: Lang = "en") -> str:
    """The verdict, what carries it and the gravest findings, as HTML for a cell of a notebook.

    Colours are those of the notebook, so that it can be read on light and dark.
    """
    texts = load_texts(lang)
    return "\n".join(
        (
            f'<section lang="{"zh-Hans" if lang == "zh" else lang}" style="{_BOX}">',
            *_head(record, texts),
            *_numbers(record, texts),
            *_findings(record, texts),
            *_foot(record, texts),
            "</section>",
        )
    )


def _text(value: str, limit: int = 400) -> str:
    return escape(safe_text(value, limit=limit))


def _head(record: AuditRecord, texts: Texts) -> Iterator[str]:
    verdict = record.verdict
    outcome = _text(texts(f"verdict.outcome.{verdict.outcome}"))
    confidence = _text(texts(f"verdict.confidence.{verdict.confidence}"))
    yield f"<div><small>{_text(texts('verdict.question'))}</small></div>"
    yield f'<div style="font-size:1.35em"><strong>{outcome}</strong> · {confidence}</div>'
    yield f'<p style="margin:.4em 0">{_text(verdict.headline, 1_000)}</p>'
    if verdict.next_measurement is not None:
        wanted = verdict.next_measurement
        yield (
            f'<p style="margin:.4em 0">{_text(texts("verdict.next"))}: {_text(wanted.question)}'
            f" <code>{_text(wanted.flag)}</code></p>"
        )


def _numbers(record: AuditRecord, texts: Texts) -> Iterator[str]:
    shown = record.verdict.carrying_numbers[:_MOST_NUMBERS]
    if shown:
        yield '<ul style="margin:.4em 0;padding-left:1.2em">'
        yield from (f"<li>{_number(one, texts)}</li>" for one in shown)
        yield "</ul>"


def _number(quantity: Quantity, texts: Texts) -> str:
    shown = quantity_view(quantity, texts)
    value = shown.text or f"{texts('unknown')} ({shown.interval_reason})"
    spread = f" ({shown.interval})" if shown.interval else ""
    return (
        f"{_text(shown.title)}: <strong>{_text(value)}</strong>{_text(spread)}, {_text(shown.kind)}"
    )


def _findings(record: AuditRecord, texts: Texts) -> Iterator[str]:
    ordered = sorted(record.findings, key=lambda one: _SEVERITIES.index(one.severity))
    for one in ordered[:_MOST_FINDINGS]:
        yield f"<div>{_MARKS[one.severity]} {_finding(one, texts)}</div>"
    left = len(ordered) - _MOST_FINDINGS
    if left > 0:
        yield f"<div>+ {left:,}</div>"


def _finding(finding: Finding, texts: Texts) -> str:
    severity = _text(texts.or_code("severity", finding.severity))
    return f"{_text(finding.title)} <small>{severity}, <code>{_text(finding.id)}</code></small>"


def _foot(record: AuditRecord, texts: Texts) -> Iterator[str]:
    data = record.data
    requests = format_value(data.requests, "requests") or texts("unknown")
    grade = f"{texts('adr.grade')} {data.evidence_grade}"
    said = " · ".join((requests, grade, texts(f"grade.{data.evidence_grade}.short")))
    yield f'<div style="margin-top:.6em"><small>{_text(said)}</small></div>'
