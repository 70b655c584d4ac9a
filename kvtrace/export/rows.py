"""The requests of a dataset as they are exported: in order of arrival, with numbers for names.

What goes out: lengths, times from the first arrival, ordinals of sessions, ranks of blocks. Ids,
hashes and names stay behind; the ranks are made anew over the exported requests, so that they say
nothing of requests that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from kvtrace.schema.arrays import BoolArray, IntArray
from kvtrace.schema.manifest import CacheDomain
from kvtrace.store.dataset import Dataset

CHUNK_REQUESTS: Final = 4096
"""Requests whose blocks are written out at a time: the rest stays as runs."""
_COLUMNS: Final = (
    "request_key",
    "session_key",
    "turn",
    "arrived_at_ns",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "queue_ns",
    "ttft_ns",
    "e2e_ns",
)


@dataclass(frozen=True, slots=True)
class BlockRuns:
    """The blocks of the requests as runs of consecutive ids, request after request."""

    offset: IntArray
    """(requests + 1,) runs of request i are offset[i] .. offset[i + 1]."""
    start: IntArray
    """(runs,) first id of the run."""
    count: IntArray
    """(runs,) blocks in the run."""
    ids: int
    """Every id is below."""

    def expand(self, first: int, until: int) -> tuple[IntArray, IntArray]:
        """(ids of the requests first .. until, where each request begins and the last one ends)."""
        runs = slice(int(self.offset[first]), int(self.offset[until]))
        start, count = self.start[runs], self.count[runs]
        ends = np.cumsum(count)
        ids = np.arange(int(count.sum())) + np.repeat(start - (ends - count), count)
        bounds = np.concatenate(([0], ends))[self.offset[first : until + 1] - self.offset[first]]
        return ids, bounds

    def per_request(self) -> IntArray:
        """(requests,) blocks of each request."""
        totals = np.concatenate(([0], np.cumsum(self.count)))
        return np.asarray(totals[self.offset[1:]] - totals[self.offset[:-1]], dtype=np.int64)

    def only(self, keep: BoolArray) -> BlockRuns:
        """The runs of these requests."""
        counts = np.diff(self.offset)
        kept = np.repeat(keep, counts)
        offset = np.concatenate(([0], np.cumsum(counts[keep]))).astype(np.int64)
        return BlockRuns(offset, self.start[kept], self.count[kept], self.ids)


@dataclass(frozen=True, slots=True)
class ExportRows:
    """What can be exported, and what was left out."""

    requests: pl.DataFrame
    """session (ordinal), turn, arrived_at_ns from the first arrival (null without a clock),
    prompt_tokens (known), cached_tokens, output_tokens, queue_ns, ttft_ns, e2e_ns, in order of
    arrival."""
    has_clock: bool
    blocks: BlockRuns | None
    """None: the dataset knows no blocks of these requests, or those of several sizes."""
    block_sizes: tuple[int, ...]
    """Tokens a block of the domains, each once, ascending."""
    has_tail_ids: bool
    """The last id of a prompt stands for a partial block, if its length leaves one."""
    domains: int
    """Cache domains with blocks; ids of two are never shared."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Requests that are not exported, by reason."""

    @property
    def block_size_tokens(self) -> int | None:
        """Tokens a block, where there is one size."""
        return self.block_sizes[0] if len(self.block_sizes) == 1 else None

    def only(self, keep: BoolArray, left_out: dict[str, int]) -> ExportRows:
        """These rows alone; sessions and times are counted from them."""
        return replace(
            self,
            requests=_renumbered(self.requests.filter(pl.Series(keep))),
            blocks=None if self.blocks is None else self.blocks.only(keep),
            left_out=left_out,
        )


def load_rows(dataset: Dataset) -> ExportRows:
    """The `ok` headline requests with known length, and arrival if the dataset has a clock."""
    left_out: dict[str, int] = {}
    served = _headline(dataset, left_out)
    has_clock = bool(served["arrived_at_ns"].is_not_null().any())
    if has_clock:
        served = _only(served, "arrived_at_ns", "without arrival", left_out)
    served = _only(served, "prompt_tokens", "without prompt length", left_out)
    served = served.sort("arrived_at_ns", "request_key")
    domains = _domains(dataset, served)
    sizes = tuple(sorted({domain.block_size_tokens for domain in domains}))
    blocks = _runs(dataset, served, domains) if len(sizes) == 1 else None
    return ExportRows(
        requests=_anonymous(served),
        has_clock=has_clock,
        blocks=blocks,
        block_sizes=sizes,
        has_tail_ids=any(domain.partial_tail == "counted" for domain in domains),
        domains=len(domains),
        left_out=left_out,
    )


