"""The fleet of a service: what it is, its file, its defaults."""

from kvtrace.cost.fleet.answer import Answer
from kvtrace.cost.fleet.defaults import default_fleet
from kvtrace.cost.fleet.file import fleet_of, load_fleet, read_fleet_file
from kvtrace.cost.fleet.fleet import (
    ContractKind,
    Fleet,
    GpuContract,
    Network,
    Parallel,
    Purchase,
    Sharing,
)
from kvtrace.cost.fleet.monthly import (
    MonthlyCost,
    dram_usd_per_month,
    gpu_usd_per_month,
    pool_usd_per_month,
)
from kvtrace.cost.fleet.prices import Prices

__all__ = [
    "Answer",
    "ContractKind",
    "Fleet",
    "GpuContract",
    "MonthlyCost",
    "Network",
    "Parallel",
    "Prices",
    "Purchase",
    "Sharing",
    "default_fleet",
    "dram_usd_per_month",
    "fleet_of",
    "gpu_usd_per_month",
    "load_fleet",
    "pool_usd_per_month",
    "read_fleet_file",
]
