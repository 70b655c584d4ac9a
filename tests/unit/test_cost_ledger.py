"""The ledger with stores, intervals and lengths, against figures worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvtrace import api
from kvtrace.cli.app import app
from kvtrace.cost import (
    LEDGER_PATHS,
    Deployment,
    build_deployment,
    build_ledger,
    find_path,
    ledger_intervals,
    load_hardware,
)
from kvtrace.cost.evidence import Constant
from kvtrace.cost.interval import figure_intervals, with_constant
from kvtrace.cost.ledger_range import ranged_constants
from kvtrace.cost.prefill import PrefillModel
from kvtrace.cost.tier_paths import path_title, write_path
from kvtrace.cost.transfer import Hop, HopLink, MovePath
from kvtrace.cost.ways import (
    WAYS,
    break_even_rate,
    break_even_tokens,
    build_hit,
    stall_layerwise_s,
    stall_s,
    way_ledger,
)
from kvtrace.errors import UsageError


@pytest.fixture(scope="module")
def llama() -> Deployment:
    return build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)


def test_local_drives_are_read_side_by_side_and_land_in_host_memory(llama: Deployment) -> None:
    path = find_path(llama, "local_nvme")
    pull, load = path.stages
    # 8 drives of 7 GB/s, 80 us to the first byte; the load is that of host DRAM
    assert pull.links[0].bytes_per_s == 8 * 7e9
    assert pull.latency_s == pytest.approx(80e-6)
    assert [link.link_id for link in pull.links] == ["nvme_gen4_x4", "host_dram_write"]
    assert load == llama.path("dram_pcie").stages[0]
    assert path.lookup_s == llama.hardware.dram_lookup_s.value
    assert path.stage_times(56e9)["pull"] == pytest.approx(1.00008)


def test_small_instances_share_the_drives_of_their_node() -> None:
    small = build_deployment("Llama-3.1-8B", "H100-SXM5", tp=1)
    link = find_path(small, "local_nvme").stages[0].links[0]
    assert (link.bytes_per_s, link.shared_by) == (8 * 7e9, 8.0)


def test_an_instance_over_two_nodes_reads_the_drives_of_both() -> None:
    wide = build_deployment("DeepSeek-V3", "H100-SXM5", tp=16)
    link = find_path(wide, "local_nvme").stages[0].links[0]
    assert (link.bytes_per_s, link.shared_by) == (2 * 8 * 7e9, 1.0)


def test_flash_of_a_pool_crosses_the_network(llama: Deployment) -> None:
    pull = find_path(llama, "pool_ssd").stages[0]
    assert [link.link_id for link in pull.links] == ["pool_nvme", "nic_rdma", "host_dram_write"]
    assert pull.bytes_per_s == 8 * 7e9
    bounce = llama.path("pool_rdma_bounce").stages[0]
    assert pull.latency_s == pytest.approx(bounce.latency_s + 80e-6)


def test_a_store_is_found_by_its_name_or_a_plain_word(llama: Deployment) -> None:
    named = find_path(llama, "object_store_coreweave_aios_per_8_gpu_node")
    assert named.stages == find_path(llama, "object_store").stages
    assert named.stages[0].links[0].bytes_per_s == 9.2e9
    assert find_path(llama, "NFS over 100G TCP").lookup_s == llama.hardware.pool_lookup_s.value
    drive = find_path(llama, "nvme_gen5_x4").stages[0].links[0]
    assert drive.bytes_per_s == 8 * 13.5e9
    socket = find_path(llama, "dram_ddr5_4800_8ch_1_socket").stages[0].links[0]
    assert socket.bytes_per_s == 2 * 240e9
    for path in LEDGER_PATHS:
        assert path_title(llama, path)


def test_a_bare_rate_is_a_link_without_fixed_seconds(llama: Deployment) -> None:
    assert find_path(llama, "20GB/s").move_s(20e9) == 1.0
    assert find_path(llama, "4x20GB/s").move_s(20e9) == 0.25
    assert find_path(llama, "400Gb/s").bytes_per_s == 50e9
    with pytest.raises(UsageError, match="no clear unit"):
        find_path(llama, "20GB")
    with pytest.raises(UsageError) as caught:
        find_path(llama, "pool_rmda_direct")
    assert "pool_rdma_direct" in (caught.value.cause or "")


def test_layers_hide_the_move_behind_the_prefill() -> None:
    # 4 layers of 1 s each load and 2 s each compute: the first load shows, nothing else
    assert stall_layerwise_s(lookup_s=0.5, transfer_s=4, prefill_s=8, layers=4) == 1.5
    # loads of 2 s against 1 s of compute: the first, and one more second a layer
    assert stall_layerwise_s(lookup_s=0.5, transfer_s=8, prefill_s=4, layers=4) == 0.5 + 2 + 3
    assert stall_layerwise_s(lookup_s=0.0, transfer_s=3, prefill_s=0, layers=3) == 3


def test_gpus_that_wait_for_a_move_lose_its_seconds(llama: Deployment) -> None:
    ledger = build_ledger(llama, tokens=2_000, cached_tokens=1_900)
    for path in ledger.paths:
        freed = 8 * (ledger.recompute_s - path.move_s)
        assert path.gpu_seconds_freed_sync == pytest.approx(freed)


def test_a_hit_before_the_first_checkpoint_moves_nothing() -> None:
    hybrid = build_deployment("Qwen3-Next-80B-A3B", "H100", tp=4)
    ledger = build_ledger(hybrid, tokens=900, cached_tokens=800)
    assert (ledger.reusable_tokens, ledger.kv_bytes, ledger.recompute_s) == (0, 0, 0.0)
    assert {path.verdict for path in ledger.paths} == {"nothing_to_move"}
    assert {path.break_even_bytes_per_s for path in ledger.paths} == {None}
    after = build_ledger(hybrid, tokens=1_500, cached_tokens=1_400)
    assert after.reusable_tokens == 1_056
    # 12 layers x 2 048 bytes a token, two KV heads over four ranks: twice; and the state
    assert after.kv_bytes == 1_056 * 12 * 2_048 * 2 + 77_266_944
    new = hybrid.prefill.prefill_s(1_500.0 - 1_056.0, 1_056.0)
    assert after.recompute_s == hybrid.prefill.prefill_s(1_500.0, 0.0) - new


def test_blocks_round_the_move_up(llama: Deployment) -> None:
    ledger = build_ledger(llama, tokens=2_000, cached_tokens=1_900, block_size_tokens=256)
    assert ledger.kv_bytes == 2_048 * 327_680


def _rate(value: float, low: float | None, high: float | None, id: str) -> Constant:
    return Constant(id, id, value, "B/s", low, high, "assumed", "test", "2026")


def test_constants_that_err_independently_add_in_quadrature(llama: Deployment) -> None:
    # f = a - b at (10, 4): a moves it by +3 and -2, b by +2 (its low) and -4 (its high)
    a, b = _rate(10, 8, 13, "moves.a"), _rate(4, 2, 8, "moves.b")
    hardware = replace(llama.hardware, chunk_bytes=a, handover_s=b)
    deployment = replace(llama, hardware=hardware)
    span = figure_intervals(
        deployment,
        lambda d: {"f": d.hardware.chunk_bytes.value - d.hardware.handover_s.value},
        (a, b),
    )["f"]
    assert span.value == 6
    assert span.low == pytest.approx(6 - math.sqrt(2**2 + 4**2))
    assert span.high == pytest.approx(6 + math.sqrt(3**2 + 2**2))
    assert span.excludes_zero


def test_a_constant_is_moved_wherever_it_stands(llama: Deployment) -> None:
    gemm = next(c for c in llama.prefill.evidence if ".gemm_" in c.id)
    slower = with_constant(llama, gemm.id, gemm.value / 2)
    before, after = llama.prefill, slower.prefill
    assert isinstance(before, PrefillModel)
    assert isinstance(after, PrefillModel)
    assert after.gemm_token_s == pytest.approx(2 * before.gemm_token_s)
    drive = with_constant(llama, "tiers.nvme_gen4_x4.read_bytes_per_s", 1e9)
    assert find_path(drive, "local_nvme").stages[0].bytes_per_s == 8e9
    assert with_constant(llama, "no.such", 1.0).hardware is llama.hardware


def test_intervals_hold_the_values_and_say_what_is_settled(llama: Deployment) -> None:
    (row,) = ledger_intervals(llama, requests=[(2_000, 1_900)], paths=LEDGER_PATHS)
    assert row.recompute_s.low < row.ledger.recompute_s < row.recompute_s.high
    for path in row.ledger.paths:
        spans = row.paths[path.path_id]
        assert spans.move_s.low <= path.move_s <= spans.move_s.high
        assert spans.ttft_change_s.low <= path.ttft_change_s <= spans.ttft_change_s.high
        low, high = spans.break_even_low_bytes_per_s, spans.break_even_high_bytes_per_s
        assert low is not None
        assert high is not None
        assert path.break_even_bytes_per_s is not None
        assert low <= path.break_even_bytes_per_s <= high
        agrees = spans.ttft_change_s.high < 0 or spans.ttft_change_s.low > 0
        assert spans.is_settled == agrees
    assert row.paths["dram_pcie"].is_settled


def test_a_constant_without_an_interval_leaves_no_doubt(llama: Deployment) -> None:
    ids = {constant.id for constant in ranged_constants(llama, ("20GB/s",))}
    assert "hosts.hgx_hopper.dram_bytes" not in ids
    (row,) = ledger_intervals(llama, requests=[(2_001, 2_000)], paths=("20GB/s",))
    spans = row.paths["20GB/s"]
    assert spans.move_s.low == spans.move_s.value == spans.move_s.high == 0.032768


def test_the_verb_prints_what_it_returns_as_json(tmp_path: Path) -> None:
    outcome = api.ledger(tokens=2_000, cached=1_900, paths=("dram_pcie", "1GB/s"), lengths=(4_000,))
    document = json.loads(outcome.to_json())
    assert (document["llm"], document["tp"]) == ("Meta-Llama-3.1-70B", 8)
    request = document["request"]
    assert request["kv_bytes"] == 1_900 * 327_680
    for path in request["paths"]:
        serial, *_, split = path["ways"]
        assert serial["stall_s"] == path["move_s"]
        assert split["split"]["computed_tokens"] + split["split"]["loaded_tokens"] == 1_900
        assert split["stall_s"]["low"] <= split["stall_s"]["value"] <= split["stall_s"]["high"]
        assert path["stall_s"] == path["move_s"]["value"]
        stages = path["lookup_s"] + path["pull_s"] + path["load_s"]
        assert path["move_s"]["value"] == pytest.approx(stages)
        per_gpu = path["break_even_bytes_per_s"]["value"] / 8
        assert path["break_even_bytes_per_s_per_gpu"] == per_gpu
    (row,) = document["table"]
    assert (row["tokens"], row["cached_tokens"]) == (4_000, 3_800)
    assert document["constants"]
    assert document["note"] is None


def test_the_verb_notes_weights_that_do_not_fit_and_refuses_lengths_without_a_hit() -> None:
    from kvtrace.config import resolve_settings

    settings = resolve_settings({"llm": "Llama-3.1-70B", "hardware": "A100", "tp": 1})
    outcome = api.ledger(settings=settings, paths=("20GB/s",))
    assert "does not fit on 1 x A100-SXM4-80GB" in (outcome.note or "")
    assert any(line.startswith("note: ") for line in outcome.lines(100))
    for lengths in ((1,), (0,)):
        with pytest.raises(UsageError, match="no request with a hit"):
            api.ledger(settings=settings, lengths=lengths)
    with pytest.raises(UsageError, match="block-size"):
        api.ledger(settings=settings, block_size=0)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_verbs_keep_within_the_terminal(width: int, tmp_path: Path) -> None:
    ours = tmp_path / "ours.toml"
    ours.write_text('gpu = "H100"\ngpu_usd_per_hour = 2.5')
    printed = [
        *api.ledger(lengths=(512, 131_072)).lines(width),
        *api.llm().lines(width),
        *api.llm("DeepSeek-V3.2", tp=8, pp=2, block_size=64).lines(width),
        *api.llm("Kimi-K3", tp=8, dp_attention=True).lines(width),
        *api.hardware().lines(width),
        *api.hardware("GB200").lines(width),
        *api.hardware("prices").lines(width),
        *api.hardware(file=str(ours)).lines(width),
    ]
    longest = max((line for text in printed for line in text.splitlines()), key=len)
    assert len(longest) <= width, longest


def test_a_users_price_reaches_the_sheet(tmp_path: Path) -> None:
    ours = tmp_path / "ours.toml"
    ours.write_text('gpu = "H100"\ngpu_usd_per_hour = 2.5\n[storage.box]\nmedium = "nfs"\n'
                    'read = "2GB/s"\nfirst_byte = "1ms"')  # fmt: skip
    document = json.loads(api.hardware(str(ours)).to_json())
    price = next(c for c in document["constants"] if c["section"] == "price")
    assert (price["value"], price["kind"]) == (2.5, "given")
    box = json.loads(api.hardware("box", file=str(ours)).to_json())
    assert (box["medium"], box["constants"][0]["value"]) == ("nfs", 2e9)
    assert load_hardware(str(ours)).tier("box").rate_per == "client"
    with pytest.raises(UsageError) as caught:
        api.hardware("H10O")
    assert "H100-SXM5" in (caught.value.cause or "")


def test_the_sheet_of_an_llm_is_exact_as_json() -> None:
    document = json.loads(api.llm("Meta-Llama-3.1-70B", tp=16, pp=2, kv_dtype="fp8").to_json())
    row = document["lengths"][0]
    # 8 KV heads over 16 ranks: two copies; 40 of 80 layers and one head a rank
    assert row["tokens"] == 1_024
    assert row["kv_bytes_all_ranks"] == 1_024 * 163_840 * 2
    assert row["kv_bytes_fullest_rank"] == 1_024 * 40 * 2 * 128
    assert row["prefill_flops"] == 2 * 68.45e9 * 1_024 + 2_621_440 * 1_024**2 / 2
    assert document["groups"][0]["copies"] == 2
    unknown = json.loads(api.llm("DeepSeek-V4-Pro").to_json())
    assert unknown["lengths"][0]["prefill_flops"] is None
    assert len(json.loads(api.llm().to_json())["llms"]) == 60


def _two_stages(pull_s: float, load_s: float) -> MovePath:
    """Seconds a GB of each stage; 1 s of lookup, none of latency."""
    pull = Hop("pull", (HopLink("nic", 1e9 / pull_s, 1.0),), 0.0)
    load = Hop("load", (HopLink("pcie", 1e9 / load_s, 1.0),), 0.0)
    return MovePath("pool_tcp", "read", 1.0, (pull, load), ())


def test_chunks_hide_the_faster_stage_behind_the_slower_one() -> None:
    path = _two_stages(4.0, 2.0)
    assert path.move_s(1e9) == 7.0
    # four chunks of 1 s and 0.5 s: the slower stage, and one chunk of the faster: 1 + 4 + 0.5
    assert path.pipelined_s(1e9, chunks=4) == 5.5
    assert path.pipelined_s(1e9, chunks=1) == path.pipelined_s(1e9, chunks=0.5) == 7.0
    assert path.scaled(2.0).move_s(1e9) == 4.0


def test_each_way_of_a_hit_has_its_stall_and_its_price(llama: Deployment) -> None:
    path = llama.path("pool_tcp")
    ledger = build_ledger(llama, tokens=2_000, cached_tokens=1_900, paths=[path])
    (row,) = ledger.paths
    serial, chunks, layers, split = row.ways
    assert (serial.stall_s, serial.ttft_change_s) == (row.move_s, row.ttft_change_s)
    assert serial.break_even_tokens == row.break_even_tokens
    assert serial.break_even_bytes_per_s == pytest.approx(row.break_even_bytes_per_s)
    # 1 900 tokens are 7.42 chunks of 256: all of the pull, and a chunk of the load
    pull_s, load_s = (622_592_000 / hop.bytes_per_s for hop in path.stages)
    chunk_s = load_s * 256 / 1_900
    assert chunks.stall_s == pytest.approx(path.fixed_s + pull_s + chunk_s)
    assert layers.stall_s < chunks.stall_s
    # over TCP it takes longer to load than to compute: a head is computed, and frees no GPU
    assert split.split is not None
    head, tail = split.split.computed_tokens, split.split.loaded_tokens
    assert head + tail == 1_900
    assert split.split.compute_s == llama.prefill.prefill_s(float(head), 0.0)
    assert split.split.load_s == pytest.approx(path.move_s(tail * 327_680) - path.lookup_s)
    assert split.stall_s == path.lookup_s + max(split.split.compute_s, split.split.load_s)
    assert split.stall_s < min(serial.stall_s, ledger.recompute_s)
    freed = 8 * (ledger.recompute_s - split.split.compute_s)
    assert split.gpu_seconds_freed == pytest.approx(freed)


def test_at_its_break_even_a_way_takes_as_long_as_recomputing(llama: Deployment) -> None:
    path = llama.path("pool_tcp")
    hit = build_hit(llama, tokens=2_000, cached_tokens=1_900)
    for way in WAYS:
        rate = break_even_rate(hit, path, way)
        assert rate is not None
        at = path.scaled(rate / path.bytes_per_s)
        assert stall_s(hit, at, way) == pytest.approx(hit.recompute_s, rel=1e-6)
        least = break_even_tokens(llama, path, new_tokens=100, way=way)
        assert least is not None
        for cached, wins in ((least, True), (least - 1, False)):
            nearby = build_hit(llama, tokens=100 + cached, cached_tokens=cached)
            assert (stall_s(nearby, path, way) < nearby.recompute_s) == wins


def test_where_fixed_seconds_exceed_recomputing_no_rate_is_enough(llama: Deployment) -> None:
    hit = build_hit(llama, tokens=2_000, cached_tokens=1_900)
    far = MovePath("pool_tcp", "read", 10.0, _two_stages(1.0, 1.0).stages, ())
    assert {way: break_even_rate(hit, far, way) for way in WAYS} == dict.fromkeys(WAYS)


def test_a_tail_brings_its_window_and_the_whole_state() -> None:
    hybrid = build_deployment("Qwen3-Next-80B-A3B", "H100", tp=4)
    hit = build_hit(hybrid, tokens=1_500, cached_tokens=1_400)
    # 12 layers x 2 048 bytes a token, two KV heads over four ranks: twice; and the state
    assert hit.tail_bytes(56) == 56 * 12 * 2_048 * 2 + 77_266_944
    gemma = build_deployment("Gemma-2-27B", "H100", tp=2)
    whole = build_hit(gemma, tokens=10_001, cached_tokens=10_000)
    # beyond the window of 4 096 only the 23 full layers of 8 192 bytes grow
    assert whole.kv_bytes - whole.tail_bytes(9_000) == 1_000 * 23 * 8_192


def test_a_write_crosses_the_links_the_other_way_without_a_lookup(llama: Deployment) -> None:
    path = write_path(llama, "local_nvme")
    assert path is not None
    load, pull = path.stages
    # 8 drives that take 4 GB/s each; out of host DRAM again, whose reads bound the drives
    assert (load.kind, pull.kind, path.lookup_s) == ("load", "pull", 0.0)
    assert pull.links[0].bytes_per_s == 8 * 4e9
    assert [link.link_id for link in pull.links] == ["nvme_gen4_x4", "host_dram_read"]
    assert load.links[1].link_id == "host_dram_write"
    assert find_path(llama, "20GB/s", direction="write").move_s(20e9) == 1.0
    flash = find_path(llama, "pool_ssd", direction="write").stages[1]
    assert [link.link_id for link in flash.links] == ["pool_nvme", "nic_rdma", "host_dram_read"]


def test_the_write_of_a_store_that_nobody_measured_is_unknown(llama: Deployment) -> None:
    assert write_path(llama, "object_store") is None
    names = ("dram_pcie", "object_store")
    (row,) = ledger_intervals(llama, requests=[(2_000, 1_900)], paths=names)
    written = {path.path_id: path.write_s for path in row.ledger.paths}
    dram = llama.path("dram_pcie", direction="write")
    assert written == {"dram_pcie": dram.move_s(622_592_000), "object_store": None}
    assert row.paths["object_store"].write_s is None
    span = row.paths["dram_pcie"].write_s
    assert span is not None
    assert span.low < span.value < span.high


@pytest.mark.parametrize(
    ("tp", "fits"), [(1, True), (3, False), (4, True), (6, False), (16, True), (24, True)]
)
def test_ranks_get_the_same_number_of_whole_kv_heads(tp: int, fits: bool) -> None:
    # 8 KV heads: 2 a rank over four, copies over 16 and 24; 3 and 6 ranks would get unlike shares
    if fits:
        assert build_deployment("Llama-3.1-70B", "H100", tp=tp).tp == tp
        return
    for refused in (
        lambda: build_deployment("Llama-3.1-70B", "H100", tp=tp),
        lambda: api.llm("Llama-3.1-70B", tp=tp),
    ):
        with pytest.raises(UsageError) as caught:
            refused()
        assert caught.value.code == "KVT-C066"
        assert "1, 2, 4, 8, 16" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "code", "hint"),
    [
        ({"kv_dtype": "fp8_ds_mla"}, "KVT-C069", "--kv-dtype fp8"),
        ({"pp": 81}, "KVT-C068", "at most 80"),
    ],
)
def test_kv_layouts_and_stages_that_the_llm_lacks_are_refused(
    asked: dict[str, Any], code: str, hint: str
) -> None:
    # Llama-3.1-70B: GQA without a latent, 80 layers
    for refused in (
        lambda: build_deployment("Llama-3.1-70B", "H100", tp=4, **asked),
        lambda: api.llm("Llama-3.1-70B", **asked),
    ):
        with pytest.raises(UsageError) as caught:
            refused()
        assert caught.value.code == code
        assert hint in (caught.value.hint or "")


def test_paths_and_requests_that_are_none_are_refused_with_something_to_paste(
    llama: Deployment,
) -> None:
    with pytest.raises(UsageError, match="nothing moves at `0GB/s`"):
        find_path(llama, "0GB/s")
    with pytest.raises(UsageError, match="no clear unit"):
        find_path(llama, "20G")
    with pytest.raises(UsageError) as caught:
        build_ledger(llama, tokens=1, cached_tokens=1)
    assert caught.value.hint == "`--tokens 2000`"
    with pytest.raises(UsageError) as caught:
        build_ledger(llama, tokens=10, cached_tokens=10)
    assert caught.value.hint == "use 1 to 9 cached tokens"


def test_the_command_reads_a_config_from_stdin_and_refuses_empty_lists() -> None:
    config = json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
    })  # fmt: skip
    words = "ledger --hardware H100 --tp 1 --path 20GB/s --json --llm -"
    done = CliRunner().invoke(app, words.split(), input=config, catch_exceptions=False)
    assert json.loads(done.stdout)["kv_bytes_per_token"] == 131_072
    for words in ("ledger --path ,", "ledger --lengths ,", "ledger --lengths 1,x"):
        with pytest.raises(UsageError):
            CliRunner().invoke(app, words.split(), catch_exceptions=False)


def test_a_long_move_may_lose_where_a_short_one_hides_behind_the_new_tokens(
    llama: Deployment,
) -> None:
    path = llama.path("pool_tcp")
    hit = build_hit(llama, tokens=2_000, cached_tokens=1_900)
    layers = way_ledger(hit, path, "layerwise")
    first, last = layers.break_even_tokens, layers.loses_again_tokens
    assert first is not None
    assert last is not None
    for cached, gains in ((first, True), (last - 1, True), (last, False), (1_900, False)):
        nearby = build_hit(llama, tokens=100 + cached, cached_tokens=cached)
        assert (stall_s(nearby, path, "layerwise") < nearby.recompute_s) == gains
    assert first < last < 1_900
    assert way_ledger(hit, path, "serial").loses_again_tokens is None
