"""One request seen by several layers: joined by its id, never added up.

The headline keeps its own values; what it does not know is filled from the other sources: best
grade first (A, B, L, C), then the order of the files. Every source that joins lends its ids, so
that one which shares ids with it alone joins too. Which rows are the same request: `pairs`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from kvtrace.ingest.joining.pairs import REUSED_APART_NS, Matched, matched, named
from kvtrace.ingest.sources import ABSOLUTE, HEADLINE_ORDER, Source
from kvtrace.units import NS_PER_MS

JOINED_SHARE: Final = 0.5
"""A source of which at least this share of rows was matched has the role `joined`; where this share
of the smaller source was matched, two sources of one log count the same requests."""
CONFLICT_FLAG: Final = "join_conflict"
"""Two layers state different counts for the request."""
ENDED_FLAG: Final = "dated_by_end"
"""The arrival is the instant of the request's end."""
HALF_FLAGS: Final = ("prefill_half_only", "decode_half_only")
"""Only one of the two instances of a request is known."""
_NAMES: Final = (
    "session_key",
    "parent_key",
    "turn",
    "tenant_key",
    "user_key",
    "llm",
    "adapter",
    "request_type",
)
"""What a call and its children have in common."""
_TIERS: Final = (
    "cached_device_tokens",
    "cached_host_tokens",
    "cached_disk_tokens",
    "cached_remote_tokens",
)
_PROMPT: Final = ("prompt_tokens", "cached_tokens", *_TIERS)
"""Filled together or not at all: tiers <= cached <= prompt must hold."""
_FILLED: Final = (
    *_NAMES,
    "cache_write_tokens",
    "computed_tokens",
    "output_tokens",
    "queue_ns",
    "prefill_ns",
    "tpot_ns",
    "e2e_ns",
)
_COMPARED: Final = (*_PROMPT, "output_tokens")
_OTHER: Final = "_other"
_FAILED: Final = ("error", "cancelled", "gateway_cache_hit")
_COARSE_NS: Final = 2**62
_FINE_NS: Final = NS_PER_MS
"""Clocks as fine as this are equally good; then the source that was joined first dates."""


def join_sources(headline: Source, sources: list[Source]) -> None:
    """Merge the other sources into the headline by request id, in place.

    Rows without a partner stand beside, since they may be requests of the headline under another
    id; those of a source that shares a log with the headline are other requests, and are appended.
    """
    waiting = [
        source for source in sources if source is not headline and not source.requests.is_empty()
    ]
    waiting.sort(key=lambda source: (HEADLINE_ORDER[source.grade], source.source_id))
    aliases = named(headline.requests, "request_key").clear()
    clocks: list[tuple[Source, pl.DataFrame]] = []
    last: dict[int, Matched] = {}
    is_new = True
    while waiting and is_new:
        is_new = False
        for other in list(waiting):
            found = last[other.source_id] = _matched(headline, other, aliases)
            if found.pairs.is_empty() and found.calls.is_empty():
                continue
            aliases = pl.concat([aliases, _lent_ids(other, found)])
            clocks.append((other, _merge(headline, other, found)))
            waiting.remove(other)
            is_new = True
    for other in waiting:
        _stand_beside(other, last[other.source_id])
    _take_clock(headline, clocks)


def join_twins(sources: list[Source]) -> None:
    """Merge sources of one format that log the same requests, into the one that says most."""
    for first in sources:
        if first.twin_group == first.source_id:
            twins = [source for source in sources if is_twin(source, first)]
            join_sources(first, [first, *twins])


def is_twin(source: Source, other: Source) -> bool:
    """Whether they are two sources of one format that log the same requests."""
    is_same_group = source.twin_group is not None and source.twin_group == other.twin_group
    return is_same_group and source is not other


def _matched(headline: Source, other: Source, aliases: pl.DataFrame) -> Matched:
    ours = pl.concat([named(headline.requests, "request_key"), aliases])
    is_dated = headline.clock in ABSOLUTE and other.clock in ABSOLUTE
    return matched(ours, named(other.requests, "other_key"), is_dated=is_dated)


def _lent_ids(other: Source, found: Matched) -> pl.DataFrame:
    """The ids of matched rows, as further ids of the headline's rows."""
    ids = named(other.requests, "other_key")
    lent = pl.concat([found.pairs, found.calls]).join(ids, on="other_key", how="inner")
    return lent.select("request_key", *(name for name in ids.columns if name != "other_key"))


