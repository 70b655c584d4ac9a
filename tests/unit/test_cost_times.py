"""Prefill and decode: limits worked out by hand, and the published measurements."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from kvtrace.cost import Deployment, build_deployment, load_llm
from kvtrace.cost.efficiency import efficiency_table

SHARED = efficiency_table().shared
HBM_READ = SHARED["hbm_read"].value
KV_READ = SHARED["kv_read"].value
PASSES = SHARED["elementwise_passes"].value


def _points(shared: Path, kind: str) -> list[dict[str, str]]:
    with (shared / "facts" / "validation_points.csv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["kind"] == kind]


def _deployment(row: dict[str, str]) -> Deployment:
    weights = "nvfp4" if row["weight_dtype"] == "fp4" else row["weight_dtype"]
    return build_deployment(
        row["model"],
        row["gpu"],
        tp=int(row["tp"] or 1),
        weight_dtype=weights,
        kv_dtype=row["kv_dtype"],
    )


def test_a_prefill_never_beats_the_peak() -> None:
    deployment = build_deployment("Llama-3.1-70B", "A100", tp=1, weight_dtype="bf16")
    at_peak_s = 2 * 68.45e9 * 2_000 / 312e12  # 0.88 s: no 70B prefill takes 50 ms on an A100
    assert deployment.prefill.prefill_s(2_000, 0) > at_peak_s
    assert at_peak_s == pytest.approx(0.878, abs=0.001)


def test_one_new_token_costs_at_least_reading_the_weights() -> None:
    deployment = build_deployment("Llama-3.1-8B", "H100", tp=1)
    assert deployment.prefill.prefill_s(1, 0) > 2 * 6.98e9 / 3.35e12
    assert deployment.prefill.prefill_s(0, 5_000) == 0.0


def test_long_cached_prefixes_cost_a_read_of_their_kv() -> None:
    deployment = build_deployment("Llama-3.1-8B", "H100", tp=1)
    more = deployment.prefill.prefill_s(1, 100_000) - deployment.prefill.prefill_s(1, 0)
    assert more == pytest.approx(100_000 * 131_072 / (3.35e12 * KV_READ), rel=1e-6)


@pytest.mark.parametrize("llm", ["Llama-3.1-70B", "gpt-oss-120b", "DeepSeek-V3.2"])
def test_arrays_and_numbers_agree(llm: str) -> None:
    model = build_deployment(llm, "H200", tp=8).own_prefill
    new = np.array([0.0, 1.0, 100.0, 5_000.0, 70.0])
    cached = np.array([10.0, 0.0, 100.0, 2_000.0, 90_000.0])
    one_by_one = [model.prefill_s(float(n), float(p)) for n, p in zip(new, cached, strict=True)]
    assert model.prefill_s(new, cached).tolist() == pytest.approx(one_by_one)
    assert model.prefill_s(new, 0.0).shape == (5,)


def test_decode_reads_weights_and_kv_once() -> None:
    deployment = build_deployment("Llama-3.1-8B", "H100", tp=1)
    rate = 3.35e12 * HBM_READ
    head, body = 128_256 * 4_096 * 2, 2 * (8.03e9 - (8.03e9 - 6.98e9))
    fixed = SHARED["decode_fixed_s"].value + 32 * SHARED["decode_layer_s"].value
    assert deployment.decode.step_s(1, 0) == pytest.approx(fixed + (head + body) / rate)
    added = deployment.decode.step_s(2, 20_000) - deployment.decode.step_s(2, 0)
    assert added == pytest.approx(20_000 * 131_072 / (3.35e12 * KV_READ))
    assert deployment.decode.step_s(0, 0) == 0.0


def test_a_batch_of_experts_reads_more_weights_but_never_more_than_all() -> None:
    experts = build_deployment("DeepSeek-V3", "H200", tp=8).own_decode.experts
    # fp8 on eight ranks of 4.8 TB/s. One token: 58 layers x 8 experts of 3 x 7168 x 2048; a hundred
    # touch 256 (1 - (1 - 8 / 256)^100) = 245.3 of a layer's 256; ten thousand touch them all
    rate, expert = 8 * 4.8e12 * HBM_READ, 3 * 7_168 * 2_048
    assert experts.read_s(1) == pytest.approx(58 * 8 * expert / rate)
    assert experts.read_s(100) == pytest.approx(58 * 245.3 * expert / rate, rel=1e-3)
    assert experts.read_s(10_000) == pytest.approx(58 * 256 * expert / rate)
    assert experts.read_s(0.5) == experts.read_s(1)


def test_window_layers_read_no_more_than_their_window() -> None:
    model = build_deployment("gpt-oss-20b", "H100", tp=1).decode
    slope = (model.step_s(1, 100_000) - model.step_s(1, 50_000)) / 50_000
    assert slope == pytest.approx(24_576 / (3.35e12 * KV_READ))


def _kv_size(row: dict[str, str]) -> float:
    llm, dtype, tp = load_llm(row["model"]), row["kv_dtype"], int(row["tp"] or 1)
    tokens = int(row["new_tokens"] or row["cached_tokens"] or 1)
    whole = llm.kv_bytes(tokens, kv_dtype=dtype, tp=tp)
    return {
        "kv_bytes_all_ranks": whole,
        "kv_bytes_1m_tokens": whole,
        "bytes_per_block_per_rank": whole / tp,
        "kv_bytes_per_token": llm.kv_bytes_per_token(dtype),
        "fp8_mla_bytes_per_token_layer": llm.groups[0].entry_bytes(dtype),
    }[row["metric"]]


@pytest.mark.shared
def test_kv_sizes_match_the_published_ones(shared_dir: Path) -> None:
    checked = 0
    for row in _points(shared_dir, "kv_size"):
        predicted = _kv_size(row)
        assert predicted == pytest.approx(float(row["value"]), rel=float(row["tol_rel"])), row["id"]
        checked += 1
    assert checked >= 15


@pytest.mark.shared
def test_loads_from_host_memory_stay_within_their_trust(shared_dir: Path) -> None:
    checked = 0
    for row in _points(shared_dir, "kv_load"):
        if row["series"] not in ("vko_load", "hma") or not row["path"].startswith("DRAM"):
            continue
        deployment = _deployment(row)
        seconds = deployment.path("dram_pcie").move_s(float(row["bytes"]))
        if row["metric"] == "ttft_ms":
            seconds += deployment.prefill.prefill_s(1.0, float(row["cached_tokens"]))
        assert seconds * 1_000 == pytest.approx(float(row["value"]), rel=float(row["tol_rel"]))
        checked += 1
    assert checked >= 10


def test_ranks_without_a_scale_up_link_exchange_over_pcie() -> None:
    nvlink = build_deployment("Llama-3.1-8B", "H100-SXM5", tp=4).own_prefill
    pcie = build_deployment("Llama-3.1-8B", "L40S", tp=4).own_prefill
    # 2 x 32 layers x 4096 x 2 bytes a token, at 0.467 x 450 GB/s and at 0.35 x 24.5 GB/s, beside
    # element-wise passes over 32 x 4096 x 2 bytes of each rank's memory
    exchanged, passed = 2 * 32 * 4_096 * 2, PASSES * 32 * 4_096 * 2 / HBM_READ
    assert nvlink.traffic_token_s == pytest.approx(exchanged / (0.467 * 450e9) + passed / 3.35e12)
    assert pcie.traffic_token_s == pytest.approx(exchanged / (0.35 * 24.5e9) + passed / 864e9)


def test_ranks_on_two_nodes_exchange_over_the_network() -> None:
    model = build_deployment("DeepSeek-V3", "H100-SXM5", tp=16, weight_dtype="bf16").own_prefill
    # half of eight ports of 45 GB/s; passes of every layer and of its routing to experts
    exchanged = 2 * 61 * 7_168 * 2 / (0.5 * 8 * 45e9)
    # 61 layers, 58 of them with experts
    passes = 61 * PASSES + 58 * SHARED["moe_passes"].value
    passed = passes * 7_168 * 2 / (3.35e12 * HBM_READ)
    assert model.traffic_token_s == pytest.approx(exchanged + passed)


def test_recurrent_layers_pass_over_their_input_again() -> None:
    model = build_deployment("Qwen3.5-27B", "H100", tp=1, weight_dtype="bf16").own_prefill
    # 64 layers, 48 of them recurrent, hidden 5120
    scan = SHARED["recurrent_passes"].value
    passed = (64 * PASSES + 48 * scan) * 5_120 * 2 / (3.35e12 * HBM_READ)
    assert model.traffic_token_s == pytest.approx(passed)


def test_experts_cut_over_ranks_lose_efficiency() -> None:
    one, four = (build_deployment("gpt-oss-120b", "H200", tp=tp).own_prefill for tp in (1, 4))
    # an expert of gpt-oss is 2 880 wide, 720 a rank over four
    narrow = SHARED["moe_half_width"].value
    lost = (1 + narrow / 2_880) / (1 + narrow / 720)
    assert one.experts.token_s / four.experts.token_s == pytest.approx(4 * lost)


def test_dense_weights_are_read_whole_and_experts_as_far_as_touched() -> None:
    llm = load_llm("Mixtral-8x7B")
    # 2 of 8 experts of 3 x 4096 x 14336 in 32 layers: two tokens touch 8 (1 - 0.75^2) = 3.5
    expert = 3 * 4_096 * 14_336
    assert llm.touched_parameters(1) == llm.active_nonembed_parameters == 12.62e9
    assert llm.touched_parameters(2) == pytest.approx(12.62e9 + 32 * 1.5 * expert)
    assert llm.touched_parameters(1_000) == pytest.approx(llm.nonembed_parameters, rel=1e-3)
    assert llm.touched_parameters(0) == 0.0
    dense = load_llm("Llama-3.1-8B")
    assert dense.touched_parameters(1) == dense.touched_parameters(1_000) == 6.98e9
