"""Degraded states without a replay, at numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from kvtrace.audit.fleet.estimated_states import (
    Degrading,
    estimated_states,
    slowed,
    without_share,
)
from kvtrace.audit.fleet.record import DegradedState
from kvtrace.audit.fleet.states import Judge
from kvtrace.audit.slo.reference import reference_of
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.engine import simulate
from kvtrace.replay.result import ReplayResult
from tests.unit.test_degraded import TRACE, hbm_only, pooled


@pytest.fixture(scope="module")
def warm() -> ReplayResult:
    return simulate(TRACE, pooled())


def test_nothing_that_is_lost_changes_nothing(warm: ReplayResult) -> None:
    for same in (slowed(warm, 1.0), without_share(TRACE, warm, 0.0)):
        assert same.timeline.ttft_s.tolist() == warm.timeline.ttft_s.tolist()
        assert same.is_overloaded == warm.is_overloaded
        assert {k: v.tolist() for k, v in same.timeline.hit_tokens.items()} == {
            k: v.tolist() for k, v in warm.timeline.hit_tokens.items()
        }


def test_at_half_the_rate_pulls_take_twice_as_long(warm: ReplayResult) -> None:
    slow = slowed(warm, 0.5)
    pulled = warm.timeline.pull_s
    assert pulled.sum() > 0
    assert slow.timeline.ttft_s == pytest.approx(warm.timeline.ttft_s + pulled)
    # A link in use for a part of the time is asked for more than all at a small enough rate.
    (use,) = [one for one in warm.link_use if one.link_id == "pool_nic"]
    assert slowed(warm, 0.9 * use.utilisation).is_overloaded


def test_what_shared_tiers_do_not_serve_is_computed(warm: ReplayResult) -> None:
    less = without_share(TRACE, warm, 0.25)
    timeline = warm.timeline
    added = 0.25 * (timeline.recompute_hit_s - timeline.pull_s - timeline.load_s)
    loaded = timeline.hit_tokens["pool"] > 0
    assert less.timeline.ttft_s[loaded] == pytest.approx((timeline.ttft_s + added)[loaded])
    assert less.timeline.ttft_s[~loaded].tolist() == timeline.ttft_s[~loaded].tolist()
    assert less.timeline.hit_tokens["hbm"].tolist() == timeline.hit_tokens["hbm"].tolist()
    assert less.timeline.hit_tokens["pool"].sum() <= 0.75 * timeline.hit_tokens["pool"].sum()
    assert less.offered_load is not None
    assert warm.offered_load is not None
    assert less.offered_load >= warm.offered_load


def cold(name: str, warm: DegradedState, *, late: int) -> DegradedState:
    return DegradedState(
        state="released" if name == "released" else "warm",
        requests=warm.requests,
        within=warm.within - late,
        keeps_slo=late == 0,
        carries_load=True,
        hit_ratio_tokens=(warm.hit_ratio_tokens or 0.0) - 0.1 * (late > 0),
        ttft_p99_s=None,
        is_rewarmed=True if late else None,
        rewarm_s=60.0 if late else None,
        late_more=late or None,
    )


def test_every_state_of_a_pool_has_a_row_that_says_how_it_is_known(warm: ReplayResult) -> None:
    hbm = simulate(TRACE, hbm_only())
    judge = Judge(reference_of(TRACE, hbm), SloTarget(ttft_s=3.0), 0.0, 8)
    own = judge.state("warm", TRACE, warm)
    pattern = (cold("warm", own, late=0), cold("released", own, late=2))
    for down in (None, hbm):
        found = estimated_states(
            judge,
            TRACE,
            warm,
            Degrading(hot_factor=0.5, left=0.5),
            down=down,
            pattern=pattern,
        )
        by_name = {one.state: one for one in found}
        assert set(by_name) == {"warm", "released", "pool_down", "hot_node", "node_lost"}
        assert by_name["warm"].basis == "replayed"
        assert by_name["pool_down"].basis == ("surrogate" if down is None else "replayed")
        released = by_name["released"]
        assert released.within == max(0, by_name["warm"].within - 2)
        assert (released.basis, released.rewarm_s) == ("surrogate", 60.0)
        ratio = by_name["warm"].hit_ratio_tokens
        assert released.hit_ratio_tokens == pytest.approx((ratio or 0.0) - 0.1)
        assert all(one.within <= by_name["warm"].within for one in found)
    # A place without nodes of its own loses none.
    whole = Degrading(hot_factor=0.5, left=None)
    found = estimated_states(judge, TRACE, warm, whole, down=None, pattern=pattern)
    assert "node_lost" not in {one.state for one in found}


def test_without_a_node_it_loses_what_the_replayed_pool_lost(warm: ReplayResult) -> None:
    judge = Judge(reference_of(TRACE, simulate(TRACE, hbm_only())), SloTarget(), 0.0, 8)
    own = judge.state("warm", TRACE, warm)
    part = Degrading(hot_factor=1.0, left=0.5)

    def hits(*pattern: DegradedState) -> float:
        states = estimated_states(judge, TRACE, warm, part, down=None, pattern=(own, *pattern))
        return next(one.hit_ratio_tokens or 0.0 for one in states if one.state == "node_lost")

    hot = msgspec.structs.replace(own, state="hot_node", hit_ratio_tokens=0.8)
    whole = msgspec.structs.replace(own, state="node_lost", hit_ratio_tokens=0.8)
    fewer = msgspec.structs.replace(own, state="node_lost", hit_ratio_tokens=0.6)
    # Nothing lost; a quarter of all hits; nobody replayed it: its half.
    assert hits(hot, whole) == own.hit_ratio_tokens
    assert hits(hot, whole) > hits(hot, fewer) > hits()


def test_the_surrogate_of_a_pool_that_is_down_hits_as_hbm_alone(warm: ReplayResult) -> None:
    lost = without_share(TRACE, warm, 1.0)
    assert int(lost.timeline.hit_tokens["pool"].sum()) == 0
    assert np.isfinite(lost.timeline.ttft_s).all()
    assert replace(lost, scenario=warm.scenario).scenario.option_id == "pool_test"
