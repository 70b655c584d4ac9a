"""What an instance that is not needed any more is worth, by the contract of its GPUs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

import numpy as np

from kvtrace.audit.thresholds import BUSY_DAY
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.fleet import ContractKind, Fleet
from kvtrace.cost.interval import Interval
from kvtrace.cost.tco.contract import deferred_usd_per_month, paid_until
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import HOURS_PER_MONTH, NS_PER_S, S_PER_HOUR

Profile = Sequence[float]
"""Load of each hour over that of the busiest one, 0..1."""
_NO_PROFILE: Final = "the log covers no whole day, so that every hour is taken to be as it shows"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuWorth:
    """USD a month of what is given back."""

    kind: ContractKind
    instance_usd_per_month: Range
    """Of one instance (all its GPUs), if it is given back for every hour of the month."""
    profile: Profile | None
    """Where GPUs are paid by the hour and the log covers a day; else null."""
    paid_until: date | None = None
    """Until then they are paid whether used or not, and giving them back saves nothing."""
    note: str

    def usd_per_month(self, instances: Range, *, of: int) -> Range:
        """Worth of `instances` given back of a fleet of `of` at its peak."""
        if self.paid_until is not None:
            return Range.exact(0.0)
        whole = instances * self.instance_usd_per_month
        return whole.scaled(self.share_of_hours(instances.value, of=of))

    def share_of_hours(self, saved: float, *, of: int) -> float:
        """Part of the instance-hours that are given back: off the peak fewer instances run anyway.

        Formula: mean over the hours of (max(1, ceil(N f)) - max(1, ceil((N - k) f))) / k; f the
        load of the hour over the peak, N instances at the peak, k whole ones of them given back
        (one where less than one is).
        """
        if not self.profile:
            return 1.0
        gone = min(max(1, round(saved)), of)
        freed = [_needed(of, hour) - _needed(of - gone, hour) for hour in self.profile]
        return math.fsum(freed) / (gone * len(freed))


def _needed(instances: int, load: float) -> int:
    return max(1, math.ceil(instances * load - 1e-9))


def gpu_worth(
    fleet: Fleet, *, profile: Profile | None = None, today: date | None = None
) -> GpuWorth:
    """The worth by contract.

    elastic: the hours that are given back, at the price of an hour. owned: purchases deferred, so
    that the interest on their price is saved while the fleet grows into the GPUs. reserved:
    nothing before the last day, the price of every hour from then on. `today`: the last day of the
    log; null: no log or setting says it, and no contract counts as expired.
    """
    kind = fleet.contract.kind.value
    if kind == "owned":
        return GpuWorth(
            kind=kind,
            instance_usd_per_month=_range_of(
                deferred_usd_per_month(fleet, fleet.gpus_per_instance)
            ),
            profile=None,
            note="the GPUs are owned: an instance less defers the purchase of its GPUs, which "
            "saves the interest on their price a month, and nothing if the fleet does not grow",
        )
    hours = fleet.gpus_per_instance * HOURS_PER_MONTH
    hourly = _range_of(Interval.of(fleet.gpu_usd_per_hour).scaled(hours))
    if kind == "reserved":
        paid = paid_until(fleet, today)
        return GpuWorth(
            kind=kind,
            instance_usd_per_month=hourly,
            profile=None,
            paid_until=paid,
            note=_reserved_note(fleet.contract.until, today, is_over=paid is None),
        )
    return GpuWorth(
        kind=kind,
        instance_usd_per_month=hourly,
        profile=profile,
        note="the GPUs are paid by the hour"
        + (": off the peak fewer run anyway" if profile else f"; {_NO_PROFILE}"),
    )


def _reserved_note(until: date | None, today: date | None, *, is_over: bool) -> str:
    if until is None:
        return "the GPUs are reserved, and no last day is stated: giving them back saves nothing"
    if is_over:
        return f"the reservation ended on {until}: the next one is for fewer GPUs, every hour"
    known = "" if today else " (the log has no dates, so that it is not known to be over)"
    return f"the GPUs are reserved until {until}: nothing is saved before{known}"


def load_profile(trace: RequestTrace | None) -> Profile | None:
    """Prompt tokens of each whole hour over the busiest; null where no day is covered."""
    if trace is None or not trace.has_clock or not trace.requests:
        return None
    since = trace.arrived_at_ns - trace.arrived_at_ns[0]
    span_s = float(since[-1]) / NS_PER_S
    if span_s < BUSY_DAY.value:
        return None
    hour = since // (S_PER_HOUR * NS_PER_S)
    tokens = np.bincount(hour, weights=trace.prompt_tokens.astype(np.float64))
    whole = tokens[: max(1, int(span_s // S_PER_HOUR))]
    peak = float(tokens.max())
    return tuple((whole / peak).tolist()) if peak else None


def _range_of(usd: Interval) -> Range:
    return Range(usd.low, usd.value, usd.high)
