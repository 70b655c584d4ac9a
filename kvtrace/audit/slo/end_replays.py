"""The replays that ask a saved instance again, at the ends of the cost model's constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from kvtrace.audit.options.kinds import is_pool
from kvtrace.audit.slo.check import check_slo, lookup_slack_s
from kvtrace.audit.slo.ends import ENDS, Claim, End, EndFleet, RunKey
from kvtrace.audit.uncertainty.sensitivity import at_end, end_of
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.options.catalogue import find_option
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.presets import with_arbiter
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.schema.arrays import RequestTrace

ReplayAll = Callable[[Sequence[Scenario]], Sequence[ReplayResult]]
"""Replays scenarios, in their order."""


def replay_ends(
    claims: Sequence[Claim],
    today: ReplayResult | None,
    window: RequestTrace,
    stated: Ground,
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
    end: End, keys: Sequence[RunKey], stated: Ground
) -> Iterator[tuple[RunKey, Scenario]]:
    """The options at an end, as far as they are of the catalogue."""
    ground = replace(
        stated,
        deployment=at_end(stated.deployment, moves=end.moves, prefill=end.prefill),
        fleet=worst_fleet(stated.fleet),
        has_slow_ports=end.moves == "slow",
    )
    for key in keys:
        scenario = scenario_of(key, ground)
        if scenario is not None:
            yield key, scenario


def _checked(
    end: End,
    wanted: Sequence[RunKey],
    made: Mapping[RunKey, ReplayResult],
    today: ReplayResult | None,
    window: RequestTrace,
    stated: Ground,
) -> EndFleet:
    reference = None if today is None else made.get(key_of(today))
    checks = {}
    for key in wanted:
        result = made.get(key)
        if result is not None:
            slack_s = lookup_slack_s(stated.deployment, key.option_id)
            checks[key] = check_slo(
                window, result, reference or result, slack_s=slack_s, target=stated.fleet.slo
            )
    return EndFleet(end.title, checks, has_reference=reference is not None)


def key_of(result: ReplayResult) -> RunKey:
    """The replay that this one is."""
    scenario = result.scenario
    return RunKey(scenario.option_id, scenario.instances, scenario.load_decision)


def scenario_of(key: RunKey, ground: Ground) -> Scenario | None:
    """The scenario of one replay; null for an option that is not of the catalogue."""
    found = find_option(key.option_id, ground.on(key.instances))
    if found is None:
        return None
    is_sparing = key.load_decision == "arbiter" and is_pool(key.option_id)
    return with_arbiter(found.scenario) if is_sparing else found.scenario


def worst_fleet(fleet: Fleet) -> Fleet:
    """The fleet with the slowest pool ports and the most idle DRAM of its ranges.

    How many nodes and ports a pool has is a choice, no uncertainty, and stays.
    """
    return replace(
        fleet,
        pool_nic_bytes_per_s=end_of(fleet.pool_nic_bytes_per_s, high=False),
        pool_dram_bytes_per_s=end_of(fleet.pool_dram_bytes_per_s, high=False),
        node_network_bytes_per_s=end_of(fleet.node_network_bytes_per_s, high=False),
        storage_network_bytes_per_s=end_of(fleet.storage_network_bytes_per_s, high=False),
        dram_idle_bytes_per_instance=end_of(fleet.dram_idle_bytes_per_instance, high=True),
    )
