"""One request seen by several sources: joined by its id, never added up.

The headline keeps its own values; what it does not know is filled from the other sources, best
grade first. An id joins only if it is unique in both sources.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from kvtrace.ingest.columns import STRIPPED_ID
from kvtrace.ingest.sources import ABSOLUTE, HEADLINE_ORDER, Source
from kvtrace.units import NS_PER_MS

JOINED_SHARE: Final = 0.5
"""A source of which at least this share of rows was matched has the role `joined`."""
_FILLED: Final = (
    "session_key",
    "parent_key",
    "turn",
    "tenant_key",
    "llm",
    "adapter",
    "request_type",
    "prompt_tokens",
    "cached_tokens",
    "cached_device_tokens",
    "cached_host_tokens",
    "cached_disk_tokens",
    "cached_remote_tokens",
    "cache_write_tokens",
    "computed_tokens",
    "output_tokens",
    "queue_ns",
    "prefill_ns",
    "tpot_ns",
    "e2e_ns",
)
_OTHER: Final = "_other"
_FAILED: Final = ("error", "cancelled", "gateway_cache_hit")
_COARSE_NS: Final = 2**62
_FINE_NS: Final = NS_PER_MS
"""Clocks as fine as this are equally good; then the source that was joined first dates."""


def join_sources(headline: Source, sources: list[Source]) -> None:
    """Merge the other sources into the headline by request id, in place."""
    others = [
        source for source in sources if source is not headline and not source.requests.is_empty()
    ]
    others.sort(key=lambda source: (HEADLINE_ORDER[source.grade], source.source_id))
    clocks: list[tuple[Source, pl.DataFrame]] = []
    for other in others:
        pairs = matched_pairs(headline.requests, other.requests)
        if pairs.is_empty():
            message = (
                "no request id in common with the headline source; these requests may be the "
                "same ones, so they stand beside and are not added"
            )
            other.notes.append(("stands_beside", message))
            continue
        clocks.append((other, _merge(headline, other, pairs)))
    _take_clock(headline, clocks)


def matched_pairs(headline: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """(request_key, other_key) of rows with the same request id, unique on both sides.

    The 8-hex suffix of newer vLLM engines is stripped only where the stripped id exists in the
    other source.
    """
    ours = _unique_ids(headline, "request_id_key", "request_key")
    theirs = _unique_ids(other, "request_id_key", "other_key")
    pairs = ours.join(theirs, on="id", how="inner")
    for left, right in (
        (ours, _unique_ids(other, STRIPPED_ID, "other_key")),
        (_unique_ids(headline, STRIPPED_ID, "request_key"), theirs),
    ):
        left_rest = left.join(pairs, on="request_key", how="anti")
        right_rest = right.join(pairs, on="other_key", how="anti")
        pairs = pl.concat([pairs, left_rest.join(right_rest, on="id", how="inner")])
    return pairs.select("request_key", "other_key").sort("request_key")


def _unique_ids(frame: pl.DataFrame, id_column: str, key_name: str) -> pl.DataFrame:
    column = pl.col(id_column)
    return frame.filter(column.is_not_null() & column.is_unique()).select(
        column.alias("id"), pl.col("request_key").alias(key_name)
    )


def _merge(headline: Source, other: Source, pairs: pl.DataFrame) -> pl.DataFrame:
    """Fill the headline from the matched rows, drop those from the other source; their arrivals."""
    theirs = other.requests.rename(
        {name: name + _OTHER for name in other.requests.columns if name != "request_key"}
    ).rename({"request_key": "other_key"})
    wide = (
        headline.requests.join(pairs, on="request_key", how="left")
        .join(theirs, on="other_key", how="left")
        .sort("request_key")
    )
    conflicts = int((wide["prompt_tokens"] != wide["prompt_tokens" + _OTHER]).sum())
    if conflicts:
        message = (
            f"{conflicts} requests have other prompt tokens in {other.name}; "
            "the headline's own are kept"
        )
        headline.notes.append(("join_conflicts", message))
    headline.requests = wide.with_columns(_filled(headline)).select(headline.requests.columns)
    arrivals = wide.select(
        "request_key", pl.col("arrived_at_ns" + _OTHER).alias("other_ns"), "other_key"
    )
    rows = len(other.requests)
    other.requests = other.requests.join(
        pairs, left_on="request_key", right_on="other_key", how="anti"
    ).sort("request_key")
    _describe(headline, other, matched=len(pairs), rows=rows)
    return arrivals


def _filled(headline: Source) -> list[pl.Expr]:
    """Expressions that keep the headline's values and fill its nulls."""
    filled = [pl.coalesce(name, name + _OTHER).alias(name) for name in _FILLED]
    is_theirs = pl.col("ttft_ns").is_null()
    filled.extend(
        pl.when(is_theirs).then(name + _OTHER).otherwise(name).alias(name)
        for name in ("ttft_ns", "ttft_from")
    )
    if "status" not in headline.format.supplies:
        failed = pl.col("status" + _OTHER).is_in(_FAILED)  # null and `open` say nothing
        filled.append(pl.when(failed).then("status" + _OTHER).otherwise("status").alias("status"))
    filled.append(pl.col("is_benchmark") | pl.col("is_benchmark" + _OTHER).fill_null(False))
    their_flags = pl.col("flags" + _OTHER).fill_null(pl.lit([], dtype=pl.List(pl.String)))
    filled.append(pl.concat_list("flags", their_flags).list.unique(maintain_order=True))
    return filled


