"""Predictions of each kind, with figures worked out by hand; what cannot be said gets a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.cost import build_deployment
from kvtrace.cost.validation import Point, predict
from tests.unit.cost_validation.cases import point

LLAMA = {"model": "Meta-Llama-3.1-70B", "gpu": "H100-SXM5", "n_gpus": 4, "tp": 4,
         "weight_dtype": "bf16", "kv_dtype": "bf16"}  # fmt: skip


def _predicted(one: Point) -> float:
    found = predict(one)
    assert found.predicted is not None, found.reason
    return found.predicted


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        # 80 layers x 2 x 8 heads x 128 x 2 B = 327 680 B a token
        ({"metric": "kv_bytes_per_token", "unit": "B"}, 327_680),
        ({"metric": "kv_kib_per_token", "unit": "KiB"}, 320),
        # 16 tokens over 4 ranks
        ({"metric": "bytes_per_block_per_rank", "unit": "B", "cached_tokens": 16}, 1_310_720),
        ({"metric": "kv_bytes_all_ranks", "unit": "GB", "cached_tokens": 2_000}, 0.65536),
        # 2^20 tokens
        ({"metric": "kv_bytes_1m_tokens", "unit": "GiB"}, 320),
    ],
)
def test_kv_sizes(tmp_path: Path, cells: dict[str, object], expected: float) -> None:
    assert _predicted(point(tmp_path, kind="kv_size", **{**LLAMA, **cells})) == pytest.approx(
        expected
    )


def test_kv_sizes_count_the_copies_of_ranks_without_a_head_of_their_own(tmp_path: Path) -> None:
    cells = {"kind": "kv_size", "metric": "kv_bytes_all_ranks", "unit": "B", "cached_tokens": 100}
    # a latent of 61 x 576 x 2 B has one shard: eight ranks keep eight copies
    one = point(tmp_path, **cells, model="DeepSeek-V3", tp=8)
    assert _predicted(one) == 8 * 100 * 70_272


@pytest.mark.parametrize(
    ("tp", "reason"),
    [(0, "`tp` is 0"), (3, "8 KV heads of Meta-Llama-3.1-70B cannot be shared by 3 ranks")],
)
def test_ranks_that_no_engine_runs_on_are_not_predicted(
    tmp_path: Path, tp: int, reason: str
) -> None:
    cells = {**LLAMA, "metric": "kv_bytes_all_ranks", "unit": "B", "cached_tokens": 100, "tp": tp}
    found = predict(point(tmp_path, kind="kv_size", **cells))
    assert found.predicted is None
    assert (found.reason or "").startswith(reason)


def test_layer_entries_and_states(tmp_path: Path) -> None:
    latent = point(
        tmp_path,
        kind="kv_size",
        metric="fp8_mla_bytes_per_token_layer",
        unit="B",
        model="DeepSeek-V3.2",
        kv_dtype="fp8_ds_mla",
    )
    assert _predicted(latent) == 656
    state = point(
        tmp_path, kind="kv_size", metric="state_bytes_per_seq", unit="B", model="Qwen3.5-27B"
    )
    assert _predicted(state) == 153_944_064


def test_kernels_alone_leave_the_host_out(tmp_path: Path) -> None:
    cells = {**LLAMA, "unit": "s", "new_tokens": 4_096, "cached_tokens": 0}
    ttft = _predicted(point(tmp_path, kind="prefill_ttft", metric="ttft_ms", **cells))
    kernels = _predicted(point(tmp_path, kind="prefill_composed", metric="kernel_sum_ms", **cells))
    model = build_deployment("Llama-3.1-70B", "H100-SXM5", tp=4).own_prefill
    assert kernels == pytest.approx(
        model.prefill_s(4_096.0, 0.0) - model.host_s - model.host_token_s * 4_096
    )
    assert ttft > model.prefill_s(4_096.0, 0.0)


def test_text_costs_time_in_front_of_the_engine(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "prefill_ttft", "metric": "ttft_ms", "new_tokens": 1_000}
    served = _predicted(point(tmp_path, **cells))
    inside = _predicted(point(tmp_path, **cells, note="no (de)tokenisation"))
    assert served > inside


@pytest.mark.parametrize(
    "model", ["Llama-3.2-1B", "Meta-Llama-3.1-70B", "DeepSeek-V3", "Qwen3.5-27B"]
)
@pytest.mark.parametrize("tp", [1, 8])
def test_more_tokens_never_come_cheaper(tmp_path: Path, model: str, tp: int) -> None:
    cells = {"kind": "prefill_ttft", "metric": "ttft_ms", "model": model, "gpu": "H200", "tp": tp}
    lengths = (1, 16, 255, 512, 4_096, 32_768, 131_072)
    new = [_predicted(point(tmp_path, **cells, new_tokens=n)) for n in lengths]
    assert new == sorted(new)
    cached = [_predicted(point(tmp_path, **cells, new_tokens=64, cached_tokens=n)) for n in lengths]
    assert cached == sorted(cached)


def test_others_prefills_delay_a_prefill_and_a_step(tmp_path: Path) -> None:
    ttft = {**LLAMA, "kind": "prefill_ttft", "metric": "mean_ttft_ms", "new_tokens": 8_192}
    alone, among = (_predicted(point(tmp_path, **ttft, concurrency=n)) for n in (1, 4))
    assert alone < among < 2 * alone
    tpot = {**LLAMA, "kind": "decode", "metric": "mean_tpot_ms", "cached_tokens": 8_192}
    few, many = (_predicted(point(tmp_path, **tpot, concurrency=n)) for n in (1, 8))
    assert few < many


def test_decode_slope_is_the_kv_of_a_token_at_the_memory_rate(tmp_path: Path) -> None:
    cells = {"kind": "decode", "model": "Llama-3.1-8B", "gpu": "H100", "tp": 1}
    slope = point(tmp_path, **cells, metric="itl_slope_ns_per_ctx_token", unit="ns/token")
    decode = build_deployment("Llama-3.1-8B", "H100", tp=1).own_decode
    assert _predicted(slope) == pytest.approx(decode.kv_terms[0][0] * 1e9)
    intercept = point(tmp_path, **cells, metric="itl_intercept_ms")
    assert _predicted(intercept) == pytest.approx(decode.weights_s(1) * 1e3)
    # with half the bytes a token costs half
    fp8 = point(tmp_path, **cells, metric="itl_slope", unit="ns/token", kv_dtype="fp8 (window)")
    assert _predicted(fp8) == pytest.approx(_predicted(slope) / 2)


def test_loads_in_every_unit(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "kv_load", "path": "DRAM>PCIe5>HBM x4", "cached_tokens": 1_000}
    rate = _predicted(point(tmp_path, **cells, metric="gbps", unit="GB/s"))
    seconds = _predicted(point(tmp_path, **cells, metric="transfer_ms", unit="s"))
    each = _predicted(point(tmp_path, **cells, metric="ms_per_gb", unit="ms/GB"))
    tokens = _predicted(point(tmp_path, **cells, metric="tokens_per_s", unit="tok/s"))
    # the rate of a move of 1 000 tokens holds its 8 us of latency, a long run's rates do not
    assert seconds == pytest.approx(327.68e6 / (rate * 1e9))
    assert each / 1_000 == pytest.approx((seconds - 8e-6) / 0.32768)
    assert tokens == pytest.approx(1_000 / (seconds - 8e-6))


def test_bytes_of_the_row_are_what_moved(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "kv_load", "metric": "transfer_ms", "path": "DRAM>PCIe5>HBM"}
    one = _predicted(point(tmp_path, **cells, bytes=10**9))
    two = _predicted(point(tmp_path, **cells, bytes=2 * 10**9))
    assert two / one == pytest.approx(2, rel=1e-3)


def test_layers_overlap_their_loads(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "kv_load", "metric": "ttft_ms", "new_tokens": 2_048,
             "cached_tokens": 16_384}  # fmt: skip
    serial = _predicted(point(tmp_path, **cells, path="DRAM>PCIe5>HBM"))
    overlapped = _predicted(point(tmp_path, **cells, path="DRAM>PCIe5>HBM layerwise"))
    nothing = _predicted(point(tmp_path, **cells, path="HBM"))
    assert nothing < overlapped < serial


def test_page_first_copies_more_at_once(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "kv_load", "metric": "gbps", "unit": "GB/s"}
    layers = _predicted(point(tmp_path, **cells, path="DRAM>PCIe5>HBM page 16 tokens"))
    pages = _predicted(point(tmp_path, **cells, path="DRAM>PCIe5>HBM page-first page 16 tokens"))
    assert pages > 3 * layers


def test_break_even_by_a_formula_takes_the_peak(tmp_path: Path) -> None:
    cells = {"kind": "crossover", "metric": "min_bandwidth", "unit": "GB/s", "tp": 8,
             "model": "Llama-3-70B class", "gpu": "A800-SXM4-80GB"}  # fmt: skip
    one = point(tmp_path, **cells, cached_tokens=8_192, provenance="formula")
    # 2.684e9 B / ((2 x 68.45e9 x 8192 + 2621440 x 8192^2 / 2) / (8 x 312e12) s)
    flops = 2 * 68.45e9 * 8_192 + 2_621_440 * 8_192**2 / 2
    assert _predicted(one) == pytest.approx(8_192 * 327_680 / (flops / (8 * 312e12)) / 1e9)


def test_a_break_even_length_is_the_first_that_wins(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "crossover", "metric": "break_even_tokens", "unit": "tokens"}
    near = _predicted(point(tmp_path, **cells, path="DRAM>PCIe5>HBM"))
    far = _predicted(point(tmp_path, **cells, path="DRAM>TCP100G>DRAM>PCIe5>HBM"))
    assert near < far
    never = predict(point(tmp_path, **cells, path="DRAM>TCP1G>DRAM>PCIe5>HBM"))
    assert never.reason == "moving never wins on this path"


def test_users_that_fit(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "replay_capacity", "unit": "users", "cached_tokens": 16_384}
    held = build_deployment("Llama-3.1-70B", "H100-SXM5", tp=4).hbm_cache_bytes
    one = point(tmp_path, **cells, metric="users_at_gpu_cliff")
    assert _predicted(one) == pytest.approx(held / (16_384 * 327_680))
    host = predict(point(tmp_path, **cells, metric="users_at_cpu_cliff"))
    assert host.reason == "the host memory given to the cache is not in the row"


def test_throughput_rises_with_hits(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "replay_throughput", "metric": "tokens_per_s", "unit": "tok/s",
             "path": "DRAM>PCIe5>HBM"}  # fmt: skip
    rates = [
        _predicted(point(tmp_path, **cells, new_tokens=512 - hit, cached_tokens=hit))
        for hit in (0, 128, 256, 512)
    ]
    assert rates == sorted(rates)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"kind": "weather", "metric": "x"}, "the kind `weather` is not known"),
        ({"kind": "prefill_ttft", "metric": "t", "new_tokens": 9}, "no LLM is named"),
        (
            {"kind": "prefill_ttft", "metric": "ttft_ms", "model": "GPT-9", "new_tokens": 9},
            "`GPT-9` is not a known LLM",
        ),
        (
            {"kind": "prefill_ttft", "metric": "t", **LLAMA, "gpu": "TPU-v9", "new_tokens": 9},
            "`TPU-v9` is not a known GPU",
        ),
        ({"kind": "prefill_ttft", "metric": "ttft_ms", **LLAMA}, "no new_tokens"),
        ({"kind": "kv_load", "metric": "t", **LLAMA}, "no path"),
        ({"kind": "link_bw", "metric": "t", "path": "moon>dust>HBM"}, "`moon` is neither"),
        ({"kind": "link_bw", "metric": "t", "path": "HBM", "unit": "GB/s"}, "nothing moves"),
        (
            {"kind": "link_bw", "metric": "t", "path": "DRAM>PCIe5>HBM", "unit": "furlongs"},
            "the unit `furlongs` is not known",
        ),
        (
            {"kind": "link_bw", "metric": "t", "path": "DRAM>PCIe5>HBM", "unit": "ms"},
            "the unit `ms` does not measure bytes_per_s",
        ),
        ({"kind": "decode", "metric": "tpot_ms", **LLAMA}, "the context is not in the row"),
        ({"kind": "replay_hit", "metric": "hit_rate", **LLAMA}, "follows from the order"),
        ({"kind": "replay_hit", "metric": "ideal_prefix_hit_x"}, "shown, not scored"),
        (
            {"kind": "prefill_ttft", "metric": "t", **LLAMA, "weight_dtype": "fp3",
             "new_tokens": 9},
            "`fp3` is not a known number format",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_said_gets_a_reason(
    tmp_path: Path, cells: dict[str, object], reason: str
) -> None:
    found = predict(point(tmp_path, **cells))
    assert found.predicted is None
    assert found.error is None
    assert reason in (found.reason or "")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (
            {"kind": "replay_capacity", "metric": "users", "unit": "users", "new_tokens": 1_000,
             "model": "DeepSeek-V3", "gpu": "H100-SXM5", "tp": 2},
            "does not fit on 2 x H100-SXM5",
        ),
        (
            {"kind": "prefill_ttft", "metric": "ttft_ms", "new_tokens": 1_000, "gpu": "H100",
             "model": "DeepSeek-V4-Pro", "tp": 8},
            "the FLOPs of DeepSeek-V4-Pro are not known",
        ),
        (
            {"kind": "replay_throughput", "metric": "tokens_per_s", "unit": "tok/s",
             "cached_tokens": 512, "path": "HBM", **LLAMA},
            "nothing is computed and nothing moves",
        ),
    ],
    ids=["room", "flops", "nothing"],
)  # fmt: skip
def test_what_the_model_refuses_is_a_reason(
    tmp_path: Path, cells: dict[str, object], reason: str
) -> None:
    found = predict(point(tmp_path, **cells))
    assert found.predicted is None
    assert reason in (found.reason or "")


def test_a_ratio_needs_no_unit(tmp_path: Path) -> None:
    cells = {**LLAMA, "kind": "speedup", "metric": "ttft_speedup", "cached_tokens": 10_000,
             "new_tokens": 1, "path": "DRAM>PCIe5>HBM"}  # fmt: skip
    bare = _predicted(point(tmp_path, **cells, unit=""))
    assert bare == _predicted(point(tmp_path, **cells, unit="x")) > 1
