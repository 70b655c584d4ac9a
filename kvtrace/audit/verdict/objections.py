"""Rules of what the replays say against a pool, and of what it would take."""

from __future__ import annotations

from kvtrace.audit.thresholds import LITTLE, NEARLY_ALL
from kvtrace.audit.verdict import words
from kvtrace.audit.verdict.cases import Case, Decision, PoolCase
from kvtrace.audit.verdict.conditions import (
    bandwidth_conditions,
    cold_condition,
    contract_condition,
    larger_pieces,
    money_conditions,
    slo_conditions,
    standing_conditions,
)
from kvtrace.audit.verdict.growth import growth_condition, growth_to_pay


def pool_adds_nothing(case: Case) -> Decision | None:
    """A cheaper rival serves the same hits; or hardly any are left; or the pool is too small."""
    best = max(case.pools, key=lambda pool: pool.extra_hit_tokens)
    most, rival = best.extra_hit_tokens, case.rival_of(best)
    prompt = case.prompt_tokens or 0
    if not case.is_long_enough or case.is_pool_needed or case.reusable_tokens is None:
        return None
    if not prompt or most / prompt >= LITTLE.value or not case.is_history_known:
        return None
    adds = (
        f"The best pool adds {max(most, 0):,} hit tokens to {rival}, "
        f"{100 * max(most / prompt, 0.0):.2f} % of {prompt:,} prompt tokens "
        f"(modelled; limit {100 * LITTLE.value:.0f} %)"
    )
    left = case.reusable_tokens - (case.rival_hits(best) or 0)
    if (case.served_share(best) or 0.0) >= NEARLY_ALL.value:
        where = "HBM" if words.ends_at_hbm(case) else rival
        headline = f"A pool does not pay: {where} already serves the hits that it would serve"
    elif left / prompt < LITTLE.value:
        headline = f"A pool does not pay: hardly any reuse is left beyond {rival}"
    else:
        return _pool_lacks_hits(case, best, adds)
    return Decision(
        outcome="does_not_pay",
        headline=headline,
        reasons=(adds, *words.rival_reasons(case, best)),
    )


def _pool_lacks_hits(case: Case, best: PoolCase, adds: str) -> Decision:
    """There is reuse to serve, and this pool does not hold it, or holds it too late."""
    size, rival = case.pool_capacity, case.rival_of(best)
    size = size or "the pool does not hold the reuse that is left"
    needs = "holds more" if case.is_pool_small else "serves more"
    return Decision(
        outcome="pays_only_if",
        headline=f"A pool pays only if it {needs}: this one adds no hits to those of {rival}",
        reasons=(adds, f"{size[0].upper()}{size[1:]}", *words.rival_reasons(case, best)),
        conditions=(
            f"it serves at least {100 * LITTLE.value:.0f} % of the prompt tokens beyond "
            f"{rival}, and value then meets cost: {size}",
            *standing_conditions(case),
        ),
    )


def prefill_does_not_bind(case: Case) -> Decision | None:
    """A pool frees prefill only; where that saves no whole instance it saves no money.

    Unless a load within the growth limit changes that, without making anyone wait longer.
    """
    most = case.best_pool
    if most is None or not case.is_long_enough:
        return None
    if case.is_pool_needed or any(p.instances_saved.high >= 1 for p in case.pools):
        return None
    growth = growth_to_pay(case, most)
    reasons = (
        words.less_than_an_instance(case, most),
        *words.binding_reason(case),
        *words.pieces_reason(case),
        *words.no_gpu_is_saved(case),
        *words.fleet_reasons(case, most),
    )
    why = words.why_nothing_is_given_back(case, most)
    if most.keeps_slo and growth is not None and not growth.is_another_fleet:
        return Decision(
            outcome="pays_only_if",
            headline=f"{most.title} pays only if the load grows to {growth.times:.1f} times: now "
            f"{why}",
            reasons=(*reasons, *words.rival_reasons(case, most)),
            conditions=(
                f"the load is at least {growth.times:.1f} times that of this trace, at the same "
                f"reuse and pool size: {growth.division}",
                *standing_conditions(case),
            ),
        )
    return Decision(
        outcome="does_not_pay",
        headline=f"A pool does not pay at this load: {why}",
        reasons=reasons,
        conditions=(
            *larger_pieces(case),
            *growth_condition(case, most),
            *cold_condition(case),
        ),
    )


def costs_more_than_it_saves(case: Case) -> Decision | None:
    """No pool saves more at its highest than it costs at its lowest: one that is free but saves
    nothing does not pay either.
    """
    if not case.is_long_enough or any(p.saving.high > p.cost.low for p in case.pools):
        return None
    best = case.best_pool
    if best is None:
        return None
    return Decision(
        outcome="does_not_pay",
        headline="A pool does not pay: each option costs more than it saves",
        reasons=(*words.weigh_reasons(case, best), *words.binding_reason(case)),
        conditions=(
            *contract_condition(case, best),
            *growth_condition(case, best),
            *cold_condition(case),
        ),
    )


def slower_on_every_path(case: Case) -> Decision | None:
    """Most loaded hits arrive later than recomputing them, on all paths."""
    if not case.has_tail or any(pool.is_faster_than_recompute for pool in case.pools):
        return None
    bandwidth = bandwidth_conditions(case.pools)
    reasons = (
        "On every path that was replayed most loaded hits arrive later than recomputing them "
        "(modelled)",
        *(words.net_negative_reason(pool) for pool in case.pools),
        *words.pieces_reason(case),
        *words.rival_reasons(case, case.best_pool),
    )
    if bandwidth and any(pool.saving.high >= pool.cost.low for pool in case.pools):
        return Decision(
            outcome="pays_only_if",
            headline="A pool pays only if its path gets faster: now its hits cost more time "
            "than they save",
            reasons=reasons,
            conditions=(*bandwidth, *larger_pieces(case), *standing_conditions(case)),
        )
    if not case.is_long_enough:
        return None
    return Decision(
        outcome="does_not_pay",
        headline="A pool does not pay: on every path a hit is slower than recomputing",
        reasons=reasons,
        conditions=(*bandwidth, *larger_pieces(case)),
    )


def tail_is_longer_with_every_pool(case: Case) -> Decision | None:
    """Its hits are fast, but some class of prompts waits longer, or the load is not carried."""
    best = case.best_pool
    if best is None or not case.has_tail or any(pool.keeps_slo for pool in case.pools):
        return None
    if not case.is_long_enough and best.saving.high < best.cost.low:
        return None
    tail = best.worst_excess or best.slowdown
    if not best.is_feasible:
        headline = "A pool pays only if it carries the load: on this fleet none of them does"
    elif not best.is_faster_than_recompute:
        headline = f"{best.title} pays only if its hits get faster than recomputing them"
    else:
        wanted = "it keeps the stated SLO" if case.is_slo_stated else "the tail gets no longer"
        headline = f"{best.title} pays only if {wanted}: {tail}"
    return Decision(
        outcome="pays_only_if",
        headline=headline,
        reasons=(*words.weigh_reasons(case, best), words.net_negative_reason(best)),
        conditions=(
            *slo_conditions(case, best),
            *money_conditions(case, best),
            *standing_conditions(case),
        ),
    )
