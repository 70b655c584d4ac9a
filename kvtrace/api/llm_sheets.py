"""The verb `llm`: the shapes of LLMs, as a list and as a sheet."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from kvtrace.api.query_results import to_json
from kvtrace.cost.experts import Experts
from kvtrace.cost.hf.config import from_hf_text
from kvtrace.cost.llm import LlmShape
from kvtrace.cost.llms import list_llms, load_llm
from kvtrace.cost.placement import (
    KvPlacement,
    require_block_size,
    require_kv_dtype,
    require_stages,
    require_whole_heads,
)
from kvtrace.report.text.table import fitted_table
from kvtrace.units import format_bytes, format_flops

SHEET_LENGTHS: Final = tuple(1 << exponent for exponent in range(10, 21))
"""Tokens of the rows of a sheet: 1 Ki to 1 Mi."""
NEW_TOKENS: Final = 1000
"""New tokens of the column that shows what is left to compute after a hit."""
_BILLION: Final = 1e9


@dataclass(frozen=True, slots=True)
class LlmListing:
    """The built-in shapes."""

    shapes: tuple[LlmShape, ...]

    def to_json(self) -> str:
        """The document of `kvtrace llm --json`."""
        return to_json({"llms": [_shape_document(shape) for shape in self.shapes]})

    def lines(self, width: int | None = None) -> list[str]:
        """A row a shape, for people."""
        header = ("llm", "family", "layers", "KV/token", "state", "parameters")
        rows = [
            (
                shape.name,
                shape.family,
                shape.layers,
                format_bytes(shape.cached_token_bytes(), digits=3),
                format_bytes(shape.state_bytes, digits=3) if shape.state_bytes else "-",
                _parameters(shape),
            )
            for shape in self.shapes
        ]
        return [
            fitted_table(header, rows, width),
            "",
            *_wrapped(
                "KV/token: bf16, one copy, beyond all windows. State: of one sequence, whatever "
                "its length. Parameters: all (those of one token). `kvtrace llm NAME` prints the "
                "sheet of one; a Hugging Face config.json works too.",
                width,
            ),
        ]


@dataclass(frozen=True, slots=True)
class LengthRow:
    """What one length takes; FLOPs are null where they are not known."""

    tokens: int
    kv_bytes_all_ranks: int
    """Copies included."""
    kv_bytes_fullest_rank: int
    prefill_flops: float | None
    """Of `tokens` new ones after none."""
    flops_of_1000_new_after: float | None
    """Of 1 000 new ones after `tokens` cached ones."""


@dataclass(frozen=True, slots=True)
class LlmSheet:
    """Everything that the cost model takes from one shape, for one placement."""

    shape: LlmShape
    placement: KvPlacement
    kv_dtype: str
    block_size_tokens: int | None

    def to_json(self) -> str:
        """The document of `kvtrace llm NAME --json`: exact bytes and FLOPs."""
        shape = self.shape
        return to_json(
            {
                **_shape_document(shape),
                "kv_dtype": self.kv_dtype,
                "tp": self.placement.tp,
                "pp": self.placement.pp,
                "dp_attention": self.placement.has_dp_attention,
                "block_size_tokens": self.block_size_tokens,
                "checkpoint_tokens": shape.checkpoint_tokens(self.kv_dtype),
                "kv_bytes_per_token": shape.cached_token_bytes(
                    self.kv_dtype, self.placement.attention_tp
                ),
                "groups": [self._group_document(index) for index in range(len(shape.groups))],
                "lengths": [asdict(self._length(tokens)) for tokens in SHEET_LENGTHS],
            }
        )

    def lines(self, width: int | None = None) -> list[str]:
        """The sheet, for people."""
        shape, placement = self.shape, self.placement
        stage = " · DP attention" if placement.has_dp_attention else ""
        block = f" · blocks of {self.block_size_tokens}" if self.block_size_tokens else ""
        head = (
            f"{shape.name} · {shape.family} · {shape.attention}",
            f"{shape.layers} layers · hidden {shape.hidden:,} · vocabulary {shape.vocab:,}",
            f"parameters {_billions(shape.parameters)} · per token "
            f"{_billions(shape.active_parameters)} · without embeddings {self._nonembed()} · "
            f"published in {shape.native_weight_dtype}",
            *((_experts(shape.experts),) if shape.experts is not None else ()),
            f"KV in {self.kv_dtype} · TP{placement.tp} · PP{placement.pp}{stage}{block}",
        )
        return [
            *(line for text in head for line in _wrapped(text, width)),
            "",
            self._groups_table(width),
            "",
            *self._state_lines(width),
            self._lengths_table(width),
            "",
            *_wrapped(
                "All ranks: copies included. Fullest rank: layers spread evenly over the stages. "
                f"FLOPs n|p: of n new tokens after p cached ones; {NEW_TOKENS:,}|p is what a hit "
                "of p tokens leaves to compute.",
                width,
            ),
            *_wrapped(f"source ({shape.kind}): {shape.source} {shape.as_of}".rstrip(), width),
        ]

    def _nonembed(self) -> str:
        known = self.shape.active_nonembed_parameters
        return "unknown" if known is None else _billions(known)

    def _groups_table(self, width: int | None) -> str:
        header = (
            "group", "layers", "keeps", "entry", "tokens/entry", "KV a token", "copies",
            "FLOPs a pair", "attends",
        )  # fmt: skip
        rows = [
            (
                group.group,
                group.layers,
                "all" if group.window_tokens is None else f"{group.window_tokens:,} tokens",
                format_bytes(group.entry_bytes(self.kv_dtype)),
                group.tokens_per_entry,
                format_bytes(group.bytes_per_token(self.kv_dtype)),
                f"{self.placement.copies(group):g}",
                "unknown" if group.pair_flops is None else f"{group.pair_flops:,.0f}",
                "all" if group.pair_window_tokens is None else f"{group.pair_window_tokens:,} keys",
            )
            for group in self.shape.groups
        ]
        return fitted_table(header, rows, width)

    def _state_lines(self, width: int | None) -> list[str]:
        every = self.shape.checkpoint_tokens(self.kv_dtype)
        if every is None:
            return []
        text = (
            f"State: {format_bytes(self.shape.state_bytes)} a sequence in "
            f"{self.shape.recurrent_layers} layers. A hit goes on from a checkpoint: every "
            f"{every:,} tokens where a cache keeps states and KV in pages of one size."
        )
        return [*_wrapped(text, width), ""]

    def _lengths_table(self, width: int | None) -> str:
        header = (
            "tokens", "KV, all ranks", "KV, fullest rank", "KV of a token",
            "FLOPs tokens|0", f"FLOPs {NEW_TOKENS:,}|tokens",
        )  # fmt: skip
        rows = [
            (
                row.tokens,
                format_bytes(row.kv_bytes_all_ranks),
                format_bytes(row.kv_bytes_fullest_rank),
                format_bytes(row.kv_bytes_all_ranks / row.tokens),
                _flops(row.prefill_flops),
                _flops(row.flops_of_1000_new_after),
            )
            for row in map(self._length, SHEET_LENGTHS)
        ]
        return fitted_table(header, rows, width)

    def _length(self, tokens: int) -> LengthRow:
        shape, kv_dtype, block = self.shape, self.kv_dtype, self.block_size_tokens
        place = self.placement
        return LengthRow(
            tokens=tokens,
            kv_bytes_all_ranks=place.bytes_all_ranks(
                shape, tokens, kv_dtype=kv_dtype, block_size_tokens=block
            ),
            kv_bytes_fullest_rank=place.bytes_fullest_rank(
                shape, tokens, kv_dtype=kv_dtype, block_size_tokens=block
            ),
            prefill_flops=shape.prefill_flops(tokens, 0) if shape.knows_flops else None,
            flops_of_1000_new_after=shape.prefill_flops(NEW_TOKENS, tokens)
            if shape.knows_flops
            else None,
        )

    def _group_document(self, index: int) -> dict[str, object]:
        group = self.shape.groups[index]
        return {
            **asdict(group),
            "entry_bytes": group.entry_bytes(self.kv_dtype),
            "kv_bytes_per_token_one_copy": group.bytes_per_token(self.kv_dtype),
            "copies": self.placement.copies(group),
        }


def llm(
    name: str | None = None,
    *,
    text: str | None = None,
    tp: int = 1,
    pp: int = 1,
    dp_attention: bool = False,
    kv_dtype: str | None = None,
    block_size: int | None = None,
) -> LlmListing | LlmSheet:
    """All built-in shapes, or the sheet of a name, a config.json (file or folder) or its `text`.

    Raises:
        UsageError: an unknown name (with close ones), a config that cannot be used, or a placement
            that is none.
    """
    if name is None and text is None:
        return LlmListing(tuple(load_llm(known) for known in list_llms()))
    shape = load_llm(name or "") if text is None else from_hf_text(text)
    placement = KvPlacement(tp, pp, dp_attention)
    require_whole_heads(shape, placement.attention_tp)
    require_stages(shape, pp)
    return LlmSheet(
        shape=shape,
        placement=placement,
        kv_dtype=require_kv_dtype(shape, kv_dtype or shape.native_kv_dtype),
        block_size_tokens=require_block_size(block_size),
    )


def _shape_document(shape: LlmShape) -> dict[str, object]:
    return {
        "name": shape.name,
        "family": shape.family,
        "attention": shape.attention,
        "layers": shape.layers,
        "recurrent_layers": shape.recurrent_layers,
        "hidden": shape.hidden,
        "vocab": shape.vocab,
        "parameters": shape.parameters,
        "active_parameters": shape.active_parameters,
        "active_nonembed_parameters": shape.active_nonembed_parameters,
        "experts": None if shape.experts is None else asdict(shape.experts),
        "native_weight_dtype": shape.native_weight_dtype,
        "kv_bytes_per_token_bf16": shape.cached_token_bytes(),
        "state_bytes": shape.state_bytes,
        "kind": shape.kind,
        "source": shape.source,
        "as_of": shape.as_of,
    }


def _experts(experts: Experts) -> str:
    shared = f" and {experts.shared} shared" if experts.shared else ""
    return (
        f"experts {experts.routed} in each of {experts.layers} layers · {experts.active} a token"
        f"{shared} · {experts.width:,} wide"
    )


def _parameters(shape: LlmShape) -> str:
    """All parameters, and in brackets those of one token where they are fewer."""
    total, active = (_three(count) for count in (shape.parameters, shape.active_parameters))
    return f"{total} ({active}) B" if shape.is_moe else f"{total} B"


def _three(parameters: float) -> str:
    """Thousand millions to three digits, never as a power."""
    count = parameters / _BILLION
    return f"{count:,.0f}" if count >= 1000 else f"{count:.3g}"


def _billions(parameters: float) -> str:
    return f"{parameters / _BILLION:,.4g} B"


def _flops(value: float | None) -> str:
    return "unknown" if value is None else format_flops(value)


def _wrapped(text: str, width: int | None) -> Sequence[str]:
    return textwrap.wrap(text, width or 100)
