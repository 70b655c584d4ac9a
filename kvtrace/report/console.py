"""The first screen: what an engineer reads in the terminal before opening the page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvtrace.audit.record import AuditRecord, Cell, Quantity
from kvtrace.report.about import served_by, sources_beside, unrecognised
from kvtrace.report.columns import columns_of, cut, fit, pad, wrap
from kvtrace.report.format import (
    format_in,
    format_value,
    is_count,
    pick_scale,
    safe_text,
)
from kvtrace.report.localise import localised
from kvtrace.report.sentences import Sentences, load_sentences
from kvtrace.report.texts import Lang, Texts, load_texts

MIN_WIDTH: Final = 60
MAX_LINES: Final = 20
_LABEL: Final = 12
_MILLION: Final = 1_000_000
_SEVERITIES: Final = ("critical", "warning", "info")
_MARKS: Final = {"critical": "!!", "warning": "! ", "info": "- "}


@dataclass(frozen=True, slots=True)
class _Text:
    """A labelled text that takes more lines where there is room."""

    label: str
    text: str
    grow: tuple[int, ...] = ()
    """Rank of each line beyond the first, the lowest granted first."""
    suffix: str = ""
    """Stays when the text is cut."""
    need: int = 1
    is_whole: bool = False
    """Never cut: it takes the lines that it needs, whatever the others get."""

    def said(self, say: Sentences, texts: Texts) -> _Text:
        """The same in another language."""
        label = _label(self.label, texts)
        return replace(self, label=label, text=say(self.text), suffix=say(self.suffix))

    def least(self, width: int) -> int:
        """Lines that it takes in any case."""
        return len(wrap(self.text + self.suffix, width)) if self.is_whole else self.need

    def want(self, width: int) -> int:
        """Lines for the whole text."""
        most = self.least(width) + len(self.grow)
        return min(len(wrap(self.text + self.suffix, width)), most)

    def lines(self, room: int, width: int) -> list[str]:
        """At most `room` lines; the last one says that something is left out."""
        pieces = wrap(self.text + self.suffix, width)
        if len(pieces) > room:
            pieces = wrap(self.text, width)[:room]
            pieces[-1] = f"{cut(pieces[-1], width - columns_of(self.suffix))}{self.suffix}"
        return _labelled(self.label, pieces)


@dataclass(frozen=True, slots=True)
class _List:
    """A labelled list of one-line items; those without room are counted."""

    label: str
    items: tuple[str, ...]
    grow: tuple[int, ...]
    need: int = 1
    more: str = "   and {left} more in the report"

    def said(self, say: Sentences, texts: Texts) -> _List:
        """The same in another language."""
        items = tuple(map(say, self.items))
        more = texts("screen.more", left="{left}")
        return replace(self, label=_label(self.label, texts), items=items, more=f"   {more}")

    def least(self, width: int) -> int:
        """Lines that it takes in any case."""
        return self.need

    def want(self, width: int) -> int:
        """Lines for all items."""
        return min(len(self.items), self.need + len(self.grow))

    def lines(self, room: int, width: int) -> list[str]:
        """As many items as have room, and how many more there are."""
        shown = [fit(item, width) for item in self.items[:room]]
        if len(self.items) > room:
            left = len(self.items) - room + (room > 1)
            shown[room - 1 if room > 1 else room :] = (
                [self.more.format(left=f"{left:,}")] if room > 1 else []
            )
        return _labelled(self.label, shown)


_BLANK: Final = _Text("", "", grow=(3,), need=0)


def render_console(
    record: AuditRecord,
    *,
    report_path: Path,
    audit_path: Path,
    dataset_path: Path,
    reused: bool,
    width: int = 100,
    lang: Lang = "en",
) -> list[str]:
    """12 to 20 lines: data, validity, verdict, numbers, findings, paths, what to type next.

    The sentence of the verdict is never cut; one that leaves no room makes the screen longer.
    `width` is the columns of a line, at least 60. Paths are never cut, so that they can be pasted;
    a long one makes its line longer.
    """
    record, say, texts = localised(record, lang), load_sentences(lang), load_texts(lang)
    reuse = f"  ({say('reused: the input has not changed')})" if reused else ""
    paths = [
        f"{pad(_label('report', texts), _LABEL)}{report_path}",
        f"{pad(_label('audit', texts), _LABEL)}{audit_path}",
        f"{pad(_label('dataset', texts), _LABEL)}{dataset_path}{reuse}",
    ]
    blocks: list[_Text | _List] = [*_data(record, texts), *_verdict(record, texts)]
    blocks += [*_numbers(record), *_money(record), *_chance(record), *_size(record)]
    blocks += [*_fleet(record), _findings(record), *_actions(record), _BLANK]
    if lang != "en":
        blocks = [block.said(say, texts) for block in blocks]
    columns = max(width, MIN_WIDTH) - _LABEL
    rooms = _share(blocks, MAX_LINES - len(paths) - 1, columns)
    shown = [
        line
        for block, room in zip(blocks, rooms, strict=True)
        for line in (block.lines(room, columns) if room else ())
    ]
    next_step = _next_step(record, audit_path, columns, say)
    return [*shown, *paths, f"{pad(_label('next', texts), _LABEL)}{next_step}"]


def _label(name: str, texts: Texts) -> str:
    return texts(f"screen.{name.replace(' ', '_')}") if name else ""


def _next_step(record: AuditRecord, audit_path: Path, width: int, say: Sentences) -> str:
    """What to type next, with what it is for where there is room."""
    audit = shlex.quote(str(audit_path))
    unconfirmed = sum(not one.is_confirmed for one in record.assumptions)
    wanted = record.verdict.next_measurement
    if unconfirmed:
        command = f"kvtrace init {audit} -o fleet.toml"
        aim = f"confirms {_count(unconfirmed, 'estimate')}"
    elif wanted is not None:
        command = f"kvtrace explain {record.verdict.outcome} --audit {audit}"
        aim = "what would settle it"
    else:
        command, aim = f"kvtrace report {audit} --to adr -o adr.md", "a decision record"
    whole = f"{command}  # {say(aim)}"
    return whole if columns_of(whole) <= width else command


def _share(blocks: Sequence[_Text | _List], room: int, width: int) -> list[int]:
    """Lines of each block: what it needs, then what it wants, by rank."""
    rooms = [block.least(width) for block in blocks]
    wishes = sorted(
        (rank, index)
        for index, block in enumerate(blocks)
        for rank in block.grow[: max(0, block.want(width) - block.least(width))]
    )
    for _, index in wishes[: max(0, room - sum(rooms))]:
        rooms[index] += 1
    return rooms


def _labelled(label: str, pieces: Sequence[str]) -> list[str]:
    return [
        f"{pad(label if i == 0 else '', _LABEL)}{piece}".rstrip() for i, piece in enumerate(pieces)
    ]


def _known(value: float | None, unit: str) -> str:
    return format_value(value, unit) or "unknown"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _data(record: AuditRecord, texts: Texts) -> list[_Text]:
    data = record.data
    span = "no clock" if data.span_s is None else f"span {_known(data.span_s, 's')}"
    tokens = (
        f"{_known(data.prompt_tokens, '')} prompt + {_known(data.output_tokens, '')} output tokens"
    )
    grade = texts(f"grade.{data.evidence_grade}.short")
    counts = f"{_count(len(data.files), 'file')}, {_count(data.rejected, 'record')} rejected"
    evidence = f"grade {data.evidence_grade}, {grade}; {counts}"
    rows = [
        _Text("data", f"{_known(data.requests, 'requests')}, {tokens}, {span}", grow=(2,)),
        _Text("served by", served_by(record), grow=(2,)),
        _Text("evidence", f"{evidence}{_beside(record)}", grow=(3, 7)),
    ]
    files = unrecognised(record)
    if files:
        names = ", ".join(safe_text(file.path) for file in files)
        what = f"{len(files):,} of {_count(len(data.files), 'file')} not recognised: {names}"
        rows.append(_Text("", what, grow=(8,)))
    return [*rows, _validity(record), *_window(record)]


def _beside(record: AuditRecord) -> str:
    """Which source feeds the headline, where others stand beside it."""
    headline, others = sources_beside(record)
    if headline is None or not others:
        return ""
    names = ", ".join(dict.fromkeys(safe_text(one.format) for one in others))
    verb = "stands" if len(others) == 1 else "stand"
    return f"; the headline is {safe_text(headline.format)}, {names} {verb} beside it"


def _window(record: AuditRecord) -> list[_Text]:
    """What was replayed, unless that is everything."""
    window = record.replay_window
    if window is None or window.is_whole_trace:
        return []
    what = "peak hour: " if window.is_peak_hour else ""
    ceiling = format_value(window.reusable_ratio_tokens, "ratio")
    most = "" if ceiling is None else f"; hit ceiling {ceiling}"
    part = f"{window.requests:,} of {window.of_requests:,} requests"
    text = f"{what}{part}; `--depth full` replays all{most}"
    if window.load_factor != 1:
        raised = f"its sessions times {window.load_factor:g}, the stated peak factor"
        text = f"{what}{window.requests:,} requests, {raised}{most}"
    return [_Text("replayed", text, grow=(6,))]


def _validity(record: AuditRecord) -> _Text:
    """The gravest statement, and how many more there are."""
    ordered = sorted(record.data.validity, key=lambda one: _SEVERITIES.index(one.severity))
    if not ordered:
        return _Text("validity", "nothing to object")
    left = len(ordered) - 1
    more = f" (and {_count(left, 'more note')} in the report)"
    text = f"{ordered[0].severity}: {safe_text(ordered[0].message)}"
    return _Text("validity", text, grow=(4,), suffix=more if left else "")


def _verdict(record: AuditRecord, texts: Texts) -> list[_Text]:
    verdict = record.verdict
    outcome = texts(f"verdict.outcome.{verdict.outcome}").upper()
    why = "; ".join(safe_text(reason) for reason in verdict.confidence_reasons)
    rows = [
        _BLANK,
        _Text("verdict", outcome),
        _Text("", safe_text(verdict.headline, limit=len(verdict.headline)), is_whole=True),
        _Text("confidence", f"{verdict.confidence}{': ' if why else ''}{why}", grow=(1,)),
    ]
    if verdict.next_measurement is not None:
        rows.append(_Text("measure", safe_text(verdict.next_measurement.question), grow=(6,)))
        rows.append(_Text("", f"with {safe_text(verdict.next_measurement.flag)}", grow=(1,)))
    return rows


def _numbers(record: AuditRecord) -> list[_Text]:
    numbers = record.verdict.carrying_numbers[:3]
    return [
        _Text("numbers" if i == 0 else "", _number(one), grow=(1,)) for i, one in enumerate(numbers)
    ]


def _chance(record: AuditRecord) -> list[_Text]:
    """How often the pool pays over all that is open, and what is worth knowing first."""
    known = record.uncertainty
    if known is None:
        return []
    if known.p_pays is None:
        return [_Text("chance", "not sampled (`--depth full` samples it)", grow=(5,), need=0)]
    share, error = (_known(one, "ratio") for one in (known.p_pays, known.p_pays_error))
    text = f"the pool pays in {share} of {known.samples:,} samples (± {error}, modelled)"
    open_inputs = [one for one in known.inputs if one.worth_usd_per_month]
    if open_inputs:
        most = max(open_inputs, key=lambda one: (one.worth_usd_per_month or 0.0, one.id))
        worth = _known(most.worth_usd_per_month, "USD")
        text = f"{text}; most worth knowing: {safe_text(most.title)}, {worth} a month"
    return [_Text("chance", text, grow=(2,))]


_SIZES: Final = {
    "recommended_bytes:pool_dram": "recommended {} of DRAM",
    "recommended_bytes:pool_ssd": "or {} of flash",
    "nearly_all_bytes": "nearly all hits at {}",
    "ports_per_node": "{} a node",
}


def _size(record: AuditRecord) -> list[_Text]:
    """How large a pool should be, where there is room for a line."""
    numbers = [] if record.sizing is None else record.sizing.numbers
    shown = [
        _SIZES[one.id].format(format_value(one.value, one.unit) or "unknown")
        for one in numbers
        if one.id in _SIZES
    ]
    text = f"{', '.join(shown)} (modelled)"
    return [_Text("pool", text, grow=(5,), need=0)] if shown else []


def _money(record: AuditRecord) -> list[_Text]:
    """Payback and prices at break-even of the pool that is weighed."""
    case = None if record.economics is None else record.economics.case
    if case is None:
        return []
    months, npv, gpu, dram = (
        _short(one)[0]
        for one in (case.payback, case.npv, case.gpu_usd_per_hour, case.dram_usd_per_gb)
    )
    paid = "not paid back" if months is None else f"paid back in {months}"
    prices = [
        f"pays {word} {price}"
        for word, price in (("from", gpu), ("up to a DRAM price of", dram))
        if price is not None
    ]
    text = "; ".join((f"{paid}, NPV {npv or 'unknown'} (modelled)", *prices))
    return [_Text("money", text, grow=(4,))]


def _fleet(record: AuditRecord) -> list[_Text]:
    """Instances that keep the SLO with the weighed pool and without, where there is room."""
    fleets, weighed = record.fleets, record.verdict.option
    if fleets is None or weighed is None:
        return []
    titles = {option.id: safe_text(option.title) for option in record.options}
    counts = {need.option: need.instances for need in fleets.needs if need.load == 1}
    reference = next((i for i in counts if titles.get(i) == fleets.reference), None)
    shown = [
        f"{titles[one]} {format_value(counts[one], 'instances') or 'unknown'}"
        for one in (reference, weighed)
        if one in counts and one in titles
    ]
    text = f"at the SLO: {', '.join(shown)}"
    down = next((one for one in fleets.degraded if one.option == weighed), None)
    if down is not None and down.reserve_instances is not None:
        text = f"{text}; {down.reserve_instances:,} carry the load while the pool is down"
    return [_Text("fleet", f"{text} (modelled)", grow=(6,), need=0)]


def _number(quantity: Quantity) -> str:
    title = safe_text(quantity.title or quantity.id.replace("_", " "))
    value, low, high = _short(quantity)
    if value is None:
        reason = safe_text(quantity.interval_reason) or "no reason given"
        return f"{title}: unknown ({reason})"
    interval = f" ({low} – {high})" if low and high and low != high else ""
    return f"{title}: {value}{interval}, {quantity.kind}"


def _short(quantity: Quantity) -> list[str | None]:
    """Value, low and high, short enough for a line: one unit, millions as M, money by itself."""
    cells = (quantity.value, quantity.low, quantity.high)
    scale = pick_scale(quantity.unit, cells, name=quantity.id)
    if scale is not None:
        return [format_in(cell, scale) for cell in cells]
    return [_short_count(cell, quantity.unit, quantity.id) for cell in cells]


def _short_count(value: Cell, unit: str, name: str) -> str | None:
    if isinstance(value, int | float) and is_count(unit) and abs(value) >= _MILLION:
        return f"{value / _MILLION:,.1f}M"
    return format_value(value, "USD" if unit == "USD/month" else unit, name=name)


_KINDS: Final = {"move_less": "move less", "faster": "faster", "nearer": "nearer"}
"""Kinds of action that make a service better; the others say what to find out."""


def _actions(record: AuditRecord) -> list[_Text]:
    """How many findings ask for which kind of action, where there is room for a line."""
    asked = [one.action_kind for one in record.findings]
    counts = [f"{words} {asked.count(kind):,}" for kind, words in _KINDS.items() if kind in asked]
    if not counts:
        return []
    return [_Text("actions", f"{' · '.join(counts)} (in the report)", grow=(4,), need=0)]


def _findings(record: AuditRecord) -> _List:
    """The gravest findings first, one line each."""
    ordered = sorted(record.findings, key=lambda one: _SEVERITIES.index(one.severity))
    items = tuple(f"{_MARKS[f.severity]} {safe_text(f.title)}  [{f.id}]" for f in ordered)
    return _List("findings", items or ("none",), grow=(2, 5, 7), need=min(2, len(items)) or 1)
