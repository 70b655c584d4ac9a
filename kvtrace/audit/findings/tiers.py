"""Checks on tiers below HBM: who reads them, and where routing would do."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, known_only, measured, modelled
from kvtrace.audit.findings.limits import (
    READ_BACK,
    RESTORED_SHARE,
    ROUTING_GAIN,
)
from kvtrace.audit.findings.replayed import twins
from kvtrace.audit.findings.sampling import is_part
from kvtrace.audit.record import Option, Quantity
from kvtrace.audit.thresholds import LITTLE
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import Row, count, number, rows_of, summary_of, whole_window
from kvtrace.audit.words import percent
from kvtrace.replay.result import ReplayResult
from kvtrace.units import format_traffic

READ_TABLE: Final = "moves/read_and_written"
WINDOW_TABLE: Final = "latency/hit_and_ttft_thirds"
_RESTORED: Final = "kv_events/restored_summary"


def lower_tiers_hardly_hit(evidence: Evidence) -> Hit | None:
    """A tier below HBM runs, and serves hardly more than HBM serves without it."""
    return _by_engine_ratios(evidence) or _by_cached_tokens(evidence)


def _by_engine_ratios(evidence: Evidence) -> Hit | None:
    window = whole_window(evidence.queries)
    hbm = number(window, "engine_prefix_hit_ratio")
    below = number(window, "engine_external_hit_ratio")
    if hbm is None or below is None:
        return None
    added = (1 - hbm) * below
    if added >= LITTLE.value:
        return None
    return Hit(
        severity="warning",
        confidence="medium",
        message=(
            f"The engine hits {percent(hbm)} in HBM and {percent(below)} of the rest below it (as "
            f"it prints them, measured): the tiers below HBM add {percent(added)} of what is asked "
            "for"
        ),
        evidence=(
            measured("engine_prefix_hit_ratio", hbm, "ratio", WINDOW_TABLE),
            measured("engine_external_hit_ratio", below, "ratio", WINDOW_TABLE),
            measured("added_hit_ratio", added, "ratio", WINDOW_TABLE),
        ),
    )


def _by_cached_tokens(evidence: Evidence) -> Hit | None:
    data = evidence.data
    tiers = {name: tokens for name, tokens in data.cached_tiers.items() if tokens is not None}
    device = tiers.pop("device", None)
    if device is None or not tiers or not data.prompt_tokens:
        return None
    below = sum(tiers.values())
    share = below / data.prompt_tokens
    if share >= LITTLE.value or (not device and not below):
        return None
    return Hit(
        severity="warning",
        confidence="high",
        message=(
            f"Requests found {device:,} prompt tokens in HBM and {below:,} below it "
            f"({', '.join(sorted(tiers))}), of {data.prompt_tokens:,} (measured): the tiers below "
            f"HBM add {percent(share)}"
        ),
        evidence=(
            measured("cached_device_tokens", device, "tokens", "data"),
            measured("cached_below_tokens", below, "tokens", "data"),
            measured("prompt_tokens", data.prompt_tokens, "tokens", "data"),
        ),
    )


def write_only_tier(evidence: Evidence) -> Hit | None:
    """What is written below HBM is hardly read back: as logged, else as replayed."""
    rows = [row for row in rows_of(evidence.queries, READ_TABLE) if _is_write_only(row)]
    options = [option for option in evidence.options if _hardly_read(option)]
    if not rows and not options:
        return None
    parts = [_written_words(row) for row in rows]
    if options:
        worst = max(options, key=lambda one: (_written(one), one.id))
        parts.append(
            f"{worst.title}: {format_traffic(_written(worst))} written, "
            f"{format_traffic(worst.hit_cost.moved_bytes)} loaded (modelled)"
        )
    return Hit(
        severity="warning",
        confidence="high" if rows else evidence.modelled_confidence,
        message=". ".join(parts),
        evidence=(
            *(quantity for row in rows for quantity in _read_evidence(row)),
            *(
                modelled(
                    f"read_over_written:{one.id}",
                    ratio(one.hit_cost.moved_bytes, _written(one)),
                    "ratio",
                    "replay",
                )
                for one in options
            ),
        ),
        table=READ_TABLE if rows else None,
    )


def _is_write_only(row: Row) -> bool:
    """No read at all counts where reads are logged with writes: a counter, or a log of both."""
    written, over = number(row, "written_amount"), number(row, "read_over_written")
    return bool(written) and over is not None and over < READ_BACK.value


def _hardly_read(option: Option) -> bool:
    over = ratio(option.hit_cost.moved_bytes, _written(option))
    return over is not None and over < READ_BACK.value


def _written(option: Option) -> float:
    """Of the link over which most is written: each byte crosses it once."""
    return max((link.bytes_written for link in option.links), default=0.0)


def _written_words(row: Row) -> str:
    place, unit = row.get("place"), row.get("unit")
    where = "below HBM" if place is None else f"to {place}"
    amounts = [number(row, name) or 0.0 for name in ("written_amount", "read_amount")]
    shown = [format_traffic(one) if unit == "bytes" else f"{one:,.0f} {unit}" for one in amounts]
    known_from = row.get("known_from")
    return f"{shown[0]} of KV written {where}, {shown[1]} read back ({known_from}, measured)"


def _read_evidence(row: Row) -> tuple[Quantity, ...]:
    name, unit = row.get("place") or "below_hbm", str(row.get("unit"))
    return known_only(
        measured(f"written:{name}", number(row, "written_amount"), unit, READ_TABLE),
        measured(f"read:{name}", number(row, "read_amount"), unit, READ_TABLE),
    )


def routing_loses_local_hits(evidence: Evidence) -> Hit | None:
    """Blocks are computed again on an instance while another one holds them."""
    row = summary_of(evidence.queries, _RESTORED)
    held, computed = count(row, "other_instance_holds_tokens"), count(row, "computed_tokens")
    share = ratio(held, computed) or 0.0
    gain = _routing_gain(evidence)
    is_seen = share >= RESTORED_SHARE.value
    if not is_seen and gain is None:
        return None
    parts = []
    if is_seen:
        parts.append(
            f"{held or 0:,} of {computed or 0:,} computed tokens ({percent(share)}) were computed "
            "while another instance held them (KV events, measured)"
        )
    if gain is not None:
        parts.append(gain[0])
    return Hit(
        severity="warning",
        confidence="high" if is_seen else evidence.modelled_confidence,
        message=". ".join(parts),
        evidence=(
            *((measured("held_elsewhere_ratio", share, "ratio", _RESTORED),) if is_seen else ()),
            *(() if gain is None else gain[1]),
        ),
        table=_RESTORED if is_seen else None,
    )


def _routing_gain(evidence: Evidence) -> tuple[str, tuple[Quantity, ...]] | None:
    """The pair of options that differ in routing alone, and gain most by it."""
    prompt = evidence.replayed_prompt_tokens
    if not prompt or is_part(evidence):
        return None
    pairs = [
        (_hits(near) - _hits(plain), plain, near)
        for plain, near in twins(evidence.results, "routing")
        if near.scenario.routing in _BY_CACHE and plain.scenario.routing not in _BY_CACHE
    ]
    if not pairs:
        return None
    gain, plain, near = max(pairs, key=lambda one: (one[0], one[2].scenario.option_id))
    if gain / prompt < ROUTING_GAIN.value:
        return None
    text = (
        f"{near.scenario.title} serves {_hits(near):,} tokens, {plain.scenario.title} "
        f"{_hits(plain):,}: routing alone adds {gain:,} of {prompt:,} prompt tokens "
        f"({percent(gain / prompt)}, modelled)"
    )
    source = f"replays of {near.scenario.option_id} and {plain.scenario.option_id}"
    return text, (modelled("routing_gain_tokens", gain, "tokens", source),)


_BY_CACHE: Final = frozenset({"kv_centric", "prefix_affinity"})


def _hits(result: ReplayResult) -> int:
    return sum(int(tokens.sum()) for tokens in result.timeline.hit_tokens.values())
