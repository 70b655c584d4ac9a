"""What a fleet search asks of one option under one load, and the replays that answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from kvtrace.api.fleet_loads import LOADS, LoadedWindows
from kvtrace.audit.fleet.facts import OnStated
from kvtrace.audit.fleet.needs import Question, Tried
from kvtrace.audit.slo.check import check_against, lookup_slack_s
from kvtrace.audit.slo.limits import is_within, limits_of
from kvtrace.audit.slo.reference import Reference
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.catalogue import find_option
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.relax import Resource, without_limit
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.search import Smallest, smallest_count
from kvtrace.replay.summary import percentiles
from kvtrace.schema.arrays import RequestTrace

MOST_TIMES: Final = 2
"""A search looks up to this many times the stated fleet, times the load."""
LOAD_STEPS: Final = 8
"""A load is searched in eighths of the trace's."""
MOST_LOAD: Final = 4
"""Times the trace's load up to which a load is searched."""


@dataclass(frozen=True, slots=True)
class Stated:
    """The fleet as it stands, and how its options scale."""

    instances: int
    gpus_per_instance: int
    target: SloTarget
    build: Callable[[str, int], Scenario]
    """The scenario of an option, by its id, on so many instances."""
    slack_s: Callable[[str], float]
    """Uncertainty of the lookup of an option."""


def stated_fleet(ground: Ground) -> Stated:
    """The fleet that is stated; the pool keeps its size on any number of instances."""
    fleet = ground.fleet

    def build(option_id: str, instances: int) -> Scenario:
        found = find_option(option_id, ground.on(instances))
        if found is None:
            raise KeyError(option_id)
        return found.scenario

    return Stated(
        instances=fleet.instances,
        gpus_per_instance=fleet.gpus_per_instance,
        target=fleet.slo,
        build=build,
        slack_s=partial(lookup_slack_s, ground.deployment),
    )


@dataclass
class Asker:
    """Replays of options on fleets and loads, each made once."""

    loads: LoadedWindows
    today: Reference
    stated: Stated
    _made: dict[tuple[str, int, float], Tried] = field(default_factory=dict)
    _windows: dict[float, RequestTrace] = field(default_factory=dict)
    replays: int = 0

    def window(self, load: float) -> RequestTrace:
        """The scored requests under a load."""
        if load not in LOADS:
            return self.loads.at(load).window
        if load not in self._windows:
            self._windows[load] = self.loads.at(load).window
        return self._windows[load]

    def question(self, load: float, *, is_replayed: bool = True) -> Question:
        """What is asked of every option under this load; else by replays of the trace's own."""
        trace = self.window(load if is_replayed else 1.0)
        gpus = self.stated.gpus_per_instance
        return Question(trace, load, self.today, self.stated.target, self.most(load), gpus)

    def most(self, load: float) -> int:
        """Instances up to which a search looks."""
        return MOST_TIMES * math.ceil(max(load, 1.0) * self.stated.instances)

    def know(self, option_id: str, result: ReplayResult) -> Tried:
        """A replay of the window that was made before."""
        tried = self._judged(option_id, result, 1.0)
        self._made[option_id, result.scenario.instances, 1.0] = tried
        return tried

    def ask(self, option_id: str, instances: int, load: float) -> Tried:
        """The option on so many instances under a load."""
        key = (option_id, instances, load)
        if key not in self._made:
            scenario = self.stated.build(option_id, instances)
            self._made[key] = self._judged(option_id, self.replay(scenario, load), load)
        return self._made[key]

    def replay(self, scenario: Scenario, load: float = 1.0) -> ReplayResult:
        """One replay of the window under a load."""
        windowed = self.loads.at(load)
        self.replays += 1
        return simulate(windowed.trace, scenario, warmup_requests=windowed.first)

    def on_stated(self, option_id: str) -> OnStated:
        """SLO at equal GPUs."""
        result = self.ask(option_id, self.stated.instances, 1.0).result
        limits = limits_of(self.window(1.0), self.stated.target, self.today)
        within = int(np.count_nonzero(is_within(result, limits)))
        return OnStated(within, percentiles(result.timeline.ttft_s)[3])

    def relaxed(self, tried: Tried, resource: Resource) -> Tried:
        """The same replay with a resource that never runs out."""
        scenario = without_limit(tried.result.scenario, resource)
        return self._judged(scenario.option_id, self.replay(scenario), 1.0)

    def fewest(self, option_id: str, load: float, start: int) -> Smallest[Tried]:
        """The fewest instances that keep the SLO."""
        return smallest_count(
            lambda instances: self.ask(option_id, instances, load),
            lambda tried: tried.check.is_kept,
            start=start,
            most=self.most(load),
            at_least=_at_least,
        )

    def clearly_fewest(self, option_id: str, found: Smallest[Tried]) -> int:
        """The fewest instances that keep the SLO or miss it narrowly, at the trace's load."""
        least = found.count or self.most(1.0) + 1
        while least > 1 and not self.ask(option_id, least - 1, 1.0).check.is_clearly_missed:
            least -= 1
        return least

    def carries(self, option_id: str, start: int) -> Smallest[Tried]:
        """The fewest instances that carry the load, however late."""
        return smallest_count(
            lambda instances: self.ask(option_id, instances, 1.0),
            lambda tried: not tried.result.is_overloaded,
            start=start,
            most=self.most(1.0),
            at_least=_at_least,
        )

    def load_at_slo(self, option_id: str, guess: float) -> float:
        """The largest load, in steps, that keeps the SLO on the stated fleet; 0: not even one."""
        first_missed = smallest_count(
            lambda steps: self.ask(option_id, self.stated.instances, steps / LOAD_STEPS),
            lambda tried: not tried.check.is_kept,
            start=math.floor(guess * LOAD_STEPS) + 1,
            most=MOST_LOAD * LOAD_STEPS,
        ).count
        steps = MOST_LOAD * LOAD_STEPS if first_missed is None else first_missed - 1
        return steps / LOAD_STEPS

    def _judged(self, option_id: str, result: ReplayResult, load: float) -> Tried:
        slack_s = self.stated.slack_s(option_id)
        check = check_against(
            self.window(load), result, self.today, slack_s=slack_s, target=self.stated.target
        )
        return Tried(result, check, slack_s)


def _at_least(tried: Tried) -> int:
    """Instances below which the same work overloads the fleet."""
    load = tried.result.offered_load
    if load is None or not math.isfinite(load):
        return 0
    return math.ceil(tried.result.scenario.instances * load - 1e-9)
