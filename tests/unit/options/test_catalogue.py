"""What each option takes and how it is reached, at numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.audit.money.bills import Bills, traffic_of
from kvtrace.audit.options.kinds import is_free
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.fleet import default_fleet
from kvtrace.cost.tco.build import build_bill
from kvtrace.cost.tco.need import Need
from kvtrace.cost.tco.traffic import Traffic
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.catalogue import build_catalogue, find_option
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.options.recipes import family_of, recipes
from kvtrace.replay.result import LinkUse
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.units import GB, GIB, TB, TIB
from tests.unit.replay_cases import Ask, make_trace

BLOCK = 512


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)


@pytest.fixture(scope="module")
def ground(deployment: Deployment) -> Ground:
    """Four instances of one node each: two pool nodes of 2 TiB and two 400G ports."""
    fleet = default_fleet(deployment, 4)
    idle = fleet.dram_idle_bytes_per_instance.given(1.0 * TIB, source="fleet.toml")
    return Ground(
        deployment=deployment,
        fleet=replace(fleet, dram_idle_bytes_per_instance=idle),
        long_prompt_tokens=6_000,
        long_instances=1,
    )


def option(option_id: str, ground: Ground) -> ReplayOption:
    found = find_option(option_id, ground)
    assert found is not None
    return found


def test_every_option_of_the_catalogue_is_found_by_its_id(ground: Ground) -> None:
    catalogue = build_catalogue(ground, is_full=True)
    ids = [one.option_id for one in catalogue.options]
    assert len(set(ids)) == len(ids)
    # 5 stores x 2 routings x 2 formats x 2 isolations, recompute, 2 with own instances, 1 as
    # needed; 4 places x 3 wires and 1 x 1, at 3 rates (400 Gb/s is the stated one), x 2 formats.
    assert len(ids) == 5 * 8 + 4 + 13 * 3 * 2
    for one in catalogue.options:
        again = option(one.option_id, ground)
        assert (again.scenario.title, again.need) == (one.scenario.title, one.need)
        assert family_of(one.option_id) == one.family


def test_quick_has_each_place_and_each_kind_of_rival(ground: Ground) -> None:
    catalogue = build_catalogue(ground, is_full=False)
    places = {one.place for one in catalogue.options if one.family == "pool"}
    assert places == {"peer_dram", "dram_nodes", "dram_ssd_nodes", "file_system", "managed_cache"}
    ids = set(catalogue.by_id)
    assert {"dram_bought_kv_routing", "local_nvme_kv_routing", "bigger_gpu_kv_routing"} <= ids
    assert {"hbm_only_isolated", "dram_idle_kv_routing_fp8"} <= ids
    # No cloud cache is reached over RDMA: 2 wires at 3 rates in 2 formats cannot be.
    every = build_catalogue(ground, is_full=True)
    assert len(ids) + catalogue.left_to_full == len(every.options) + 2 * 3 * 2


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_no_pool_costs_less_than_what_every_pool_costs(ground: Ground, share: float) -> None:
    # The proof that no pool pays, of any size, rests on it: also where nobody has to be paid.
    operated = replace(
        ground.fleet.prices["operations_fte_share"], value=share, low=share, high=share
    )
    fleet = replace(ground.fleet, prices=ground.fleet.prices.with_stated(operated))
    least = Bills(fleet).smallest_pool_usd_per_month()
    assert (least.low > 0.0) == (share > 0.0)
    small = replace(fleet, pool_nodes=fleet.pool_nodes.given(1.0, source="one"))
    for stated in (fleet, small):
        catalogue = build_catalogue(replace(ground, fleet=stated), is_full=True)
        pools = [one for one in catalogue.options if one.family == "pool"]
        assert len(pools) > 50
        for one in pools:
            cost = build_bill(one.need, stated).usd_per_month
            assert cost.low >= least.low, one.option_id
            assert cost.value >= least.value, one.option_id
            assert cost.high >= least.high, one.option_id


def test_what_the_places_of_a_pool_need(ground: Ground) -> None:
    # Two nodes of 2 TiB and two ports; 8 drives of 3.84 TB a node; 1 TiB idles in each GPU node.
    nodes = Need(pool_nodes=2, pool_dram_bytes=4.0 * TIB, pool_ports=4, is_operated=True)
    ssd = 2 * 8 * 3.84 * TB
    assert option("pool_dram_tcp", ground).need == nodes
    assert option("pool_ssd_tcp", ground).need == replace(nodes, pool_ssd_bytes=ssd)
    assert option("pool_peer_tcp", ground).need == Need(idle_dram_bytes=4.0 * TIB, is_operated=True)
    rate = ground.fleet.pool_bytes_per_s
    assert option("pool_fs_tcp", ground).need == Need(
        appliance_bytes=ssd, appliance_bytes_per_s=rate, is_operated=True
    )
    # 4 096 GiB over 419 GiB x 0.75 = 13.03: 14 nodes, as many as are billed.
    cache = option("pool_managed_tcp", ground)
    assert cache.need.managed_cache_bytes == pytest.approx(14 * 419 * 0.75 * GIB)
    assert cache.scenario.tiers[-1].capacity_bytes == cache.need.managed_cache_bytes
    (line,) = build_bill(cache.need, ground.fleet).lines
    assert line.quantity == pytest.approx(14 * 730)


def test_what_options_on_the_instances_need(ground: Ground) -> None:
    idle = Need(idle_dram_bytes=4.0 * TIB)
    assert option("kv_routing", ground).need == Need()
    assert option("dram_idle_kv_routing_fp8_isolated", ground).need == idle
    # As many bytes as the pool: 4 TiB over four instances.
    bought = option("dram_bought", ground)
    assert bought.need == replace(idle, gpu_node_dram_bytes=4.0 * TIB)
    assert bought.scenario.tiers[0].capacity_bytes == 2.0 * TIB
    # The host has 4 drives of 3.84 TB a node.
    drives = ground.deployment.hardware.topology.nvme_per_node.value
    size = ground.deployment.hardware.nvme.capacity_bytes
    assert size is not None
    assert option("local_nvme", ground).need.gpu_node_ssd_bytes == 4 * drives * size.value
    # Drives that are there are not bought, but they wear.
    free = ground.fleet.nvme_free_bytes_per_instance.given(10 * TB, source="fleet.toml")
    there = replace(ground, fleet=replace(ground.fleet, nvme_free_bytes_per_instance=free))
    need = option("local_nvme", there).need
    assert (need.gpu_node_ssd_bytes, need.worn_ssd_bytes) == (0.0, 40 * TB)
    assert not is_free(need)


def test_only_flash_wears_and_only_the_network_is_crossed(ground: Ground) -> None:
    """4 TB are read of the pool, 1 TB of it from its drives; 2 TB are written to both tiers."""

    def traffic(option_id: str, **moved: tuple[float, float]) -> Traffic:
        uses = [LinkUse(i, 1, read, put, 0.0, 0.0) for i, (read, put) in moved.items()]
        return traffic_of(option(option_id, ground).scenario.tiers, uses, 10.0)

    flash = {"pool_nvme": (1 * TB, 0.0), "pool_nvme_write": (0.0, 2 * TB)}
    pooled = traffic("pool_ssd_rdma_direct", nic_rdma=(4 * TB, 2 * TB), **flash)
    assert pooled == Traffic(
        read_bytes_per_day=40 * TB,
        written_bytes_per_day=20 * TB,
        flash_written_bytes_per_day=20 * TB,
    )
    # Of a pool of DRAM nothing wears, and of the host's own drives nothing crosses.
    assert traffic("pool_dram_rdma_direct", nic_rdma=(4 * TB, 2 * TB)) == Traffic(
        read_bytes_per_day=40 * TB, written_bytes_per_day=20 * TB
    )
    drives = [i for t in option("local_nvme", ground).scenario.tiers for i in t.write[-1].link_ids]
    local = traffic("local_nvme", **{drives[-1]: (0.0, 3 * TB)})
    assert local == Traffic(flash_written_bytes_per_day=30 * TB)


def test_faster_ports_are_bought_and_slower_ones_are_there(ground: Ground) -> None:
    slower = option("pool_dram_rdma_direct_100g", ground)
    assert slower.need.port_bytes_per_s == 12.5 * GB
    assert slower.need.gpu_node_ports == 0
    unbuilt = ground.fleet.network.is_built.given(False, kind="given", source="fleet.toml")
    network = replace(ground.fleet.network, is_built=unbuilt)
    bare = replace(ground, fleet=replace(ground.fleet, network=network))
    ports = ground.fleet.network.compute_ports.value
    assert option("pool_dram_rdma_direct", bare).need.gpu_node_ports == 4 * ports


def test_a_slower_port_serves_less(ground: Ground) -> None:
    rates = [
        option(f"pool_dram_rdma_direct{at}", ground).scenario.links["pool_nic_rdma"].bytes_per_s
        for at in ("_100g", "_200g", "")
    ]
    assert rates == sorted(rates)
    # Two nodes x two ports x chunks of 2 MiB at 12.1 GB/s and 2 us each.
    chunk = 2 * 2**20
    assert rates[0] == pytest.approx(4 * chunk / (2e-6 + chunk / 12.1e9))


def test_the_bigger_gpu_is_the_next_by_hbm_that_is_not_slower(ground: Ground) -> None:
    found = option("bigger_gpu", ground)
    # H20 and GH200 have more than 80 GB, too: one is slower, the other's node holds no TP8.
    assert found.need == Need(gpu="H200-SXM")
    assert found.scenario.instances == 4
    more = (141 - 80) * GIB * 8 * 0.9
    held = found.scenario.hbm_capacity_bytes - ground.deployment.hbm_cache_bytes
    assert held == pytest.approx(more)


def test_fp8_halves_the_bytes_that_move_and_doubles_what_fits(ground: Ground) -> None:
    blocks = [f"b{i}" for i in range(20)]
    trace = make_trace([Ask(0, blocks), Ask(3600, [*blocks, "own"])], block_size=BLOCK)
    wide, narrow = (
        option(f"pool_dram_rdma_direct{suffix}", ground).scenario for suffix in ("", "_fp8")
    )
    moved = [simulate(trace, one).timeline.moved_bytes[1] for one in (wide, narrow)]
    assert moved[0] == 20 * BLOCK * 327_680
    assert moved[1] == moved[0] / 2
    assert narrow.hbm_capacity_bytes == wide.hbm_capacity_bytes
    assert narrow.kv_bytes_per_token * 2 == wide.kv_bytes_per_token
    # Packing 1 000 tokens reads 327 680 and writes 163 840 bytes each on 8 GPUs: some microseconds.
    extra = narrow.prefill.prefill_s(1000, 0) - wide.prefill.prefill_s(1000, 0)
    least = 1000 * 491_520 / (8 * 3.35e12)
    assert least < extra < 2 * least


def test_no_bandwidth_is_as_good_as_no_pool(ground: Ground) -> None:
    # With an arbiter a pool that moves nothing is never loaded from.
    pool = option("pool_dram_tcp", ground).scenario
    still = {name: replace(link, bytes_per_s=0.0) for name, link in pool.links.items()}
    trace = make_trace([Ask(0, "abc"), Ask(9, "abc"), Ask(20, "abd")], block_size=BLOCK)
    none = simulate(trace, option("hbm_only", ground).scenario).timeline
    ours = simulate(trace, replace(pool, links=still, load_decision="arbiter")).timeline
    assert ours.computed_tokens.tolist() == none.computed_tokens.tolist()


def test_a_boundless_pool_hits_no_more_than_there_is_to_reuse(ground: Ground) -> None:
    pool = option("pool_ssd_rdma_direct", ground).scenario
    wide = {name: replace(link, bytes_per_s=1e15) for name, link in pool.links.items()}
    tiers = tuple(replace(tier, capacity_bytes=1e18) for tier in pool.tiers)
    asks = [Ask(i, "abcdef"[: 1 + i % 6], prompt=BLOCK * (1 + i % 6)) for i in range(30)]
    trace = make_trace(asks, block_size=BLOCK)
    timeline = simulate(trace, replace(pool, links=wide, tiers=tiers)).timeline
    hits = sum(timeline.hit_tokens.values())
    assert (hits <= reusable_tokens(trace)).all()


def test_what_cannot_be_is_absent_with_a_reason(deployment: Deployment) -> None:
    alone = Ground(deployment=deployment, fleet=default_fleet(deployment, 1))
    reasons = {one.option_id: one.reason for one in build_catalogue(alone, is_full=False).absent}
    assert reasons["kv_routing"] == "one instance has nothing to route"
    assert "no peers" in reasons["pool_peer_rdma_direct"]
    assert "no prompts stand out" in reasons["hbm_only_isolated"]
    narrow = Ground(
        deployment=build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8, kv_dtype="fp8"),
        fleet=alone.fleet,
    )
    absent = build_catalogue(narrow, is_full=False).absent
    assert any(one.reason == "KV is in fp8 already" for one in absent)


def test_no_free_dram_is_no_option(ground: Ground) -> None:
    fleet = ground.fleet
    none = fleet.dram_idle_bytes_per_instance.given(0.0, source="fleet.toml")
    full = replace(ground, fleet=replace(fleet, dram_idle_bytes_per_instance=none))
    catalogue = build_catalogue(full, is_full=False)
    there = {one.option_id for one in catalogue.options}
    assert "dram_idle" not in there
    assert {"local_nvme_kv_routing", "hbm_only", "pool_dram_tcp"} <= there
    reasons = {one.option_id: one.reason for one in catalogue.absent}
    assert reasons["dram_idle"] == "the fleet file says that no host DRAM is free for KV"


def test_ids_tell_the_family_also_of_options_that_nobody_knows() -> None:
    assert family_of("pool_of_a_file") == "pool"
    assert family_of("as_observed") == "today"
    assert {family_of(one.option_id) for one in recipes(4)} == {
        "today",
        "local",
        "pool",
        "hardware",
    }
