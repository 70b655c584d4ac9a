"""Recurrent layers of a Hugging Face config: bytes of one state, parameters of one layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.cost.hf.reader import HfConfig, hidden_size

_STATE_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
_CONV_BYTES: Final = 2
"""Of one element of the convolution's tail, kept in 16 bits."""


@dataclass(frozen=True, slots=True)
class StateLayer:
    """One layer that keeps a state instead of KV."""

    state_bytes: int
    parameters: int


def read_state_layer(config: HfConfig) -> StateLayer:
    """The recurrent layer of a config: KDA, gated delta net, Mamba-2 or Mamba-1.

    Formula: state elements x bytes + (kernel - 1) x convolution channels x 2.

    Raises:
        UsageError: none of them, or a key of theirs is missing.
    """
    if config.table("linear_attn_config") is not None:
        return _kda(config)
    if config.whole("linear_num_value_heads"):
        return _delta_net(config)
    if config.whole("mamba_num_heads", "mamba_n_heads"):
        return _mamba_2(config)
    if config.whole("mamba_d_state"):
        return _mamba_1(config)
    raise config.fault("there are recurrent layers, but no size of their state")


def _element_bytes(config: HfConfig) -> int:
    stated = config.keys.get("mamba_ssm_cache_dtype") or config.keys.get("mamba_ssm_dtype")
    name = str(stated or "float32").removeprefix("torch.")
    if name not in _STATE_BYTES:
        raise config.fault(f"the state's number format `{name}` is not known")
    return _STATE_BYTES[name]


def _kda(config: HfConfig) -> StateLayer:
    kda = config.table("linear_attn_config")
    if kda is None:
        raise config.fault("`linear_attn_config` is missing")
    heads, dim, hidden = kda.require("num_heads"), kda.require("head_dim"), hidden_size(config)
    width = heads * dim
    tail = 3 * width * (kda.require("short_conv_kernel_size") - 1) * _CONV_BYTES
    gates = hidden * width if kda.flag("use_full_rank_gate") else dim * (hidden + width)
    projections = 4 * hidden * width + gates + dim * (hidden + width) + hidden * heads
    return StateLayer(heads * dim * dim * _element_bytes(config) + tail, projections)


def _delta_net(config: HfConfig) -> StateLayer:
    hidden = hidden_size(config)
    value_heads, key_heads = (
        config.require("linear_num_value_heads"),
        config.require("linear_num_key_heads"),
    )
    key_dim, value_dim = (
        config.require("linear_key_head_dim"),
        config.require("linear_value_head_dim"),
    )
    keys, values = key_heads * key_dim, value_heads * value_dim
    kernel = config.require("linear_conv_kernel_dim")
    state = value_heads * key_dim * value_dim * _element_bytes(config)
    tail = (2 * keys + values) * (kernel - 1) * _CONV_BYTES
    projections = hidden * (2 * keys + 3 * values + 2 * value_heads)
    return StateLayer(state + tail, projections + (2 * keys + values) * kernel)


def _mamba_2(config: HfConfig) -> StateLayer:
    hidden = hidden_size(config)
    heads = config.require("mamba_num_heads", "mamba_n_heads")
    inner = heads * config.require("mamba_head_dim", "mamba_d_head")
    size = config.require("ssm_state_size", "mamba_d_state")
    groups = config.require("n_groups", "mamba_n_groups")
    kernel = config.require("conv_kernel", "mamba_d_conv")
    channels = inner + 2 * groups * size
    state = inner * size * _element_bytes(config)
    projections = hidden * (inner + channels + heads) + inner * hidden
    return StateLayer(
        state + channels * (kernel - 1) * _CONV_BYTES, projections + channels * kernel
    )


def _mamba_1(config: HfConfig) -> StateLayer:
    hidden = hidden_size(config)
    inner = config.require("mamba_expand") * hidden
    size, kernel = config.require("mamba_d_state"), config.require("mamba_d_conv")
    rank = config.keys.get("mamba_dt_rank")
    steps = rank if isinstance(rank, int) and rank > 0 else -(-hidden // 16)
    state = inner * size * _element_bytes(config)
    projections = 3 * hidden * inner + inner * (2 * steps + 3 * size + kernel)
    return StateLayer(state + inner * (kernel - 1) * _CONV_BYTES, projections)
