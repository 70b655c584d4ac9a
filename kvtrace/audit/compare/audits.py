"""Audit B against audit A: verdict, numbers, options, findings, assumptions, data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kvtrace.audit.compare.comparison import (
    COMPARISON_SCHEMA_VERSION,
    Caution,
    Comparison,
    FindingChange,
    OptionChange,
    Row,
    VerdictChange,
)
from kvtrace.audit.compare.rows import row_of, row_of_quantities, within
from kvtrace.audit.record import AuditRecord, Finding, Option, Quantity, ReplayWindow
from kvtrace.audit.thresholds import LITTLE, TAIL_TOLERANCE, TPOT_TOLERANCE

_SERVED: Final[Mapping[str, str]] = {
    "llm": "another LLM",
    "hardware": "other hardware",
    "tp": "another number of GPUs an instance",
    "instances": "another number of instances",
    "kv_dtype": "another KV dtype",
    "weight_dtype": "another weight dtype",
}
_DATA: Final = (
    ("requests", "requests"),
    ("prompt_tokens", "tokens"),
    ("output_tokens", "tokens"),
    ("cached_tokens", "tokens"),
    ("distinct_blocks", "blocks"),
    ("block_size_tokens", "tokens"),
    ("rejected", "records"),
    ("span_s", "s"),
    ("evidence_grade", "name"),
    ("dataset_digest", "name"),
)
_REUSE: Final = ("reusable_ratio_tokens", "observed_hit_ratio_tokens")


def compare_audits(a: AuditRecord, b: AuditRecord, *, names: tuple[str, str]) -> Comparison:
    """What audit B says that audit A does not; `names` say where they were read."""
    cautions = list(_cautions(a, b))
    ours, theirs = ({one.id: one for one in record.options} for record in (a, b))
    return Comparison(
        schema_version=COMPARISON_SCHEMA_VERSION,
        a=names[0],
        b=names[1],
        is_like_for_like=not cautions,
        cautions=cautions,
        verdict=_verdicts(a, b),
        numbers=_matched(a.verdict.carrying_numbers, b.verdict.carrying_numbers),
        options=[_option(one, theirs[one.id]) for one in a.options if one.id in theirs],
        options_gained=[one.id for one in b.options if one.id not in ours],
        options_lost=[one.id for one in a.options if one.id not in theirs],
        findings=_findings(a.findings, b.findings),
        findings_kept=_kept(a.findings, b.findings),
        assumptions=list(_assumptions(a, b)),
        data=[row for row in _data(a, b) if row.standing != "equal" and row.a != row.b],
    )


def _cautions(a: AuditRecord, b: AuditRecord) -> Iterator[Caution]:
    """What keeps the two from being of one thing, the gravest first."""
    if a.data.dataset_digest != b.data.dataset_digest:
        yield Caution(
            code="other_trace",
            message=f"another trace: A is of {a.data.requests:,} requests, B of "
            f"{b.data.requests:,}; a difference may be one of the traffic",
        )
    ours, theirs = _served(a), _served(b)
    for name, words in _SERVED.items():
        before, after = ours.get(name), theirs.get(name)
        if before != after:
            message = f"{words}: A has {_said(before)}, B {_said(after)}"
            yield Caution(code=f"other_{name}", message=message)
    yield from _windows(a, b)
    yield from _versions(a, b)


def _windows(a: AuditRecord, b: AuditRecord) -> Iterator[Caution]:
    ours, theirs = a.replay_window, b.replay_window
    if bool(a.options) != bool(b.options):
        which = "B" if a.options else "A"
        yield Caution(code="not_replayed", message=f"{which} replayed nothing: it has no options")
    if ours is not None and theirs is not None and ours.requests != theirs.requests:
        yield Caution(
            code="other_window",
            message=f"another window: A replayed {_window(ours)}, B {_window(theirs)}",
        )


def _window(window: ReplayWindow) -> str:
    hour = " (the peak hour)" if window.is_peak_hour else ""
    return f"{window.requests:,} of {window.of_requests:,} requests{hour}"


def _versions(a: AuditRecord, b: AuditRecord) -> Iterator[Caution]:
    before, after = a.reproduce.kvtrace_version, b.reproduce.kvtrace_version
    if before != after:
        yield Caution(
            code="other_version",
            message=f"another kvtrace: A is of {before}, B of {after}; analyse A's logs again with "
            f"{after} to leave the program out",
        )


def _served(record: AuditRecord) -> dict[str, object]:
    """What serves the traffic; the KV shape stands in records that list no settings, too."""
    stated = {one.id: one.value for one in record.assumptions if one.id in _SERVED}
    return {"llm": record.kv.llm, "kv_dtype": record.kv.kv_dtype, **stated}


def _said(value: object) -> str:
    return "what it does not say" if value is None else str(value)


def _verdicts(a: AuditRecord, b: AuditRecord) -> VerdictChange:
    fields = ("outcome", "confidence", "option", "rival")
    return VerdictChange(
        is_changed=a.verdict.outcome != b.verdict.outcome,
        rows=[
            row_of(name, "name", getattr(a.verdict, name), getattr(b.verdict, name))
            for name in fields
        ],
        a_headline=a.verdict.headline,
        b_headline=b.verdict.headline,
    )


def _matched(a: Sequence[Quantity], b: Sequence[Quantity]) -> list[Row]:
    """Numbers by id in A's order; one that the other has not is unknown there."""
    ours, theirs = ({one.id: one for one in numbers} for numbers in (a, b))
    return [
        row_of_quantities(
            ours.get(ident) or _absent(theirs[ident]), theirs.get(ident) or _absent(ours[ident])
        )
        for ident in dict.fromkeys([*ours, *theirs])
    ]


