"""Pooled options with their pool down, cold, or on one hot node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.api.fleet_loads import PeakHour
from kvtrace.api.fleet_questions import MOST_TIMES, stated_fleet
from kvtrace.api.replays import Replays, WindowRuns
from kvtrace.api.uncertainty_question import Asked, likely_pool
from kvtrace.audit.fleet.estimated_states import Degrading, estimated_states
from kvtrace.audit.fleet.facts import DegradedFacts, FleetFacts
from kvtrace.audit.fleet.record import DegradedState
from kvtrace.audit.fleet.states import Judge
from kvtrace.audit.options.kinds import is_pool
from kvtrace.audit.slo.check import check_against, lookup_slack_s
from kvtrace.audit.slo.fleets import TODAY, todays
from kvtrace.audit.slo.reference import Reference, reference_of
from kvtrace.audit.thresholds import HOT_NODE
from kvtrace.audit.window import arrival_span_s
from kvtrace.exec.progress import Progress, counted
from kvtrace.replay.degraded import (
    cold_window,
    hot_rate_share,
    with_cold_pool,
    with_hot_node,
    with_part_of_pool,
    without_pool,
)
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.search import smallest_count
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import RequestTrace

MOST_REPLAYED: Final = 12
"""Pools whose states `--depth full` replays at most; the others are a surrogate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DegradedSearch:
    """One pooled option on the fleet that it needs."""

    option_id: str
    instances: int
    ground: Ground
    pool_nodes: int
    """Over which its blocks lie; spare ones are not among them."""
    left: float | None
    """Of its capacity and rate with one node lost; null: it has no nodes of its own."""
    spare_nodes: int
    today: Reference
    is_full: bool
    """Also a restart that leaves HBM warm, and searches for the reserve."""
    down: ReplayResult | None
    """The same fleet without the pool, if it was replayed."""
    stated_carries: bool
    """The stated fleet is known to carry the load without the pool."""
    stated_at_slo: int | None
    """Instances that are known to keep the SLO without the pool."""

    @property
    def judge(self) -> Judge:
        """By what its states are judged."""
        slack_s = lookup_slack_s(self.ground.deployment, self.option_id)
        fleet = self.ground.fleet
        return Judge(self.today, fleet.slo, slack_s, fleet.gpus_per_instance)

    def scenario(self, instances: int) -> Scenario:
        """The option on so many instances."""
        return stated_fleet(self.ground).build(self.option_id, instances)


def degraded_modes(
    facts: FleetFacts,
    replays: Replays,
    peak: PeakHour,
    stated: Ground,
    run: WindowRuns,
    watch: Progress,
) -> FleetFacts:
    """The facts with degraded modes of all pools.

    Replayed: the best, at depth full as many of those that were searched as the budget allows. The
    others are a surrogate, from their warm replays and from what the best lost.
    """
    pools = [ident for ident in facts.options if is_pool(ident)]
    chosen = _replayed_ones(pools, facts, replays, stated)
    base = next(r for r in replays.results if r.scenario.option_id == facts.reference)
    is_same = replays.windowed is not None and peak.windowed.trace is replays.windowed.trace
    if not chosen or not peak.windowed.window.requests:
        return facts
    watch.start("degraded mode")
    if not is_same:
        base = run.all((base.scenario,))[0]
    today = reference_of(peak.windowed.window, base)
    known = (*replays.results, *replays.fewer) if is_same else ()
    options = {one.option_id: one for one in replays.options}
    searches = [_search(options[ident], facts, stated, today, known) for ident in chosen]
    found = tuple(run.each(degrade_option, searches))
    rest = _estimated([i for i in pools if i not in chosen], facts, replays, stated, found[0])
    most = MOST_REPLAYED if facts.is_searched else 1
    count = sum(one.replays for one in found)
    watch.finish(
        f"{len(found)} of {counted(len(pools), 'pool')} replayed (at most {most}), "
        f"{counted(count, 'replay')}; {len(rest)} by surrogate"
    )
    by_id = {one.option_id: one for one in (*found, *rest)}
    in_order = (*chosen, *(ident for ident in pools if ident not in chosen))
    degraded = tuple(by_id[ident] for ident in in_order if ident in by_id)
    return replace(facts, degraded=degraded, degraded_most_replayed=most)


