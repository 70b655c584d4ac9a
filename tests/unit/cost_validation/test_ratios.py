"""A tier on against off: savings where they are, and harm where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.cost.validation import predict
from kvtrace.cost.validation.ratios import sign
from tests.unit.cost_validation.cases import point

LONG_PROMPT = {"model": "Meta-Llama-3.1-70B", "gpu": "H100-SXM5", "tp": 4, "new_tokens": 256,
               "cached_tokens": 16_384}  # fmt: skip
SMALL = {**LONG_PROMPT, "model": "Llama-3.2-1B", "tp": 1}
LATENT = {**LONG_PROMPT, "model": "DeepSeek-V3", "gpu": "H200-SXM", "tp": 8}
NEAR, SLOW = "DRAM>PCIe5>HBM", "pool>TCP10G>DRAM>PCIe5>HBM"


def _ratio(folder: Path, metric: str, /, **cells: object) -> float:
    found = predict(point(folder, **{"unit": "x", **cells, "kind": "ab_ratio", "metric": metric}))
    assert found.predicted is not None, found.reason
    return found.predicted


@pytest.mark.parametrize(
    ("metric", "unit", "value", "expected"),
    [
        ("ttft_on_over_off", "x", 0.7, -1),
        ("hit_rate_global_over_local", "x", 2.2, 1),
        ("prefill_gpu_time_global_over_local", "ratio", 0.7, -1),
        ("throughput_ratio", "x", 1.0, 0),
        ("gpu_time_saved", "ratio", 0.3, 1),
        ("cost_saving", "ratio", -0.1, -1),
        ("ttft_change_cpu_tier", "ratio", -0.4, -1),
        ("ttft_change_cpu_tier", "%", 12, 1),
        ("throughput_speedup", "%", 120, 1),
    ],
)
def test_sides(metric: str, unit: str, value: float, expected: int) -> None:
    assert sign(value, metric, unit) == expected


@pytest.mark.parametrize(
    ("metric", "unit", "value", "expected"),
    [
        ("ttft_ratio", "ratio", 0.56, -1),
        ("tokens_per_s", "ratio", 1.5, 1),
        ("$/token", "ratio", 0.5, -1),
        ("throughput_change", "%", -5, -1),
        ("ttft_improvement", "ratio", 0.4, 1),
    ],
)
def test_one_side_over_the_other_is_compared_with_one_unless_it_is_a_change(
    metric: str, unit: str, value: float, expected: int
) -> None:
    assert sign(value, metric, unit, "ab_ratio") == expected


def test_host_memory_helps_a_large_llm_in_every_form(tmp_path: Path) -> None:
    cells = {**LONG_PROMPT, "path": NEAR}
    ratio = _ratio(tmp_path, "ttft_on_over_off", **cells)
    assert ratio < 1
    assert _ratio(tmp_path, "ttft_off_over_on", **cells) == pytest.approx(1 / ratio)
    assert _ratio(tmp_path, "ttft_speedup", **cells) == pytest.approx(1 / ratio)
    assert _ratio(tmp_path, "ttft_reduction", unit="ratio", **cells) == pytest.approx(1 - ratio)
    assert _ratio(tmp_path, "ttft_change", unit="%", **cells) == pytest.approx(100 * (ratio - 1))
    gpu = _ratio(tmp_path, "usd_per_token_on_over_off", **cells)
    assert gpu < 1
    assert _ratio(tmp_path, "throughput_on_over_off", **cells) == pytest.approx(1 / gpu)
    assert _ratio(tmp_path, "requests_per_s_on_over_off", **cells) == pytest.approx(1 / gpu)
    assert _ratio(tmp_path, "throughput_gain", unit="ratio", **cells) == pytest.approx(1 / gpu - 1)
    assert _ratio(tmp_path, "ttft_improvement", unit="ratio", **cells) == pytest.approx(1 - ratio)
    assert _ratio(tmp_path, "throughput_improvement", **cells) == pytest.approx(1 / gpu)
    assert _ratio(tmp_path, "ttft_improvement", **cells) == pytest.approx(1 / ratio)


@pytest.mark.parametrize("cells", [LONG_PROMPT, SMALL, LATENT], ids=["70b", "1b", "latent"])
def test_a_slow_tier_does_harm(tmp_path: Path, cells: dict[str, object]) -> None:
    assert _ratio(tmp_path, "ttft_on_over_off", **cells, path=SLOW) > 1
    assert _ratio(tmp_path, "throughput_on_over_off", **cells, path=SLOW) < 1
    assert _ratio(tmp_path, "cost_saving", unit="ratio", **cells, path=SLOW) < 0


def test_a_small_llm_gains_less_and_loses_earlier(tmp_path: Path) -> None:
    path = "pool>TCP25G>DRAM>PCIe5>HBM"
    large = _ratio(tmp_path, "ttft_on_over_off", **LONG_PROMPT, path=path)
    small = _ratio(tmp_path, "ttft_on_over_off", **SMALL, path=path)
    assert large > 1  # 5.4 GB at 2.8 GB/s
    assert small > 1
    near = [
        _ratio(tmp_path, "ttft_on_over_off", **cells, path=NEAR) for cells in (LONG_PROMPT, SMALL)
    ]
    assert near[0] < near[1]


def test_copies_of_a_latent_cost_their_move(tmp_path: Path) -> None:
    path = "pool>RDMA100G>DRAM>PCIe5>HBM"
    ratios = [
        _ratio(tmp_path, "ttft_on_over_off", **{**LATENT, "tp": tp, "path": path}) for tp in (8, 16)
    ]
    assert ratios[0] < ratios[1]


def test_short_hits_do_not_pay_a_lookup(tmp_path: Path) -> None:
    cells = {**SMALL, "new_tokens": 512, "cached_tokens": 16, "path": SLOW}
    assert _ratio(tmp_path, "ttft_on_over_off", **cells) > 1


def test_output_dilutes_what_a_hit_saves(tmp_path: Path) -> None:
    cells = {**LONG_PROMPT, "path": NEAR, "concurrency": 8}
    bare = _ratio(tmp_path, "throughput_on_over_off", **cells)
    whole = _ratio(tmp_path, "throughput_on_over_off", **cells, note="osl 1024")
    assert 1 < whole < bare


def test_a_row_about_a_whole_system_says_what_stands_in(tmp_path: Path) -> None:
    one = point(tmp_path, kind="economics", metric="ttft_reduction_max", unit="ratio", value=0.5)
    found = predict(one)
    assert found.is_sign_right is True
    assert found.assumes == (
        "model Meta-Llama-3.1-70B",
        "gpu H100-SXM5",
        "8192 prompt tokens, half of them hit",
        "path DRAM>PCIe>HBM",
    )


def test_a_pool_holds_what_one_instance_holds(tmp_path: Path) -> None:
    cells = {"kind": "economics", "metric": "hit_rate_global_over_local", "unit": "x", "value": 2.2}
    found = predict(point(tmp_path, **cells))
    assert found.predicted == 2.0
    assert found.is_sign_right is True


def test_a_speedup_needs_a_hit(tmp_path: Path) -> None:
    cells = {**LONG_PROMPT, "kind": "speedup", "metric": "ttft_speedup", "unit": "x"}
    near = predict(point(tmp_path, **cells, path=NEAR))
    assert near.predicted is not None
    assert near.predicted > 2
    other = predict(point(tmp_path, **{**cells, "metric": "ttft_on_over_off"}, path=NEAR))
    assert other.predicted == pytest.approx(1 / near.predicted)
    none = predict(point(tmp_path, **{**cells, "cached_tokens": ""}, path=NEAR))
    assert none.reason == "no cached_tokens"


@pytest.mark.parametrize("metric", ["itl_ratio", "tpot_on_over_off", "mean_inter_token_latency"])
def test_decode_steps_beside_a_tier_are_not_taken_for_its_cost(tmp_path: Path, metric: str) -> None:
    cells = {**LONG_PROMPT, "kind": "ab_ratio", "metric": metric, "unit": "ratio"}
    found = predict(point(tmp_path, **cells, path=NEAR))
    assert found.predicted is None
    assert "decode steps" in (found.reason or "")


def test_a_published_formula_is_worked_out_as_published(tmp_path: Path) -> None:
    cells = {"kind": "crossover", "metric": "min_bandwidth_gbps", "unit": "GB/s", "tp": 8,
             "model": "Meta-Llama-3.1-70B", "gpu": "A800", "cached_tokens": 8_192,
             "provenance": "formula", "source": "Mooncake FAST25 paper equation 2"}  # fmt: skip
    found = predict(point(tmp_path, **cells))
    # 80 (4 n^2 d + 22 n d^2) of n = d = 8192 is 80 * 26 * 8192^3 FLOP; 8 * 312e12 FLOP/s
    seconds = 80 * 26 * 8_192**3 / (8 * 312e12)
    assert found.predicted == pytest.approx(327_680 * 8_192 / seconds / 1e9)
