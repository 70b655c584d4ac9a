"""KV groups of a Hugging Face config: what each kind of layer stores for a token."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from kvtrace.cost.hf.layers import Mixer
from kvtrace.cost.hf.reader import HfConfig, hidden_size
from kvtrace.cost.kv_group import KvGroup

_INDEX_RATIO: Final = 4
"""Compressed layers of this ratio carry an indexer. Source: DeepSeek-V4 configs."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads of one kind of attention layer."""

    query: int
    kv: int
    key_dim: int
    value_dim: int

    @property
    def entry_elements(self) -> int:
        """K and V of one token."""
        return self.kv * (self.key_dim + self.value_dim)

    @property
    def pair_flops(self) -> float:
        """FLOPs of one (query, key) pair of one layer: 2 H (hd_k + hd_v)."""
        return 2.0 * self.query * (self.key_dim + self.value_dim)


def read_heads(config: HfConfig, mixer: Mixer = "full") -> Heads:
    """Heads of the full or the windowed layers, where a config tells them apart."""
    query = config.require("num_attention_heads", "n_head")
    names = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        kv = 1
    else:
        stated = config.whole(*names)
        kv = query if stated is None else stated
    if not kv or query % kv:
        raise config.fault(f"{query} query heads cannot share {kv} KV heads")
    key_dim = config.whole("head_dim", "attention_head_dim", "kv_channels")
    key_dim = key_dim or hidden_size(config) // query
    value_dim = config.whole("v_head_dim") or key_dim
    if mixer == "window":
        query = config.whole("swa_num_attention_heads") or query
        kv = config.whole("swa_num_key_value_heads") or kv
        key_dim = config.whole("swa_head_dim") or key_dim
        value_dim = config.whole("swa_v_head_dim") or value_dim
    elif config.whole("global_head_dim") or config.whole("num_global_key_value_heads"):
        kv = config.whole("num_global_key_value_heads") or kv
        key_dim = value_dim = config.whole("global_head_dim") or key_dim
    return Heads(query, kv, key_dim, value_dim)


def read_groups(config: HfConfig, mixers: tuple[Mixer, ...]) -> tuple[KvGroup, ...]:
    """The KV groups of a config, one per kind of layer.

    Raises:
        UsageError: a needed key is missing.
    """
    if config.words("compress_ratios") is not None:
        return _compressed(config, len(mixers))
    if config.whole("kv_lora_rank"):
        return _latent(config, mixers.count("full"))
    if config.words("block_configs") is not None:
        return _searched(config)
    if config.table("sparse_attention_config") is not None:
        return _block_sparse(config, mixers)
    return tuple(_plain(config, mixers, mixer) for mixer in ("full", "window") if mixer in mixers)


def window_tokens(config: HfConfig) -> int:
    """Tokens that windowed layers keep."""
    return config.require("sliding_window", "sliding_window_size", "attention_chunk_size")


def _plain(config: HfConfig, mixers: tuple[Mixer, ...], mixer: Mixer) -> KvGroup:
    """Layers with heads of their own; those that share the KV of another layer store none."""
    heads = read_heads(config, mixer)
    window = window_tokens(config) if mixer == "window" else None
    return KvGroup(
        group=mixer,
        layers=_stored(config, mixers).count(mixer),
        window_tokens=window,
        tokens_per_entry=1,
        entry_elements=heads.entry_elements,
        rope_elements=0,
        kv_shards=heads.kv,
        pair_flops=heads.pair_flops * mixers.count(mixer),
        pair_window_tokens=window,
    )


def _stored(config: HfConfig, mixers: tuple[Mixer, ...]) -> tuple[Mixer, ...]:
    """The layers that store KV: without the last ones, or one of several, where layers share."""
    shared = config.whole("num_kv_shared_layers") or 0
    if shared >= len(mixers):
        raise config.fault("`num_kv_shared_layers` leaves no layer with KV")
    kept = mixers[: len(mixers) - shared]
    if config.flag("use_cla"):
        factor = config.require("cla_share_factor")
        kept = kept[::factor]
    return kept


