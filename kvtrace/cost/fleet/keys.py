"""The keys of a fleet file: section by section, what each means and what it sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from kvtrace.cost.evidence import price
from kvtrace.cost.fleet.fleet import BelowHbm, ContractKind, PoolWire, Purchase, Sharing
from kvtrace.cost.fleet.prices import price_names

Reads = Literal["whole", "number", "share", "bytes", "rate", "duration", "switch", "date", "word"]
"""whole: 1 or more; number: 0 or more; share: 0 to 1; bytes, rate, duration: texts with a unit."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section."""

    path: str
    """Section and name, such as `pool.nodes`."""
    reads: Reads
    meaning: str
    words: tuple[str, ...] = ()
    """What a `word` may be."""
    example: str = ""
    """As it would stand in a file, where no value is assumed."""
    is_shown_only: bool = False
    """It stands among the assumptions and changes no number."""

    @property
    def section(self) -> str:
        """Such as `pool`."""
        return self.path.split(".")[0]

    @property
    def name(self) -> str:
        """Such as `nodes`."""
        return self.path.split(".")[1]


SECTIONS: Final = {
    "instances": "the engine instances that serve",
    "gpu_nodes": "the nodes that hold the GPUs",
    "network": "the ports of one GPU node",
    "pool": "the pool that is considered, or the one you have",
    "gpu_contract": "what a GPU that is not needed any more is worth",
    "releases": "what empties the pool",
    "redundancy": "what is kept in reserve",
    "tenants": "who may use whose KV",
    "slo": "what requests must keep; nothing stated: no worse than today",
    "load": "the load that the fleet is sized for",
    "prices": "unit prices in USD",
}
_STATED: Final = (
    Key("instances.count", "whole", "engine instances"),
    Key("instances.tp", "whole", "tensor-parallel ranks of an instance"),
    Key("instances.pp", "whole", "pipeline stages of an instance"),
    Key("instances.dp", "whole", "groups of an instance whose attention is data-parallel"),
    Key("instances.ep", "whole", "ranks that whole experts are spread over", example="8"),
    Key("instances.dram_free", "bytes", "DRAM free for KV, an instance", example='"1TiB"'),
    Key("instances.dram_room", "bytes", "DRAM that could be added, an instance", example='"2TiB"'),
    Key("instances.nvme_free", "bytes", "NVMe free for KV, an instance", example='"7TB"'),
    Key(
        "instances.below_hbm",
        "word",
        "where the running system keeps KV beside HBM",
        get_args(BelowHbm),
    ),
    Key(
        "instances.dram_used",
        "bytes",
        "DRAM that the running system keeps KV in, an instance",
        example='"512GiB"',
    ),
    Key("gpu_nodes.gpus", "whole", "GPUs a node"),
    Key("gpu_nodes.dram_free", "bytes", "DRAM free for KV, a node"),
    Key("gpu_nodes.dram_room", "bytes", "DRAM that could be added, a node"),
    Key("gpu_nodes.nvme_free", "bytes", "NVMe free for KV, a node"),
    Key("network.is_built", "switch", "the ports that KV needs are there already"),
    Key("network.compute_ports", "number", "ports between GPUs (RDMA), a node"),
    Key("network.compute_port_rate", "rate", "line rate of one of them"),
    Key("network.compute_kv_share", "share", "share of them that KV may use"),
    Key("network.storage_ports", "number", "ports of the front end, for storage, a node"),
    Key("network.storage_port_rate", "rate", "line rate of one of them"),
    Key("network.storage_kv_share", "share", "share of them that KV may use"),
    Key(
        "network.usable_rate",
        "rate",
        "usable RDMA rate for KV, a node, as measured",
        example='"170GB/s"',
    ),
    Key("pool.nodes", "number", "nodes of the pool"),
    Key("pool.dram", "bytes", "DRAM of all pool nodes together"),
    Key("pool.ports_per_node", "number", "ports of a pool node"),
    Key("pool.port_rate", "rate", "line rate of one of them"),
    Key(
        "pool.port_usable_rate",
        "rate",
        "usable rate of one of them, as measured",
        example='"43GB/s"',
    ),
    Key(
        "pool.purchase",
        "word",
        "bought: servers that are paid off; rented: nodes of a cloud, by the hour",
        get_args(Purchase),
    ),
    Key(
        "pool.wire_today",
        "word",
        "how the running system reaches its pool, where it has one",
        get_args(PoolWire),
    ),
    Key("pool.cross_zone_share", "share", "of the bytes of a rented pool that cross zones"),
    Key("pool.dram_rate", "rate", "what a pool node's DRAM serves to its ports"),
    Key(
        "gpu_contract.kind",
        "word",
        "owned: bought; reserved: paid until a date; elastic: given back by the hour",
        get_args(ContractKind),
    ),
    Key("gpu_contract.until", "date", "last day of a reserved contract", example="2027-06-30"),
    Key("releases.days_between", "number", "days between releases that make all KV invalid"),
    Key("redundancy.spare_instances", "number", "instances beyond what the load needs"),
    Key(
        "redundancy.spare_pool_nodes",
        "number",
        "pool nodes bought beside those that serve",
    ),
    Key(
        "tenants.sharing",
        "word",
        "within which circle requests may use each other's KV",
        get_args(Sharing),
        is_shown_only=True,
    ),
    Key("slo.ttft", "duration", "time to first token, the part of every request", example='"2s"'),
    Key(
        "slo.ttft_per_1k_tokens",
        "duration",
        "more for every 1 000 prompt tokens",
        example='"100ms"',
    ),
    Key("slo.tpot", "duration", "time an output token", example='"50ms"'),
    Key("slo.e2e", "duration", "arrival to last token", example='"60s"'),
    Key("slo.share", "share", "share of the requests that must be within", example="0.99"),
    Key(
        "load.peak_factor",
        "number",
        "busiest hour of a busy day over that of the log",
        example="1.5",
    ),
    Key("prices.gpu_usd_per_hour", "number", "USD a GPU-hour"),
    Key("prices.nic_usd_per_port", "number", "USD a network port, of any rate"),
)
FLAT: Final = {
    "instances": "instances.count",
    "pool_nodes": "pool.nodes",
    "pool_dram_bytes": "pool.dram",
    "pool_nics_per_node": "pool.ports_per_node",
    "pool_nic_bytes_per_s": "pool.port_usable_rate",
    "pool_dram_bytes_per_s": "pool.dram_rate",
    "node_network_bytes_per_s": "network.usable_rate",
    "dram_idle_bytes_per_instance": "instances.dram_free",
}
"""Keys of the first fleet files, without sections; prices stood there by their own names."""
FLAT_PRICES: Final = (
    "gpu_usd_per_hour",
    "dram_usd_per_gb",
    "nic_usd_per_port",
    "switch_port_usd",
    "optics_usd_per_end",
    "pool_node_usd",
    "pool_node_watts",
    "dram_watts_per_gb",
    "electricity_usd_per_kwh",
    "amortisation_months",
)


def fleet_keys() -> dict[str, Key]:
    """All keys by their paths; prices are those of data/prices.toml."""
    prices = (Key(f"prices.{name}", "number", price(name).title) for name in price_names())
    return {key.path: key for key in (*_STATED, *prices)}
