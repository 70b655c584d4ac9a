"""Bills of all options as the record holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.numbers import USD_PER_MONTH, amount
from kvtrace.audit.money.record import BillItem, OptionBill
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import Option
from kvtrace.cost.evidence import Constant
from kvtrace.cost.interval import Interval
from kvtrace.cost.tco.bill import Bill, BillLine

_LINES: Final = "sum of the lines; low and high: all prices at their low or high ends together"


def option_bills(
    options: Iterable[Option], bills: Bills, as_quantity: Callable[[Constant], Quantity]
) -> list[OptionBill]:
    """One bill an option whose needs are known, in the order of the options."""
    found = ((option, bills.bill(option.id)) for option in options)
    return [_row(option, bill, as_quantity) for option, bill in found if bill is not None]


def _row(option: Option, bill: Bill, as_quantity: Callable[[Constant], Quantity]) -> OptionBill:
    ident, title = option.id, option.title
    idle = bill.idle_dram_at_cost
    return OptionBill(
        option=ident,
        title=title,
        items=[_item(line, as_quantity) for line in bill.lines],
        total=_usd(f"bill:{ident}", bill.usd_per_month, f"{title}: cost"),
        capex=amount(
            f"capex:{ident}",
            bill.capex_usd,
            "USD",
            title=f"{title}: bought at once",
            source=_LINES,
        ),
        idle_dram_at_cost=_usd(
            f"idle_dram_at_cost:{ident}", idle, f"{title}: its idle DRAM, if it were bought"
        )
        if idle.value
        else None,
        energy=amount(
            f"energy:{ident}",
            bill.kwh_per_month,
            "kWh/month",
            title=f"{title}: energy at the meter",
            source="power of what it adds x 730 h x cooling factor; powers in the assumptions",
        ),
        emissions=amount(
            f"emissions:{ident}",
            bill.kg_co2_per_month,
            "kgCO2e/month",
            title=f"{title}: emissions of that energy",
            source="energy x intensity of the grid; the making of the hardware is not in it",
        ),
        gaps=list(bill.gaps),
    )


def _item(line: BillLine, as_quantity: Callable[[Constant], Quantity]) -> BillItem:
    cost = line.usd_per_month
    return BillItem(
        id=line.id,
        title=line.title,
        group=line.group,
        quantity=line.quantity,
        unit=line.unit,
        price=as_quantity(line.price),
        capex_usd=line.capex_usd.value,
        capex_usd_per_month=line.capex_usd_per_month.value,
        opex_usd_per_month=line.opex_usd_per_month.value,
        low_usd_per_month=cost.low,
        high_usd_per_month=cost.high,
        note=line.note,
    )


def _usd(ident: str, cost: Interval, title: str) -> Quantity:
    return amount(ident, cost, USD_PER_MONTH, title=title, source=_LINES)
