"""Parameters of a Hugging Face config: all of them, and those that one token uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.cost.experts import Experts
from kvtrace.cost.hf.experts import ffn_matrices, read_experts, shared_width
from kvtrace.cost.hf.groups import read_heads
from kvtrace.cost.hf.layers import Mixer, layer_feed_forwards
from kvtrace.cost.hf.reader import HfConfig, hidden_size
from kvtrace.cost.hf.state import read_state_layer

_TIED: Final = frozenset({
    "gemma", "gemma2", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "gpt2", "falcon",
    "bloom", "cohere", "cohere2", "gpt_bigcode", "mpt", "opt",
})  # fmt: skip
"""Model types that share embedding and output head where the key is absent."""
_GATED_ATTENTION: Final = frozenset({"qwen3_next"})
"""Model types whose queries carry an output gate of their own width without saying so."""
_FFN_ROUNDING: Final = 256
"""A searched block's width is rounded up to it. Source: DeciLM's modelling code."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts of parameters."""

    total: int
    active: int
    """Used by one token, embeddings included."""
    active_nonembed: int


def count_parameters(config: HfConfig, mixers: tuple[Mixer, ...]) -> Parameters:
    """Parameters of matrices and norms; biases are left out.

    Raises:
        UsageError: a needed key is missing.
    """
    hidden, vocab = hidden_size(config), config.require("vocab_size")
    mixing = sum(_mixer_parameters(config, kind) * mixers.count(kind) for kind in set(mixers))
    total, active = _feed_forward(config, mixers)
    norms = (2 * len(mixers) + 1) * hidden
    is_tied = config.flag("tie_word_embeddings", default=config.model_type in _TIED)
    embedding = vocab * hidden * (1 if is_tied else 2)
    body = mixing + norms
    return Parameters(body + total + embedding, body + active + embedding, body + active)


def _mixer_parameters(config: HfConfig, mixer: Mixer) -> int:
    """Projections of one layer."""
    if mixer == "none":
        return 0
    if mixer == "recurrent":
        return read_state_layer(config).parameters
    hidden = hidden_size(config)
    if config.words("compress_ratios") is not None:
        return _compressed_projections(config)
    if config.whole("kv_lora_rank"):
        return _latent_projections(config)
    if config.words("block_configs") is not None:
        return 0  # counted block by block
    heads = read_heads(config, mixer)
    queries = hidden * heads.query * heads.key_dim
    is_gated = config.flag("attn_output_gate") or config.model_type in _GATED_ATTENTION
    shares_values = mixer == "full" and config.flag("attention_k_eq_v")
    values = 0 if shares_values else hidden * heads.kv * heads.value_dim
    return (
        queries * (2 if is_gated else 1)
        + hidden * heads.kv * heads.key_dim
        + values
        + heads.query * heads.value_dim * hidden
    )


def _latent_projections(config: HfConfig) -> int:
    hidden, heads = hidden_size(config), config.require("num_attention_heads")
    latent, rope = config.require("kv_lora_rank"), config.require("qk_rope_head_dim")
    nope, value = config.require("qk_nope_head_dim"), config.require("v_head_dim")
    rank = config.whole("q_lora_rank")
    out = heads * (nope + rope)
    query = hidden * out if rank is None else rank * (hidden + out)
    gate = hidden * heads * value if config.flag("mla_use_output_gate") else 0
    indexer = 0
    if config.whole("index_topk"):
        index_heads, dim = config.require("index_n_heads"), config.require("index_head_dim")
        indexer = (rank or hidden) * index_heads * dim + hidden * (dim + index_heads)
    return (
        query + hidden * (latent + rope) + latent * heads * (nope + value)
        + heads * value * hidden + gate + indexer
    )  # fmt: skip


def _compressed_projections(config: HfConfig) -> int:
    """One shared KV vector, low-rank queries, and a grouped low-rank output."""
    hidden, heads = hidden_size(config), config.require("num_attention_heads")
    dim, rank = config.require("head_dim"), config.require("q_lora_rank")
    groups, out_rank = config.require("o_groups"), config.require("o_lora_rank")
    queries = rank * (hidden + heads * dim)
    return queries + hidden * dim + heads * dim * out_rank + groups * out_rank * hidden


def _feed_forward(config: HfConfig, mixers: tuple[Mixer, ...]) -> tuple[int, int]:
    """Feed-forward parameters of all layers: all of them, and those that a token uses."""
    searched = config.keys.get("block_configs")
    if isinstance(searched, list) and searched:
        total = _searched(config, searched)
        return total, total
    kinds = layer_feed_forwards(config, mixers)
    experts = read_experts(config, mixers)
    dense = kinds.count("dense")
    total = active = dense * _dense(config, has_experts=experts is not None) if dense else 0
    if experts is not None:
        all_experts, used = _experts(config, experts)
        total += experts.layers * all_experts
        active += experts.layers * used
    return total, active


def _dense(config: HfConfig, *, has_experts: bool) -> int:
    """One dense layer; some configs name its width apart from an expert's."""
    own = ("dense_intermediate_size", "intermediate_size_mlp") if has_experts else ()
    names = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
    width = config.whole(*own, *names) or _mean_width(config) or 4 * hidden_size(config)
    return ffn_matrices(config) * hidden_size(config) * width


def _mean_width(config: HfConfig) -> int:
    """Mean of a list of widths, one a layer; 0 where there is none."""
    widths = [int(width) for width in config.words("intermediate_size") or () if width.isdecimal()]
    return sum(widths) // len(widths) if widths else 0


def _experts(config: HfConfig, experts: Experts) -> tuple[int, int]:
    """One layer of experts: all of it, and what a token uses.

    Router, shared experts, and a dense block beside them (Gemma 4) are in both.
    """
    hidden = hidden_size(config)
    around = 0 if experts.input_width == hidden else 2 * hidden * experts.input_width
    shared = experts.matrices * hidden * shared_width(config, experts.width)
    beside = _dense(config, has_experts=True) if config.flag("enable_moe_block") else 0
    always = shared + beside + around + hidden * experts.routed
    one = int(experts.expert_parameters)
    return experts.routed * one + always, experts.active * one + always


def _searched(config: HfConfig, blocks: list[object]) -> int:
    """Attention and feed-forward of every block of a searched architecture."""
    hidden, query = hidden_size(config), config.require("num_attention_heads")
    dim = config.whole("head_dim") or hidden // query
    total = 0
    for block in blocks:
        table = HfConfig(block if isinstance(block, dict) else {}, f"{config.where}: block_configs")
        attention, ffn = table.table("attention"), table.table("ffn")
        if attention is None or ffn is None:
            raise table.fault("a block without `attention` or `ffn`")
        if attention.flag("replace_with_linear"):
            total += hidden * hidden
        elif not attention.flag("no_op"):
            kv = query // attention.require("n_heads_in_group")
            total += 2 * hidden * dim * (query + kv)
        if ffn.flag("replace_with_linear"):
            total += hidden * hidden
        elif not ffn.flag("no_op"):
            total += 3 * hidden * _searched_width(ffn, hidden)
    return total


def _searched_width(ffn: HfConfig, hidden: int) -> int:
    """Width of a searched feed-forward: 2/3 of its multiple of hidden, rounded up."""
    multiple = ffn.keys.get("ffn_mult")
    if not isinstance(multiple, int | float) or isinstance(multiple, bool) or multiple <= 0:
        return ffn.require("intermediate_size")
    return -(-int(2 * multiple * hidden / 3) // _FFN_ROUNDING) * _FFN_ROUNDING
