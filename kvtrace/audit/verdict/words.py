"""The sentences of the verdict: reasons and conditions, each with its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.audit.record import NextMeasurement
from kvtrace.audit.thresholds import GROWTH_LIMIT, MIN_REQUESTS, MIN_SPAN, NEARLY_ALL, PREFILL_BINDS
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Bound, Case, PoolCase
from kvtrace.schema.manifest import Grade
from kvtrace.units import format_rate, format_seconds

WHY_UNKNOWN: Final[dict[Grade, str]] = {
    "A": "The source has block identity, but no reuse facts could be built from it",
    "B": "The source says what the deployed cache hit, not what a larger or shared one would hit",
    "C": "The source holds aggregates only: a hit ratio of today's cache, no request and no block",
    "L": "The source holds lengths and latencies only: reuse is unknown, not zero",
}


def counted(number: int, noun: str) -> str:
    """`1 request`, `1,448 requests`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share of 0..1 as `81.9 %`."""
    return f"{100 * share:.1f} %"


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


def bound_reason(bound: Bound, cost: Range) -> str:
    """Best case against cheapest pool."""
    return (
        f"Best case ({bound.what}): at most {bound.instances.high:.2f} instances, "
        f"${bound.saving.high:,.0f} a month at the highest price; the cheapest pool "
        "considered here costs at "
        f"least ${cost.low:,.0f} a month"
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
        f"{repeated_window(case)}"
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
    return (money_reason(case, pool), *fleet_reasons(case, pool), *rival_reasons(case))


def no_gpu_is_saved(case: Case) -> tuple[str, ...]:
    """Said only where nothing speaks against it: no replay on fewer instances kept the SLO."""
    if case.prefill_binds or case.is_fewer_kept:
        return ()
    return ("A pool frees prefill only: where prefill does not bind, no GPU is saved",)


def cold_condition(case: Case) -> tuple[str, ...]:
    """What a replay that starts with empty caches leaves open."""
    if not case.is_cold:
        return ()
    return (
        "the replayed part starts with empty caches: with what came before it a pool serves more",
    )


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


def rival_reasons(case: Case) -> tuple[str, ...]:
    """What the best option without a pool already serves."""
    if case.rival_title is None or case.rival_hit_tokens is None or not case.reusable_tokens:
        return ()
    share = 100 * case.rival_hit_tokens / case.reusable_tokens
    return (
        f"{case.rival_title} (modelled) serves {case.rival_hit_tokens:,} of "
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


@dataclass(frozen=True, slots=True)
class Growth:
    """Times the load of the trace, and the division that gives it."""

    times: float
    division: str

    @property
    def is_another_fleet(self) -> bool:
        """Beyond the growth that a verdict looks at."""
        return self.times > GROWTH_LIMIT.value

    def __str__(self) -> str:
        """`4.1 times the load of this trace`."""
        return f"{self.times:,.1f} times the load of this trace"


def growth_to_pay(case: Case, pool: PoolCase) -> Growth | None:
    """The load at which value meets cost, one whole instance is freed, and prefill binds.

    Assumes: freed prefill grows with the load; reuse and the size of the pool stay.
    """
    instances, usd_saved = pool.estimate.value, pool.unrounded_saving_usd
    busy, cost = case.prefill_utilisation, pool.cost.value
    if instances <= 0 or usd_saved <= 0 or not busy:
        return None
    needed = PREFILL_BINDS.value
    ways = (
        Growth(cost / usd_saved, f"${cost:,.0f} of cost / ${usd_saved:,.0f} of freed prefill"),
        Growth(1.0 / instances, f"1 instance / {instances:.2f} instances freed"),
        Growth(
            needed / busy,
            f"prefill busy {percent(needed)} of the time, where it limits the fleet, / "
            f"{percent(busy)} now",
        ),
        Growth(1.0, "this load"),
    )
    return max(ways, key=lambda growth: growth.times)


def growth_condition(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """The load at which this pool would pay; nothing where no load would do."""
    growth = growth_to_pay(case, pool)
    if growth is None:
        return ()
    return (
        f"with {pool.title}: {growth}, at the same reuse and pool size: {growth.division} "
        f"(modelled, a month at middle prices){_another_fleet(growth)}",
    )


def best_case_growth(case: Case, bound: Bound, cost: Range) -> tuple[str, ...]:
    """The load at which even the best case would pay, and at which the best replayed pool would."""
    own = () if case.best_pool is None else growth_condition(case, case.best_pool)
    if bound.saving.value <= 0 or bound.saving.high <= 0:
        return own
    middle = Growth(
        cost.value / bound.saving.value,
        f"${cost.value:,.0f} of cost / ${bound.saving.value:,.0f} saved",
    )
    return (
        f"in the best case ({bound.what}): {middle} at middle prices, {middle.division} a month"
        f"{_another_fleet(middle)}; {cost.low / bound.saving.high:,.1f} times at the prices that "
        f"favour a pool most, ${cost.low:,.0f} / ${bound.saving.high:,.0f}. A pool that is built "
        "needs more",
        *own,
    )


def _another_fleet(growth: Growth) -> str:
    return " (that is another fleet)" if growth.is_another_fleet else ""


def whole_gpus(case: Case) -> str:
    """What freed prefill has to remove before it saves money."""
    gpus = case.gpus_per_instance
    return "a whole GPU" if gpus == 1 else f"a whole instance of {gpus} GPUs"


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
        left = (case.reusable_tokens or 0) - (case.rival_hit_tokens or 0)
        if factor * share <= 100 * left / case.prompt_tokens:
            ways.append(
                f"it serves at least {factor * share:.1f} % of the prompt tokens beyond "
                f"{case.rival_title} (modelled {share:.1f} %)"
            )
    if factor <= 1:
        return binding or (f"value stays above cost: {', and '.join(ways)}",)
    return (*binding, "value meets cost: " + ", or ".join(ways))


def _binding_conditions(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """What it takes for freed prefill to give GPUs back, where no replay shows that it does."""
    busy = case.prefill_utilisation
    if case.prefill_binds or not busy or pool.is_saving_replayed:
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
    return (
        f"it gives back {whole_gpus(case)} at today's TTFT and TPOT, shown by a replay on fewer "
        f"instances; freed prefill alone is worth {pool.estimate.value:.2f} instances (estimate)",
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


def slo_conditions(case: Case, pool: PoolCase) -> tuple[str, ...]:
    """What keeps TTFT no worse than today, and hits faster than recomputing."""
    if case.is_pool_needed and pool.is_feasible:
        return (
            "its TTFT is good enough, since no option without a pool carries this load and sets an "
            f"SLO: {pool.slowdown} (modelled)",
        )
    bandwidth = bandwidth_conditions((pool,))
    if not pool.is_no_slower:
        return (f"TTFT and TPOT are no worse than today's: {pool.slowdown}", *bandwidth)
    if not pool.is_faster_than_recompute:
        return bandwidth or ("its hits arrive sooner than recomputing them",)
    return ()


def standing_conditions(case: Case) -> tuple[str, ...]:
    """What must hold whatever the numbers are: enough data, confirmed settings."""
    conditions: list[str] = []
    if not case.is_long_enough:
        conditions.append(f"a longer log shows the same: {window_text(case)}")
    elif not case.covers_a_day:
        conditions.append(f"the month is like this window: {other_hours(case)}")
    if case.log_gap is not None:
        conditions.append(f"a log of all requests shows the same: {case.log_gap.what}")
    if case.unconfirmed:
        conditions.append(f"the assumed settings hold: {', '.join(case.unconfirmed)}")
    return (*conditions, *case.unreplayed_rivals)


def other_hours(case: Case) -> str:
    """What a window shorter than a day leaves open."""
    span = "an unknown span" if case.span_s is None else format_seconds(case.span_s)
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
        return f"TTFT stays as it is: {pool.slowdown}"
    if not case.is_long_enough:
        return "a longer log shows the same"
    if not case.covers_a_day:
        return f"the month is like this window: {other_hours(case)}"
    if case.log_gap is not None:
        return f"a log of all requests shows the same: of this one, {case.log_gap.what}"
    if case.unconfirmed:
        return f"the assumed settings hold: {', '.join(case.unconfirmed)}"
    if case.is_pool_needed:
        return f"its TTFT is good enough ({pool.slowdown}): nothing else carries this load here"
    if case.unreplayed_rivals:
        return "routing that follows the cache does not serve the same hits"
    return "a replay on fewer instances shows what it saves"


def _lead_by_money(case: Case, pool: PoolCase) -> str:
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
