"""The stage that searches fleets and degrades pools, on a real deployment and few requests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.api.degraded import DegradedSearch, degrade_option
from kvtrace.api.fleet_questions import stated_fleet
from kvtrace.api.fleet_search import OptionSearch, search_option
from kvtrace.audit.fleet.facts import OptionFacts
from kvtrace.audit.fleet.record import DegradedState
from kvtrace.audit.fleet.surrogate import Sample
from kvtrace.audit.slo.reference import reference_of
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.window import WindowedTrace
from tests.unit.audit_fakes import make_deployment, make_fleet
from tests.unit.replay_cases import Ask, make_trace

BLOCKS = 16
TRACE = make_trace(
    [
        Ask(0.7 * place, [f"{place % 9}-{block}" for block in range(BLOCKS)], output=20)
        for place in range(60)
    ],
    block_size=512,
)
WINDOW = WindowedTrace(TRACE, 20)


def small_fleet() -> Fleet:
    return replace(make_fleet(), instances=2)


def ground() -> Ground:
    return Ground(deployment=make_deployment(), fleet=small_fleet())


def search(option_id: str) -> OptionFacts:
    hbm = simulate(TRACE, stated_fleet(ground()).build("hbm_only", 2), warmup_requests=20)
    return search_option(
        WINDOW,
        OptionSearch(
            option_id=option_id,
            ground=ground(),
            today=reference_of(WINDOW.window, hbm),
            today_sample=Sample(2, hbm.offered_load, is_kept=True),
            reference="hbm_only",
            sessions=np.arange(60, dtype=np.int64) % 9,
            seed=1,
        ),
    )


def test_todays_option_needs_no_more_than_the_stated_fleet() -> None:
    found = search("hbm_only")
    assert [need.load for need in found.needs] == [1.0, 2.0, 4.0]
    own = found.needs[0].instances
    assert own is not None
    assert own <= 2
    assert found.free_prefill_saves is not None
    assert 0 <= found.free_prefill_saves < own
    assert found.load_at_slo is not None
    assert found.load_at_slo >= 1.0
    assert found.carried is not None
    assert found.carried <= own
    assert found.least is not None
    assert found.least <= own
    assert found.binding.is_missed is (own > 1)


def test_a_pool_has_no_reserve_of_its_own_in_the_search() -> None:
    found = search("pool_dram_rdma_direct")
    assert found.carried is None
    assert found.free_prefill_saves is None


def degraded(*, is_full: bool) -> dict[str, DegradedState]:
    hbm = simulate(TRACE, stated_fleet(ground()).build("hbm_only", 2), warmup_requests=20)
    facts = degrade_option(
        WINDOW,
        DegradedSearch(
            option_id="pool_dram_rdma_direct",
            instances=2,
            ground=ground(),
            pool_nodes=2,
            left=0.5,
            spare_nodes=0,
            today=reference_of(WINDOW.window, hbm),
            is_full=is_full,
            down=None,
            stated_carries=True,
            stated_at_slo=2,
        ),
    )
    assert facts.reserve_instances is not None
    assert facts.reserve_at_slo is not None
    assert facts.reserve_instances <= facts.reserve_at_slo
    return {state.state: state for state in facts.states}


@pytest.mark.parametrize("is_full", [False, True])
def test_every_state_is_replayed_and_cold_is_no_better_than_warm(is_full: bool) -> None:
    states = degraded(is_full=is_full)
    names = {"warm", "released", "pool_down", "hot_node", "node_lost"}
    assert set(states) == names | ({"pool_restarted"} if is_full else set())
    cold = [state for name, state in states.items() if name in ("released", "pool_restarted")]
    warm = states["warm"].hit_ratio_tokens
    assert warm is not None
    assert all((state.hit_ratio_tokens or 0.0) <= warm for state in cold)
    assert all(state.is_rewarmed is not None for state in cold)


def test_on_the_stated_fleet_the_pool_that_is_down_is_today_itself() -> None:
    down = degraded(is_full=False)["pool_down"]
    assert down.keeps_slo
    assert down.carries_load
