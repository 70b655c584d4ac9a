"""The manifest: what a dataset holds, where each number comes from, and what was lost and why."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SCHEMA_VERSION: Final = 1
"""Version of the dataset format; readers refuse a newer one."""

Grade = Literal["A", "B", "C", "L"]
Clock = Literal["utc", "naive", "relative", "monotonic", "order"]
Status = Literal["ok", "error", "cancelled", "gateway_cache_hit", "open"]
SourceRole = Literal["headline", "joined", "beside"]
NoteSeverity = Literal["info", "warning"]
DerivedParam = str | int | float | bool | list[str | int | float] | None


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a reader of the numbers must know."""

    code: str
    """Stable slug, such as `block_size_inferred`."""
    message: str
    path: str | None = None
    severity: NoteSeverity = "info"
    """warning: numbers may be wrong because of it, not only rougher."""


class FileEntry(msgspec.Struct, kw_only=True):
    """One input file: rows_in = kept + rejected + blank, kept = used + ignored."""

    file_id: int
    path: str
    """As a person names it, relative to the given input."""
    format: str | None
    """Registered format name; null when not recognised."""
    format_reason: str
    """Why the file was taken for that format, or why it was not recognised."""
    evidence_grade: Grade | None
    compression: Literal["none", "gzip", "zstd", "bz2", "xz"]
    byte_size: int
    content_digest: str
    """BLAKE2b-128 of the decompressed bytes."""
    rows_in: int
    kept: int
    rejected: int
    blank: int
    used: int
    ignored: int
    ignored_by_reason: dict[str, int] = msgspec.field(default_factory=dict)
    rejected_by_reason: dict[str, int] = msgspec.field(default_factory=dict)
    clock: Clock | None = None
    clock_resolution_ns: int | None = None
    clock_reason: str | None = None
    source_ids: list[int] = msgspec.field(default_factory=list)
    """Its sources: several where programs of different kinds wrote into one log."""
    notes: list[Note] = msgspec.field(default_factory=list)


class SourceEntry(msgspec.Struct, kw_only=True):
    """Files that speak about the same requests in the same way."""

    source_id: int
    format: str
    evidence_grade: Grade
    role: SourceRole
    """headline: feeds totals; joined: merged into it by request id; beside: shown only."""
    files: list[int]
    requests: int
    samples: int
    transfers: int
    clock: Clock
    engine: str | None = None
    engine_version: str | None = None
    engine_version_reason: str | None = None
    engine_facts: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    """What the logs say of the engine: llm, tensor_parallel, gpu, kv_capacity_tokens, …"""
    notes: list[Note] = msgspec.field(default_factory=list)


class CacheDomain(msgspec.Struct, kw_only=True):
    """Requests whose block ids mean the same thing."""

    cache_domain: int
    source_id: int
    scope: Literal["file", "session", "global"]
    block_size_tokens: int
    block_size_reason: str
    partial_tail: Literal["counted", "dropped", "none"]
    """counted: the last id may cover a partial block; dropped: the source leaves the tail out."""
    ids: Literal["chained", "content_chained"]
    """content_chained: the source has content ids, chained at ingest."""
    block_refs: int
    distinct_blocks: int


class PartEntry(msgspec.Struct, kw_only=True):
    """One Parquet part."""

    path: str
    """Relative to the dataset folder."""
    rows: int
    byte_size: int
    blake2b: str
    """BLAKE2b-128 of the file's bytes."""


class Totals(msgspec.Struct, kw_only=True):
    """Sums over the headline source; a sum is over known rows and null where none is known."""

    requests: int
    requests_by_status: dict[str, int]
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cached_known_requests: int
    cache_write_tokens: int | None
    cached_tiers: dict[str, int | None]
    """Keys device, host, disk, remote."""
    block_refs: int | None
    distinct_blocks: int | None
    block_size_tokens: int | None
    samples: int
    transfers: int
    rejected: int
    block_events: int = 0
    notes: list[Note] = msgspec.field(default_factory=list)


class Manifest(msgspec.Struct, kw_only=True):
    """Everything about a dataset but its rows."""

    schema_version: int
    kvtrace_version: str
    settings: dict[str, str | int | float | bool | None]
    """What changes the rows: tz, year, block size, mapping digest."""
    inputs_fingerprint: str
    """Digest of input paths, sizes and modification times; equal: the dataset can be reused."""
    files: list[FileEntry]
    sources: list[SourceEntry]
    domains: list[CacheDomain]
    totals: Totals
    tables: dict[str, list[PartEntry]]
    digest: str
    """Logical digest of all rows: the same for any parts, threads and salt, and whatever tables
    were derived since."""
    derived: dict[str, dict[str, DerivedParam]] = msgspec.field(default_factory=dict)
    """By derived table that was made: the parameters that it was made with."""
