"""Layers that store the same KV entry for the same tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from kvtrace.cost.dtypes import kv_element_bytes, normalise_dtype

_DS_MLA_SCALE_SPAN: Final = 128
"""Elements that share one fp32 scale in the `fp8_ds_mla` layout."""


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers that store the same KV entry for the same tokens."""

    group: str
    """full | latent | window | indexer | compressed_<r>."""
    layers: int
    window_tokens: int | None
    """Tokens kept; null keeps all."""
    tokens_per_entry: int
    """Tokens that one stored entry covers; 1 unless compressed."""
    entry_elements: int
    """KV elements of one entry of one layer, over all heads (K and V)."""
    rope_elements: int
    """Of these, kept in 16 bits by the `fp8_ds_mla` layout."""
    kv_shards: int
    """Ranks that the entry can be split over: KV heads, 1 for a latent; beyond, it is copied."""
    pair_flops: float | None
    """FLOPs per (query, key) pair over the group's layers; null where not known."""
    pair_window_tokens: int | None
    """Keys that one query attends to; null is all."""

    @property
    def has_scaled_layout(self) -> bool:
        """Whether the `fp8_ds_mla` layout is one of this entry: a latent, or an indexer's key."""
        return self.rope_elements > 0 or self.group == "indexer"

    def entry_bytes(self, kv_dtype: str) -> float:
        """Bytes of one entry of one layer.

        Formula: elements x bytes; `fp8_ds_mla` = latent fp8 + a fp32 scale per 128 + rope bf16,
        an indexer's key alike without rope.
        Source: vLLM blog, DeepSeek-V3.2, 2025-09-29 (512 + 16 + 128 = 656 bytes; indexer 128 + 4).
        """
        if normalise_dtype(kv_dtype) == "fp8_ds_mla" and self.has_scaled_layout:
            scaled = self.entry_elements - self.rope_elements
            return scaled + 4.0 * math.ceil(scaled / _DS_MLA_SCALE_SPAN) + 2.0 * self.rope_elements
        return self.entry_elements * kv_element_bytes(kv_dtype)

    def replicas(self, tp: int) -> float:
        """Copies of each entry over `tp` ranks.

        Formula: max(1, tp / kv_shards).
        """
        return max(1.0, tp / self.kv_shards)

    def bytes_per_token(self, kv_dtype: str, tp: int = 1) -> float:
        """Bytes that one token within the window adds, over all ranks."""
        entry = self.entry_bytes(kv_dtype) / self.tokens_per_entry
        return self.layers * entry * self.replicas(tp)

    def kept_tokens(self, tokens: float) -> float:
        """Tokens of a sequence of `tokens` whose entries are kept."""
        return tokens if self.window_tokens is None else min(tokens, self.window_tokens)
