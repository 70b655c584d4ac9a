"""What each section of the page shows, chosen from the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import AuditRecord, Cell, Table, Validity
from kvtrace.report.about import given_inputs
from kvtrace.report.amounts import RatioView, amounts, ratios
from kvtrace.report.answers import answers, leads
from kvtrace.report.drilldown import DrilldownView, drilldown_view
from kvtrace.report.figures import all_charts, running
from kvtrace.report.finding_views import (
    SEVERITIES,
    ActionGroup,
    FindingView,
    action_groups,
    finding_views,
)
from kvtrace.report.fit import fit_parts
from kvtrace.report.fleets import LADDER, fleet_parts
from kvtrace.report.format import Scale, format_value, pick_scale, safe_text
from kvtrace.report.option_table import option_details
from kvtrace.report.questions import (
    Notice,
    Part,
    economics_parts,
    kv_parts,
    latency_parts,
    reuse_parts,
    sizing_parts,
    still_climbing,
)
from kvtrace.report.texts import Texts
from kvtrace.report.uncertainty import uncertainty_parts
from kvtrace.report.view import (
    ChartView,
    QuantityView,
    TableView,
    quantity_view,
    table_view,
)
from kvtrace.report.what_if import WhatIfView, what_if_view
from kvtrace.schema.manifest import FileEntry

SECTIONS: Final = (
    "verdict",
    "uncertainty",
    "hits",
    "reuse",
    "kv",
    "ledger",
    "latency",
    "options",
    "economics",
    "what_if",
    "findings",
    "timeline",
    "assumptions",
    "quality",
    "running",
    "fit",
    "drilldown",
    "reproduce",
    "glossary",
)
"""In reading order: who decides, who designs, who operates.

