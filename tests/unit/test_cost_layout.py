"""TP x PP x DP ranks and what they exchange, with figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace import api
from kvtrace.config import resolve_settings
from kvtrace.cost import build_deployment, build_ledger, load_hardware, load_llm
from kvtrace.cost.efficiency import efficiency_table
from kvtrace.cost.exchange import alltoall_bytes, build_exchange, stage_bytes_per_s
from kvtrace.cost.layout import Layout, default_ep
from kvtrace.errors import UsageError

SHARED = efficiency_table().shared


def test_ranks_multiply_and_are_named() -> None:
    layout = Layout(tp=2, pp=2, dp=4, ep=8)
    assert (layout.gpus, layout.stage_ranks, layout.expert_cut) == (16, 8, 1)
    assert layout.text == "TP2 · PP2 · DP4 · EP8"
    assert Layout(tp=8).text == "TP8"
    assert (default_ep(8, 1), default_ep(2, 4)) == (1, 8)
    with pytest.raises(UsageError, match="--pp 0"):
        Layout(pp=0)
    with pytest.raises(UsageError, match="--ep 3"):
        Layout(tp=8, ep=3)


def test_a_dense_llm_has_no_experts_to_spread() -> None:
    deployment = build_deployment("Llama-3.1-8B", "H100", tp=2, ep=2)
    assert deployment.layout == Layout(tp=2)


def test_each_group_holds_its_dense_weights_and_a_part_of_the_experts() -> None:
    alone = build_deployment("DeepSeek-V3", "H800", tp=8)
    groups = build_deployment("DeepSeek-V3", "H800", tp=1, dp=16)
    # fp8: 58 x 256 experts of 44 040 192 parameters, the rest once a group
    routed = 58 * 256 * 44_040_192
    assert alone.weight_bytes_per_rank == pytest.approx(670.9e9 / 8)
    expected = (670.9e9 - routed) + routed / 16
    assert groups.weight_bytes_per_rank == pytest.approx(expected)
    assert groups.gpus == 16


def test_a_sequence_lies_in_one_group_and_is_cut_over_stages() -> None:
    latent = build_deployment("DeepSeek-V3", "H200", tp=1, dp=8)
    # 61 layers x 576 elements x 2 B of 1 000 tokens, one copy
    assert latent.kv_bytes(1_000) == latent.kv_bytes_per_rank(1_000) == 61 * 576 * 2 * 1_000
    copied = build_deployment("DeepSeek-V3", "H200", tp=8)
    assert copied.kv_bytes(1_000) == 8 * latent.kv_bytes(1_000)
    staged = build_deployment("Llama-3.1-70B", "H100", tp=4, pp=2)
    # 40 layers of a stage, two of eight KV heads: 40 x 2 x 2 x 128 x 2 B a token
    assert staged.kv_bytes_per_rank(1_000) == 40 * 2 * 2 * 128 * 2 * 1_000
    assert staged.kv_ranks == 8
    # so eight host links load at once, as for TP8
    whole = build_deployment("Llama-3.1-70B", "H100", tp=8)
    assert staged.path("dram_pcie").bytes_per_s == whole.path("dram_pcie").bytes_per_s


def test_dispatch_and_combine_reach_the_ranks_that_hold_a_tokens_experts() -> None:
    llm = load_llm("DeepSeek-V3")
    row = 7_168 * (1 + 2)  # dispatched in 8 bits, combined in 16
    near, far = alltoall_bytes(llm, Layout(dp=8, ep=8), weight_dtype="fp8", gpus_per_node=8)
    # eight draws over eight ranks reach 8 (1 - (7/8)^8) = 5.251 of them, 7/8 of these others
    assert near == pytest.approx(row * 8 * (1 - (7 / 8) ** 8) * 7 / 8)
    assert far == 0
    _, two = alltoall_bytes(llm, Layout(dp=16, ep=16), weight_dtype="bf16", gpus_per_node=8)
    # one copy to the other node unless all eight experts are in this one
    assert two == pytest.approx(7_168 * 4 * (1 - 0.5**8))
    assert alltoall_bytes(llm, Layout(tp=8), weight_dtype="fp8", gpus_per_node=8) == (0, 0)


def test_groups_dispatch_instead_of_reducing() -> None:
    llm, hardware, table = load_llm("DeepSeek-V3"), load_hardware("H200"), efficiency_table()
    one = build_exchange(
        llm, hardware, Layout(dp=8, ep=8), weight_dtype="fp8", table=table
    )  # no tensor parallelism: nothing is reduced
    assert (one.allreduces, one.alltoalls, one.handovers) == (0, 2 * 58, 0)
    near, _ = alltoall_bytes(llm, Layout(dp=8, ep=8), weight_dtype="fp8", gpus_per_node=8)
    rate = 450e9 * SHARED["alltoall_scaleup"].value
    assert one.token_s == pytest.approx(58 * near / rate)
    both = build_exchange(llm, hardware, Layout(tp=2, dp=4, ep=8), weight_dtype="fp8", table=table)
    # after attention in all 61 layers, after the feed-forward in the three dense ones
    assert (both.allreduces, both.alltoalls) == (61 + 3, 2 * 58)


def test_between_nodes_the_port_is_what_limits_experts() -> None:
    llm, hardware, table = load_llm("DeepSeek-V3"), load_hardware("H200"), efficiency_table()
    layout = Layout(dp=32, ep=32)
    exchange = build_exchange(llm, hardware, layout, weight_dtype="fp8", table=table)
    _, far = alltoall_bytes(llm, layout, weight_dtype="fp8", gpus_per_node=8)
    # four nodes, one 400G port a GPU
    assert far == pytest.approx(7_168 * 3 * 3 * (1 - 0.75**8))
    rate = 50e9 * SHARED["alltoall_network"].value
    assert exchange.token_s == pytest.approx(58 * far / rate)


def test_stages_hand_activations_on() -> None:
    deployment = build_deployment("Llama-3.1-405B", "H100", tp=8, pp=2)
    assert deployment.handover_bytes(1_000) == 1_000 * 16_384 * 2
    one = build_deployment("Llama-3.1-405B", "H100", tp=8)
    added = deployment.own_prefill.traffic_token_s - one.own_prefill.traffic_token_s
    # two nodes: each rank hands its eighth over a 400G port of 45 GB/s
    assert stage_bytes_per_s(deployment.hardware, deployment.layout) == 45e9
    assert added == pytest.approx(16_384 * 2 / (8 * 45e9))
    assert stage_bytes_per_s(one.hardware, Layout(tp=4, pp=2)) == 450e9
    assert one.handover_bytes(1_000) == 0


def test_groups_touch_experts_together() -> None:
    alone = build_deployment("DeepSeek-V3", "H200", tp=8).own_decode.experts
    groups = build_deployment("DeepSeek-V3", "H200", tp=1, dp=8).own_decode.experts
    # one token of each of eight groups touches what eight tokens do, read by the same eight ranks
    assert groups.read_s(1) == pytest.approx(alone.read_s(8))
    assert groups.read_s(100) == pytest.approx(alone.read_s(800))


def test_one_prefill_keeps_the_ranks_of_one_stage_busy() -> None:
    staged = build_deployment("Llama-3.1-70B", "H100", tp=4, pp=2)
    ledger = build_ledger(staged, tokens=2_000, cached_tokens=1_900)
    assert ledger.gpu_seconds_freed == pytest.approx(4 * ledger.recompute_s)


def test_the_front_of_the_engine_grows_with_the_prompt() -> None:
    deployment = build_deployment("Llama-3.1-8B", "H100", tp=1)
    fixed, each = SHARED["frontend_s"].value, SHARED["frontend_token_s"].value
    assert deployment.front_s(0) == fixed
    assert deployment.front_s(10_000) == pytest.approx(fixed + 10_000 * each)
    slower = replace(SHARED["frontend_s"], value=1.0, low=None, high=None)
    table = replace(efficiency_table(), shared={**SHARED, "frontend_s": slower})
    assert replace(deployment, efficiencies=table).front_s(0) == 1.0


def test_the_ledger_states_the_layout() -> None:
    settings = resolve_settings({"llm": "Llama-3.1-405B", "hardware": "H100", "tp": 8})
    outcome = api.ledger(tokens=8_000, cached=7_000, pp=2, paths=["dram_pcie"], settings=settings)
    text = "\n".join(outcome.lines(200))
    # 811.7 GB over 16 ranks; 63 layers x 2 x 128 x 2 B x 7 000 tokens; 1 000 x 16 384 x 2 B
    assert "TP8 · PP2: a rank holds 50.73 GB of weights and 225.8 MB of this KV" in text
    assert "each stage hands 32.77 MB of 1,000 new tokens to the next" in text
    assert '"layout": {' in outcome.to_json()
