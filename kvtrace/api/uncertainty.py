"""The replays behind the uncertainty of a verdict: a budgeted number at sampled inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kvtrace.api.replays import Replays, WindowRuns, replay_window
from kvtrace.audit.fleet.facts import FleetFacts
from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import gpu_worth
from kvtrace.audit.slo.check import lookup_slack_s
from kvtrace.audit.slo.end_replays import key_of, scenario_of
from kvtrace.audit.slo.ends import Claim, RunKey
from kvtrace.audit.slo.fleets import Fleets, build_fleets
from kvtrace.audit.thresholds import INPUT_MATTERS
from kvtrace.audit.uncertainty.activity import activities
from kvtrace.audit.uncertainty.design import (
    ReplayedDesign,
    Response,
    sobol_shares,
    values_at,
)
from kvtrace.audit.uncertainty.replayed_inputs import (
    alone_s,
    candidate_unknowns,
    stated_at,
    with_errors,
)
from kvtrace.audit.uncertainty.responses import PointRuns, response_of, session_shifts
from kvtrace.audit.uncertainty.sensitivity import prefill_factor
from kvtrace.audit.uncertainty.sessions import resampling_units
from kvtrace.audit.uncertainty.target import target_claim
from kvtrace.audit.uncertainty.unknowns import Unknown
from kvtrace.audit.verdict.cases import choose_pool
from kvtrace.audit.verdict.pools import pool_cases
from kvtrace.audit.window import arrival_span_s
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.exec.progress import Progress
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace
from kvtrace.store.dataset import Dataset

BUDGET_REQUESTS: Final = 4_000_000
"""Requests that all replays of a design go through together, history included: about four minutes
on one core at 17 000 a second."""
MOST_POINTS: Final = 64
FEWEST_POINTS: Final = 8
"""Of a design; with fewer, a P10 would be one point."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What an audit has before the replays of a design."""

    replays: Replays
    facts: FleetFacts | None
    """The instances that each option needs."""
    deployment: Deployment
    fleet: Fleet
    conversation: IntArray | None
    """(requests,) of the window; null: not known."""


@dataclass(frozen=True, slots=True)
class _Question:
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

    @property
    def keys(self) -> tuple[RunKey, ...]:
        """All replays of one point, each once."""
        own = [self.pool, self.rival, *([] if self.today is None else [self.today])]
        return tuple(dict.fromkeys((*own, *(() if self.claim is None else self.claim.runs))))

    def at(self, values: Mapping[str, float]) -> _Point:
        """The replays at these values of the inputs, by id."""
        deployment, fleet = stated_at(self.deployment, self.fleet, values)
        made = ((key, scenario_of(key, deployment, fleet)) for key in self.keys)
        scenarios = {key: with_errors(one, values) for key, one in made if one is not None}
        return _Point(self, scenarios)


@dataclass(frozen=True, slots=True)
class _Point:
    """The scenarios of one point."""

    question: _Question
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


def respond(windowed: WindowedTrace, point: _Point) -> Response:
    """What the replays at one point say; replays stay in the process that made them."""
    return response_of(windowed.window, point.replayed(windowed), point.question.claim)


def conversations_of(dataset: Dataset, trace: RequestTrace | None) -> IntArray | None:
    """(requests,) conversation of each request, -1 where it is of none; null: none is known."""
    if trace is None:
        return None
    turns = dataset.table("continuations").select("request_key", "conversation")
    if not len(turns):
        return None
    keys = pl.DataFrame({"request_key": trace.request_key})
    found = keys.join(turns, on="request_key", how="left", maintain_order="left")
    return np.asarray(found["conversation"].fill_null(-1).to_numpy(), dtype=np.int64)


def replay_design(
    asked: Asked, run: WindowRuns, seed: int, watch: Progress
) -> ReplayedDesign | None:
    """The weighed pool and its rivals at sampled inputs; null where no pool is weighed."""
    question = _question(asked)
    windowed = run.windowed
    if question is None:
        return None
    candidates, kept = _unknowns(question)
    room = _room(len(question.keys), windowed.trace.requests) - 1 - 2 * len(candidates)
    watch.start("uncertainty")
    middle = question.at({}).replayed(windowed)
    answer = response_of(windowed.window, middle, question.claim)
    ends = [{one.id: end} for one in candidates for end in (one.low, one.high)]
    found = run.each(respond, [question.at(one) for one in ends]) if room >= FEWEST_POINTS else []
    pairs = zip(found[::2], found[1::2], strict=True)
    tried = activities(candidates if found else (), pairs, answer)
    active = [one for one in tried if one.is_active]
    unknowns = tuple(one.unknown for one in active)
    values = _sampled(unknowns, _points(room) if active else 0, seed)
    drawn = [dict(zip((one.id for one in unknowns), row, strict=True)) for row in values.tolist()]
    points = run.each(respond, [question.at(one) for one in drawn])
    if found and not active:
        values, points = np.zeros((1, 0)), [answer]
    asked_at = 1 + len(found) + len(drawn)
    replays = asked_at * len(question.keys)
    watch.finish(f"{replays} replays at {asked_at} points")
    units = resampling_units(windowed.window, asked.conversation)
    return ReplayedDesign(
        option_id=question.option_id,
        rival_id=question.rival_id,
        claim=question.claim,
        instances=question.instances,
        unknowns=unknowns,
        values=values,
        middle=answer,
        points=tuple(points),
        ends=tuple(one.ends for one in active),
        shifts=session_shifts(windowed.window, middle, question.claim, units, seed),
        kept=(*kept, *(str(one) for one in tried if not one.is_active)),
        replays=replays,
        why_few="" if found else _why_few(question, len(candidates), windowed.trace.requests),
    )


