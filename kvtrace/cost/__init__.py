"""The cost model: KV bytes, prefill, decode, moves, the bandwidth ledger and prices.

Small, physical and sourced: every constant carries unit, interval, kind and source. Names are
imported when they are first used, so that `import kvtrace.cost` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvtrace.cost.deployment import Deployment, build_deployment, default_tp
    from kvtrace.cost.evidence import Constant
    from kvtrace.cost.fleet import Fleet, default_fleet, load_fleet
    from kvtrace.cost.gpus import list_gpus
    from kvtrace.cost.hardware import Gpu, HardwareProfile
    from kvtrace.cost.hf.config import from_hf_config, from_hf_text
    from kvtrace.cost.interval import Interval
    from kvtrace.cost.ledger import Ledger, LedgerTable, build_ledger, ledger_table
    from kvtrace.cost.ledger_range import LedgerIntervals, ledger_intervals
    from kvtrace.cost.links import Link
    from kvtrace.cost.llm import LlmShape
    from kvtrace.cost.llms import list_llms, load_llm
    from kvtrace.cost.placement import KvPlacement
    from kvtrace.cost.profiles import load_hardware
    from kvtrace.cost.split import Split, best_split
    from kvtrace.cost.storage import StorageTier
    from kvtrace.cost.tco.bill import Bill
    from kvtrace.cost.tco.build import build_bill
    from kvtrace.cost.tco.need import Need
    from kvtrace.cost.tier_paths import LEDGER_PATHS, find_path
    from kvtrace.cost.transfer import PATH_IDS, Hop, MovePath

__all__ = [
    "LEDGER_PATHS",
    "PATH_IDS",
    "Bill",
    "Constant",
    "Deployment",
    "Fleet",
    "Gpu",
    "HardwareProfile",
    "Hop",
    "Interval",
    "KvPlacement",
    "Ledger",
    "LedgerIntervals",
    "LedgerTable",
    "Link",
    "LlmShape",
    "MovePath",
    "Need",
    "Split",
    "StorageTier",
    "best_split",
    "build_bill",
    "build_deployment",
    "build_ledger",
    "default_fleet",
    "default_tp",
    "find_path",
    "from_hf_config",
    "from_hf_text",
    "ledger_intervals",
    "ledger_table",
    "list_gpus",
    "list_llms",
    "load_fleet",
    "load_hardware",
    "load_llm",
]

_HOME: Final = {
    "Bill": "kvtrace.cost.tco.bill",
    "Constant": "kvtrace.cost.evidence",
    "Deployment": "kvtrace.cost.deployment",
    "Fleet": "kvtrace.cost.fleet",
    "Gpu": "kvtrace.cost.hardware",
    "HardwareProfile": "kvtrace.cost.hardware",
    "Hop": "kvtrace.cost.transfer",
    "Interval": "kvtrace.cost.interval",
    "KvPlacement": "kvtrace.cost.placement",
    "LEDGER_PATHS": "kvtrace.cost.tier_paths",
    "Ledger": "kvtrace.cost.ledger",
    "LedgerIntervals": "kvtrace.cost.ledger_range",
    "LedgerTable": "kvtrace.cost.ledger",
    "Link": "kvtrace.cost.links",
    "LlmShape": "kvtrace.cost.llm",
    "MovePath": "kvtrace.cost.transfer",
    "Need": "kvtrace.cost.tco.need",
    "PATH_IDS": "kvtrace.cost.transfer",
    "Split": "kvtrace.cost.split",
    "StorageTier": "kvtrace.cost.storage",
    "best_split": "kvtrace.cost.split",
    "build_bill": "kvtrace.cost.tco.build",
    "build_deployment": "kvtrace.cost.deployment",
    "build_ledger": "kvtrace.cost.ledger",
    "default_fleet": "kvtrace.cost.fleet",
    "default_tp": "kvtrace.cost.deployment",
    "find_path": "kvtrace.cost.tier_paths",
    "from_hf_config": "kvtrace.cost.hf.config",
    "from_hf_text": "kvtrace.cost.hf.config",
    "ledger_intervals": "kvtrace.cost.ledger_range",
    "ledger_table": "kvtrace.cost.ledger",
    "list_gpus": "kvtrace.cost.gpus",
    "list_llms": "kvtrace.cost.llms",
    "load_fleet": "kvtrace.cost.fleet",
    "load_hardware": "kvtrace.cost.profiles",
    "load_llm": "kvtrace.cost.llms",
}


def __getattr__(name: str) -> object:
    """A public name, from the module that defines it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
