"""From the rows of files to the tables of a dataset: sources, join, cache domains, totals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

from kvtrace.ingest.blocks.table import (
    MISMATCH_FLAG,
    DomainBlocks,
    DomainInput,
    DomainSpec,
    agrees_with_length,
    build_domain,
    gathered,
)
from kvtrace.ingest.cache_semantics import MIXED_NOTE, settle_cache_semantics
from kvtrace.ingest.contract import ReadContext
from kvtrace.ingest.files.rotation import join_rotations
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.joining.join import is_twin, join_sources, join_twins
from kvtrace.ingest.joining.sessions import resolve_parents
from kvtrace.ingest.modelnames import NameBook
from kvtrace.ingest.oddities import flag_notes
from kvtrace.ingest.sampling.detect import note_sampling
from kvtrace.ingest.sources import (
    FileRead,
    Source,
    assign_sources,
    choose_headline,
    drop_exact_copies,
    settle_clocks,
)
from kvtrace.ingest.usage import ASSUMED_FLAG
from kvtrace.schema.manifest import CacheDomain, FileEntry, Note, Totals
from kvtrace.schema.tables import BLOCKS, KEYS, REJECTS, REQUESTS, TABLES

_TIERS: Final = ("device", "host", "disk", "remote")


@dataclass(frozen=True, slots=True)
class Normalised:
    """The tables, in their total order, and what they consist of."""

    frames: dict[str, pl.DataFrame]
    sources: list[Source]
    domains: list[CacheDomain]
    names: NameBook
    """The names in the tables, as they are shown."""


def normalise(reads: list[FileRead], hasher: KeyedHasher) -> Normalised:
    """Tables of all files together. Changes the file entries where copies are dropped."""
    _drop_file_copies(reads)
    join_rotations(reads)
    settle_cache_semantics(reads)
    settle_clocks(reads)
    sources = assign_sources(reads)
    for source in sources:
        drop_exact_copies(source)
        resolve_parents(source, hasher)
    join_twins(sources)
    headline = choose_headline(sources)
    if headline is not None:
        join_sources(headline, [source for source in sources if not is_twin(source, headline)])
    built = _build_blocks(sources)
    for source in sources:
        _note_flags(source)
    frames = {
        "requests": _requests(sources, headline),
        "blocks": _stacked((part.blocks for part in built), BLOCKS.empty(), BLOCKS.order_by),
        "keys": _stacked((part.keys for part in built), KEYS.empty(), KEYS.order_by),
        "samples": _observed(sources, "samples"),
        "transfers": _observed(sources, "transfers"),
        "block_events": _observed(sources, "block_events"),
        "rejects": _stacked(
            (read.rows.rejects for read in reads if read.rows is not None),
            REJECTS.empty(),
            REJECTS.order_by,
        ),
    }
    domains = [part.domain for part in built]
    note_sampling(headline, sources, frames, domains)
    names = NameBook()
    shown = {name: names.shown_names(frame) for name, frame in frames.items()}
    return Normalised(shown, sources, domains, names)


def _note_flags(source: Source) -> None:
    """One note for each flag that its requests carry."""
    places: dict[str, str] = {}
    for read in source.files:
        for flag, line in read.rows.flag_lines.items() if read.rows is not None else ():
            places.setdefault(flag, f"{read.entry.path}:{line}")
    told = [note.code for read in source.files for note in read.entry.notes]
    told += [code for code, _ in source.notes]
    if MIXED_NOTE in told:
        told.append(ASSUMED_FLAG)
    source.flag_notes = flag_notes(source.requests, places, told)


def _drop_file_copies(reads: list[FileRead]) -> None:
    """Ignore files whose content an earlier file has (a rotated or copied log)."""
    seen: dict[str, FileEntry] = {}
    for read in reads:
        rows, entry = read.rows, read.entry
        if rows is None:
            continue
        original = seen.setdefault(entry.content_digest, entry)
        if original is entry or not rows.holds_rows:
            continue
        if entry.used:
            entry.ignored_by_reason["file_copy"] = entry.used
            entry.ignored, entry.used = entry.ignored + entry.used, 0
            message = f"same content as {original.path}"
            entry.notes.append(Note(code="file_copy", message=message, path=entry.path))
        rows.requests, rows.samples = rows.requests.clear(), rows.samples.clear()
        rows.transfers, rows.observations = rows.transfers.clear(), 0
        rows.block_events = rows.block_events.clear()


def _stacked(
    parts: Iterable[pl.DataFrame], empty: pl.DataFrame, order_by: tuple[str, ...]
) -> pl.DataFrame:
    return pl.concat([empty, *parts]).sort(order_by)


def _requests(sources: list[Source], headline: Source | None) -> pl.DataFrame:
    names = list(REQUESTS.polars_schema())
    parts = [
        source.requests.with_columns(pl.lit(source is headline).alias("is_headline")).select(names)
        for source in sources
    ]
    return _stacked(parts, REQUESTS.empty(), REQUESTS.order_by)


def _observed(
    sources: list[Source], table: Literal["samples", "transfers", "block_events"]
) -> pl.DataFrame:
    schema = TABLES[table]
    parts: list[pl.DataFrame] = [
        getattr(read.rows, table).with_columns(
            pl.lit(source.source_id, dtype=pl.Int32).alias("source_id")
        )
        for source in sources
        for read in source.files
        if read.rows is not None
    ]
    return _stacked(parts, schema.empty(), schema.order_by)


# Cache domains


@dataclass(slots=True)
class _FileBlocks:
    """Requests of one file that still have block keys, and where those keys stand."""

    read: FileRead
    context: ReadContext
    frame: pl.DataFrame
    """request_key, arrived_at_ns, prompt_tokens, session_key, start, count"""


def _build_blocks(sources: list[Source]) -> list[DomainBlocks]:
    built: list[DomainBlocks] = []
    for source in sources:
        parts = [part for read in source.files if (part := _file_blocks(source, read)) is not None]
        for scope_parts in _domains_of(parts):
            spec = _spec(len(built), source, scope_parts[0].context)
            built.append(build_domain(spec, _domain_input(scope_parts)))
    return built


def _file_blocks(source: Source, read: FileRead) -> _FileBlocks | None:
    rows, context = read.rows, read.context
    if rows is None or context is None or context.found_block_size_tokens is None:
        return None
    ends = np.cumsum(rows.block_counts)
    located = pl.DataFrame(
        {
            "request_key": rows.block_request_keys,
            "start": ends - rows.block_counts,
            "count": rows.block_counts,
        }
    )
    wanted = source.requests.select("request_key", "arrived_at_ns", "prompt_tokens", "session_key")
    frame = located.join(wanted, on="request_key", how="inner").sort("request_key")
    agrees = agrees_with_length(
        frame["prompt_tokens"].fill_null(-1).to_numpy(),
        frame["count"].to_numpy(),
        block_size_tokens=context.found_block_size_tokens,
        partial_tail=context.partial_tail,
    )
    if not agrees.all():
        _flag_mismatch(source, read, frame.filter(~pl.Series(agrees)))
        frame = frame.filter(pl.Series(agrees))
    return None if frame.is_empty() else _FileBlocks(read, context, frame)


def _flag_mismatch(source: Source, read: FileRead, odd: pl.DataFrame) -> None:
    is_odd = pl.col("request_key").is_in(odd["request_key"].implode())
    source.requests = source.requests.with_columns(
        pl.when(is_odd)
        .then(pl.concat_list("flags", pl.lit(MISMATCH_FLAG)))
        .otherwise("flags")
        .alias("flags")
    )
    message = (
        f"{len(odd)} requests have another number of blocks than their length implies; "
        "they are kept without blocks"
    )
    read.entry.notes.append(Note(code=MISMATCH_FLAG, message=message, path=read.entry.path))


def _domains_of(parts: list[_FileBlocks]) -> list[list[_FileBlocks]]:
    """Groups of (parts of) files whose ids mean the same."""
    groups: dict[tuple[object, ...], list[_FileBlocks]] = {}
    for part in parts:
        context = part.context
        kind = (context.found_block_size_tokens, context.partial_tail, context.block_ids)
        if context.block_scope == "global":
            groups.setdefault(("global", *kind), []).append(part)
        elif context.block_scope == "file":
            groups.setdefault(("file", part.read.log_id, *kind), []).append(part)
        else:
            for number, session in enumerate(_by_session(part.frame)):
                key = ("session", part.read.entry.file_id, number)
                groups[key] = [_FileBlocks(part.read, context, session)]
    return list(groups.values())


def _by_session(frame: pl.DataFrame) -> list[pl.DataFrame]:
    """One frame a session; a request without a session shares its ids with nobody."""
    scope = pl.struct(
        "session_key",
        pl.when(pl.col("session_key").is_null()).then("request_key").alias("alone"),
    )
    return frame.with_columns(scope.alias("_scope")).partition_by(
        "_scope", maintain_order=True, include_key=False
    )


def _spec(cache_domain: int, source: Source, context: ReadContext) -> DomainSpec:
    if context.found_block_size_tokens is None:
        raise RuntimeError("a cache domain needs a block size")
    return DomainSpec(
        cache_domain=cache_domain,
        source_id=source.source_id,
        scope=context.block_scope,
        block_size_tokens=context.found_block_size_tokens,
        block_size_reason=context.block_size_reason or "stated by the source",
        partial_tail=context.partial_tail,
        ids=context.block_ids,
    )


def _domain_input(parts: list[_FileBlocks]) -> DomainInput:
    """Requests of a domain in order of arrival: unknown last, ties by request_key."""
    pools: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = []
    shifted: list[pl.DataFrame] = []
    shift = 0
    for part in parts:
        if part.read.rows is None:
            continue
        keys = part.read.rows.block_keys
        shifted.append(part.frame.with_columns(pl.col("start") + shift))
        pools.append(keys)
        shift += len(keys)
    frame = pl.concat(shifted).sort("arrived_at_ns", "request_key", nulls_last=True)
    counts = frame["count"].to_numpy()
    pool = pools[0] if len(pools) == 1 else np.concatenate(pools)
    return DomainInput(
        request_keys=frame["request_key"].to_numpy(),
        prompt_tokens=frame["prompt_tokens"].fill_null(-1).to_numpy(),
        counts=counts,
        keys=gathered(pool, frame["start"].to_numpy(), counts),
    )


# Totals


def build_totals(normalised: Normalised, *, rejected: int, notes: list[Note]) -> Totals:
    """Sums over known headline rows; null where no row is known."""
    rows = normalised.frames["requests"].filter("is_headline")
    headline = next((part for part in normalised.sources if part.role == "headline"), None)
    domains = [
        domain
        for domain in normalised.domains
        if headline is not None and domain.source_id == headline.source_id
    ]
    sizes = {domain.block_size_tokens for domain in domains}
    by_status = rows.group_by("status").len().sort("status")
    return Totals(
        requests=len(rows),
        requests_by_status=dict(zip(by_status["status"], by_status["len"], strict=True)),
        prompt_tokens=_known_sum(rows["prompt_tokens"]),
        output_tokens=_known_sum(rows["output_tokens"]),
        cached_tokens=_known_sum(rows["cached_tokens"]),
        cached_known_requests=len(rows) - rows["cached_tokens"].null_count(),
        cache_write_tokens=_known_sum(rows["cache_write_tokens"]),
        cached_tiers=_tier_sums(rows),
        block_refs=sum(domain.block_refs for domain in domains) if domains else None,
        distinct_blocks=sum(domain.distinct_blocks for domain in domains) if domains else None,
        block_size_tokens=sizes.pop() if len(sizes) == 1 else None,
        samples=normalised.frames["samples"]["sample_key"].n_unique(),
        transfers=len(normalised.frames["transfers"]),
        block_events=len(normalised.frames["block_events"]),
        rejected=rejected,
        notes=notes,
    )


def _tier_sums(rows: pl.DataFrame) -> dict[str, int | None]:
    """Known cached tokens by tier; no zero of a tier that may have served the tokens of others."""
    sums = {tier: _known_sum(rows[f"cached_{tier}_tokens"]) for tier in _TIERS}
    split = pl.sum_horizontal(f"cached_{tier}_tokens" for tier in _TIERS)
    unsplit = rows.filter(split < pl.col("cached_tokens"))
    return {
        tier: total if total or not unsplit[f"cached_{tier}_tokens"].null_count() else None
        for tier, total in sums.items()
    }


def _known_sum(values: pl.Series) -> int | None:
    """Sum of the known values as a Python integer, or None."""
    known = values.drop_nulls()
    if known.is_empty():
        return None
    return int(known.cast(pl.Int128).sum())