def _replayed_ones(
    pools: Sequence[str], facts: FleetFacts, replays: Replays, stated: Ground
) -> list[str]:
    """The best pool first; at depth full those that were searched, within the budget."""
    if not pools:
        return []
    searched = [ident for ident in pools if facts.options[ident].is_searched]
    asked = Asked(replays, facts, stated.deployment, stated.fleet, None)
    best = _weighed(asked, pools)
    others = [ident for ident in searched if ident != best] if facts.is_searched else []
    return [best, *others][:MOST_REPLAYED]


def _estimated(
    pools: Sequence[str],
    facts: FleetFacts,
    replays: Replays,
    stated: Ground,
    best: DegradedFacts,
) -> list[DegradedFacts]:
    """The states of pools by surrogate, on the fewest instances that were replayed with the SLO
    kept, else on the stated ones.
    """
    base = todays(replays.results)
    if replays.windowed is None or base is None:
        return []
    trace = replays.windowed.window
    today = reference_of(trace, base)
    known = (*replays.results, *replays.fewer)
    options = {one.option_id: one for one in replays.options}
    found = []
    for ident in pools:
        search = _search(options[ident], facts, stated, today, known)
        warm = _kept_on_fewest(trace, search, [r for r in known if r.scenario.option_id == ident])
        instances = warm.scenario.instances
        degrading = Degrading(
            hot_factor=hot_rate_share(search.pool_nodes, HOT_NODE.value), left=search.left
        )
        down = search.down if search.instances == instances else None
        states = estimated_states(
            search.judge, trace, warm, degrading, down=down, pattern=best.states
        )
        found.append(
            DegradedFacts(
                option_id=ident,
                instances=instances,
                states=states,
                span_s=best.span_s,
                hot_share=HOT_NODE.value,
                pool_nodes=search.pool_nodes,
                reserve_instances=None,
                reserve_at_slo=None,
                replays=0,
                is_replayed=False,
                spare_nodes=search.spare_nodes,
            )
        )
    return found


def _kept_on_fewest(
    trace: RequestTrace, search: DegradedSearch, made: Sequence[ReplayResult]
) -> ReplayResult:
    """Of the replays of one option, on the fewest instances where the SLO is kept, else most."""
    judge = search.judge

    def is_kept(result: ReplayResult) -> bool:
        return check_against(
            trace, result, search.today, slack_s=judge.slack_s, target=judge.target
        ).is_kept

    kept = [one for one in made if is_kept(one)]
    if kept:
        return min(kept, key=lambda one: one.scenario.instances)
    return max(made, key=lambda one: one.scenario.instances)


def _pool_nodes(option: ReplayOption, stated: Ground) -> tuple[int, float | None, int]:
    """(nodes over which a pool lies, what is left of it without one, spare nodes).

    A file system and a managed cache have their own redundancy: nothing is known of their nodes,
    of which there are taken to be as many as the fleet's pool has.
    """
    fleet = stated.fleet
    if option.place == "peer_dram":
        nodes = max(1, fleet.gpu_nodes)
        return nodes, (nodes - 1) / nodes if nodes > 1 else None, 0
    nodes, spare = max(1, round(fleet.pool_nodes.value)), round(fleet.spare_pool_nodes.value)
    if not option.need.pool_nodes:
        return nodes, None, 0
    left = min(1.0, (nodes + spare - 1) / nodes)
    return nodes, left if left > 0 else None, spare


def _weighed(asked: Asked, pools: Sequence[str]) -> str:
    """The pool that the verdict will weigh, by its rule; without a price the first of `pools`."""
    best = likely_pool(asked)
    return best.option_id if best is not None and best.option_id in pools else pools[0]


def _search(
    option: ReplayOption,
    facts: FleetFacts,
    stated: Ground,
    today: Reference,
    known: tuple[ReplayResult, ...],
) -> DegradedSearch:
    fleet, ident = stated.fleet, option.option_id
    nodes, left, spare = _pool_nodes(option, stated)
    need = facts.options[ident].needs[0].instances
    instances = need or fleet.instances
    build = stated_fleet(stated).build
    without = without_pool(build(ident, instances))
    alike = [one for one in known if _is_same(one.scenario, without)]
    hbm = facts.options.get(TODAY)
    is_hbm = any(one.scenario.option_id == TODAY for one in alike)
    return DegradedSearch(
        option_id=ident,
        instances=instances,
        ground=stated,
        pool_nodes=nodes,
        left=left,
        spare_nodes=spare,
        today=today,
        is_full=facts.is_searched,
        down=next((one for one in alike if one.scenario.instances == instances), None),
        stated_carries=any(
            one.scenario.instances == fleet.instances and not one.is_overloaded for one in alike
        ),
        stated_at_slo=hbm.needs[0].instances if is_hbm and hbm is not None else None,
    )