def _stand_beside(other: Source, found: Matched) -> None:
    if found.is_another_day:
        message = (
            "the ids of these requests occur in the headline source too, but more than a day "
            "apart and at no steady distance: they are of another run and stand beside"
        )
        other.notes.append(("ids_of_another_day", message))
        return
    if len(found.undecided):
        other.notes.append(_undecided(len(found.undecided)))
    message = (
        "no request id in common with the headline source; these requests may be the same ones, "
        "so they stand beside and are not added"
    )
    if len(found.undecided):
        message = message.replace("no request id", "no request id that can be told apart")
    other.notes.append(("stands_beside", message))


def _undecided(rows: int) -> tuple[str, str]:
    return (
        "ambiguous_request_ids",
        f"{rows} requests have an id that comes again, another number of times in the headline "
        "source and at other times; they are not joined and stand beside",
    )


def _merge(headline: Source, other: Source, found: Matched) -> pl.DataFrame:
    """Fill the headline from the matched rows, take those from the other source; their arrivals."""
    partners = _partners(other, found)
    theirs = partners.rename(
        {name: name + _OTHER for name in partners.columns if name not in {"request_key"}}
    )
    wide = headline.requests.join(theirs, on="request_key", how="left").sort("request_key")
    is_conflict = _note_conflicts(headline, other, wide)
    is_one_clock = headline.clock == other.clock and headline.clock in ABSOLUTE
    filled = wide.with_columns(_filled(headline, is_conflict, is_one_clock=is_one_clock))
    if is_twin(other, headline):
        filled = filled.with_columns(_filled_from_twin(wide, filled))
    headline.requests = filled.select(headline.requests.columns)
    arrivals = wide.select(
        "request_key",
        pl.col("arrived_at_ns" + _OTHER).alias("other_ns"),
        pl.col("status" + _OTHER).is_not_null().alias("is_matched"),
    )
    taken = pl.concat([found.pairs, found.calls]).select("other_key").unique()
    rows, ours = len(other.requests), len(headline.requests)
    other.requests = other.requests.join(
        taken, left_on="request_key", right_on="other_key", how="anti"
    ).sort("request_key")
    _note_calls(headline, other, found)
    agreed = len(taken) >= JOINED_SHARE * min(rows, ours)
    appended = _append_rest(headline, other, found) if agreed else 0
    _describe(headline, other, found, matched=len(taken), rows=rows, appended=appended)
    return arrivals


def _partners(other: Source, found: Matched) -> pl.DataFrame:
    """Rows of the other source under the headline's keys, at most one a row of the headline.

    Between a call and several children only what they have in common is told; a call that is the
    headline's also gets the outputs of its children, added up.
    """
    rows = other.requests.rename({"request_key": "other_key"})
    one = found.pairs.join(rows, on="other_key", how="inner")
    if found.calls.is_empty():
        return one.drop("other_key")
    calls = found.calls.join(rows, on="other_key", how="inner").sort("request_key", "other_key")
    names = [name for name in one.columns if name not in {"request_key", "other_key"}]
    output, is_parent = pl.col("output_tokens"), pl.len() > 1
    all_known = is_parent & (output.null_count() == 0)
    kept = {
        "arrived_at_ns": pl.col("arrived_at_ns").min(),
        "output_tokens": pl.when(all_known).then(output.sum()),
        "status": pl.col("status").first(),
        "is_benchmark": pl.col("is_benchmark").any(),
        **{name: pl.col(name).drop_nulls().first() for name in _NAMES},
    }
    summed = calls.group_by("request_key", maintain_order=True).agg(
        (kept[name] if name in kept else pl.lit(None, dtype=dtype)).alias(name)
        for name, dtype in one.schema.items()
        if name in names
    )
    return pl.concat([one.drop("other_key"), summed.select("request_key", *names)])


def _note_calls(headline: Source, other: Source, found: Matched) -> None:
    if found.calls.is_empty():
        return
    ours, theirs = (found.calls[key].n_unique() for key in ("request_key", "other_key"))
    message = (
        f"{ours} requests and {theirs} of {other.name} are calls and their children (prompts of a "
        "batch, or n answers): whose tokens and times are whose is not known, so only what they "
        "have in common is filled"
    )
    headline.notes.append(("joined_calls", message))


