"""The HBM budget adds up, contexts fit whole, and tiers take what the ledger says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.record import AuditRecord, Cell, Table
from kvtrace.audit.tables.room import (
    CONTEXTS,
    fitting,
    hbm_bytes_per_s,
    hbm_room,
    room_tables,
    running_kv_bytes,
)
from kvtrace.audit.tables.tier_rates import LENGTHS, tier_rates
from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.tier_paths import find_path
from kvtrace.report.questions.kv_room import kv_parts
from kvtrace.report.texts import load_texts
from tests.report.records import make_bare_record
from tests.unit.audit_fakes import make_deployment, make_input, make_result, make_trace


def column(table: Table, name: str) -> list[Cell]:
    at = table.columns.index(name)
    return [row[at] for row in table.rows]


def by_name(table: Table, key: str) -> dict[Cell, dict[str, Cell]]:
    rows = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    return {row[key]: row for row in rows}


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    return build_audit(make_input())


def test_the_parts_add_up_to_the_hbm(record: AuditRecord) -> None:
    rows = by_name(record.tables["kv/hbm_budget"], "part")
    assert list(rows) == ["hbm", "weights", "activations", "unused", "running_kv", "cache"]
    sizes = {name: float(row["instance_bytes"] or 0) for name, row in rows.items()}
    assert sum(sizes.values()) == pytest.approx(2 * sizes["hbm"])
    assert sizes["hbm"] == 8 * make_deployment().hardware.gpu.hbm_bytes.value
    assert sizes["weights"] == make_deployment().weight_bytes
    shares = [float(row["ratio_hbm"] or 0) for row in rows.values()]
    assert sum(shares) == pytest.approx(2.0)
    for row in rows.values():
        assert float(row["gpu_bytes"] or 0) == pytest.approx(float(row["instance_bytes"] or 0) / 8)


def test_running_kv_is_littles_law() -> None:
    # 2 000 requests hold 10 050 tokens (half of 100 generated ones) for 320 + 2 s each, over
    # 90 000 s and 8 instances.
    deployment = make_deployment()
    result = make_result("hbm_only", hits={"hbm": 2000}, queue_s=50.0)
    expected = 2000 * 322 * 10_050 * deployment.kv_bytes_per_token / 90_000 / 8
    found = running_kv_bytes(make_trace(), result, deployment)
    assert found == pytest.approx(expected)
    assert running_kv_bytes(make_trace(), None, deployment) is None
    unknown = np.full(2000, np.nan)
    no_times = replace(result, timeline=replace(result.timeline, e2e_s=unknown))
    assert running_kv_bytes(make_trace(), no_times, deployment) is None


def test_running_kv_never_takes_more_than_there_is() -> None:
    room = hbm_room(make_deployment(), 1e15)
    assert room.running == room.kv
    assert room.cache == 0.0


def test_without_a_replay_running_kv_is_unknown_and_not_zero() -> None:
    budget, contexts = room_tables(make_deployment(), None, None)
    assert column(budget, "part") == ["hbm", "weights", "activations", "unused", "kv"]
    assert column(contexts, "fit_beside_running") == [None] * 4


def test_a_room_that_was_printed_leaves_the_rest_to_activations() -> None:
    deployment = replace(make_deployment(), measured_kv_tokens=1_000_000)
    room = hbm_room(deployment, None)
    assert room.is_measured
    assert room.kv == 1_000_000 * deployment.kv_bytes_per_token
    assert room.weights + room.free + room.activations + room.kv == pytest.approx(room.hbm)


def test_contexts_are_whole_and_of_groups() -> None:
    one = make_deployment()
    assert fitting(one, 3.9 * one.kv_bytes(2048), 2048) == 3
    # Two groups with half of the room each: what is left over in both is no context.
    two = replace(build_deployment("Meta-Llama-3.1-8B", "H100-SXM5", tp=1), dp=2)
    assert fitting(two, 5.0 * two.kv_bytes(2048), 2048) == 4


def test_contexts_of_an_instance_and_of_a_gpu(record: AuditRecord) -> None:
    rows = by_name(record.tables["kv/contexts"], "context_tokens")
    deployment = make_deployment()
    assert list(rows) == list(CONTEXTS)
    for tokens, row in rows.items():
        assert isinstance(tokens, int)
        whole = int(deployment.hbm_cache_bytes // deployment.kv_bytes(tokens))
        assert row["fit_instance"] == whole > 0
        assert row["fit_gpu"] == whole / 8
        beside = row["fit_beside_running"]
        assert isinstance(beside, int)
        assert 0 <= beside <= whole


def test_tiers_take_what_the_ledger_takes() -> None:
    deployment = make_deployment()
    rows = by_name(tier_rates(deployment), "tier")
    assert list(rows)[:3] == ["hbm", "peer_hbm", "dram_pcie"]
    assert rows["hbm"]["ratio_hbm"] == 1.0
    for name in ("dram_pcie", "pool_tcp", "pool_rdma_bounce", "file_system"):
        path = find_path(deployment, name)
        assert rows[name]["bytes_per_s"] == path.bytes_per_s
        assert rows[name]["ratio_hbm"] == path.bytes_per_s / hbm_bytes_per_s(deployment)
        times = [rows[name][f"tokens_{short}_s"] for short in ("2k", "8k", "32k")]
        assert times == [path.move_s(deployment.kv_bytes(tokens)) for tokens in LENGTHS]
    again = rows["recompute"]
    assert again["tokens_8k_s"] == deployment.prefill.prefill_s(8000.0, 0.0)
    tcp = rows["pool_tcp"]
    assert tcp["over_recompute_8k"] == pytest.approx(
        float(tcp["tokens_8k_s"] or 0) / float(again["tokens_8k_s"] or 1)
    )
    assert rows["pool_tcp"]["slowest"] == "nic_tcp"
    assert rows["pool_tcp"]["kind"] == deployment.hardware.tcp.port.max_bytes_per_s.kind


def test_a_managed_cache_is_no_faster_than_the_ports_that_reach_it() -> None:
    deployment = make_deployment()
    rows = by_name(tier_rates(deployment), "tier")
    cache, tcp = rows["managed_cache_node"], rows["pool_tcp"]
    assert float(cache["bytes_per_s"] or 0) <= float(tcp["bytes_per_s"] or 0)
    assert float(cache["tokens_2k_s"] or 0) > float(tcp["tokens_2k_s"] or 0)  # the first byte


def test_a_gpu_without_a_scale_up_link_has_no_peers() -> None:
    alone = build_deployment("Meta-Llama-3.1-8B", "L40S", tp=1)
    assert "peer_hbm" not in column(tier_rates(alone), "tier")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_section_says_what_fits_and_what_is_slower(record: AuditRecord, lang: str) -> None:
    texts = load_texts("zh" if lang == "zh" else "en")
    room, tiers = kv_parts(record, texts)
    assert room.missing is None
    assert tiers.missing is None
    eight = by_name(record.tables["kv/contexts"], "context_tokens")[8192]["fit_instance"]
    assert any(f"{eight:,}" in one for one in room.sentences)
    slower = [
        name
        for name, row in by_name(record.tables["kv/tiers"], "tier").items()
        if name != "recompute" and float(row["over_recompute_8k"] or 0) > 1
    ]
    for name in slower:
        assert texts(f"q.kv_tiers.tier.{name}") in tiers.sentences[0]
    for row in tiers.short[0].rows:
        assert "_" not in (row[0].text or "")
    assert [one.title for one in room.open_tables]
    missing, _ = kv_parts(make_bare_record(), texts)
    assert missing.missing is not None
