"""The head of each section: its answer in one sentence, and the one figure that shows it.

Every sentence stands elsewhere in the record or on the page; here one is chosen for each section.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.audit.record import AuditRecord
from kvtrace.report.figures.frontier import cheapest_option
from kvtrace.report.format import format_value, safe_text
from kvtrace.report.questions import Part
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView

Parts = Mapping[str, Sequence[Part]]
Charts = Mapping[str, ChartView]
_LEADS: Final[Mapping[str, tuple[str, ...]]] = {
    "hits": ("move", "net_negative"),
    "reuse": ("curve",),
    "kv": ("kv",),
    "ledger": ("ledger",),
    "latency": ("latency",),
    "options": ("ttft_parts",),
    "timeline": ("replay_time", "over_time"),
}
"""By section, the charts that may stand at its head; the first that can be drawn does."""
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "uncertainty": ("uncertainty",),
    "latency": ("latency",),
    "economics": ("economics", "sizing"),
    "findings": ("ladder",),
    "fit": ("fit",),
}
"""By section, the questions whose first chart stands at its head."""
INTERFERENCE: Final = "long_prompts_hurt_short"
"""The finding that long prompts hurt short ones."""


def leads(record: AuditRecord, drawn: Charts, parts: Parts) -> dict[str, ChartView]:
    """The figure of each section; one that cannot be drawn says why, if it is the only one."""
    found: dict[str, ChartView] = {}
    for section in _LEADS.keys() | _PARTS.keys():
        named = [drawn[id] for id in _LEADS.get(section, ())]
        asked = [view for group in _PARTS.get(section, ()) for view in _views(parts[group])]
        views = [view for view in (*named, *asked) if view.figure is not None]
        if views:
            found[section] = views[0]
        elif named and not (section == "reuse" and record.reuse.unknown_reason):
            found[section] = named[0]
    return found


def _views(parts: Sequence[Part]) -> list[ChartView]:
    return [view for part in parts for view in (*part.charts, *part.small)]


def answers(record: AuditRecord, texts: Texts, drawn: Charts, parts: Parts) -> dict[str, str]:
    """The answer of each section that has one."""
    every = {
        "uncertainty": _first(parts["uncertainty"], "swings", last=True)
        or _first(parts["uncertainty"], "sure"),
        "hits": _said(drawn["net_negative"]),
        "reuse": _first(parts["reuse"], "how_much"),
        "kv": _said(drawn["kv"]),
        "ledger": _said(drawn["ledger"]),
        "latency": _interference(record, texts, parts) or _said(drawn["latency"]),
        "options": _cheapest(record, texts, drawn["frontier"]) or _said(drawn["ttft_parts"]),
        "economics": _first(parts["economics"], "payback"),
        "findings": _findings(record, texts),
        "timeline": _said(drawn["replay_time"]) or _said(drawn["over_time"]),
        "assumptions": _assumptions(record, texts),
        "quality": _quality(record, texts),
        "running": _running(record, texts),
        "fit": _fit(parts["fit"]),
    }
    return {section: said for section, said in every.items() if said}


def _said(view: ChartView) -> str:
    """What a figure says, where it can be drawn."""
    return view.summary if view.figure is not None else ""


def _cheapest(record: AuditRecord, texts: Texts, view: ChartView) -> str:
    """The option to take; what was not replayed or not weighed stands at the frontier itself."""
    if record.frontier is None or view.figure is None:
        return ""
    titles = {option.id: option.title for option in record.options}
    return cheapest_option(record.frontier, titles, texts)


def _fit(parts: Sequence[Part]) -> str:
    """How far off the first time is that was measured."""
    return next((part.sentences[0] for part in parts if part.sentences), "")


def _first(parts: Sequence[Part], id: str, *, last: bool = False) -> str:
    """A sentence of the question `id`."""
    part = next((one for one in parts if one.id == id), None)
    if part is None or not part.sentences:
        return ""
    return part.sentences[-1 if last else 0]


def _interference(record: AuditRecord, texts: Texts, parts: Parts) -> str:
    """What long prompts do to short ones, else what makes the slow ones slow."""
    found = next((one for one in record.findings if one.id == INTERFERENCE), None)
    if found is not None:
        return f"{safe_text(found.title)}. {safe_text(found.message)}"
    return _first(parts["latency"], "tail") or _first(parts["latency"], "quantiles")


def _findings(record: AuditRecord, texts: Texts) -> str:
    if not record.findings:
        return texts("finding.none")
    counts = [
        (severity, sum(one.severity == severity for one in record.findings))
        for severity in ("critical", "warning", "info")
    ]
    words = texts("finding.join").join(
        texts(f"finding.count.{severity}{'' if count != 1 else '_one'}", count=str(count))
        for severity, count in counts
        if count
    )
    return texts("finding.answer", counts=words)


def _assumptions(record: AuditRecord, texts: Texts) -> str:
    if not record.assumptions:
        return ""
    open_ones = sum(not one.is_confirmed for one in record.assumptions)
    return texts(
        "assumption.count",
        count=format_value(len(record.assumptions), "") or "",
        unconfirmed=format_value(open_ones, "") or "",
    )


def _quality(record: AuditRecord, texts: Texts) -> str:
    data = record.data
    broken = sum(
        entry.rows_in != entry.kept + entry.rejected + entry.blank
        or entry.kept != entry.used + entry.ignored
        for entry in data.files
    )
    return texts(
        "quality.answer" if not broken else "quality.answer_broken",
        grade=data.evidence_grade,
        short=texts(f"grade.{data.evidence_grade}.short"),
        rows=format_value(sum(entry.rows_in for entry in data.files), "") or "",
        files=format_value(len(data.files), "") or "",
        broken=str(broken),
    )


def _running(record: AuditRecord, texts: Texts) -> str:
    data = record.data
    if not (data.samples or data.transfers):
        return ""
    return texts(
        "running.counts",
        samples=format_value(data.samples, "") or "",
        transfers=format_value(data.transfers, "") or "",
    )
