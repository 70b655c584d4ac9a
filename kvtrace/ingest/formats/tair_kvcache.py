"""Traces of tair-kvcache's optimizer: JSON lines, one look-up or write of KV blocks each.

Shape read from alibaba/tair-kvcache (`kv_cache_manager/optimizer`, schema traces of 2025 and 2026):
`timestamp_us` or `timestamp_ns`, `keys` (signed 64-bit hashes of prefixes), `input_len`,
`output_len`, `total_keys` (with the reply's blocks), `query_type`, `instance_id`, `trace_id`. Keys
mean the same inside one instance. A line with neither query type nor output length is a write.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np
import xxhash

from kvtrace.ingest.blocks.size import judge_blocks
from kvtrace.ingest.clocks import INT64_MAX
from kvtrace.ingest.contract import Format, Guess, Head, ReadContext, Record, RequestRow, Row
from kvtrace.ingest.values.jsonfields import (
    MAX_UINT64,
    Ignored,
    count_of,
    decode_json,
    flag_lengths,
    json_record_rows,
)
from kvtrace.ingest.values.rawvalues import id_of
from kvtrace.units import NS_PER_US

_EPOCH_FROM_NS: Final = 10**17
"""From here on a time is a date (1973)."""
_OTHER_QUERIES: Final = frozenset({"batch_get", "reverse_roll_sw_match"})
"""Look-ups of single blocks or of windows: not a prompt from its start."""


class _Line(msgspec.Struct, gc=False):
    keys: list[int]
    timestamp_us: int | None = None
    timestamp_ns: int | None = None
    input_len: int | None = None
    output_len: int | None = None
    query_type: str | None = None
    instance_id: str | int | None = None
    trace_id: str | int | None = None


_DECODER: Final = msgspec.json.Decoder(_Line)


class _TairFile:
    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._masks: dict[str, int] = {}
        self._is_dated: bool | None = None
        self.lengths, self.counts = array("q"), array("q")

    def rows(self, record: Record) -> list[RequestRow] | Ignored:
        """The request of one look-up.

        Raises:
            msgspec.ValidationError: a field is missing, of the wrong type, or out of range.
            msgspec.DecodeError: not JSON.
        """
        raw = decode_json(_DECODER, record.data)
        if raw.query_type is None and raw.output_len is None:
            return Ignored("write")
        if raw.query_type in _OTHER_QUERIES:
            return Ignored("lookup_of_pieces")
        instance = id_of(raw.instance_id)
        arrived_at_ns = self._arrival(raw)
        length = None if raw.input_len == -1 else raw.input_len  # -1: not known
        row = RequestRow(
            offset=record.offset,
            line=record.line,
            request_id=id_of(raw.trace_id),
            tenant=instance,
            arrived_at_ns=arrived_at_ns,
            prompt_tokens=count_of("input_len", length),
            output_tokens=count_of("output_len", raw.output_len),
            block_keys=self._keys(raw.keys, instance),
        )
        flag_lengths(row)
        if row.prompt_tokens is not None:
            self.lengths.append(row.prompt_tokens)
            self.counts.append(len(raw.keys))
        return [row]

    def _keys(self, keys: list[int], instance: str | None) -> list[int]:
        """Unsigned keys; those of different instances are kept apart."""
        if keys and not (min(keys) >= -INT64_MAX - 1 and max(keys) <= MAX_UINT64):
            raise msgspec.ValidationError("`keys` holds a key outside 64 bits")
        name = instance or ""
        mask = self._masks.get(name)
        if mask is None:
            mask = self._masks[name] = xxhash.xxh3_64_intdigest(name.encode()) if self._masks else 0
        return [(key & MAX_UINT64) ^ mask for key in keys]

    def _arrival(self, raw: _Line) -> int | None:
        if raw.timestamp_ns is not None:
            ns = raw.timestamp_ns
        elif raw.timestamp_us is not None:
            ns = raw.timestamp_us * NS_PER_US
        else:
            return None
        if not 0 <= ns <= INT64_MAX:
            raise msgspec.ValidationError("the timestamp is negative or past 64 bits of ns")
        is_date = ns >= _EPOCH_FROM_NS
        if self._is_dated not in (None, is_date):
            raise msgspec.ValidationError("the timestamp is on another clock than the file's")
        self._is_dated = is_date
        return ns

    def describe(self) -> None:
        """Write down clock and blocks."""
        context = self._context
        context.block_scope = "file"
        if self._is_dated is not None:
            context.clock = "utc" if self._is_dated else "relative"
            whence = "the epoch" if self._is_dated else "the start of the trace"
            context.clock_reason = f"timestamps count from {whence}"
        judge_blocks(
            context,
            np.frombuffer(self.lengths, dtype=np.int64),
            np.frombuffer(self.counts, dtype=np.int64),
            column="input_len",
        )


def _read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    file = _TairFile(context)
    yield from json_record_rows(records, context.tally, file.rows)
    file.describe()


def _sniff(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum("keys" in entry and _has_time(entry) for entry in objects)
    if not ours or 2 * ours < len(objects):
        return None
    return Guess(0.96, f"{ours} of {len(objects)} objects have keys and timestamp_us")


def _has_time(entry: dict[str, object]) -> bool:
    return "timestamp_us" in entry or ("timestamp_ns" in entry and "instance_id" in entry)


FORMATS: tuple[Format, ...] = (
    Format(
        name="tair_kvcache",
        title="tair-kvcache optimizer trace (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "tenant",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "block_keys",
        ),
        missing={
            "cached_tokens": "the keys say what could be reused; usage logs with cached_tokens"
            " (vLLM: --enable-prompt-tokens-details)",
            "ttft": "request spans (vLLM: --otlp-traces-endpoint) or a gateway log",
            "sessions": "a trace with session ids",
        },
        versions="alibaba/tair-kvcache optimizer, schema traces with timestamp_us (2025) and"
        " timestamp_ns (2026)",
        sniff=_sniff,
        read=_read,
        enable_hint="convert the publisher log of Tair KVCache Manager with its"
        " trace_converter; `--block-size` states the tokens a key",
    ),
)
