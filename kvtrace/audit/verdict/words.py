"""The sentences of the verdict: reasons, each with its numbers."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.record import NextMeasurement
from kvtrace.audit.thresholds import (
    BUSY_WINDOW,
    FLEET_BUSY_SHARE_LOW,
    MIN_REQUESTS,
    MIN_SPAN,
    NEARLY_ALL,
)
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Bound, Case, PoolCase
from kvtrace.audit.words import counted
from kvtrace.schema.manifest import Grade
from kvtrace.units import format_seconds

WHY_UNKNOWN: Final[dict[Grade, str]] = {
    "A": "The source has block identity, but no reuse facts could be built from it",
    "B": "The source says what the deployed cache hit, not what a larger or shared one would hit",
    "C": "The source holds aggregates only: a hit ratio of today's cache, no request and no block",
    "L": "The source holds lengths and latencies only: reuse is unknown, not zero",
}
ACCURACY: Final = (
    "accuracy with KV in fp8 is not evaluated here; run your own evaluation with the engine's KV "
    "format switched (`--kv-cache-dtype fp8` in vLLM) against today's, on prompts as long as yours"
)
"""Said wherever an option with KV of fewer bits is named best."""


def too_short_for_a_month(case: Case) -> str:
    """Why no money a month is given; empty where it is."""
    if case.has_monthly_load:
        return ""
    if case.span_s is None:
        return "No money a month is given: the time span is unknown"
    return (
        f"No money a month is given: a window of {format_seconds(case.span_s)}, shorter than "
        f"{format_seconds(MIN_SPAN.value)}, does not stand for a month"
    )


def usd(amount: Range) -> str:
    """`$1,200 a month ($900 to $2,000)`."""
    return f"${amount.value:,.0f} a month (${amount.low:,.0f} to ${amount.high:,.0f})"


ANY_POOL: Final = "any pool, however small,"
"""What the bill of the smallest one is of."""


def weighed_pool(case: Case) -> str:
    """The cheapest pool that is weighed, with its size."""
    size = f" ({case.weighed_size})" if case.weighed_size else ""
    return f"the cheapest pool that is weighed here{size}"


def bound_reason(bound: Bound, cost: Range, pool: str) -> str:
    """Best case against what a pool costs; `pool`: which one."""
    return (
        f"Best case ({bound.what}): at most {bound.instances.high:.2f} instances, "
        f"${bound.saving.high:,.0f} a month at the highest price; {pool} costs at "
        f"least ${cost.low:,.0f} a month"
    )


def holds_for(case: Case) -> str:
    """What a bound on all prefill is true for, and what it rests on."""
    least, bound = case.smallest_pool_cost, case.all_prefill
    is_any = least is not None and bound is not None and bound.saving.high < least.low
    size = "a pool of any size, " if is_any else "pools of the sizes weighed here, whatever the "
    rest = "any hit ratio and any network" if is_any else "hit ratio and the network"
    return (
        f"This holds for {size}{rest}: no cache can free more than all prefill. Instances are "
        f"counted as kept busy for at least {100 * FLEET_BUSY_SHARE_LOW.value:.0f} % of the "
        f"busiest {BUSY_WINDOW.value:,.0f} s, which no replay contradicts"
    )


def open_bound(case: Case, bound: Bound, cost: Range) -> str:
    """A best case that settles nothing."""
    if not case.has_monthly_load:
        return too_short_for_a_month(case)
    return (
        f"The best case ({bound.what}) would save up to ${bound.saving.high:,.0f} a month against "
        f"a pool of ${cost.low:,.0f} or more; the worst case saves nothing"
    )


def money_reason(case: Case, pool: PoolCase) -> str:
    """Value against cost of one option."""
    if not case.has_monthly_load:
        return too_short_for_a_month(case)
    return (
        f"{pool.title} (modelled): saves {usd(pool.saving)}, costs {usd(pool.cost)}"
        f"{repeated_window(case)}{f'; {case.contract}' if case.contract else ''}"
    )


def repeated_window(case: Case) -> str:
    """What money a month takes for granted; empty for data that cover a day."""
    if case.covers_a_day or case.span_s is None:
        return ""
    return f"; a month is this window of {format_seconds(case.span_s)}, repeated"


def fleet_reasons(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """What replays say of the load and of fewer instances; nothing where they are mute."""
    at_ends = pool.at_ends and pool.at_ends[0].upper() + pool.at_ends[1:]
    shown = (case.load or "", pool.how_saved, at_ends, pool.unjudged)
    return tuple(sentence for sentence in shown if sentence)


def weigh_reasons(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """Money, fleet, and what the rival serves."""
    return (money_reason(case, pool), *fleet_reasons(case, pool), *rival_reasons(case, pool))


def slo_is_kept(case: Case) -> tuple[str, str]:
    """What is said of a pool that keeps the SLO, in a headline and as a reason."""
    if case.is_slo_stated:
        return "the stated SLO is kept", "The stated SLO is kept"
    return "TTFT is no worse", "TTFT is no worse than today's"


def no_gpu_is_saved(case: Case) -> tuple[str, ...]:
    """Said only where nothing speaks against it: no replay on fewer instances kept the SLO."""
    if case.prefill_binds or case.is_fewer_kept:
        return ()
    return ("A pool frees prefill only: where prefill does not bind, no GPU is saved",)


def binding_reason(case: Case) -> tuple[str, ...]:
    """What limits today's fleet, where that is not prefill."""
    said = case.around.binds
    return () if said is None else (f"{said[0].upper()}{said[1:]}",)


