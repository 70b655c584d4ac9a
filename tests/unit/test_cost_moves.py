"""Moves, ledger, deployment and fleet, with figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvtrace.cost import (
    PATH_IDS,
    Deployment,
    Hop,
    MovePath,
    build_deployment,
    build_ledger,
    default_fleet,
    default_tp,
    ledger_table,
    load_fleet,
    load_hardware,
    load_llm,
)
from kvtrace.cost.fleet import gpu_usd_per_month
from kvtrace.cost.transfer import HopLink
from kvtrace.cost.ways import break_even_bytes_per_s, break_even_tokens
from kvtrace.errors import ModelError, UsageError
from tests.hardware import with_link_speed


@pytest.fixture(scope="module")
def llama() -> Deployment:
    return build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)


def _path(bytes_per_s: float) -> MovePath:
    hop = Hop("pull", (HopLink("nic", bytes_per_s, 1.0),), 0.0)
    return MovePath("pool_rdma_direct", "read", 0.0, (hop,), ())


def test_moving_2000_tokens_of_a_70b_llm() -> None:
    kv_bytes = load_llm("Llama-3.1-70B").kv_bytes(2_000)
    assert kv_bytes == 655_360_000
    assert _path(20e9).move_s(kv_bytes) == pytest.approx(0.032768)
    assert _path(4 * 20e9).move_s(kv_bytes) == pytest.approx(0.008192)
    assert _path(1e9).move_s(kv_bytes) == pytest.approx(0.65536)


def test_serial_hops_add_and_the_slowest_link_of_a_hop_binds() -> None:
    pull = Hop("pull", (HopLink("a", 10e9, 1.0), HopLink("b", 5e9, 2.0)), 0.001)
    load = Hop("load", (HopLink("c", 20e9, 1.0),), 0.002)
    path = MovePath("pool_tcp", "read", 0.004, (pull, load), ())
    # 1e9 bytes: 200 ms at 5 GB/s, 50 ms at 20 GB/s
    expected = {"lookup": 0.004, "pull": 0.201, "load": 0.052}
    assert path.stage_times(1e9) == pytest.approx(expected)
    assert path.move_s(1e9) == pytest.approx(0.257)
    assert path.fixed_s == pytest.approx(0.007)
    assert path.bytes_per_s == pytest.approx(4e9)


def test_paths_have_the_stages_that_they_name(llama: Deployment) -> None:
    kinds = {path.path_id: [hop.kind for hop in path.stages] for path in llama.paths}
    assert kinds == {
        "dram_pcie": ["load"],
        "pool_tcp": ["pull", "load"],
        "pool_rdma_bounce": ["pull", "load"],
        "pool_rdma_direct": ["pull"],
    }
    links = [link.link_id for hop in llama.path("pool_tcp").stages for link in hop.links]
    assert links == ["nic_tcp", "host_dram_write", "pcie", "host_dram_read"]
    with pytest.raises(UsageError, match="pool_floppy"):
        llama.path("pool_floppy")


def test_writes_go_the_other_way_without_a_lookup(llama: Deployment) -> None:
    path = llama.path("pool_rdma_bounce", direction="write")
    assert [hop.kind for hop in path.stages] == ["load", "pull"]
    links = [link.link_id for hop in path.stages for link in hop.links]
    assert links == ["pcie", "host_dram_write", "nic_rdma", "host_dram_read"]
    assert path.lookup_s == 0.0


def test_gpu_direct_drops_the_bounce(llama: Deployment) -> None:
    kv_bytes = 10e9
    direct, bounce = llama.path("pool_rdma_direct"), llama.path("pool_rdma_bounce")
    assert direct.move_s(kv_bytes) < bounce.move_s(kv_bytes)


def test_a_small_instance_uses_the_port_beside_it_and_shares_a_single_one() -> None:
    single = build_deployment("Llama-3.1-8B", "H100-SXM5", tp=1)
    rdma = single.path("pool_rdma_direct").stages[0].links[0]
    tcp = single.path("pool_tcp").stages[0].links[0]
    assert (rdma.link_id, rdma.shared_by) == ("nic_rdma", 1.0)
    assert (tcp.link_id, tcp.shared_by) == ("nic_tcp", 8.0)
    whole = build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)
    assert whole.path("pool_rdma_direct").stages[0].links[0].bytes_per_s == pytest.approx(
        8 * rdma.bytes_per_s
    )


def test_break_even_rate_is_the_closed_form() -> None:
    # 1e9 bytes, 0.5 s to recompute, 0.1 s fixed: 2.5 GB/s
    assert break_even_bytes_per_s(kv_bytes=1e9, recompute_s=0.5, fixed_s=0.1) == 2.5e9
    assert break_even_bytes_per_s(kv_bytes=1e9, recompute_s=0.1, fixed_s=0.1) is None


def test_ledger_adds_up(llama: Deployment) -> None:
    ledger = build_ledger(llama, tokens=2_000, cached_tokens=1_900)
    assert ledger.kv_bytes == 1_900 * 327_680
    assert ledger.recompute_s == ledger.prefill_full_s - ledger.prefill_new_s
    assert ledger.gpu_seconds_freed == pytest.approx(8 * ledger.recompute_s)
    assert [path.path_id for path in ledger.paths] == list(PATH_IDS)
    for path in ledger.paths:
        assert path.move_s == pytest.approx(path.lookup_s + path.pull_s + path.load_s)
        assert path.ttft_change_s == pytest.approx(path.move_s - ledger.recompute_s)
        wins = path.path_bytes_per_s > (path.break_even_bytes_per_s or float("inf"))
        assert path.verdict == ("move_wins" if wins else "recompute_wins")


def test_a_hit_over_tcp_loses_on_fast_gpus_and_local_dram_wins(llama: Deployment) -> None:
    ledger = build_ledger(llama, tokens=2_000, cached_tokens=1_900)
    assert ledger.path("pool_tcp").verdict == "recompute_wins"
    assert ledger.path("dram_pcie").verdict == "move_wins"


def test_break_even_length_is_where_the_gain_changes_sign(llama: Deployment) -> None:
    path = llama.path("pool_rdma_bounce")
    least = break_even_tokens(llama, path, new_tokens=100)
    assert least is not None
    at = build_ledger(llama, tokens=100 + least, cached_tokens=least)
    before = build_ledger(llama, tokens=99 + least, cached_tokens=least - 1)
    assert at.path("pool_rdma_bounce").verdict == "move_wins"
    assert before.path("pool_rdma_bounce").verdict == "recompute_wins"


def test_a_move_that_never_wins_has_no_break_even_length() -> None:
    slow = with_link_speed(load_hardware("H100"), 0.001)
    deployment = build_deployment("DeepSeek-V3", slow, tp=8)
    # copied on all ranks: 8 x 70 272 bytes a token at 4.9 MB/s is 115 ms a token
    ledger = build_ledger(deployment, tokens=2_000, cached_tokens=1_900)
    assert ledger.path("pool_tcp").verdict == "recompute_wins"
    small = build_deployment("Llama-3.1-8B", "H100", tp=1)
    assert break_even_tokens(small, _path(1e3), new_tokens=100) is None


def test_at_least_one_token_is_computed(llama: Deployment) -> None:
    for cached in (0, 2_000):
        with pytest.raises(UsageError, match="not possible"):
            build_ledger(llama, tokens=2_000, cached_tokens=cached)


def test_ledger_table_has_a_row_per_length(llama: Deployment) -> None:
    table = ledger_table(llama, lengths=(512, 8_192), cached_share=0.5)
    assert table.tokens.tolist() == [512, 8_192]
    assert table.cached_tokens.tolist() == [256, 4_096]
    row = build_ledger(llama, tokens=8_192, cached_tokens=4_096)
    assert table.move_s["pool_tcp"][1] == row.path("pool_tcp").move_s
    assert np.all(np.diff(table.recompute_s) > 0)
    assert table.break_even_bytes_per_s["dram_pcie"].shape == (2,)


def test_hbm_left_for_kv_is_what_weights_and_activations_leave(llama: Deployment) -> None:
    usable = 80 * 2**30 * 0.9 - 3 * 2**30
    assert llama.hbm_cache_bytes == pytest.approx(8 * usable - 2 * 70.55e9)


def test_weights_that_do_not_fit_are_an_error_with_a_way_out() -> None:
    deployment = build_deployment("Llama-3.1-70B", "H100", tp=1)
    with pytest.raises(ModelError, match="does not fit on 1 x H100-SXM5") as caught:
        _ = deployment.hbm_cache_bytes
    assert "--tp 4" in (caught.value.hint or "")


def test_default_tp_leaves_room_for_kv() -> None:
    h100 = load_hardware("H100").gpu
    # 141.1 GB of bf16 weights: two GPUs (171.8 GB) leave 18 %, four leave 59 %
    assert default_tp(load_llm("Llama-3.1-70B"), h100, weight_dtype="bf16") == 4
    assert default_tp(load_llm("Llama-3.1-8B"), h100) == 1
    with pytest.raises(ModelError, match="does not fit"):
        default_tp(load_llm("Kimi-K3"), load_hardware("L4").gpu)


def test_replication_shows_in_the_deployment() -> None:
    deployment = build_deployment("DeepSeek-V3", "H200", tp=8)
    assert deployment.weight_dtype == "fp8"
    assert deployment.kv_bytes_per_token == 8 * 70_272
    assert deployment.kv_bytes_per_token_unreplicated == 70_272
    assert deployment.kv_bytes(16, block_size_tokens=64) == 64 * 8 * 70_272
    copies = next(c for c in deployment.constants() if c.id == "llm.kv_replicas")
    assert copies.value == 8


def test_constants_are_unique_and_sourced(llama: Deployment) -> None:
    constants = (*llama.constants(), *default_fleet(llama, 4).constants())
    ids = [constant.id for constant in constants]
    assert len(set(ids)) == len(ids)
    for constant in constants:
        assert constant.source, constant.id
        assert constant.as_of, constant.id
        assert constant.unit, constant.id
        assert constant.title, constant.id


def test_an_llm_without_flops_still_has_bytes_and_constants() -> None:
    deployment = build_deployment("DeepSeek-V4-Flash", "B200", tp=8)
    assert deployment.kv_bytes(1_000) > 0
    assert deployment.constants()
    with pytest.raises(ModelError):
        _ = deployment.prefill


def test_bad_deployments_are_refused() -> None:
    with pytest.raises(UsageError):
        build_deployment("Llama-3.1-8B", "H100", tp=0)
    with pytest.raises(UsageError):
        build_deployment("Llama-3.1-8B", "H100", kv_dtype="fp3")


def test_gpu_cost_by_hand(llama: Deployment) -> None:
    fleet = default_fleet(llama, 2)
    assert (fleet.gpus, fleet.gpu_nodes, fleet.pool_nodes.value) == (16, 2, 2)
    assert gpu_usd_per_month(fleet).value == pytest.approx(16 * 3.0 * 730)
    assert gpu_usd_per_month(fleet, 1.0).low == pytest.approx(1.99 * 730)


def test_idle_dram_is_the_instances_part_of_its_node(llama: Deployment) -> None:
    node = llama.hardware.dram_bytes_per_node.value
    assert default_fleet(llama, 1).dram_idle_bytes_per_instance.value == pytest.approx(node * 0.5)
    half = replace(llama, tp=4)
    assert default_fleet(half, 1).dram_idle_bytes_per_instance.value == pytest.approx(node * 0.25)


def test_the_pool_serves_what_its_ports_or_dram_can(llama: Deployment) -> None:
    fleet = default_fleet(llama, 4)
    ports = 2 * fleet.pool_nic_bytes_per_s.value
    assert fleet.pool_bytes_per_s == 2 * min(ports, fleet.pool_dram_bytes_per_s.value)
    with pytest.raises(UsageError, match="not a fleet"):
        default_fleet(llama, 0)


def test_a_fleet_file_overrides_by_name(llama: Deployment, tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(
        'instances = 6\npool_dram_bytes = "8TiB"\ngpu_usd_per_hour = 2.5\n'
        "pool_nodes = { value = 4, low = 2, high = 8 }\n"
    )
    fleet = load_fleet(path, default_fleet(llama, 4))
    assert fleet.instances == 6
    assert fleet.pool_dram_bytes.value == 8 * 2**40
    assert (fleet.gpu_usd_per_hour.value, fleet.gpu_usd_per_hour.kind) == (2.5, "given")
    assert (fleet.pool_nodes.low, fleet.pool_nodes.high) == (2, 8)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("pool_node = 3", "did you mean `pool_nodes`"),
        ("pool_dram_bytes = 8", "with its unit"),
        ("instances = 0", "whole number"),
        ("gpu_usd_per_hour = -1", "below zero"),
        ("zzz = 1", "known:"),
    ],
)
def test_a_fleet_file_with_a_fault_says_where(
    llama: Deployment, tmp_path: Path, text: str, cause: str
) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_fleet(path, default_fleet(llama, 4))
    assert cause in (caught.value.cause or "")
