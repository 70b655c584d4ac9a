"""The best pool over the best option without one: payback, NPV, prices at break-even."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Final

from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import GpuWorth
from kvtrace.audit.money.numbers import USD_PER_MONTH, amount, unknown
from kvtrace.audit.money.payback import Flow, npv_usd, payback_months
from kvtrace.audit.money.record import PoolOverRival
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.uncertainty.ranges import Range, finite
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.interval import Interval
from kvtrace.cost.tco.bill import Bill
from kvtrace.units import DAYS_PER_MONTH

_NO_SAVING: Final = "no instance is given back, so that no price makes it pay"
_NO_PURCHASE: Final = "nothing is bought beyond the other: from the first month it saves more"
_NO_GAIN: Final = "savings are below what it costs to run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A pool and the rival that it is weighed against."""

    option: str
    title: str
    rival: str
    rival_title: str
    saving: Range
    """USD a month, by the contract as it stands."""
    instances: Range
    """Whole instances given back."""
    bills: Bills
    worth: GpuWorth
    today: date | None = None


def pool_over_rival(pair: Pair) -> PoolOverRival | None:
    """What the pair comes to; null where a bill is not known."""
    if _both(pair, pair.bills) is None:
        return None
    against = f"{pair.title} over {pair.rival_title}"
    return PoolOverRival(
        option=pair.option,
        title=pair.title,
        rival=pair.rival,
        rival_title=pair.rival_title,
        saving=amount(
            "pool_saving",
            pair.saving,
            USD_PER_MONTH,
            title=f"saved by {against}",
            source=f"whole instances given back x what one is worth; {pair.worth.note}",
        ),
        extra_cost=amount(
            "pool_extra_cost",
            _extra(pair, lambda bill: bill.usd_per_month),
            USD_PER_MONTH,
            title=f"cost of {against}",
            source="difference of the two bills",
        ),
        payback=_payback(pair, against),
        npv=_npv(pair, against),
        gpu_usd_per_hour=_gpu_price(pair, against),
        dram_usd_per_gb=_dram_price(pair, against),
    )


def _both(pair: Pair, bills: Bills) -> tuple[Bill, Bill] | None:
    pool, rival = bills.bill(pair.option), bills.bill(pair.rival)
    return None if pool is None or rival is None else (pool, rival)


def _extra(pair: Pair, part: Callable[[Bill], Interval], bills: Bills | None = None) -> Interval:
    """A part of the pool's bill less the same of the rival's; the widest where both have some."""
    both = _both(pair, bills or pair.bills)
    if both is None:
        return Interval.exact(0.0)
    mine, theirs = part(both[0]), part(both[1])
    return mine + theirs.scaled(-1.0)


def _opex(bill: Bill) -> Interval:
    """Running cost without financing."""
    lines = [line for line in bill.lines if line.group != "financing"]
    return replace(bill, lines=tuple(lines)).opex_usd_per_month


def _flows(pair: Pair) -> tuple[Flow, Flow, Flow]:
    """At the worst ends together, in the middle, and at the best ends."""
    capex, opex = _extra(pair, lambda bill: bill.capex_usd), _extra(pair, _opex)
    full, wait = _saving_once_free(pair), _months_to_wait(pair)
    later = _extra(pair, _opex, _once_free(pair))

    def flow(paid: float, runs: float, runs_later: float, saves: float) -> Flow:
        return Flow(
            capex_usd=paid,
            opex_usd_per_month=runs,
            later_opex_usd_per_month=runs_later,
            saving_usd_per_month=saves,
            first_month=wait,
        )

    return (
        flow(capex.high, opex.high, later.high, full.low),
        flow(capex.value, opex.value, later.value, full.value),
        flow(capex.low, opex.low, later.low, full.high),
    )


def _once_free(pair: Pair) -> Bills:
    """The bills after the last day of a running contract: a rival on other GPUs then gives today's
    up, which it pays for until then.
    """
    until = pair.worth.paid_until
    if until is None or until == date.max:
        return pair.bills
    return replace(pair.bills, today=until + timedelta(days=1))


def _saving_once_free(pair: Pair) -> Range:
    """The saving, and after the last day of a running contract what it becomes."""
    if pair.worth.paid_until is None:
        return pair.saving
    return pair.instances * pair.worth.instance_usd_per_month


