"""Checks on sizes: a pool too small or too large, drives that are written too often."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.audit.findings.check import Evidence, Hit, modelled
from kvtrace.audit.findings.limits import (
    DRIVE_WRITES,
    OVERSIZE,
    SIZE_GAP,
)
from kvtrace.audit.findings.sampling import is_part
from kvtrace.audit.record import Option
from kvtrace.audit.sizing.pool_sizes import NEARLY_ALL_HITS, nearly_all_cache_bytes
from kvtrace.audit.thresholds import LITTLE
from kvtrace.audit.uncertainty.sensitivity import capacity_blocks, curve_ratio
from kvtrace.audit.view import hit_tokens
from kvtrace.audit.words import percent
from kvtrace.units import S_PER_DAY, format_bytes


def pool_size_is_off(evidence: Evidence) -> Hit | None:
    """By the capacity curve the best pool is too small for the reuse, or twice what it needs."""
    size, curve = _pool_size(evidence), evidence.reuse.hit_curve
    held = nearly_all_cache_bytes(evidence.queries)
    if size is None or held is None:
        return None
    here, most = curve_ratio(curve, size.all_blocks), max(p.hit_ratio_tokens or 0.0 for p in curve)
    enough_bytes = held * size.stored_share
    is_small = most - here >= SIZE_GAP.value
    if not is_small and enough_bytes * OVERSIZE.value > size.pool_bytes:
        return None
    what = (
        f"{format_bytes(enough_bytes)} in all is the {NEARLY_ALL_HITS} "
        f"({percent(most - LITTLE.value)} of the prompt tokens, {percent(most)} at most)"
    )
    text = (
        f"{what}; all tiers with this pool of {format_bytes(size.pool_bytes)} hold what one cache "
        f"needs to hit {percent(here)}"
        if is_small
        else f"{what}; this pool alone has {format_bytes(size.pool_bytes)}"
    )
    return Hit(
        severity="warning" if is_small else "info",
        confidence=evidence.modelled_confidence,
        message=f"{text} (capacity curve of the whole trace, idealised)",
        evidence=(
            modelled("pool_bytes", size.pool_bytes, "bytes", f"scenario of {size.option_id}"),
            modelled("nearly_all_cache_bytes", enough_bytes, "bytes", "sizing/pool_size"),
            modelled("curve_hit_ratio", here, "ratio", "reuse/capacity_curve"),
            modelled("curve_hit_ratio_most", most, "ratio", "reuse/capacity_curve"),
        ),
        title=f"The pool is too {'small' if is_small else 'large'}",
    )


@dataclass(frozen=True, slots=True)
class _PoolSize:
    """The smallest pool of those that hit most, beside what the instances hold."""

    option_id: str
    pool_bytes: float
    all_blocks: float
    """Of HBM and all tiers together."""
    stored_share: float
    """Bytes of a token in the pool over those that the queries count."""


def _pool_size(evidence: Evidence) -> _PoolSize | None:
    trace = evidence.trace
    held = [one for one in evidence.pools if one.id in evidence.scenarios and one.is_feasible]
    if trace is None or not evidence.reuse.hit_curve or not held or is_part(evidence):
        return None
    pool = min(
        _that_hit_most(evidence, held), key=lambda one: (_shared_bytes(evidence, one), one.id)
    )
    scenario = evidence.scenarios[pool.id]
    shared = [tier for tier in scenario.tiers if tier.scope == "shared"]
    if not shared:
        return None
    per_token = shared[0].stored_bytes_per_token or scenario.kv_bytes_per_token
    known = evidence.deployment
    stated = None if known is None else known.kv_bytes_per_token_unreplicated
    return _PoolSize(
        option_id=pool.id,
        pool_bytes=sum(tier.capacity_bytes for tier in shared),
        all_blocks=capacity_blocks(scenario, trace.block_size_tokens),
        stored_share=1.0 if stated is None else per_token / stated,
    )


def _that_hit_most(evidence: Evidence, pools: list[Option]) -> list[Option]:
    """Within two points of the prompt tokens of the pool that hits most."""
    most = max(map(hit_tokens, pools))
    slack = LITTLE.value * (evidence.replayed_prompt_tokens or 0)
    return [one for one in pools if hit_tokens(one) >= most - slack]


def _shared_bytes(evidence: Evidence, pool: Option) -> float:
    tiers = evidence.scenarios[pool.id].tiers
    return sum(tier.capacity_bytes for tier in tiers if tier.scope == "shared")


def drives_wear_out(evidence: Evidence) -> Hit | None:
    """An option writes more a day to its drives than such drives are rated for."""
    worn = sorted(
        (
            (writes, option)
            for option in evidence.options
            if (writes := _drive_writes_per_day(evidence, option)) is not None
            and writes > DRIVE_WRITES.value
        ),
        key=lambda pair: (-pair[0], pair[1].id),
    )
    if not worn:
        return None
    writes, option = worn[0]
    part = "" if evidence.window is None or evidence.window.is_whole_trace else " of the peak hour"
    return Hit(
        severity="warning",
        confidence=evidence.modelled_confidence,
        message=(
            f"{option.title}: its drives are written {writes:.1f} times their capacity a day at "
            "the "
            f"rate{part} that was replayed (modelled), more than {DRIVE_WRITES.value:.0f} that "
            "drives for reading are rated for"
        ),
        evidence=tuple(
            modelled(f"drive_writes_per_day:{one.id}", value, "1/day", "replay")
            for value, one in worn
        ),
        table="writes/endurance",
    )


def _drive_writes_per_day(evidence: Evidence, option: Option) -> float | None:
    """Bytes written a day over the link that ends in the last tier, over the size of the drives."""
    need, result = evidence.needs.get(option.id), evidence.results.get(option.id)
    size = 0.0 if need is None else need.gpu_node_ssd_bytes + need.pool_ssd_bytes
    if result is None or not size or not result.span_s:
        return None
    last = {tier.write[-1].link_ids[-1] for tier in result.scenario.tiers[-1:] if tier.write}
    written = sum(use.bytes_written for use in result.link_use if use.link_id in last)
    return written / result.span_s * S_PER_DAY / size
