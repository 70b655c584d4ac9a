"""The replays that ask a saved instance again, at the ends of the cost model's constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from kvtrace.audit.findings.check import is_pool
from kvtrace.audit.slo.check import check_slo, lookup_slack_s
from kvtrace.audit.slo.ends import ENDS, Claim, End, EndFleet, RunKey
from kvtrace.audit.uncertainty.sensitivity import at_end, end_of
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.presets import build_scenarios, with_arbiter
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.schema.arrays import RequestTrace

ReplayAll = Callable[[Sequence[Scenario]], Sequence[ReplayResult]]
"""Replays scenarios, in their order."""


def replay_ends(
    claims: Sequence[Claim],
    today: ReplayResult | None,
    window: RequestTrace,
    stated: tuple[Deployment, Fleet],
    replay_all: ReplayAll,
) -> tuple[EndFleet, ...]:
    """Every claim of saved instances at both ends; empty where nothing is claimed.

    `replay_all` replays scenarios on `window`; `today`, at the end, is the reference there.
    """
    wanted = tuple(dict.fromkeys(key for claim in claims for key in claim.runs))
    if not wanted:
        return ()
    asked = wanted if today is None else tuple(dict.fromkeys((key_of(today), *wanted)))
    cases = [(end, key, case) for end in ENDS for key, case in _scenarios(end, asked, stated)]
    results = replay_all([case for _, _, case in cases])
    made: dict[End, dict[RunKey, ReplayResult]] = {end: {} for end in ENDS}
    for (end, key, _), result in zip(cases, results, strict=True):
        made[end][key] = result
    return tuple(_checked(end, wanted, made[end], today, window, stated) for end in ENDS)


def _scenarios(
    end: End, keys: Sequence[RunKey], stated: tuple[Deployment, Fleet]
) -> Iterator[tuple[RunKey, Scenario]]:
    """The presets among the options at an end."""
    deployment = at_end(stated[0], moves=end.moves, prefill=end.prefill)
    fleet = worst_fleet(stated[1])
    for key in keys:
        scenario = scenario_of(key, deployment, fleet)
        if scenario is not None:
            yield key, scenario


def _checked(
    end: End,
    wanted: Sequence[RunKey],
    made: Mapping[RunKey, ReplayResult],
    today: ReplayResult | None,
    window: RequestTrace,
    stated: tuple[Deployment, Fleet],
) -> EndFleet:
    reference = None if today is None else made.get(key_of(today))
    checks = {}
    for key in wanted:
        result = made.get(key)
        if result is not None:
            slack_s = lookup_slack_s(stated[0], key.option_id)
            checks[key] = check_slo(
                window, result, reference or result, slack_s=slack_s, target=stated[1].slo
            )
    return EndFleet(end.title, checks, has_reference=reference is not None)


def key_of(result: ReplayResult) -> RunKey:
    """The replay that this one is."""
    scenario = result.scenario
    return RunKey(scenario.option_id, scenario.instances, scenario.load_decision)


def scenario_of(key: RunKey, deployment: Deployment, fleet: Fleet) -> Scenario | None:
    """The scenario of one replay; null for an option that is no preset."""
    sized = build_scenarios(deployment, replace(fleet, instances=key.instances))
    for scenario in sized:
        if scenario.option_id == key.option_id:
            is_sparing = key.load_decision == "arbiter" and is_pool(key.option_id)
            return with_arbiter(scenario) if is_sparing else scenario
    return None


def worst_fleet(fleet: Fleet) -> Fleet:
    """The fleet with the slowest pool ports and the most idle DRAM of its ranges.

    How many nodes and ports a pool has is a choice, no uncertainty, and stays.
    """
    return replace(
        fleet,
        pool_nic_bytes_per_s=end_of(fleet.pool_nic_bytes_per_s, high=False),
        pool_dram_bytes_per_s=end_of(fleet.pool_dram_bytes_per_s, high=False),
        node_network_bytes_per_s=end_of(fleet.node_network_bytes_per_s, high=False),
        dram_idle_bytes_per_instance=end_of(fleet.dram_idle_bytes_per_instance, high=True),
    )
