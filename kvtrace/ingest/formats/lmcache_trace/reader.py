"""Reads the calls of an LMCache trace: look-ups become requests, writes and reads block changes.

A look-up lists the chunks of a whole prompt in order. A write that ends makes its chunks readable
in host memory (L1); what LMCache moves by itself, between L1 and L2 or out of L1, is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

import msgspec

from kvtrace.ingest.contract import (
    BlockEventRow,
    ReadContext,
    Record,
    RequestRow,
    Row,
    TransferRow,
)
from kvtrace.ingest.formats.lmcache_trace.frames import (
    FORMAT_VERSION,
    MAGIC,
    Call,
    Header,
    ObjectKey,
    argument,
    chunk_key,
    decode_frame,
    object_bytes,
    object_keys,
    wall_ns,
)
from kvtrace.units import NS_PER_S, NS_PER_US

DEFAULT_CHUNK_TOKENS: Final = 256
_OWNER: Final = "StorageManager."
_REPEAT_NS: Final = 60 * NS_PER_S
"""The same look-up of an id within this is the engine asking again."""
_MAX_REMEMBERED: Final = 50_000
_MAX_GROUPS: Final = 256
_ENDS: Final = frozenset({"read_prefetched_results.__exit__", "finish_read_prefetched"})


class _UnknownVersionError(Exception):
    """The header names a version whose frames nobody here has read."""


class _Ignored(Exception):
    """The call carries nothing wanted; the text is the reason."""


class TraceFile:
    """The state of one file."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._run_key = context.token_key or b""
        self._is_readable = True
        self._object_bytes: dict[int, int | None] = {}
        self._last: dict[str, tuple[int, int, int]] = {}
        self._lowest: tuple[int, int] | None = None
        self._ranks: set[int] = set()
        self._left_out = 0
        self._requests = 0

    def rows(self, record: Record) -> list[Row]:
        """The rows of one frame, which gets its outcome here."""
        tally = self._context.tally
        rows: list[Row] = []
        try:
            if not record.terminated:
                raise msgspec.DecodeError("the file ends inside the frame")
            frame = decode_frame(record.data)
            if isinstance(frame, Header):
                self._header(frame)
            if not self._is_readable:
                raise _UnknownVersionError
            if isinstance(frame, Call):
                rows = self._call(frame, record)
        except _Ignored as ignored:
            tally.ignore(str(ignored))
        except _UnknownVersionError:
            tally.reject(record, "unknown_version", "`format_version` is not 1")
        except msgspec.ValidationError as bad:
            tally.reject(record, "invalid_field", str(bad).partition(" - at ")[0])
        except msgspec.DecodeError:
            tally.reject(record, "damaged_line", "not a frame")
        else:
            tally.use()
        return rows

    def _header(self, header: Header) -> None:
        if header.magic not in (MAGIC, MAGIC.encode()):
            raise msgspec.ValidationError("`magic` is not that of a trace")
        self._is_readable = header.format_version == FORMAT_VERSION
        if self._is_readable:
            if header.lmcache_version not in ("", "unknown"):
                self._context.engine_version = header.lmcache_version[:40]
                self._context.engine_version_reason = "in the header of the trace"
            raise _Ignored("header")

    def _call(self, call: Call, record: Record) -> list[Row]:
        name = call.qualname.rpartition(_OWNER)[2]
        if name in _ENDS:
            raise _Ignored("end_of_read")
        if name == "reserve_write":
            self._learn_size(call)
            raise _Ignored("reserved_write")
        if name == "submit_prefetch_task":
            return self._lookup(call, record)
        if name == "finish_write":
            return self._moved(call, record, "store")
        if name == "read_prefetched_results.__enter__":
            return self._moved(call, record, "load")
        raise _Ignored("other_call")

    def _learn_size(self, call: Call) -> None:
        size = object_bytes(call)
        for key in object_keys(call):
            self._ranks.add(key.kv_rank)
            group = key.object_group_id
            known = self._object_bytes.get(group, size)
            if len(self._object_bytes) < _MAX_GROUPS or group in self._object_bytes:
                self._object_bytes[group] = size if known == size else None

    def _lookup(self, call: Call, record: Record) -> list[Row]:
        """The request of a look-up, by its first part: all parts have the same chunks."""
        keys, at_ns = object_keys(call), wall_ns(call)
        policy = argument(call, "policy")
        if not keys:
            raise _Ignored("empty_lookup")
        if policy is not None and policy != "PREFIX":
            raise _Ignored("lookup_of_pieces")
        lowest = min(key.part for key in keys)
        blocks = [chunk_key(key, self._run_key) for key in keys if key.part == lowest]
        given = argument(call, "external_request_id")
        request_id = given if isinstance(given, str) and given else None
        if request_id is not None and self._is_repeat(request_id, at_ns, blocks):
            raise _Ignored("repeated_lookup")
        self._requests += 1
        return [
            RequestRow(
                offset=record.offset,
                line=record.line,
                request_id=request_id,
                llm=keys[0].model_name or None,
                arrived_at_ns=at_ns,
                block_keys=blocks,
            )
        ]

    def _is_repeat(self, request_id: str, at_ns: int, blocks: list[int]) -> bool:
        said = (len(blocks), blocks[-1])
        known = self._last.pop(request_id, None)
        self._last[request_id] = (at_ns, *said)
        if len(self._last) > _MAX_REMEMBERED:
            del self._last[next(iter(self._last))]
        return known is not None and known[1:] == said and abs(at_ns - known[0]) <= _REPEAT_NS

    def _moved(self, call: Call, record: Record, direction: Literal["load", "store"]) -> list[Row]:
        """What a worker moved, in bytes; for a store also the chunks that are readable now."""
        keys, at_ns = object_keys(call), wall_ns(call)
        if not keys:
            raise _Ignored("empty_move")
        counted = [key for key in keys if not self._is_other_part(key)]
        rows: list[Row] = []
        if direction == "store":
            rows += [
                BlockEventRow(
                    offset=record.offset,
                    line=record.line,
                    observed_at_ns=at_ns,
                    instance=None,
                    sequence=None,
                    change="stored",
                    block_key=chunk_key(key, self._run_key),
                    block_tokens=self._chunk_tokens,
                    medium="host",
                )
                for key in counted
            ]
        sizes = [self._object_bytes.get(key.object_group_id) for key in keys]
        known = [size for size in sizes if size is not None]
        rows.append(
            TransferRow(
                offset=record.offset,
                line=record.line,
                request_id=None,
                started_at_ns=at_ns,
                direction=direction,
                path="host>device" if direction == "load" else "device>host",
                moved_bytes=sum(known) if len(known) == len(sizes) else None,
                moved_tokens=len(counted) * self._chunk_tokens if counted else None,
                duration_ns=None,
                ranks=len({key.kv_rank for key in keys}),
            )
        )
        return rows

    @property
    def _chunk_tokens(self) -> int:
        return self._context.block_size_tokens or DEFAULT_CHUNK_TOKENS

    def _is_other_part(self, key: ObjectKey) -> bool:
        """Whether it is another rank's or group's part of chunks that are counted."""
        if self._lowest is None or key.part < self._lowest:
            self._lowest = key.part
        is_other = key.part > self._lowest
        self._left_out += is_other
        return is_other

    def describe(self) -> None:
        """Write down clock, chunk size and what is not in the trace."""
        context = self._context
        context.clock, context.clock_resolution_ns = "utc", NS_PER_US
        context.clock_reason = "t_wall counts seconds from the epoch"
        context.evidence_grade = "A" if self._requests else "C"
        context.found_block_size_tokens = self._chunk_tokens
        if context.block_size_tokens is not None:
            context.block_size_reason = f"{self._chunk_tokens} from --block-size"
        else:
            context.block_size_reason = (
                f"{self._chunk_tokens}, LMCache's default; no frame states it"
            )
            context.note(
                "block_size_assumed",
                "The trace does not state the chunk size; LMCache's default of"
                f" {DEFAULT_CHUNK_TOKENS} tokens is assumed (--block-size states another).",
                severity="warning",
            )
        sizes = {size for size in self._object_bytes.values() if size is not None}
        if len(self._object_bytes) == 1 and len(sizes) == 1:
            context.engine_facts["object_bytes"] = sizes.pop()
            context.engine_facts["kv_ranks"] = len(self._ranks)
        if self._left_out:
            context.note(
                "other_parts_left_out",
                f"{self._left_out:,} objects are other ranks' or layer groups' parts of chunks that"
                " are counted.",
            )
        context.note(
            "evictions_not_traced",
            "The trace holds calls from outside: evictions, and moves between L1 and L2, are not in"
            " it, nor what came of a look-up.",
        )


def read_trace(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """Rows of a trace, in file order."""
    trace = TraceFile(context)
    context.engine = "lmcache"
    context.block_ids, context.block_scope, context.partial_tail = "chained", "global", "dropped"
    for record in records:
        yield from trace.rows(record)
    trace.describe()
