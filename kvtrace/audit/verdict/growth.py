"""The load at which a pool would pay, in times that of the trace, and the division behind it."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.audit.thresholds import GROWTH_LIMIT, PREFILL_BINDS
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Bound, Case, PoolCase
from kvtrace.audit.words import percent


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
