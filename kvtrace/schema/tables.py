"""The tables and columns of a dataset; each column says its unit and what null means.

This module is the dictionary: docs, validation, empty frames and the digest are built from it.
Unknown is null, zero is measured. Tables computed from these are in `facts.py`.
"""

from __future__ import annotations

from typing import Final

from kvtrace.schema.facts import BLOCK_STAYS, CONTINUATIONS, POLICY_HITS, POOL_HITS, REUSE
from kvtrace.schema.paired import REQUEST_PAIRS
from kvtrace.schema.replayed import (
    REPLAY_HITS,
    REPLAY_LINKS,
    REPLAY_REQUESTS,
    REPLAY_RUNS,
    REPLAY_SWEEP,
)
from kvtrace.schema.table import UNKNOWN, Column, Table

_KEY = "file number × 2^44 + byte offset of the record in the decompressed file"

REQUESTS: Final = Table(
    "requests",
    "one request that an engine served (every status is a row; ratios and replay use `ok`)",
    (
        Column("request_key", "int64", "key", _KEY),
        Column(
            "line",
            "int64",
            "count",
            "where the record starts in its file: line from 1, or number of the frame or table row",
        ),
        Column("source_id", "int32", "key", "the source that fed this row, from the manifest"),
        Column("is_headline", "bool", "flag", "row of the source that feeds totals and ratios"),
        Column("request_id_key", "uint64", "keyed hash", "the request id", UNKNOWN, keyed=True),
        Column("session_key", "uint64", "keyed hash", "the conversation", UNKNOWN, keyed=True),
        Column(
            "parent_key", "uint64", "keyed hash", "request id of the parent turn", UNKNOWN, True
        ),
        Column("turn", "int32", "count", "turn in the session, from 0", UNKNOWN),
        Column(
            "tenant_key",
            "uint64",
            "keyed hash",
            "tenant: team, organisation, project, API key or consumer",
            UNKNOWN,
            keyed=True,
        ),
        Column("user_key", "uint64", "keyed hash", "the end user", UNKNOWN, keyed=True),
        Column("llm", "text", "name", "served model as the source names it", UNKNOWN),
        Column("adapter", "text", "name", "LoRA adapter", "no adapter, or the source does not say"),
        Column("request_type", "text", "name", "kind of request as the source names it", UNKNOWN),
        Column("arrived_at_ns", "int64", "ns", "arrival; epoch, or from the first record", UNKNOWN),
        Column("clock", "text", "name", "utc | naive | relative | monotonic | order"),
        Column("prompt_tokens", "int64", "tokens", "uncached + cache read + cache write", UNKNOWN),
        Column("cached_tokens", "int64", "tokens", "served from any KV cache", UNKNOWN),
        Column("cached_device_tokens", "int64", "tokens", "served from HBM", UNKNOWN),
        Column("cached_host_tokens", "int64", "tokens", "served from host DRAM", UNKNOWN),
        Column("cached_disk_tokens", "int64", "tokens", "served from local SSD", UNKNOWN),
        Column("cached_remote_tokens", "int64", "tokens", "served from a remote pool", UNKNOWN),
        Column("cache_write_tokens", "int64", "tokens", "written to a cache", UNKNOWN),
        Column("computed_tokens", "int64", "tokens", "prompt tokens computed", UNKNOWN),
        Column("output_tokens", "int64", "tokens", "generated, reasoning included", UNKNOWN),
        Column("queue_ns", "int64", "ns", "arrival or enqueue to first scheduled", UNKNOWN),
        Column("prefill_ns", "int64", "ns", "first scheduled to first token", UNKNOWN),
        Column("ttft_ns", "int64", "ns", "time to first token, from `ttft_from`", UNKNOWN),
        Column("ttft_from", "text", "name", "arrival | scheduled | client", "no TTFT"),
        Column("tpot_ns", "int64", "ns", "mean time per output token after the first", UNKNOWN),
        Column("e2e_ns", "int64", "ns", "arrival to last token", UNKNOWN),
        Column("status", "text", "name", "ok | error | cancelled | gateway_cache_hit | open"),
        Column("is_benchmark", "bool", "flag", "benchmark traffic, not production"),
        Column("flags", "texts", "names", "what was odd about the row, empty when nothing"),
    ),
    ("request_key",),
)

BLOCKS: Final = Table(
    "blocks",
    "one run of consecutive dense block ids inside one request",
    (
        Column("request_key", "int64", "key", "the request"),
        Column("cache_domain", "int32", "key", "block ids mean the same inside one domain only"),
        Column("position", "int32", "blocks", "blocks of the request before this run"),
        Column(
            "start_block", "int64", "id", "dense id: rank of the key's first (request, position)"
        ),
        Column("block_count", "int32", "blocks", "blocks in the run, ids start_block, +1, …"),
        Column(
            "tail_tokens",
            "int32",
            "tokens",
            "tokens of the request's partial last block if the run ends in it, else 0",
        ),
    ),
    ("request_key", "position"),
)

KEYS: Final = Table(
    "keys",
    "one distinct block key of a cache domain",
    (
        Column("cache_domain", "int32", "key", "the cache domain"),
        Column("block", "int64", "id", "dense id"),
        Column(
            "chained_hash",
            "uint64",
            "hash",
            "prefix-chained hash or the source's own chained id",
            keyed=True,
        ),
    ),
    ("cache_domain", "block"),
)

