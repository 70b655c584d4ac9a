"""One state of a degraded pool, and all of an option, as the record shows them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvtrace.audit.fleet.facts import DegradedFacts
from kvtrace.audit.fleet.record import Degraded, DegradedState, State
from kvtrace.audit.fleet.rewarm import hit_tokens, requests_before, rewarm_s
from kvtrace.audit.slo.check import check_against
from kvtrace.audit.slo.fleets import Saved
from kvtrace.audit.slo.limits import is_within, limits_of
from kvtrace.audit.slo.reference import Reference
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import gpu_seconds, percentiles
from kvtrace.schema.arrays import BoolArray, RequestTrace
from kvtrace.units import DAYS_PER_MONTH, S_PER_HOUR


@dataclass(frozen=True, slots=True)
class Judge:
    """What the states of an option are judged by."""

    today: Reference
    target: SloTarget
    slack_s: float
    gpus_per_instance: int

    def state(self, name: State, trace: RequestTrace, result: ReplayResult) -> DegradedState:
        """`result`, a replay of `trace`, in numbers."""
        check = check_against(trace, result, self.today, slack_s=self.slack_s, target=self.target)
        prompt = int(trace.prompt_tokens.sum())
        return DegradedState(
            state=name,
            requests=trace.requests,
            within=int(np.count_nonzero(self.within(trace, result))),
            keeps_slo=check.is_kept,
            carries_load=not result.is_overloaded,
            hit_ratio_tokens=int(hit_tokens(result).sum()) / prompt if prompt else None,
            ttft_p99_s=percentiles(result.timeline.ttft_s)[3],
            slo=str(check),
        )

    def cold_state(
        self, name: State, trace: RequestTrace, cold: ReplayResult, warm: ReplayResult
    ) -> DegradedState:
        """The same of a replay that began cold, beside the warm one."""
        state = self.state(name, trace, cold)
        within, warm_within = self.within(trace, cold), self.within(trace, warm)
        seconds = rewarm_s(trace, cold, warm)
        state.rewarm_s, state.is_rewarmed = seconds, seconds is not None
        state.requests_rewarming = (
            trace.requests if seconds is None else requests_before(trace, seconds)
        )
        state.within_rewarming = int(np.count_nonzero(within[: state.requests_rewarming]))
        state.late_more = int(np.count_nonzero(warm_within)) - int(np.count_nonzero(within))
        again_s = gpu_seconds(cold) - gpu_seconds(warm)
        state.recomputed_gpu_s = again_s * self.gpus_per_instance
        return state

    def within(self, trace: RequestTrace, result: ReplayResult) -> BoolArray:
        """(requests,) within the SLO."""
        return is_within(result, limits_of(trace, self.target, self.today))


def build_degraded(facts: DegradedFacts, saved: Saved, fleet: Fleet) -> Degraded:
    """With what is saved, and what releases cost a month."""
    released = next((one for one in facts.states if one.state == "released"), None)
    days = fleet.release_days.value
    releases = DAYS_PER_MONTH / days if days > 0 else None
    monthly = Degraded(
        option=facts.option_id,
        instances=facts.instances,
        states=list(facts.states),
        span_s=facts.span_s,
        hot_share=facts.hot_share,
        pool_nodes=facts.pool_nodes,
        reserve_instances=facts.reserve_instances,
        reserve_at_slo=facts.reserve_at_slo,
        saved=saved.without_reserve,
        saved_with_reserve=saved.at_least,
        is_replayed=facts.is_replayed,
        spare_nodes=facts.spare_nodes,
        releases_per_month=releases,
    )
    if releases is None or released is None:
        return monthly
    if released.rewarm_s is not None:
        monthly.cold_s_per_month = releases * released.rewarm_s
    if released.late_more is not None:
        monthly.late_requests_per_month = releases * max(0, released.late_more)
    if released.recomputed_gpu_s is not None:
        hours = max(0.0, released.recomputed_gpu_s) / S_PER_HOUR
        monthly.recomputed_gpu_hours_per_month = releases * hours
    return monthly
