"""The charts of the report: which numbers of the record each one shows, and its sentence.

Only picking happens here: columns, rows, the smallest, largest, first and last value.
"""

from __future__ import annotations

from kvtrace.audit.record import AuditRecord
from kvtrace.report.figures.frontier import frontier
from kvtrace.report.figures.measured import latency_by_bucket, over_time
from kvtrace.report.figures.moves import move_against_recompute
from kvtrace.report.figures.options import (
    ledger,
    net_negative,
    replay_over_time,
    ttft_parts,
    ttft_percentiles,
)
from kvtrace.report.figures.running import running
from kvtrace.report.figures.trace import capacity_curve, kv_bytes, reuse_by_bucket
from kvtrace.report.texts import Texts
from kvtrace.report.view import ChartView

__all__ = ["all_charts", "running"]


def all_charts(record: AuditRecord, texts: Texts) -> dict[str, ChartView]:
    """Every chart by id, drawn or with its reason."""
    views = [
        capacity_curve(record, texts),
        reuse_by_bucket(record, texts),
        kv_bytes(record, texts),
        ttft_parts(record, texts),
        ttft_percentiles(record, texts),
        frontier(record, texts),
        net_negative(record, texts),
        move_against_recompute(record, texts),
        ledger(record, texts),
        replay_over_time(record, texts),
        latency_by_bucket(record, texts),
        over_time(record, texts),
    ]
    return {view.id: view for view in views}
