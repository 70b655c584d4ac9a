"""Shapes of LLMs: KV bytes by sequence length, FLOPs of a prefill, bytes of the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from kvtrace.cost.dtypes import weight_element_bytes
from kvtrace.cost.evidence import EvidenceKind
from kvtrace.cost.experts import Experts
from kvtrace.cost.kv_group import KvGroup
from kvtrace.errors import ModelError

_PAGE_TOKENS: Final = 16
"""Tokens of the smallest page of KV. Source: vLLM's default block size."""


@dataclass(frozen=True, slots=True)
class LlmShape:
    """What the cost model needs of an LLM."""

    name: str
    family: str
    attention: str
    """mha | gqa | mqa | mla and their sparse, windowed and recurrent kin."""
    layers: int
    hidden: int
    vocab: int
    parameters: float
    active_parameters: float
    """Used per token; equal to `parameters` for a dense LLM."""
    active_nonembed_parameters: float | None
    """Active without embedding and output head; null where not known: no prefill time then."""
    native_weight_dtype: str
    """As published."""
    groups: tuple[KvGroup, ...]
    state_bytes: float
    """Recurrent state of one sequence, whatever its length."""
    kind: EvidenceKind
    source: str
    as_of: str
    recurrent_layers: int = 0
    """Layers that keep a state instead of KV."""
    experts: Experts | None = None
    """Null for a dense LLM."""
    native_kv_dtype: str = "bf16"
    """Format of the KV that the checkpoint asks engines for; bf16 where it asks for none."""

    @property
    def is_moe(self) -> bool:
        """True where each token uses only a part of the parameters."""
        return self.experts is not None

    @property
    def nonembed_parameters(self) -> float:
        """Parameters without embedding and output head, read once by a long prefill."""
        if self.active_nonembed_parameters is None:
            return self.parameters
        return self.parameters - (self.active_parameters - self.active_nonembed_parameters)

    def touched_parameters(self, tokens: float) -> float:
        """Parameters without embeddings that a step of `tokens` reads.

        Formula: dense + sum over layers of E (1 - (1 - k / E)^n) experts, with dense = what one
        token uses less its experts; never more than all.

        Raises:
            ModelError: active parameters of this LLM are not known.
        """
        active, _ = self.require_flops()
        experts = self.experts
        if experts is None or tokens <= 0:
            return active if tokens > 0 else 0.0
        more = experts.touched(max(tokens, 1.0)) - experts.active
        touched = active + experts.layers * more * experts.expert_parameters
        return min(touched, max(self.nonembed_parameters, active))

    @property
    def knows_flops(self) -> bool:
        """Whether the FLOPs of a prefill are known."""
        return self.active_nonembed_parameters is not None and all(
            group.pair_flops is not None for group in self.groups
        )

    def kv_bytes_per_token(self, kv_dtype: str = "bf16", tp: int = 1) -> float:
        """Bytes that one more token adds beyond all windows, over all ranks.

        Formula: sum over groups that keep all tokens of layers x entry_bytes x R(tp).
        Windows and recurrent state do not grow: see `kv_bytes`.
        """
        return math.fsum(
            group.bytes_per_token(kv_dtype, tp)
            for group in self.groups
            if group.window_tokens is None
        )

    def cached_token_bytes(self, kv_dtype: str = "bf16", tp: int = 1) -> float:
        """Bytes that a cache of whole blocks holds for a token, over all ranks.

        `kv_bytes_per_token`; of an LLM whose layers all have windows, what is stored inside them.
        """
        beyond = self.kv_bytes_per_token(kv_dtype, tp)
        return beyond or math.fsum(group.bytes_per_token(kv_dtype, tp) for group in self.groups)

    def kv_bytes(
        self,
        tokens: int,
        *,
        kv_dtype: str = "bf16",
        tp: int = 1,
        block_size_tokens: int | None = None,
    ) -> int:
        """Bytes of the KV of `tokens`, over all ranks.

        Formula: sum over groups of layers x tokens_g(n) x entry_bytes x R(tp), + state.
        `block_size_tokens` rounds the tokens up to whole blocks.
        """
        if tokens <= 0:
            return 0
        if block_size_tokens is not None:
            tokens = -(-tokens // block_size_tokens) * block_size_tokens
        total = math.fsum(
            group.bytes_per_token(kv_dtype, tp) * group.kept_tokens(tokens) for group in self.groups
        )
        return math.ceil(total + self.state_bytes)

    def checkpoint_tokens(self, kv_dtype: str = "bf16") -> int | None:
        """Tokens between two states that a cache keeps; null where there is no state.

        Formula: state of one layer / KV bytes of one token and layer, up to a multiple of 16.
        Assumes: a cache that keeps states and KV in pages of one size, as vLLM does for hybrids.
        """
        if not self.recurrent_layers:
            return None
        stored = [group for group in self.groups if group.window_tokens is None]
        if not stored:
            return _PAGE_TOKENS
        state = self.state_bytes / self.recurrent_layers
        pages = state / stored[0].entry_bytes(kv_dtype) / _PAGE_TOKENS
        return _PAGE_TOKENS * max(1, math.ceil(pages))

    def reusable_tokens(
        self, cached_tokens: int, *, kv_dtype: str = "bf16", checkpoint_tokens: int | None = None
    ) -> int:
        """Of `cached_tokens`, those that a new request can go on from.

        All of them where every layer keeps KV; down to the last checkpoint where one keeps a state.
        """
        every = checkpoint_tokens or self.checkpoint_tokens(kv_dtype)
        if every is None or not self.recurrent_layers:
            return cached_tokens
        return cached_tokens // every * every

    def prefill_flops(self, new_tokens: float, cached_tokens: float) -> float:
        """FLOPs of `new_tokens` after `cached_tokens`.

        Formula: 2 P_active n + sum of c_g (n p + n^2 / 2), the pairs cut at each group's window.

        Raises:
            ModelError: active parameters or attention FLOPs of this LLM are not known.
        """
        parameters, terms = self.require_flops()
        pairs = math.fsum(
            flops * attended_pairs(new_tokens, cached_tokens, window) for flops, window in terms
        )
        return 2.0 * parameters * new_tokens + pairs

    def require_flops(self) -> tuple[float, tuple[tuple[float, int | None], ...]]:
        """Active parameters without embeddings, and (FLOPs per pair, window) per group.

        Raises:
            ModelError: one of them is not known.
        """
        terms: list[tuple[float, int | None]] = []
        for group in self.groups:
            if group.pair_flops is None:
                raise self._unknown_flops()
            terms.append((group.pair_flops, group.pair_window_tokens))
        if self.active_nonembed_parameters is None:
            raise self._unknown_flops()
        return self.active_nonembed_parameters, tuple(terms)

    def _unknown_flops(self) -> ModelError:
        return ModelError(
            "KVT-C020",
            f"the FLOPs of {self.name} are not known, so its prefill cannot be timed",
            hint="its KV bytes are known; for times name another LLM with `--llm`",
        )

    def weight_bytes(self, dtype: str) -> float:
        """Bytes of all weights, over all ranks."""
        return self.parameters * weight_element_bytes(dtype)


def attended_pairs(new_tokens: float, cached_tokens: float, window: int | None) -> float:
    """(query, key) pairs of `new_tokens` after `cached_tokens`, each query seeing `window` keys.

    Formula: n p + n^2 / 2 without a window; else G(p + n) - G(p), G(x) = x^2 / 2 up to W, then
    W^2 / 2 + W (x - W).
    """
    if window is None or new_tokens + cached_tokens <= window:
        return new_tokens * (cached_tokens + new_tokens / 2)
    if cached_tokens >= window:
        return float(window) * new_tokens
    ramp = window - cached_tokens
    return ramp * (cached_tokens + ramp / 2) + window * (new_tokens - ramp)