def _absent(other: Quantity) -> Quantity:
    """The same number where an audit does not have it."""
    return Quantity(
        id=other.id, title=other.title, value=None, unit=other.unit, source="not in this audit"
    )


def _option(a: Option, b: Option) -> OptionChange:
    """All figures are modelled; money has intervals, times have none."""
    tolerated = [
        ("hit_ratio_tokens", "ratio", a.hit_ratio_tokens, b.hit_ratio_tokens, LITTLE),
        ("ttft_p50_s", "s", a.ttft_s.p50, b.ttft_s.p50, TAIL_TOLERANCE),
        ("ttft_p99_s", "s", a.ttft_s.p99, b.ttft_s.p99, TAIL_TOLERANCE),
        ("tpot_p50_s", "s", a.tpot_s.p50, b.tpot_s.p50, TPOT_TOLERANCE),
    ]
    plain = [
        ("loaded_hits", "requests", a.hit_cost.hits, b.hit_cost.hits),
        ("instances", "instances", a.instances, b.instances),
        ("instances_at_slo", "instances", a.instances_at_slo, b.instances_at_slo),
        ("keeps_slo", "flag", a.keeps_slo, b.keeps_slo),
        ("is_dominated", "flag", a.is_dominated, b.is_dominated),
        ("binds", "name", a.binds, b.binds),
    ]
    rows = [
        within(row_of(name, unit, x, y, is_modelled=True), tolerance)
        for name, unit, x, y, tolerance in tolerated
    ]
    rows += [row_of(name, unit, x, y, is_modelled=True) for name, unit, x, y in plain]
    for x, y in (
        (a.hit_cost.net_negative, b.hit_cost.net_negative),
        (a.cost, b.cost),
        (a.saving, b.saving),
        (a.whole_instances_saved, b.whole_instances_saved),
    ):
        if x is not None and y is not None:
            rows.append(row_of_quantities(x, y))
    return OptionChange(id=b.id, title=b.title, rows=rows)


def _findings(a: Sequence[Finding], b: Sequence[Finding]) -> list[FindingChange]:
    """Gained first, then lost, then those of another severity."""
    ours, theirs = ({one.id: one for one in found} for found in (a, b))
    gained = [_change(one, "gained", None, one) for one in b if one.id not in ours]
    lost = [_change(one, "lost", one, None) for one in a if one.id not in theirs]
    moved = [
        _change(one, "severity", ours[one.id], one)
        for one in b
        if one.id in ours and ours[one.id].severity != one.severity
    ]
    return [*gained, *lost, *moved]


def _change(
    said: Finding, change: str, before: Finding | None, after: Finding | None
) -> FindingChange:
    return FindingChange(
        id=said.id,
        title=said.title,
        change=change,  # type: ignore[arg-type]
        a_severity=None if before is None else before.severity,
        b_severity=None if after is None else after.severity,
        message=said.message,
    )


def _kept(a: Sequence[Finding], b: Sequence[Finding]) -> list[str]:
    severities = {one.id: one.severity for one in a}
    return [one.id for one in b if severities.get(one.id) == one.severity]


def _assumptions(a: AuditRecord, b: AuditRecord) -> Iterator[Row]:
    """In A's order, then those that only B makes."""
    ours, theirs = ({one.id: one for one in record.assumptions} for record in (a, b))
    for ident in dict.fromkeys([*ours, *theirs]):
        before = ours.get(ident) or _absent(theirs[ident])
        after = theirs.get(ident) or _absent(ours[ident])
        if _stated(before) != _stated(after):
            row = row_of_quantities(before, after)
            # An input is what somebody put in: overlapping ranges do not make two values one.
            row.standing = "differs" if row.standing == "no_difference_shown" else row.standing
            yield row


def _stated(one: Quantity) -> tuple[object, ...]:
    return one.value, one.low, one.high, one.unit, one.is_confirmed


def _data(a: AuditRecord, b: AuditRecord) -> Iterator[Row]:
    for name, unit in _DATA:
        yield row_of(name, unit, getattr(a.data, name), getattr(b.data, name))
    for name in _REUSE:
        yield row_of(name, "ratio", getattr(a.reuse, name), getattr(b.reuse, name))
    files = (sorted(one.path for one in record.data.files) for record in (a, b))
    yield row_of("files", "names", *(", ".join(one) for one in files))
