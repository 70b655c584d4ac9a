"""What each section of the page shows, chosen from the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import AuditRecord, Cell, Finding, Option, Reuse, Table, Validity
from kvtrace.report.about import given_inputs
from kvtrace.report.figures import MOVE_TABLES, all_charts, move_against_recompute, running
from kvtrace.report.fleets import fleet_parts
from kvtrace.report.format import Scale, format_in, format_value, pick_scale, safe_text
from kvtrace.report.option_table import option_details
from kvtrace.report.questions import (
    Notice,
    Part,
    economics_parts,
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
    slug,
    table_view,
)
from kvtrace.schema.manifest import FileEntry

SECTIONS: Final = (
    "verdict",
    "findings",
    "hits",
    "latency",
    "reuse",
    "kv",
    "ledger",
    "options",
    "fleets",
    "economics",
    "sizing",
    "uncertainty",
    "running",
    "assumptions",
    "quality",
    "reproduce",
    "glossary",
)
"""In reading order: who decides, who designs, who operates."""
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
_SEVERITIES: Final = ("critical", "warning", "info")
_ACTIONS: Final = ("move_less", "faster", "nearer", "measure", "other")
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
class RatioView:
    """One ratio or amount with what it is of and what it means."""

    title: str
    text: str | None
    of: str
    meaning: str


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding as shown."""

    finding: Finding
    evidence: tuple[QuantityView, ...]
    threshold: QuantityView
    table_anchor: str | None


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
    moves: list[ChartView]
    running: list[ChartView]
    """What the running system did, as far as there is data."""
    move_table: TableView | None
    tables: dict[str, list[TableView]]
    """Tables that no chart shows, by section."""
    numbers: tuple[QuantityView, ...]
    findings: tuple[FindingView, ...]
    actions: tuple[tuple[str, tuple[Finding, ...]], ...]
    ratios: tuple[RatioView, ...]
    amounts: tuple[RatioView, ...]
    assumptions: tuple[QuantityView, ...]
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
    slo: dict[str, str]
    """By option: its figures against today's, without its own title before them."""
    option_details: TableView | None
    """What the table of options leaves out."""
    fleets: tuple[Part, ...]
    """The questions about the size of the fleet."""
    uncertainty: tuple[Part, ...]
    """The questions about how sure the money is."""
    has_overload: bool
    """An option cannot carry the load, so that its times say nothing."""


def page_view(record: AuditRecord, texts: Texts) -> PageView:
    """The page of a record."""
    drawn = all_charts(record, texts)
    move_table = next(
        (table_view(record.tables[i]) for i in MOVE_TABLES if i in record.tables), None
    )
    observed = running(record, texts)
    views = (*drawn.values(), *observed)
    shown = {view.table.anchor for view in views if view.table is not None}
    shown |= {f"table-{slug(id)}" for id in MOVE_TABLES}
    reuse, latency = reuse_parts(record, texts, drawn), latency_parts(record, texts)
    sizing = sizing_parts(record, texts)
    shown = shown.union(*(part.anchors for part in (*reuse, *latency, *sizing)))
    return PageView(
        charts=drawn,
        moves=move_against_recompute(record, texts),
        running=observed,
        move_table=move_table,
        tables=_other_tables(record, shown),
        numbers=tuple(quantity_view(one, texts) for one in record.verdict.carrying_numbers),
        findings=_findings(record, texts),
        actions=_actions(record.findings),
        ratios=_ratios(record, texts),
        amounts=_amounts(record, texts),
        assumptions=tuple(quantity_view(one, texts) for one in record.assumptions),
        files=tuple(_file(entry) for entry in record.data.files[:MAX_FILES]),
        notes=_notes(record),
        reuse=reuse,
        latency=latency,
        sizing=sizing,
        economics=economics_parts(record, texts),
        notice=still_climbing(record, texts),
        validity=tuple(
            sorted(record.data.validity, key=lambda one: _SEVERITIES.index(one.severity))
        )[:MAX_NOTES],
        checks=tuple(
            table_view(record.tables[id]) for id in sorted(record.tables) if _is_check(id)
        ),
        inputs=tuple(safe_text(one) for one in given_inputs(record)),
        window=_window(record, texts),
        ceiling=_ceiling(record),
        ttft_scale=pick_scale("s", _ttfts(record)),
        slo={option.id: _slo(option) for option in record.options},
        option_details=option_details(record.options, texts) if record.options else None,
        fleets=fleet_parts(record, texts),
        uncertainty=uncertainty_parts(record, texts),
        has_overload=any(not option.is_feasible for option in record.options),
        queries=tuple(sorted({t.query for t in record.tables.values() if t.query is not None})),
    )


