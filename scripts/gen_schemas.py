#!/usr/bin/env python3
"""Write the JSON Schemas that ship in the package from the types that they describe.

Run it after a change of `kvtrace/audit/record.py` or `ingest_report.py`; a test compares the files.
"""

from __future__ import annotations

from pathlib import Path

from kvtrace.audit.ingest_report import INGEST_SCHEMA_TITLE, IngestReport
from kvtrace.audit.jsonio import AUDIT_SCHEMA_TITLE, schema_bytes
from kvtrace.audit.record import AuditRecord

AUDIT_DIR = Path(__file__).resolve().parents[1] / "kvtrace" / "audit"


def main() -> None:
    """Write `audit.schema.json` and `ingest.schema.json`."""
    (AUDIT_DIR / "audit.schema.json").write_bytes(
        schema_bytes(AuditRecord, title=AUDIT_SCHEMA_TITLE)
    )
    (AUDIT_DIR / "ingest.schema.json").write_bytes(
        schema_bytes(IngestReport, title=INGEST_SCHEMA_TITLE)
    )


if __name__ == "__main__":
    main()