def _note_conflicts(headline: Source, other: Source, wide: pl.DataFrame) -> pl.Series:
    """Whether the two sources state different counts, by row; says how many of which."""
    compared = ("prompt_tokens",) if is_twin(other, headline) else _COMPARED
    differs = wide.select(
        (pl.col(name) != pl.col(name + _OTHER)).fill_null(False).alias(name) for name in compared
    )
    counts = {name: int(differs[name].sum()) for name in compared}
    is_split = wide.select((_holds(own=True) & ~_holds(own=False)).alias("")).to_series()
    parts = [f"{count} have other {name}" for name, count in counts.items() if count]
    if is_split.any():
        parts.append(f"{int(is_split.sum())} would have more cached than there is")
    if parts:
        message = f"of the requests joined with {other.name}, {', '.join(parts)}; "
        headline.notes.append(("join_conflicts", message + "the headline's own are kept"))
    return differs.select(pl.any_horizontal(compared).alias("")).to_series() | is_split


def _holds(*, own: bool) -> pl.Expr:
    """Tiers <= cached <= prompt, as far as they are known: of the headline's own values or filled.

    Nulls hold, as does a cached total that only the tiers give.
    """
    known = {name: pl.col(name) if own else pl.coalesce(name, name + _OTHER) for name in _PROMPT}
    tiers = pl.sum_horizontal(known[name] for name in _TIERS)
    prompt, cached = known["prompt_tokens"], known["cached_tokens"]
    return (
        (tiers <= cached).fill_null(True)
        & (tiers <= prompt).fill_null(True)
        & (cached <= prompt).fill_null(True)
    )


def _filled(headline: Source, is_conflict: pl.Series, *, is_one_clock: bool) -> list[pl.Expr]:
    """Expressions that keep the headline's values and fill its nulls."""
    filled = [pl.coalesce(name, name + _OTHER).alias(name) for name in _FILLED]
    agrees = _holds(own=False)
    filled.extend(
        pl.when(agrees).then(pl.coalesce(name, name + _OTHER)).otherwise(name).alias(name)
        for name in _PROMPT
    )
    is_theirs = pl.col("ttft_ns").is_null()
    filled.extend(
        pl.when(is_theirs).then(name + _OTHER).otherwise(name).alias(name)
        for name in ("ttft_ns", "ttft_from")
    )
    theirs = pl.col("status" + _OTHER)
    is_better = (pl.col("status") == "open") & theirs.is_not_null()  # they may have seen its end
    if "status" not in headline.format.supplies:
        is_better |= theirs.is_in(_FAILED)
    filled.append(pl.when(is_better).then(theirs).otherwise("status").alias("status"))
    filled.append(pl.col("is_benchmark") | pl.col("is_benchmark" + _OTHER).fill_null(False))
    none = pl.lit([], dtype=pl.List(pl.String))
    conflict = pl.when(is_conflict).then(pl.lit([CONFLICT_FLAG])).otherwise(none)
    is_begun = _knows_arrival() & pl.lit(is_one_clock)
    filled.append(
        pl.when(is_begun)
        .then("arrived_at_ns" + _OTHER)
        .otherwise("arrived_at_ns")
        .alias("arrived_at_ns")
    )
    ended = pl.lit([ENDED_FLAG])
    own = pl.when(is_begun).then(pl.col("flags").list.set_difference(ended)).otherwise("flags")
    others = pl.col("flags" + _OTHER).fill_null(none).list.set_difference(ended)
    flags = pl.concat_list(own, others, conflict)
    filled.append(flags.list.unique(maintain_order=True).alias("flags"))
    return filled


