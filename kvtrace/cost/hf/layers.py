"""What each layer of a Hugging Face config mixes tokens with, and which feed-forward it has."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from kvtrace.cost.hf.reader import HfConfig, layer_count

Mixer = Literal["full", "window", "recurrent", "none"]
FeedForward = Literal["dense", "sparse", "none"]

_KINDS: Final[dict[str, Mixer]] = {
    "full_attention": "full",
    "deepseek_sparse_attention": "full",
    "global_attention": "full",
    "attention": "full",
    "sliding_attention": "window",
    "local_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "recurrent",
    "mamba": "recurrent",
    "mlp": "none",
    "moe": "none",
}
_LETTERS: Final[dict[str, Mixer]] = {"M": "recurrent", "*": "full", "-": "none", "E": "none"}
_LISTS: Final = (
    "hybrid_override_pattern", "block_configs", "attn_type_list", "layers_block_type",
    "layer_types", "hybrid_layer_pattern", "no_rope_layers",
)  # fmt: skip
"""Keys that name every layer."""
_ALL_FULL: Final[tuple[Mixer, ...]] = ("full",)
_STATEFUL: Final = (
    "linear_attn_config", "linear_num_value_heads", "mamba_d_state", "mamba_num_heads",
    "ssm_state_size",
)  # fmt: skip
"""Keys that only layers with a recurrent state have."""
_KNOWN: Final = frozenset({
    *_STATEFUL, "compress_ratios", "compress_rope_theta", "num_kv_shared_layers", "use_cla",
    "cla_share_factor", "sparse_attention_config", "mamba_ssm_dtype", "mamba_ssm_cache_dtype",
    "mamba_head_dim", "mamba_d_head", "mamba_n_heads", "mamba_n_groups", "mamba_d_conv",
    "mamba_expand", "mamba_dt_rank", "mamba_hidden_act", "mamba_proj_bias", "mamba_conv_bias",
    "mamba_chunk_size", "use_mamba_kernels", "kv_lora_rank",
})  # fmt: skip
_CHANGES_KV: Final = re.compile(
    r"mamba|ssm|rwkv|retention|lightning|recurrent|linear_attn|compress_r|kv_compress|sparse_att|kv_shar"
    r"|_cla$|^cla_|conv_l_cache|lru_width|kv_lora|cross_attention_layers|^mb_per_layer$"
)
"""Names of keys that change what is stored; one that is not read here is refused."""

_HAS_STATE: Final = re.compile(
    r"mamba|jamba|bamba|rwkv|retnet|recurrent|qwen3_(?:next|5)|nemotron_h|kimi_linear|falcon_h"
)
"""Model types whose layers are not all attention, whatever keys their config leaves out."""
_OTHER_EXPERTS: Final = re.compile(r"^(?:moe_num|num_(?:routed|total)|n)_experts$")
"""Names of the number of experts that are not read here."""


def layer_mixers(config: HfConfig) -> tuple[Mixer, ...]:
    """What each layer mixes tokens with.

    Raises:
        UsageError: layers of a kind, or a key of an architecture, that is not read here.
    """
    _refuse_unknown(config)
    layers = layer_count(config)
    stated = (source(config, layers) for source in _SOURCES)
    mixers = next((kinds for kinds in stated if kinds is not None), _ALL_FULL * layers)
    if len(mixers) != layers:
        lists = [key for key in _LISTS if config.keys.get(key)]
        raise config.fault(f"`{'`, `'.join(lists)}` names {len(mixers)} of {layers} layers")
    if "recurrent" not in mixers:
        if _HAS_STATE.search(config.model_type):
            raise config.fault(f"`{config.model_type}` keeps a state, but not said in which layers")
        for key in _STATEFUL:
            if config.keys.get(key):
                raise config.fault(f"`{key}` is there, but not which layers keep a state")
    return mixers


def layer_feed_forwards(config: HfConfig, mixers: tuple[Mixer, ...]) -> tuple[FeedForward, ...]:
    """Which feed-forward each layer has: of one matrix set, of experts, or none."""
    layers = len(mixers)
    pattern = config.keys.get("hybrid_override_pattern")
    letters = {"-": "mlp", "E": "moe"}
    blocks = config.words("layers_block_type")
    if isinstance(pattern, str) and pattern:
        blocks = [letters.get(letter, "mixer") for letter in pattern]
    if blocks is not None and {"mlp", "moe"} & set(blocks):
        kinds: dict[str, FeedForward] = {"mlp": "dense", "moe": "sparse"}
        return tuple(kinds.get(block, "none") for block in blocks)
    if _experts(config) <= 1:
        for key, value in config.keys.items():
            if _OTHER_EXPERTS.search(key) and value not in (None, 0, 1):
                raise config.fault(f"`{key}`: experts under this name are not read here")
        return tuple("dense" for _ in range(layers))
    return tuple("sparse" if sparse else "dense" for sparse in _sparse(config, layers))


def _experts(config: HfConfig) -> int:
    return config.whole("n_routed_experts", "num_local_experts", "num_experts") or 0


def _sparse(config: HfConfig, layers: int) -> list[bool]:
    """True where a layer has experts."""
    types = config.words("mlp_layer_types")
    frequency = config.words("moe_layer_freq")
    if types is not None:
        return [kind == "sparse" for kind in types]
    if frequency is not None:
        return [kind == "1" for kind in frequency]
    period = config.whole("expert_layer_period")
    if period:
        offset = config.whole("expert_layer_offset") or 0
        return [layer % period == offset for layer in range(layers)]
    first = config.whole("first_k_dense_replace") or 0
    step = config.whole("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq") or 1
    dense_only = set(config.words("mlp_only_layers") or ())
    return [
        layer >= first
        and str(layer) not in dense_only
        and (layer + 1 if step > 1 else layer) % step == 0
        for layer in range(layers)
    ]


def _refuse_unknown(config: HfConfig) -> None:
    if config.flag("is_encoder_decoder"):
        raise config.fault("`is_encoder_decoder`: cross attention is not read here")
    for key, value in config.keys.items():
        if key in _KNOWN or value in (None, False, 0, "", [], {}):
            continue
        if _CHANGES_KV.search(key.lower()):
            raise config.fault(f"`{key}`: what it stores per token is not known here")


def _from_kda(config: HfConfig, layers: int) -> tuple[Mixer, ...] | None:
    kda = config.table("linear_attn_config")
    if kda is None:
        return None
    full = set(kda.words("full_attn_layers") or ())
    states = set(kda.words("kda_layers") or ())
    if len(full) + len(states) != layers or full & states:
        raise kda.fault("`full_attn_layers` and `kda_layers` do not name each layer once")
    return tuple("full" if str(layer) in full else "recurrent" for layer in range(1, layers + 1))


def _from_pattern(config: HfConfig, layers: int) -> tuple[Mixer, ...] | None:
    pattern = config.keys.get("hybrid_override_pattern")
    if not isinstance(pattern, str) or not pattern:
        return None
    unknown = sorted(set(pattern) - set(_LETTERS))
    if unknown:
        raise config.fault(f"`hybrid_override_pattern` holds {', '.join(unknown)}: not read here")
    return tuple(_LETTERS[letter] for letter in pattern)


def _from_types(config: HfConfig, layers: int) -> tuple[Mixer, ...] | None:
    for key in ("layers_block_type", "layer_types"):
        types = config.words(key)
        if types is None:
            continue
        unknown = sorted(set(types) - set(_KINDS))
        if unknown:
            raise config.fault(f"`{key}` holds {', '.join(unknown)}: not read here")
        return tuple(_KINDS[kind] for kind in types)
    return None


def _from_numbers(config: HfConfig, layers: int) -> tuple[Mixer, ...] | None:
    """MiniMax: 1 is a layer of softmax attention, 0 one of lightning attention."""
    numbers = config.words("attn_type_list")
    if numbers is None:
        return None
    if set(numbers) != {"1"}:
        raise config.fault("`attn_type_list` has lightning attention: its state is not read here")
    return _ALL_FULL * len(numbers)


def _from_blocks(config: HfConfig, layers: int) -> tuple[Mixer, ...] | None:
    """Blocks of a searched architecture: some have no attention, or only a matrix for it."""
    blocks = config.keys.get("block_configs")
    if not isinstance(blocks, list) or not blocks:
        return None
    mixers: list[Mixer] = []
    for block in blocks:
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise config.fault("`block_configs` has a block without `attention`")
        if attention.get("window_length") or attention.get("sparsify"):
            raise config.fault("`block_configs` has windowed or sparse blocks: not read here")
        is_none = attention.get("no_op") or attention.get("replace_with_linear")
        mixers.append("none" if is_none else "full")
    return tuple(mixers)


def _from_period(config: HfConfig, layers: int) -> tuple[Mixer, ...] | None:
    period = config.whole("attn_layer_period")
    if period:
        offset = config.whole("attn_layer_offset")
        if offset is None:
            raise config.fault("`attn_layer_offset` is missing, and `attn_layer_period` needs it")
        return tuple("full" if i % period == offset else "recurrent" for i in range(layers))
    interval = config.whole("full_attention_interval")
    if interval:
        return tuple("full" if (i + 1) % interval == 0 else "recurrent" for i in range(layers))
    indices = config.words("attn_layer_indices")
    if indices is not None:
        return tuple("full" if str(i) in indices else "recurrent" for i in range(layers))
    return None


def _from_windows(config: HfConfig, layers: int) -> tuple[Mixer, ...] | None:
    """Full and windowed layers by a pattern: MiMo's list, Llama 4's chunks, Gemma's periods."""
    marks = config.words("hybrid_layer_pattern")
    if marks is not None:
        return tuple("window" if mark == "1" else "full" for mark in marks)
    if config.whole("attention_chunk_size"):
        ropes = config.words("no_rope_layers")
        if ropes is not None and len(ropes) == layers:
            return tuple("window" if rope == "1" else "full" for rope in ropes)
        interval = config.whole("no_rope_layer_interval")
        if interval is None and not config.model_type.startswith("llama4"):
            raise config.fault("`attention_chunk_size` is there, but not which layers have chunks")
        return _every(interval or 4, layers)
    if not config.whole("sliding_window") or config.keys.get("use_sliding_window") is False:
        return None
    period = config.whole("sliding_window_pattern", "_sliding_window_pattern")
    if period is None:
        period = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6}.get(config.model_type)
    if period is not None:
        return _every(period, layers)
    first = config.whole("max_window_layers") if config.flag("use_sliding_window") else 0
    return tuple("window" if layer >= (first or 0) else "full" for layer in range(layers))


def _every(period: int, layers: int) -> tuple[Mixer, ...]:
    return tuple("full" if (i + 1) % max(period, 1) == 0 else "window" for i in range(layers))


_SOURCES: Final[tuple[Callable[[HfConfig, int], tuple[Mixer, ...] | None], ...]] = (
    _from_kda,
    _from_pattern,
    _from_blocks,
    _from_numbers,
    _from_types,
    _from_period,
    _from_windows,
)
"""Where a config says what its layers are, the most literal first."""
