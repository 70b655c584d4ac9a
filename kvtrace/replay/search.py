"""How few instances are enough, by replays."""

from __future__ import annotations

from collections.abc import Callable

from kvtrace.replay.engine import simulate
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.schema.arrays import RequestTrace

Build = Callable[[int], Scenario]
"""The scenario of an option on so many instances."""
IsGood = Callable[[ReplayResult], bool]
"""Whether a replay meets the target, such as a TTFT."""


def smallest_fleet(
    trace: RequestTrace,
    build: Build,
    is_good: IsGood,
    *,
    start: int,
    most: int,
    warmup_requests: int = 0,
) -> tuple[int, ReplayResult] | None:
    """The least instances in 1..most that are good, and their replay; None if `most` are not.

    Brackets from `start` in steps of 1, 2, 4, …, then halves: about 2 log2 |answer - start| + 2
    replays, each count replayed once. From a good guess the first replay asked is `start` itself.
    Assumes: what is good stays good with more instances; a replay need not be monotone to the last
    request, so the answer is good, and the count below it was replayed and is not (or is 0).
    """
    start = min(max(1, start), most)
    good: dict[int, ReplayResult] = {}

    def ask(instances: int) -> bool:
        result = simulate(trace, build(instances), warmup_requests=warmup_requests)
        if is_good(result):
            good[instances] = result
            return True
        return False

    bad, least = 0, most + 1
    step = 1
    if ask(start):
        least = start
        while least > 1 and not bad:
            lower = max(1, least - step)
            bad, least = (bad, lower) if ask(lower) else (lower, least)
            step *= 2
    else:
        bad = start
        while bad < most and least > most:
            upper = min(most, bad + step)
            bad, least = (bad, upper) if ask(upper) else (upper, least)
            step *= 2
    if least > most:
        return None
    while least - bad > 1:
        middle = (least + bad) // 2
        bad, least = (bad, middle) if ask(middle) else (middle, least)
    return least, good[least]
