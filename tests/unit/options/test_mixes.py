"""The search over mixes: what it prices, what it replays, and what it says of the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.api.mixes import MOST_QUICK, with_mixes
from kvtrace.api.replays import Replays, WindowRuns
from kvtrace.audit.options.frontier import build_frontier
from kvtrace.audit.options.mixes import (
    Mix,
    MixFacts,
    Weighed,
    surrogate_tails,
    untried,
    worth_a_replay,
)
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.fleet import default_fleet
from kvtrace.exec.progress import SilentProgress
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.catalogue import build_catalogue, build_mixes, find_option
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.option import Catalogue
from kvtrace.replay.options.recipes import changes_of, family_of
from kvtrace.replay.window import WindowedTrace
from kvtrace.units import TIB
from tests.unit.options.test_frontier import priced
from tests.unit.replay_cases import Ask, make_trace


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)


@pytest.fixture(scope="module")
def ground(deployment: Deployment) -> Ground:
    fleet = default_fleet(deployment, 4)
    idle = fleet.dram_idle_bytes_per_instance.given(1.0 * TIB, source="fleet.toml")
    return Ground(
        deployment=deployment,
        fleet=replace(fleet, dram_idle_bytes_per_instance=idle),
        long_prompt_tokens=6_000,
        long_instances=1,
    )


def test_every_mix_is_found_by_its_id_and_is_of_no_depth(ground: Ground) -> None:
    mixes = {one.option_id: one for one in build_mixes(ground)}
    known = set(build_catalogue(ground, is_full=True).by_id)
    # 2 places x 3 wires x (as it is, over DRAM, twice) x 2 routings x 2 formats x 2 isolations.
    assert len(mixes) == 2 * 3 * 3 * 2 * 2 * 2
    for ident, one in mixes.items():
        again = find_option(ident, ground)
        assert again is not None
        assert (again.scenario.title, again.need) == (one.scenario.title, one.need)
        assert family_of(ident) == "pool"
        assert ident in known or changes_of(ident)[1]
    base, changes = changes_of("pool_dram_rdma_direct_2x_kv_routing_fp8_isolated")
    assert base == "pool_dram_rdma_direct"
    assert changes == {"_2x", "_kv_routing", "_fp8", "_isolated"}
    assert changes_of("kv_routing_fp8") == ("hbm_only", frozenset({"_kv_routing", "_fp8"}))


def test_a_pool_over_idle_dram_has_both_and_twice_the_nodes_twice_the_rest(
    ground: Ground,
) -> None:
    pool, over, twice = (
        find_option(f"pool_dram_tcp{change}", ground) for change in ("", "_idle_dram", "_2x")
    )
    assert pool is not None
    assert over is not None
    assert twice is not None
    assert [tier.tier_id for tier in over.scenario.tiers] == ["host_dram", "pool"]
    assert over.need == replace(pool.need, idle_dram_bytes=4.0 * TIB)
    assert twice.need.pool_nodes == 2 * pool.need.pool_nodes
    assert twice.need.pool_dram_bytes == 2 * pool.need.pool_dram_bytes
    assert twice.need.pool_ports == 2 * pool.need.pool_ports
    rates = [one.scenario.links["pool_nic_tcp"].bytes_per_s for one in (pool, twice)]
    assert rates[1] == pytest.approx(2 * rates[0])
    # Neither stands twice in an id, and an appliance has no nodes to add.
    for wrong in ("pool_dram_tcp_2x_2x", "pool_dram_tcp_idle_dram_2x", "pool_fs_tcp_2x"):
        assert find_option(wrong, ground) is None


def test_the_surrogate_is_the_nearest_replay_times_what_changes_did_elsewhere() -> None:
    tails = {
        "hbm_only": 10.0,
        "kv_routing": 8.0,  # 0.8 by routing
        "pool_dram_tcp": 4.0,
        "pool_dram_tcp_fp8": 3.0,  # 0.75 by fp8
        "pool_ssd_tcp_fp8": 6.0,
    }
    found = surrogate_tails(
        ["pool_dram_tcp_kv_routing_fp8", "pool_dram_tcp_2x", "pool_fs_tcp_fp8"], tails
    )
    assert found == {
        "pool_dram_tcp_kv_routing_fp8": pytest.approx(3.0 * 0.8),
        "pool_dram_tcp_2x": 4.0,
    }


def test_a_change_that_nobody_replayed_comes_first_with_the_fastest_pool() -> None:
    known = [Weighed("pool_dram_tcp", 100.0, 4.0), Weighed("pool_ssd_tcp", 100.0, 3.0)]
    mixes = ["pool_dram_tcp_2x", "pool_ssd_tcp_2x", "pool_dram_tcp_idle_dram"]
    assert untried(mixes, known) == ["pool_ssd_tcp_2x", "pool_dram_tcp_idle_dram"]
    tried = [*known, Weighed("pool_ssd_tcp_2x", 200.0, 2.0)]
    assert untried(mixes, tried) == ["pool_dram_tcp_idle_dram"]


def test_the_cheapest_millisecond_is_replayed_next() -> None:
    known = [Weighed("free", 0.0, 10.0), Weighed("dear", 1000.0, 4.0)]

    def mix(name: str, usd: float, tail_s: float) -> Mix:
        return Mix(name, name, usd, tail_s, 0.0)

    found = worth_a_replay(
        [
            mix("a", 600.0, 4.0),  # 6 s less than free: $0.1 a ms
            mix("b", 1200.0, 3.0),  # 1 s less than dear: $0.2 a ms
            mix("c", 500.0, 9.99),  # not clearly less
            mix("d", 2000.0, 4.5),  # a cheaper one is as fast
        ],
        known,
    )
    assert [one.option_id for one in found] == ["a", "b"]
    assert [one.usd_per_ms for one in found] == pytest.approx([0.1, 0.2])


def test_a_search_keeps_its_budget_and_prices_the_rest(ground: Ground) -> None:
    asks = [Ask(0.7 * i, [f"{i % 9}-{b}" for b in range(16)], output=20) for i in range(60)]
    windowed = WindowedTrace(make_trace(asks, block_size=512), 20)
    wanted = ("hbm_only", "dram_idle", "pool_dram_tcp", "pool_dram_rdma_direct")
    options = tuple(one for ident in wanted if (one := find_option(ident, ground)) is not None)
    results = tuple(simulate(windowed.trace, one.scenario, warmup_requests=20) for one in options)
    replays = Replays(windowed, results, catalogue=Catalogue(options, (), 100), ground=ground)
    with WindowRuns(windowed, SilentProgress(), workers=1) as run:
        found = with_mixes(run, replays, ground, SilentProgress(), is_full=False)
    facts = found.mixes
    assert 0 < len(facts.replayed) <= facts.most == MOST_QUICK
    assert found.results[: len(results)] == results
    ids = [one.scenario.option_id for one in found.results]
    assert ids == [one.option_id for one in found.options]
    assert len(set(ids)) == len(ids)
    assert {"_2x", "_idle_dram"} <= {c for i in facts.replayed for c in changes_of(i)[1]}
    assert not any(found.catalogue.by_id[one].is_quick for one in facts.replayed)
    assert not {one.option_id for one in facts.promising} & set(ids)
    assert facts.by_surrogate > 0


def test_without_a_pool_nothing_is_searched(ground: Ground) -> None:
    windowed = WindowedTrace(make_trace([Ask(0.0, "a")]), 0)
    with WindowRuns(windowed, SilentProgress(), workers=1) as run:
        assert with_mixes(run, Replays(), ground, SilentProgress(), is_full=False) == Replays()


def test_what_was_not_replayed_stands_beside_the_frontier() -> None:
    facts = MixFacts(
        replayed=("pool_dram_tcp_2x",),
        most=4,
        by_surrogate=7,
        promising=(Mix("pool_dram_tcp_idle_dram", "Both", 100.0, 0.5, 0.2),),
    )
    found = build_frontier([priced("hbm_only", 0.0, 2.0)], facts)
    assert found is not None
    assert [step.option for step in found.steps] == ["hbm_only"]
    assert (found.mixes_replayed, found.mixes_most, found.mixes_by_surrogate) == (1, 4, 7)
    (one,) = found.promising
    assert (one.option, one.usd_per_ms) == ("pool_dram_tcp_idle_dram", 0.2)
