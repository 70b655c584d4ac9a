"""All checks of a dataset, in the order in which they explain one another."""

from __future__ import annotations

from kvtrace.audit.record import AuditRecord
from kvtrace.store.dataset import Dataset
from kvtrace.verify.check import Check, not_compared
from kvtrace.verify.counters import DEFAULT_TOLERANCE, check_counters
from kvtrace.verify.headline import check_audit, check_manifest, check_queries, ground_of
from kvtrace.verify.integrity import check_integrity
from kvtrace.verify.rows import read_requests


def verify_dataset(
    dataset: Dataset,
    record: AuditRecord | None = None,
    *,
    tolerance: float = DEFAULT_TOLERANCE,
    no_record_reason: str = "there is no audit.json beside the dataset",
) -> list[Check]:
    """Every check: the dataset itself, queries, manifest, audit, engines.

    `record` is the audit of exactly this dataset; `tolerance` is for engine counters alone.
    """
    requests = read_requests(dataset)
    ground = ground_of(requests, dataset.manifest)
    bytes_per_token = None if record is None else record.kv.bytes_per_token
    checks = [
        *check_integrity(dataset),
        *check_manifest(dataset.manifest, ground),
        *check_queries(dataset, ground, bytes_per_token),
    ]
    if record is None:
        checks.append(not_compared("audit/record", no_record_reason))
    else:
        checks += check_audit(record, ground)
    return [*checks, *check_counters(dataset, requests, tolerance)]