def _is_same(one: Scenario, other: Scenario) -> bool:
    """But for instances: both without a tier below HBM, and alike in what is left."""
    return (
        not one.tiers
        and not other.tiers
        and one.reuse == other.reuse
        and one.routing == other.routing
        and one.isolation == other.isolation
        and one.kv_bytes_per_token == other.kv_bytes_per_token
        and one.hbm_capacity_bytes == other.hbm_capacity_bytes
    )


def degrade_option(windowed: WindowedTrace, search: DegradedSearch) -> DegradedFacts:
    """All states of one option, and the instances that its reserve takes."""
    scenario, window = search.scenario(search.instances), windowed.window
    judge, nodes = search.judge, search.pool_nodes
    down = search.down or _replay(windowed, without_pool(scenario))
    hot = _replay(windowed, with_hot_node(scenario, nodes=nodes, share=HOT_NODE.value))
    cold_states, span_s, made = _cold_states(windowed, scenario, judge, search)
    states = [
        *cold_states,
        judge.state("pool_down", window, down),
        judge.state("hot_node", window, hot),
    ]
    if search.left is not None:
        less = _replay(windowed, with_part_of_pool(scenario, search.left))
        states.append(judge.state("node_lost", window, less))
        made += 1
    reserve, at_slo, asked = _reserve(windowed, search, down)
    return DegradedFacts(
        option_id=search.option_id,
        instances=search.instances,
        states=tuple(states),
        span_s=span_s,
        hot_share=HOT_NODE.value,
        pool_nodes=nodes,
        spare_nodes=search.spare_nodes,
        reserve_instances=reserve,
        reserve_at_slo=at_slo,
        replays=1 + (search.down is None) + made + asked,
    )


def _replay(windowed: WindowedTrace, scenario: Scenario) -> ReplayResult:
    return simulate(windowed.trace, scenario, warmup_requests=windowed.first)


def _cold_states(
    windowed: WindowedTrace, scenario: Scenario, judge: Judge, search: DegradedSearch
) -> tuple[list[DegradedState], float, int]:
    """Warm, restarted and released, the seconds that they are replayed on, and the replays."""
    cold = cold_window(windowed)
    window = cold.window
    warm = _replay(cold, scenario)
    states = [judge.state("warm", window, warm)]
    if search.is_full:
        restarted = _replay(cold, with_cold_pool(scenario))
        states.append(judge.cold_state("pool_restarted", window, restarted, warm))
    released = _replay(WindowedTrace(window, 0), scenario)
    states.append(judge.cold_state("released", window, released, warm))
    return states, arrival_span_s(window) or 0.0, len(states)


def _reserve(
    windowed: WindowedTrace, search: DegradedSearch, down: ReplayResult
) -> tuple[int | None, int | None, int]:
    """Instances that carry the load, and that keep the SLO, without the pool; and the replays."""
    own, stated = search.instances, search.ground.fleet.instances
    if not search.is_full:
        carried = own if not down.is_overloaded else stated if search.stated_carries else None
        return carried, search.stated_at_slo, 0
    window = windowed.window
    made: dict[int, ReplayResult] = {own: down}

    def ask(instances: int) -> ReplayResult:
        if instances not in made:
            made[instances] = _replay(windowed, without_pool(search.scenario(instances)))
        return made[instances]

    def keeps(result: ReplayResult) -> bool:
        return check_against(window, result, search.today, target=search.ground.fleet.slo).is_kept

    most = max(own, MOST_TIMES * stated)
    carry = smallest_count(ask, lambda r: not r.is_overloaded, start=own, most=most)
    at_slo = smallest_count(ask, keeps, start=max(own, stated), most=most)
    return carry.count, at_slo.count, len(made) - 1
