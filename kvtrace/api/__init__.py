"""The verbs of kvtrace for Python: `analyze`, `ingest`, `query`, `replay`, `report`, …

A name loads its module on first use: a verb pays for what it needs alone. No module here has the
name of a verb, since importing it would put the module where the verb is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kvtrace.api.comparing import Compared, compare
    from kvtrace.api.completions import complete
    from kvtrace.api.describequery import QueryDescription
    from kvtrace.api.doctoring import Diagnosis, doctor
    from kvtrace.api.explain_names import names_to_explain
    from kvtrace.api.explaining import Explained, explain
    from kvtrace.api.fleet_drafts import Drafted, init
    from kvtrace.api.gates import GateOutcome, check_gates, judge_gates
    from kvtrace.api.hardware_sheets import HardwareListing, HardwareSheet, hardware
    from kvtrace.api.ledgers import LedgerOutcome, ledger
    from kvtrace.api.llm_sheets import LlmListing, LlmSheet, llm
    from kvtrace.api.opened import is_dataset, open_dataset
    from kvtrace.api.paired_runs import PairedOutcome, compare_paired
    from kvtrace.api.policy_runs import PoliciesOutcome, policies
    from kvtrace.api.pool_runs import PoolingOutcome, pooling
    from kvtrace.api.queries import (
        close_queries,
        describe_query,
        has_query,
        list_queries,
        query,
        query_index,
        show_sql,
    )
    from kvtrace.api.query_results import QueryTable
    from kvtrace.api.replay_outcomes import ReplayOutcome, SweepOutcome
    from kvtrace.api.replaying import ReplayAsk, replay, sweep
    from kvtrace.api.reporting import load_audit, render_report, report
    from kvtrace.api.results import (
        Audit,
        FormatListing,
        IngestOutcome,
        Sniffed,
    )
    from kvtrace.api.traceout import parse_window
    from kvtrace.api.verbs import (
        analyze,
        describe_formats,
        export,
        ingest,
        sniff,
        suggest_mapping,
        synthesise,
    )
    from kvtrace.api.verification import Verification, verify

__all__ = [
    "Audit",
    "Compared",
    "Diagnosis",
    "Drafted",
    "Explained",
    "FormatListing",
    "GateOutcome",
    "HardwareListing",
    "HardwareSheet",
    "IngestOutcome",
    "LedgerOutcome",
    "LlmListing",
    "LlmSheet",
    "PairedOutcome",
    "PoliciesOutcome",
    "PoolingOutcome",
    "QueryDescription",
    "QueryTable",
    "ReplayAsk",
    "ReplayOutcome",
    "Sniffed",
    "SweepOutcome",
    "Verification",
    "analyze",
    "check_gates",
    "close_queries",
    "compare",
    "compare_paired",
    "complete",
    "describe_formats",
    "describe_query",
    "doctor",
    "explain",
    "export",
    "hardware",
    "has_query",
    "ingest",
    "init",
    "is_dataset",
    "judge_gates",
    "ledger",
    "list_queries",
    "llm",
    "load_audit",
    "names_to_explain",
    "open_dataset",
    "parse_window",
    "policies",
    "pooling",
    "query",
    "query_index",
    "render_report",
    "replay",
    "report",
    "show_sql",
    "sniff",
    "suggest_mapping",
    "sweep",
    "synthesise",
    "verify",
]

_NAMES: Final = {
    "comparing": ("Compared", "compare"),
    "completions": ("complete",),
    "describequery": ("QueryDescription",),
    "doctoring": ("Diagnosis", "doctor"),
    "explain_names": ("names_to_explain",),
    "explaining": ("Explained", "explain"),
    "fleet_drafts": ("Drafted", "init"),
    "gates": ("GateOutcome", "check_gates", "judge_gates"),
    "hardware_sheets": ("HardwareListing", "HardwareSheet", "hardware"),
    "ledgers": ("LedgerOutcome", "ledger"),
    "llm_sheets": ("LlmListing", "LlmSheet", "llm"),
    "paired_runs": ("PairedOutcome", "compare_paired"),
    "policy_runs": ("PoliciesOutcome", "policies"),
    "pool_runs": ("PoolingOutcome", "pooling"),
    "queries": (
        "close_queries",
        "describe_query",
        "has_query",
        "list_queries",
        "query",
        "query_index",
        "show_sql",
    ),
    "opened": ("is_dataset", "open_dataset"),
    "query_results": ("QueryTable",),
    "replay_outcomes": ("ReplayOutcome", "SweepOutcome"),
    "replaying": ("ReplayAsk", "replay", "sweep"),
    "reporting": ("load_audit", "render_report", "report"),
    "results": (
        "Audit",
        "FormatListing",
        "IngestOutcome",
        "Sniffed",
    ),
    "traceout": ("parse_window",),
    "verbs": (
        "analyze",
        "describe_formats",
        "export",
        "ingest",
        "sniff",
        "suggest_mapping",
        "synthesise",
    ),
    "verification": ("Verification", "verify"),
}
"""By module: what it gives."""
_HOME: Final = {name: f"kvtrace.api.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'kvtrace.api' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    return found
