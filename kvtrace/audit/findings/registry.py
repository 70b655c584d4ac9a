"""The registry of findings: one row a check, with threshold, action and production check."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings.check import Check, Evidence, Hit
from kvtrace.audit.findings.link_rows import LINKS_TABLE
from kvtrace.audit.findings.moves import MOVES_TABLE
from kvtrace.audit.findings.prefill import PREFILL_TABLE
from kvtrace.audit.findings.rows import caches, data, moves, service, sharing
from kvtrace.audit.record import Finding
from kvtrace.audit.window import replayed_on

_SEVERITY_ORDER: Final = {"critical": 0, "warning": 1, "info": 2}


def find_all(evidence: Evidence) -> list[Finding]:
    """What the checks found: critical first, then in the order of the registry."""
    found = [(check, hit) for check in CHECKS if (hit := check.look(evidence)) is not None]
    found.sort(key=lambda pair: _SEVERITY_ORDER[pair[1].severity])
    return [_finding(check, hit, evidence) for check, hit in found]


def _finding(check: Check, hit: Hit, evidence: Evidence) -> Finding:
    table = hit.table or check.table
    is_built = table in (PREFILL_TABLE, MOVES_TABLE, LINKS_TABLE)
    window = replayed_on(evidence.window) if check.is_replayed else ""
    return Finding(
        id=check.id,
        title=hit.title or check.title,
        severity=hit.severity,
        confidence=hit.confidence,
        message=f"{hit.message}. {window}" if window else hit.message,
        evidence=list(hit.evidence),
        table=table if is_built or table in evidence.queries else None,
        threshold=check.threshold.quantity(),
        action=check.action,
        action_kind=check.action_kind,
        production_check=check.production_check,
    )


CHECKS: Final[tuple[Check, ...]] = (
    *service.CHECKS,
    *moves.CHECKS,
    *caches.CHECKS,
    *sharing.CHECKS,
    *data.CHECKS,
)
"""In the order in which equally severe findings are shown."""
