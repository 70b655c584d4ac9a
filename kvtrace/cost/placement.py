"""Where the KV of one sequence lies: ranks, stages, copies, and the fullest rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtrace.cost.dtypes import normalise_dtype
from kvtrace.cost.kv_group import KvGroup
from kvtrace.cost.llm import LlmShape
from kvtrace.errors import UsageError


def require_block_size(tokens: int | None) -> int | None:
    """The same block size.

    Raises:
        UsageError: it is not above zero.
    """
    if tokens is not None and tokens < 1:
        raise UsageError("KVT-C064", f"`--block-size {tokens}` is not above zero")
    return tokens


def require_whole_heads(llm: LlmShape, tp: int) -> None:
    """Refuse a number of ranks that KV heads can neither be dealt to evenly nor be copied to.

    Raises:
        UsageError: neither divides the other.
    """
    for heads in sorted({group.kv_shards for group in llm.groups}):
        if heads % tp and tp % heads:
            fits = [
                str(n) for n in range(1, 2 * max(heads, tp) + 1) if not (heads % n and n % heads)
            ]
            raise UsageError(
                "KVT-C066",
                f"{heads} KV heads of {llm.name} cannot be shared by {tp} ranks",
                cause="engines give each rank the same number of whole heads, or each head the "
                "same number of ranks",
                hint=f"`--tp` with one of {', '.join(fits)}",
            )


def require_stages(llm: LlmShape, pp: int) -> None:
    """Refuse more pipeline stages than the LLM has layers.

    Raises:
        UsageError: a stage would hold no layer.
    """
    if pp > llm.layers:
        raise UsageError(
            "KVT-C068",
            f"{llm.layers} layers of {llm.name} cannot fill {pp} pipeline stages",
            cause="each stage holds one layer at least",
            hint=f"`--pp` of at most {llm.layers}",
        )


def require_kv_dtype(llm: LlmShape, kv_dtype: str) -> str:
    """The name of the KV format here.

    Raises:
        UsageError: it is not known, or a layout that the LLM's KV does not have.
    """
    name = normalise_dtype(kv_dtype)
    if name == "fp8_ds_mla" and not any(group.has_scaled_layout for group in llm.groups):
        raise UsageError(
            "KVT-C069",
            f"KV of {llm.name} cannot be in `fp8_ds_mla`",
            cause=f"it is the layout of a latent or an indexer, and the LLM has {llm.attention}",
            hint="use `--kv-dtype fp8`",
        )
    return name


@dataclass(frozen=True, slots=True)
class KvPlacement:
    """How the ranks of an instance share the KV of one sequence."""

    tp: int = 1
    """Tensor-parallel ranks."""
    pp: int = 1
    """Pipeline stages; each holds a part of the layers."""
    has_dp_attention: bool = False
    """Attention is data-parallel: a sequence's KV lies whole on one rank of each stage."""

    def __post_init__(self) -> None:
        for name, value in (("--tp", self.tp), ("--pp", self.pp)):
            if value < 1:
                raise UsageError("KVT-C063", f"`{name} {value}` is not above zero")

    @property
    def attention_tp(self) -> int:
        """Ranks of a stage that hold KV of one sequence."""
        return 1 if self.has_dp_attention else self.tp

    @property
    def ranks(self) -> int:
        """GPUs of the instance."""
        return self.tp * self.pp

    def copies(self, group: KvGroup) -> float:
        """Copies of each entry of a group."""
        return group.replicas(self.attention_tp)

    def bytes_all_ranks(
        self, llm: LlmShape, tokens: int, *, kv_dtype: str, block_size_tokens: int | None = None
    ) -> int:
        """Bytes of the KV of `tokens` over all ranks, copies included."""
        return llm.kv_bytes(
            tokens, kv_dtype=kv_dtype, tp=self.attention_tp, block_size_tokens=block_size_tokens
        )

    def bytes_fullest_rank(
        self, llm: LlmShape, tokens: int, *, kv_dtype: str, block_size_tokens: int | None = None
    ) -> int:
        """Bytes on the rank that holds most.

        Formula: sum over groups of ceil(layers / pp) x tokens_g(n) x entry_bytes / min(tp, shards).
        Assumes: the layers of each kind are spread evenly over the stages, and a state over ranks.
        """
        if tokens <= 0:
            return 0
        if block_size_tokens is not None:
            tokens = -(-tokens // block_size_tokens) * block_size_tokens
        total = math.fsum(
            math.ceil(group.layers / self.pp)
            * group.entry_bytes(kv_dtype)
            / group.tokens_per_entry
            / min(self.attention_tp, group.kv_shards)
            * group.kept_tokens(tokens)
            for group in llm.groups
        )
        stages = math.ceil(llm.recurrent_layers / self.pp) / max(llm.recurrent_layers, 1)
        return math.ceil(total + llm.state_bytes * stages / self.attention_tp)
