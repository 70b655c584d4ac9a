"""Observed moves beside the cost model: the table, and the two findings that it can raise."""

from __future__ import annotations

from typing import Any

import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.findings.moves import MOVES_TABLE
from kvtrace.audit.record import AuditRecord, Finding
from tests.unit.audit_fakes import (
    PROMPT,
    REQUESTS,
    make_deployment,
    make_input,
    query,
    reuse_queries,
)

GIB = 2**30


def audit(known_prompts: int = REQUESTS, **changes: Any) -> AuditRecord:
    row = {
        "direction": "load",
        "path": "host>device",
        "transfers": 50,
        "timed_transfers": 50,
        "moved_bytes": 50 * GIB,
        "moved_tokens": 50 * 8192,
        "ranks_max": 8,
        "bytes_per_s": 0.06e9,  # the published "your disk hits ran at 0.06 GB/s"
        "bytes_per_s_p10": 0.05e9,
        "bytes_p50": float(GIB),
        "tokens_per_s": 460.0,
    } | changes
    known = {"field": "prompt_tokens", "known_requests": known_prompts, "requests": REQUESTS}
    queries = reuse_queries() | {
        "moves/measured_rates": query([row]),
        "coverage/fields": query([known]),
    }
    return build_audit(make_input(queries=queries))


def found(record: AuditRecord, ident: str) -> Finding | None:
    return next((finding for finding in record.findings if finding.id == ident), None)


def test_table_shows_the_measured_rate_beside_that_of_the_same_path() -> None:
    table = audit().tables[MOVES_TABLE]
    (row,) = [dict(zip(table.columns, cells, strict=True)) for cells in table.rows]
    path = make_deployment().path("dram_pcie")
    expected = GIB / path.move_s(GIB)
    assert row["measured_bytes_per_s"] == 0.06e9
    assert row["modelled_bytes_per_s"] == pytest.approx(expected)
    assert row["measured_over_modelled"] == pytest.approx(0.06e9 / expected)
    assert row["measured_tokens_per_s"] == 460.0
    # a 70B model on eight GPUs computes thousands of prompt tokens a second
    recompute = row["recompute_tokens_per_s"]
    assert isinstance(recompute, float)
    assert recompute > 1_000


def test_the_mean_prompt_is_over_the_requests_that_know_their_length() -> None:
    # 2 000 × 10 000 tokens are stated; if 1 000 requests know their length, the mean is 20 000
    prefill = make_deployment().prefill
    for known, mean in ((REQUESTS, PROMPT), (REQUESTS // 2, 2 * PROMPT)):
        table = audit(known).tables[MOVES_TABLE]
        rate = table.rows[0][table.columns.index("recompute_tokens_per_s")]
        assert rate == pytest.approx(mean / prefill.prefill_s(mean, 0))


def test_slow_moves_are_found_and_named() -> None:
    slow = found(audit(), "moves_slower_than_modelled")
    assert slow is not None
    assert "0.06 GB/s" in slow.message or "60" in slow.message
    assert slow.table == MOVES_TABLE
    worse = found(audit(), "moves_slower_than_recompute")
    assert worse is not None
    assert worse.severity == "critical"


def test_fast_moves_raise_nothing() -> None:
    record = audit(bytes_per_s=200e9, tokens_per_s=1e6)
    assert found(record, "moves_slower_than_modelled") is None
    assert found(record, "moves_slower_than_recompute") is None


def test_a_few_moves_prove_nothing() -> None:
    record = audit(transfers=19, timed_transfers=19)
    assert found(record, "moves_slower_than_modelled") is None
    assert found(record, "moves_slower_than_recompute") is None


@pytest.mark.parametrize("path", [None, "disk>host"])
def test_a_path_that_the_model_lacks_has_no_modelled_rate(path: str | None) -> None:
    record = audit(path=path)
    table = record.tables[MOVES_TABLE]
    assert table.rows[0][table.columns.index("modelled_bytes_per_s")] is None
    assert found(record, "moves_slower_than_modelled") is None


def test_stores_are_not_called_hits() -> None:
    record = audit(direction="store", path="device>host")
    assert found(record, "moves_slower_than_recompute") is None
    assert found(record, "moves_slower_than_modelled") is not None


def test_without_observed_moves_there_is_no_table() -> None:
    assert MOVES_TABLE not in build_audit(make_input()).tables
