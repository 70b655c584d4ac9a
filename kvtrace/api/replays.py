"""Which requests are replayed, through which options, and on how many instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self, TypeVar

import numpy as np

from kvtrace.audit.options.isolation import long_prompts
from kvtrace.audit.options.kinds import is_local, is_pool, quantised_ids
from kvtrace.audit.options.mixes import MixFacts
from kvtrace.audit.slo.check import check_slo, lookup_slack_s
from kvtrace.audit.slo.ends import EndFleet
from kvtrace.audit.slo.fleets import Fleets, build_fleets, todays
from kvtrace.audit.thresholds import NET_NEGATIVE_SHARE
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.exec.progress import Progress
from kvtrace.exec.workers import Workers, enough_workers
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.catalogue import build_catalogue, find_option
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.option import Catalogue, ReplayOption
from kvtrace.replay.options.presets import with_arbiter
from kvtrace.replay.options.recipes import KV_ROUTING
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
LOCAL_OPTIONS: Final = (
    "as_observed",
    "hbm_only",
    "kv_routing",
    "dram_idle",
    "dram_idle_kv_routing",
)
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
    catalogue: Catalogue = field(default_factory=lambda: Catalogue(()))
    """What was replayed, and which options could not be."""
    ground: Ground | None = None
    """What the options were built on; null where nothing was replayed."""

    mixes: MixFacts = field(default_factory=MixFacts)
    """What the search over mixes did; its replays are among `results`."""

    @property
    def options(self) -> tuple[ReplayOption, ...]:
        """What was replayed in `results`, with what each option needs."""
        return self.catalogue.options

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


def ground_of(windowed: WindowedTrace, deployment: Deployment, fleet: Fleet) -> Ground:
    """The service, with the prompts of the window that isolation keeps apart."""
    ground = Ground(deployment=deployment, fleet=fleet)
    if not deployment.knows_times:
        return ground
    long = long_prompts(windowed.window, deployment.prefill, fleet.instances)
    return replace(ground, long_prompt_tokens=long.above_tokens, long_instances=long.instances)


def replay_options(run: WindowRuns, ground: Ground, watch: Progress, *, is_full: bool) -> Replays:
    """Replay the options for an audit, some also on one instance less or with an arbiter."""
    windowed = run.windowed
    catalogue = _replayable(windowed.trace, build_catalogue(ground, is_full=is_full))
    if not catalogue.options:
        return Replays()
    watch.start("replay")
    results = run.all([option.scenario for option in catalogue.options])
    routed = _best_pool_routed(_pools_as_they_are(results, catalogue), catalogue, ground)
    results = (*results, *run.all([option.scenario for option in routed]))
    catalogue = replace(catalogue, options=(*catalogue.options, *routed))
    fewer = _on_one_less(run, catalogue, results, ground)
    catalogue, results, fewer = _with_mixes(run, catalogue, results, fewer, ground)
    arbiter = run.all(_worth_an_arbiter(results))
    requests = windowed.trace.requests - windowed.first
    watch.finish(f"{len(results)} options, {run.replays} replays of {requests:,} requests")
    return Replays(windowed, results, fewer, arbiter, catalogue=catalogue, ground=ground)


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


def _replayable(trace: RequestTrace, catalogue: Catalogue) -> Catalogue:
    """Without blocks only recomputing can be told, without a clock nothing."""
    if not trace.has_clock:
        return Catalogue(())
    if trace.distinct_blocks == 0:
        return Catalogue(tuple(one for one in catalogue.options if not one.scenario.reuse))
    return catalogue


def _pools_as_they_are(results: Sequence[ReplayResult], catalogue: Catalogue) -> list[ReplayResult]:
    """Pools with KV in as many bits as today."""
    narrow = quantised_ids(catalogue.options)
    pools = (one for one in results if is_pool(one.scenario.option_id))
    return [one for one in pools if one.scenario.option_id not in narrow]


def _narrow_pools(results: Sequence[ReplayResult], catalogue: Catalogue) -> list[ReplayResult]:
    """Pools with KV of fewer bits that every depth replays."""
    narrow = quantised_ids(one for one in catalogue.options if one.is_quick)
    pools = (one for one in results if is_pool(one.scenario.option_id))
    return [one for one in pools if one.scenario.option_id in narrow]


def _nearest(pools: Sequence[ReplayResult]) -> list[str]:
    """Those that compete with the fastest of them."""
    limit_s = COMPETES_WITHIN * min(map(_mean_ttft_s, pools), default=0.0)
    return [one.scenario.option_id for one in pools if _mean_ttft_s(one) <= limit_s]


def _best_pool_routed(
    pools: Sequence[ReplayResult], catalogue: Catalogue, ground: Ground
) -> list[ReplayOption]:
    """The fastest pool with KV-centric routing; nothing where there is nothing to route."""
    if not pools or ground.fleet.instances < 2:
        return []
    best = min(pools, key=lambda r: (r.is_overloaded, _mean_ttft_s(r), r.scenario.option_id))
    found = find_option(best.scenario.option_id + KV_ROUTING, ground)
    if found is None:
        return []
    return [replace(found, is_quick=catalogue.by_id[best.scenario.option_id].is_quick)]


def is_routed_alone(scenario: Scenario) -> bool:
    """One instance has nothing to route: the option is another one again."""
    return scenario.instances == 1 and scenario.routing == "kv_centric"


def _on_one_less(
    run: WindowRuns, catalogue: Catalogue, results: Sequence[ReplayResult], ground: Ground
) -> tuple[ReplayResult, ...]:
    """The plain local options and the pools that compete with the fastest, on one instance less.

    Where a pool keeps the SLO there, all other rivals are asked, too: any may do as well.
    """
    pools = _pools_as_they_are(results, catalogue)
    if ground.fleet.instances < 2 or not pools:
        return ()
    smaller = ground.on(ground.fleet.instances - 1)
    first = {*LOCAL_OPTIONS, *_nearest(pools), *_nearest(_narrow_pools(results, catalogue))}
    known = [one.scenario.option_id for one in results]
    fewer = run.all(_resized([one for one in known if one in first], smaller))
    if not _is_pool_kept(run.windowed, catalogue, results, fewer, ground):
        return fewer
    able = (one.scenario.option_id for one in results if not one.is_overloaded)
    others = [one for one in able if is_local(one) and catalogue.by_id[one].is_quick]
    return (*fewer, *run.all(_resized([one for one in others if one not in first], smaller)))


def _with_mixes(
    run: WindowRuns,
    catalogue: Catalogue,
    results: tuple[ReplayResult, ...],
    fewer: tuple[ReplayResult, ...],
    ground: Ground,
) -> tuple[Catalogue, tuple[ReplayResult, ...], tuple[ReplayResult, ...]]:
    """And mixes without a pool that would else only be compared, where a pool is to save something.

    It may save it only because nobody asked a mix. Each is asked on one instance less; one that
    does not clearly miss the SLO there is a rival like the others.
    """
    today = todays(results)
    fleets = _judged(run.windowed, catalogue, results, fewer, ground)
    pools = [ident for ident in fleets.standings if is_pool(ident)]
    if today is None or not any(fleets.saved(one).without_reserve for one in pools):
        return catalogue, results, fewer
    asked = {one.scenario.option_id for one in fewer}
    every = _replayable(run.windowed.trace, build_catalogue(ground, is_full=True)).options
    mixes = {
        one.option_id: replace(one, is_quick=True)
        for one in every
        if is_local(one.option_id) and not one.is_quantised and one.option_id not in asked
    }
    tried = run.all(_resized(list(mixes), ground.on(ground.fleet.instances - 1)))
    able = [one for one in tried if not _is_clearly_missed(run.windowed, one, today, ground)]
    ids = [one.scenario.option_id for one in able]
    known = {one.scenario.option_id for one in results}
    more = run.all([mixes[one].scenario for one in ids if one not in known])
    options = [mixes[one.option_id] if one.option_id in ids else one for one in catalogue.options]
    new = [mixes[one] for one in ids if one not in catalogue.by_id]
    left = max(0, catalogue.left_to_full - len(new))
    catalogue = replace(catalogue, options=(*options, *new), left_to_full=left)
    return catalogue, (*results, *more), (*fewer, *able)


def _is_clearly_missed(
    windowed: WindowedTrace, result: ReplayResult, today: ReplayResult, ground: Ground
) -> bool:
    slack_s = lookup_slack_s(ground.deployment, result.scenario.option_id)
    target = ground.fleet.slo
    check = check_slo(windowed.window, result, today, slack_s=slack_s, target=target)
    return check.is_clearly_missed


def _resized(option_ids: Sequence[str], ground: Ground) -> list[Scenario]:
    found = [find_option(one, ground) for one in option_ids]
    return [one.scenario for one in found if one is not None]


def _is_pool_kept(
    windowed: WindowedTrace,
    catalogue: Catalogue,
    results: Sequence[ReplayResult],
    fewer: Sequence[ReplayResult],
    ground: Ground,
) -> bool:
    fleets = _judged(windowed, catalogue, results, fewer, ground)
    return any(is_pool(ident) and one.is_kept_with_fewer for ident, one in fleets.standings.items())


def _judged(
    windowed: WindowedTrace,
    catalogue: Catalogue,
    results: Sequence[ReplayResult],
    fewer: Sequence[ReplayResult],
    ground: Ground,
) -> Fleets:
    """As the audit will judge it, with the same tolerance for the lookup."""
    ids = [one.option_id for one in catalogue.options]
    return build_fleets(
        windowed.window,
        results,
        fewer=fewer,
        target=ground.fleet.slo,
        spare=ground.fleet.spare_count,
        slack_s={ident: lookup_slack_s(ground.deployment, ident) for ident in ids},
        options=catalogue.options,
    )


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
