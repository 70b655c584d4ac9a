"""Laws of the closed loop on random small traces and several kinds of scenario."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.replay.closed_loop import ClosedLoop, turns_before
from kvtrace.replay.engine import simulate
from kvtrace.replay.ledger import LinkLedger
from kvtrace.replay.scenario import IsolationSpec, Scenario
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import (
    Ask,
    dram_tier,
    ints,
    links,
    make_scenario,
    make_trace,
    pool_tier,
)

LAW = settings(deadline=None, max_examples=25)
WIRES = links(nic=80.0, pool=90.0, pcie=200.0)
SCENARIOS = {
    "plain": make_scenario(),
    "tiers": make_scenario(
        instances=2, hbm_capacity_bytes=400.0, tiers=(dram_tier(), pool_tier()), links=WIRES
    ),
    "sync": make_scenario(
        hbm_capacity_bytes=400.0, tiers=(pool_tier(lookup_s=0.1),), links=WIRES, load_mode="sync"
    ),
    "isolated": make_scenario(
        instances=2, prefill_chunk_tokens=20, isolation=IsolationSpec(long_prompt_tokens=25)
    ),
}
scenario = pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)


@st.composite
def traces(draw: st.DrawFn) -> RequestTrace:
    """Conversations that grow turn by turn."""
    turns = draw(
        st.lists(
            st.tuples(st.integers(0, 20), st.integers(-1, 3), st.integers(1, 3), st.integers(0, 9)),
            min_size=1,
            max_size=12,
        )
    )
    at_s, asks, sessions = 0.0, [], []
    grown: dict[int, int] = {}
    for index, (gap, session, blocks, output) in enumerate(turns):
        at_s += gap / 10
        grown[session] = grown.get(session, 0) + blocks if session >= 0 else blocks
        who = session if session >= 0 else f"alone {index}"
        labels = [(who, depth) for depth in range(min(grown[session], 8))]
        asks.append(Ask(at_s, labels, output=output))
        sessions.append(session)
    return replace(make_trace(asks), session=ints(sessions))


@scenario
@given(traces(), st.floats(0.0, 2.0))
@LAW
def test_each_turn_comes_its_think_time_after_the_end_of_the_one_before(
    scenario: Scenario, trace: RequestTrace, think_s: float
) -> None:
    before = turns_before(trace)
    loop = ClosedLoop(trace, np.where(before >= 0, think_s, np.nan))
    timeline = simulate(trace, scenario, loop=loop, ledger=LinkLedger(1.0)).timeline
    arrived_s = np.array(loop.arrived_s)
    is_turn = before >= 0
    ends_s = arrived_s[before] + timeline.e2e_s[before]
    assert arrived_s[is_turn] == pytest.approx((ends_s + think_s)[is_turn])
    assert arrived_s[~is_turn] == pytest.approx(trace.arrived_at_ns[~is_turn] / 1e9)
    assert (timeline.ttft_s >= 0).all()
    hits = sum(timeline.hit_tokens.values())
    assert (hits + timeline.computed_tokens == trace.prompt_tokens).all()