def _months_to_wait(pair: Pair) -> float:
    until = pair.worth.paid_until
    if until is None:
        return 0.0
    if until == date.max or pair.today is None:
        return math.inf
    return max(0.0, (until - pair.today).days / DAYS_PER_MONTH)


def _payback(pair: Pair, against: str) -> Quantity:
    worst, middle, best = (payback_months(flow) for flow in _flows(pair))
    title, source = f"payback of {against}", "purchase over savings less running cost; no interest"
    if middle is None:
        return unknown("payback_months", "months", title=title, source=source, why=_why(pair))
    if not middle:
        return unknown("payback_months", "months", title=title, source=source, why=_NO_PURCHASE)
    return Quantity(
        id="payback_months",
        value=middle,
        low=best,
        high=worst,
        unit="months",
        title=title,
        source=source,
        kind="modelled",
        interval_reason="" if worst is not None else f"no high: at the worst ends {_NO_GAIN}",
    )


def _why(pair: Pair) -> str:
    if math.isinf(_months_to_wait(pair)):
        return pair.worth.note
    return f"never: {_NO_SAVING if not pair.saving.value else _NO_GAIN}"


def _npv(pair: Pair, against: str) -> Quantity:
    prices = pair.bills.fleet.prices
    months, rate = prices["amortisation_months"].value, prices["financing_rate_per_year"].value
    low, value, high = (npv_usd(one, months=months, rate_per_year=rate) for one in _flows(pair))
    return amount(
        "npv",
        Range(low, value, high),
        "USD",
        title=f"net present value of {against}",
        source=f"over {months:g} months, discounted at {rate:.1%} a year, nothing left at the end",
    )


def _gpu_price(pair: Pair, against: str) -> Quantity:
    """USD a GPU-hour at which the saving meets the extra cost: the saving goes with the price."""
    price = pair.bills.fleet.gpu_usd_per_hour
    title = f"price of a GPU-hour at which {against} pays"
    source = "extra cost over the saving a dollar of the price gives"
    if not pair.saving.value:
        why = _NO_SAVING if pair.worth.paid_until is None else pair.worth.note
        unit = price.unit
        return unknown("break_even_gpu_usd_per_hour", unit, title=title, source=source, why=why)
    cost = _extra(pair, lambda bill: bill.usd_per_month)
    high_price = price.value if price.high is None else price.high
    low_price = price.value if price.low is None else price.low
    high = cost.high * low_price / pair.saving.low if pair.saving.low else None
    return Quantity(
        id="break_even_gpu_usd_per_hour",
        value=max(0.0, cost.value * price.value / pair.saving.value),
        low=max(0.0, cost.low * high_price / pair.saving.high),
        high=None if high is None else finite(max(0.0, high)),
        unit=price.unit,
        title=title,
        source=source,
        kind="modelled",
        interval_reason="" if high is not None else "no high: at the low end nothing is saved",
    )


def _dram_price(pair: Pair, against: str) -> Quantity:
    """USD per GB at which the saving meets the extra cost: the cost goes with the price."""
    title = f"price of DRAM at which {against} pays"
    source = "saving less all other cost, over what a dollar of the price costs"
    ident, unit = "break_even_dram_usd_per_gb", "USD/GB"
    free = _extra(pair, lambda bill: bill.usd_per_month, _at_dram_price(pair.bills, 0.0))
    at_one = _extra(pair, lambda bill: bill.usd_per_month, _at_dram_price(pair.bills, 1.0))
    slope = at_one.value - free.value
    if slope <= 0:
        why = "the pool buys no more DRAM than the rival"
        return unknown(ident, unit, title=title, source=source, why=why)
    value = (pair.saving.value - free.value) / slope
    if value < 0:
        why = "even with free DRAM it costs more than it saves"
        return unknown(ident, unit, title=title, source=source, why=why)
    return Quantity(
        id=ident,
        value=value,
        low=max(0.0, (pair.saving.low - free.high) / slope),
        high=(pair.saving.high - free.low) / slope,
        unit=unit,
        title=title,
        source=source,
        kind="modelled",
    )


def _at_dram_price(bills: Bills, usd_per_gb: float) -> Bills:
    fleet: Fleet = bills.fleet
    price = fleet.prices["dram_usd_per_gb"].given(usd_per_gb, source="break-even")
    return replace(bills, fleet=replace(fleet, prices=fleet.prices.with_stated(price)))
