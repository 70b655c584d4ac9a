"""The options as scenarios of a real deployment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.fleet import Fleet, default_fleet
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.presets import build_scenarios, with_arbiter
from kvtrace.replay.scenario import Scenario
from tests.unit.replay_cases import Ask, make_trace


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)


@pytest.fixture(scope="module")
def fleet(deployment: Deployment) -> Fleet:
    return default_fleet(deployment, 8)


def by_id(deployment: Deployment, fleet: Fleet) -> dict[str, Scenario]:
    return {scenario.option_id: scenario for scenario in build_scenarios(deployment, fleet)}


def test_the_options_have_their_fixed_ids_in_order(deployment: Deployment, fleet: Fleet) -> None:
    assert list(by_id(deployment, fleet)) == [
        "recompute",
        "hbm_only",
        "kv_routing",
        "dram_idle",
        "dram_idle_kv_routing",
        "pool_dram_tcp",
        "pool_dram_rdma_bounce",
        "pool_dram_rdma_direct",
    ]


def test_options_differ_in_tiers_and_links_and_two_pairs_in_routing(
    deployment: Deployment, fleet: Fleet
) -> None:
    scenarios = build_scenarios(deployment, fleet, load_decision="arbiter")
    bare = {
        replace(
            scenario,
            option_id="",
            title="",
            tiers=(),
            links=(),  # type: ignore[arg-type]
            reuse=True,
            routing="least_loaded",
        )
        for scenario in scenarios
    }
    assert len(bare) == 1
    options = {scenario.option_id: scenario for scenario in scenarios}
    routed = [name for name, one in options.items() if one.routing == "kv_centric"]
    assert routed == ["kv_routing", "dram_idle_kv_routing"]
    for plain, name in zip(("hbm_only", "dram_idle"), routed, strict=True):
        assert (options[plain].tiers, options[plain].links) == (
            options[name].tiers,
            options[name].links,
        )
    assert {scenario.load_decision for scenario in scenarios} == {"arbiter"}


def test_only_recompute_has_no_cache(deployment: Deployment, fleet: Fleet) -> None:
    without = [s.option_id for s in build_scenarios(deployment, fleet) if not s.reuse]
    assert without == ["recompute"]


def test_idle_dram_is_private_and_as_large_as_the_fleet_says(
    deployment: Deployment, fleet: Fleet
) -> None:
    scenario = by_id(deployment, fleet)["dram_idle"]
    (tier,) = scenario.tiers
    assert (tier.tier_id, tier.scope) == ("host_dram", "instance")
    assert tier.capacity_bytes == fleet.dram_idle_bytes_per_instance.value
    assert [stage.kind for stage in tier.read] == ["load"]
    assert all(link.scope == "instance" for link in scenario.links.values())


@pytest.mark.parametrize(
    ("option", "nic", "kinds"),
    [
        ("pool_dram_tcp", "nic_tcp", ["pull", "load"]),
        ("pool_dram_rdma_bounce", "nic_rdma", ["pull", "load"]),
        ("pool_dram_rdma_direct", "nic_rdma", ["pull"]),
    ],
)
def test_a_pool_is_shared_and_its_ports_face_the_nodes(
    deployment: Deployment, fleet: Fleet, option: str, nic: str, kinds: list[str]
) -> None:
    scenario = by_id(deployment, fleet)[option]
    (tier,) = scenario.tiers
    assert (tier.tier_id, tier.scope) == ("pool", "shared")
    assert tier.capacity_bytes == fleet.pool_dram_bytes.value
    assert [stage.kind for stage in tier.read] == kinds
    assert [stage.kind for stage in tier.write] == kinds[::-1]
    for stage in (*tier.read, *tier.write):
        assert (nic in stage.link_ids) == (stage.kind == "pull")
        assert (f"pool_{nic}" in stage.link_ids) == (stage.kind == "pull")
    pool_nic = scenario.links[f"pool_{nic}"]
    assert pool_nic.scope == "shared"
    assert 0 < pool_nic.bytes_per_s <= fleet.pool_bytes_per_s
    assert scenario.links[nic].scope == "instance"


def test_tcp_serves_less_than_rdma(deployment: Deployment, fleet: Fleet) -> None:
    scenarios = by_id(deployment, fleet)
    tcp = scenarios["pool_dram_tcp"].links["pool_nic_tcp"]
    rdma = scenarios["pool_dram_rdma_bounce"].links["pool_nic_rdma"]
    assert tcp.bytes_per_s < rdma.bytes_per_s == fleet.pool_bytes_per_s


def test_instances_of_one_node_share_what_the_node_has_once() -> None:
    deployment = build_deployment("Llama-3.1-8B", "H100-SXM5", tp=1)
    scenario = by_id(deployment, default_fleet(deployment, 8))["dram_idle"]
    assert scenario.links["host_dram_read"].instances_per_link == 8
    assert scenario.links["pcie"].instances_per_link == 1


def test_a_lone_pool_hit_takes_the_time_of_the_path(deployment: Deployment, fleet: Fleet) -> None:
    # 20 blocks of 512 tokens, computed on one instance, loaded on the next, nothing else moving,
    # and a pool with more ports than the instance has
    wide = replace(fleet, pool_nodes=replace(fleet.pool_nodes, value=64.0, high=64.0))
    blocks = [f"b{i}" for i in range(20)]
    trace = make_trace([Ask(0, blocks), Ask(3600, [*blocks, "own"])], block_size=512)
    kv_bytes = 20 * 512 * deployment.kv_bytes_per_token
    for option, path_id in (
        ("pool_dram_tcp", "pool_tcp"),
        ("pool_dram_rdma_bounce", "pool_rdma_bounce"),
        ("pool_dram_rdma_direct", "pool_rdma_direct"),
    ):
        timeline = simulate(trace, by_id(deployment, wide)[option]).timeline
        path = deployment.path(path_id)
        moved = timeline.lookup_s[1] + timeline.pull_s[1] + timeline.load_s[1]
        assert timeline.hit_tokens["pool"].tolist() == [0, 20 * 512]
        assert moved == pytest.approx(path.move_s(kv_bytes))


def test_a_pool_with_few_ports_holds_a_lone_load_back(deployment: Deployment, fleet: Fleet) -> None:
    blocks = [f"b{i}" for i in range(20)]
    trace = make_trace([Ask(0, blocks), Ask(3600, [*blocks, "own"])], block_size=512)
    scenario = by_id(deployment, fleet)["pool_dram_rdma_direct"]
    (stage,) = scenario.tiers[0].read
    kv_bytes = 20 * 512 * deployment.kv_bytes_per_token
    assert fleet.pool_bytes_per_s < scenario.links["nic_rdma"].bytes_per_s
    pull_s = simulate(trace, scenario).timeline.pull_s[1]
    assert pull_s == pytest.approx(stage.latency_s + kv_bytes / fleet.pool_bytes_per_s)


def test_no_idle_dram_is_hbm_alone(deployment: Deployment, fleet: Fleet) -> None:
    none = replace(fleet.dram_idle_bytes_per_instance, value=0.0, low=0.0)
    empty = by_id(deployment, replace(fleet, dram_idle_bytes_per_instance=none))
    trace = make_trace([Ask(0, "abc"), Ask(9, "abc")], block_size=512)
    ours = simulate(trace, empty["dram_idle"]).timeline.ttft_s
    assert ours.tobytes() == simulate(trace, empty["hbm_only"]).timeline.ttft_s.tobytes()


def test_pools_can_have_an_arbiter(deployment: Deployment, fleet: Fleet) -> None:
    pools = list(by_id(deployment, fleet).values())[3:]
    for before in pools:
        scenario = with_arbiter(before)
        assert scenario.option_id == before.option_id
        assert (before.load_decision, scenario.load_decision) == ("always", "arbiter")
        assert scenario.title == f"{before.title}, arbiter"
        assert scenario.tiers == before.tiers


def test_real_options_ask_on_schedule_and_share_steps(deployment: Deployment, fleet: Fleet) -> None:
    # eight prompts of 512 that arrive behind a long one cost about one of 4 096, not eight
    scenario = by_id(deployment, fleet)["recompute"]
    assert scenario.lookup_moment == "on_schedule"
    asks = [Ask(0, prompt=8192), *(Ask(0.01, prompt=512) for _ in range(8))]
    result = simulate(make_trace(asks), replace(scenario, instances=1))
    together_s = result.timeline.prefill_s[1]
    assert (result.timeline.prefill_s[1:] == together_s).all()
    assert together_s < 1.01 * deployment.prefill.prefill_s(4096, 0)
    assert result.timeline.prefill_s[0] == pytest.approx(deployment.prefill.prefill_s(8192, 0))


def test_a_stated_node_network_is_the_one_that_pools_are_reached_over() -> None:
    deployment = build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=4)
    fleet = default_fleet(deployment, 4)
    stated = replace(
        fleet,
        node_network_bytes_per_s=fleet.node_network_bytes_per_s.given(1.25e9, source="fleet.toml"),
    )
    scenarios = {one.option_id: one for one in build_scenarios(deployment, stated)}
    link = scenarios["pool_dram_rdma_direct"].links["nic_rdma"]
    # Two instances of four GPUs share the ports of an eight-GPU node.
    assert (link.bytes_per_s, link.instances_per_link) == (1.25e9, 2)
    tcp = scenarios["pool_dram_tcp"].links["nic_tcp"]
    assert tcp.bytes_per_s <= 1.25e9
