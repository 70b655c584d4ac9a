"""The fleet of a service: what it is, its file, its defaults."""

from kvtrace.cost.fleet.answer import Answer
from kvtrace.cost.fleet.defaults import default_fleet, storage_network
from kvtrace.cost.fleet.file import fleet_of, load_fleet, read_fleet_file
from kvtrace.cost.fleet.fleet import (
    AnyAnswer,
    BelowHbm,
    ContractKind,
    Fleet,
    GpuContract,
    Network,
    Parallel,
    PoolWire,
    Purchase,
    Sharing,
)
from kvtrace.cost.fleet.monthly import gpu_usd_per_month
from kvtrace.cost.fleet.prices import Prices

__all__ = [
    "Answer",
    "AnyAnswer",
    "BelowHbm",
    "ContractKind",
    "Fleet",
    "GpuContract",
    "Network",
    "Parallel",
    "PoolWire",
    "Prices",
    "Purchase",
    "Sharing",
    "default_fleet",
    "fleet_of",
    "gpu_usd_per_month",
    "load_fleet",
    "read_fleet_file",
    "storage_network",
]