SAMPLES: Final = Table(
    "samples",
    "one metric of one engine-wide observation (stats line, scrape, iteration, capacity line)",
    (
        Column("sample_key", "int64", "key", f"the observation: {_KEY}; several metrics share it"),
        Column("source_id", "int32", "key", "the source"),
        Column("observed_at_ns", "int64", "ns", "time of the observation", UNKNOWN),
        Column("clock", "text", "name", "utc | naive | relative | monotonic | order"),
        Column("engine", "text", "name", "engine or rank label as written", "one engine"),
        Column("metric", "text", "name", "kvtrace's name of the metric, such as prefix_hit_ratio"),
        Column("value", "float64", "`unit`", "the value", "shown but without value"),
        Column(
            "unit", "text", "name", "ratio | tokens | blocks | bytes | requests | tokens_per_s | …"
        ),
        Column(
            "hit_unit", "text", "name", "tokens | blocks | chunks | objects", "not a hit metric"
        ),
        Column(
            "window",
            "text",
            "name",
            "cumulative | last_1000_requests | interval | instant | last_batch",
            UNKNOWN,
        ),
        Column("window_ns", "int64", "ns", "length of an interval window", UNKNOWN),
        Column(
            "numerator",
            "float64",
            "`hit_unit`",
            "numerator of a ratio",
            "only the ratio is printed",
        ),
        Column(
            "denominator",
            "float64",
            "`hit_unit`",
            "denominator of a ratio",
            "only the ratio is printed",
        ),
    ),
    ("sample_key", "metric"),
)

TRANSFERS: Final = Table(
    "transfers",
    "one observed KV movement",
    (
        Column("transfer_key", "int64", "key", _KEY),
        Column("source_id", "int32", "key", "the source"),
        Column("request_id_key", "uint64", "keyed hash", "the request", UNKNOWN, keyed=True),
        Column("started_at_ns", "int64", "ns", "start", UNKNOWN),
        Column("clock", "text", "name", "utc | naive | relative | monotonic | order"),
        Column("direction", "text", "name", "load (to HBM) | store (from HBM) | hand_off"),
        Column(
            "path", "text", "name", "path as far as the source says, such as remote>host", UNKNOWN
        ),
        Column("moved_bytes", "int64", "bytes", "bytes moved, all ranks", UNKNOWN),
        Column("moved_tokens", "int64", "tokens", "tokens moved, ranks counted once", UNKNOWN),
        Column("duration_ns", "int64", "ns", "wall time, maximum over ranks", UNKNOWN),
        Column("ranks", "int32", "count", "ranks pooled in this row", UNKNOWN),
    ),
    ("transfer_key",),
)

BLOCK_EVENTS: Final = Table(
    "block_events",
    "one change of one KV block that an engine reported",
    (
        Column("event_key", "int64", "key", f"the record: {_KEY}; its blocks share it"),
        Column("position", "int32", "count", "place among the rows of the record, from 0"),
        Column("source_id", "int32", "key", "the source"),
        Column("observed_at_ns", "int64", "ns", "time of the event batch", UNKNOWN),
        Column("clock", "text", "name", "utc | naive | relative | monotonic | order"),
        Column("instance", "text", "name", "engine and data-parallel rank", "one instance"),
        Column("sequence", "int64", "count", "number of the batch; gaps are losses", UNKNOWN),
        Column("change", "text", "name", "stored | removed | moved | cleared"),
        Column(
            "block_key",
            "uint64",
            "keyed hash",
            "chained token ids of the block, else the engine's own hash",
            "cleared: all blocks of the instance",
            keyed=True,
        ),
        Column(
            "parent_key", "uint64", "keyed hash", "the block before it", "none, or unknown", True
        ),
        Column("block_tokens", "int32", "tokens", "tokens of the block", UNKNOWN),
        Column("medium", "text", "name", "device | host | disk | remote", UNKNOWN),
        Column("from_medium", "text", "name", "where a moved block was", "not moved"),
    ),
    ("event_key", "position"),
)

REJECTS: Final = Table(
    "rejects",
    "one unusable record; never its text",
    (
        Column("file_id", "int32", "key", "file, from the manifest"),
        Column(
            "line", "int64", "count", "physical line where the record starts, from 1", "no lines"
        ),
        Column("byte_offset", "int64", "bytes", "offset in the decompressed file"),
        Column("byte_length", "int64", "bytes", "length of the record"),
        Column("reason", "text", "name", "stable reason, such as invalid_json"),
        Column(
            "detail", "text", "name", "field and cause, without any value from the record", "none"
        ),
        Column("digest", "uint64", "keyed hash", "of the record's bytes", keyed=True),
    ),
    ("file_id", "byte_offset"),
)

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        REQUESTS,
        BLOCKS,
        KEYS,
        SAMPLES,
        TRANSFERS,
        BLOCK_EVENTS,
        REJECTS,
        REUSE,
        CONTINUATIONS,
        BLOCK_STAYS,
        POLICY_HITS,
        POOL_HITS,
        REPLAY_RUNS,
        REPLAY_REQUESTS,
        REPLAY_HITS,
        REPLAY_LINKS,
        REPLAY_SWEEP,
        REQUEST_PAIRS,
    )
}
