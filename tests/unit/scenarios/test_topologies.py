"""Topologies: what shares which link, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.errors import UsageError
from kvtrace.replay.engine import simulate
from kvtrace.scenarios.build import build_scenario
from kvtrace.scenarios.document import Document, load_topology, shipped_topologies
from kvtrace.scenarios.plan import read_plan
from kvtrace.scenarios.topology import Wired, wire
from tests.unit.replay_cases import Ask, make_trace
from tests.unit.scenarios.cases import built, deployment, document, fleet

# Four instances of 4 of a node's 8 GPUs: two nodes, two instances a node.
RATES = """
[node]
gpus_per_switch = 2
uplink = "50GB/s"
dram_read = "400GB/s"
dram_write = "200GB/s"
[compute_nics]
ports = 8
rate = "40GB/s"
placement = "switch"
[nvme]
drives = 4
rate = "10GB/s"
write = "5GB/s"
placement = "socket"
[pool]
nodes = 2
ports = 2
rate = "45GB/s"
dram_read = "400GB/s"
"""


def wired(text: str) -> Wired:
    return wire(document(text), deployment(), fleet())


def links_of(topology: Wired, path: str) -> list[tuple[str, ...]]:
    return [stage.link_ids for stage in topology.routes[path].read]


def rate(topology: Wired, link: str) -> tuple[float, int]:
    spec = topology.links[link]
    return spec.bytes_per_s / 1e9, spec.instances_per_link


def test_an_instance_has_its_share_of_the_node() -> None:
    topology = wired(RATES)
    efficiency = deployment().hardware.load_efficiency.value
    assert rate(topology, "pcie_uplink")[0] == pytest.approx(2 * 50 * efficiency)  # two switches
    assert rate(topology, "pcie_uplink")[1] == 1
    assert rate(topology, "host_dram_read") == (400, 2)  # of the node, for two instances
    assert rate(topology, "host_dram_write") == (200, 2)
    assert rate(topology, "compute_nic") == (160, 1)  # the four ports next to its GPUs
    assert rate(topology, "node_nvme") == (40, 2)
    assert rate(topology, "node_nvme_write") == (20, 2)
    assert rate(topology, "pool_ports") == (180, 1)  # 2 nodes · min(2 · 45, 400)
    assert topology.links["pool_ports"].scope == "shared"
    assert links_of(topology, "dram_pcie") == [("pcie_uplink", "gpu_lanes", "host_dram_read")]
    # NICs below the GPUs' switch: straight into HBM, past the uplink; into host memory through it.
    assert links_of(topology, "pool_rdma_direct") == [("pool_ports", "compute_nic", "gpu_lanes")]
    assert links_of(topology, "pool_rdma_bounce") == [
        ("pool_ports", "compute_nic", "pcie_uplink", "host_dram_write"),
        ("pcie_uplink", "gpu_lanes", "host_dram_read"),
    ]
    # Drives on the socket: into host memory without the uplink, straight into HBM through it.
    assert links_of(topology, "local_nvme")[0] == ("node_nvme", "host_dram_write")
    assert links_of(topology, "local_nvme_direct") == [("node_nvme", "pcie_uplink", "gpu_lanes")]


def test_writes_use_the_drives_and_the_memory_the_other_way() -> None:
    write = [stage.link_ids for stage in wired(RATES).routes["local_nvme"].write]
    assert write == [
        ("pcie_uplink", "gpu_lanes", "host_dram_write"),
        ("node_nvme_write", "host_dram_read"),
    ]


def test_storage_nics_leave_the_compute_nics_alone_and_cross_the_uplink() -> None:
    topology = wired(f'{RATES}[storage_nics]\nports = 2\nrate = "40GB/s"\nplacement = "socket"\n')
    assert rate(topology, "storage_nic") == (80, 2)  # both ports of the node, for two instances
    direct = ("pool_ports", "storage_nic", "pcie_uplink", "gpu_lanes")
    assert links_of(topology, "pool_rdma_direct") == [direct]
    # Through other nodes' storage NICs and the own compute NIC: all 2 · 2 ports of the fleet.
    assert rate(topology, "all_storage_nics") == (160, 1)
    peers = ("pool_ports", "all_storage_nics", "compute_nic", "gpu_lanes")
    assert links_of(topology, "pool_via_peers") == [peers]


def test_collectives_take_their_part_of_the_compute_nics() -> None:
    # 64 GB/s of a node's 8 ports are 8 GB/s a port: 4 · (40 - 8)
    text = RATES.replace('placement = "switch"\n[nvme]', 'collectives = "64GB/s"\n[nvme]')
    assert rate(wired(text), "compute_nic") == (128, 1)


def test_a_pool_in_the_gpu_nodes_is_served_by_their_nics_and_holds_their_idle_memory() -> None:
    nodes = RATES[: RATES.index("[pool]")] + '[pool]\nplace = "gpu_nodes"\n'
    topology = wired(nodes)
    assert rate(topology, "pool_ports") == (640, 1)  # 2 nodes · min(8 · 40, 400)
    plan = replace(read_plan(document("[tier.pool]\n")), topology=document(nodes, "wiring"))
    scenario = build_scenario(plan, deployment(), fleet(), block_tokens=16)
    idle = fleet().dram_idle_bytes_per_instance.value
    assert scenario.tiers[0].capacity_bytes == 4 * idle


def test_half_of_the_bytes_cross_the_sockets() -> None:
    text = RATES.replace("[node]", '[node]\nsocket_link = "100GB/s"\nremote_share = 0.5')
    topology = wired(text)
    assert rate(topology, "socket_link") == (200, 2)  # 100 GB/s for half of what is loaded
    assert "socket_link" in links_of(topology, "dram_pcie")[0]
    # Memory that is spread over four sockets is remote for three quarters of the bytes.
    four = RATES.replace("[node]", '[node]\nsocket_link = "90GB/s"\nnuma_nodes = 4')
    assert rate(wired(four), "socket_link") == (120, 2)
    one = RATES.replace("[node]", '[node]\nsocket_link = "90GB/s"\nnuma_nodes = 1')
    assert "socket_link" not in wired(one).links


def test_a_base_is_rewired_and_the_hand_off_shares_the_nics_of_the_pool() -> None:
    scenario = built('base = "pool_dram_rdma_direct"\ntopology = "hgx"\nprefill_instances = 2\n')
    (pool,) = scenario.tiers
    assert pool.read[0].link_ids == ("pool_ports", "compute_nic", "gpu_lanes")
    assert scenario.handoff is not None
    assert scenario.handoff.out_link_ids == scenario.handoff.in_link_ids == ("compute_nic",)
    assert built('base = "pool_dram_tcp"\ntopology = "hgx"\n').handoff is None


def test_loads_writes_and_hand_offs_meet_on_the_compute_nics() -> None:
    scenario = built(
        'topology = "hgx"\nprefill_instances = 2\nhbm_blocks = 4\nrouting = "round_robin"\n'
        '[tier.pool]\ncapacity = "1TB"\n'
    )
    asks = [Ask(9.0 * turn, "abc", output=3) for turn in range(2)]
    result = simulate(make_trace(asks, block_size=16), scenario)
    (nic,) = (use for use in result.link_use if use.link_id == "compute_nic")
    (pool,) = (use for use in result.link_use if use.link_id == "pool_ports")
    token = 327_680
    # The second instance loads what the first one wrote, less the last token; both hand on 48.
    # A hand-off leaves by the NIC of one instance and comes in by that of another.
    assert (pool.bytes_read, pool.bytes_written) == pytest.approx((47 * token, 48 * token))
    moved = nic.bytes_read + nic.bytes_written
    assert moved == pytest.approx((47 + 48 + 2 * 2 * 48) * token)


@pytest.mark.parametrize("name", shipped_topologies())
def test_shipped_topologies_can_be_used(name: str) -> None:
    topology = wire(load_topology(name), deployment(), fleet())
    assert topology.title != name
    for route in topology.routes.values():
        used = {link for stage in (*route.read, *route.write) for link in stage.link_ids}
        assert used == {link.link_id for link in route.links}
        assert all(topology.links[link].bytes_per_s > 0 for link in used)


def test_a_topology_may_stand_in_the_scenario_and_mistakes_are_named() -> None:
    inside = 'base = "dram_idle"\n[topology.node]\nuplink = "25GB/s"\n'
    links = built(inside).links
    efficiency = deployment().hardware.load_efficiency.value
    assert links["pcie_uplink"].bytes_per_s == pytest.approx(2 * 25e9 * efficiency)
    with pytest.raises(UsageError) as caught:
        wired("[node]\nuplinc = '1GB/s'\n")
    assert caught.value.where is not None
    assert (caught.value.where.line, caught.value.hint) == (2, "did you mean `uplink`?")
    with pytest.raises(UsageError, match="not a known topology"):
        load_topology("hgy")


def test_no_port_rate_is_no_pool() -> None:
    text = RATES.replace('ports = 2\nrate = "45GB/s"', 'ports = 2\nport = "0Gb/s"')
    assert isinstance(document(text), Document)
    assert wired(text).links["pool_ports"].bytes_per_s == 0


def test_a_pool_that_no_route_of_the_node_reaches_keeps_its_own() -> None:
    scenario = built('base = "pool_dram_tcp"\ntopology = "hgx"\n')
    (pool,) = scenario.tiers
    assert pool.read == built('base = "pool_dram_tcp"\n').tiers[0].read
    assert {link for stage in pool.read for link in stage.link_ids} <= set(scenario.links)
    assert simulate(make_trace([Ask(0.0, ["a"])]), scenario).timeline.ttft_s[0] > 0
