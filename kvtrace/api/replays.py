"""Which requests are replayed, through which options, and on how many instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Self, TypeVar

import numpy as np

from kvtrace.audit.findings.check import is_pool
from kvtrace.audit.slo.ends import EndFleet
from kvtrace.audit.thresholds import NET_NEGATIVE_SHARE
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.exec.progress import Progress
from kvtrace.exec.workers import Workers, enough_workers
from kvtrace.replay.engine import simulate
from kvtrace.replay.presets import build_scenarios, with_arbiter
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.summary import hit_costs
from kvtrace.replay.window import (
    WindowedTrace,
    peak_window_with_history,
    spread_arrivals,
    within_limit,
)
from kvtrace.scenarios.running import PROCESS_BYTES, REQUEST_BYTES, REQUEST_S
from kvtrace.schema.arrays import IntArray, RequestTrace

Spec = TypeVar("Spec")
Result = TypeVar("Result")
LOCAL_OPTIONS: Final = ("hbm_only", "kv_routing", "dram_idle", "dram_idle_kv_routing")
USUAL_REPLAYS: Final = 10
"""What an audit replays at least, where a pool can be compared."""
COMPETES_WITHIN: Final = 1.25
"""Pools whose mean TTFT is within this factor of the fastest are asked for one instance less."""


@dataclass(frozen=True, slots=True)
class Replays:
    """The replays of a dataset; empty where nothing can be replayed."""

    windowed: WindowedTrace | None = None
    results: tuple[ReplayResult, ...] = ()
    fewer: tuple[ReplayResult, ...] = ()
    """The same window on one instance less: the local options and the best pool."""
    arbiter: tuple[ReplayResult, ...] = ()
    """Pools with many net-negative hits, loading only what is priced below recomputing."""
    ends: tuple[EndFleet, ...] = ()
    """What saves whole instances, at the ends of the model's constants."""

    @property
    def trace(self) -> RequestTrace | None:
        """Exactly the requests that the results are about."""
        return self.windowed.window if self.windowed is not None and self.results else None

    @property
    def history(self) -> int:
        """Requests before the window, which warmed the caches."""
        return 0 if self.windowed is None else self.windowed.first

    @property
    def window_reusable_tokens(self) -> IntArray | None:
        """(requests,) of `trace`: reusable with all history before each request."""
        if self.windowed is None or not self.results:
            return None
        return np.asarray(reusable_tokens(self.windowed.trace)[self.windowed.scored])


def accepted(trace: RequestTrace, deployment: Deployment) -> tuple[RequestTrace, int]:
    """The requests that an instance can hold, and how many it would refuse."""
    return within_limit(trace, deployment.group_cache_bytes / deployment.kv_bytes_per_token)


def choose_window(
    whole: RequestTrace, *, is_full: bool, seed: int, work_tokens: IntArray | None = None
) -> WindowedTrace:
    """The busiest hour with the history before it, or everything; coarse arrivals are spread.

    `work_tokens` (requests,) is what a request has to compute; None: its whole prompt.
    """
    if is_full:
        windowed = WindowedTrace(whole, 0)
    else:
        windowed = peak_window_with_history(whole, work_tokens=work_tokens)
    return WindowedTrace(spread_arrivals(windowed.trace, seed), windowed.first)


def replay_options(
    run: WindowRuns, deployment: Deployment, fleet: Fleet, watch: Progress
) -> Replays:
    """Replay the options for an audit, some also on one instance less or with an arbiter."""
    windowed = run.windowed
    scenarios = _scenarios(windowed.trace, build_scenarios(deployment, fleet))
    if not scenarios:
        return Replays()
    watch.start("replay")
    results = run.all(scenarios)
    fewer = run.all(_on_one_less(results, deployment, fleet))
    arbiter = run.all(_worth_an_arbiter(results))
    replays = len(results) + len(fewer) + len(arbiter)
    requests = windowed.trace.requests - windowed.first
    watch.finish(f"{len(results)} options, {replays} replays of {requests:,} requests")
    return Replays(windowed, results, fewer, arbiter)


class WindowRuns:
    """Replays of one window, counted; a context manager that may hold processes."""

    def __init__(
        self, windowed: WindowedTrace, watch: Progress, *, workers: int | None = None
    ) -> None:
        """`workers` processes; None: as many as are worth their start."""
        self.windowed = windowed
        self._watch = watch
        requests = windowed.trace.requests
        count = enough_workers(
            workers,
            tasks=USUAL_REPLAYS,
            seconds=USUAL_REPLAYS * requests * REQUEST_S,
            bytes_each=PROCESS_BYTES + requests * REQUEST_BYTES,
        )
        self._pool = Workers(windowed, count=count)
        self.replays = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._pool.close()

    def all(self, scenarios: Sequence[Scenario]) -> tuple[ReplayResult, ...]:
        """One replay a scenario, in their order."""
        found = self.each(replay_window, scenarios)
        self.replays += len(found)
        # A result that comes from another process names a copy of its scenario.
        pairs = zip(found, scenarios, strict=True)
        return tuple(replace(result, scenario=scenario) for result, scenario in pairs)

    def each(
        self, fn: Callable[[WindowedTrace, Spec], Result], specs: Sequence[Spec]
    ) -> list[Result]:
        """What a function of a module makes of the window and each spec, in their order."""
        rows = self.windowed.trace.requests - self.windowed.first
        return self._pool.ordered(fn, specs, on_result=partial(self._watch.advance, rows=rows))


def replay_window(windowed: WindowedTrace, scenario: Scenario) -> ReplayResult:
    """The replay of the window's requests; those before it warm the caches."""
    return simulate(windowed.trace, scenario, warmup_requests=windowed.first)


def _scenarios(trace: RequestTrace, scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Without blocks only recomputing can be told, without a clock nothing."""
    if not trace.has_clock:
        return []
    if trace.distinct_blocks == 0:
        return [scenario for scenario in scenarios if not scenario.reuse]
    return [scenario for scenario in scenarios if not is_routed_alone(scenario)]


def is_routed_alone(scenario: Scenario) -> bool:
    """One instance has nothing to route: the option is another one again."""
    return scenario.instances == 1 and scenario.routing == "kv_centric"


def _on_one_less(
    results: Sequence[ReplayResult], deployment: Deployment, fleet: Fleet
) -> list[Scenario]:
    """The local options and the pools that compete with the fastest, on one instance less."""
    pools = [result for result in results if is_pool(result.scenario.option_id)]
    if fleet.instances < 2 or not pools:
        return []
    fastest_s = min(map(_mean_ttft_s, pools))
    near = [
        result.scenario.option_id
        for result in pools
        if _mean_ttft_s(result) <= COMPETES_WITHIN * fastest_s
    ]
    smaller = build_scenarios(deployment, replace(fleet, instances=fleet.instances - 1))
    return [one for one in smaller if one.option_id in (*LOCAL_OPTIONS, *near)]


def _mean_ttft_s(result: ReplayResult) -> float:
    return float(result.timeline.ttft_s.mean())


def _worth_an_arbiter(results: Sequence[ReplayResult]) -> list[Scenario]:
    """Pools with so many net-negative hits that a finding will say so."""
    chosen = []
    for result in results:
        costs = hit_costs(result)
        pooled = is_pool(result.scenario.option_id)
        if pooled and costs.net_negative_hits > NET_NEGATIVE_SHARE.value * costs.hits:
            chosen.append(with_arbiter(result.scenario))
    return chosen
