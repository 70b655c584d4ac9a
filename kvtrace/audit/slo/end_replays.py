"""The replays that ask a saved instance again, at the ends of the cost model's constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

Replay = Callable[[Scenario], ReplayResult]


def replay_ends(
    claims: Sequence[Claim],
    today: ReplayResult | None,
    window: RequestTrace,
    stated: tuple[Deployment, Fleet],
    replay: Replay,
) -> tuple[EndFleet, ...]:
    """Every claim of saved instances at both ends; empty where nothing is claimed.

    `replay` replays a scenario on `window`; `today`, at the end, is the reference there.
    """
    wanted = tuple(dict.fromkeys(key for claim in claims for key in claim.runs))
    if not wanted:
        return ()
    return tuple(_replay_end(end, wanted, today, window, stated, replay) for end in ENDS)


def _replay_end(
    end: End,
    wanted: tuple[RunKey, ...],
    today: ReplayResult | None,
    window: RequestTrace,
    stated: tuple[Deployment, Fleet],
    replay: Replay,
) -> EndFleet:
    deployment = at_end(stated[0], moves=end.moves, prefill=end.prefill)
    fleet = worst_fleet(stated[1])
    made: dict[RunKey, ReplayResult] = {}

    def run(key: RunKey) -> ReplayResult | None:
        if key not in made:
            scenario = _scenario(key, deployment, fleet)
            if scenario is None:
                return None
            made[key] = replay(scenario)
        return made[key]

    reference = None if today is None else run(_key(today))
    checks = {}
    for key in wanted:
        result = run(key)
        if result is not None:
            slack_s = lookup_slack_s(stated[0], key.option_id)
            checks[key] = check_slo(window, result, reference or result, slack_s=slack_s)
    return EndFleet(end.title, checks, has_reference=reference is not None)


def _key(result: ReplayResult) -> RunKey:
    scenario = result.scenario
    return RunKey(scenario.option_id, scenario.instances, scenario.load_decision)


def _scenario(key: RunKey, deployment: Deployment, fleet: Fleet) -> Scenario | None:
    """Null for an option that is no preset."""
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