def _filled_from_twin(wide: pl.DataFrame, filled: pl.DataFrame) -> pl.DataFrame:
    """Of two instances that a request went through: the first arrival, the last end, all output.

    Where the end at the later of two that follow each other is unknown, so is the end of all.
    """
    at, other_at = pl.col("arrived_at_ns"), pl.col("arrived_at_ns" + _OTHER)
    e2e, other_e2e = pl.col("e2e_ns"), pl.col("e2e_ns" + _OTHER)
    status, other_status = pl.col("status"), pl.col("status" + _OTHER)
    is_known = at.is_not_null() & other_at.is_not_null()
    for flags in ("flags", "flags" + _OTHER):
        is_known &= ~pl.col(flags).list.contains(ENDED_FLAG).fill_null(False)
    is_open = (e2e.is_null() & (at >= other_at + other_e2e)) | (
        other_e2e.is_null() & (other_at >= at + e2e)
    )
    start = pl.min_horizontal(at, other_at)
    whole = pl.max_horizontal(at + e2e, other_at + other_e2e) - start
    longest = pl.max_horizontal(e2e, other_e2e)
    is_whole = filled.select(
        pl.all_horizontal(pl.col("flags").list.contains(flag) for flag in HALF_FLAGS)
    ).to_series()
    return wide.select(
        pl.when(is_known).then(start).otherwise(filled["arrived_at_ns"]).alias("arrived_at_ns"),
        pl.when(~is_known)
        .then(longest)
        .when(~is_open.fill_null(False))
        .then(whole)
        .alias("e2e_ns"),
        pl.max_horizontal("output_tokens", "output_tokens" + _OTHER).alias("output_tokens"),
        pl.when(other_status.is_in(_FAILED) | ((status == "open") & other_status.is_not_null()))
        .then(other_status)
        .otherwise(status)
        .alias("status"),
        pl.when(is_whole)
        .then(filled["flags"].list.set_difference(list(HALF_FLAGS)))
        .otherwise(filled["flags"])
        .alias("flags"),
    )


def _knows_arrival() -> pl.Expr:
    """Whether the other source saw the request come, and the headline only saw it end."""
    before = pl.col("arrived_at_ns") - pl.col("arrived_at_ns" + _OTHER)
    saw_end = pl.col("flags" + _OTHER).list.contains(ENDED_FLAG)
    return (
        pl.col("flags").list.contains(ENDED_FLAG)
        & ~saw_end.fill_null(True)
        & before.is_between(0, REUSED_APART_NS).fill_null(False)
    )


def _append_rest(headline: Source, other: Source, found: Matched) -> int:
    """Append rows without a partner that are certainly no row of the headline; how many.

    Layers that wrote into one log and mostly count the same requests name them alike, so that an
    id that the headline lacks is a request that it did not see (a look-up that was not made, a pod
    without a KV layer). Their unknown stays null. Rows with blocks keep their own domain.
    """
    logs = {read.log_id for read in headline.files}
    is_shared = any(read.log_id in logs for read in other.files) or is_twin(other, headline)
    has_blocks = any(read.rows is not None and len(read.rows.block_counts) for read in other.files)
    if not is_shared or has_blocks or not _is_one_clock(headline, other, found):
        return 0
    is_other = pl.col("request_id_key").is_not_null()
    is_other &= ~pl.col("request_key").is_in(found.undecided.implode())
    rest = other.requests.filter(is_other)
    if rest.is_empty():
        return 0
    headline.requests = pl.concat([headline.requests, rest]).sort("request_key")
    other.requests = other.requests.filter(~is_other)
    message = (
        f"{len(rest)} requests of {other.name} that {headline.name} did not see are rows too: "
        "both name requests alike"
    )
    headline.notes.append(("rows_of_another_layer", message))
    return len(rest)


def _is_one_clock(headline: Source, other: Source, found: Matched) -> bool:
    """Rows of both can stand in one order: their zones agree, or nothing says that they do not."""
    if headline.clock == other.clock:
        return True
    is_dated = headline.clock in ABSOLUTE and other.clock in ABSOLUTE
    return is_dated and found.shift_ns is not None and abs(found.shift_ns) <= REUSED_APART_NS


def _describe(
    headline: Source, other: Source, found: Matched, *, matched: int, rows: int, appended: int
) -> None:
    if matched >= JOINED_SHARE * rows or other.requests.is_empty():
        other.role = "joined"
    message = f"{matched} of {rows} requests of {other.name} joined by request id"
    headline.notes.append(("joined_by_request_id", message))
    if len(found.undecided):
        other.notes.append(_undecided(len(found.undecided)))
    if matched + appended < rows:
        rest = (
            f"{rows - matched - appended} requests without a partner in the headline stand beside"
        )
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
    theirs = headline.requests.join(arrivals, on="request_key", how="left", maintain_order="left")[
        "other_ns"
    ]
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
    matched_rows = arrivals.filter("is_matched")
    return not matched_rows.is_empty() and matched_rows["other_ns"].null_count() == 0
