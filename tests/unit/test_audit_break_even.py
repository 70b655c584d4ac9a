"""Break-even reuse, bandwidth and contention: by hand, and put back where they came from."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.audit.build import build_audit
from kvtrace.audit.record import AuditRecord, ReplayWindow
from kvtrace.audit.sizing.bandwidth_point import TypicalHit, break_even_paths, typical_hit
from kvtrace.audit.sizing.contention_point import (
    SharedStage,
    break_even_contention,
    flows_until_negative,
    shared_stage,
)
from kvtrace.audit.sizing.minutes import minutes_of
from kvtrace.audit.sizing.reuse_point import (
    break_even_ratio,
    break_even_reuse,
    value_usd,
)
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Rival
from kvtrace.audit.verdict.shown import weighed_pools
from kvtrace.cost.tier_paths import find_path
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import LinkSpec, StageSpec, TierSpec
from tests.unit.audit_fakes import make_deployment, make_input, make_result, make_trace
from tests.unit.test_audit_verdict import POOL

USD = Range(1e-7, 2e-7, 4e-7)
[WEIGHED] = weighed_pools((replace(POOL, rival=Rival(option_id="b", title="B", hit_tokens=1_000)),))
WORTH = ReuseValue(Range.exact(1e-3), USD, 1)
amounts = st.floats(1e-9, 1e9)


def test_a_pool_of_1000_dollars_needs_half_of_ten_billion_tokens_at_2e_7() -> None:
    # 10^10 tokens at $2e-7 are worth $2 000.
    found = break_even_ratio(Range(500.0, 1000.0, 3000.0), 1e10, USD)
    assert found.value == pytest.approx(0.5)
    # Cheapest pool at the dearest token, dearest pool at the cheapest.
    assert found.low == pytest.approx(500 / 4000)
    assert found.high == pytest.approx(3.0)


@given(amounts, amounts, amounts)
def test_the_break_even_put_back_is_worth_the_cost(cost: float, prompt: float, usd: float) -> None:
    worth = Range.exact(usd)
    needed = break_even_ratio(Range.exact(cost), prompt, worth)
    assert value_usd(needed.value, prompt, worth).value == pytest.approx(cost)


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    return build_audit(make_input(reuse_value=WORTH))


def test_break_even_is_over_the_best_rival_never_over_nothing(record: AuditRecord) -> None:
    # The pool serves 6 400 of 10 000 tokens, idle DRAM 2 800: 36 % beyond it, not 64 %. Of
    # 7 000 reusable tokens of all but the first request 42 % are left beyond idle DRAM.
    assert record.sizing is not None
    [point] = record.sizing.reuse
    assert point.rival == "Idle DRAM"
    assert point.present_ratio_tokens == pytest.approx(0.36)
    assert point.ceiling_ratio_tokens == pytest.approx(0.7 * 1999 / 2000 - 0.28)
    # 20e6 tokens in 90 000 s: 29.2 times in 730 h, 584e6 tokens a month, $116.80 of GPU time.
    cost = point.cost.value
    assert isinstance(cost, float)
    assert point.needed.value == pytest.approx(cost / 116.8)
    assert point.value.value == pytest.approx(0.36 * 116.8)
    # At so many times the load the same share is worth the cost.
    assert point.load_times == pytest.approx(cost / (0.36 * 116.8))


def test_a_window_too_short_for_a_month_has_no_break_even_reuse(record: AuditRecord) -> None:
    window = record.replay_window
    assert window is not None
    short: ReplayWindow = ReplayWindow(
        **{name: getattr(window, name) for name in window.__struct_fields__} | {"span_s": 60.0}
    )
    assert break_even_reuse((WEIGHED,), short, WORTH) == []
    assert break_even_reuse((WEIGHED,), window, None) == []
    assert len(break_even_reuse((WEIGHED,), window, WORTH)) == 1


def test_the_typical_hit_is_the_median_of_requests_with_reuse() -> None:
    assert typical_hit(make_trace()) == TypicalHit(10_000, 7_000)
    assert typical_hit(make_trace(shared_blocks=0)) is None
    assert typical_hit(None) is None


def test_at_the_break_even_bandwidth_the_move_takes_as_long_as_recomputing() -> None:
    deployment = make_deployment()
    for point in break_even_paths(TypicalHit(10_000, 7_000), deployment):
        assert point.needed is not None
        needed = point.needed.value
        assert isinstance(needed, float)
        path = find_path(deployment, point.path)
        moved = deployment.kv_bytes(7_000) / (needed * deployment.kv_ranks) + path.fixed_s
        assert moved == pytest.approx(point.recompute_s)
        assert (point.given_bytes_per_s > needed) == (point.move_s < point.recompute_s)
        assert point.needed.low is not None
        assert point.needed.low < needed


STAGE = SharedStage("ports", 100.0, 60.0, 1 / 50.0, 1.0)
"""100 B/s shared; a load alone gets 60 there and 50 on its other stage, after 1 s."""


def test_flows_until_the_hit_is_negative_by_hand() -> None:
    # 100 B: 1 s fixed and 2 s on the other stage. Of 8 s recompute 5 are left, 20 B/s needed: five
    # loads may share 100 B/s. Of 4 s one is left, 100 B/s needed, above the 60 of its own link.
    # Of 2 s none.
    flows = flows_until_negative(STAGE, np.full(3, 100.0), np.array([8.0, 4.0, 2.0]))
    assert flows.tolist() == pytest.approx([5.0, 0.0, 0.0])


@given(st.floats(1.0, 1e6), st.floats(0.1, 1e5))
def test_with_that_many_flows_the_load_is_as_long_as_recomputing(
    moved: float, again: float
) -> None:
    [flows] = flows_until_negative(STAGE, np.array([moved]), np.array([again])).tolist()
    if flows == 0.0:
        rate = min(60.0, 100.0)
        assert 1.0 + moved / 50.0 + moved / rate >= again * (1 - 1e-9)
    else:
        assert 1.0 + moved / 50.0 + moved * flows / 100.0 == pytest.approx(again)


def pooled() -> ReplayResult:
    tier = TierSpec(
        "pool",
        "shared",
        1e12,
        0.5,
        (StageSpec("pull", ("nic", "ports"), 0.25), StageSpec("load", ("pcie",), 0.25)),
        (),
    )
    result = make_result("pool_dram_tcp", hits={"pool": 100}, pull_s=8.0, load_s=2.0, tier=tier)
    links = {
        "nic": LinkSpec("nic", "instance", 60.0),
        "ports": LinkSpec("ports", "shared", 100.0),
        "pcie": LinkSpec("pcie", "instance", 50.0),
    }
    return replace(result, scenario=replace(result.scenario, links=links))


def test_the_shared_stage_of_a_pool_is_where_its_ports_are() -> None:
    assert shared_stage(pooled().scenario) == STAGE
    assert shared_stage(make_result("dram_idle", hits={}).scenario) is None


def test_contention_stands_beside_what_is_in_flight() -> None:
    # Each of 2 000 loads in 90 000 s takes 10 s: 0.222 at once on the mean, one at the most (45 s
    # apart). 10^8 B for 4 s of recompute are slower even alone.
    trace = make_trace()
    [point] = break_even_contention((pooled(),), trace, minutes_of(trace))
    assert point.flows == 0
    assert point.mean_in_flight == pytest.approx(2000 * 10 / 90_000)
    assert point.peak_in_flight == 1.0


def test_nothing_loaded_has_no_contention_point() -> None:
    trace, result = make_trace(), pooled()
    still = replace(result.timeline, moved_bytes=np.zeros(2000))
    [point] = break_even_contention((replace(result, timeline=still),), trace, minutes_of(trace))
    assert point.flows is None
    assert math.isclose(point.mean_in_flight, 0.0)
    assert break_even_contention((result,), None, None) == []


def test_tokens_and_cost_are_beyond_the_rival_that_the_verdict_weighs(record: AuditRecord) -> None:
    # 64 % of 20e6 prompt tokens less 11e6 of the rival: 9 %, at what the pool costs more than it.
    rival = Rival(option_id="b", title="B", hit_tokens=11_000_000, cost=Range(1.0, 2.0, 3.0))
    weighed = replace(POOL, extra_hit_tokens=1_800_000, cost=Range(-5.0, 100.0, 300.0), rival=rival)
    overloaded = replace(weighed, is_feasible=False)
    alone = replace(weighed, rival=None)
    pools = weighed_pools((weighed, overloaded, alone))
    [point] = break_even_reuse(pools, record.replay_window, WORTH)
    assert point.rival == "B"
    assert point.present_ratio_tokens == pytest.approx(0.09)
    assert (point.cost.low, point.cost.value, point.cost.high) == (0.0, 100.0, 300.0)
    assert point.ceiling_ratio_tokens == pytest.approx(0.7 * 1999 / 2000 - 0.55)
