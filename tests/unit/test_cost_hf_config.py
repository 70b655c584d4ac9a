"""Shapes of every kind of architecture from a config.json, each written by hand."""

from __future__ import annotations

import pytest

from kvtrace.cost import build_deployment, from_hf_config, load_llm
from kvtrace.cost.hf.config import from_hf_text
from kvtrace.cost.kv_group import KvGroup
from kvtrace.errors import UsageError

Config = dict[str, object]
PLAIN: Config = {
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 100,
}
"""A small GQA model: an entry is 2 heads x (16 + 16) = 64 elements."""

GPT_OSS: Config = {
    "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "intermediate_size": 2880, "num_local_experts": 32, "experts_per_token": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 12, "sliding_window": 128,
    "vocab_size": 201088, "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
GEMMA_2: Config = {
    "model_type": "gemma2", "hidden_size": 4608, "num_hidden_layers": 46,
    "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
    "intermediate_size": 36864, "sliding_window": 4096, "vocab_size": 256128,
}  # fmt: skip
GEMMA_3: Config = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
        "intermediate_size": 21504, "sliding_window": 1024, "sliding_window_pattern": 6,
        "vocab_size": 262208,
    },
}  # fmt: skip
GEMMA_4: Config = {
    "model_type": "gemma4_text", "hidden_size": 5376, "num_hidden_layers": 60,
    "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256,
    "num_global_key_value_heads": 4, "global_head_dim": 512, "attention_k_eq_v": True,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
    "sliding_window": 1024, "intermediate_size": 21504, "vocab_size": 262144,
}  # fmt: skip
LLAMA_4: Config = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48,
        "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "attention_chunk_size": 8192, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
        "vocab_size": 202048, "tie_word_embeddings": False,
    },
}  # fmt: skip
STEP: Config = {
    "model_type": "step3p7", "hidden_size": 4096, "num_hidden_layers": 45,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 11 + ["full_attention"],
    "sliding_window": 512, "intermediate_size": 11264, "moe_intermediate_size": 1280,
    "num_experts": 288, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "share_expert_dim": 1280, "vocab_size": 128896,
}  # fmt: skip
MIMO_V2: Config = {
    "model_type": "mimo_v2_flash", "hidden_size": 4096, "num_hidden_layers": 48,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128,
    "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192,
    "swa_v_head_dim": 128, "sliding_window": 128, "attention_chunk_size": 128,
    "hybrid_layer_pattern": [0, 1, 1, 1, 1] + [0, 1, 1, 1, 1, 1] * 7 + [0],
    "intermediate_size": 16384, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "moe_layer_freq": [0] + [1] * 47, "vocab_size": 152576,
}  # fmt: skip
GLM_5_2: Config = {
    "model_type": "glm_moe_dsa", "hidden_size": 6144, "num_hidden_layers": 78,
    "num_attention_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 2048,
    "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256, "index_topk": 2048,
    "index_head_dim": 128, "index_n_heads": 32,
    "indexer_types": ["full"] * 3 + (["shared"] * 3 + ["full"]) * 18 + ["shared"] * 3,
    "intermediate_size": 12288, "moe_intermediate_size": 2048, "n_routed_experts": 256,
    "n_shared_experts": 1, "num_experts_per_tok": 8,
    "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75, "vocab_size": 154880,
}  # fmt: skip
MISTRAL_4: Config = {
    "model_type": "mistral4", "hidden_size": 4096, "num_hidden_layers": 36,
    "num_attention_heads": 32, "kv_lora_rank": 256, "q_lora_rank": 1024, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 12288, "vocab_size": 131072,
}  # fmt: skip
NEXT_80B: Config = {
    "model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 48,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 512,
    "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512, "vocab_size": 151936,
}  # fmt: skip
QWEN_35: Config = {
    "model_type": "qwen3_5_moe",
    "text_config": {
        "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 256, "attn_output_gate": True,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 10,
        "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32",
        "moe_intermediate_size": 512, "num_experts": 256, "num_experts_per_tok": 8,
        "shared_expert_intermediate_size": 512, "vocab_size": 248320,
    },
}  # fmt: skip
NEMOTRON_H: Config = {
    "model_type": "nemotron_h", "hidden_size": 8192, "num_hidden_layers": 118,
    "num_attention_heads": 64, "num_key_value_heads": 8, "attention_head_dim": 128,
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
    "mamba_num_heads": 256, "mamba_head_dim": 64, "ssm_state_size": 256, "n_groups": 8,
    "conv_kernel": 4, "intermediate_size": 32768, "vocab_size": 131072,
}  # fmt: skip
ULTRA: Config = {
    "model_type": "nemotron_h", "hidden_size": 8192, "num_attention_heads": 64,
    "num_key_value_heads": 2, "head_dim": 128,
    "layers_block_type": ["mamba", "moe"] * 48 + ["attention"] * 12,
    "mamba_num_heads": 256, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
    "conv_kernel": 4, "mamba_ssm_cache_dtype": "float32", "intermediate_size": 5120,
    "moe_intermediate_size": 5120, "moe_latent_size": 2048, "n_routed_experts": 512,
    "num_experts_per_tok": 22, "moe_shared_expert_intermediate_size": 10240, "vocab_size": 131072,
}  # fmt: skip
JAMBA: Config = {
    "model_type": "jamba", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "attn_layer_period": 8,
    "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_dt_rank": 256, "intermediate_size": 14336, "num_experts": 16,
    "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
    "vocab_size": 65536,
}  # fmt: skip
NEMOTRON_NAS: Config = {
    "model_type": "nemotron-nas", "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": None, "intermediate_size": None,
    "block_configs": [
        {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 5.25}}
    ] * 49 + [
        {"attention": {"n_heads_in_group": None, "no_op": True}, "ffn": {"ffn_mult": 2.625}}
    ] * 31,
    "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
