"""Turns and parents that rows name: those that are missing were served and not logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

_ENOUGH: Final = 20
"""Turns or parents that must be expected before their absence says anything."""
_GAP_QUANTILE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Expected:
    """How many of the rows that must exist are there."""

    expected: int
    present: int

    @property
    def share(self) -> float:
        """0..1; under sampling of requests it estimates the rate."""
        return self.present / self.expected


def missing_turns(requests: pl.DataFrame) -> Expected | None:
    """Turns strictly between the first and the last logged one of each session; None: too few.

    The ends say nothing: a session may have begun before the log. Turns that count messages go in
    steps of two; the greatest common step is one turn.
    """
    turns = (
        requests.select("session_key", "turn")
        .drop_nulls()
        .unique()
        .group_by("session_key")
        .agg(
            pl.col("turn").min().cast(pl.Int64).alias("first"),
            pl.col("turn").max().cast(pl.Int64).alias("last"),
            pl.len().cast(pl.Int64).alias("turns"),
            pl.col("turn").sort().cast(pl.Int64).diff().drop_nulls().alias("steps"),
        )
    )
    steps = turns["steps"].explode(empty_as_null=False).drop_nulls().to_numpy()
    if not len(steps):
        return None
    step = int(np.gcd.reduce(steps))
    inner = turns.filter(pl.col("last") - pl.col("first") >= 2 * step)
    expected = int(((inner["last"] - inner["first"]) // step - 1).sum())
    present = int((inner["turns"] - 2).sum())
    return Expected(expected, present) if expected >= _ENOUGH else None


def missing_parents(requests: pl.DataFrame) -> Expected | None:
    """Parents of the requests of the second half of the log; None: too few, or none is there.

    Parents of the first requests lie before the log, so that only children count that come later
    than parents usually come before their children. Where no parent at all is there, the names are
    taken to be of another kind than request ids.
    """
    frame = requests.select("request_id_key", "parent_key", "arrived_at_ns", "request_key")
    children = frame.filter(pl.col("parent_key").is_not_null())
    if len(children) < _ENOUGH:
        return None
    parents = (
        frame.filter(pl.col("request_id_key").is_not_null())
        .select(pl.col("request_id_key").alias("parent_key"), "arrived_at_ns")
        .unique("parent_key", keep="first", maintain_order=True)
    )
    linked = children.join(parents, on="parent_key", how="left", suffix="_parent")
    linked = linked.with_columns(
        pl.col("parent_key").is_in(parents["parent_key"].implode()).alias("is_there")
    )
    if not linked["is_there"].any():
        return None
    late = linked.filter(_is_late(frame, linked))
    if len(late) < _ENOUGH:
        return None
    return Expected(len(late), int(late["is_there"].sum()))


def _is_late(frame: pl.DataFrame, linked: pl.DataFrame) -> pl.Expr:
    """Whether a child is so late that its parent must have come inside the log."""
    first, last = frame["arrived_at_ns"].min(), frame["arrived_at_ns"].max()
    if not isinstance(first, int) or not isinstance(last, int) or first == last:
        middle = int(frame["request_key"].sort()[len(frame) // 2])
        return pl.col("request_key") >= pl.lit(middle)
    gaps = (linked["arrived_at_ns"] - linked["arrived_at_ns_parent"]).drop_nulls()
    usual = gaps.quantile(_GAP_QUANTILE) if len(gaps) else None
    wait = max((last - first) // 2, int(usual or 0))
    return pl.col("arrived_at_ns") >= first + wait
