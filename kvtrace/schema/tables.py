"""The tables and columns of a dataset; each column says its unit and what null means.

This module is the dictionary: docs, validation, empty frames and the digest are built from it.
Unknown is null, zero is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

Dtype = Literal["int64", "int32", "uint64", "float64", "bool", "text", "texts"]
_POLARS: Final[dict[str, pl.DataType]] = {
    "int64": pl.Int64(),
    "int32": pl.Int32(),
    "uint64": pl.UInt64(),
    "float64": pl.Float64(),
    "bool": pl.Boolean(),
    "text": pl.String(),
    "texts": pl.List(pl.String()),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type, unit, meaning, and what null says."""

    name: str
    dtype: Dtype
    unit: str
    meaning: str
    null: str = "never null"
    keyed: bool = False
    """A keyed hash: differs with the salt, so the digest replaces it by its first-appearance rank."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its grain, its columns, and the columns that order it totally."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    order_by: tuple[str, ...]
    is_derived: bool = False
    """Made after ingest, with parameters (`store.derived`): no rows until somebody asks for it."""

    def polars_schema(self) -> dict[str, pl.DataType]:
        """Column name to polars type, in column order."""
        return {column.name: _POLARS[column.dtype] for column in self.columns}

    def empty(self) -> pl.DataFrame:
        """A frame with these columns and no rows."""
        return pl.DataFrame(schema=self.polars_schema())


_KEY = "file number × 2^44 + byte offset of the record in the decompressed file"
_UNKNOWN = "the source does not say"

REQUESTS: Final = Table(
    "requests",
    "one request that an engine served (every status is a row; ratios and replay use `ok`)",
    (
        Column("request_key", "int64", "key", _KEY),
        Column("source_id", "int32", "key", "the source that fed this row, from the manifest"),
        Column("is_headline", "bool", "flag", "row of the source that feeds totals and ratios"),
        Column("request_id_key", "uint64", "keyed hash", "the request id", _UNKNOWN, keyed=True),
        Column("session_key", "uint64", "keyed hash", "the conversation", _UNKNOWN, keyed=True),
        Column(
            "parent_key", "uint64", "keyed hash", "request id of the parent turn", _UNKNOWN, True
        ),
        Column("turn", "int32", "count", "turn in the session, from 0", _UNKNOWN),
        Column("tenant_key", "uint64", "keyed hash", "tenant or user", _UNKNOWN, keyed=True),
        Column("llm", "text", "name", "served model as the source names it", _UNKNOWN),
        Column("adapter", "text", "name", "LoRA adapter", "no adapter, or the source does not say"),
        Column("request_type", "text", "name", "kind of request as the source names it", _UNKNOWN),
        Column(
            "arrived_at_ns", "int64", "ns", "arrival; epoch, or from the first record", _UNKNOWN
        ),
        Column("clock", "text", "name", "utc | naive | relative | monotonic | order"),
        Column("prompt_tokens", "int64", "tokens", "uncached + cache read + cache write", _UNKNOWN),
        Column("cached_tokens", "int64", "tokens", "served from any KV cache", _UNKNOWN),
        Column("cached_device_tokens", "int64", "tokens", "served from HBM", _UNKNOWN),
        Column("cached_host_tokens", "int64", "tokens", "served from host DRAM", _UNKNOWN),
        Column("cached_disk_tokens", "int64", "tokens", "served from local SSD", _UNKNOWN),
        Column("cached_remote_tokens", "int64", "tokens", "served from a remote pool", _UNKNOWN),
        Column("cache_write_tokens", "int64", "tokens", "written to a cache", _UNKNOWN),
        Column("computed_tokens", "int64", "tokens", "prompt tokens computed", _UNKNOWN),
        Column("output_tokens", "int64", "tokens", "generated, reasoning included", _UNKNOWN),
        Column("queue_ns", "int64", "ns", "arrival or enqueue to first scheduled", _UNKNOWN),
        Column("prefill_ns", "int64", "ns", "first scheduled to first token", _UNKNOWN),
        Column("ttft_ns", "int64", "ns", "time to first token, from `ttft_from`", _UNKNOWN),
        Column("ttft_from", "text", "name", "arrival | scheduled | client", "no TTFT"),
        Column("tpot_ns", "int64", "ns", "mean time per output token after the first", _UNKNOWN),
        Column("e2e_ns", "int64", "ns", "arrival to last token", _UNKNOWN),
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
        Column("observed_at_ns", "int64", "ns", "time of the observation", _UNKNOWN),
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
            _UNKNOWN,
        ),
        Column("window_ns", "int64", "ns", "length of an interval window", _UNKNOWN),
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
        Column("request_id_key", "uint64", "keyed hash", "the request", _UNKNOWN, keyed=True),
        Column("started_at_ns", "int64", "ns", "start", _UNKNOWN),
        Column("clock", "text", "name", "utc | naive | relative | monotonic | order"),
        Column("direction", "text", "name", "load (to HBM) | store (from HBM) | hand_off"),
        Column(
            "path", "text", "name", "path as far as the source says, such as remote>host", _UNKNOWN
        ),
        Column("moved_bytes", "int64", "bytes", "bytes moved, all ranks", _UNKNOWN),
        Column("moved_tokens", "int64", "tokens", "tokens moved, ranks counted once", _UNKNOWN),
        Column("duration_ns", "int64", "ns", "wall time, maximum over ranks", _UNKNOWN),
        Column("ranks", "int32", "count", "ranks pooled in this row", _UNKNOWN),
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
        Column("observed_at_ns", "int64", "ns", "time of the event batch", _UNKNOWN),
        Column("clock", "text", "name", "utc | naive | relative | monotonic | order"),
        Column("instance", "text", "name", "engine and data-parallel rank", "one instance"),
        Column("sequence", "int64", "count", "number of the batch; gaps are losses", _UNKNOWN),
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
        Column("block_tokens", "int32", "tokens", "tokens of the block", _UNKNOWN),
        Column("medium", "text", "name", "device | host | disk | remote", _UNKNOWN),
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

REUSE: Final = Table(
    "reuse",
    "one atom of one `ok` headline request: a run of blocks that is always touched together",
    (
        Column("request_key", "int64", "key", "the request"),
        Column("cache_domain", "int32", "key", "the cache domain"),
        Column(
            "arrival_rank", "int64", "rank", "of the request in its domain, by arrival then key"
        ),
        Column("position", "int32", "blocks", "blocks of the request before this atom"),
        Column("atom", "int64", "id", "dense atom id in the domain"),
        Column("block_count", "int32", "blocks", "blocks of the atom"),
        Column("token_count", "int64", "tokens", "prompt tokens of this request in the atom"),
        Column("is_reusable", "bool", "flag", "an earlier request held it, and all before it"),
        Column(
            "previous_request_key",
            "int64",
            "key",
            "last earlier request that held it",
            "first seen",
        ),
        Column(
            "reuse_gap_ns",
            "int64",
            "ns",
            "arrival minus that of the previous holder",
            "first seen, or no clock",
        ),
        Column("first_request_key", "int64", "key", "first request that held it"),
        Column(
            "distance_blocks",
            "int64",
            "blocks",
            "LRU stack distance of the head, from 1, running maximum in the request",
            "not reusable",
        ),
        Column(
            "distance_tokens",
            "int64",
            "tokens",
            "the same, blocks weighted by their tokens",
            "not reusable",
        ),
    ),
    ("request_key", "position"),
)

BLOCK_STAYS: Final = Table(
    "block_stays",
    "one stay of one block in one medium of one instance, from the event that began it",
    (
        Column("event_key", "int64", "key", "the record of `block_events` that began the stay"),
        Column("position", "int32", "count", "and the row of that record"),
        Column("instance", "text", "name", "engine and data-parallel rank", "one instance"),
        Column("block_key", "uint64", "keyed hash", "the block, as in `block_events`", keyed=True),
        Column("block_tokens", "int32", "tokens", "tokens of the block", _UNKNOWN),
        Column("medium", "text", "name", "device | host | disk | remote", _UNKNOWN),
        Column("started_at_ns", "int64", "ns", "time of the event that began it", "no clock"),
        Column(
            "ended_at_ns", "int64", "ns", "time of the event that ended it", "open, or no clock"
        ),
        Column("end_event_key", "int64", "key", "the record that ended the stay", "open"),
        Column("end_position", "int32", "count", "and the row of that record", "open"),
        Column(
            "began",
            "text",
            "name",
            "computed | loaded (stored in HBM; loaded: a tier below held it) | copied | written"
            " (stored below HBM; copied: HBM of the instance held it) | moved (the engine says so)"
            " | announced (stored, medium unknown)",
        ),
        Column(
            "from_medium",
            "text",
            "name",
            "where it came from: as the engine says (moved), the nearest that held it (loaded), HBM"
            " (copied)",
            "computed, written or announced, or the source does not say",
        ),
        Column(
            "ended",
            "text",
            "name",
            "removed | moved | cleared (the instance lost all) | restarted (a new process)"
            " | open (held at the last event)",
        ),
        Column(
            "place",
            "text",
            "name",
            "where a block that is stored in HBM was just before, the first that holds: first_seen"
            " | lower_tier_holds | other_instance_holds | same_instance_removed"
            " | other_instance_removed",
            "not computed or loaded",
        ),
        Column(
            "since_stored_ns",
            "int64",
            "ns",
            "since the last stay of the block began, on any instance",
            "first seen, not computed or loaded, or no clock",
        ),
        Column(
            "since_held_ns",
            "int64",
            "ns",
            "since the last instance that held it let go of it; 0 while one holds it",
            "first seen, not computed or loaded, or no clock",
        ),
    ),
    ("event_key", "position"),
)

POLICY_HITS: Final = Table(
    "policy_hits",
    "what one cache of one size under one policy serves of the requests of a cache domain",
    (
        Column("cache_domain", "int32", "key", "the cache domain"),
        Column(
            "policy",
            "text",
            "name",
            "lru | leaf_lru | fifo | lfu | arc | s3_fifo | length_aware | ttl, or a bound:"
            " strict_optimum_low | strict_optimum_high | relaxed_optimum | unlimited",
        ),
        Column(
            "admission", "text", "name", "all | second_use (written from the second request on)"
        ),
        Column("weight", "text", "name", "blocks (each weighs 1) | tokens (a partial block less)"),
        Column("capacity_blocks", "int64", "blocks", "capacity; of full blocks where tokens weigh"),
        Column("capacity_tokens", "int64", "tokens", "capacity", "blocks weigh"),
        Column("ttl_ns", "int64", "ns", "a block is gone this long after its last use", "not ttl"),
        Column("hit_blocks", "int64", "blocks", "references served from the cache"),
        Column("hit_tokens", "int64", "tokens", "prompt tokens served from the cache"),
        Column("block_refs", "int64", "blocks", "references in all"),
        Column("prompt_tokens", "int64", "tokens", "prompt tokens of all requests"),
        Column("writes_blocks", "int64", "blocks", "blocks written into the cache", "a bound"),
        Column("writes_tokens", "int64", "tokens", "tokens of those blocks", "a bound"),
        Column("requests", "int64", "requests", "requests of the domain"),
        Column("requests_with_hit", "int64", "requests", "with at least one block served"),
    ),
    ("cache_domain", "weight", "capacity_blocks", "policy", "admission", "ttl_ns"),
    is_derived=True,
)

POOL_HITS: Final = Table(
    "pool_hits",
    "what several private LRU caches, or one shared, serve of the requests of a cache domain",
    (
        Column("cache_domain", "int32", "key", "the cache domain"),
        Column("routing", "text", "name", "one | round_robin | session_sticky | kv_centric"),
        Column("instances", "int64", "count", "caches, each of an instance"),
        Column("capacity_blocks", "int64", "blocks", "capacity of each cache"),
        Column("total_capacity_blocks", "int64", "blocks", "capacity of all together"),
        Column("hit_blocks", "int64", "blocks", "references served from the instance's cache"),
        Column("hit_tokens", "int64", "tokens", "prompt tokens served from it"),
        Column("block_refs", "int64", "blocks", "references in all"),
        Column("prompt_tokens", "int64", "tokens", "prompt tokens of all requests"),
    ),
    ("cache_domain", "routing", "instances", "capacity_blocks"),
    is_derived=True,
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
        BLOCK_STAYS,
        POLICY_HITS,
        POOL_HITS,
    )
}
