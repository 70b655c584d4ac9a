"""The smallest fleet, on an option whose goodness is known."""

from __future__ import annotations

import pytest

from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.search import smallest_fleet
from tests.unit.replay_cases import Ask, make_scenario, make_trace

TRACE = make_trace([Ask(0, prompt=10), Ask(1, prompt=10)])


class Asked:
    """Builds scenarios and notes for how many instances."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def build(self, instances: int) -> Scenario:
        self.counts.append(instances)
        return make_scenario(instances=instances)


@pytest.mark.parametrize("least", [1, 2, 3, 7, 8, 9, 20, 40])
@pytest.mark.parametrize("start", [1, 8, 40, 99])
def test_the_least_good_count_is_found_and_none_is_replayed_twice(least: int, start: int) -> None:
    asked = Asked()
    found = smallest_fleet(
        TRACE,
        asked.build,
        lambda result: result.scenario.instances >= least,
        start=start,
        most=40,
    )
    assert found is not None
    count, result = found
    assert (count, result.scenario.instances) == (least, least)
    assert len(asked.counts) == len(set(asked.counts)) <= 13
    assert least == 1 or least - 1 in asked.counts


def test_a_good_guess_costs_two_replays() -> None:
    asked = Asked()
    smallest_fleet(TRACE, asked.build, lambda r: r.scenario.instances >= 8, start=8, most=40)
    assert asked.counts == [8, 7]


def test_no_count_may_be_enough() -> None:
    asked = Asked()
    assert smallest_fleet(TRACE, asked.build, lambda _: False, start=3, most=10) is None
    assert asked.counts == [3, 4, 6, 10]


def test_history_warms_each_replay() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(1, "abc")])

    def is_warm(result: ReplayResult) -> bool:
        return bool((result.timeline.hit_tokens["hbm"] == 29).all())

    found = smallest_fleet(
        trace,
        lambda instances: make_scenario(instances=instances),
        is_warm,
        start=1,
        most=1,
        warmup_requests=1,
    )
    assert found is not None