V4_FLASH: Config = {
    "model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": 43,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "q_lora_rank": 1024,
    "o_groups": 8, "o_lora_rank": 1024, "sliding_window": 128, "index_topk": 512,
    "index_head_dim": 128, "index_n_heads": 64, "compress_ratios": [0, 0] + [4, 128] * 20 + [4, 0],
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 6, "vocab_size": 129280,
}  # fmt: skip
KIMI_LINEAR: Config = {
    "model_type": "kimi_linear", "hidden_size": 2304, "num_hidden_layers": 27,
    "num_attention_heads": 32, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [n for n in range(1, 27) if n % 4],
        "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
    },
    "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_experts": 256,
    "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1,
    "vocab_size": 163840,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "name", "off_by"),
    [
        (GPT_OSS, "gpt-oss-20b", 0.005),
        (GEMMA_2, "Gemma-2-27B", 0.005),
        (GEMMA_3, "Gemma-3-27B", 0.005),
        (GEMMA_4, "Gemma-4-31B", 0.02),
        (LLAMA_4, "Llama-4-Maverick", 0.005),
        (STEP, "Step-3.7-Flash", 0.005),
        (GLM_5_2, "GLM-5.2", 0.005),
        (NEXT_80B, "Qwen3-Next-80B-A3B", 0.02),
        (QWEN_35, "Qwen3.5-35B-A3B", 0.02),
        (NEMOTRON_H, "Nemotron-H-56B", 0.01),
        (ULTRA, "Nemotron-3-Ultra-550B-A55B", 0.005),
        (JAMBA, "Jamba-v0.1", 0.02),
        (V4_FLASH, "DeepSeek-V4-Flash", 0.02),
    ],
)
def test_a_config_gives_the_groups_and_the_state_of_the_built_in_shape(
    config: Config, name: str, off_by: float
) -> None:
    shape, built_in = from_hf_config(config), load_llm(name)
    assert shape.groups == built_in.groups
    assert shape.state_bytes == built_in.state_bytes
    assert shape.recurrent_layers == built_in.recurrent_layers
    assert shape.attention == built_in.attention
    assert shape.layers == built_in.layers
    assert shape.parameters == pytest.approx(built_in.parameters, rel=off_by)


