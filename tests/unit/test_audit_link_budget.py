"""Link budgets by the minute, and Little's law, on round numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.audit.record import Table
from kvtrace.audit.sizing.link_budget import link_budget
from kvtrace.audit.sizing.littles_law import littles_law
from kvtrace.audit.sizing.minutes import minutes_of, peak_in_flight
from kvtrace.replay.result import LinkUse
from tests.unit.audit_fakes import make_result, make_trace


def rows_of(table: Table | None) -> list[dict[str, object]]:
    assert table is not None
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_bytes_stand_in_the_minute_of_their_requests() -> None:
    # Four requests, 40 s apart: 0 and 40 s are minute 0, 80 s minute 1, 120 s minute 2. Reads
    # 600 B by load 1 : 0 : 1 : 1, writes 800 B evenly: 200 + 400, 200 + 200, 200 + 200, over one
    # of two links: 5, 3.33 and 3.33 B/s; the mean is 1400 B over 120 s and two links.
    trace = make_trace(requests=4, span_s=120.0)
    result = make_result("pool_x", hits={"pool": 100}, requests=4)
    timeline = replace(result.timeline, moved_bytes=np.array([5.0, 0.0, 5.0, 5.0]))
    use = LinkUse("nic", 2, 600.0, 800.0, 1.0, 0.1)
    [row] = rows_of(
        link_budget((replace(result, timeline=timeline, link_use=(use,)),), minutes_of(trace))
    )
    assert row["minutes"] == 3
    assert row["mean_bytes_per_s"] == pytest.approx(1400 / 240)
    assert row["peak_bytes_per_s"] == pytest.approx(5.0)
    # Rank 1.98 of 3.33, 3.33, 5.
    assert row["p99_bytes_per_s"] == pytest.approx(10 / 3 + 0.98 * (5 - 10 / 3))
    assert row["peak_utilisation"] == pytest.approx(5.0 / 5e10)
    assert row["is_within"] is True


def test_a_link_above_its_limit_is_said() -> None:
    trace = make_trace(requests=4, span_s=120.0)
    use = LinkUse("nic", 1, 5e12, 0.0, 1.0, 0.1)
    result = replace(make_result("pool_x", hits={"pool": 1}, requests=4), link_use=(use,))
    [row] = rows_of(link_budget((result,), minutes_of(trace)))
    assert row["is_within"] is False


def test_without_a_clock_or_links_there_is_no_budget() -> None:
    result = make_result("hbm_only", hits={})
    assert link_budget((result,), None) is None
    assert link_budget((), minutes_of(make_trace())) is None
    assert minutes_of(make_trace(requests=1)) is None
    assert littles_law((result,), None, None) is None


def test_in_flight_is_rate_times_time() -> None:
    # 2 000 requests in 90 000 s; a load of 10 s each, 45 s apart. Each adds 8 000 own tokens of
    # 1 MB (2 000 of 10 000 were in HBM) while it loads: 8e9 B of 8 x 1e11.
    trace = make_trace()
    result = make_result("pool_x", hits={"hbm": 2000, "pool": 4400}, pull_s=8.0, load_s=2.0)
    tiered = replace(
        result, scenario=make_result("dram_idle", hits={}).scenario, timeline=result.timeline
    )
    rows = {row["what"]: row for row in rows_of(littles_law((tiered,), trace, minutes_of(trace)))}
    loads, held, decodes = rows["loads"], rows["kv_of_loads"], rows["kv_of_decodes"]
    assert loads["rate_per_s"] == pytest.approx(2000 / 90_000)
    assert loads["mean_s"] == pytest.approx(10.0)
    assert loads["in_flight"] == pytest.approx(2000 / 9000)
    assert loads["peak_in_flight"] == 1.0
    assert held["mean_s"] == pytest.approx(10.0)
    assert held["peak_in_flight"] == pytest.approx(8e9)
    assert held["peak_over_room"] == pytest.approx(0.01)
    # Decode takes 2 s; half of 100 output tokens come on top.
    assert decodes["in_flight"] == pytest.approx(8.05e9 * 2.0 * 2000 / 90_000)
    assert decodes["is_within"] is True


def test_a_peak_is_of_one_moment() -> None:
    # 0-10, 5-15 and 10-20 s: two at once, since the first ends as the third begins.
    starts, seconds = np.array([0.0, 5.0, 10.0]), np.full(3, 10.0)
    assert peak_in_flight(starts, seconds, np.ones(3)) == 2.0
    assert peak_in_flight(starts, np.zeros(3), np.ones(3)) == 0.0


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 50)), min_size=1, max_size=20))
def test_a_peak_is_never_below_the_mean_of_its_span(loads: list[tuple[float, float]]) -> None:
    starts, seconds = (np.array(values) for values in zip(*loads, strict=True))
    span = float((starts + seconds).max() - starts.min())
    peak = peak_in_flight(starts, seconds, np.ones(len(loads)))
    assert peak >= seconds.sum() / span * (1 - 1e-9)
    assert peak <= len(loads)
