"""The smallest count, on outcomes whose goodness is known."""

from __future__ import annotations

from math import ceil

import pytest

from kvtrace.replay.search import smallest_count


def itself(count: int) -> int:
    return count


@pytest.mark.parametrize("least", [1, 2, 3, 7, 8, 9, 20, 40])
@pytest.mark.parametrize("start", [1, 8, 40, 99])
def test_the_least_good_count_is_found_and_none_is_replayed_twice(least: int, start: int) -> None:
    found = smallest_count(itself, lambda count: count >= least, start=start, most=40)
    assert (found.count, found.kept) == (least, least)
    assert len(found.asked) == len(set(found.asked)) <= 13
    assert found.missed == (None if least == 1 else least - 1)


def test_a_good_guess_costs_two_replays() -> None:
    assert smallest_count(itself, lambda count: count >= 8, start=8, most=40).asked == [8, 7]


def test_no_count_may_be_enough() -> None:
    found = smallest_count(itself, lambda _: False, start=3, most=10)
    assert found.count is None
    assert found.asked == [3, 4, 6, 10]
    assert found.missed == 10


def test_an_overload_says_how_far_to_step() -> None:
    # 29 seconds of work a second: one instance of 1 has a load of 29, so fewer than 29 cannot do.
    found = smallest_count(
        itself, lambda n: n >= 31, start=1, most=99, at_least=lambda n: ceil(n * (29 / n))
    )
    assert found.asked == [1, 29, 31, 30]
    assert found.count == 31