def pieces_reason(case: Case) -> tuple[str, ...]:
    """Why moves are slow, where it is for the size of their pieces."""
    return () if case.around.pieces is None else (case.around.pieces,)


def larger_fleet() -> NextMeasurement:
    """How many instances really serve this load."""
    return NextMeasurement(
        question="How many instances serve this load?",
        flag="kvtrace analyze … --instances N",
        hours=0.0,
        settles="replays the options on a fleet that carries the load; `--depth full` searches it",
    )


def whole_log() -> NextMeasurement:
    """The same log, replayed from its first request to its last."""
    return NextMeasurement(
        question="What do the options do over the whole log?",
        flag="kvtrace analyze … --depth full",
        hours=0.0,
        settles="replays all hours of the log, those with more reuse too; a longer log shows what "
        "its first hours reused",
    )


def rival_reasons(case: Case, pool: PoolCase | None) -> tuple[str, ...]:
    """What the rival of the pool already serves; null: the best option that costs nothing."""
    title, hits = case.rival_of(pool), case.rival_hits(pool)
    if title is None or hits is None or not case.reusable_tokens:
        return ()
    share = 100 * hits / case.reusable_tokens
    return (
        f"{title} (modelled) serves {hits:,} of "
        f"{case.reusable_tokens:,} reusable tokens, {share:.1f} %",
    )


def net_negative_reason(pool: PoolCase) -> str:
    """How many of its hits lose time."""
    if pool.net_negative_share is None:
        return f"{pool.title} loads no hit"
    return (
        f"{pool.title}: {100 * pool.net_negative_share:.0f} % of the loaded hits are slower than "
        "recomputing them (modelled)"
    )


def ends_at_hbm(case: Case) -> bool:
    """HBM alone serves nearly all the reuse."""
    return (
        bool(case.reusable_tokens)
        and case.hbm_hit_tokens is not None
        and case.reusable_tokens is not None
        and case.hbm_hit_tokens >= NEARLY_ALL.value * case.reusable_tokens
    )


def window_text(case: Case) -> str:
    """How large the window is."""
    span = "without a clock" if case.span_s is None else f"over {format_seconds(case.span_s)}"
    return (
        f"{counted(case.requests, 'request')} {span}; the verdict needs "
        f"{MIN_REQUESTS.value:,.0f} requests and {format_seconds(MIN_SPAN.value)}"
    )


def whole_gpus(case: Case) -> str:
    """What freed prefill has to remove before it saves money."""
    gpus = case.gpus_per_instance
    return "a whole GPU" if gpus == 1 else f"a whole instance of {gpus} GPUs"


def why_nothing_is_given_back(case: Case, pool: PoolCase) -> str:
    """Too little prefill is freed; or what the pool gives back a rival gives back, too."""
    if not pool.matched_by:
        return f"the prefill that it frees would not remove {whole_gpus(case)}"
    if pool.is_match_shown:
        return f"{pool.matched_by} does on as few instances without a pool"
    return f"no replay clearly shows that {pool.matched_by} needs more instances than the pool"


def less_than_an_instance(case: Case, pool: PoolCase) -> str:
    """How much prefill the pool frees, and how busy prefill keeps the fleet."""
    saved, busy = pool.estimate, case.prefill_utilisation
    utilisation = (
        "" if busy is None else f"; prefill keeps the instances busy {100 * busy:.1f} % of the time"
    )
    return (
        f"{pool.title} frees prefill worth {saved.value:.2f} instances (estimate from busy time, "
        f"{saved.low:.2f} to {saved.high:.2f} before rounding){utilisation}"
    )