def _headline(dataset: Dataset, left_out: dict[str, int]) -> pl.DataFrame:
    """The headline requests that were served; the others are counted by status.

    Values that contradict each other are unknown: cached tokens above the prompt, a first token
    after the end.
    """
    if not dataset.parts("requests"):
        return dataset.table("requests").select(_COLUMNS)
    rows = (
        pl.scan_parquet(dataset.parts("requests"))
        .filter(pl.col("is_headline"))
        .with_columns(
            pl.when(pl.col("clock") != "order").then("arrived_at_ns"),
            pl.when(pl.col("cached_tokens") <= pl.col("prompt_tokens")).then("cached_tokens"),
            pl.when(~(pl.col("ttft_ns") > pl.col("e2e_ns")).fill_null(False)).then("ttft_ns"),
        )
        .select(*_COLUMNS, "status")
        .collect()
    )
    others = rows.filter(pl.col("status") != "ok")["status"].value_counts().sort("status")
    left_out.update((f"with status `{status}`", count) for status, count in others.iter_rows())
    return rows.filter(pl.col("status") == "ok").drop("status")


def _only(rows: pl.DataFrame, column: str, reason: str, left_out: dict[str, int]) -> pl.DataFrame:
    """The rows where the column is known; the others are counted."""
    if unknown := rows[column].null_count():
        left_out[reason] = unknown
    return rows.filter(pl.col(column).is_not_null())


def _anonymous(served: pl.DataFrame) -> pl.DataFrame:
    """The rows with an ordinal for the session, times from the first arrival, and no key."""
    return _renumbered(served.rename({"session_key": "session"}).drop("request_key"))


