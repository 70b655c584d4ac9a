"""The same requests with a cache off and on: which belong together, and what made TTFT change.

TTFT is queue, moves and compute. Logs state `prefill_ns` from first scheduled to first token, which
holds a load that the engine waits for; a load that does not fit beside queue and prefill into the
TTFT is taken to lie inside the prefill. What no log says stays null, and what the known parts leave
of the change is `unexplained_ns`: the parts always add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import polars as pl

from kvtrace.schema.paired import REQUEST_PAIRS

PairedBy = Literal["request_id", "order"]


@dataclass(frozen=True, slots=True)
class Paired:
    """Pairs, and what was left without a partner."""

    frame: pl.DataFrame
    """Rows of the `request_pairs` table."""
    paired_by: PairedBy
    unpaired_off: int
    unpaired_on: int
    are_loads_known: bool
    """The log with the cache on says of single requests what was loaded."""


def pair_requests(
    *,
    off_requests: pl.DataFrame,
    on_requests: pl.DataFrame,
    off_transfers: pl.DataFrame,
    on_transfers: pl.DataFrame,
) -> Paired:
    """Pairs by request id where any id is in both, else by order among equal prompt lengths.

    Only `ok` rows of the headline are paired; of several with one id the first.
    """
    are_loads_known = not _loads(on_transfers).is_empty()
    off = _sides(off_requests, off_transfers, is_off=True, are_loads_known=True)
    on = _sides(on_requests, on_transfers, is_off=False, are_loads_known=are_loads_known)
    joined = _by_id(off, on)
    paired_by: PairedBy = "request_id"
    if joined.is_empty():
        joined, paired_by = _by_order(off, on), "order"
    frame = joined.with_columns(paired_by=pl.lit(paired_by)).pipe(_split)
    return Paired(
        frame=frame.select(list(REQUEST_PAIRS.polars_schema())).sort("request_key"),
        paired_by=paired_by,
        unpaired_off=len(off) - len(joined),
        unpaired_on=len(on) - len(joined),
        are_loads_known=are_loads_known,
    )


def _loads(transfers: pl.DataFrame) -> pl.DataFrame:
    """Timed loads by request: seconds are added, since one request waits for its loads in turn."""
    return (
        transfers.filter(
            (pl.col("direction") == "load")
            & pl.col("request_id_key").is_not_null()
            & pl.col("duration_ns").is_not_null()
        )
        .group_by("request_id_key")
        .agg(move_ns=pl.col("duration_ns").sum(), moved_bytes=pl.col("moved_bytes").sum())
    )


def _sides(
    requests: pl.DataFrame, transfers: pl.DataFrame, *, is_off: bool, are_loads_known: bool
) -> pl.DataFrame:
    """One row per request with its parts; `move_ns` is null where nobody can know it.

    With the cache off nothing is loaded unless a load is logged. With it on, a request without a
    logged load loads nothing if the log has loads of others, if nothing of it was cached, or if all
    that was cached lay in HBM.
    """
    ttft = pl.when(pl.col("ttft_from") == "scheduled").then(
        pl.col("ttft_ns") + pl.col("queue_ns")
    )  # fmt: skip
    is_in_place = (pl.col("cached_tokens") == 0) | (
        pl.col("cached_device_tokens") == pl.col("cached_tokens")
    )
    moves_nothing = pl.lit(is_off or are_loads_known) | is_in_place.fill_null(value=False)
    return (
        requests.filter(pl.col("is_headline") & (pl.col("status") == "ok"))
        .sort("arrived_at_ns", "request_key", nulls_last=True)
        .join(_loads(transfers), on="request_id_key", how="left", maintain_order="left")
        .with_columns(
            ttft_ns=ttft.otherwise(pl.col("ttft_ns")),
            move_ns=pl.when(pl.col("move_ns").is_null() & moves_nothing)
            .then(0)
            .otherwise(pl.col("move_ns")),
        )
        .pipe(_with_compute)
        .select(
            *("request_key", "request_id_key", "prompt_tokens", "cached_tokens", "ttft_ns"),
            *("queue_ns", "prefill_ns", "move_ns", "compute_ns", "moved_bytes"),
        )
    )


def _with_compute(side: pl.DataFrame) -> pl.DataFrame:
    """Prefill without the loads inside it; null where loads are unknown or longer than it."""
    beside = pl.col("queue_ns").fill_null(0) + pl.col("prefill_ns") + pl.col("move_ns")
    is_inside = (beside > pl.col("ttft_ns")).fill_null(value=True)
    without = pl.col("prefill_ns") - pl.col("move_ns")
    compute = pl.when(is_inside).then(without).otherwise(pl.col("prefill_ns"))
    known = pl.col("move_ns").is_not_null()
    return side.with_columns(compute_ns=pl.when(known & (compute >= 0)).then(compute))


def _by_id(off: pl.DataFrame, on: pl.DataFrame) -> pl.DataFrame:
    ours, theirs = (
        side.filter(pl.col("request_id_key").is_not_null()).unique(
            "request_id_key", keep="first", maintain_order=True
        )
        for side in (off, on)
    )
    return theirs.join(ours, on="request_id_key", suffix="_off")


def _by_order(off: pl.DataFrame, on: pl.DataFrame) -> pl.DataFrame:
    """The n-th request of a prompt length with the n-th of that length on the other side."""
    ours, theirs = (
        side.filter(pl.col("prompt_tokens").is_not_null()).with_columns(
            place=pl.int_range(pl.len()).over("prompt_tokens")
        )
        for side in (off, on)
    )
    return theirs.join(ours, on=["prompt_tokens", "place"], suffix="_off")


def _split(pairs: pl.DataFrame) -> pl.DataFrame:
    """On less off, part by part; saved compute is off less on."""

    def change(name: str) -> pl.Expr:
        return pl.col(f"{name}_ns") - pl.col(f"{name}_ns_off")

    parts = pairs.with_columns(
        off_request_key=pl.col("request_key_off"),
        off_ttft_ns=pl.col("ttft_ns_off"),
        on_ttft_ns=pl.col("ttft_ns"),
        ttft_change_ns=change("ttft"),
        queue_added_ns=change("queue"),
        prefill_change_ns=change("prefill"),
        move_added_ns=change("move"),
        compute_saved_ns=-change("compute"),
    )
    return parts.with_columns(
        unexplained_ns=pl.col("ttft_change_ns")
        - pl.col("queue_added_ns").fill_null(0)
        - pl.col("move_added_ns").fill_null(0)
        + pl.col("compute_saved_ns").fill_null(0)
    )
