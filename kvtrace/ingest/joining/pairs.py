"""Which rows of two sources are the same request: by id, and by time where an id comes again.

An id that k rows of both sources have pairs them in order of time. Where the counts differ, each
row goes with the row that is nearest to it in time, if it is nearest to that one too and not far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from kvtrace.ingest.request_columns import CALL_ID, STRIPPED_ID
from kvtrace.units import NS_PER_S

REUSED_APART_NS: Final = 600 * NS_PER_S
"""Rows of an id that comes again are one request only if their clocks are this close."""
DAY_APART_NS: Final = 26 * 3600 * NS_PER_S
"""Further apart than any error of a time zone: another day, hence another run of a program."""
_STEADY_PAIRS: Final = 3
"""From this many pairs on, their shift says how the clocks stand to each other."""
_KEYS: Final = ("request_key", "other_key")


@dataclass(frozen=True, slots=True)
class Matched:
    """Rows that are the same request, and rows that may be but cannot be told."""

    pairs: pl.DataFrame
    """(request_key, other_key), each key once, by request_key."""
    calls: pl.DataFrame
    """(request_key, other_key) where one side counts a call and the other its children."""
    undecided: pl.Series
    """other_key of rows whose id the headline has too, but which of its rows is not known."""
    shift_ns: int | None = None
    """What their clock is ahead of ours at the median pair; None where no pair is dated."""
    is_another_day: bool = False
    """Ids agree, but the times say that they are of other runs: nothing is paired."""


def matched(ours: pl.DataFrame, theirs: pl.DataFrame, *, is_dated: bool) -> Matched:
    """Pairs of rows of two sources. `ours` and `theirs` come from `named`, helper ids included.

    `is_dated`: both count from the same epoch. The 8-hex suffix of newer vLLM engines, the index of
    a batch child and of one of n answers are taken off only where the other side has the rest.
    """
    exact = _paired(_by(ours, "id"), _by(theirs, "id"), is_dated=is_dated)
    if is_dated and _is_another_day(exact.pairs):
        none = exact.pairs.clear().select(_KEYS)
        return Matched(none, none, exact.pairs["other_key"], is_another_day=True)
    found, undecided = [exact.pairs], [exact.undecided]
    shift = _steady_shift_ns(exact.pairs)
    for left, right in (("id", STRIPPED_ID), (STRIPPED_ID, "id")):
        done = pl.concat(found)
        more = _paired(
            _by(_without(ours, done, "request_key"), left),
            _by(_without(theirs, done, "other_key"), right),
            is_dated=is_dated,
            known_shift_ns=shift,
        )
        found.append(more.pairs)
        undecided.append(more.undecided)
    pairs = pl.concat(found).select(_KEYS)
    calls = _calls(_without(ours, pairs, "request_key"), _without(theirs, pairs, "other_key"))
    unsure = pl.concat(undecided).unique()
    joined = pl.concat([pairs, calls])["other_key"]
    unsure = unsure.filter(~unsure.is_in(joined.implode())).sort()
    is_single = pl.col("request_key").is_unique() & pl.col("other_key").is_unique()
    pairs = pl.concat([pairs, calls.filter(is_single)]).sort("request_key")
    return Matched(pairs, calls.filter(~is_single).sort(_KEYS), unsure, _shift_ns(exact.pairs))


def named(requests: pl.DataFrame, key: str) -> pl.DataFrame:
    """(`key`, id, helper ids, at) of the rows that have an id."""
    helpers = [name for name in (STRIPPED_ID, CALL_ID) if name in requests.columns]
    frame = requests.select(
        pl.col("request_key").alias(key),
        pl.col("request_id_key").alias("id"),
        *helpers,
        pl.col("arrived_at_ns").alias("at"),
    )
    return frame.filter(pl.col("id").is_not_null())


def _by(frame: pl.DataFrame, id_column: str) -> pl.DataFrame:
    """The rows under one of their ids."""
    key = "request_key" if "request_key" in frame.columns else "other_key"
    chosen = frame.select(pl.col(id_column).alias("id"), key, "at")
    return chosen.filter(pl.col("id").is_not_null()).unique(["id", key], maintain_order=True)


def _without(frame: pl.DataFrame, pairs: pl.DataFrame, key: str) -> pl.DataFrame:
    return frame.join(pairs, on=key, how="anti", maintain_order="left")


@dataclass(frozen=True, slots=True)
class _Paired:
    pairs: pl.DataFrame
    """request_key, other_key, shift: what their clock is ahead of ours, ns."""
    undecided: pl.Series


def _paired(
    ours: pl.DataFrame,
    theirs: pl.DataFrame,
    *,
    is_dated: bool,
    known_shift_ns: int | None = None,
) -> _Paired:
    """Pairs under one id: in order of time, or nearest in time where the counts differ."""
    left = _ranked(ours.join(theirs, on="id", how="semi"), "request_key")
    right = _ranked(theirs.join(ours, on="id", how="semi"), "other_key")
    in_order = left.join(right, on=["id", "rank", "count"], how="inner").with_columns(
        (pl.col("at_right") - pl.col("at")).alias("shift")
    )
    shift = known_shift_ns
    single = in_order.filter(pl.col("count") == 1)
    if shift is None:
        shift = _steady_shift_ns(single)
    if shift is None and is_dated:
        shift = _steady_shift_ns(in_order) or 0
    is_far = (pl.col("shift") - pl.lit(shift, dtype=pl.Int64)).abs() > REUSED_APART_NS
    is_doubtful = (pl.col("count") > 1) & is_far.fill_null(False).any().over("id")
    in_order = in_order.filter(~is_doubtful)
    rest_left = left.join(in_order, on="id", how="anti")
    rest_right = right.join(in_order, on="id", how="anti")
    pairs = in_order.select(*_KEYS, "shift")
    if shift is not None:
        pairs = pl.concat([pairs, _nearest(rest_left, rest_right, shift)])
    pairs = pairs.sort(_KEYS)
    for key in _KEYS:  # a row with two ids may have found two partners
        pairs = pairs.unique(key, keep="first", maintain_order=True)
    unsure = right.join(pairs, on="other_key", how="anti")["other_key"]
    return _Paired(pairs, unsure)


def _ranked(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """With the place of each row among those of its id, by time, and how many there are."""
    ordered = frame.sort("id", "at", key, nulls_last=True)
    return ordered.with_columns(
        pl.int_range(pl.len(), dtype=pl.Int64).over("id").alias("rank"),
        pl.len().over("id").alias("count"),
    )


def _shift_ns(pairs: pl.DataFrame) -> int | None:
    """What their clock is ahead of ours: the median over pairs whose times are known."""
    middle = pairs["shift"].median()
    return round(middle) if isinstance(middle, int | float) else None


def _steady_shift_ns(pairs: pl.DataFrame) -> int | None:
    """The same if enough pairs agree on it."""
    shift = _shift_ns(pairs)
    if shift is None or len(pairs) < _STEADY_PAIRS:
        return None
    spread = (pairs["shift"] - shift).abs().median()
    return shift if isinstance(spread, int | float) and spread <= REUSED_APART_NS else None


def _is_another_day(pairs: pl.DataFrame) -> bool:
    """Ids that count from 0 come again with every run: then the times are days apart, unsteadily.

    A steady shift of many pairs is a clock that is set wrong (a year that was guessed).
    """
    shift = _shift_ns(pairs)
    is_far = shift is not None and abs(shift) > DAY_APART_NS
    return is_far and _steady_shift_ns(pairs) is None


def _nearest(left: pl.DataFrame, right: pl.DataFrame, shift_ns: int) -> pl.DataFrame:
    """Pairs that are nearest to each other in time and not too far apart.

    Rows of one id at one instant cannot be told apart.
    """
    is_placed = pl.col("at").is_not_null() & ~pl.struct("id", "at").is_duplicated()
    ours = left.filter(is_placed).select("id", "request_key", "at")
    theirs = right.filter(is_placed).select(
        "id", "other_key", (pl.col("at") - shift_ns).alias("at")
    )
    forth = _nearest_one_way(ours, theirs)
    back = _nearest_one_way(theirs, ours)
    both = forth.join(back, on=_KEYS, how="inner")
    return both.select(*_KEYS, (pl.col("theirs_at") - pl.col("ours_at") + shift_ns).alias("shift"))


def _nearest_one_way(frame: pl.DataFrame, among: pl.DataFrame) -> pl.DataFrame:
    is_ours = "request_key" in frame.columns
    own, other = ("ours_at", "theirs_at") if is_ours else ("theirs_at", "ours_at")
    found = frame.sort("at").join_asof(
        among.sort("at").with_columns(pl.col("at").alias(other)),
        on="at",
        by="id",
        strategy="nearest",
        tolerance=REUSED_APART_NS,
        check_sortedness=False,
    )
    found = found.drop_nulls(other).rename({"at": own})
    return found.select(*_KEYS, "ours_at", "theirs_at") if is_ours else found.select(_KEYS)


def _calls(ours: pl.DataFrame, theirs: pl.DataFrame) -> pl.DataFrame:
    """Rows of a call and of its children, where one side names the call; ids that come once."""
    found = pl.DataFrame(schema={"request_key": pl.Int64, "other_key": pl.Int64})
    for left, right in (("id", CALL_ID), (CALL_ID, "id")):
        if left not in ours.columns or right not in theirs.columns:
            continue
        mine, others = _by(ours, left), _by(theirs, right)
        call = mine if left == "id" else others
        is_again = call.filter(pl.col("id").is_duplicated()).select("id")
        one = mine.join(is_again, on="id", how="anti").join(others, on="id", how="inner")
        one = one.join(found, on="request_key", how="anti").join(found, on="other_key", how="anti")
        found = pl.concat([found, one.select(_KEYS)])
    return found
