"""The stays of blocks: what KV events say that each instance held, where, from when to when.

An event fills a medium of an instance with a block, or empties it of the block; only what changes
whether the medium holds the block begins or ends a stay, so that announcing a held block again
begins none. An instance loses all when it says so (`cleared`), and when a later file of it counts
its batches from the start again: a new process. What was held before the first event is not known.

Instants of files without a clock, or with a clock that counts from an unknown instant, cannot be
compared: each such file is a world of its own, and all others are one.

What was known of a block before a stay is a running total, or the last known value, inside the run
of its rows in a sorted frame: no loop over blocks or events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kvtrace.schema.facts import BLOCK_STAYS

_FILE_BYTES: Final = 1 << 44
"""Event keys are file number × 2^44 + offset."""
_UNSAID: Final = ""
"""The medium of an event that names none, while stays are told apart."""
_MEDIA: Final = ("device", "host", "disk", "remote", _UNSAID)
_HOLDER: Final = ("life", "block_key", "tier")
"""What holds at most one stay at a time."""
_BLOCK: Final = ("world", "block_key")


def build_block_stays(events: pl.DataFrame) -> pl.DataFrame:
    """The `block_stays` table of these `block_events`, in its order."""
    if events.is_empty():
        return BLOCK_STAYS.empty()
    ordered = _ordered(events)
    lives = _lives(ordered)
    ordered = ordered.with_columns(lives.sort("step").select("life", "stream"))
    stays = _stays(_touches(ordered), lives)
    stays = stays.with_columns(ordered["world", "stream", "is_store"][stays["step"]])
    return _frame(_judged(stays, ordered["at_ns"]), ordered)


def _ordered(events: pl.DataFrame) -> pl.DataFrame:
    """The events in the order of their times, then of their places; `step` is the row's number.

    A block that moves has the tokens that its store told of.
    """
    moved = events.filter(pl.col("change") == "moved").select("block_key").unique()
    sizes = (
        events.join(moved, on="block_key", how="semi")
        .group_by("block_key")
        .agg(pl.col("block_tokens").max().alias("known_tokens"))
    )
    file = pl.col("event_key") // _FILE_BYTES
    is_shared = pl.col("clock").is_in(["utc", "naive"])
    return (
        events.join(sizes, on="block_key", how="left")
        .sort("observed_at_ns", "event_key", "position", nulls_last=False)
        .with_row_index("step")
        .with_columns(
            pl.col("step").cast(pl.Int64),
            file.alias("file"),
            pl.when(is_shared).then(-1).otherwise(file).alias("world"),
            pl.coalesce("instance", pl.format("file {}", file)).alias("stream_name"),
            pl.when(pl.col("clock") != "order").then("observed_at_ns").alias("at_ns"),
            pl.coalesce("block_tokens", "known_tokens").alias("block_tokens"),
            (pl.col("change") == "stored").alias("is_store"),
        )
    )


def _lives(ordered: pl.DataFrame) -> pl.DataFrame:
    """The events by instance: `stream` numbers these, `life` the times between two losses of all.

    `begins` says of its first event how the life before it ended; null where there is none.
    """
    events = ordered.select("world", "stream_name", "step", "file", "sequence", "change").sort(
        "world", "stream_name", "step"
    )
    is_same = _follows("world", "stream_name")
    is_other_file = pl.col("file") != pl.col("file").shift()
    starts_over = pl.col("sequence") < pl.col("sequence").shift()
    begins = (
        pl.when(~is_same)
        .then(None)
        .when(pl.col("change") == "cleared")
        .then(pl.lit("cleared"))
        .when(is_other_file & starts_over)
        .then(pl.lit("restarted"))
    )
    return events.with_columns(
        begins.alias("begins"),
        (~is_same).cum_sum().cast(pl.Int64).alias("stream"),
        (~is_same | begins.is_not_null()).cum_sum().cast(pl.Int64).alias("life"),
    )


def _touches(ordered: pl.DataFrame) -> pl.DataFrame:
    """One row per event and medium of an instance that it fills with a block, or empties of it.

    A removal without a medium empties all that an event fills.
    """
    events = ordered.filter(pl.col("block_key").is_not_null())
    fills = events.filter(pl.col("change").is_in(["stored", "moved"]))
    leaves = events.filter(pl.col("change") == "moved")
    removals = events.filter(pl.col("change") == "removed")
    is_named = pl.col("medium").is_not_null()
    filled = pl.DataFrame({"medium": fills["medium"].fill_null(_UNSAID).unique().sort()})
    anywhere = filled.filter(pl.col("medium").is_in(_MEDIA))
    return pl.concat(
        [
            _touch(fills, "medium", is_filled=True),
            _touch(leaves, "from_medium", is_filled=False),
            _touch(removals.filter(is_named), "medium", is_filled=False),
            _touch(
                removals.filter(~is_named).drop("medium").join(anywhere, how="cross"),
                "medium",
                is_filled=False,
            ),
        ]
    )


def _touch(events: pl.DataFrame, medium: str, *, is_filled: bool) -> pl.DataFrame:
    return events.select(
        "life",
        "block_key",
        pl.col(medium).fill_null(_UNSAID).alias("tier"),
        "step",
        pl.lit(is_filled).alias("is_filled"),
    )


def _stays(touches: pl.DataFrame, lives: pl.DataFrame) -> pl.DataFrame:
    """One row per stay: its life, block, tier, first and last step, and how it ended.

    A stay that no event ends lasts as long as the life of its instance; the last life is open.
    """
    turns = touches.sort(*_HOLDER, "step", "is_filled").filter(
        pl.col("is_filled")
        != pl.when(_follows(*_HOLDER)).then(pl.col("is_filled").shift()).otherwise(False)
    )
    has_end = _follows(*_HOLDER).shift(-1, fill_value=False)
    ended = turns.with_columns(
        pl.when(has_end).then(pl.col("step").shift(-1)).alias("end_step")
    ).filter("is_filled")
    losses = lives.filter(pl.col("begins").is_not_null()).select(
        pl.col("life") - 1, pl.col("step").alias("loss_step"), "begins"
    )
    return (
        ended.drop("is_filled")
        .join(losses, on="life", how="left", maintain_order="left")
        .with_columns(
            pl.coalesce("end_step", "loss_step").alias("end_step"),
            pl.when(pl.col("end_step").is_null())
            .then(pl.col("begins").fill_null("open"))
            .alias("loss"),
        )
        .drop("loss_step", "begins")
    )


def _judged(stays: pl.DataFrame, at_ns: pl.Series) -> pl.DataFrame:
    """The stays with how they began, and what was known of a block stored in HBM just before."""
    stays = stays.with_row_index("stay")
    known = _known(stays, at_ns)
    is_hbm = (pl.col("tier") == "device") & pl.col("is_store")
    is_below = pl.col("own_host") + pl.col("own_disk") + pl.col("pool") > 0
    place = (
        pl.when(pl.col("stays_before") == 0)
        .then(pl.lit("first_seen"))
        .when(is_below)
        .then(pl.lit("lower_tier_holds"))
        .when(pl.col("holders") > pl.col("own_holders"))
        .then(pl.lit("other_instance_holds"))
        .when(pl.col("own_stays_before") > 0)
        .then(pl.lit("same_instance_removed"))
        .otherwise(pl.lit("other_instance_removed"))
    )
    began = (
        pl.when(~pl.col("is_store"))
        .then(pl.lit("moved"))
        .when(pl.col("tier") == _UNSAID)
        .then(pl.lit("announced"))
        .when(is_hbm)
        .then(pl.when(is_below).then(pl.lit("loaded")).otherwise(pl.lit("computed")))
        .otherwise(
            pl.when(pl.col("own_device") > 0).then(pl.lit("copied")).otherwise(pl.lit("written"))
        )
    )
    nearest = (
        pl.when(pl.col("own_host") > 0)
        .then(pl.lit("host"))
        .when(pl.col("own_disk") > 0)
        .then(pl.lit("disk"))
        .otherwise(pl.lit("remote"))
    )
    start_ns = at_ns.gather(stays["step"])
    return (
        stays.join(known, on="stay", how="left", maintain_order="left")
        .with_columns(start_ns.alias("started_at_ns"), began.alias("began"))
        .with_columns(
            pl.when(is_hbm).then(place).alias("place"),
            pl.when(pl.col("began") == "loaded")
            .then(nearest)
            .when(pl.col("began") == "copied")
            .then(pl.lit("device"))
            .alias("source"),
            pl.when(is_hbm).then(start_ns - pl.col("last_stored_ns")).alias("since_stored_ns"),
            pl.when(is_hbm & (pl.col("stays_before") > 0))
            .then(
                pl.when(pl.col("holders") > 0)
                .then(0)
                .otherwise(start_ns - pl.col("last_removed_ns"))
            )
            .alias("since_held_ns"),
        )
    )


def _known(stays: pl.DataFrame, at_ns: pl.Series) -> pl.DataFrame:
    """One row per stay: how often and by whom its block was held before, and until when."""
    marks = _marks(stays).sort(*_BLOCK, "step", "delta")
    is_start, is_end = pl.col("delta") == 1, pl.col("delta") == -1
    is_remote = pl.col("tier") == "remote"
    at = at_ns.gather(marks["step"])
    of_block = (
        marks.with_columns(_first_row(_BLOCK), at.alias("at_ns"))
        .with_columns(
            _before(is_start).alias("stays_before"),
            _before("delta").alias("holders"),
            _before(pl.when(is_remote).then("delta").otherwise(0)).alias("pool"),
            _last_before("at_ns", is_start).alias("last_stored_ns"),
            _last_before("at_ns", is_end).alias("last_removed_ns"),
        )
        .filter(is_start)
        .select("stay", "stays_before", "holders", "pool", "last_stored_ns", "last_removed_ns")
    )
    owner = (*_BLOCK, "stream")
    of_own = (
        marks.sort(*owner, "step", "delta")
        .with_columns(_first_row(owner))
        .with_columns(
            _before(is_start).alias("own_stays_before"),
            _before("delta").alias("own_holders"),
            *(
                _before(pl.when(pl.col("tier") == tier).then("delta").otherwise(0)).alias(
                    f"own_{tier}"
                )
                for tier in ("device", "host", "disk")
            ),
        )
        .filter(is_start)
        .select("stay", "own_stays_before", "own_holders", "own_device", "own_host", "own_disk")
    )
    return of_block.join(of_own, on="stay")


def _marks(stays: pl.DataFrame) -> pl.DataFrame:
    """One row per start (+1) and per end (-1) of a stay; in one step ends come first."""
    common = ("stay", "world", "stream", "block_key", "tier")
    starts = stays.select(*common, "step", pl.lit(1, pl.Int64).alias("delta"))
    ends = stays.filter(pl.col("end_step").is_not_null()).select(
        *common, pl.col("end_step").alias("step"), pl.lit(-1, pl.Int64).alias("delta")
    )
    return pl.concat([starts, ends])


def _follows(*names: str) -> pl.Expr:
    """Whether the row has the values of the row before it in these columns."""
    return pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in names) & (
        pl.int_range(pl.len()) > 0
    )


def _first_row(names: Sequence[str]) -> pl.Expr:
    """`first`: the number of the row where the run of rows with these values begins."""
    row = pl.int_range(pl.len())
    return pl.when(~_follows(*names)).then(row).forward_fill().alias("first")


def _before(amount: pl.Expr | str) -> pl.Expr:
    """The sum of `amount` over the earlier rows of the run."""
    value = (pl.col(amount) if isinstance(amount, str) else amount).cast(pl.Int64)
    total = value.cum_sum() - value
    return total - total.gather(pl.col("first"))


def _last_before(name: str, is_counted: pl.Expr) -> pl.Expr:
    """The last known value of a column in the earlier, counted rows of the run."""
    row = pl.int_range(pl.len())
    last = pl.when(is_counted & pl.col(name).is_not_null()).then(row).forward_fill().shift()
    return pl.col(name).gather(pl.when(last >= pl.col("first")).then(last))


def _frame(stays: pl.DataFrame, ordered: pl.DataFrame) -> pl.DataFrame:
    """The stays with the columns of the `block_stays` table, in its order."""
    start = ordered["event_key", "position", "instance", "block_tokens", "medium", "from_medium"][
        stays["step"]
    ]
    end = ordered.select(
        pl.col("event_key").alias("end_event_key"),
        pl.col("position").alias("end_position"),
        pl.col("at_ns").alias("ended_at_ns"),
        pl.col("change").alias("end_change"),
    ).select(pl.all().gather(stays["end_step"]))
    said = pl.when(pl.col("began") == "moved").then("from_medium").otherwise("source")
    return (
        pl.concat([stays, start, end], how="horizontal")
        .with_columns(pl.coalesce("loss", "end_change").alias("ended"), said.alias("from_medium"))
        .select(BLOCK_STAYS.polars_schema().keys())
        .cast(pl.Schema(BLOCK_STAYS.polars_schema()))
        .sort(BLOCK_STAYS.order_by)
    )
