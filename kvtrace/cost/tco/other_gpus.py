"""Lines of other GPUs in place of today's: what they cost, and what giving today's up is worth."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.interval import Interval
from kvtrace.cost.profiles import load_hardware
from kvtrace.cost.tco.bill import ZERO, BillLine
from kvtrace.cost.tco.contract import deferred_usd_per_month, gpu_purchase_usd, paid_until
from kvtrace.units import HOURS_PER_MONTH


def other_gpu_price(fleet: Fleet, gpu: str) -> Constant:
    """USD per GPU-hour of `gpu`, at the level of prices at which today's GPU is paid.

    Formula: price of today's x list price of the other / list price of today's, each at the same
    end: where today's is at its list price, the list price of the other.
    """
    listed = load_hardware(gpu).gpu_usd_per_hour
    low, value, high = _at_ends(fleet, listed)
    return replace(
        listed,
        id=f"{listed.id}.{gpu}",
        value=value,
        low=min(low, value, high),
        high=max(low, value, high),
        source=listed.source
        if value == listed.value
        else f"{listed.source}; as today's GPU is to its list price",
    )


def _at_ends(fleet: Fleet, listed: Constant) -> tuple[float, float, float]:
    """USD per GPU-hour of the other GPU where today's is at its low, in the middle, at its high."""
    other, today = Interval.of(listed), Interval.of(fleet.gpu_usd_per_hour)
    base = fleet.gpu_list_usd_per_hour
    if base is None or base.low <= 0:
        return other.low, other.value, other.high
    return (
        today.low * other.low / base.low,
        today.value * other.value / base.value,
        today.high * other.high / base.high,
    )


def other_gpu_lines(gpu: str, fleet: Fleet, gpus: int, today: date | None) -> list[BillLine]:
    """`gpus` of another name are paid, today's are given up as their contract allows.

    Both prices move together, so that the low and the high of the first line are those of the
    difference with both at the same end, and the second has none.
    """
    given_up = _given_up(fleet, today)
    freed = given_up.opex_usd_per_month
    hours = gpus * HOURS_PER_MONTH
    low, value, high = (one * hours for one in _at_ends(fleet, load_hardware(gpu).gpu_usd_per_hour))
    ends = (low + freed.low, value + freed.value, high + freed.high)
    paid = BillLine(
        id="other_gpus",
        title=gpu,
        group="gpus",
        quantity=hours,
        unit="GPU-hours/month",
        price=other_gpu_price(fleet, gpu),
        opex_usd_per_month=Interval(min(ends) - freed.value, value, max(ends) - freed.value),
        note="low and high: with the price of today's GPUs at the same end",
    )
    return [paid, replace(given_up, opex_usd_per_month=Interval.exact(freed.value))]


def _given_up(fleet: Fleet, today: date | None) -> BillLine:
    """What today's GPUs save, below zero; its ends are those of the price, not sorted."""
    hours, price = fleet.gpus * HOURS_PER_MONTH, fleet.gpu_usd_per_hour
    saved, note = Interval.of(price).scaled(hours), ""
    quantity, unit = -float(hours), "GPU-hours/month"
    if fleet.contract.kind.value == "owned":
        price = fleet.prices["financing_rate_per_year"]
        quantity, unit = -gpu_purchase_usd(fleet).value * fleet.gpus, "USD"
        saved = deferred_usd_per_month(fleet, fleet.gpus)
        note = "owned: a purchase of as many is deferred, which saves its interest"
    until = paid_until(fleet, today)
    if until is not None:
        saved = ZERO
        note = "reserved, paid whether used or not" + (
            "" if until == date.max else f" until {until}"
        )
    return BillLine(
        id="gpus_given_up",
        title="GPUs of today that they replace",
        group="gpus",
        quantity=quantity,
        unit=unit,
        price=price,
        opex_usd_per_month=Interval(0.0 - saved.low, 0.0 - saved.value, 0.0 - saved.high),
        note=note,
    )
