#!/usr/bin/env python3
"""Write the JSON Schemas that ship in the package from the types that they describe.

Run it after a change of `kvtrace/audit/record.py`, `ingest_report.py` or
`compare/comparison.py`; tests compare the files.
"""

from __future__ import annotations

from pathlib import Path

from kvtrace.audit.compare.comparison import COMPARISON_SCHEMA_TITLE, Comparison
from kvtrace.audit.ingest_report import INGEST_SCHEMA_TITLE, IngestReport
from kvtrace.audit.jsonio import AUDIT_SCHEMA_TITLE, schema_bytes
from kvtrace.audit.record import AuditRecord

AUDIT_DIR = Path(__file__).resolve().parents[1] / "kvtrace" / "audit"


def main() -> None:
    """Write `audit.schema.json`, `ingest.schema.json` and `compare/comparison.schema.json`."""
    (AUDIT_DIR / "audit.schema.json").write_bytes(
        schema_bytes(AuditRecord, title=AUDIT_SCHEMA_TITLE)
    )
    (AUDIT_DIR / "ingest.schema.json").write_bytes(
        schema_bytes(IngestReport, title=INGEST_SCHEMA_TITLE)
    )
    (AUDIT_DIR / "compare" / "comparison.schema.json").write_bytes(
        schema_bytes(Comparison, title=COMPARISON_SCHEMA_TITLE)
    )


if __name__ == "__main__":
    main()