def test_blocks_of_a_searched_architecture_may_have_no_attention() -> None:
    shape, built_in = from_hf_config(NEMOTRON_NAS), load_llm("Llama-3.3-Nemotron-Super-49B")
    assert (shape.groups, shape.attention) == (built_in.groups, "gqa_nas")
    # 49 attention blocks, widths 2/3 x 5.25 x 8192 = 28 672 and half of it, norms, two embeddings
    attention = 49 * 2 * 8192 * 128 * (64 + 8)
    feed_forward = 3 * 8192 * (49 * 28_672 + 31 * 14_336)
    assert shape.parameters == attention + feed_forward + 161 * 8192 + 2 * 128_256 * 8192
    linear = {"attention": {"replace_with_linear": True}, "ffn": {"no_op": True}}
    shape = from_hf_config({**PLAIN, "block_configs": [linear] * 8})
    assert shape.groups == ()
    assert shape.parameters == 8 * 64 * 64 + 17 * 64 + 2 * 100 * 64


def test_layers_with_heads_of_their_own_in_the_window() -> None:
    # full: 4 heads x (192 + 128), window: 8 heads x (192 + 128); 2 x 64 heads x 320 FLOPs a pair
    full, window = from_hf_config(MIMO_V2).groups
    assert full == KvGroup("full", 9, None, 1, 1280, 0, 4, 2 * 64 * 320 * 9, None)
    assert window == KvGroup("window", 39, 128, 1, 2560, 0, 8, 2 * 64 * 320 * 39, 128)
    assert from_hf_config(MIMO_V2).parameters == pytest.approx(308.52e9, rel=0.005)


def test_latent_attention_without_an_indexer() -> None:
    (group,) = from_hf_config(MISTRAL_4).groups
    # 256 + 64 elements; 2 x 32 heads x (128 + 128) x 36 layers
    assert group == KvGroup("latent", 36, None, 1, 320, 64, 1, 589_824, None)


def test_a_latent_beside_recurrent_layers() -> None:
    shape, built_in = from_hf_config(KIMI_LINEAR), load_llm("Kimi-Linear-48B-A3B")
    assert (shape.attention, shape.recurrent_layers) == ("hybrid_recurrent_mla", 20)
    # 32 heads x 128 x 128 x 4 bytes, and a tail of 3 x 3 x 4096 x 2 bytes
    assert shape.state_bytes == 20 * (2_097_152 + 73_728) == built_in.state_bytes
    assert shape.kv_bytes_per_token() == 7 * 576 * 2 == built_in.kv_bytes_per_token()


def test_blocks_chosen_by_an_indexer_are_stored_whole() -> None:
    sparse = {
        "sparse_attention_freq": [0, 0] + [1] * 6,
        "sparse_block_size": 128,
        "sparse_topk_blocks": 16,
        "sparse_index_dim": 32,
        "sparse_num_index_heads": 4,
    }
    shape = from_hf_config({**PLAIN, "sparse_attention_config": sparse})
    assert shape.attention == "gqa_block_sparse"
    # 2 x 4 heads x 32 = 256 FLOPs a pair and layer; an index key of 32, 2 x 4 x 32 FLOPs
    assert shape.groups == (
        KvGroup("full", 2, None, 1, 64, 0, 2, 512.0, None),
        KvGroup("full", 6, None, 1, 64, 0, 2, 1536.0, 2048),
        KvGroup("indexer", 6, None, 1, 32, 0, 1, 1536.0, None),
    )


def test_layers_that_share_the_kv_of_others_store_none_but_compute() -> None:
    every_other = from_hf_config({**PLAIN, "use_cla": True, "cla_share_factor": 2}).groups[0]
    assert (every_other.layers, every_other.pair_flops) == (4, 8 * 256)
    last = {
        "num_kv_shared_layers": 3,
        "layer_types": ["sliding_attention", "full_attention"] * 4,
        "sliding_window": 32,
    }
    full, window = from_hf_config({**PLAIN, **last}).groups
    # of layers 1 to 5 two are full and three windowed
    assert (full.layers, window.layers) == (2, 3)
    assert (full.pair_flops, window.pair_flops) == (4 * 256, 4 * 256)


