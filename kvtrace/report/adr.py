"""An architecture decision record in Markdown: the evidence of an audit, the decision left open.

What stands here is in the record; a person writes the decision. `render_summary` is the same
evidence without the frame of a decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from kvtrace.audit.record import AuditRecord, Finding, Option, Quantity
from kvtrace.report.about import given_inputs, served_by
from kvtrace.report.format import format_value
from kvtrace.report.markdown import markdown_list, markdown_table, markdown_text
from kvtrace.report.option_table import binds_text
from kvtrace.report.promql import with_code
from kvtrace.report.questions.part import Part
from kvtrace.report.texts import Lang, Texts, load_texts
from kvtrace.report.uncertainty import uncertainty_parts
from kvtrace.report.view import quantity_view
from kvtrace.units import NS_PER_S

_SLICES: Final = "coverage/over_time"
_START: Final = "slice_start_ns"
_MOST_OPEN: Final = 12
"""Estimates that are listed; the record has what weighs most first."""
_COLUMNS: Final = (
    "option", "hit", "ttft_p50", "ttft_p99", "net_negative", "slo", "binds", "cost", "saving"
)  # fmt: skip


def render_adr(record: AuditRecord, *, lang: Lang) -> str:
    """The decision record; the same record and language give the same text."""
    texts = load_texts(lang)
    parts = [
        f"# {texts('adr.title')}",
        _status(record, texts),
        *_section("adr.context", _context(record, texts), texts),
        *_section("adr.options", _options(record, texts), texts),
        *_section("adr.evidence", _evidence(record, texts), texts),
        *_section("adr.consequences", _consequences(record, texts), texts),
        *_section("adr.open", _open(record, texts), texts),
        *_section("adr.decision", [texts("adr.decision_left")], texts),
        *_section("adr.again", _again(record, texts), texts),
    ]
    return "\n\n".join(parts) + "\n"


def render_summary(record: AuditRecord, *, lang: Lang) -> str:
    """The evidence in Markdown: data, verdict, options, findings, assumptions."""
    texts = load_texts(lang)
    parts = [
        f"# {texts('adr.summary_title')}",
        *_section("adr.context", _context(record, texts), texts),
        *_section("adr.evidence", _evidence(record, texts), texts),
        *_section("adr.options", _options(record, texts), texts),
        *_section("adr.open", _open(record, texts), texts),
        *_section("adr.again", _again(record, texts), texts),
    ]
    return "\n\n".join(parts) + "\n"


def _section(key: str, blocks: list[str], texts: Texts) -> Iterator[str]:
    yield f"## {texts(key)}"
    yield from blocks


def _status(record: AuditRecord, texts: Texts) -> str:
    dated = texts("adr.undated") if record.generated_at is None else record.generated_at
    lines = [texts("adr.status"), texts("adr.date", date=dated), *_arrived(record, texts)]
    return "\n".join(markdown_list([*lines, texts("adr.deciders")]))


def _arrived(record: AuditRecord, texts: Texts) -> Iterator[str]:
    """First and last day of the requests, where their clock has dates."""
    has_dates = any(one.role == "headline" and one.clock == "utc" for one in record.data.sources)
    table = record.tables.get(_SLICES)
    if not has_dates or table is None or _START not in table.columns:
        return
    place = table.columns.index(_START)
    starts = [row[place] for row in table.rows]
    days = sorted({_day(one) for one in starts if isinstance(one, int)})
    if days:
        yield texts("adr.data_of", first=days[0], last=days[-1])


def _day(instant_ns: int) -> str:
    return datetime.fromtimestamp(instant_ns // NS_PER_S, UTC).date().isoformat()


def _context(record: AuditRecord, texts: Texts) -> list[str]:
    data = record.data
    span = format_value(data.span_s, "s") or texts("unknown")
    inputs = ", ".join(given_inputs(record))
    grade = data.evidence_grade
    items = [
        texts(
            "adr.data",
            requests=format_value(data.requests, "requests"),
            tokens=format_value(data.prompt_tokens, "tokens") or texts("unknown"),
            span=span,
            inputs=inputs,
        ),
        texts("adr.served", served=served_by(record)),
        f"{texts('adr.grade')} {grade}: {texts(f'grade.{grade}.short')}",
        *_window(record, texts),
        *(one.message for one in data.validity),
    ]
    return [texts("adr.question"), "\n".join(markdown_list(items))]


def _window(record: AuditRecord, texts: Texts) -> list[str]:
    window = record.replay_window
    if window is None:
        return [texts("adr.not_replayed")]
    key = "adr.window_whole" if window.is_whole_trace else "adr.window_part"
    return [texts(key, requests=f"{window.requests:,}", of=f"{window.of_requests:,}")]


def _options(record: AuditRecord, texts: Texts) -> list[str]:
    if not record.options:
        return [texts("adr.no_options")]
    header = [texts(f"adr.column.{name}") for name in _COLUMNS]
    rows = [_option(option, record, texts) for option in record.options]
    return [texts("adr.options_note"), "\n".join(markdown_table(header, rows))]


def _option(option: Option, record: AuditRecord, texts: Texts) -> list[str]:
    cost = option.hit_cost
    marks = [
        texts("adr.weighed") if option.id == record.verdict.option else "",
        texts("adr.rival") if _is(option, record.verdict.rival) else "",
        texts("adr.dominated") if option.is_dominated else "",
        "" if option.is_feasible else texts("adr.infeasible"),
    ]
    told = ", ".join(mark for mark in marks if mark)
    keeps = {None: texts("unknown"), True: texts("adr.yes"), False: texts("adr.no")}
    return [
        f"{option.title} (`{option.id}`){f', {told}' if told else ''}",
        _shown(option.hit_ratio_tokens, "ratio", texts),
        _shown(option.ttft_s.p50, "s", texts),
        _shown(option.ttft_s.p99, "s", texts),
        f"{cost.net_negative_hits:,} / {cost.hits:,}",
        keeps[option.keeps_slo],
        binds_text(option, texts),
        _money(option.cost, option.usd_per_month, texts),
        _money(option.saving, option.usd_saved_per_month, texts),
    ]


def _is(option: Option, name: str | None) -> bool:
    """Whether a verdict that names an option by its id or title means this one."""
    return name in (option.id, option.title)


def _shown(value: float | None, unit: str, texts: Texts) -> str:
    return format_value(value, unit) or texts("unknown")


def _money(quantity: Quantity | None, value: float | None, texts: Texts) -> str:
    """Dollars a month with their interval where it is known."""
    if quantity is None:
        return _shown(value, "USD", texts)
    shown = quantity_view(quantity, texts)
    text = shown.text or texts("unknown")
    return f"{text} ({shown.interval})" if shown.interval else text


def _number(quantity: Quantity, texts: Texts) -> str:
    """`title: value (low – high), kind; source`, or why it is unknown."""
    shown = quantity_view(quantity, texts)
    value = shown.text or texts("unknown")
    spread = f" ({shown.interval})" if shown.interval else f" ({shown.interval_reason})"
    return f"{shown.title}: {value}{spread}, {shown.kind}; {shown.source}"


def _evidence(record: AuditRecord, texts: Texts) -> list[str]:
    """The verdict as evidence, the numbers that carry it, and what was found."""
    verdict = record.verdict
    outcome = texts(f"verdict.outcome.{verdict.outcome}")
    confidence = texts(f"verdict.confidence.{verdict.confidence}")
    why = "; ".join(verdict.confidence_reasons)
    return [
        f"**{texts('adr.verdict')}: {outcome}.** {markdown_text(verdict.headline)}",
        markdown_text(f"{confidence}{': ' if why else ''}{why}"),
        "\n".join(markdown_list(verdict.reasons)),
        f"### {texts('verdict.numbers')}",
        "\n".join(markdown_list([_number(one, texts) for one in verdict.carrying_numbers])),
        *_how_sure(record, texts),
        f"### {texts('adr.findings')}",
        *[_finding(one, texts) for one in record.findings],
        *([] if record.findings else [texts("finding.none")]),
    ]


def _how_sure(record: AuditRecord, texts: Texts) -> list[str]:
    """The chance, where the answer flips, and what is worth settling first."""
    parts = uncertainty_parts(record, texts) if record.uncertainty is not None else ()
    lines = [line for part in parts if part.missing is None for line in _lines(part)]
    if not lines:
        return []
    return [f"### {texts('section.uncertainty.title')}", "\n".join(markdown_list(lines))]


def _lines(part: Part) -> Iterator[str]:
    yield from part.sentences
    if part.id != "sure":
        yield from part.points


def _finding(finding: Finding, texts: Texts) -> str:
    severity = texts.or_code("severity", finding.severity)
    head = f"**{markdown_text(finding.title)}** (`{finding.id}`, {severity})"
    lines = [
        f"{texts('finding.action')}: {finding.action}",
        f"{texts('finding.check')}: {with_code(finding.production_check)}",
    ]
    return "\n".join([f"{head}: {markdown_text(finding.message)}", "", *markdown_list(lines)])


def _consequences(record: AuditRecord, texts: Texts) -> list[str]:
    """What follows with a pool and without, as far as the record says."""
    verdict = record.verdict
    items: list[str] = []
    for key, ident in (("adr.if_pool", verdict.option), ("adr.if_not", verdict.rival)):
        option = next((one for one in record.options if _is(one, ident)), None)
        if option is not None:
            items.append(
                texts(
                    key,
                    title=option.title,
                    cost=_money(option.cost, option.usd_per_month, texts),
                    saving=_money(option.saving, option.usd_saved_per_month, texts),
                    slo=option.slo or texts("adr.no_slo"),
                )
            )
    conditions = verdict.conditions
    head = "verdict.conditions" if verdict.outcome == "pays_only_if" else "verdict.would_change"
    blocks = ["\n".join(markdown_list(items))] if items else [texts("adr.no_consequences")]
    if conditions:
        blocks += [f"{texts(head)}:", "\n".join(markdown_list(conditions))]
    return blocks


def _open(record: AuditRecord, texts: Texts) -> list[str]:
    """The measurement that is worth most, and the estimates that nobody confirmed."""
    items: list[str] = []
    wanted = record.verdict.next_measurement
    if wanted is not None:
        items.append(
            texts("adr.measure", question=wanted.question, flag=wanted.flag, settles=wanted.settles)
        )
    estimates = [one for one in record.assumptions if not one.is_confirmed]
    items += [texts("adr.confirm", number=_number(one, texts)) for one in estimates[:_MOST_OPEN]]
    if len(estimates) > _MOST_OPEN:
        items.append(texts("adr.more", count=len(estimates) - _MOST_OPEN))
    return ["\n".join(markdown_list(items))] if items else [texts("adr.nothing_open")]


def _again(record: AuditRecord, texts: Texts) -> list[str]:
    made = record.reproduce
    items = [
        texts("adr.version", version=made.kvtrace_version, schema=record.schema_version),
        texts("adr.digest", digest=made.dataset_digest, seed=made.seed),
    ]
    command = made.command.replace("```", "'''")
    return ["\n".join(markdown_list(items)), f"```\n{command}\n```"]
