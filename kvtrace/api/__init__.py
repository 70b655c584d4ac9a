"""The verbs of kvtrace for Python: `analyze`, `ingest`, `query`, `replay`, `report`, …"""

from kvtrace.api.describequery import QueryDescription
from kvtrace.api.hardware import HardwareListing, HardwareSheet, hardware
from kvtrace.api.ledger import LedgerOutcome, ledger
from kvtrace.api.llm import LlmListing, LlmSheet, llm
from kvtrace.api.policies import PoliciesOutcome, policies
from kvtrace.api.pooling import PoolingOutcome, pooling
from kvtrace.api.queries import (
    describe_query,
    has_query,
    is_dataset,
    list_queries,
    open_dataset,
    query,
    query_index,
    show_sql,
)
from kvtrace.api.replaying import ReplayAsk, replay, sweep
from kvtrace.api.results import (
    Audit,
    FormatListing,
    IngestOutcome,
    QueryTable,
    ReplayOutcome,
    Sniffed,
    SweepOutcome,
)
from kvtrace.api.traceout import parse_window
from kvtrace.api.verbs import (
    analyze,
    describe_formats,
    export,
    ingest,
    report,
    sniff,
    suggest_mapping,
    synthesise,
)
from kvtrace.api.verify import Verification, verify

__all__ = [
    "Audit",
    "FormatListing",
    "HardwareListing",
    "HardwareSheet",
    "IngestOutcome",
    "LedgerOutcome",
    "LlmListing",
    "LlmSheet",
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
    "describe_formats",
    "describe_query",
    "export",
    "hardware",
    "has_query",
    "ingest",
    "is_dataset",
    "ledger",
    "list_queries",
    "llm",
    "open_dataset",
    "parse_window",
    "policies",
    "pooling",
    "query",
    "query_index",
    "replay",
    "report",
    "show_sql",
    "sniff",
    "suggest_mapping",
    "sweep",
    "synthesise",
    "verify",
]