def _renumbered(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with sessions counted by first appearance and times from the first arrival."""
    known = rows.select(pl.col("session").drop_nulls().unique(maintain_order=True))
    numbers = known.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("ordinal"))
    return (
        rows.join(numbers, on="session", how="left", maintain_order="left")
        .with_columns(
            pl.col("ordinal").alias("session"),
            pl.col("arrived_at_ns") - pl.col("arrived_at_ns").min(),
        )
        .drop("ordinal")
    )


def _domains(dataset: Dataset, served: pl.DataFrame) -> list[CacheDomain]:
    """The cache domains that hold blocks of these requests, in order."""
    if served.is_empty() or not dataset.parts("blocks"):
        return []
    held = (
        pl.scan_parquet(dataset.parts("blocks"))
        .filter(pl.col("block_count") > 0)
        .join(served.lazy().select("request_key"), on="request_key", how="semi")
        .select(pl.col("cache_domain").unique())
        .collect()
    )
    wanted = set(held.to_series().to_list())
    return [one for one in dataset.manifest.domains if one.cache_domain in wanted]


def _runs(dataset: Dataset, served: pl.DataFrame, domains: list[CacheDomain]) -> BlockRuns:
    """The runs of these requests; the ids of each domain come after those of the one before."""
    place = served.select("request_key", pl.int_range(pl.len(), dtype=pl.Int64).alias("request"))
    runs = (
        pl.scan_parquet(dataset.parts("blocks"))
        .filter(pl.col("block_count") > 0)
        .join(place.lazy(), on="request_key")
        .sort("request", "cache_domain", "position")
        .collect()
    )
    sizes = [domain.distinct_blocks for domain in domains]
    first = dict(zip((d.cache_domain for d in domains), np.cumsum([0, *sizes[:-1]]), strict=True))
    shift = runs["cache_domain"].replace_strict(first, return_dtype=pl.Int64).to_numpy()
    request = runs["request"].to_numpy()
    return BlockRuns(
        offset=np.searchsorted(request, np.arange(len(served) + 1)).astype(np.int64),
        start=runs["start_block"].cast(pl.Int64).to_numpy() + shift,
        count=runs["block_count"].cast(pl.Int64).to_numpy(),
        ids=sum(sizes),
    )


class DenseIds:
    """Ids by first appearance, handed out while the requests go by."""

    def __init__(self, ids: int) -> None:
        self._rank = np.full(ids, -1, dtype=np.int64)
        self.distinct = 0

    def of(self, ids: IntArray) -> IntArray:
        """The ranks of these ids; new ones get the next."""
        fresh = ids[self._rank[ids] < 0]
        if len(fresh):
            distinct, first = np.unique(fresh, return_index=True)
            ordered = distinct[np.argsort(first)]
            self._rank[ordered] = np.arange(self.distinct, self.distinct + len(ordered))
            self.distinct += len(ordered)
        return np.asarray(self._rank[ids], dtype=np.int64)


def block_lists(rows: ExportRows, tails: IntArray | None = None) -> Iterator[list[int] | None]:
    """The dense ids of each request in order; None where its blocks are unknown.

    `tails` (requests,) names the last id of a request anew, where it is not -1.
    """
    blocks, size = rows.blocks, rows.block_size_tokens
    if blocks is None or size is None:
        raise ValueError("these rows have no blocks of one size")
    prompt = rows.requests["prompt_tokens"].to_numpy()
    dense = DenseIds(blocks.ids if tails is None else max(blocks.ids, int(tails.max()) + 1))
    for first in range(0, len(prompt), CHUNK_REQUESTS):
        until = min(first + CHUNK_REQUESTS, len(prompt))
        ids, bounds = blocks.expand(first, until)
        if tails is not None:
            named = np.flatnonzero(tails[first:until] >= 0)
            ids[bounds[named + 1] - 1] = tails[first:until][named]
        ranks = dense.of(ids).tolist()
        for place, length in enumerate(prompt[first:until].tolist()):
            held = ranks[bounds[place] : bounds[place + 1]]
            is_short = length < size and not rows.has_tail_ids
            yield held if held or is_short else None


def separate_tails(rows: ExportRows) -> tuple[IntArray, int]:
    """(requests,) ids of partial last blocks for tools to which an id is one text of one length.

    A last id keeps its name (-1) if the block has the same tokens wherever it stands; else each
    length of it gets an id of its own. Also: how many last blocks were renamed.
    """
    blocks, size = rows.blocks, rows.block_size_tokens
    tails = np.full(len(rows.requests), -1, dtype=np.int64)
    if blocks is None or size is None:
        return tails, 0
    counts = blocks.per_request()
    prompt = rows.requests["prompt_tokens"].to_numpy()
    tokens = prompt - (counts - 1) * size
    is_partial = (counts > 0) & (tokens > 0) & (tokens < size)
    last_id = np.full(len(tails), -1, dtype=np.int64)
    has_blocks = counts > 0
    last_run = blocks.offset[1:][has_blocks] - 1
    last_id[has_blocks] = blocks.start[last_run] + blocks.count[last_run] - 1
    length_of = _first_lengths(blocks, size, last_id, np.where(is_partial, tokens, size))
    differs = np.flatnonzero(is_partial & (length_of[last_id] != tokens))
    if len(differs):
        pairs = np.stack([last_id[differs], tokens[differs]], axis=1)
        _, renamed = np.unique(pairs, axis=0, return_inverse=True)
        tails[differs] = blocks.ids + renamed.reshape(-1)
    return tails, len(differs)


def _first_lengths(
    blocks: BlockRuns, size: int, last_id: IntArray, last_tokens: IntArray
) -> IntArray:
    """(ids,) tokens of each block: the full size if it ever is full, else those of its first."""
    length_of = np.full(blocks.ids, size, dtype=np.int64)
    ever_full = np.zeros(blocks.ids + 1, dtype=np.int64)
    is_last_run = np.zeros(len(blocks.start), dtype=np.int64)
    has_blocks = last_id >= 0
    is_last_run[blocks.offset[1:][has_blocks] - 1] = 1
    np.add.at(ever_full, blocks.start, 1)
    np.add.at(ever_full, blocks.start + blocks.count - is_last_run, -1)
    is_full = np.cumsum(ever_full)[:-1] > 0
    is_full[last_id[has_blocks & (last_tokens == size)]] = True
    partial = np.flatnonzero(has_blocks & (last_tokens < size))[::-1]
    length_of[last_id[partial]] = last_tokens[partial]  # the first request writes last
    length_of[is_full] = size
    return length_of
