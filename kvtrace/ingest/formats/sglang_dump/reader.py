"""Requests of one dump; the pickle itself is opened by `inert_pickle` in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Final

import msgspec

from kvtrace.ingest.blocks.tokens import DEFAULT_BLOCK_TOKENS
from kvtrace.ingest.contract import ReadContext, Record, RequestRow, Row, TransferRow
from kvtrace.ingest.families.sglang_meta import (
    MetaInfo,
    adapter_name,
    block_tokens_of,
    fill_request,
    hash_prompt,
    instant_of,
    storage_waits,
    whole_token_ids,
)
from kvtrace.ingest.modelnames import llm_name
from kvtrace.ingest.values.inert_pickle import InertPickleError, inert_rows
from kvtrace.ingest.values.jsonfields import between_ns
from kvtrace.units import NS_PER_S

_ROWS_KEY: Final = "requests"
_FIRST_EPOCH_NS: Final = 1_000_000_000 * NS_PER_S
"""Earlier times are of a clock that starts with the machine."""
_ENOUGH_BLOCKS: Final = 0.8
"""Share of requests with token ids from which on their blocks are used."""


class _Session(msgspec.Struct, gc=False):
    id: object = None


class _Request(msgspec.Struct, gc=False):
    rid: object = None
    input_ids: msgspec.Raw = msgspec.Raw(b"null")
    lora_path: object = None
    session_id: object = None
    session_params: _Session | None = None
    conversation_id: object = None
    routing_key: object = None


class _Answer(msgspec.Struct, gc=False):
    meta_info: MetaInfo | None = None


class _Entry(msgspec.Struct, gc=False, array_like=True):
    request: _Request
    answer: _Answer | None = None
    created: Decimal | None = None
    finished: Decimal | None = None


class _ServerArgs(msgspec.Struct, gc=False):
    model_path: str | None = None
    served_model_name: str | None = None
    page_size: int | None = None
    tp_size: int | None = None
    dp_size: int | None = None
    pp_size: int | None = None
    context_length: int | None = None
    kv_cache_dtype: str | None = None
    dtype: str | None = None
    quantization: str | None = None


class _Dump(msgspec.Struct, gc=False):
    server_args: _ServerArgs | None = None


_ENTRY: Final = msgspec.json.Decoder(_Entry, strict=False)
_DUMP: Final = msgspec.json.Decoder(_Dump, strict=False)
_FACTS: Final = {
    "tp_size": "tensor_parallel",
    "dp_size": "data_parallel",
    "pp_size": "pipeline_parallel",
    "context_length": "max_model_len",
    "kv_cache_dtype": "kv_cache_dtype",
    "dtype": "dtype",
    "quantization": "quantization",
}
_TEXTS: Final = frozenset(
    {
        "rid",
        "id",
        "type",
        "storage_backend",
        "lora_path",
        "session_id",
        "conversation_id",
        "routing_key",
        "model_path",
        "served_model_name",
        "kv_cache_dtype",
        "dtype",
        "quantization",
    }
)
_FIELDS: Final = frozenset(
    {
        "server_args",
        "meta_info",
        "input_ids",
        "session_params",
        "finish_reason",
        "status_code",
        "cached_tokens_details",
        "device",
        "host",
        "storage",
        *_TEXTS,
        *_ServerArgs.__struct_fields__,
        *MetaInfo.__struct_fields__,
    }
)


def read_dump(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
    """The requests of each dump, in its order."""
    context.engine = "sglang"
    for record in records:
        dump = _DumpFile(context)
        try:
            dump.read(record)
        except InertPickleError as refused:
            context.tally.reject(record, "unreadable_pickle", str(refused))
        else:
            if not dump.rows:
                context.tally.reject(record, "no_requests", "no entry is a request")
                continue
            context.tally.use()
            yield from dump.finished()


class _DumpFile:
    """The rows of one dump, held until all of it was read: a record has one outcome."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._llm: str | None = None
        self._block_tokens = context.block_size_tokens or DEFAULT_BLOCK_TOKENS
        self._unusable = 0
        self._with_blocks = 0
        self.rows: list[tuple[RequestRow, list[TransferRow]]] = []
        """Each request with its waits for storage."""

    def read(self, record: Record) -> None:
        """Take in the whole dump.

        Raises:
            InertPickleError: it cannot be read.
        """
        lines = inert_rows(record.data, rows_key=_ROWS_KEY, fields=_FIELDS, texts=_TEXTS)
        for number, line in enumerate(lines):
            if number == 0:
                self._server(line)
                continue
            try:
                self._request(_ENTRY.decode(line), number)
            except (msgspec.DecodeError, RecursionError):
                self._unusable += 1

    def _server(self, line: bytes) -> None:
        context = self._context
        try:
            stated = _DUMP.decode(line).server_args or _ServerArgs()
        except (msgspec.DecodeError, RecursionError):
            stated = _ServerArgs()
            context.note("server_args_unknown", "The dump's server_args are none that are known.")
        name = stated.served_model_name or stated.model_path
        if name:
            self._llm = llm_name(name)
            context.engine_facts["llm"] = self._llm
        for field, fact in _FACTS.items():
            value = getattr(stated, field)
            if isinstance(value, int | str):
                context.engine_facts[fact] = value
        page = stated.page_size or 1
        context.engine_facts["block_size"] = page
        self._block_tokens, context.block_size_reason = block_tokens_of(page, context)

    def _request(self, entry: _Entry, number: int) -> None:
        told, context = entry.request, self._context
        meta = None if entry.answer is None else entry.answer.meta_info
        rid = told.rid if meta is None or meta.id is None else meta.id
        row = RequestRow(
            offset=number - 1,  # a place of its own in the one record; an entry takes bytes too
            line=number,
            request_id=str(rid) if isinstance(rid, str | int) and rid else None,
            session_id=_session(told),
            llm=self._llm,
            adapter=adapter_name(told.lora_path),
            status="open",
        )
        created_ns = instant_of("created_time", entry.created, context)
        if created_ns is not None and created_ns >= _FIRST_EPOCH_NS:
            row.arrived_at_ns = created_ns
        moves: list[TransferRow] = []
        if meta is not None:
            tier = fill_request(row, meta, context)
            moves = storage_waits(row, meta, tier)
            if row.e2e_ns is None:
                finished_ns = instant_of("finish_time", entry.finished, context)
                row.e2e_ns = between_ns(created_ns, finished_ns, [])
        self._with_blocks += hash_prompt(
            row, whole_token_ids(told.input_ids), context, block_tokens=self._block_tokens
        )
        self.rows.append((row, moves))

    def finished(self) -> Iterator[Row]:
        """The rows; grade and clock of the file are set before the first."""
        context, count = self._context, len(self.rows)
        if self._unusable:
            context.note(
                "dump_entries_unusable",
                f"{self._unusable} of {self._unusable + count} entries are no requests.",
            )
        has_cached = any(row.cached_tokens is not None for row, _ in self.rows)
        context.evidence_grade = "B" if has_cached else "L"
        if self._with_blocks >= _ENOUGH_BLOCKS * count:
            context.evidence_grade = "A"
            context.found_block_size_tokens = self._block_tokens
            context.block_scope = "global"
        else:
            for row, _ in self.rows:
                row.block_keys = None
        if any(row.arrived_at_ns is not None for row, _ in self.rows):
            context.clock, context.clock_reason = "utc", "created_time is in epoch seconds"
        for row, moves in self.rows:
            yield row
            yield from moves


def _session(told: _Request) -> str | None:
    of_session = None if told.session_params is None else told.session_params.id
    for value in (told.routing_key, told.session_id, of_session, told.conversation_id):
        if value and isinstance(value, str):
            return value
    return None
