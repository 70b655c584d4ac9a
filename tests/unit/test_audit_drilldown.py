"""Single requests by regret, their place in the log; predicted against observed times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.audit.drilldown.build import SHOWN_LOST, SHOWN_SLOW, build_drilldown
from kvtrace.audit.fit.bins import prompt_buckets
from kvtrace.audit.fit.build import build_fits
from kvtrace.audit.logged import LoggedRequests
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import FloatArray
from tests.unit.audit_fakes import PROMPT, make_result, make_trace

REQUESTS = 50
TRACE = make_trace(requests=REQUESTS)


def logged(**changes: object) -> LoggedRequests:
    unknown = np.full(REQUESTS, np.nan)
    values: dict[str, object] = {
        "files": ("a.jsonl", "b.jsonl"),
        "file": np.ones(REQUESTS, dtype=np.int64),
        "line": np.arange(REQUESTS, dtype=np.int64) + 7,
        "cached_tokens": np.full(REQUESTS, -1, dtype=np.int64),
        "ttft_s": unknown,
        "queue_s": unknown,
        "prefill_s": unknown,
    }
    return LoggedRequests(**{**values, **changes})  # type: ignore[arg-type]


def pool(loads_s: FloatArray) -> ReplayResult:
    """A pool that loads 1,000 tokens for each request, in as many seconds as given."""
    made = make_result("pool_dram_tcp", hits={"pool": 1_000}, requests=REQUESTS, title="Pool")
    timeline = made.timeline
    ttft_s = timeline.queue_s + loads_s + timeline.prefill_s
    return replace(made, timeline=replace(timeline, load_s=loads_s, ttft_s=ttft_s))


def recompute_s(result: ReplayResult) -> float:
    return float(result.timeline.recompute_hit_s[0])


def test_regret_is_the_move_minus_recomputing_what_it_brought() -> None:
    loads_s = np.zeros(REQUESTS)
    loads_s[3], loads_s[9] = 50.0, 80.0
    result = pool(loads_s)
    found = build_drilldown(TRACE, [result], logged(), weighed="pool_dram_tcp")
    assert found is not None
    worst, second = found.rows[:2]
    assert (worst.request_rank, second.request_rank) == (9, 3)
    assert worst.regret_s == pytest.approx(80.0 - recompute_s(result))
    assert worst.without_s == pytest.approx(worst.ttft_s - worst.regret_s)
    assert worst.ttft_s == pytest.approx(
        worst.queue_s + worst.lookup_s + worst.pull_s + worst.load_s + worst.prefill_s
    )
    assert (found.lost, found.requests, found.why_option) == (2, REQUESTS, "weighed")
    assert [row.kind for row in found.rows] == ["lost"] * 2 + ["slow"] * SHOWN_SLOW


def test_more_losers_than_are_shown_are_counted() -> None:
    found = build_drilldown(TRACE, [pool(np.full(REQUESTS, 90.0))], None, weighed=None)
    assert found is not None
    assert found.lost == REQUESTS
    assert sum(row.kind == "lost" for row in found.rows) == SHOWN_LOST
    assert len({row.request_rank for row in found.rows}) == SHOWN_LOST + SHOWN_SLOW
    assert found.why_option == "pool"


def test_a_request_names_its_file_and_line() -> None:
    lines = np.arange(REQUESTS, dtype=np.int64) + 7
    lines[9] = -1  # a copy that a raised load made
    loads_s = np.zeros(REQUESTS)
    loads_s[3], loads_s[9] = 50.0, 80.0
    told = logged(line=lines, ttft_s=np.full(REQUESTS, 0.25))
    found = build_drilldown(TRACE, [pool(loads_s)], told, weighed=None)
    assert found is not None
    copy, known = found.rows[:2]
    assert (copy.file, copy.line) == (None, None)
    assert (known.file, known.line) == ("b.jsonl", 10)
    assert known.measured_ttft_s == 0.25
    assert known.measured_queue_s is None
    assert known.measured_cached_tokens is None
    assert found.measured_ttft == REQUESTS


def test_without_a_pool_the_system_of_today_is_shown_and_nobody_regrets() -> None:
    hbm = make_result("hbm_only", hits={"hbm": 1_000}, requests=REQUESTS)
    found = build_drilldown(TRACE, [hbm], None, weighed=None)
    assert found is not None
    assert (found.why_option, found.lost) == ("deployed", 0)
    assert {row.regret_s for row in found.rows} == {0.0}
    assert {row.kind for row in found.rows} == {"slow"}
    assert build_drilldown(TRACE, [], None, weighed=None) is None
    assert build_drilldown(None, [hbm], None, weighed=None) is None


def test_buckets_are_powers_of_two() -> None:
    lengths = np.array([0, 1, 2, 3, 4, 1023, 1024, 1025], dtype=np.int64)
    assert prompt_buckets(lengths).tolist() == [0, 1, 2, 2, 4, 512, 1024, 1024]


@pytest.mark.parametrize(
    ("factor", "says"), [(0.5, "too_slow"), (1.0, "close"), (1.05, "close"), (4.0, "too_fast")]
)
def test_the_model_is_called_by_the_median_of_predicted_over_observed(
    factor: float, says: str
) -> None:
    hbm = make_result("hbm_only", hits={}, requests=REQUESTS, queue_s=1.0)
    observed = hbm.timeline.ttft_s * factor
    observed[0] = np.nan
    ttft, prefill = build_fits(TRACE, [hbm], logged(ttft_s=observed), is_raised=False)
    assert (ttft.what, ttft.says, ttft.requests) == ("ttft", says, REQUESTS - 1)
    assert ttft.ratio_p50 == pytest.approx(1 / factor)
    [bucket] = ttft.buckets
    assert bucket.prompt_bucket == int(prompt_buckets(np.array([PROMPT]))[0])
    assert bucket.observed_p50_s == pytest.approx(bucket.predicted_p50_s * factor)
    assert (prefill.what, prefill.says, prefill.ratio_p50) == ("prefill", "nothing_measured", None)


def test_a_median_that_is_right_hides_no_bucket_that_is_not() -> None:
    # 30 short prompts as observed, 20 long ones at half of what was observed.
    trace = replace(TRACE, prompt_tokens=np.array([1_000] * 30 + [9_000] * 20, dtype=np.int64))
    hbm = make_result("hbm_only", hits={}, requests=REQUESTS)
    observed = hbm.timeline.ttft_s.copy()
    observed[30:] *= 2
    uneven = build_fits(trace, [hbm], logged(ttft_s=observed), is_raised=False)[0]
    assert (uneven.ratio_p50, uneven.says) == (1.0, "uneven")
    assert [one.ratio_p50 for one in uneven.buckets] == [1.0, 0.5]
    observed[49] = np.nan  # 19 requests are too few to be called uneven
    assert build_fits(trace, [hbm], logged(ttft_s=observed), is_raised=False)[0].says == "close"


def test_a_raised_load_compares_no_queue() -> None:
    hbm = make_result("hbm_only", hits={}, requests=REQUESTS)
    told = logged(ttft_s=hbm.timeline.ttft_s, prefill_s=hbm.timeline.prefill_s)
    ttft, prefill = build_fits(TRACE, [hbm], told, is_raised=True)
    assert (ttft.says, ttft.requests, ttft.buckets) == ("other_load", 0, [])
    assert prefill.says == "close"


def test_the_observed_system_stands_before_hbm_alone() -> None:
    both = [make_result(one, hits={}, requests=REQUESTS) for one in ("hbm_only", "as_observed")]
    assert build_fits(TRACE, both, logged(), is_raised=False)[0].option == "as_observed"
    assert build_fits(TRACE, both[:0], logged(), is_raised=False) == []
