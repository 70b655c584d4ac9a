"""The verbs of kvtrace for Python: `analyze`, `ingest`, `query`, `replay`, `report`, …"""

from kvtrace.api.results import (
    Audit,
    FormatListing,
    IngestOutcome,
    QueryTable,
    ReplayOutcome,
    Sniffed,
)
from kvtrace.api.verbs import (
    analyze,
    describe_formats,
    export,
    ingest,
    list_queries,
    open_dataset,
    query,
    query_index,
    replay,
    report,
    show_sql,
    sniff,
    suggest_mapping,
    synthesise,
)

__all__ = [
    "Audit",
    "FormatListing",
    "IngestOutcome",
    "QueryTable",
    "ReplayOutcome",
    "Sniffed",
    "analyze",
    "describe_formats",
    "export",
    "ingest",
    "list_queries",
    "open_dataset",
    "query",
    "query_index",
    "replay",
    "report",
    "show_sql",
    "sniff",
    "suggest_mapping",
    "synthesise",
]
