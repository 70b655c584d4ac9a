"""Spare nodes of a pool: what they cost, and what is left of the pool when a node is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kvtrace.api.degraded import _pool_nodes  # the rule by which places lose a node
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.fleet import default_fleet, load_fleet
from kvtrace.cost.tco.build import build_bill
from kvtrace.replay.degraded import with_part_of_pool
from kvtrace.replay.options.catalogue import find_option
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.option import ReplayOption


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)


def ground(deployment: Deployment, tmp_path: Path, spare: int) -> Ground:
    path = tmp_path / f"fleet{spare}.toml"
    path.write_text(f"[pool]\nnodes = 4\n[redundancy]\nspare_pool_nodes = {spare}\n")
    return Ground(deployment=deployment, fleet=load_fleet(path, default_fleet(deployment, 4)))


def option(option_id: str, ground: Ground) -> ReplayOption:
    found = find_option(option_id, ground)
    assert found is not None
    return found


@pytest.mark.parametrize("option_id", ["pool_dram_tcp", "pool_ssd_tcp"])
def test_a_spare_node_is_bought_whole_and_serves_nothing(
    deployment: Deployment, tmp_path: Path, option_id: str
) -> None:
    bare, spare = (option(option_id, ground(deployment, tmp_path, n)) for n in (0, 2))
    assert spare.scenario == bare.scenario
    # Six nodes in place of four: each quantity is 6 / 4 of what it was.
    fleet = ground(deployment, tmp_path, 0).fleet
    lines = {line.id: line.quantity for line in build_bill(bare.need, fleet).lines}
    more = {line.id: line.quantity for line in build_bill(spare.need, fleet).lines}
    for name in ("pool_nodes", "pool_dram"):
        assert more[name] == pytest.approx(1.5 * lines[name])
    assert spare.need.pool_ports == 1.5 * bare.need.pool_ports
    assert spare.need.pool_ssd_bytes == 1.5 * bare.need.pool_ssd_bytes


@pytest.mark.parametrize(("spare", "left"), [(0, 0.75), (1, 1.0), (2, 1.0)])
def test_without_one_node_the_pool_is_whole_as_far_as_spare_ones_go(
    deployment: Deployment, tmp_path: Path, spare: int, left: float
) -> None:
    stated = ground(deployment, tmp_path, spare)
    pool = option("pool_dram_tcp", stated)
    assert _pool_nodes(pool, stated) == (4, left, spare)
    less = with_part_of_pool(pool.scenario, left)
    assert less.tiers[-1].capacity_bytes == left * pool.scenario.tiers[-1].capacity_bytes
    assert less.links["pool_nic_tcp"].bytes_per_s == pytest.approx(
        left * pool.scenario.links["pool_nic_tcp"].bytes_per_s
    )
    assert less.links["nic_tcp"] == pool.scenario.links["nic_tcp"]


def test_a_pool_of_peers_loses_a_gpu_node_and_an_appliance_has_nodes_of_its_own(
    deployment: Deployment, tmp_path: Path
) -> None:
    stated = ground(deployment, tmp_path, 1)
    assert _pool_nodes(option("pool_peer_tcp", stated), stated) == (4, 0.75, 0)
    assert _pool_nodes(option("pool_fs_tcp", stated), stated) == (4, None, 0)
    alone = replace(stated, fleet=replace(stated.fleet, instances=1))
    assert _pool_nodes(option("pool_peer_tcp", alone), alone)[1] is None
