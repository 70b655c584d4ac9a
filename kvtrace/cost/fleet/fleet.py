"""The fleet: instances, what their nodes have to spare, the pool considered for them, prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Final, Literal

from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet.answer import Answer
from kvtrace.cost.fleet.prices import Prices
from kvtrace.cost.interval import Interval
from kvtrace.cost.slo_target import SloTarget

ContractKind = Literal["owned", "reserved", "elastic"]
"""owned: bought; reserved: paid until a date, used or not; elastic: given back by the hour."""
Purchase = Literal["bought", "rented"]
"""bought: servers that are paid off; rented: nodes of a cloud, in fixed shapes, by the hour."""
Sharing = Literal["all", "tenant", "user", "session"]
"""The widest circle within which requests may use each other's KV."""
BelowHbm = Literal["nothing", "host_dram", "local_ssd", "pool", "host_dram_and_pool"]
"""Where the running system keeps KV beside HBM; local_ssd: below its host DRAM."""
PoolWire = Literal["tcp", "rdma_bounce", "rdma_direct"]
"""rdma_bounce: through host DRAM; rdma_direct: straight into HBM."""

_POOL_PRICES: Final = (
    "dram_usd_per_gb",
    "switch_port_usd",
    "optics_usd_per_end",
    "pool_node_usd",
    "pool_node_watts",
    "dram_watts_per_gb",
    "meter_usd_per_kwh",
    "cooling_factor",
    "operations_fte_share",
    "fte_usd_per_year",
    "licence_usd_per_node_month",
    "support_share_per_year",
    "financing_rate_per_year",
    "amortisation_months",
)

