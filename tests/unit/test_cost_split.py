"""The cut of a cached run between computing its head and loading its tail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.cost import Split, best_split
from kvtrace.errors import UsageError


def test_the_cut_lies_where_both_sides_end_together() -> None:
    # 3 ms a computed token, 1 ms a loaded one: 100 computed take as long as 300 loaded
    split = best_split(400, compute_s=lambda k: 0.003 * k, load_s=lambda k: 0.001 * k)
    assert (split.computed_tokens, split.loaded_tokens) == (100, 300)
    assert split.compute_s == pytest.approx(split.load_s)
    # alone the load takes 0.4 s and the prefill 1.2 s
    assert split.seconds == pytest.approx(0.3)


def test_fixed_seconds_may_leave_one_side_without_work() -> None:
    slow_start = best_split(400, compute_s=lambda k: 0.5 + 0.003 * k, load_s=lambda k: 0.001 * k)
    assert slow_start == Split(0, 400, 0.0, 0.001 * 400)
    far_away = best_split(400, compute_s=lambda k: 0.001 * k, load_s=lambda k: 9 + 0.001 * k)
    assert far_away == Split(400, 0, 0.001 * 400, 0.0)


def test_the_cut_keeps_to_blocks() -> None:
    # in blocks of 64: 64 computed (192 ms) and 336 loaded (336 ms) end before 128 and 272 (384 ms)
    split = best_split(
        400, compute_s=lambda k: 0.003 * k, load_s=lambda k: 0.001 * k, step_tokens=64
    )
    assert split.computed_tokens == 64
    assert split.seconds == pytest.approx(0.336)
    with pytest.raises(UsageError, match="not above zero"):
        best_split(4, compute_s=float, load_s=float, step_tokens=0)


def test_no_token_takes_no_time_and_asks_for_no_price() -> None:
    def never(tokens: int) -> float:
        raise AssertionError(tokens)

    assert best_split(0, compute_s=never, load_s=never) == Split(0, 0, 0.0, 0.0)


def test_of_equal_cuts_the_one_that_computes_least_is_taken() -> None:
    split = best_split(8, compute_s=lambda k: 1.0, load_s=lambda k: 1.0)
    assert (split.computed_tokens, split.seconds) == (0, 1.0)


@given(
    tokens=st.integers(1, 200),
    step=st.integers(1, 40),
    fixed=st.tuples(st.integers(0, 90), st.integers(0, 90)),
    a=st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(1, 9)),
)
def test_no_other_cut_is_sooner(
    tokens: int, step: int, fixed: tuple[int, int], a: tuple[int, int, int]
) -> None:
    def compute_s(k: int) -> float:
        return fixed[0] + a[1] * k + a[0] * k * k

    def load_s(k: int) -> float:
        return fixed[1] + a[2] * k

    split = best_split(tokens, compute_s=compute_s, load_s=load_s, step_tokens=step)
    cuts = [*range(0, tokens, step), tokens]
    assert split.computed_tokens in cuts
    assert split.seconds == min(
        max(compute_s(k) if k else 0, load_s(tokens - k) if k < tokens else 0) for k in cuts
    )
