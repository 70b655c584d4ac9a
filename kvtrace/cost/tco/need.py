"""What an option takes beside the instances as they stand: quantities without a price."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.cost.fleet import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Quantities that an option adds to the fleet; zero: nothing of it. All nodes together."""

    gpu_node_dram_bytes: float = 0.0
    """DRAM bought for the GPU nodes."""
    idle_dram_bytes: float = 0.0
    """DRAM of the GPU nodes that is there and unused: priced at zero, and at cost beside it."""
    gpu_node_ssd_bytes: float = 0.0
    """NVMe bought for the GPU nodes."""
    worn_ssd_bytes: float = 0.0
    """NVMe of the GPU nodes that is there and written to: only its wear is paid."""
    gpu_node_ports: float = 0.0
    """Network ports that the GPU nodes have to get for it."""
    pool_nodes: float = 0.0
    pool_dram_bytes: float = 0.0
    pool_ssd_bytes: float = 0.0
    pool_ports: float = 0.0
    port_bytes_per_s: float | None = None
    """Line rate of the ports of GPU and pool nodes, which sets their price; null: the fleet's."""
    appliance_bytes: float = 0.0
    """Capacity of a file system or appliance that is priced by capacity and rate."""
    appliance_bytes_per_s: float = 0.0
    managed_cache_bytes: float = 0.0
    """Memory of a cloud's managed cache, rented by the node-hour."""
    object_store_bytes: float = 0.0
    """Capacity in an object store, paid by capacity and request."""
    gpu: str | None = None
    """Another GPU in place of today's, by its name; null: today's."""
    is_operated: bool = False
    """Somebody runs it as a service of its own: operations, licence and support are paid."""


def pool_of_fleet(fleet: Fleet) -> Need:
    """The pool of dedicated DRAM nodes that the fleet states or assumes, with its spare nodes.

    Those are like the others and hold nothing while all of these serve.
    """
    nodes = fleet.pool_nodes.value + fleet.spare_pool_nodes.value
    return Need(
        pool_nodes=nodes,
        pool_dram_bytes=fleet.pool_dram_bytes.value * fleet.with_spare_nodes,
        pool_ports=nodes * fleet.pool_nics_per_node.value,
        is_operated=True,
    )
