"""How a node is wired: who shares an uplink, where NICs and drives sit, how many sockets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from kvtrace.cost.evidence import Constant, number, read_constant

Placement = Literal["switch", "socket", "none"]
"""switch: below the PCIe switch of a GPU, so GPU-direct leaves the CPU out; socket: on a CPU's own
lanes, so every byte crosses the uplink; none: the node has none."""

PLACEMENTS: Final[tuple[str, ...]] = get_args(Placement)


@dataclass(frozen=True, slots=True)
class Topology:
    """The wiring of one node."""

    gpus_per_uplink: Constant
    """GPUs that share one uplink to a CPU. Only a topology file makes links of it; elsewhere the
    slowdown measured when ranks load at once (`moves.load_contention`) holds what it does."""
    numa_nodes: int
    nic_placement: Placement
    nvme_placement: Placement
    nvme_tier: str
    """Name of the drive, of data/storage.toml."""
    nvme_per_node: Constant
    source: str
    as_of: str

    def constants(self) -> tuple[Constant, ...]:
        """All numbers with an interval."""
        return (self.gpus_per_uplink, self.nvme_per_node)


def read_topology(host: dict[str, object], host_name: str) -> Topology:
    """The topology of one entry of data/hosts.toml."""
    entry = host["topology"]
    if not isinstance(entry, dict):
        raise ValueError(f"hosts.{host_name}.topology is not a table")
    source, as_of = str(entry["source"]), str(host["as_of"])

    def read(key: str, unit: str, title: str) -> Constant:
        return read_constant(
            entry[key],
            id=f"hosts.{host_name}.topology.{key}",
            unit=unit,
            title=title,
            source=source,
            as_of=as_of,
        )

    return Topology(
        gpus_per_uplink=read("gpus_per_uplink", "GPUs", "GPUs that share one uplink to a CPU"),
        numa_nodes=int(number(entry["numa_nodes"])),
        nic_placement=_placement(entry["nic_placement"]),
        nvme_placement=_placement(entry["nvme_placement"]),
        nvme_tier=str(entry["nvme_tier"]),
        nvme_per_node=read("nvme_per_node", "drives", "NVMe drives of a node for KV"),
        source=source,
        as_of=as_of,
    )


def _placement(value: object) -> Placement:
    if value not in PLACEMENTS:
        raise ValueError(f"`{value}` is none of {', '.join(PLACEMENTS)}")
    return cast("Placement", value)
