"""KV bytes, FLOPs and names of LLM shapes, against figures worked out by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from kvtrace.cost import from_hf_config, list_llms, load_llm
from kvtrace.cost.experts import Experts
from kvtrace.cost.llm import LlmShape, attended_pairs
from kvtrace.cost.placement import KvPlacement
from kvtrace.errors import ModelError, UsageError

LLAMA_8B: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN3_30B_A3B: dict[str, object] = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "use_sliding_window": False,
    "sliding_window": None,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3: dict[str, object] = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "fp8"},
}


def test_llama_70b_stores_320_kib_per_token() -> None:
    llm = load_llm("Llama-3.1-70B")
    # 80 layers x (K, V) x 8 heads x 128 x 2 bytes
    assert llm.kv_bytes_per_token() == 80 * 2 * 8 * 128 * 2 == 327_680
    assert llm.kv_bytes(2_000) == 655_360_000
    assert llm.kv_bytes_per_token("fp8") == 163_840


def test_gqa_is_copied_only_past_its_kv_heads() -> None:
    llm = load_llm("Llama-3.1-70B")
    assert llm.kv_bytes_per_token(tp=8) == 327_680
    assert llm.kv_bytes_per_token(tp=16) == 2 * 327_680
    # Qwen3-235B-A22B has 4 KV heads: TP8 keeps each twice
    assert load_llm("Qwen3-235B-A22B").kv_bytes_per_token(tp=8) == 2 * 192_512


def test_mla_is_copied_on_every_rank() -> None:
    llm = load_llm("DeepSeek-V3")
    # 61 layers x (512 + 64) x 2 bytes
    assert llm.kv_bytes_per_token() == 61 * 576 * 2 == 70_272
    assert llm.kv_bytes_per_token(tp=8) == 8 * 70_272
    # 512 fp8 + 4 fp32 scales + 64 bf16 = 656 bytes a layer
    assert llm.kv_bytes_per_token("fp8_ds_mla") == 61 * 656


def test_blocks_round_the_tokens_up() -> None:
    llm = load_llm("Llama-3.1-70B")
    assert llm.kv_bytes(1, block_size_tokens=512) == 512 * 327_680
    assert llm.kv_bytes(512, block_size_tokens=512) == 512 * 327_680
    assert llm.kv_bytes(513, block_size_tokens=512) == 1_024 * 327_680
    assert llm.kv_bytes(0, block_size_tokens=512) == 0


def test_window_layers_stop_growing_at_their_window() -> None:
    llm = load_llm("gpt-oss-120b")
    # 18 full and 18 window layers, 2 x 8 x 64 x 2 bytes a layer and token, window 128
    assert llm.kv_bytes(100) == 100 * 2 * 36_864
    assert llm.kv_bytes(10_000) == 36_864 * (10_000 + 128)
    assert llm.kv_bytes_per_token() == 36_864


def test_recurrent_state_does_not_depend_on_the_length() -> None:
    llm = load_llm("Qwen3-Next-80B-A3B")
    assert llm.kv_bytes(1) == 24_576 + 77_266_944
    assert llm.kv_bytes(1_000) == 24_576_000 + 77_266_944
    assert llm.kv_bytes(0) == 0


def test_compressed_entries_cover_several_tokens() -> None:
    llm = load_llm("DeepSeek-V4-Pro")
    # at 2^20 tokens: 9 848 bytes a token and a window of 128 x 62 464
    assert llm.kv_bytes(1 << 20) == 9_848 * (1 << 20) + 128 * 62_464


def test_unknown_flops_are_refused_not_guessed() -> None:
    with pytest.raises(ModelError, match="FLOPs of DeepSeek-V4-Pro are not known"):
        load_llm("DeepSeek-V4-Pro").prefill_flops(1_000, 0)


def test_prefill_flops_of_a_dense_llm() -> None:
    llm = load_llm("Llama-3.1-70B")
    linear = 2 * 68.45e9 * 2_000
    # c = 2 x 64 heads x (128 + 128) x 80 layers
    pairs = 2_000 * 1_000 + 2_000**2 / 2
    assert llm.prefill_flops(2_000, 1_000) == pytest.approx(linear + 2_621_440 * pairs)


@pytest.mark.parametrize(
    ("new", "cached", "window", "pairs"),
    [
        (4, 3, None, 4 * 3 + 8.0),
        (4, 3, 100, 20.0),
        (4, 10, 5, 20.0),  # every query sees 5 keys
        (4, 3, 5, 2 * 3 + 2.0 + 5 * 2),  # two on the ramp, two at the window
    ],
)
def test_attended_pairs(new: int, cached: int, window: int | None, pairs: float) -> None:
    assert attended_pairs(new, cached, window) == pairs


@pytest.mark.parametrize(
    "name",
    [
        "Meta-Llama-3.1-70B",
        "meta-llama/Llama-3.1-70B-Instruct",
        "llama 3.1 70b",
        "LLAMA-3_1-70B",
        "/models/Llama-3.1-70B-Instruct/",
        "neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8",
        "meta-llama/Llama-3.3-70B-Instruct",
    ],
)
def test_names_match_without_case_vendor_or_punctuation(name: str) -> None:
    assert load_llm(name).name == "Meta-Llama-3.1-70B"


def test_an_unknown_name_lists_close_ones() -> None:
    with pytest.raises(UsageError) as caught:
        load_llm("lama-3.1-70")
    assert "Meta-Llama-3.1-70B" in (caught.value.cause or "")


def test_every_built_in_llm_loads_with_its_own_name() -> None:
    for name in list_llms():
        llm = load_llm(name)
        assert llm.name == name
        assert llm.source
        assert llm.kv_bytes(4_096) > 0


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA_8B, "Meta-Llama-3.1-8B"),
        (QWEN3_30B_A3B, "Qwen3-30B-A3B"),
        (DEEPSEEK_V3, "DeepSeek-V3"),
    ],
)
def test_a_config_gives_the_built_in_shape(config: dict[str, object], name: str) -> None:
    shape, built_in = from_hf_config(config), load_llm(name)
    assert shape.groups == built_in.groups
    assert shape.parameters == pytest.approx(built_in.parameters, rel=0.003)
    assert shape.active_parameters == pytest.approx(built_in.active_parameters, rel=0.01)
    assert built_in.active_nonembed_parameters is not None
    assert shape.active_nonembed_parameters == pytest.approx(
        built_in.active_nonembed_parameters, rel=0.01
    )
    assert shape.native_weight_dtype == built_in.native_weight_dtype


def test_experts_of_every_built_in_llm_add_up_to_its_parameters() -> None:
    found = [load_llm(name) for name in list_llms()]
    sparse = [llm for llm in found if llm.experts is not None]
    assert len(sparse) == 36
    for llm in found:
        assert llm.is_moe == (llm.active_parameters < 0.95 * llm.parameters), llm.name
    for llm in sparse:
        experts, active = llm.experts, llm.active_nonembed_parameters
        if experts is None or active is None:
            continue
        # what a token uses, and the experts that it leaves out
        left = experts.routed_parameters - experts.active_parameters
        assert active + left == pytest.approx(llm.nonembed_parameters, rel=0.055), llm.name
        assert experts.active_parameters < active, llm.name


def test_experts_of_a_config() -> None:
    built_in = load_llm("DeepSeek-V3").experts
    assert from_hf_config(DEEPSEEK_V3).experts == built_in
    # 61 layers, the first three dense; 8 of 256 experts 2 048 wide, and a shared one
    assert built_in == Experts(58, 256, 8, 1, 2_048, 7_168, 3)
    assert built_in.expert_parameters == 44_040_192
    assert built_in.touched(1) == 8
    # two tokens: 256 (1 - (248 / 256)^2)
    assert built_in.touched(2) == 15.75
    assert from_hf_config(LLAMA_8B).experts is None


def test_mha_and_mqa_configs() -> None:
    mha = from_hf_config({**LLAMA_8B, "num_key_value_heads": None})
    assert (mha.attention, mha.kv_bytes_per_token()) == ("mha", 32 * 2 * 32 * 128 * 2)
    falcon = {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "multi_query": True,
        "vocab_size": 65024,
    }
    mqa = from_hf_config(falcon)
    assert (mqa.attention, mqa.kv_bytes_per_token()) == ("mqa", 8_192)
    assert mqa.parameters == pytest.approx(6.92e9, rel=0.005)


def test_sliding_layers_of_a_config_become_a_window_group() -> None:
    types = ["sliding_attention", "full_attention"] * 16
    shape = from_hf_config({**LLAMA_8B, "layer_types": types, "sliding_window": 1_024})
    assert [(g.group, g.layers, g.window_tokens) for g in shape.groups] == [
        ("full", 16, None),
        ("window", 16, 1_024),
    ]


def test_a_nested_text_config_is_read() -> None:
    shape = from_hf_config({"model_type": "some_vlm", "text_config": LLAMA_8B})
    assert shape.kv_bytes_per_token() == 131_072


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"hybrid_override_pattern": "M-M*"}, "hybrid_override_pattern"),
        ({"layer_types": ["linear_attention"] * 32}, "no size of their state"),
        ({"layer_types": ["mixing"] * 32}, "`layer_types` holds mixing"),
        ({"lru_width": 2560}, "`lru_width`"),
        ({"mamba_d_state": 16}, "not which layers keep a state"),
        ({"is_encoder_decoder": True}, "cross attention"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": "many"}, "not a whole number"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window"),
    ],
)
def test_a_config_that_would_be_wrong_is_refused(change: dict[str, object], cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_hf_config({**LLAMA_8B, **change})
    assert cause in (caught.value.cause or "")


def test_a_config_file_and_its_folder_load(tmp_path: Path) -> None:
    folder = tmp_path / "my-llm"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    for path in (folder, folder / "config.json"):
        shape = load_llm(str(path))
        assert (shape.name, shape.kv_bytes_per_token()) == ("my-llm", 131_072)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_file_that_is_not_a_config_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UsageError):
        load_llm(str(path))


def test_an_absent_config_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        load_llm(str(tmp_path / "absent.json"))


def test_a_config_is_named_by_itself_its_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    for name, expected in (("config.json", "my-model"), ("other.json", "other")):
        path = folder / name
        path.write_text(json.dumps(LLAMA_8B))
        assert load_llm(str(path)).name == expected


def test_an_indexer_has_scales_where_the_latent_has() -> None:
    llm = load_llm("DeepSeek-V3.2")
    # 656 bytes of latent, and an index key of 128 fp8 with one fp32 scale
    assert llm.kv_bytes_per_token("fp8_ds_mla") == 61 * (656 + 132)
    assert llm.kv_bytes_per_token() == 61 * (1152 + 256)


def test_scales_of_4_bit_kv_are_counted() -> None:
    llm = load_llm("Meta-Llama-3.1-8B")
    # 65 536 elements: half a byte each, and one byte per 16 (nvfp4) or per 32 (mxfp4)
    assert llm.kv_bytes_per_token("nvfp4") == 32_768 + 4_096
    assert llm.kv_bytes_per_token("mxfp4") == 32_768 + 2_048


def test_a_hit_of_a_hybrid_ends_at_a_checkpoint() -> None:
    llm = load_llm("Qwen3-Next-80B-A3B")
    # 2 146 304 bytes of state a layer over 2 048 bytes a token: 1 048, up to a multiple of 16
    assert llm.checkpoint_tokens() == 1_056
    assert [llm.reusable_tokens(n) for n in (1_055, 1_056, 5_000)] == [0, 1_056, 4_224]
    assert llm.reusable_tokens(5_000, checkpoint_tokens=64) == 4_992
    # fp8 halves the entry: 2 096 tokens, which is a multiple of 16
    assert llm.checkpoint_tokens("fp8") == 2_096
    dense = load_llm("Meta-Llama-3.1-8B")
    assert (dense.checkpoint_tokens(), dense.reusable_tokens(1_055)) == (None, 1_055)


def test_the_fullest_rank_holds_its_stage_and_its_heads() -> None:
    llm = load_llm("Meta-Llama-3.1-405B")
    # 126 layers over 4 stages: 32 at most; 8 KV heads over 16 ranks: one each, every one twice
    place = KvPlacement(tp=16, pp=4)
    assert place.ranks == 64
    assert place.bytes_fullest_rank(llm, 1_000, kv_dtype="bf16") == 1_000 * 32 * 2 * 128 * 2
    assert place.bytes_all_ranks(llm, 1_000, kv_dtype="bf16") == 1_000 * 126 * 2 * 8 * 128 * 2 * 2
    assert place.bytes_fullest_rank(llm, 0, kv_dtype="bf16") == 0


def test_data_parallel_attention_keeps_one_copy() -> None:
    llm = load_llm("DeepSeek-V3")
    shared, parted = KvPlacement(tp=8), KvPlacement(tp=8, has_dp_attention=True)
    assert shared.bytes_all_ranks(llm, 10, kv_dtype="bf16") == 8 * 10 * 70_272
    assert parted.bytes_all_ranks(llm, 10, kv_dtype="bf16") == 10 * 70_272
    for place in (shared, parted):
        assert place.bytes_fullest_rank(llm, 10, kv_dtype="bf16") == 10 * 70_272
    whole = shared.bytes_fullest_rank(llm, 10, kv_dtype="bf16", block_size_tokens=64)
    assert whole == 64 * 70_272
    with pytest.raises(UsageError, match="--pp 0"):
        KvPlacement(pp=0)


def _facts(shared_dir: Path) -> list[dict[str, str]]:
    with (shared_dir / "facts" / "models.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _pair_flops(llm: LlmShape, *names: str) -> float:
    return sum(group.pair_flops or 0.0 for group in llm.groups if group.group in names)


@pytest.mark.shared
def test_every_published_shape_is_built_in_with_its_figures(shared_dir: Path) -> None:
    rows = _facts(shared_dir)
    assert len(rows) == len(list_llms())
    for row in rows:
        llm = load_llm(row["model"])
        windowed = float(row["kv_bytes_per_token_window_bf16"])
        window = int(row["window_tokens"] or 0)
        long_tokens, per_token = 1 << 20, int(row["kv_bytes_per_token_long_ctx_bf16"])
        kept, state = windowed * window, int(row["state_bytes_per_seq"])
        assert llm.kv_bytes(long_tokens) == long_tokens * per_token + kept + state, llm.name
        short = float(row["kv_kib_per_token_short_ctx_bf16"]) * 1024
        assert llm.kv_bytes(128) == pytest.approx(128 * short + state, rel=5e-4), llm.name
        assert llm.state_bytes == state
        assert llm.recurrent_layers == int(row["n_recurrent_layers"])
        assert llm.layers == int(row["n_layers"])
        assert llm.hidden == int(row["hidden"])
        assert llm.vocab == int(row["vocab"])
        assert llm.parameters == pytest.approx(float(row["params_total_b"]) * 1e9)
        assert llm.active_parameters == pytest.approx(float(row["params_active_b"]) * 1e9)
        assert max(g.kv_shards for g in llm.groups if g.group != "window") == int(
            row["kv_shards_max"]
        )
        if row["params_active_nonembed_b"]:
            nonembed = float(row["params_active_nonembed_b"]) * 1e9
            assert llm.active_nonembed_parameters == pytest.approx(nonembed)
            assert _pair_flops(llm, "full", "latent") == float(row["attn_flops_coef_full"])
            assert _pair_flops(llm, "window") == float(row["attn_flops_coef_window"] or 0)
        else:
            assert not llm.knows_flops
