"""The money part of the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from kvtrace.audit.money.bill_rows import option_bills
from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import GpuWorth
from kvtrace.audit.money.numbers import USD_PER_MONTH, amount
from kvtrace.audit.money.pool_over_rival import Pair, pool_over_rival
from kvtrace.audit.money.record import Economics, PoolOverRival
from kvtrace.audit.money.token_prices import api_prices, token_prices
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import Option, ReplayWindow
from kvtrace.cost.evidence import Constant


@dataclass(frozen=True, slots=True)
class Priced:
    """What options cost, what an instance is worth, and when."""

    bills: Bills
    worth: GpuWorth
    today: date | None
    """The last day of the log, or of the report; null: neither has a date."""


def build_economics(
    options: Sequence[Option],
    money: Priced,
    pair: Pair | None,
    *,
    window: ReplayWindow | None,
    windows_per_day: float | None,
    as_quantity: Callable[[Constant], Quantity],
) -> Economics:
    """Bills of `options`, what GPUs are worth, and `pair` weighed; null: no pair to weigh."""
    bills, worth = money.bills, money.worth
    contract = bills.fleet.contract.kind
    return Economics(
        contract=contract.value,
        is_contract_confirmed=contract.kind != "assumed",
        contract_note=worth.note,
        paid_until=_until(worth.paid_until),
        instance=amount(
            "instance_usd_per_month",
            worth.instance_usd_per_month,
            USD_PER_MONTH,
            title="one instance that is given back for all hours",
            source=worth.note,
        ),
        hours_share=_hours_share(worth, bills.fleet.instances),
        bills=option_bills(options, bills, as_quantity),
        case=_case(pair),
        tokens=token_prices(options, bills, window, windows_per_day=windows_per_day),
        api_prices=api_prices(),
    )


def _case(pair: Pair | None) -> PoolOverRival | None:
    return None if pair is None else pool_over_rival(pair)


def _until(day: date | None) -> str | None:
    if day is None:
        return None
    return "never" if day == date.max else day.isoformat()


def _hours_share(worth: GpuWorth, instances: int) -> Quantity | None:
    if worth.profile is None:
        return None
    return Quantity(
        id="hours_share",
        value=worth.share_of_hours(1.0, of=instances),
        unit="ratio",
        title="hours of one instance that are given back",
        source=f"prompt tokens of each of {len(worth.profile)} hours over the busiest",
        kind="modelled",
        interval_reason="worked out from the log",
    )
