"""What a case of the verdict is built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kvtrace.audit.bounds import window_reusable_tokens
from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import GpuWorth
from kvtrace.audit.record import Data, NextMeasurement, Option, Reuse
from kvtrace.audit.slo.fleets import Fleets
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.uncertainty.sensitivity import prefill_factor
from kvtrace.audit.verdict.cases import PoolCase
from kvtrace.audit.verdict.circumstances import Circumstances
from kvtrace.audit.view import Row
from kvtrace.audit.window import arrival_span_s
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import PrefillTime
from kvtrace.schema.arrays import IntArray, RequestTrace


@dataclass(frozen=True, kw_only=True)
class Weighing:
    """What a case is built from."""

    data: Data
    reuse: Reuse
    fleet: Fleet
    bills: Bills
    worth: GpuWorth
    deployment: Deployment
    prefill: PrefillTime | None
    """Of one instance, for the bound without a replay; null where the FLOPs are not known."""
    options: Sequence[Option]
    fleets: Fleets
    trace: RequestTrace | None
    """The replayed requests."""
    whole_trace: RequestTrace | None
    """All requests that they were taken from; null: not at hand."""
    window_reusable: IntArray | None
    """Of the replayed requests, with the history before them; null: unknown."""
    warmup_requests: int
    refused_requests: int
    """Left out of all traces: no instance can hold them."""
    prompt_buckets: Sequence[Row]
    """Rows of `reuse/by_prompt_bucket`: prompts by length, for the estimate without a replay."""
    unconfirmed: tuple[str, ...]
    next_measurement: NextMeasurement | None
    around: Circumstances = field(default_factory=Circumstances)
    free_prefill_saves: int | None = None
    """Instances that replays give back where no prefill takes any time; null: not replayed. At
    quick one less was asked."""
    tiers_below_hbm: str | None = None
    """How the logs show that the running system has a tier below HBM; null: they do not."""

    @property
    def results(self) -> list[ReplayResult]:
        """One per option: the better of its load decisions."""
        return [standing.result for standing in self.fleets.standings.values()]

    @property
    def rival(self) -> ReplayResult | None:
        """The best option without a pool that costs nothing."""
        rival = self.fleets.rival
        return None if rival is None else rival.result

    def rival_of(self, pool: PoolCase) -> ReplayResult | None:
        """The replay of the option that the pool is weighed against."""
        if pool.rival is None:
            return self.rival
        return self.fleets.standings[pool.rival.option_id].result

    @property
    def is_whole(self) -> bool:
        """The replayed requests are all that were served."""
        is_enough = self.trace is not None and self.trace.requests >= self._served
        return is_enough and not self.is_raised

    @property
    def is_raised(self) -> bool:
        """The replayed load is that of a busier day than was logged, so the log bounds nothing."""
        return self.fleet.is_raised

    @property
    def everything(self) -> RequestTrace | None:
        """All requests that were served, where they are at hand; null where some are not."""
        if self.is_whole:
            return self.trace
        whole = None if self.is_raised else self.whole_trace
        return whole if whole is not None and whole.requests >= self._served else None

    @property
    def _served(self) -> int:
        served = self.data.requests_by_status.get("ok", self.data.requests)
        return served - self.refused_requests

    @property
    def arrival_span_s(self) -> float | None:
        """Of the replayed requests, else of the data; null without a clock."""
        if self.trace is None or not self.fleets.standings:
            return self.data.span_s or None
        return arrival_span_s(self.trace) or None

    @cached_property
    def factor(self) -> Range:
        """Prefill seconds over the range of the GEMM efficiency."""
        return prefill_factor(self.deployment)


def window_reusable(
    given: IntArray | None,
    trace: RequestTrace | None,
    *,
    whole: RequestTrace | None,
    is_whole: bool,
) -> IntArray | None:
    """(requests,) reusable tokens of the replayed requests with their history; null: unknown."""
    if trace is None or given is not None:
        return given
    return window_reusable_tokens(trace, whole=whole, is_whole=is_whole)