def _latent(config: HfConfig, layers: int) -> tuple[KvGroup, ...]:
    """One latent a token for all heads; with a sparse indexer, its keys beside it."""
    latent, rope = config.require("kv_lora_rank"), config.require("qk_rope_head_dim")
    dims = config.require("qk_nope_head_dim") + rope + config.require("v_head_dim")
    flops = 2.0 * config.require("num_attention_heads") * dims * layers
    top = config.whole("index_topk")
    group = KvGroup("latent", layers, None, 1, latent + rope, rope, 1, flops, top)
    if top is None:
        return (group,)
    types = config.words("indexer_types")
    keyed = layers if types is None else types.count("full")
    return (group, _indexer(config, keyed, 1, has_flops=True))


def _indexer(config: HfConfig, layers: int, tokens_per_entry: int, *, has_flops: bool) -> KvGroup:
    dim, heads = config.require("index_head_dim"), config.require("index_n_heads")
    flops = 2.0 * heads * dim * layers if has_flops else None
    return KvGroup("indexer", layers, None, tokens_per_entry, dim, 0, 1, flops, None)


def _compressed(config: HfConfig, layers: int) -> tuple[KvGroup, ...]:
    """A window in every layer, and one entry for each `ratio` tokens.

    The FLOPs of these layers are not known.
    """
    stated = (config.words("compress_ratios") or [])[:layers]
    if not all(ratio.isdecimal() for ratio in stated):
        raise config.fault("`compress_ratios` holds something other than whole numbers")
    ratios = [int(ratio) for ratio in stated]
    if len(ratios) < layers:
        raise config.fault(f"`compress_ratios` names {len(ratios)} of {layers} layers")
    dim = config.require("head_dim")
    window = window_tokens(config)
    groups = [KvGroup("window", layers, window, 1, dim, 0, 1, None, None)]
    counts = Counter(ratio for ratio in ratios if ratio > 1)
    groups += [
        KvGroup(f"compressed_{ratio}", counts[ratio], None, ratio, dim, 0, 1, None, None)
        for ratio in sorted(counts)
    ]
    if counts[_INDEX_RATIO]:
        groups.append(_indexer(config, counts[_INDEX_RATIO], _INDEX_RATIO, has_flops=False))
    return tuple(groups)


def _searched(config: HfConfig) -> tuple[KvGroup, ...]:
    """Blocks of a searched architecture; those without attention store nothing."""
    blocks = config.keys["block_configs"]
    query = config.require("num_attention_heads")
    kinds: Counter[int] = Counter()
    for block in blocks if isinstance(blocks, list) else ():
        attention = HfConfig(block["attention"], f"{config.where}: block_configs")
        if attention.flag("no_op") or attention.flag("replace_with_linear"):
            continue
        sharing = attention.whole("n_heads_in_group")
        kinds[query // sharing if sharing else attention.require("num_key_value_heads")] += 1
    dim = config.whole("head_dim") or hidden_size(config) // query
    groups = []
    for kv, layers in sorted(kinds.items()):
        heads = Heads(query, kv, dim, dim)
        flops = heads.pair_flops * layers
        groups.append(KvGroup("full", layers, None, 1, heads.entry_elements, 0, kv, flops, None))
    return tuple(groups)


def _block_sparse(config: HfConfig, mixers: tuple[Mixer, ...]) -> tuple[KvGroup, ...]:
    """Full storage, sparse arithmetic: a query attends to the best blocks; their keys are kept.

    Assumes: one index key of `sparse_index_dim` a token and sparse layer, as other indexers have.
    """
    sparse = config.table("sparse_attention_config")
    if sparse is None:
        raise config.fault("`sparse_attention_config` is missing")
    marks = sparse.words("sparse_attention_freq")
    layers = len(mixers)
    chosen = layers if marks is None else marks.count("1")
    heads = read_heads(config)
    attended = sparse.require("sparse_topk_blocks") * sparse.require("sparse_block_size")
    index_dim, index_heads = (
        sparse.require("sparse_index_dim"),
        sparse.require("sparse_num_index_heads"),
    )
    groups = []
    for count, window in ((layers - chosen, None), (chosen, attended)):
        if count:
            flops = heads.pair_flops * count
            entry = heads.entry_elements
            groups.append(KvGroup("full", count, None, 1, entry, 0, heads.kv, flops, window))
    if chosen:
        flops = 2.0 * index_heads * index_dim * chosen
        groups.append(KvGroup("indexer", chosen, None, 1, index_dim, 0, 1, flops, None))
    return tuple(groups)
