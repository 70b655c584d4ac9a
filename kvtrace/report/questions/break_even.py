"""How soon, how much, how fast, how many at once: the break-even points of the sizing section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import AuditRecord
from kvtrace.audit.sizing.record import (
    BreakEvenContention,
    BreakEvenPath,
    BreakEvenReuse,
    ResidencyRule,
    Sizing,
)
from kvtrace.report.figures.common import link_name
from kvtrace.report.format import format_value, safe_text
from kvtrace.report.questions.facts import Row, facts
from kvtrace.report.questions.part import Part, absent_part, tables
from kvtrace.report.texts import Texts
from kvtrace.report.view import quantity_view, table_view

_RULES: Final = "sizing/tier_rules"
_BUDGET: Final = "sizing/link_budget"
_LITTLE: Final = "sizing/littles_law"
_POINTS: Final = (
    "sizing/break_even_reuse",
    "sizing/break_even_bandwidth",
    "sizing/break_even_contention",
)


def residency(record: AuditRecord, texts: Texts) -> Part:
    """The five-minute rule of each tier, and how much of the reuse keeps it."""
    sizing, rules = record.sizing, facts(record, _RULES)
    known = [] if sizing is None else [one for one in sizing.residency if _has_rule(one)]
    if rules.table is None or all(one.residency is None for one in known):
        return absent_part("residency", texts)
    view = table_view(rules.table, source=texts("source.cost"), origin="modelled")
    return Part(
        "residency",
        texts("q.residency.title"),
        sentences=(texts("q.residency.how"),),
        points=tuple(_rule(one, texts) for one in known),
        points_title=texts("q.residency.points"),
        points_source=view,
        folded=(view, *tables(record, ("sizing/residency",), "modelled")),
    )


def break_even(record: AuditRecord, texts: Texts) -> Part:
    """Reuse, bandwidth and contention at which a hit, or a pool of them, stops to be worth it."""
    sizing = record.sizing
    sentences = [] if sizing is None else _points(sizing, record.verdict.option, texts)
    if not sentences:
        return absent_part("break_even", texts)
    return Part(
        "break_even",
        texts("q.break_even.title"),
        sentences=tuple(sentences),
        short=tuple(
            table_view(record.tables[id], source=texts("source.cost"), origin="modelled")
            for id in _POINTS
            if id in record.tables
        ),
    )


def links(record: AuditRecord, texts: Texts) -> Part:
    """Whether the links and HBM carry what is in flight."""
    budget, little = facts(record, _BUDGET), facts(record, _LITTLE)
    full = budget.largest("p99_utilisation")
    if budget.table is None or full is None:
        return absent_part("links", texts)
    key = "q.links.full" if full["is_within"] is False else "q.links.within"
    titles = {option.id: option.title for option in record.options}
    sentences = [texts(key, **_shown(full, titles, texts))]
    for what in ("kv_of_loads", "kv_of_decodes"):
        held = little.where(what=what).largest("peak_over_room")
        if held is not None:
            sentences.append(texts(f"q.links.{what}", **_shown(held, titles, texts)))
    return Part(
        "links",
        texts("q.links.title"),
        sentences=tuple(sentences),
        folded=tables(record, (_BUDGET, _LITTLE), "modelled"),
    )


def _shown(row: Row, titles: Mapping[str, str], texts: Texts) -> dict[str, str]:
    """The cells of a row for a sentence, options and links by their names."""
    shown = {name: row.show(name, texts) for name in row.table.columns}
    named = {
        name: titles.get(row.text(name), row.text(name)) for name in ("option_id", "scenario_id")
    }
    shown |= {name: safe_text(title) for name, title in named.items() if name in shown}
    if "link_id" in shown:
        shown["link_id"] = link_name(row.text("link_id"), texts)
    return shown


def _has_rule(rule: ResidencyRule) -> bool:
    return rule.is_endless or rule.residency is not None


def _rule(rule: ResidencyRule, texts: Texts) -> str:
    shown = {
        "tier": safe_text(rule.title),
        "share": _text(rule.within_ratio_tokens, "ratio", texts),
        "bytes": _text(rule.kept_bytes, "bytes", texts),
    }
    until = None if rule.residency is None else _spread(rule.residency, texts)
    sentence = (
        texts("q.residency.endless", **shown)
        if until is None
        else texts("q.residency.rule", until=until, **shown)
    )
    if rule.within_ratio_tokens is None:
        return sentence
    key = "q.residency.kept_all" if until is None else "q.residency.kept"
    return f"{sentence} {texts(key, **shown)}"


def _points(sizing: Sizing, chosen: str | None, texts: Texts) -> list[str]:
    """Of the pool that the verdict weighs, of the paths to a pool, of ports that are too slow."""
    weighed = [one for one in sizing.reuse if one.option == chosen] or sizing.reuse
    loaded = [one for one in sizing.contention if one.flows is not None]
    told = [one for one in loaded if one.option == chosen or one.flows == 0] or loaded[:1]
    pooled = [one for one in sizing.paths if one.path.startswith("pool_")]
    return [
        *(_reuse(one, texts) for one in weighed[:1]),
        *(texts("q.break_even.by_second") for _ in weighed[:1]),
        *(_path(one, one.needed, texts) for one in pooled if one.needed is not None),
        *(_flows(one, texts) for one in told),
    ]


def _path(path: BreakEvenPath, needed: Quantity, texts: Texts) -> str:
    is_slow = path.move_s > path.recompute_s
    return texts(
        "q.break_even.path_slow" if is_slow else "q.break_even.path",
        path=safe_text(path.title),
        needed=_spread(needed, texts),
        given=_text(path.given_bytes_per_s, "bytes/s", texts),
        tokens=_text(path.cached_tokens, "tokens", texts),
    )


def _flows(point: BreakEvenContention, texts: Texts) -> str:
    return texts(
        "q.break_even.flows" if point.flows else "q.break_even.no_flow",
        option=safe_text(point.title),
        flows=_text(point.flows, "", texts),
        mean=_text(point.mean_in_flight, "", texts),
        peak=_text(point.peak_in_flight, "", texts),
    )


def _reuse(point: BreakEvenReuse, texts: Texts) -> str:
    needed = point.needed.value
    is_more = isinstance(needed, int | float) and needed > 1.0
    sentence = texts(
        "q.break_even.reuse_never" if is_more else "q.break_even.reuse",
        option=safe_text(point.title),
        rival=safe_text(point.rival),
        needed=_spread(point.needed, texts),
        present=_text(point.present_ratio_tokens, "ratio", texts),
        ceiling=_text(point.ceiling_ratio_tokens, "ratio", texts),
        value=_spread(point.value, texts),
        cost=_spread(point.cost, texts),
    )
    if point.load_times is None:
        return sentence
    load = texts("q.break_even.load", times=_text(point.load_times, "times", texts))
    return f"{sentence} {load}"


def _spread(quantity: Quantity, texts: Texts) -> str:
    view = quantity_view(quantity, texts)
    return f"{view.text} ({view.interval})" if view.interval else view.text or texts("unknown")


def _text(value: float | int | None, unit: str, texts: Texts) -> str:
    return format_value(value, unit) or texts("unknown")
