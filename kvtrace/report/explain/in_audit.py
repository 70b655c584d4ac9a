"""What one audit says of a name: its finding, option, number, assumption or verdict."""

from __future__ import annotations

from collections.abc import Iterator

from kvtrace.audit.record import AuditRecord, Finding, Option, Quantity, Verdict
from kvtrace.report.explain.explanation import Explanation, Fact
from kvtrace.report.format import format_value
from kvtrace.report.option_table import binds_text
from kvtrace.report.texts import load_texts
from kvtrace.report.view import quantity_view


def facts_in(record: AuditRecord, one: Explanation) -> tuple[Fact, ...]:
    """What the audit says of what is explained; never empty."""
    if one.kind == "finding":
        found = next((f for f in record.findings if f.id == one.name), None)
        return tuple(_finding(found)) if found else (Fact("found", "no: not in this audit"),)
    if one.kind == "option":
        option = next((o for o in record.options if o.id == one.name), None)
        return tuple(_option(option)) if option else (Fact("replayed", "no: not in this audit"),)
    if one.kind == "verdict":
        return tuple(_verdict(record.verdict, one.name))
    if one.kind == "query":
        table = record.tables.get(one.name)
        said = "not in this audit" if table is None else f"{len(table.rows):,} rows, {table.basis}"
        return (Fact("table", said),)
    numbers = [number for number in _numbers(record) if number.id == one.name]
    return tuple(_number(number) for number in numbers) or (Fact("says", "nothing of it"),)


def number_in(record: AuditRecord, name: str) -> Explanation | None:
    """A carrying number, an assumption or a piece of evidence of this audit, by its id."""
    found = [one for one in _numbers(record) if one.id == name]
    if not found:
        return None
    title = found[0].title or name.replace("_", " ")
    return Explanation(name, "number", title, in_audit=tuple(map(_number, found)))


def note_in(record: AuditRecord, name: str) -> Explanation | None:
    """What the audit says under the code of a note or of a statement about its data."""
    said = [(one.severity, one.message) for one in record.data.validity if one.code == name]
    said += [(one.severity, one.message) for one in record.data.notes if one.code == name]
    if not said:
        return None
    facts = tuple(Fact(severity, message) for severity, message in dict.fromkeys(said))
    return Explanation(name, "note", name.replace("_", " "), in_audit=facts)


def names_in(record: AuditRecord) -> list[str]:
    """Ids that `number_in` and `note_in` know."""
    codes = {one.code for one in record.data.validity} | {one.code for one in record.data.notes}
    return sorted({one.id for one in _numbers(record)} | codes)


def _numbers(record: AuditRecord) -> Iterator[Quantity]:
    yield from record.verdict.carrying_numbers
    yield from record.assumptions
    case = None if record.economics is None else record.economics.case
    if case is not None:
        yield from (case.saving, case.extra_cost, case.payback, case.npv)
        yield from (case.gpu_usd_per_hour, case.dram_usd_per_gb)
    for finding in record.findings:
        yield finding.threshold
        yield from finding.evidence


def _number(one: Quantity) -> Fact:
    """Value, interval or reason, kind, source, who stands behind it."""
    shown = quantity_view(one, load_texts("en"))
    spread = shown.interval or shown.interval_reason
    behind = f"; {one.origin}" if one.origin else ""
    doubt = "" if one.is_confirmed else "; nobody confirmed it"
    value = shown.text or "unknown"
    return Fact("value", f"{value} ({spread}), {shown.kind}; {one.source}{behind}{doubt}")


def _finding(found: Finding) -> Iterator[Fact]:
    yield Fact("found", f"{found.severity}, confidence {found.confidence}: {found.message}")
    for one in found.evidence:
        yield Fact("evidence", f"{one.title or one.id}: {_number(one).text}")
    if found.table is not None:
        yield Fact("table", f"{found.table}: `kvtrace query DATASET {found.table}`")


def _option(option: Option) -> Iterator[Fact]:
    texts = load_texts("en")
    cost = option.hit_cost
    hit = format_value(option.hit_ratio_tokens, "ratio") or "unknown"
    times = (f"{name} {_time(getattr(option.ttft_s, name))}" for name in ("p50", "p90", "p99"))
    size = format_value(option.instances, "instances")
    yield Fact("replayed", f"{option.title}, {size} (modelled)")
    yield Fact("hits", f"{hit} of the prompt tokens")
    yield Fact("TTFT", ", ".join(times))
    yield Fact("loads", f"{cost.net_negative_hits:,} of {cost.hits:,} loaded hits are net-negative")
    yield Fact("binds", binds_text(option, texts))
    yield Fact("SLO", option.slo or "nothing to compare with")
    for label, money in (("cost", option.cost), ("saving", option.saving)):
        if money is not None:
            yield Fact(label, _number(money).text)


def _time(value: float | None) -> str:
    return format_value(value, "s") or "unknown"


def _verdict(verdict: Verdict, asked: str) -> Iterator[Fact]:
    if verdict.outcome != asked:
        yield Fact("verdict", f"another one: {verdict.outcome}")
        return
    yield Fact("verdict", f"{verdict.headline} (confidence {verdict.confidence})")
    yield from (Fact("because", reason) for reason in verdict.reasons)
    yield from (Fact("if", condition) for condition in verdict.conditions)
