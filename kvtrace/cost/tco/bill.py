"""A bill: what an option needs, line by line, in USD a month."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kvtrace.cost.evidence import Constant
from kvtrace.cost.interval import Interval

ZERO = Interval(0.0, 0.0, 0.0)
Group = Literal[
    "nodes", "dram", "ssd", "network", "power", "people", "software", "financing", "rent", "gpus"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One line: quantity x unit price."""

    id: str
    """Fixed, such as `pool_dram`."""
    title: str
    group: Group
    quantity: float
    unit: str
    """Of the quantity."""
    price: Constant
    """Of one unit, with source, interval and date."""
    capex_usd: Interval = ZERO
    """To be paid once."""
    capex_usd_per_month: Interval = ZERO
    """The same, straight-line over the amortisation."""
    opex_usd_per_month: Interval = ZERO
    note: str = ""
    """What else the line follows from."""

    @property
    def usd_per_month(self) -> Interval:
        """Both parts."""
        return self.capex_usd_per_month + self.opex_usd_per_month


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """All lines of one option; a line whose quantity is zero is left out."""

    lines: tuple[BillLine, ...]
    idle_dram_at_cost: Interval = ZERO
    """USD a month that the idle DRAM it takes would cost if it were bought; not in the sum."""
    gaps: tuple[str, ...] = ()
    """What could not be priced, and why; the sum is then too low."""
    kwh_per_month: Interval = ZERO
    """At the meter, cooling included; of rented nodes too."""
    kg_co2_per_month: Interval = ZERO

    @property
    def capex_usd(self) -> Interval:
        """To be paid at once."""
        return total(line.capex_usd for line in self.lines)

    @property
    def opex_usd_per_month(self) -> Interval:
        """Running cost, financing included."""
        return total(line.opex_usd_per_month for line in self.lines)

    @property
    def usd_per_month(self) -> Interval:
        """All of it."""
        return total(line.usd_per_month for line in self.lines)


def total(parts: Iterable[Interval]) -> Interval:
    """Sum of intervals, exact in the order given."""
    found = list(parts)
    return Interval(
        math.fsum(one.low for one in found),
        math.fsum(one.value for one in found),
        math.fsum(one.high for one in found),
    )
