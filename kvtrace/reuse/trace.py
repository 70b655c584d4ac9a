"""From the requests and blocks tables to requests in arrival order with dense ids of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kvtrace.reuse.runs import Runs, make_dense
from kvtrace.schema.arrays import BoolArray, IntArray, RequestTrace
from kvtrace.schema.manifest import CacheDomain

KEYS_PER_FILE: Final = 1 << 44
"""A request key is file number × 2^44 + byte offset (schema.tables): dividing leaves the file."""


@dataclass(frozen=True, slots=True)
class OrderedRequests:
    """`ok` headline requests, domain after domain, each in arrival order, with dense ids."""

    rows: pl.DataFrame
    """request_key, cache_domain (null: the source has no blocks at all), source_id, known_at_ns
    (null: no clock), arrived_at_ns (filled for order, null where the domain has no clock),
    prompt_tokens, output_tokens, request_id_key, parent_key, session_key, tail_tokens (0: no
    partial last block)."""
    runs: Runs
    """Ids are dense over all domains together, so that of two domains none is shared."""

    def ints(self, column: str, *, unknown: int) -> IntArray:
        """(requests,) one column, with `unknown` in place of null."""
        return self.rows[column].fill_null(unknown).cast(pl.Int64).to_numpy()


def order_requests(requests: pl.DataFrame, blocks: pl.DataFrame) -> OrderedRequests:
    """`ok` headline requests with their runs: domains ascending, then arrival, then request_key.

    A row without arrival stands where it is in its file, after the row before it. A request without
    blocks (shorter than one) belongs to the lowest domain of its file.
    """
    used_blocks = blocks.filter(pl.col("block_count") > 0)
    held = used_blocks.group_by("request_key").agg(
        pl.col("cache_domain").min(), pl.col("tail_tokens").max()
    )
    rows = (
        requests.lazy()
        .filter((pl.col("status") == "ok") & pl.col("is_headline"))
        .join(held.lazy(), on="request_key", how="left")
        .select(
            "request_key",
            pl.coalesce("cache_domain", pl.col("cache_domain").min().over(_FILE)),
            "source_id",
            pl.when(pl.col("clock") != "order").then("arrived_at_ns").alias("known_at_ns"),
            "prompt_tokens",
            "output_tokens",
            "request_id_key",
            "parent_key",
            "session_key",
            pl.col("tail_tokens").fill_null(0),
        )
        .sort("cache_domain", "request_key", nulls_last=True)
        .collect()
    )
    rows = rows.with_columns(_fill_arrivals(rows).alias("arrived_at_ns")).sort(
        "cache_domain", "arrived_at_ns", "request_key", nulls_last=True
    )
    return OrderedRequests(rows, _runs_of(rows, used_blocks))


_FILE: Final = pl.col("request_key") // KEYS_PER_FILE


def _fill_arrivals(rows: pl.DataFrame) -> pl.Series:
    """Arrivals of rows in key order; a missing one takes that of its neighbour in the file."""
    known = rows["known_at_ns"]
    if known.null_count() in (0, len(rows)):
        return known
    filled = pl.col("known_at_ns").forward_fill().backward_fill().over("cache_domain", _FILE)
    earliest = pl.col("known_at_ns").min().over("cache_domain")
    return rows.select(pl.coalesce(filled, earliest)).to_series()


def _runs_of(rows: pl.DataFrame, blocks: pl.DataFrame) -> Runs:
    """The runs of these rows, with ids made dense in this order."""
    place = rows.select("request_key", pl.int_range(pl.len()).alias("request"))
    runs = blocks.join(place, on="request_key").sort("request", "position")
    request = runs["request"].cast(pl.Int64).to_numpy()
    start = runs["start_block"].cast(pl.Int64).to_numpy()
    count = runs["block_count"].cast(pl.Int64).to_numpy()
    domain = runs["cache_domain"].rank("dense").cast(pl.Int64).to_numpy() - 1
    ids_in_domain = np.zeros(int(domain.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(ids_in_domain, domain, start + count)
    shift = np.cumsum(ids_in_domain) - ids_in_domain
    offset = np.searchsorted(request, np.arange(len(rows) + 1))
    return make_dense(Runs(offset, start + shift[domain], count))


def build_trace(requests: pl.DataFrame, blocks: pl.DataFrame, domain: CacheDomain) -> RequestTrace:
    """The requests of one cache domain as arrays, in arrival order.

    Where the domain has no blocks at all, these are the requests of its source that belong to no
    domain. A prompt length that the source does not say is taken from the blocks; a request with
    neither is left out, since nothing can be replayed of it.
    """
    source = requests.filter(pl.col("source_id") == domain.source_id)
    own = blocks.filter(pl.col("cache_domain") == domain.cache_domain)
    ordered = order_requests(source, blocks if own.is_empty() else own)
    wanted = _wanted(ordered, None if own.is_empty() else domain.cache_domain)
    ordered = OrderedRequests(ordered.rows.filter(pl.Series(wanted)), _keep(ordered.runs, wanted))
    sizes = _blocks_per_request(ordered.runs)
    tail = ordered.ints("tail_tokens", unknown=0)
    block_tokens = sizes * domain.block_size_tokens
    block_tokens -= np.where(tail > 0, domain.block_size_tokens - tail, 0)
    prompt = ordered.ints("prompt_tokens", unknown=-1)
    arrived = _from_zero(ordered)
    return RequestTrace(
        request_key=ordered.ints("request_key", unknown=0),
        arrived_at_ns=arrived,
        prompt_tokens=np.where(prompt >= 0, prompt, block_tokens),
        output_tokens=ordered.ints("output_tokens", unknown=0),
        session=_dense_sessions(ordered.rows["session_key"]),
        run_offset=ordered.runs.offset,
        run_start=ordered.runs.start,
        run_blocks=ordered.runs.blocks,
        block_size_tokens=domain.block_size_tokens,
        distinct_blocks=ordered.runs.distinct_blocks,
        has_clock=not ordered.rows["known_at_ns"].is_null().all(),
        output_known=bool(ordered.rows["output_tokens"].is_not_null().any()),
        clock_resolution_ns=clock_resolution_ns(arrived),
    )


def _wanted(ordered: OrderedRequests, cache_domain: int | None) -> BoolArray:
    """(requests,) whether the request is of this domain (None: of none) and has a known length."""
    domain = ordered.rows["cache_domain"]
    of_domain = domain.is_null() if cache_domain is None else (domain == cache_domain)
    has_length = ordered.rows["prompt_tokens"].is_not_null().to_numpy()
    has_blocks = np.diff(ordered.runs.offset) > 0
    return of_domain.fill_null(False).to_numpy() & (has_length | has_blocks)


def _keep(runs: Runs, wanted: BoolArray) -> Runs:
    """The runs of the wanted requests, with ids re-made over exactly these."""
    counts = np.diff(runs.offset)
    kept = np.repeat(wanted, counts)
    offset = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts[wanted])))
    return make_dense(Runs(offset, runs.start[kept], runs.blocks[kept]))


def _blocks_per_request(runs: Runs) -> IntArray:
    totals = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(runs.blocks)))
    return np.asarray(totals[runs.offset[1:]] - totals[runs.offset[:-1]], dtype=np.int64)


def _from_zero(ordered: OrderedRequests) -> IntArray:
    """(requests,) arrivals from the first = 0; all zero without a clock."""
    if ordered.rows["arrived_at_ns"].null_count() or ordered.rows.is_empty():
        return np.zeros(len(ordered.rows), dtype=np.int64)
    arrived = ordered.ints("arrived_at_ns", unknown=0)
    return np.asarray(arrived - arrived[0], dtype=np.int64)


def clock_resolution_ns(arrived_at_ns: IntArray) -> int:
    """Step of the clock that made these sorted arrivals, at least 1.

    Many requests in one instant betray a coarse clock even if it jitters: then it is the smallest
    step between two instants, so that spreading inside it keeps the order. Otherwise it is the
    greatest common divisor of the arrivals.
    """
    instants = np.unique(arrived_at_ns)
    if len(instants) < 2:
        return 1
    steps = np.diff(instants)
    is_coarse = len(arrived_at_ns) >= 2 * len(instants)
    return int(steps.min() if is_coarse else np.gcd.reduce(steps))


def _dense_sessions(session_key: pl.Series) -> IntArray:
    """(requests,) session number in order of first appearance, -1 where unknown."""
    known = session_key.drop_nulls().unique(maintain_order=True)
    numbers = pl.DataFrame({"session_key": known, "session": np.arange(len(known))})
    joined = session_key.to_frame("session_key").join(
        numbers, on="session_key", how="left", maintain_order="left"
    )
    return joined["session"].fill_null(-1).cast(pl.Int64).to_numpy()
