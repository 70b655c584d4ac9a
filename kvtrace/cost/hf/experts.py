"""Experts of a Hugging Face config: how many, how wide, in which layers."""

from __future__ import annotations

from typing import Final

from kvtrace.cost.experts import Experts
from kvtrace.cost.hf.layers import Mixer, layer_feed_forwards
from kvtrace.cost.hf.reader import HfConfig, hidden_size

_UNGATED: Final = frozenset({
    "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "mpt", "nemotron",
    "nemotron_h", "opt", "phi", "starcoder2",
})  # fmt: skip
"""Model types whose feed-forward block has two matrices instead of three."""


def ffn_matrices(config: HfConfig) -> int:
    """Matrices of one feed-forward block: 3 with a gate, else 2."""
    return 2 if config.model_type in _UNGATED else 3


def read_experts(config: HfConfig, mixers: tuple[Mixer, ...]) -> Experts | None:
    """The experts of a config; null for a dense one.

    Raises:
        UsageError: a needed key is missing.
    """
    layers = layer_feed_forwards(config, mixers).count("sparse")
    if not layers:
        return None
    width = config.whole("moe_intermediate_size") or config.require("intermediate_size")
    latent = config.whole("moe_latent_size", "routed_expert_hidden_size")
    stated = config.whole("n_shared_experts", "num_shared_experts")
    if stated is None:
        stated = 1 if shared_width(config, width) else 0
    routed = config.require("n_routed_experts", "num_local_experts", "num_experts")
    active = config.require(
        "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "experts_per_token"
    )
    if active > routed:
        raise config.fault(f"a token uses {active} of {routed} experts")
    return Experts(
        layers=layers,
        routed=routed,
        active=active,
        shared=stated,
        width=width,
        input_width=latent or hidden_size(config),
        matrices=ffn_matrices(config),
    )


def shared_width(config: HfConfig, width: int) -> int:
    """Inner width of what every token uses of a layer with experts `width` wide; 0 for none."""
    stated = config.whole(
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "share_expert_dim",
        "shared_intermediate_size",
    )
    if stated is not None:
        return stated
    if config.model_type.startswith("llama4"):
        return width
    return (config.whole("n_shared_experts", "num_shared_experts") or 0) * width
