"""LMCache's hash traces: JSON lines with the chunk hashes of each lookup, chained over the prompt.

Lines read from the sources of LMCache: `lookup_hashes_*.jsonl` of the multiprocess server (0.4.7,
0.5.6), `chunk_hashes_*.jsonl` of the in-process chunk statistics (0.3.7 to 0.3.13), which state
neither length nor chunk size. Only full chunks are hashed: the rest of a prompt is in no chunk.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.values.jsonfields import (
    MAX_UINT64,
    Ignored,
    count_of,
    decode_json,
    flag_lengths,
    instant_ns,
    json_record_rows,
    keys_of,
)
from kvtrace.units import NS_PER_S

DEFAULT_CHUNK_TOKENS: Final = 256
"""LMCache's chunk size unless it is configured otherwise (LMCacheEngineConfig, 0.3 to 0.5)."""
_MAX_CHUNK_TOKENS: Final = 1 << 20
_MAX_CHUNK_BYTES: Final = 1 << 44
_HEX: Final = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,128})")
_DIGITS_OF_64_BITS: Final = 16
_DTYPE_BYTES: Final = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "half": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "fp8": 1,
    "int8": 1,
    "uint8": 1,
}
_REPEAT_NS: Final = 60 * NS_PER_S
"""An equal lookup of the same id within this is the engine asking again, not another request."""
_MAX_REMEMBERED: Final = 50_000


class _Lookup(msgspec.Struct, gc=False):
    chunk_hashes: list[int | str]
    timestamp: Decimal | None = None
    request_id: str | int | None = None
    lookup_id: str | int | None = None
    model_name: str | None = None
    chunk_size: int | None = None
    seq_len: int | None = None
    dtypes: list[str] | None = None
    shapes: list[list[int]] | None = None


_DECODER: Final = msgspec.json.Decoder(_Lookup, strict=False)


class _Repeats:
    """The last lookups by id, to tell a lookup that is asked again."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int | None, int, int]] = {}

    def is_repeat(self, request_id: str, at_ns: int, row: RequestRow) -> bool:
        """Whether the same id looked the same chunks up shortly before."""
        keys = row.block_keys or []
        said = (row.prompt_tokens, len(keys), keys[-1] if keys else 0)
        known = self._last.get(request_id)
        if known is not None and known[1:] == said and abs(at_ns - known[0]) <= _REPEAT_NS:
            return True
        if len(self._last) >= _MAX_REMEMBERED:
            self._last = {
                key: last for key, last in self._last.items() if at_ns - last[0] <= _REPEAT_NS
            }
        if len(self._last) < _MAX_REMEMBERED:
            self._last[request_id] = (at_ns, *said)
        return False


class _HashTrace:
    """The state of one file."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._repeats = _Repeats()
        self._chunk_tokens: int | None = None
        self.with_size = 0
        self.other_sizes = 0
        self.without_size = 0

    def rows(self, record: Record) -> list[Row] | Ignored:
        """The request of one lookup.

        Raises:
            msgspec.DecodeError: not JSON, or a field is missing, of the wrong type, out of range.
        """
        raw = decode_json(_DECODER, record.data)
        flags: list[str] = []
        given_id = raw.lookup_id if raw.request_id is None else raw.request_id
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=None if given_id is None else str(given_id),
            llm=raw.model_name,
            arrived_at_ns=instant_ns("timestamp", raw.timestamp, self._context),
            prompt_tokens=count_of("seq_len", raw.seq_len),
            block_keys=[self._key(item) for item in raw.chunk_hashes],
        )
        if not self._is_of_this_size(raw.chunk_size):
            flags.append("other_block_size")
            row.block_keys = None
        row.flags = tuple(flags)
        flag_lengths(row)
        self._learn_bytes(raw)
        at_ns = row.arrived_at_ns
        if row.request_id is None or at_ns is None:
            return [row]
        if self._repeats.is_repeat(row.request_id, at_ns, row):
            return Ignored("repeated_lookup")
        return [row]

    def _key(self, item: int | str) -> int:
        """The key of a chunk: its 64-bit hash, or a keyed 64-bit hash of a longer one."""
        if isinstance(item, int):
            if not -(1 << 63) <= item <= MAX_UINT64:
                raise msgspec.ValidationError("`chunk_hashes` holds a number outside 64 bits")
            return item & MAX_UINT64
        match = _HEX.fullmatch(item)
        if match is None:
            raise msgspec.ValidationError("`chunk_hashes` holds a text that is no hexadecimal")
        digits = match[1].lower()
        if len(digits) <= _DIGITS_OF_64_BITS:
            return int(digits, 16)
        key = self._context.token_key or b""
        return int.from_bytes(hashlib.blake2b(digits.encode(), digest_size=8, key=key).digest())

    def _is_of_this_size(self, chunk_tokens: int | None) -> bool:
        if chunk_tokens is None:
            self.without_size += 1
            return True
        if not 0 < chunk_tokens <= _MAX_CHUNK_TOKENS:
            raise msgspec.ValidationError("`chunk_size` is no chunk size")
        if self._chunk_tokens is None:
            self._chunk_tokens = chunk_tokens
        is_same = chunk_tokens == self._chunk_tokens
        self.with_size += is_same
        self.other_sizes += not is_same
        return is_same

    def _learn_bytes(self, raw: _Lookup) -> None:
        """Keep the KV bytes a token that the first record with dtypes and shapes implies."""
        facts = self._context.engine_facts
        if "kv_bytes_per_token" in facts or raw.chunk_size is None:
            return
        chunk_bytes = _chunk_bytes(raw.dtypes or [], raw.shapes or [])
        if chunk_bytes is not None and chunk_bytes % raw.chunk_size == 0:
            facts["kv_bytes_per_token"] = chunk_bytes // raw.chunk_size

    def describe(self) -> None:
        """Write down clock and chunk size, and how they were found."""
        context = self._context
        if context.clock_resolution_ns is not None:
            context.clock, context.clock_reason = "utc", "timestamp is in epoch seconds"
        if self._chunk_tokens is not None:
            size, whence = self._chunk_tokens, f"chunk_size of {self.with_size} rows"
        elif context.block_size_tokens is not None:
            size, whence = context.block_size_tokens, "--block-size"
        else:
            size, whence = DEFAULT_CHUNK_TOKENS, "LMCache's default; no row states it"
            context.note(
                "block_size_assumed",
                f"No row states its chunk size; LMCache's default of {DEFAULT_CHUNK_TOKENS} tokens"
                " is assumed (--block-size states another).",
                severity="warning",
            )
        context.found_block_size_tokens, context.block_size_reason = size, f"{size} from {whence}"
        if self.without_size and self._chunk_tokens is not None:
            context.note(
                "block_size_of_other_rows",
                f"{self.without_size} rows state no chunk size; that of the others is taken.",
            )
        if self.other_sizes:
            context.note(
                "other_block_size",
                f"{self.other_sizes} rows have another chunk size than the first ({size} tokens);"
                " they are kept without blocks.",
                severity="warning",
            )