def test_windows_from_a_layer_on() -> None:
    qwen = {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 6}
    assert [g.layers for g in from_hf_config({**PLAIN, **qwen}).groups] == [6, 2]
    off = {"sliding_window": 32, "use_sliding_window": False}
    assert [g.group for g in from_hf_config({**PLAIN, **off}).groups] == ["full"]
    mistral = from_hf_config({**PLAIN, "sliding_window": 32})
    assert [(g.group, g.layers) for g in mistral.groups] == [("window", 8)]
    assert (mistral.attention, mistral.kv_bytes_per_token()) == ("gqa_swa", 0)


def test_chunked_layers_by_a_list() -> None:
    chunks = {"attention_chunk_size": 16, "no_rope_layers": [1, 1, 1, 0] * 2}
    full, window = from_hf_config({**PLAIN, **chunks}).groups
    assert (full.layers, window.layers, window.window_tokens) == (2, 6, 16)


def test_attention_layers_by_their_numbers() -> None:
    bamba = {
        "attn_layer_indices": [3, 7],
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 16,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_ssm_dtype": "bfloat16",
    }
    shape = from_hf_config({**PLAIN, **bamba})
    assert (shape.groups[0].layers, shape.recurrent_layers) == (2, 6)
    # 4 x 8 x 16 x 2 bytes, and a tail of 3 x (32 + 2 x 16) x 2 bytes
    assert shape.state_bytes == 6 * (1024 + 384)


def test_a_recurrent_llm_without_attention_has_no_groups() -> None:
    mamba = {"layers_block_type": ["mamba"] * 8, "mamba_d_state": 16, "mamba_d_conv": 4}
    shape = from_hf_config({**PLAIN, **mamba, "mamba_expand": 2})
    # 128 x 16 x 4 bytes, and a tail of 3 x 128 x 2 bytes
    assert (shape.groups, shape.state_bytes) == ((), 8 * (8192 + 768))
    assert shape.kv_bytes(5) == shape.kv_bytes(5_000) == 8 * 8960
    assert shape.checkpoint_tokens() == 16


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"layer_types": ["conv"] * 8}, "`layer_types` holds conv"),
        ({"layer_types": ["full_attention"] * 7}, "`layer_types` names 7 of 8 layers"),
        ({"hybrid_override_pattern": "MQ*-MQ*-"}, "holds Q"),
        ({"attn_type_list": [0, 1] * 4}, "lightning attention"),
        ({"attn_layer_period": 4}, "`attn_layer_offset` is missing"),
        ({"attention_chunk_size": 16}, "which layers have chunks"),
        ({"sparse_attention_config": {"use_sparse_attention": True}}, "sparse_topk_blocks"),
        ({"use_cla": True}, "cla_share_factor"),
        ({"num_kv_shared_layers": 8}, "no layer with KV"),
        ({"ssm_cfg": {"layer": "Mamba2"}}, "`ssm_cfg`"),
        ({"conv_L_cache": 3}, "`conv_L_cache`"),
        ({"cross_attention_layers": [3]}, "`cross_attention_layers`"),
        ({"kv_lora_rank": 512}, "`qk_rope_head_dim` is missing"),
        ({"num_experts": 8, "moe_intermediate_size": 4}, "`num_experts_per_tok` is missing"),
        ({"compress_ratios": [4, 4]}, "`compress_ratios` names 2 of 8"),
        ({"compress_ratios": [4, None] * 4}, "other than whole numbers"),
        ({"vocab_size": 10**400}, "`vocab_size` is not a whole number"),
        ({"head_dim": -1}, "`head_dim` is not a whole number"),
        ({"block_configs": [{"ffn": {}}] * 8}, "without `attention`"),
        ({"num_hidden_layers": 1_000_000}, "more than"),
        ({"num_key_value_heads": 0}, "cannot share 0 KV heads"),
        ({"num_key_value_heads": 3}, "cannot share 3 KV heads"),
        (
            {"num_experts": 8, "moe_intermediate_size": 4, "num_experts_per_tok": 9},
            "a token uses 9 of 8 experts",
        ),
        ({"moe_num_experts": 8}, "`moe_num_experts`"),
        ({"model_type": "qwen3_next"}, "`qwen3_next` keeps a state"),
        ({"mb_per_layer": 2}, "`mb_per_layer`"),
        ({"linear_attn_config": {"kda_layers": [1]}}, "do not name each layer once"),
        (
            {"full_attention_interval": 4, "mamba_d_state": 16, "mamba_ssm_dtype": "float8"},
            "`mamba_expand` is missing",
        ),
    ],
)
def test_what_is_not_known_is_named_not_guessed(change: Config, cause: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_hf_config({**PLAIN, **change})
    assert cause in (caught.value.cause or "")


def test_the_text_of_a_config_is_read() -> None:
    text = '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 8, "head_dim": 16, '
    text += '"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}'
    for shape in (from_hf_text(text), load_llm(f"  {text}")):
        assert shape.kv_bytes_per_token() == 8 * 64 * 2
    with pytest.raises(UsageError, match="not a JSON document"):
        load_llm("{nonsense")


@pytest.mark.parametrize(
    ("quantised", "dtype"),
    [
        ({"quant_method": "compressed-tensors", "format": "float-quantized",
          "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}, "fp8"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized",
          "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}, "int4"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
          "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float"}}}}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "quark",
          "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "auto-round", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "gptq", "bits": 3}, "int4"),
        ({"quant_method": "awq"}, "int4"),
        ({"quant_method": "of another kind"}, "fp16"),
        ("fp8", "fp16"),
        (None, "fp16"),
    ],
)  # fmt: skip
def test_the_format_of_the_weights(quantised: object, dtype: str) -> None:
    shape = from_hf_config({**PLAIN, "torch_dtype": "float16", "quantization_config": quantised})
    assert shape.native_weight_dtype == dtype


