"""Files of one format that log the same requests: a prefill and a decode instance, a proxy before.

They must not add up, so each gets its own seat, and every seat is a source. Files with half of
the smaller one's ids in common, at nearly the same times, log the same requests. Copies do not
(their rows are dropped), nor do runs of a client that counts its ids anew: those follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kvtrace.ingest.request_columns import COPY_DIGEST
from kvtrace.units import NS_PER_S

_SHARE: Final = 0.5
_NEAR_NS: Final = 60 * NS_PER_S
"""What two instances see of one request is no further apart, its own duration aside."""
_SURE_NS: Final = 5 * NS_PER_S
"""So near are the same requests even where one file ends before the other begins."""
_MAX_FILES_OF_ID: Final = 4
"""An id in more files than this is a client's counter; router, proxy and two instances are four."""
_ENOUGH_ROWS: Final = 250_000
"""More rows are judged by a share of the ids, which as keyed hashes are spread evenly."""
_WANTED: Final = ("e2e_ns", "prompt_tokens", COPY_DIGEST)


def seats(frames: Sequence[pl.DataFrame]) -> list[int]:
    """Seat of each file (its request rows): files of one seat have no requests in common.

    A file that says more of its requests sits lower; where all add up, all seats are 0.
    """
    conflicts = _same_requests(frames)
    if not conflicts:
        return [0] * len(frames)
    order = sorted(range(len(frames)), key=lambda number: (*_silence(frames[number]), number))
    seat_of: dict[int, int] = {}
    for number in order:
        taken = {seat_of[other] for other in conflicts.get(number, ()) if other in seat_of}
        seat_of[number] = next(seat for seat in range(len(frames)) if seat not in taken)
    return [seat_of[number] for number in range(len(frames))]


def _silence(frame: pl.DataFrame) -> tuple[float, float, bool, int]:
    """What sorts files that say more first; at a tie the one that stops at one token (prefill)."""
    if frame.is_empty():
        return 1.0, 1.0, True, 0
    unknown = [
        frame[name].null_count() / len(frame) for name in ("cached_tokens", "computed_tokens")
    ]
    output = frame["output_tokens"].median()
    goes_on = not isinstance(output, int | float) or output > 1
    first_ns = frame["arrived_at_ns"].min()
    return unknown[0], unknown[1], goes_on, first_ns if isinstance(first_ns, int) else 0


def _same_requests(frames: Sequence[pl.DataFrame]) -> dict[int, set[int]]:
    """By file, the files that log the same requests."""
    step = sum(map(len, frames)) // _ENOUGH_ROWS + 1
    frames = [_dated(frame, step) for frame in frames]
    ids = [frame.select(pl.col("request_id_key").alias("id")).unique() for frame in frames]
    files_of_id = pl.concat(ids).group_by("id").len()
    shared = files_of_id.filter(pl.col("len").is_between(2, _MAX_FILES_OF_ID)).select("id")
    if shared.is_empty():
        return {}
    rows = pl.concat([_first_of_ids(frame, shared, number) for number, frame in enumerate(frames)])
    sizes = [len(own) for own in ids]
    spans = [_span(frame) for frame in frames]
    both = rows.join(rows, on="id", suffix="_other").filter(pl.col("file") < pl.col("file_other"))
    found: dict[int, set[int]] = {}
    for file, other, near, differing, known, apart_ns in _compared(both).iter_rows():
        is_enough = near >= _SHARE * min(sizes[file], sizes[other])
        (first, last), (other_first, other_last) = spans[file], spans[other]
        follows = max(first, other_first) > min(last, other_last)
        if is_enough and differing <= known / 2 and not (follows and apart_ns > _SURE_NS):
            found.setdefault(file, set()).add(other)
            found.setdefault(other, set()).add(file)
    return found


def _compared(both: pl.DataFrame) -> pl.DataFrame:
    """(file, file_other, near ids, ids of other lengths, ids of known lengths, median ns apart)."""
    apart = (pl.col("at") - pl.col("at_other")).abs()
    longest = pl.max_horizontal(pl.col("e2e_ns"), pl.col("e2e_ns_other")).fill_null(0)
    is_copy = (pl.col(COPY_DIGEST) == pl.col(COPY_DIGEST + "_other")).fill_null(False)
    differs = pl.col("prompt_tokens") != pl.col("prompt_tokens_other")
    near = both.filter((apart <= longest + _NEAR_NS) & ~is_copy)
    return (
        near.group_by("file", "file_other")
        .agg(
            pl.len().alias("near"),
            differs.sum().alias("differing"),
            differs.count().alias("known"),
            apart.median().alias("apart"),
        )
        .sort("file", "file_other")
    )


def _dated(frame: pl.DataFrame, step: int) -> pl.DataFrame:
    """The requests of a file that have an id and a time, or one in `step` of their ids."""
    request_id = pl.col("request_id_key")
    is_wanted = request_id.is_not_null() & pl.col("arrived_at_ns").is_not_null()
    return frame.filter(is_wanted & (request_id % step == 0))


def _span(frame: pl.DataFrame) -> tuple[int, int]:
    """First and last time of a file's requests."""
    first, last = frame["arrived_at_ns"].min(), frame["arrived_at_ns"].max()
    return (first, last) if isinstance(first, int) and isinstance(last, int) else (0, 0)


def _first_of_ids(frame: pl.DataFrame, shared: pl.DataFrame, number: int) -> pl.DataFrame:
    """One row for each id of a file that other files have too."""
    named = frame.select(
        pl.lit(number).alias("file"),
        pl.col("request_id_key").alias("id"),
        pl.col("arrived_at_ns").alias("at"),
        *_WANTED,
    )
    return named.join(shared, on="id", how="semi").unique("id", keep="first")
