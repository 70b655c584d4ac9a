"""What is asked at every point of a design: the weighed pool, its rivals, and the claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from kvtrace.api.replays import Replays, replay_window
from kvtrace.audit.fleet.facts import FleetFacts
from kvtrace.audit.money.bills import build_bills
from kvtrace.audit.money.gpu_worth import gpu_worth, load_profile
from kvtrace.audit.slo.check import lookup_slack_s
from kvtrace.audit.slo.end_replays import key_of, scenario_of
from kvtrace.audit.slo.ends import Claim, RunKey
from kvtrace.audit.slo.fleets import Fleets, build_fleets
from kvtrace.audit.thresholds import INPUT_MATTERS
from kvtrace.audit.uncertainty.design import Response
from kvtrace.audit.uncertainty.replayed_inputs import (
    alone_s,
    candidate_unknowns,
    stated_at,
    with_errors,
)
from kvtrace.audit.uncertainty.responses import PointRuns, response_of
from kvtrace.audit.uncertainty.sensitivity import prefill_factor
from kvtrace.audit.uncertainty.target import target_claim
from kvtrace.audit.uncertainty.unknowns import Unknown
from kvtrace.audit.verdict.cases import PoolCase, choose_pool
from kvtrace.audit.verdict.pools import PoolPrices, pool_cases
from kvtrace.audit.window import arrival_span_s
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import IntArray, RequestTrace


@dataclass(frozen=True, slots=True)
class Asked:
    """What an audit has before the replays of a design."""

    replays: Replays
    facts: FleetFacts | None
    """The instances that each option needs."""
    deployment: Deployment
    fleet: Fleet
    conversation: IntArray | None
    """(requests,) of the window that is replayed; null: not known."""
    where: str = ""
    """What of the replayed options' requests that window is, for people; empty: all."""
    today: date | None = None
    """The last day of the log, as the verdict's bills have it; null: no log or report says it."""
    windows_per_day: float | None = None
    """Replayed loads in a day; null: unknown, and what a replay moves is not billed."""
    whole: RequestTrace | None = None
    """All requests, whose hours elastic GPUs are paid by; null: not at hand."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked at every point."""

    option_id: str
    rival_id: str
    claim: Claim | None
    instances: int
    """That the claim saves."""
    today: RunKey | None
    pool: RunKey
    rival: RunKey
    median_bytes: float
    """Of the moves of the pool at the middle; 0 without any."""
    deployment: Deployment
    fleet: Fleet
    ground: Ground

    @property
    def keys(self) -> tuple[RunKey, ...]:
        """All replays of one point, each once."""
        own = [self.pool, self.rival, *([] if self.today is None else [self.today])]
        return tuple(dict.fromkeys((*own, *(() if self.claim is None else self.claim.runs))))

    @property
    def is_buildable(self) -> bool:
        """All options are presets, so that they can be built at other values of the inputs."""
        return len(self.at({}).scenarios) == len(self.keys)

    def at(self, values: Mapping[str, float]) -> Point:
        """The replays at these values of the inputs, by id."""
        deployment, fleet = stated_at(self.deployment, self.fleet, values)
        ground = replace(self.ground, deployment=deployment, fleet=fleet)
        made = ((key, scenario_of(key, ground)) for key in self.keys)
        scenarios = {key: with_errors(one, values) for key, one in made if one is not None}
        return Point(self, scenarios)


@dataclass(frozen=True, slots=True)
class Point:
    """The scenarios of one point."""

    question: Question
    scenarios: Mapping[RunKey, Scenario]

    def replayed(self, windowed: WindowedTrace) -> PointRuns:
        """All of them, replayed on the window."""
        question = self.question
        made = {key: replay_window(windowed, one) for key, one in self.scenarios.items()}
        return PointRuns(
            reference=None if question.today is None else made[question.today],
            pool=made[question.pool],
            rival=made[question.rival],
            runs=made,
            slack_s=_slack(question.deployment, (key.option_id for key in made)),
            target=question.fleet.slo,
        )


def respond(windowed: WindowedTrace, point: Point) -> Response:
    """What the replays at one point say; replays stay in the process that made them."""
    return response_of(windowed.window, point.replayed(windowed), point.question.claim)


