"""The cost model: KV bytes, prefill, decode, moves, the bandwidth ledger and prices.

Small, physical and sourced: every constant carries unit, interval, kind and source.
"""

from __future__ import annotations

from kvtrace.cost.deployment import Deployment, build_deployment, default_tp
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet, default_fleet, load_fleet, pool_usd_per_month
from kvtrace.cost.hardware import Gpu, HardwareProfile, Link, list_gpus, load_hardware
from kvtrace.cost.hf_config import from_hf_config
from kvtrace.cost.ledger import Ledger, LedgerTable, build_ledger, ledger_table
from kvtrace.cost.llm import LlmShape, list_llms, load_llm
from kvtrace.cost.transfer import PATH_IDS, Hop, MovePath

__all__ = [
    "PATH_IDS",
    "Constant",
    "Deployment",
    "Fleet",
    "Gpu",
    "HardwareProfile",
    "Hop",
    "Ledger",
    "LedgerTable",
    "Link",
    "LlmShape",
    "MovePath",
    "build_deployment",
    "build_ledger",
    "default_fleet",
    "default_tp",
    "from_hf_config",
    "ledger_table",
    "list_gpus",
    "list_llms",
    "load_fleet",
    "load_hardware",
    "load_llm",
    "pool_usd_per_month",
]
