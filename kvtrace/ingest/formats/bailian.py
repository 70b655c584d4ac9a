"""Qwen-Bailian traces: JSON lines with per-block content hashes of 16 tokens.

Read from the public qwen-bailian-usagetraces-anon files (traceA, traceB, thinking, coder). Unlike
Mooncake's, these ids name the content of one block and not the prefix that ends in it: the same id
behind another prefix is not reusable. So the ids are chained here, key = hash(previous key, id).
The last block is padded and seldom recurs: it counts as a partial tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.blocks.ids import BlockIds, chain_content_ids
from kvtrace.ingest.clocks import seconds_resolution_ns, seconds_to_ns
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow
from kvtrace.ingest.families.json_rows import json_rows
from kvtrace.ingest.values.limits import MAX_COUNT

BLOCK_SIZE_TOKENS: Final = 16
_NO_PARENT: Final = -1
_UINT64_MAX: Final = (1 << 64) - 1
_MISMATCH_SHARE: Final = 0.01
"""Share of rows whose block count may disagree with 16 tokens a block before it is noted."""


class _BailianRow(msgspec.Struct, gc=False):
    chat_id: int
    parent_chat_id: int
    timestamp: Decimal
    input_length: int
    output_length: int
    turn: int | None = None
    type: str | None = None
    hash_ids: list[int | str] | None = None


_DECODER: Final = msgspec.json.Decoder(_BailianRow, strict=False)


class _Conversations:
    """Roots of parent chains, as far as the file has shown them."""

    def __init__(self) -> None:
        self._root_of: dict[int, int] = {}
        self._root_below: dict[int, int] = {}  # parent not seen -> root of its first child

    def root(self, chat_id: int, parent_id: int) -> tuple[int, str | None]:
        """The root of this chat, and a flag if its parent chain is not all in the file.

        A chat whose parent is outside the sample is its own root; later chats with the same missing
        parent belong to it.
        """
        flag = None
        if parent_id == _NO_PARENT:
            root = self._root_below.get(chat_id, chat_id)
        elif parent_id in self._root_of:
            root = self._root_of[parent_id]
        else:
            root = self._root_below.setdefault(parent_id, chat_id)
            flag = "parent_outside_sample"
        self._root_of[chat_id] = root
        return root, flag


class _BailianFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._conversations = _Conversations()
        self._block_size = context.block_size_tokens or BLOCK_SIZE_TOKENS
        self.ids = BlockIds()
        self.with_blocks = 0
        self.mismatches = 0

    def row(self, record: Record) -> RequestRow:
        """The request of one record.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        raw = _DECODER.decode(record.data)
        _check_range("input_length", raw.input_length)
        _check_range("output_length", raw.output_length)
        root, parent_flag = self._conversations.root(raw.chat_id, raw.parent_chat_id)
        flags = [] if raw.input_length else ["zero_prompt"]
        if parent_flag is not None:
            flags.append(parent_flag)
        return RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=str(raw.chat_id),
            session_id=str(root),
            parent_id=None if raw.parent_chat_id == _NO_PARENT else str(raw.parent_chat_id),
            turn=raw.turn - 1 if raw.turn else None,
            request_type=raw.type,
            arrived_at_ns=self._arrival(raw.timestamp),
            prompt_tokens=raw.input_length,
            output_tokens=raw.output_length,
            block_keys=self._keys(raw, flags),
            flags=tuple(flags),
        )

    def _keys(self, raw: _BailianRow, flags: list[str]) -> list[int] | None:
        if raw.hash_ids is None:
            flags.append("no_block_ids")
            return None
        self.with_blocks += 1
        if len(raw.hash_ids) != -(-raw.input_length // self._block_size):
            self.mismatches += 1
            flags.append("block_count_mismatch")
            return None
        self.ids.count(raw.hash_ids)
        return chain_content_ids(map(self._content_id, raw.hash_ids))

    def _content_id(self, content_id: int | str) -> int:
        number = self.ids.text_key(content_id) if isinstance(content_id, str) else content_id
        if not 0 <= number <= _UINT64_MAX:
            raise msgspec.ValidationError("`hash_ids` holds an id outside 64 bits")
        return number

    def _arrival(self, timestamp: Decimal) -> int:
        """Nanoseconds on the trace's clock, which rotated files share."""
        time_ns = seconds_to_ns(timestamp)
        if time_ns is None:
            raise msgspec.ValidationError("`timestamp` is not a time in seconds")
        resolution = seconds_resolution_ns(timestamp)
        known = self._context.clock_resolution_ns
        self._context.clock_resolution_ns = min(known or resolution, resolution)
        return time_ns


def _check_range(name: str, value: int) -> None:
    if not 0 <= value <= MAX_COUNT:
        raise msgspec.ValidationError(f"`{name}` is negative or larger than any count")


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[RequestRow]:
    file = _BailianFile(context)
    context.clock, context.clock_reason = "relative", "timestamp counts seconds from the start"
    context.block_ids, context.block_scope, context.partial_tail = (
        "content_chained",
        "file",
        "counted",
    )
    context.found_block_size_tokens = context.block_size_tokens or BLOCK_SIZE_TOKENS
    yield from json_rows(records, context.tally, file.row)
    file.ids.judge(context)
    _describe_blocks(file, context)


def _describe_blocks(file: _BailianFile, context: ReadContext) -> None:
    size = context.found_block_size_tokens
    fit = file.with_blocks - file.mismatches
    whence = "--block-size" if context.block_size_tokens else "the data set's definition"
    context.block_size_reason = (
        f"{size} from {whence}; ceil(input_length / {size}) is the number of ids"
        f" in {fit} of {file.with_blocks} rows"
    )
    if file.with_blocks == 0:
        context.evidence_grade = "L"
    elif file.mismatches > _MISMATCH_SHARE * file.with_blocks:
        context.note(
            "block_size_mismatch",
            f"{file.mismatches} of {file.with_blocks} rows do not have one id for every {size}"
            " tokens; they are kept without blocks.",
        )


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    if not objects:
        return None
    ours = sum("chat_id" in item and "parent_chat_id" in item for item in objects)
    if 2 * ours < len(objects):
        return None
    confidence = 0.6 + 0.38 * ours / len(objects)
    return Guess(confidence, f"{ours} of {len(objects)} records have chat_id and parent_chat_id")


FORMATS: tuple[Format, ...] = (
    Format(
        name="bailian",
        title="Qwen-Bailian usage trace (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "session_id",
            "parent_id",
            "turn",
            "request_type",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "block_keys",
        ),
        missing={
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "request spans (vLLM: --otlp-traces-endpoint) or a gateway log",
        },
        versions="alibaba-edu/qwen-bailian-usagetraces-anon: traceA, traceB, thinking, coder",
        sniff=_sniff,
        read=_read,
        enable_hint="a public data set; for your own service, hash prompt blocks of 16 tokens in"
        " the gateway and write the same keys",
    ),
)