def _chunk_bytes(dtypes: list[str], shapes: list[list[int]]) -> int | None:
    """Bytes of one chunk over its layer groups; None if a dtype or a shape is not understood."""
    if not shapes or len(dtypes) not in (1, len(shapes)):
        return None
    widths = [_DTYPE_BYTES.get(name.removeprefix("torch.").lower()) for name in dtypes]
    if len(widths) == 1:
        widths *= len(shapes)
    total = 0
    for width, shape in zip(widths, shapes, strict=True):
        if width is None or len(shape) > 8 or not all(0 < side < 1 << 32 for side in shape):
            return None
        total += width * math.prod(shape)
    return total if total <= _MAX_CHUNK_BYTES else None


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    trace = _HashTrace(context)
    context.engine = "lmcache"
    context.block_ids, context.block_scope, context.partial_tail = "chained", "global", "dropped"
    yield from json_record_rows(records, context.tally, trace.rows)
    trace.describe()


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(_is_ours(keys_of(item)) for item in objects)
    if ours == 0 or 2 * ours < len(objects):
        return None
    return Guess(
        0.7 + 0.28 * ours / len(objects),
        f"{ours} of {len(objects)} records have LMCache's chunk_hashes of a lookup",
    )


def _is_ours(keys: frozenset[str]) -> bool:
    return "chunk_hashes" in keys and bool(keys & {"lookup_id", "request_id"})


FORMATS: tuple[Format, ...] = (
    Format(
        name="lmcache_hashes",
        title="LMCache lookup-hash and chunk-hash trace (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=("request_id", "llm", "arrived_at_ns", "prompt_tokens", "block_keys"),
        missing={
            "prompt_tokens": "the multiprocess server's lookup trace"
            " (lmcache server --lookup-hash-log-dir DIR), which has seq_len",
            "cached_tokens": "LMCache's log at INFO (`Reqid: …, LMCache hit tokens: …`)",
            "ttft": "the engine's own log (vLLM: --otlp-traces-endpoint)",
            "moves": "LMCache's log at INFO (`Retrieved … cost … ms`)",
        },
        versions="LMCache 0.4.7 and 0.5.6 lookup hash logger; 0.3.7 to 0.3.13 chunk statistics"
        " with strategy file_hash",
        sniff=_sniff,
        read=_read,
        enable_hint="lmcache server --lookup-hash-log-dir DIR (multiprocess); in process:"
        " enable_chunk_statistics: true with strategy file_hash",
    ),
)