def question_of(asked: Asked) -> Question | None:
    """The pool that the verdict will name, and the claim about it."""
    fleets = _fleets(asked)
    windowed, best = asked.replays.windowed, likely_pool(asked)
    if fleets is None or windowed is None or best is None or best.rival is None:
        return None
    if not best.is_feasible:
        return None
    against = None if best.net_of is None else (best.rival.option_id,)
    found = target_claim(fleets, best.option_id, against=against)
    claim, instances = (None, 0) if found is None else found
    pool = fleets.standings[best.option_id].result
    moved = pool.timeline.moved_bytes
    question = Question(
        option_id=best.option_id,
        rival_id=best.rival.option_id,
        claim=claim,
        instances=instances,
        today=None if fleets.today is None else key_of(fleets.today),
        pool=key_of(pool),
        rival=key_of(fleets.standings[best.rival.option_id].result),
        median_bytes=float(np.median(moved[moved > 0])) if (moved > 0).any() else 0.0,
        deployment=asked.deployment,
        fleet=asked.fleet,
        ground=asked.replays.ground or Ground(deployment=asked.deployment, fleet=asked.fleet),
    )
    return question if question.is_buildable else None


def likely_pool(asked: Asked) -> PoolCase | None:
    """The pool that the verdict will weigh, by its rule and at its prices; null: none, or a load
    without a span.
    """
    fleets, windowed = _fleets(asked), asked.replays.windowed
    span_s = None if windowed is None else arrival_span_s(windowed.window)
    if fleets is None or not span_s:
        return None
    options = asked.replays.options
    prices = PoolPrices(
        build_bills(
            asked.fleet,
            options,
            asked.replays.results,
            windows_per_day=asked.windows_per_day,
            today=asked.today,
        ),
        gpu_worth(asked.fleet, profile=load_profile(asked.whole), today=asked.today),
        span_s,
        prefill_factor(asked.deployment),
    )
    return choose_pool(tuple(pool_cases(fleets, prices)))


def _fleets(asked: Asked) -> Fleets | None:
    replays = asked.replays
    if replays.windowed is None or not replays.results:
        return None
    ids = (result.scenario.option_id for result in replays.results)
    return build_fleets(
        replays.windowed.window,
        replays.results,
        fewer=replays.fewer,
        arbiter=replays.arbiter,
        searched={} if asked.facts is None else asked.facts.at_slo,
        least={} if asked.facts is None else asked.facts.least,
        carried={} if asked.facts is None else asked.facts.carried,
        reserves={} if asked.facts is None else asked.facts.reserves,
        target=asked.fleet.slo,
        spare=asked.fleet.spare_count,
        slack_s=_slack(asked.deployment, ids),
        ends=replays.ends,
        options=replays.options,
    )


def _slack(deployment: Deployment, option_ids: Iterable[str]) -> dict[str, float]:
    return {ident: lookup_slack_s(deployment, ident) for ident in option_ids}


def open_inputs(question: Question) -> tuple[tuple[Unknown, ...], tuple[str, ...]]:
    """Inputs that can change a replay, the most telling first, and why the others stay."""
    deployment, fleet, keys = question.deployment, question.fleet, question.keys
    ids = tuple(dict.fromkeys(key.option_id for key in keys))
    shares = {
        one: max(_effect(question, one, key) for key in keys)
        for one in candidate_unknowns(deployment, fleet, ids)
    }
    chosen = [one for one, share in shares.items() if share >= INPUT_MATTERS.value]
    kept = [
        f"{one.title} ({one.id}): a median move changes by {100 * share:.1f} %"
        for one, share in shares.items()
        if share < INPUT_MATTERS.value
    ]
    return tuple(sorted(chosen, key=lambda one: -shares[one])), tuple(kept)


def _effect(question: Question, one: Unknown, key: RunKey) -> float:
    """What the range of an input does to a median move of an option, as a share of it.

    All of it for the model's errors, and for the size of a tier.
    """
    if one.id.startswith(("model_error.", "efficiency.")):
        return 1.0
    ends = []
    for value in (one.low, one.high):
        deployment, fleet = stated_at(question.deployment, question.fleet, {one.id: value})
        ground = replace(question.ground, deployment=deployment, fleet=fleet)
        ends.append(scenario_of(key, ground))
    low, high = ends
    if low is None or high is None or not low.tiers:
        return 0.0
    if [t.capacity_bytes for t in low.tiers] != [t.capacity_bytes for t in high.tiers]:
        return 1.0
    size = question.median_bytes
    slow, fast = alone_s(low, size), alone_s(high, size)
    return abs(slow - fast) / max(slow, fast) if max(slow, fast) > 0 else 0.0
