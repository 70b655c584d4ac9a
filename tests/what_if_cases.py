"""Audits whose what-if is tested, in Python and in the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvtrace.audit.build import build_audit
from kvtrace.audit.record import AuditRecord
from kvtrace.cost.tco.need import pool_of_fleet
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.result import LinkUse, ReplayResult
from kvtrace.replay.scenario import LinkSpec, StageSpec, TierSpec
from tests.unit.audit_fakes import (
    SPAN_S,
    make_fleet,
    make_input,
    make_result,
    query,
    reuse_queries,
    standard_ends,
    standard_fewer,
    standard_replays,
)

POOL = "pool_dram_rdma_direct"
CURVE = ((1e11, 0.2), (1e12, 0.3), (4e12, 0.6), (8e12, 0.7))


def what_if_record(**changes: Any) -> AuditRecord:
    """The standard service: its pool of DRAM nodes saves an instance by replay; a curve of hits."""
    queries = reuse_queries()
    queries["reuse/capacity_curve"] = query(
        [
            {
                "capacity_blocks": int(size / 1e8),
                "capacity_bytes": size,
                "hit_ratio_blocks": ratio,
                "hit_ratio_tokens": ratio,
            }
            for size, ratio in CURVE
        ]
    )
    replays = (*standard_replays()[:-1], pool_result())
    values: dict[str, Any] = {
        "queries": queries,
        "replays": replays,
        "fewer": standard_fewer(),
        "ends": standard_ends(),
        "options": tuple(_option(one) for one in replays),
    }
    values.update(changes)
    return build_audit(make_input(**values))


def pool_result() -> ReplayResult:
    """8.8 TB over 8 NICs and 4.4 TB written, with the pool's ports shared by all."""
    fleet = make_fleet()
    tier = TierSpec(
        "pool",
        "shared",
        fleet.pool_dram_bytes.value,
        0.001,
        (StageSpec("pull", ("nic_rdma", "pool_nic_rdma"), 0.0005),
         StageSpec("load", ("pcie",), 0.0002)),
        (),
    )  # fmt: skip
    result = make_result(
        POOL, title="Pool over RDMA", hits={"hbm": 2000, "pool": 4400}, pull_s=8.0, load_s=2.0,
        tier=tier,
    )  # fmt: skip
    links = {
        "nic_rdma": LinkSpec("nic_rdma", "instance", 4e10),
        "pool_nic_rdma": LinkSpec("pool_nic_rdma", "shared", fleet.pool_bytes_per_s),
        "pcie": LinkSpec("pcie", "instance", 3e11),
    }
    uses = tuple(
        LinkUse(name, count, 8.8e12, 4.4e12, 1.0, 13.2e12 / rate / SPAN_S / count)
        for name, count, rate in (
            ("nic_rdma", 8, 4e10),
            ("pool_nic_rdma", 1, fleet.pool_bytes_per_s),
            ("pcie", 8, 3e11),
        )
    )
    return replace(result, scenario=replace(result.scenario, links=links), link_use=uses)


def _option(result: ReplayResult) -> ReplayOption:
    is_pool = result.scenario.option_id == POOL
    need = pool_of_fleet(make_fleet())
    return ReplayOption(
        scenario=result.scenario,
        family="pool" if is_pool else "local",
        need=need if is_pool else replace(need, pool_nodes=0.0, pool_dram_bytes=0.0,
                                          pool_ports=0.0, is_operated=False),
        place="dram_nodes" if is_pool else None,
        wire="rdma_direct" if is_pool else None,
    )  # fmt: skip
