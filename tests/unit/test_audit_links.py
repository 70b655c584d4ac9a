"""Measured links beside modelled ones: the table, the window that it is of, and the finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.findings.link_rows import LINKS_TABLE
from kvtrace.audit.record import AuditRecord, Cell, Finding
from kvtrace.replay.result import LinkUse, ReplayResult
from kvtrace.replay.scenario import LinkSpec
from kvtrace.units import NS_PER_S
from tests.unit.audit_fakes import (
    SPAN_S,
    make_input,
    make_manifest,
    make_result,
    make_trace,
    query,
    reuse_queries,
)

EPOCH_NS = 1_767_225_600 * NS_PER_S
LINKS = 8
READ_BYTES = 3e10 * LINKS * SPAN_S  # 30 GB/s over each of eight links


def on_links(result: ReplayResult, *uses: LinkUse, usable: float = 5e10) -> ReplayResult:
    specs = {use.link_id: LinkSpec(use.link_id, "instance", usable) for use in uses}
    return replace(result, link_use=uses, scenario=replace(result.scenario, links=specs))


def replays(link_id: str = "pcie") -> tuple[ReplayResult, ...]:
    dram = make_result("dram_idle", title="Idle DRAM", hits={"hbm": 2000, "host_dram": 800})
    return (
        on_links(make_result("hbm_only", title="HBM only", hits={"hbm": 2000})),
        on_links(dram, LinkUse(link_id, LINKS, READ_BYTES, 0.0, SPAN_S, 0.6)),
    )


def measured(**changes: Any) -> dict[str, Any]:
    """64 GPUs that each receive 4 GB/s: 32 GB/s an instance of eight."""
    row = {
        "link": "pcie",
        "links": 64,
        "hosts": 8,
        "clock": "utc",
        "start_ns": EPOCH_NS,
        "last_at_ns": EPOCH_NS + 100 * NS_PER_S,
        "tx_bytes": None,
        "rx_bytes": 4e9 * 64 * 100,
        "tx_bytes_per_s": None,
        "rx_bytes_per_s": 4e9,
        "highest_tx_bytes_per_s": None,
        "highest_rx_bytes_per_s": 5e9,
        "capacity_bytes_per_s": None,
    }
    return row | changes


def audit(row: dict[str, Any], *, link_id: str = "pcie", **changes: Any) -> AuditRecord:
    queries = reuse_queries() | {"links/measured_summary": query([row])}
    queries |= changes.pop("queries", {})
    return build_audit(make_input(queries=queries, replays=replays(link_id), **changes))


def rows(record: AuditRecord) -> dict[str, dict[str, Cell]]:
    table = record.tables[LINKS_TABLE]
    named = [dict(zip(table.columns, cells, strict=True)) for cells in table.rows]
    return {str(row["option_id"]): row for row in named}


def found(record: AuditRecord) -> Finding | None:
    return next((one for one in record.findings if one.id == "link_leaves_too_little"), None)


def test_bytes_of_the_replay_stand_beside_those_of_the_counters() -> None:
    row = rows(audit(measured()))["dram_idle"]
    assert row["link_id"] == "pcie"
    assert row["measured_link"] == "pcie"
    assert row["modelled_read_bytes"] == READ_BYTES
    assert row["modelled_read_bytes_per_s"] == pytest.approx(3e10)
    assert row["measured_rx_bytes"] == 4e9 * 64 * 100
    # 4 GB/s a GPU, eight GPUs an instance; 50 − 32 are left
    assert row["measured_rx_bytes_per_s"] == 32e9
    assert row["left_read_bytes_per_s"] == 18e9
    assert row["measured_tx_bytes"] is None
    assert row["left_written_bytes_per_s"] is None


def test_today_moves_no_kv_and_shows_what_the_link_carries_all_the_same() -> None:
    row = rows(audit(measured()))["hbm_only"]
    assert row["link_id"] is None
    assert row["modelled_read_bytes"] == 0
    assert row["measured_rx_bytes_per_s"] == 32e9
    assert row["left_read_bytes_per_s"] is None


def test_a_link_that_nobody_measured_is_unknown_and_never_zero() -> None:
    row = rows(audit(measured(), link_id="nic_rdma"))["dram_idle"]
    assert row["measured_link"] is None
    assert row["measured_rx_bytes"] is None
    assert row["left_read_bytes_per_s"] is None
    assert row["is_same_window"] is None


def test_ports_of_a_node_are_shared_by_its_instances() -> None:
    # 16 ports in 8 nodes, 1 GB/s each: 2 GB/s a node, which has one instance of eight GPUs
    record = audit(measured(link="rdma", links=16, rx_bytes_per_s=1e9), link_id="nic_rdma")
    assert rows(record)["dram_idle"]["measured_rx_bytes_per_s"] == 2e9


def test_too_little_left_is_found_with_its_numbers() -> None:
    finding = found(audit(measured()))
    assert finding is not None
    assert finding.table == LINKS_TABLE
    assert finding.confidence == "low"
    values = {entry.id: entry.value for entry in finding.evidence}
    assert values["needed_bytes_per_s"] == pytest.approx(3e10)
    assert values["carried_bytes_per_s"] == 32e9
    assert values["left_bytes_per_s"] == 18e9
    assert "another time" in finding.message
    assert "Idle DRAM" in finding.message


def test_enough_left_is_no_finding() -> None:
    # 1 GB/s a GPU: 8 of 50 are carried, 42 are left, 30 are needed
    assert found(audit(measured(rx_bytes_per_s=1e9))) is None


def test_a_full_link_leaves_nothing() -> None:
    record = audit(measured(rx_bytes_per_s=9e9))
    assert rows(record)["dram_idle"]["left_read_bytes_per_s"] == 0
    assert found(record) is not None


def test_counters_of_the_replayed_window_are_taken_where_the_clocks_compare() -> None:
    manifest = make_manifest()
    manifest.sources[0] = msgspec.structs.replace(manifest.sources[0], clock="utc")
    whole = make_trace()
    whole = replace(whole, arrived_at_ns=whole.arrived_at_ns + EPOCH_NS)
    last_ns = int(np.max(whole.arrived_at_ns))
    slices = [
        {"link": "pcie", "slice_start_ns": start, "rx_bytes": size, "tx_bytes": None}
        | {"rx_bytes_per_s": rate, "tx_bytes_per_s": None}
        for start, size, rate in (
            (EPOCH_NS - 1, 9e15, 9e9),
            (EPOCH_NS, 1e12, 2e9),
            (last_ns, 2e12, 1e9),
            (last_ns + 1, 9e15, 9e9),
        )
    ]
    record = audit(
        measured(),
        manifest=manifest,
        whole_trace=whole,
        queries={"links/measured_bytes": query(slices)},
    )
    row = rows(record)["dram_idle"]
    assert row["is_same_window"] is True
    assert row["measured_rx_bytes"] == 3e12
    assert row["measured_rx_bytes_per_s"] == 1.5e9 * 8
    early = audit(
        measured(),
        manifest=manifest,
        whole_trace=whole,
        queries={"links/measured_bytes": query(slices[:1])},
    )
    assert rows(early)["dram_idle"]["is_same_window"] is False
    assert rows(early)["dram_idle"]["measured_rx_bytes"] == 4e9 * 64 * 100


def test_there_is_no_table_without_measured_links() -> None:
    assert LINKS_TABLE not in build_audit(make_input(replays=replays())).tables