def _slo(option: Option) -> str:
    return safe_text((option.slo or "").removeprefix(f"{option.title}: "))


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


def _findings(record: AuditRecord, texts: Texts) -> tuple[FindingView, ...]:
    ordered = sorted(record.findings, key=lambda finding: _SEVERITIES.index(finding.severity))
    return tuple(
        FindingView(
            finding,
            tuple(quantity_view(one, texts) for one in finding.evidence),
            quantity_view(finding.threshold, texts),
            f"table-{slug(finding.table)}" if finding.table in record.tables else None,
        )
        for finding in ordered
    )


def _actions(findings: Sequence[Finding]) -> tuple[tuple[str, tuple[Finding, ...]], ...]:
    groups = ((kind, tuple(f for f in findings if f.action_kind == kind)) for kind in _ACTIONS)
    return tuple((kind, members) for kind, members in groups if members)


def _share_of(part: int | None, whole: int | None, unit: str, texts: Texts) -> str:
    if part is None or whole is None:
        return texts("reuse.of_unknown")
    shown_part, shown_whole = format_value(part, ""), format_value(whole, unit)
    return texts("reuse.of", part=shown_part, whole=shown_whole)


def _ratios(record: AuditRecord, texts: Texts) -> tuple[RatioView, ...]:
    """Every denominator of reuse, so that one hit rate is never taken for another."""
    reuse, data = record.reuse, record.data
    ok = data.requests_by_status.get("ok", 0)
    rows = (
        (
            "tokens",
            reuse.reusable_ratio_tokens,
            _share_of(reuse.reusable_tokens, data.prompt_tokens, "tokens", texts),
        ),
        (
            "blocks",
            reuse.reusable_ratio_blocks,
            _share_of(reuse.reusable_blocks, data.block_refs, "blocks", texts),
        ),
        ("full_blocks", reuse.reusable_ratio_full_blocks, texts("reuse.of_full_blocks")),
        (
            "requests_mean",
            reuse.reusable_ratio_requests_mean,
            texts("reuse.of_mean", requests=format_value(ok, "requests")),
        ),
        (
            "requests",
            reuse.requests_with_reuse_ratio,
            texts("reuse.of_requests", requests=format_value(ok, "requests")),
        ),
        (
            "observed",
            reuse.observed_hit_ratio_tokens,
            texts(
                "reuse.of_observed", requests=format_value(data.cached_known_requests, "requests")
            ),
        ),
    )
    why = safe_text(reuse.observed_unknown_reason or "")
    return tuple(
        RatioView(
            texts(f"reuse.{key}.title"),
            _at_least(format_value(value, "ratio"), key, reuse, texts),
            of if value is not None else why if key == "observed" else "",
            texts(f"reuse.{key}.meaning"),
        )
        for key, value, of in rows
    )


def _at_least(text: str | None, key: str, reuse: Reuse, texts: Texts) -> str | None:
    """A ratio that requests missing from the log make a lower bound; what was observed is none."""
    if text is None or key == "observed" or reuse.lower_bound_reason is None:
        return text
    return texts("reuse.at_least", value=text)


def _amounts(record: AuditRecord, texts: Texts) -> tuple[RatioView, ...]:
    """KV bytes, all in powers of two, so that what is asked for and what is held compare."""
    kv, spread = record.kv, record.kv.distribution
    rows = (
        ("per_token", kv.bytes_per_token),
        ("requested", kv.bytes_requested),
        ("rounded", kv.bytes_requested_block_rounded),
        ("distinct", kv.bytes_distinct),
        ("p50", spread.p50),
        ("p90", spread.p90),
        ("p99", spread.p99),
        ("maximum", spread.maximum),
    )
    whole = pick_scale("bytes", [value for key, value in rows if key in _WHOLE])
    each = pick_scale("bytes", [value for key, value in rows if key in _EACH])
    return tuple(
        RatioView(
            texts(f"kv.{key}.title"),
            _in_scale(value, whole if key in _WHOLE else each if key in _EACH else None),
            "",
            texts(f"kv.{key}.meaning"),
        )
        for key, value in rows
    )


_WHOLE: Final = ("requested", "rounded", "distinct")
_EACH: Final = ("p50", "p90", "p99", "maximum")


def _in_scale(value: float | None, scale: Scale | None) -> str | None:
    return format_value(value, "bytes") if scale is None else format_in(value, scale)


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