def _question(asked: Asked) -> _Question | None:
    """The pool that the verdict will name, and the claim about it."""
    fleets = _fleets(asked)
    windowed, rival = asked.replays.windowed, None if fleets is None else fleets.rival
    if fleets is None or windowed is None or rival is None:
        return None
    span_s = arrival_span_s(windowed.window)
    factor = prefill_factor(asked.deployment)
    bills, worth = Bills(asked.fleet), gpu_worth(asked.fleet)
    pools = pool_cases(fleets, bills, worth, span_s=span_s, factor=factor)
    best = choose_pool(tuple(pools))
    if best is None or not best.is_feasible:
        return None
    found = target_claim(fleets, best.option_id)
    claim, instances = (None, 0) if found is None else found
    pool = fleets.standings[best.option_id].result
    moved = pool.timeline.moved_bytes
    return _Question(
        option_id=best.option_id,
        rival_id=rival.result.scenario.option_id,
        claim=claim,
        instances=instances,
        today=None if fleets.today is None else key_of(fleets.today),
        pool=key_of(pool),
        rival=key_of(rival.result),
        median_bytes=float(np.median(moved[moved > 0])) if (moved > 0).any() else 0.0,
        deployment=asked.deployment,
        fleet=asked.fleet,
    )


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
        target=asked.fleet.slo,
        slack_s=_slack(asked.deployment, ids),
        ends=replays.ends,
    )


def _slack(deployment: Deployment, option_ids: Iterable[str]) -> dict[str, float]:
    return {ident: lookup_slack_s(deployment, ident) for ident in option_ids}


def _room(runs: int, requests: int) -> int:
    """Points that the budget has room for."""
    return BUDGET_REQUESTS // max(runs * requests, 1)


def _points(room: int) -> int:
    """A power of two of them, for a Sobol sequence is balanced there."""
    return min(MOST_POINTS, 1 << (room.bit_length() - 1))


def _unknowns(question: _Question) -> tuple[tuple[Unknown, ...], tuple[str, ...]]:
    """Inputs that can change a replay, and those that stay at their value, with the reason."""
    deployment, fleet, keys = question.deployment, question.fleet, question.keys
    ids = tuple(dict.fromkeys(key.option_id for key in keys))
    chosen, kept = [], []
    for one in candidate_unknowns(deployment, fleet, ids):
        share = max(_effect(question, one, key) for key in keys)
        if share >= INPUT_MATTERS.value:
            chosen.append(one)
        else:
            kept.append(f"{one.title} ({one.id}): a median move changes by {100 * share:.1f} %")
    return tuple(chosen), tuple(kept)


def _effect(question: _Question, one: Unknown, key: RunKey) -> float:
    """What the range of an input does to a median move of an option, as a share of it.

    All of it for the model's errors, and for the size of a tier.
    """
    if one.id.startswith(("model_error.", "efficiency.")):
        return 1.0
    ends = []
    for value in (one.low, one.high):
        deployment, fleet = stated_at(question.deployment, question.fleet, {one.id: value})
        ends.append(scenario_of(key, deployment, fleet))
    low, high = ends
    if low is None or high is None or not low.tiers:
        return 0.0
    if [t.capacity_bytes for t in low.tiers] != [t.capacity_bytes for t in high.tiers]:
        return 1.0
    size = question.median_bytes
    slow, fast = alone_s(low, size), alone_s(high, size)
    return abs(slow - fast) / max(slow, fast) if max(slow, fast) > 0 else 0.0


def _sampled(unknowns: tuple[Unknown, ...], points: int, seed: int) -> FloatArray:
    if not points or not unknowns:
        return np.zeros((0, len(unknowns)))
    return values_at(unknowns, sobol_shares(len(unknowns), points, seed, 0))


def _why_few(question: _Question, inputs: int, requests: int) -> str:
    return (
        f"{len(question.keys)} replays of {requests:,} requests at each of {2 * inputs + 1} ends "
        f"and {FEWEST_POINTS} points go beyond the budget of {BUDGET_REQUESTS:,} requests: the "
        "interval is that of the ends of each price alone"
    )