@pytest.mark.parametrize(
    ("quantised", "dtype"),
    [
        ({"quant_method": "compressed-tensors",
          "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"quant_method": "compressed-tensors",
          "kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "int8"),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "fp8", "kv_cache_scheme": None}, "bf16"),
        (None, "bf16"),
    ],
)  # fmt: skip
def test_the_format_of_the_kv_that_a_checkpoint_asks_for(quantised: object, dtype: str) -> None:
    shape = from_hf_config({**PLAIN, "quantization_config": quantised})
    assert shape.native_kv_dtype == dtype
    assert build_deployment(shape, "H100-SXM5", tp=1).kv_dtype == dtype
    assert build_deployment(shape, "H100-SXM5", tp=1, kv_dtype="bf16").kv_dtype == "bf16"


def test_a_gemma_3_as_published_leaves_heads_and_vocabulary_to_its_class() -> None:
    text = {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text",
        "num_hidden_layers": 34, "sliding_window": 1024,
    }  # fmt: skip
    shape = from_hf_config({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    # 34 layers, each sixth full: 5. An entry is 4 KV heads x (256 + 256) x 2 B = 4 KiB.
    assert shape.kv_bytes_per_token() == 5 * 4096
    assert shape.kv_bytes(2000) == (5 * 2000 + 29 * 1024) * 4096
    assert shape.vocab == 262_208


def test_a_width_for_each_layer_is_summed() -> None:
    listed = from_hf_config({**PLAIN, "intermediate_size": [64] * 4 + [128] * 4})
    alike = from_hf_config({**PLAIN, "intermediate_size": 96})
    assert listed.parameters == alike.parameters


def test_an_llm_of_windows_alone_takes_room_in_a_cache() -> None:
    shape = from_hf_config({**PLAIN, "sliding_window": 16})
    # 8 layers x 64 elements x 2 B inside the window; beyond it a token adds nothing.
    assert (shape.kv_bytes_per_token(), shape.cached_token_bytes()) == (0, 8 * 64 * 2)
    assert shape.cached_token_bytes("fp8", tp=4) == 8 * 64 * 2  # of one byte, in two copies
