"""What must hold for a pool to pay, as sentences with numbers."""

from __future__ import annotations

from datetime import date

from kvtrace.audit.thresholds import LITTLE, PREFILL_BINDS
from kvtrace.audit.verdict.cases import Bound, Case, Chance, PoolCase
from kvtrace.audit.verdict.words import ACCURACY, usd, whole_gpus, window_text
from kvtrace.units import format_rate, format_seconds


def contract_condition(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """What it saves once reserved GPUs can be given back; nothing where they can now."""
    if case.paid_until is None or case.instance_after is None or not pool.instances_saved.value:
        return ()
    when = "" if case.paid_until == date.max else f", after {case.paid_until}"
    saving = pool.instances_saved * case.instance_after
    return (f"the reservation of the GPUs is over{when}: from then on it saves {usd(saving)}",)


def money_conditions(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """Break-even GPU price, load or reuse; any one of them is enough."""
    if pool.saving.low > pool.cost.high or not case.has_monthly_load:
        return ()
    binding = (*_binding_conditions(case, pool), *_whole_condition(case, pool))
    is_replayed = pool.is_saving_replayed and pool.saving.value > 0
    worth = pool.saving.value if is_replayed else pool.unrounded_saving_usd
    if worth <= 0:
        return (*binding, f"it frees prefill worth more than {usd(pool.cost)}; now it frees none")
    factor = pool.cost.value / worth
    ways = [] if is_replayed else [f"the load is at least {factor:.2f} times that of this trace"]
    if case.gpu_usd_per_hour is not None:
        price = case.gpu_usd_per_hour
        ways.append(
            f"a GPU-hour costs at least ${factor * price.value:.2f} (assumed ${price.value:.2f}, "
            f"${price.low:.2f} to ${price.high:.2f})"
        )
    if case.prompt_tokens and pool.extra_hit_tokens > 0 and not is_replayed:
        share = 100 * pool.extra_hit_tokens / case.prompt_tokens
        left = (case.reusable_tokens or 0) - (case.rival_hits(pool) or 0)
        if factor * share <= 100 * left / case.prompt_tokens:
            ways.append(
                f"it serves at least {factor * share:.1f} % of the prompt tokens beyond "
                f"{case.rival_of(pool)} (modelled {share:.1f} %)"
            )
    if factor <= 1:
        return binding or (f"value stays above cost: {', and '.join(ways)}",)
    return (*binding, "value meets cost: " + ", or ".join(ways))


def _binding_conditions(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """What it takes for freed prefill to give GPUs back, where no replay shows that it does."""
    busy = case.prefill_utilisation
    if case.prefill_binds or not busy or pool.is_saving_replayed or pool.avoided:
        return ()
    needed = PREFILL_BINDS.value
    return (
        f"prefill limits the fleet: it keeps the instances busy {100 * needed:.0f} % of the time "
        f"(modelled {100 * busy:.1f} %), as at {needed / busy:.1f} times this load or with as many "
        "times fewer instances",
    )


def _whole_condition(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """An instance is given back whole or not at all, and a replay has to show it."""
    if pool.instances_saved.low >= 1:
        return ()
    if pool.is_shown_at_the_middle:
        return (
            f"it gives back {whole_gpus(case)} at the ends of the model's constants, too, or a "
            f"calibration narrows them: {pool.at_ends}",
        )
    if pool.avoided:
        return (avoided_text(case, pool),)
    slo = "the stated SLO" if case.is_slo_stated else "today's TTFT and TPOT"
    return (
        f"it gives back {whole_gpus(case)} at {slo}, shown by a replay on fewer "
        f"instances; freed prefill alone is worth {pool.estimate.value:.2f} instances (estimate)",
    )


def avoided_text(case: Case, pool: PoolCase) -> str:
    """What a pool is worth that gives nothing back, where its rivals miss the SLO."""
    missed = "that is stated" if case.is_slo_stated else "without a pool"
    number = "one more instance" if pool.avoided == 1 else f"{pool.avoided} more instances"
    return (
        f"today's fleet misses the SLO {missed}: the pool avoids at least {number}, which has to "
        "be what you would add (no search counted it)"
    )


def bandwidth_conditions(pools: tuple[PoolCase, ...]) -> tuple[str, ...]:
    """The bandwidth above which a move beats recomputing, for the path that is nearest to it."""
    known = [
        (pool.break_even_bytes_per_s / pool.path_bytes_per_s, pool)
        for pool in pools
        if pool.break_even_bytes_per_s and pool.path_bytes_per_s
    ]
    slow = [entry for entry in known if entry[0] > 1]
    if not slow:
        return ()
    _, pool = min(slow, key=lambda entry: (entry[0], entry[1].option_id))
    return (
        f"a move gets at least {format_rate(pool.break_even_bytes_per_s or 0.0)} "
        f"({pool.title} now gets {format_rate(pool.path_bytes_per_s or 0.0)} at the median hit)",
    )


def larger_pieces(case: Case) -> tuple[str, ...]:
    """What would make the path faster without a faster link."""
    if case.around.pieces is None:
        return ()
    return (f"KV is gathered into larger pieces before it is moved: {case.around.pieces}",)


def slo_conditions(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """What keeps the SLO, and hits faster than recomputing."""
    if case.is_pool_needed and pool.is_feasible:
        return (
            "its TTFT is good enough, since no option without a pool carries this load and sets an "
            f"SLO: {pool.slowdown} (modelled)",
        )
    bandwidth = bandwidth_conditions((pool,))
    if not pool.is_no_slower:
        slo = "TTFT and TPOT are no worse than today's"
        wanted = "the stated SLO is kept" if case.is_slo_stated else slo
        return (f"{wanted}: {pool.slowdown}", *bandwidth)
    if not pool.is_faster_than_recompute:
        return bandwidth or ("its hits arrive sooner than recomputing them",)
    return ()


def standing_conditions(case: Case) -> tuple[str, ...]:
    """What must hold whatever the numbers are: enough data, confirmed settings."""
    conditions: list[str] = []
    best = case.best_pool
    if best is not None and case.prompt_tokens and not case.adds_hits(best):
        conditions.append(
            f"it serves at least {100 * LITTLE.value:.0f} % of the prompt tokens beyond "
            f"{case.rival_of(best)}: now {max(best.extra_hit_tokens, 0):,} of "
            f"{case.prompt_tokens:,}"
        )
    if not case.is_long_enough:
        conditions.append(f"a longer log shows the same: {window_text(case)}")
    elif not case.covers_a_day:
        conditions.append(f"the month is like this window: {other_hours(case)}")
    if case.log_gap is not None:
        conditions.append(f"a log of all requests shows the same: {case.log_gap.what}")
    if case.around.dominant:
        conditions.append(f"other months reuse as much: {case.around.dominant}")
    if case.contradicted is not None:
        conditions.append(contradiction(case.contradicted))
    if case.unconfirmed:
        conditions.append(f"the assumed settings hold: {', '.join(case.unconfirmed)}")
    if case.chance is not None and not case.chance.is_high:
        conditions.append(chance_text(case.chance))
    if best is not None and best.is_quantised:
        conditions.append(f"its answers are as good as you need: {ACCURACY}")
    return (*conditions, *case.unreplayed_rivals, *case.narrow_rivals)


def contradiction(bound: Bound) -> str:
    """Replays say more than the busy time of all prefill does: one of the two is wrong here."""
    return (
        f"a fleet on fewer instances shows what replays do: by busy time the best case "
        f"({bound.what}) is worth {bound.instances.high:.2f} instances at most, and replays give "
        "back more"
    )


def chance_text(chance: Chance) -> str:
    """What has to turn out well, and what would tell."""
    told = f"; most of that is told by {chance.most_open}" if chance.most_open else ""
    return f"what is open turns out well: {chance}{told}"


def other_hours(case: Case) -> str:
    """What a window shorter than a day leaves open."""
    span = "an unknown span" if case.span_s is None else format_seconds(case.span_s)
    if case.is_peak_stated:
        return (
            f"{span} of log do not show how much less the hours off the peak ask, in which fewer "
            "GPUs run anyway; the stated peak factor sizes the fleet only"
        )
    return (
        f"{span} of log do not show the busiest hour of a day, which sizes the fleet, nor how much "
        "less the others ask"
    )


def lead(case: Case, pool: PoolCase) -> str:
    """The condition that the headline names."""
    if not case.has_monthly_load:
        return f"a longer log shows the same: {window_text(case)}"
    if pool.saving.low <= pool.cost.high:
        return _lead_by_money(case, pool)
    if not pool.keeps_slo:
        wanted = "the stated SLO is kept" if case.is_slo_stated else "TTFT stays as it is"
        return f"{wanted}: {pool.slowdown}"
    if not case.is_long_enough:
        return "a longer log shows the same"
    if not case.covers_a_day:
        return f"the month is like this window: {other_hours(case)}"
    if not case.adds_hits(pool):
        return f"it serves more than {case.rival_of(pool)} does, which serves almost the same hits"
    if case.log_gap is not None:
        return f"a log of all requests shows the same: of this one, {case.log_gap.what}"
    if case.around.dominant:
        return f"other months reuse as much: {case.around.dominant}"
    if case.contradicted is not None:
        return contradiction(case.contradicted)
    if case.unconfirmed:
        return f"the assumed settings hold: {', '.join(case.unconfirmed)}"
    if case.chance is not None and not case.chance.is_high:
        return chance_text(case.chance)
    if case.is_pool_needed:
        return f"its TTFT is good enough ({pool.slowdown}): nothing else carries this load here"
    if case.unreplayed_rivals:
        return case.unreplayed_rivals[0]
    if case.narrow_rivals:
        return case.narrow_rivals[0]
    if pool.is_quantised:
        return "its answers are as good as you need, which is not evaluated here"
    return "a replay on fewer instances shows what it saves"


def _lead_by_money(case: Case, pool: PoolCase) -> str:
    if pool.avoided and pool.instances_saved.value < 1:
        return avoided_text(case, pool)
    is_replayed = pool.is_saving_replayed or case.is_fewer_kept
    if pool.instances_saved.low < 1 and not case.prefill_binds and not is_replayed:
        return "prefill limits the fleet; now freed prefill need not give a GPU back"
    if pool.is_shown_at_the_middle:
        return (
            f"it gives back {whole_gpus(case)} over the range of the model's constants: replays at "
            "their middle show it, those at their ends do not"
        )
    if pool.instances_saved.low < 1:
        return (
            f"it gives back {whole_gpus(case)}: no replay shows that it does, and freed prefill is "
            f"worth {pool.estimate.value:.2f} instances (estimate)"
        )
    return (
        "its value holds against its cost, for the intervals overlap: it saves "
        f"{usd(pool.saving)} and costs {usd(pool.cost)}"
    )


def smaller_pool(case: Case, bound: Bound) -> tuple[str, ...]:
    """What a bound against pools of one size leaves open."""
    least = case.smallest_pool_cost
    floor = ""
    if least is not None and least.low > 0:
        floor = f"; every pool costs at least ${least.low:,.0f}, of any size"
    elif least is not None:
        floor = (
            "; no bill holds for a pool of any size while those who run it may cost nothing: state "
            f"`operations_fte_share` (at its middle they cost ${least.value:,.0f} a month)"
        )
    return (
        f"a smaller pool costs less than the ${bound.saving.high:,.0f} a month that the best case "
        f"saves{floor}",
    )


def cold_condition(case: Case) -> tuple[str, ...]:
    """What a replay that starts with empty caches leaves open."""
    if not case.is_cold:
        return ()
    return (
        "the replayed part starts with empty caches: with what came before it a pool serves more",
    )