def _describe(headline: Source, other: Source, *, matched: int, rows: int) -> None:
    if matched >= JOINED_SHARE * rows:
        other.role = "joined"
    message = f"{matched} of {rows} requests of {other.name} joined by request id"
    headline.notes.append(("joined_by_request_id", message))
    if matched < rows:
        rest = f"{rows - matched} requests without a partner in the headline stand beside"
        other.notes.append(("unmatched_requests", rest))


def _take_clock(headline: Source, clocks: list[tuple[Source, pl.DataFrame]]) -> None:
    """Put a headline without a date on the finest absolute clock of the sources joined to it.

    Rows without a partner keep their distance from the others (relative clock) or lose their
    place (order). A relative clock that is finer than the joined one is kept and only shifted.
    """
    if headline.clock in ABSOLUTE:
        return
    dated = [
        (source, arrivals)
        for source, arrivals in clocks
        if source.clock in ABSOLUTE and source.role == "joined" and _all_dated(arrivals)
    ]
    if not dated:
        return
    source, arrivals = min(
        dated, key=lambda pair: max(pair[0].clock_resolution_ns or _COARSE_NS, _FINE_NS)
    )
    own = headline.requests["arrived_at_ns"]
    theirs = arrivals["other_ns"]
    shift = (theirs - own).drop_nulls().to_numpy()
    is_relative = headline.clock == "relative" and len(shift) > 0
    moved = (
        own + int(np.median(shift)) if is_relative else pl.Series([None] * len(own), dtype=pl.Int64)
    )
    is_finer = (headline.clock_resolution_ns or 0) < (source.clock_resolution_ns or 0)
    taken = moved if is_relative and is_finer else theirs.zip_with(theirs.is_not_null(), moved)
    headline.requests = headline.requests.with_columns(
        taken.alias("arrived_at_ns"), pl.lit(source.clock).alias("clock")
    )
    before = headline.clock
    headline.clock = source.clock
    if not (is_relative and is_finer):
        headline.clock_resolution_ns = source.clock_resolution_ns
    message = f"arrivals are dated by {source.name}; the headline's own clock is {before}"
    headline.notes.append(("clock_from_joined_source", message))


def _all_dated(arrivals: pl.DataFrame) -> bool:
    matched = arrivals.filter(pl.col("other_key").is_not_null())
    return not matched.is_empty() and matched["other_ns"].null_count() == 0
