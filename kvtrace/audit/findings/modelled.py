"""Checks on the replayed options: what a hit costs, which tier serves it, what the pool adds."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, modelled
from kvtrace.audit.findings.limits import MOVE_SHARE
from kvtrace.audit.findings.replayed import TierHits, tier_hits
from kvtrace.audit.findings.sampling import is_part
from kvtrace.audit.record import HitCost, Option, Quantity, Severity
from kvtrace.audit.thresholds import LITTLE, NEARLY_ALL, NET_NEGATIVE_DOMINATES, NET_NEGATIVE_SHARE
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import hit_tokens
from kvtrace.units import format_bytes, format_seconds, format_traffic


def net_negative_hits(evidence: Evidence) -> Hit | None:
    """Loaded hits that arrive later than recomputing them, per option.

    A warning rests on the low end of the count over the path's constants. Where only the value
    crosses the threshold, the finding says that it cannot tell.
    """
    crossed = [
        (share, option)
        for option in evidence.options
        if (share := _net_negative_share(option)) is not None and share >= NET_NEGATIVE_SHARE.value
    ]
    sure = [entry for entry in crossed if _least_share(entry[1]) >= NET_NEGATIVE_SHARE.value]
    worst = sorted(sure or crossed, key=lambda entry: (-entry[0], entry[1].id))
    if not worst:
        return None
    share, option = worst[0]
    cost = option.hit_cost
    others = "".join(f"; {o.title}: {_percent_of(s)}" for s, o in worst[1:3])
    severity: Severity = "critical" if _dominate_everywhere(evidence) else "warning"
    return Hit(
        severity=severity if sure else "info",
        confidence=evidence.modelled_confidence if sure else "low",
        title=None if sure else "Whether hits cost more time than they save is open",
        message=(
            f"{'' if sure else _OPEN}"
            f"{option.title}: {cost.net_negative_hits:,} of {cost.hits:,} loaded hits "
            f"({_percent_of(share)}) take longer to move than to recompute (modelled"
            f"{_over_the_path(cost)}); they lose "
            f"{format_seconds(cost.ttft_lost_s)} of TTFT in all{_gained(cost)}"
            f"{_by_tier(evidence, option)}{others}{_with_arbiter(option)}"
        ),
        evidence=(
            *(modelled(f"net_negative_share:{o.id}", s, "ratio", "replay") for s, o in worst),
            modelled(f"net_negative_bytes:{option.id}", cost.net_negative_bytes, "bytes", "replay"),
            *(one for one in (cost.net_negative,) if one is not None),
            *_tier_evidence(evidence, option),
            *_arbiter_evidence(option),
        ),
    )


_OPEN: Final = (
    "Cannot tell: at the fast end of the path's constants hardly any loaded hit loses time; "
    "measured moves (`kvtrace cost calibrate`, or the connector's own log) settle it. "
)


def _least_share(option: Option) -> float:
    """Share of net-negative hits at the low end of its range; as replayed where none is known."""
    interval, hits = option.hit_cost.net_negative, option.hit_cost.hits
    low = None if interval is None else interval.low
    share = ratio(option.hit_cost.net_negative_hits if low is None else low, hits)
    return share or 0.0


def _percent_of(share: float) -> str:
    """`94 %`; never 100 % while some are left, never 0 % while there are some."""
    rounded = round(100 * share)
    return f"{100 * share:.1f} %" if rounded in {0, 100} and 0 < share < 1 else f"{rounded} %"


def _gained(cost: HitCost) -> str:
    """What the other loaded hits gain; nothing where there are none."""
    if cost.hits == cost.net_negative_hits:
        return ""
    return f", the others gain {format_seconds(cost.ttft_gained_s)}"


def _over_the_path(cost: HitCost) -> str:
    """`; 1,200 to 3,405 over the range of the path's constants`."""
    interval = cost.net_negative
    if interval is None or interval.low is None or interval.high is None:
        return ""
    return f"; {interval.low:,} to {interval.high:,} over the range of the path's constants"


def _with_arbiter(option: Option) -> str:
    """What is left of the losses where only what is priced below recomputing is loaded."""
    sparing = option.hit_cost.with_arbiter
    if sparing is None:
        return ""
    if sparing.hits == 0:
        return ". With an arbiter it loads none: recomputing is always priced lower"
    return (
        f". With an arbiter it loads {sparing.hits:,} hits, {sparing.net_negative_hits:,} of them "
        f"slower than recomputing: they lose {format_seconds(sparing.ttft_lost_s)}"
        f"{_gained(sparing)}"
    )


def _arbiter_evidence(option: Option) -> tuple[Quantity, ...]:
    sparing = option.hit_cost.with_arbiter
    if sparing is None:
        return ()
    return (
        modelled(f"loaded_hits_with_arbiter:{option.id}", sparing.hits, "requests", "replay"),
        modelled(
            f"net_negative_hits_with_arbiter:{option.id}",
            sparing.net_negative_hits,
            "requests",
            "replay",
        ),
    )


def _tiers(evidence: Evidence, option: Option) -> list[TierHits]:
    result = evidence.results.get(option.id)
    return [] if result is None else tier_hits(result)


def _by_tier(evidence: Evidence, option: Option) -> str:
    """`; by tier: host_dram 0 of 900, pool 400 of 500`; nothing for a single tier."""
    tiers = _tiers(evidence, option)
    if len(tiers) < _SEVERAL:
        return ""
    return "; by tier: " + ", ".join(
        f"{tier.tier_id} {tier.net_negative:,} of {tier.hits:,}" for tier in tiers
    )


def _tier_evidence(evidence: Evidence, option: Option) -> tuple[Quantity, ...]:
    return tuple(
        modelled(f"net_negative_share:{option.id}:{tier.tier_id}", tier.share, "ratio", "replay")
        for tier in _tiers(evidence, option)
    )


_SEVERAL: Final = 2


def _dominate_everywhere(evidence: Evidence) -> bool:
    """Most loaded hits are net-negative in every pool that loads any."""
    shares = [_least_share(option) for option in evidence.pools if option.hit_cost.hits]
    return bool(shares) and min(shares) >= NET_NEGATIVE_DOMINATES.value


def _net_negative_share(option: Option) -> float | None:
    return ratio(option.hit_cost.net_negative_hits, option.hit_cost.hits)


def moves_dominate(evidence: Evidence) -> Hit | None:
    """After the queue, more time goes into moving KV than into computing it."""
    slow = []
    for option in evidence.options:
        share = _move_share(option)
        if share is not None and share >= MOVE_SHARE.value:
            slow.append((share, option))
    if not slow:
        return None
    slow.sort(key=lambda entry: (-entry[0], entry[1].id))
    share, option = slow[0]
    return Hit(
        severity="warning",
        confidence=evidence.modelled_confidence,
        message=(
            f"{option.title}: {100 * share:.0f} % of the time between queue and first token is "
            f"lookup, pull and load, not prefill (modelled); {_moved(option)} moved"
        ),
        evidence=tuple(modelled(f"move_share:{o.id}", s, "ratio", "replay") for s, o in slow),
    )


def _move_share(option: Option) -> float | None:
    move, prefill = option.move_s.mean, option.prefill_s.mean
    return None if move is None or prefill is None else ratio(move, move + prefill)


def _moved(option: Option) -> str:
    return format_traffic(option.hit_cost.moved_bytes)


def hits_end_at_hbm(evidence: Evidence) -> Hit | None:
    """HBM alone serves nearly all the reuse that there is."""
    option, reusable = evidence.option("hbm_only"), evidence.replayed_reusable_tokens
    if option is None or not reusable or is_part(evidence):
        return None
    share = hit_tokens(option) / reusable
    if share < NEARLY_ALL.value:
        return None
    return Hit(
        severity="info",
        confidence=evidence.modelled_confidence,
        message=(
            f"HBM alone serves {hit_tokens(option):,} of {reusable:,} reusable tokens "
            f"({100 * share:.1f} %, modelled): a tier below it finds almost nothing to serve"
        ),
        evidence=(modelled("hbm_share_of_reusable", share, "ratio", "replay of hbm_only"),),
    )


def working_set_fits_dram(evidence: Evidence) -> Hit | None:
    """HBM does not hold the working set, but the idle DRAM of the GPU nodes does."""
    option, reusable = evidence.option("dram_idle"), evidence.replayed_reusable_tokens
    if option is None or not reusable or is_part(evidence):
        return None
    if hits_end_at_hbm(evidence) is not None:
        return None
    share = hit_tokens(option) / reusable
    if share < NEARLY_ALL.value:
        return None
    scenario = evidence.scenarios.get(option.id)
    capacity = sum(tier.capacity_bytes for tier in scenario.tiers) if scenario else None
    size = "" if not capacity else f" of {format_bytes(capacity)} an instance"
    return Hit(
        severity="warning",
        confidence=evidence.modelled_confidence,
        message=(
            f"Idle DRAM{size} serves {hit_tokens(option):,} of {reusable:,} reusable tokens "
            f"({100 * share:.1f} %, modelled): local offload needs no network and no pool"
        ),
        evidence=(
            modelled("dram_share_of_reusable", share, "ratio", "replay of dram_idle"),
            modelled("kv_bytes_distinct", evidence.kv.bytes_distinct, "bytes", "kv/summary"),
        ),
    )


def pool_adds_little(evidence: Evidence) -> Hit | None:
    """The pool that adds most to its rival serves hardly more than that one."""
    prompt = evidence.replayed_prompt_tokens
    weighed = [
        (pool.extra_hit_tokens, pool, rival)
        for pool in evidence.pools
        if pool.extra_hit_tokens is not None
        and (rival := evidence.option(pool.rival or "")) is not None
    ]
    if not weighed or not prompt or is_part(evidence):
        return None
    extra, pool, rival = max(weighed, key=lambda one: (one[0], one[1].id))
    if extra / prompt >= LITTLE.value:
        return None
    return Hit(
        severity="warning",
        confidence=evidence.modelled_confidence,
        message=(
            f"{pool.title} serves {extra:+,} of {prompt:,} prompt tokens beyond {rival.title}, "
            "the option without a pool that it is weighed against (modelled)"
        ),
        evidence=(
            modelled("extra_hit_tokens", extra, "tokens", f"replays of {pool.id} and {rival.id}"),
        ),
    )