A section is a line here, `templates/sections/<id>.j2`, the strings `title`, `short` and `lede` of
`section.<id>` and, where the record has one, its answer and its figure in `answers.py`.
"""
MAX_FILES: Final = 200
MAX_NOTES: Final = 100
_TOPIC_SECTION: Final[Mapping[str, str]] = {
    "replay/move_by_kv_bucket": "hits",
    "replay/top_regret": "hits",
    "reuse": "reuse",
    "sharing": "reuse",
    "generated": "reuse",
    "block_size": "reuse",
    "writes": "reuse",
    "policies": "reuse",
    "pooling": "reuse",
    "latency": "latency",
    "kv": "kv",
    "coverage": "quality",
    "quality": "quality",
    "samples": "running",
    "links/modelled_and_measured": "ledger",
    "links": "running",
    "kv_events": "running",
    "transfers": "running",
    "ledger": "ledger",
    "cost": "ledger",
    "replay": "options",
    "options": "options",
    "sizing": "sizing",
}
GLOSSARY: Final = (
    "ttft",
    "tpot",
    "prefill",
    "decode",
    "kv",
    "block",
    "reusable",
    "hit",
    "useful_hit",
    "net_negative",
    "arbiter",
    "recompute",
    "pull",
    "load",
    "tier",
    "capacity",
    "grade",
    "headline",
    "beside",
    "fact",
    "peak_hour",
    "slo",
    "offered_load",
    "host_bounce",
    "binds",
    "pool",
    "dominated",
    "surrogate",
    "reserve",
    "weighed",
    "modelled",
)


@dataclass(frozen=True, slots=True)
class FileView:
    """One input file; `adds_up` is the conservation law."""

    entry: FileEntry
    adds_up: bool
    ignored: str
    rejected: str


@dataclass(frozen=True, slots=True)
class PageView:
    """Everything that the template needs beside the record."""

    charts: dict[str, ChartView]
    answers: dict[str, str]
    """By section: its answer in one sentence, where the record has one."""
    leads: dict[str, ChartView]
    """By section: the one figure that stands at its head."""
    running: list[ChartView]
    """What the running system did, as far as there is data."""
    tables: dict[str, list[TableView]]
    """Tables that no chart shows, by section."""
    numbers: tuple[QuantityView, ...]
    findings: tuple[FindingView, ...]
    actions: tuple[ActionGroup, ...]
    ladder: tuple[Part, ...]
    """What binds each option, and what would next."""
    ratios: tuple[RatioView, ...]
    amounts: tuple[RatioView, ...]
    assumptions: tuple[QuantityView, ...]
    unconfirmed: tuple[QuantityView, ...]
    """Of the assumptions, those that nobody stands behind."""
    files: tuple[FileView, ...]
    notes: tuple[tuple[str, str, str], ...]
    """Code, message and path."""
    queries: tuple[str, ...]
    reuse: tuple[Part, ...]
    """The questions about reuse."""
    latency: tuple[Part, ...]
    """The questions about latency."""
    sizing: tuple[Part, ...]
    """The questions about the size of a pool and its break-even points."""
    kv: tuple[Part, ...]
    """The questions about room for KV and the tiers that it can come from."""
    economics: tuple[Part, ...]
    """The questions about money."""
    notice: Notice | None
    """What limits every share of reuse."""
    validity: tuple[Validity, ...]
    """The gravest first."""
    checks: tuple[TableView, ...]
    """Quality queries: no row is good."""
    inputs: tuple[str, ...]
    """As given on the command line."""
    window: tuple[str, ...]
    """Sentences: what was replayed, and the most that any cache could hit there."""
    ceiling: str | None
    """The hit ratio of an unlimited cache on the replayed requests."""
    ttft_scale: Scale | None
    """The unit of every TTFT and queue in the table of options."""
    option_details: TableView | None
    """What the table of options leaves out."""
    fleets: tuple[Part, ...]
    """The questions about the size of the fleet."""
    uncertainty: tuple[Part, ...]
    """The questions about how sure the money is."""
    titles: dict[str, str]
    """By id of an option: its title, for the tables that name options by id."""
    what_if: WhatIfView | None
    """Null in records of older versions."""
    fit: tuple[Part, ...]
    """The questions about how far the model is off."""
    drilldown: DrilldownView | None
    """Single requests; null where nothing was replayed."""
    has_overload: bool
    """An option cannot carry the load, so that its times say nothing."""

    def lead(self, section: str) -> ChartView | None:
        """The figure at the head of a section."""
        return self.leads.get(section)


def page_view(record: AuditRecord, texts: Texts) -> PageView:
    """The page of a record."""
    drawn = all_charts(record, texts)
    observed = running(record, texts)
    assumptions = tuple(quantity_view(one, texts) for one in record.assumptions)
    views = (*drawn.values(), *observed)
    shown = {view.table.anchor for view in views if view.table is not None}
    reuse, latency = reuse_parts(record, texts, drawn), latency_parts(record, texts)
    sizing, economics = sizing_parts(record, texts), economics_parts(record, texts)
    uncertainty, fleets = uncertainty_parts(record, texts), fleet_parts(record, texts)
    room = kv_parts(record, texts)
    parts = {
        "reuse": reuse,
        "latency": latency,
        "economics": economics,
        "sizing": sizing,
        "uncertainty": uncertainty,
        "fleets": tuple(one for one in fleets if one.id != LADDER),
        "ladder": tuple(one for one in fleets if one.id == LADDER),
        "fit": fit_parts(record, texts),
    }
    shown = shown.union(*(part.anchors for part in (*reuse, *latency, *sizing, *room)))
    return PageView(
        charts=drawn,
        answers=answers(record, texts, drawn, parts),
        leads=leads(record, drawn, parts),
        running=observed,
        tables=_other_tables(record, shown),
        numbers=tuple(quantity_view(one, texts) for one in record.verdict.carrying_numbers),
        findings=finding_views(record, texts),
        actions=action_groups(record.findings),
        ladder=parts["ladder"],
        ratios=ratios(record, texts),
        amounts=amounts(record, texts),
        assumptions=assumptions,
        unconfirmed=tuple(one for one in assumptions if not one.is_confirmed),
        files=tuple(_file(entry) for entry in record.data.files[:MAX_FILES]),
        notes=_notes(record),
        reuse=reuse,
        latency=latency,
        sizing=sizing,
        kv=room,
        economics=economics,
        notice=still_climbing(record, texts),
        validity=_validity(record),
        checks=_checks(record),
        inputs=tuple(safe_text(one) for one in given_inputs(record)),
        window=_window(record, texts),
        ceiling=_ceiling(record),
        ttft_scale=pick_scale("s", _ttfts(record)),
        option_details=option_details(record.options, texts) if record.options else None,
        fleets=parts["fleets"],
        uncertainty=uncertainty,
        titles={option.id: safe_text(option.title) for option in record.options},
        what_if=what_if_view(record, texts),
        fit=parts["fit"],
        drilldown=drilldown_view(record, texts),
        has_overload=any(not option.is_feasible for option in record.options),
        queries=tuple(sorted({t.query for t in record.tables.values() if t.query is not None})),
    )


def _validity(record: AuditRecord) -> tuple[Validity, ...]:
    ordered = sorted(record.data.validity, key=lambda one: SEVERITIES.index(one.severity))
    return tuple(ordered[:MAX_NOTES])


def _checks(record: AuditRecord) -> tuple[TableView, ...]:
    return tuple(table_view(record.tables[id]) for id in sorted(record.tables) if _is_check(id))


def _ttfts(record: AuditRecord) -> list[Cell]:
    """Of the options whose times mean something, else of all."""
    carrying = [option for option in record.options if option.is_feasible]
    spreads = [option.ttft_s for option in carrying or record.options]
    return [value for one in spreads for value in (one.p50, one.p90, one.p99)]


def _ceiling(record: AuditRecord) -> str | None:
    window = record.replay_window
    return None if window is None else format_value(window.reusable_ratio_tokens, "ratio")


def _window(record: AuditRecord, texts: Texts) -> tuple[str, ...]:
    window = record.replay_window
    if window is None:
        return ()
    whole = format_value(window.of_requests, "")
    if window.load_factor != 1:
        factor = format_value(window.load_factor, "")
        part = format_value(window.requests, "requests")
        first = texts("options.window_raised", part=part, factor=factor)
    elif window.is_whole_trace:
        first = texts("options.window_all", part=format_value(window.requests, "requests"))
    else:
        key = "options.window_part" if window.is_peak_hour else "options.window_some"
        first = texts(key, part=format_value(window.requests, ""), whole=whole)
    sentences = [first]
    if window.warmup_requests:
        warm = format_value(window.warmup_requests, "")
        sentences.append(texts("options.warm", requests=warm))
    ceiling = _ceiling(record)
    if ceiling is not None:
        has_history = window.counts_history and not window.is_whole_trace
        key = "options.ceiling_history" if has_history else "options.ceiling"
        sentences.append(texts(key, ratio=ceiling))
    return tuple(sentences)


def _other_tables(record: AuditRecord, shown: set[str]) -> dict[str, list[TableView]]:
    """Tables that no chart shows, by section; empty ones only where a finding cites them."""
    sections: dict[str, list[TableView]] = {}
    cited = {finding.table for finding in record.findings}
    for id in sorted(record.tables):
        table = record.tables[id]
        topic = id if id in _TOPIC_SECTION else id.partition("/")[0]
        is_ours = _TOPIC_SECTION.get(topic) in ("reuse", "kv")
        view = table_view(table, origin="computed" if is_ours else None)
        if view.anchor in shown or (id not in cited and _says_nothing(table)):
            continue
        section = _TOPIC_SECTION.get(topic, "options" if table.is_modelled else "reproduce")
        sections.setdefault(section, []).append(view)
    return sections


def _says_nothing(table: Table) -> bool:
    """Whether a table is empty or knows nothing of its topic, as one sentence there says."""
    units = _KNOWN_BY.get(table.id.partition("/")[0], ())
    columns = [i for i, unit in enumerate(table.units) if unit in units]
    if not columns:
        return not table.rows
    return all(row[i] is None for row in table.rows for i in columns)


_KNOWN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "latency": ("ms", "s"),
    "reuse": ("ratio",),
    "writes": ("ratio",),
}


def _is_check(id: str) -> bool:
    return id.startswith("quality/")


def _file(entry: FileEntry) -> FileView:
    return FileView(
        entry,
        entry.rows_in == entry.kept + entry.rejected + entry.blank
        and entry.kept == entry.used + entry.ignored,
        _counts(entry.ignored_by_reason),
        _counts(entry.rejected_by_reason),
    )


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(
        f"{safe_text(reason, limit=60)} {count:,}" for reason, count in sorted(reasons.items())[:12]
    )


def _notes(record: AuditRecord) -> tuple[tuple[str, str, str], ...]:
    """Notes of the data, its files and its sources, each once."""
    data = record.data
    every = [
        *data.notes,
        *(note for file in data.files for note in file.notes),
        *(note for source in data.sources for note in source.notes),
    ]
    rows = ((note.code, safe_text(note.message), safe_text(note.path or "")) for note in every)
    return tuple(dict.fromkeys(rows))[:MAX_NOTES]
