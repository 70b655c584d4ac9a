"""How few instances each option needs, and what saves some asked at the ends of the constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.api.replays import Replays, WindowRuns
from kvtrace.audit.slo.check import check_slo, lookup_slack_s
from kvtrace.audit.slo.end_replays import replay_ends
from kvtrace.audit.slo.fleets import TODAY, build_fleets
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.exec.progress import Progress
from kvtrace.replay.presets import build_scenarios
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.search import smallest_fleet
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import RequestTrace

MOST_TIMES: Final = 2
"""The fleet search looks up to this many times today's instances."""


def builder(option_id: str, deployment: Deployment, fleet: Fleet) -> Callable[[int], Scenario]:
    """The scenario of an option on any number of instances, the pool of the stated fleet kept."""

    def build(instances: int) -> Scenario:
        sized = replace(fleet, instances=instances)
        return next(s for s in build_scenarios(deployment, sized) if s.option_id == option_id)

    return build


def search_fleets(
    replays: Replays, deployment: Deployment, fleet: Fleet, run: WindowRuns, watch: Progress
) -> dict[str, int]:
    """By option: the fewest instances whose replayed window keeps the SLO of today's fleet.

    Today is `hbm_only` on the fleet as it stands. An option that needs more than twice its
    instances is absent.
    """
    windowed = replays.windowed
    by_id = {result.scenario.option_id: result for result in replays.results}
    reference = by_id.get(TODAY)
    if windowed is None or reference is None:
        return {}
    searches = [
        _Search(option_id, deployment, fleet, reference, lookup_slack_s(deployment, option_id))
        for option_id in by_id
    ]
    watch.start("fleet search")
    answers = zip(by_id, run.each(_search, searches), strict=True)
    found = {option_id: least for option_id, least in answers if least is not None}
    watch.finish(f"{len(found)} of {len(by_id)} options keep the SLO at some size")
    return found


@dataclass(frozen=True, slots=True)
class _Search:
    """The fleet of one option that is looked for."""

    option_id: str
    deployment: Deployment
    fleet: Fleet
    reference: ReplayResult
    slack_s: float


def _search(windowed: WindowedTrace, asked: _Search) -> int | None:
    """The fewest instances; None: more than are looked at."""
    answer = smallest_fleet(
        windowed.trace,
        builder(asked.option_id, asked.deployment, asked.fleet),
        _keeps_slo_of(asked.reference, windowed.window, asked.slack_s),
        start=asked.fleet.instances,
        most=MOST_TIMES * asked.fleet.instances,
        warmup_requests=windowed.first,
    )
    return None if answer is None else answer[0]


def with_ends(
    replays: Replays,
    searched: Mapping[str, int],
    deployment: Deployment,
    fleet: Fleet,
    run: WindowRuns,
    watch: Progress,
) -> Replays:
    """The replays, with what saves whole instances asked again at the ends of the constants."""
    windowed = replays.windowed
    if windowed is None or not replays.results:
        return replays
    ids = [result.scenario.option_id for result in replays.results]
    fleets, as_asked = (
        build_fleets(
            windowed.window,
            replays.results,
            fewer=replays.fewer,
            arbiter=arbiter,
            searched=searched,
            slack_s={ident: lookup_slack_s(deployment, ident) for ident in ids},
        )
        for arbiter in (replays.arbiter, ())
    )
    claims = tuple(dict.fromkeys((*fleets.claims(), *as_asked.claims())))
    if not claims:
        return replays
    watch.start("ends of the constants")
    before = run.replays
    ends = replay_ends(claims, fleets.today, windowed.window, (deployment, fleet), run.all)
    watch.finish(f"{run.replays - before} replays")
    return replace(replays, ends=ends)


def _keeps_slo_of(
    reference: ReplayResult, window: RequestTrace, slack_s: float
) -> Callable[[ReplayResult], bool]:
    def is_kept(result: ReplayResult) -> bool:
        return check_slo(window, result, reference, slack_s=slack_s).is_kept

    return is_kept