AnyAnswer = (
    Answer[bool]
    | Answer[ContractKind]
    | Answer[Purchase]
    | Answer[Sharing]
    | Answer[BelowHbm]
    | Answer[PoolWire]
)
_BELOW_HBM: Final[Answer[BelowHbm]] = Answer(
    id="instances.below_hbm",
    title="where the running system keeps KV beside HBM",
    value="nothing",
    kind="assumed",
    source="neither the logs nor the fleet file say what runs below HBM",
)
_TODAY_WIRE: Final[Answer[PoolWire]] = Answer(
    id="pool.wire_today",
    title="how the running system reaches its pool",
    value="rdma_bounce",
    kind="assumed",
    source="default of kvtrace; nobody stated it",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """How the ranks of an instance share the LLM, as stated; null: from the logs or a default."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Ports of one GPU node. Compute: between GPUs (RDMA); storage: the front end."""

    is_built: Answer[bool]
    """The ports that KV needs are there: no option buys ports for GPU nodes."""
    compute_ports: Constant
    compute_port_bytes_per_s: Constant
    """Line rate of one."""
    compute_kv_share: Constant
    """Of these ports that KV may use, 0..1."""
    storage_ports: Constant
    storage_port_bytes_per_s: Constant
    storage_kv_share: Constant

    @property
    def compute_bytes_per_s(self) -> float:
        """Line rate of the compute ports of one node that KV may use."""
        ports, rate = self.compute_ports.value, self.compute_port_bytes_per_s.value
        return ports * rate * self.compute_kv_share.value

    @property
    def storage_bytes_per_s(self) -> float:
        """Line rate of the ports of the front end of one node that KV may use."""
        ports, rate = self.storage_ports.value, self.storage_port_bytes_per_s.value
        return ports * rate * self.storage_kv_share.value


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuContract:
    """What a GPU that is not needed any more is worth."""

    kind: Answer[ContractKind]
    until: date | None = None
    """Of a reserved contract: its last day; null where not stated."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """The instances, the pool that is considered for them, and the prices of both."""

    instances: int
    gpus_per_instance: int
    gpus_per_node: int
    pool_nodes: Constant
    pool_dram_bytes: Constant
    """Of all pool nodes together."""
    pool_nics_per_node: Constant
    pool_nic_bytes_per_s: Constant
    """Usable rate of one pool port."""
    pool_port_line_bytes_per_s: float
    """Line rate of one pool port, which sets its price."""
    pool_purchase: Answer[Purchase]
    cross_zone_share: Constant
    """Of the bytes to and from a rented pool that cross zones of the cloud, 0..1."""
    pool_dram_bytes_per_s: Constant
    """What one pool node's DRAM can serve to its NICs."""
    node_network_bytes_per_s: Constant
    """Usable RDMA rate of one GPU node, all its ports together, that KV may use."""
    storage_network_bytes_per_s: Constant
    """Usable TCP rate of one GPU node's ports of the front end, all together, that KV may use."""
    dram_idle_bytes_per_instance: Constant
    """Host DRAM that is free for KV: the instance's part of its nodes'."""
    dram_room_bytes_per_instance: Constant
    """Host DRAM that the nodes can still take: the instance's part of its nodes'."""
    nvme_free_bytes_per_instance: Constant
    """Local NVMe that is free for KV: the instance's part of its nodes'."""
    network: Network
    contract: GpuContract
    release_days: Constant
    """Between releases after which no KV in the pool is valid any more."""
    spare_instances: Constant
    """Kept beyond what the load needs, whatever the option."""
    spare_pool_nodes: Constant
    """Pool nodes bought beside those that serve: so many may fail and the pool stays whole."""
    sharing: Answer[Sharing]
    gpu_usd_per_hour: Constant
    gpu_list_usd_per_hour: Interval | None = None
    """Price of the same GPU as published, whatever is stated; null: not known."""
    parallel: Parallel = field(default_factory=Parallel)
    below_hbm: Answer[BelowHbm] = _BELOW_HBM
    today_wire: Answer[PoolWire] = _TODAY_WIRE
    """How the running system reaches a pool that it has."""
    dram_used_bytes_per_instance: Constant | None = None
    """Host DRAM that the running system keeps KV in; null: taken as what is free."""
    slo: SloTarget = field(default_factory=SloTarget)
    peak_factor: Constant | None = None
    """Busiest hour of a busy day over the busiest hour of the log; null: nobody stated it."""
    prices: Prices = field(default_factory=Prices)

    @property
    def is_raised(self) -> bool:
        """A stated peak factor raises the load of the log."""
        return self.peak_factor is not None and self.peak_factor.value != 1

    @property
    def is_peak_given(self) -> bool:
        """Somebody stands behind the peak factor: the raised load is that of a busy day."""
        return self.peak_factor is not None and self.peak_factor.kind == "given"

    @property
    def spare_count(self) -> int:
        """Whole instances that are kept beyond what the load needs."""
        return int(self.spare_instances.value)

    @property
    def gpus(self) -> int:
        """GPUs of all instances."""
        return self.instances * self.gpus_per_instance

    @property
    def gpu_nodes(self) -> int:
        """Nodes that hold them."""
        return -(-self.gpus // self.gpus_per_node)

    @property
    def with_spare_nodes(self) -> float:
        """Nodes of the pool that are bought, over those that serve."""
        serving = self.pool_nodes.value
        return (serving + self.spare_pool_nodes.value) / serving if serving else 1.0

    @property
    def pool_bytes_per_s(self) -> float:
        """What all pool nodes together can serve: the lesser of NICs and DRAM."""
        nics = self.pool_nics_per_node.value * self.pool_nic_bytes_per_s.value
        return self.pool_nodes.value * min(nics, self.pool_dram_bytes_per_s.value)

    def constants(self) -> tuple[Constant, ...]:
        """All numbers of the fleet, with the prices of a pool of DRAM nodes."""
        prices = [self.prices[name] for name in _POOL_PRICES]
        nic = self.prices.nic(self.pool_port_line_bytes_per_s)
        found = [*_constants(self), *_constants(self.network), *prices, nic, *self.prices.stated]
        return tuple({one.id: one for one in found}.values())

    def answers(self) -> tuple[AnyAnswer, ...]:
        """All that is no number."""
        network, contract = self.network, self.contract
        found = (network.is_built, contract.kind, self.pool_purchase, self.sharing, self.below_hbm)
        has_pool = self.below_hbm.value in ("pool", "host_dram_and_pool")
        return (*found, self.today_wire) if has_pool else found


def _constants(holder: Fleet | Network) -> Iterator[Constant]:
    values = (getattr(holder, one.name) for one in fields(holder))
    return (value for value in values if isinstance(value, Constant))
