"""The what-if of the page: sliders, results at their base, and the data that the script takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import msgspec

from kvtrace.audit.record import AuditRecord
from kvtrace.audit.thresholds import LINK_BINDS
from kvtrace.audit.what_if.record import WhatIf, WhatIfCheck, WhatIfSlider
from kvtrace.report.figures.common import link_name
from kvtrace.report.format import format_value, safe_text
from kvtrace.report.texts import Texts
from kvtrace.units import GB

_SAME: Final = 0.005
"""Numbers that differ by less than this share of the audit's are told as equal."""
_GROUPS: Final = (
    (
        "move",
        (
            ("needed_bytes_per_s", "bytes/s"),
            ("path_bytes_per_s", "bytes/s"),
            ("move_s", "s"),
            ("recompute_s", "s"),
            ("kv_bytes", "bytes"),
            ("break_even_tokens", "tokens"),
        ),
    ),
    (
        "saving",
        (
            ("hit_ratio", "ratio"),
            ("rival_hit_ratio", "ratio"),
            ("extra_hit_ratio", "ratio"),
            ("freed_instances", "instances"),
            ("whole_instances", "instances"),
            ("gpu_hours_per_month", "GPU-hours/month"),
        ),
    ),
    (
        "money",
        (
            ("net_usd", "USD/month"),
            ("saving_usd", "USD/month"),
            ("cost_usd", "USD/month"),
            ("unrounded_net_usd", "USD/month"),
            ("break_even_gpu_usd", "USD/GPU-hour"),
            ("break_even_dram_usd", "USD/GB"),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class LiveView:
    """A number that the script rewrites; null text: unknown."""

    place: str
    """In the results, such as `links.0.utilisation`."""
    unit: str
    text: str | None


@dataclass(frozen=True, slots=True)
class FigureView:
    """A live number with its title, and what stands there where it is unknown."""

    key: str
    number: LiveView


@dataclass(frozen=True, slots=True)
class SliderView:
    """One slider."""

    id: str
    texts: tuple[str, ...]
    """Of its positions."""
    base: int
    known: str | None
    """The range that is known of the value."""
    fixed_reason: str | None
    """Key of the sentence that says why it cannot be moved."""

    @property
    def all_texts(self) -> str:
        """JSON of the texts, for the script."""
        return json.dumps(self.texts, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class MoveRow:
    """One prompt bucket."""

    bucket: str | None
    hits: str | None
    move: LiveView
    recompute: LiveView
    is_over: bool
    """The move takes longer."""


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One link."""

    link: str
    rate: LiveView
    mean: LiveView
    use: LiveView
    peak: LiveView
    is_over: bool
    """In use above the limit in the P99 minute."""


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A number of the audit beside that of the formulas at the base."""

    id: str
    here: str | None
    audit: str | None
    is_same: bool


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """Everything that the template shows."""

    data: str
    """JSON of the model."""
    limit: float
    """Use of a link above which queues grow fast."""
    hit: str
    pair: str | None
    sliders: tuple[SliderView, ...]
    groups: tuple[tuple[str, tuple[FigureView, ...]], ...]
    moves: tuple[MoveRow, ...]
    links: tuple[LinkRow, ...]
    checks: tuple[CheckRow, ...]
    move: LiveView
    recompute: LiveView
    net: LiveView
    condition: str | None
    """Which of the sentences on the median hit holds at the base."""
    money: str | None
    """Which of those on money."""

    @property
    def differ(self) -> tuple[CheckRow, ...]:
        """Numbers that the formulas do not meet at the base."""
        return tuple(one for one in self.checks if not one.is_same)


def what_if_view(record: AuditRecord, texts: Texts) -> WhatIfView | None:
    """The what-if of a record; null where it has none."""
    what_if = record.what_if
    if what_if is None:
        return None
    model, base = what_if.model, what_if.base
    return WhatIfView(
        data=msgspec.json.encode(model).decode("utf-8"),
        limit=LINK_BINDS.value,
        hit=_hit(what_if, texts),
        pair=None
        if model.fleet is None
        else texts(
            "what_if.pair",
            pool=safe_text(model.fleet.pool.title),
            rival=safe_text(model.fleet.rival.title),
        ),
        sliders=tuple(_slider(slider, texts) for slider in model.sliders),
        groups=tuple(
            (name, tuple(_figure(what_if, key, unit) for key, unit in figures))
            for name, figures in _GROUPS
            if not _is_empty(what_if, name)
        ),
        moves=_moves(what_if),
        links=_links(what_if, texts),
        checks=tuple(map(_check, what_if.checks)),
        move=_live("move_s", "s", base.move_s),
        recompute=_live("recompute_s", "s", base.recompute_s),
        net=_live("net_usd", "USD/month", base.net_usd),
        condition=_winner(what_if),
        money=None if base.net_usd is None else "pays" if base.net_usd > 0 else "costs",
    )


def _winner(what_if: WhatIf) -> str | None:
    move_s, recompute_s = what_if.base.move_s, what_if.base.recompute_s
    if move_s is None or recompute_s is None:
        return None
    return "move_wins" if move_s < recompute_s else "recompute_wins"


def _is_empty(what_if: WhatIf, group: str) -> bool:
    model = what_if.model
    absent = {"move": model.hit, "saving": model.fleet, "money": model.money}
    return absent[group] is None


def _hit(what_if: WhatIf, texts: Texts) -> str:
    hit = what_if.model.hit
    if hit is None:
        return texts("what_if.no_flops")
    return texts(
        "what_if.example" if hit.is_example else "what_if.hit",
        cached=format_value(hit.cached_tokens, "tokens"),
        prompt=format_value(hit.prompt_tokens, "tokens"),
        path=safe_text(what_if.model.path_title),
    )


def _figure(what_if: WhatIf, key: str, unit: str) -> FigureView:
    return FigureView(key, _live(key, unit, getattr(what_if.base, key)))


def _live(place: str, unit: str, value: float | None) -> LiveView:
    return LiveView(place, unit, format_value(value, unit))


def _slider(slider: WhatIfSlider, texts: Texts) -> SliderView:
    known = None
    if slider.low is not None and slider.high is not None:
        known = texts(
            "what_if.known",
            low=format_value(slider.low, slider.unit),
            high=format_value(slider.high, slider.unit),
        )
    return SliderView(
        id=slider.id,
        texts=_texts(slider),
        base=slider.base,
        known=known,
        fixed_reason=slider.fixed_reason,
    )


def _texts(slider: WhatIfSlider) -> tuple[str, ...]:
    if slider.names:
        return tuple(map(safe_text, slider.names))
    if slider.unit == "bits/s":
        return tuple(f"{value / GB:g}\u00a0Gb/s" for value in slider.values)
    return tuple(format_value(value, slider.unit) or "" for value in slider.values)


def _moves(what_if: WhatIf) -> tuple[MoveRow, ...]:
    rows = zip(what_if.model.buckets, what_if.base.moves, strict=True)
    return tuple(
        MoveRow(
            bucket=format_value(bucket.prompt_bucket, "tokens"),
            hits=format_value(bucket.hits, ""),
            move=_live(f"moves.{place}.move_s", "s", one.move_s),
            recompute=_live(f"moves.{place}.recompute_s", "s", one.recompute_s),
            is_over=one.move_s is None or one.move_s >= one.recompute_s,
        )
        for place, (bucket, one) in enumerate(rows)
    )


def _links(what_if: WhatIf, texts: Texts) -> tuple[LinkRow, ...]:
    return tuple(
        LinkRow(
            link=link_name(use.link_id, texts),
            rate=_live(f"links.{i}.usable_bytes_per_s", "bytes/s", use.usable_bytes_per_s),
            mean=_live(f"links.{i}.mean_bytes_per_s", "bytes/s", use.mean_bytes_per_s),
            use=_live(f"links.{i}.utilisation", "ratio", use.utilisation),
            peak=_live(f"links.{i}.p99_utilisation", "ratio", use.p99_utilisation),
            is_over=(use.p99_utilisation or use.utilisation) >= LINK_BINDS.value,
        )
        for i, use in enumerate(what_if.base.links)
    )


def _check(check: WhatIfCheck) -> CheckRow:
    return CheckRow(
        id=check.id,
        here=format_value(check.here, check.unit),
        audit=format_value(check.audit, check.unit),
        is_same=_is_same(check),
    )


def _is_same(check: WhatIfCheck) -> bool:
    here, audit = check.here, check.audit
    if here is None or audit is None:
        return here is audit
    return abs(here - audit) <= _SAME * max(abs(here), abs(audit))
