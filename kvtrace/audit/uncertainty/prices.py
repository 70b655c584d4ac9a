"""Net value of a pool a month as exact arithmetic of prices, given the instances that it saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import GpuWorth, gpu_worth
from kvtrace.audit.uncertainty.unknowns import Unknown, unknown_of
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.fleet.prices import price_names
from kvtrace.schema.arrays import FloatArray

_PRICE: Final = "prices."
_BILL: Final = "an offer, a bill or a time sheet, in the file of `--fleet`"


@dataclass(frozen=True)
class PriceModel:
    """What saved instances are worth and what the option costs, at any prices."""

    option_id: str
    bills: Bills
    worth: GpuWorth
    net_of: str | None = None
    """A rival whose cost is taken off that of the option; null: none costs anything."""

    @property
    def fleet(self) -> Fleet:
        """The fleet, at the prices as they are taken."""
        return self.bills.fleet

    @cached_property
    def _constants(self) -> dict[str, Constant]:
        fleet = self.fleet
        known = (fleet.gpu_usd_per_hour, *(fleet.prices[name] for name in price_names()))
        return {one.id: one for one in known}

    @cached_property
    def unknowns(self) -> tuple[Unknown, ...]:
        """The prices that have a range and change the net value of one saved instance."""
        found = []
        for ident, constant in self._constants.items():
            line = f"prices.{ident.removeprefix(_PRICE)} = {constant.value:g}"
            one = unknown_of(constant, settle=_BILL, line=line)
            if one is not None and self._matters(one):
                found.append(one)
        return tuple(found)

    def _matters(self, one: Unknown) -> bool:
        return self.net(1.0, {one.id: one.low}) != self.net(1.0, {one.id: one.high})

    def net(self, instances: float, prices: Mapping[str, float]) -> float:
        """USD a month: worth of the instances, less the cost of the option beyond its rival.

        `prices` by id; what is absent stays at its value.

        Raises:
            ValueError: the cost of the option is not known.
        """
        instance_usd, cost = self.amounts(prices)
        return float(self.given_back(np.array([instances]))[0]) * instance_usd - cost

    def given_back(self, instances: FloatArray) -> FloatArray:
        """(n,) instance-months that are not paid any more, for these instances given back.

        Less than the instances where fewer run off the peak anyway; none under a contract that is
        paid whether they are used or not.
        """
        if self.worth.paid_until is not None:
            return np.zeros_like(instances)
        steps = np.maximum(1, np.round(instances))
        of = self.fleet.instances
        shares = {step: self.worth.share_of_hours(step, of=of) for step in np.unique(steps)}
        return np.asarray(instances * np.array([shares[step] for step in steps]))

    def amounts(self, prices: Mapping[str, float]) -> tuple[float, float]:
        """USD a month of one instance given back for all hours, and of the option beyond its rival.

        Raises:
            ValueError: the cost of the option is not known.
        """
        fleet = self._at(prices)
        bills = replace(self.bills, fleet=fleet)
        cost = _cost(bills, self.option_id)
        if self.net_of is not None:
            cost -= _cost(bills, self.net_of)
        return gpu_worth(fleet).instance_usd_per_month.value, cost

    def _at(self, prices: Mapping[str, float]) -> Fleet:
        fleet = self.fleet
        if not prices:
            return fleet
        moved = {
            ident: replace(self._constants[ident], value=value, low=None, high=None)
            for ident, value in prices.items()
        }
        gpu = moved.pop(fleet.gpu_usd_per_hour.id, fleet.gpu_usd_per_hour)
        others = (one for one in fleet.prices.stated if one.id not in moved)
        stated = replace(fleet.prices, stated=(*moved.values(), *others))
        return replace(fleet, gpu_usd_per_hour=gpu, prices=stated)


def _cost(bills: Bills, option_id: str) -> float:
    """USD a month."""
    cost = bills.usd_per_month(option_id)
    if cost is None:
        raise ValueError(f"no cost is known for {option_id}")
    return cost.value
