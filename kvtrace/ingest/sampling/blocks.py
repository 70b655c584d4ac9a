"""Blocks that were numbered, or hit, by way of requests that are not in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kvtrace.schema.arrays import BoolArray, IntArray
from kvtrace.schema.manifest import CacheDomain

_ENOUGH_REQUESTS: Final = 20
_ENOUGH_NUMBERS: Final = 100
_NUMBERED: Final = 0.7
"""Share of the requests with new blocks that bring the highest number so far; hashes do not."""
_SPARSEST: Final = 1e-4
"""Share of the numbers in use below which they are no numbers but hashes."""
_ENOUGH_HITS: Final = 100
_UNEXPLAINED: Final = 0.1
_UNEXPLAINED_PROMPT: Final = 0.02
_OUTPUT_QUANTILE: Final = 0.95


@dataclass(frozen=True, slots=True)
class BlockEvidence:
    """Requests with blocks, in order of domain and arrival; arrays are (requests,)."""

    rows: pl.DataFrame
    """prompt_tokens, cached_tokens, output_tokens."""
    domain: IntArray
    block_tokens: IntArray
    references: IntArray
    """Blocks of the request."""
    first_new: IntArray
    """The lowest dense id that no earlier request had."""
    last: IntArray
    """The highest dense id so far, this request's included: new are first_new … last."""
    seen_blocks: IntArray
    """Leading blocks that an earlier request had."""
    is_late: BoolArray
    """In the second half of its domain."""
    numbers: dict[int, IntArray]
    """By domain: the sources' own keys in order of first appearance; absent: too large to be
    numbers."""

    @staticmethod
    def of(
        requests: pl.DataFrame,
        blocks: pl.DataFrame,
        keys: pl.DataFrame,
        domains: Sequence[CacheDomain],
    ) -> BlockEvidence | None:
        """From the tables of a dataset; None without blocks.

        Dense ids are ranks of first appearance, so that a block is new where its id is higher than
        all before it, and the chain makes new blocks the tail of a request.
        """
        sizes = {domain.cache_domain: domain.block_size_tokens for domain in domains}
        blocks = blocks.filter(pl.col("cache_domain").is_in(list(sizes)))
        if blocks.is_empty():
            return None
        names = ("request_key", "arrived_at_ns", "prompt_tokens", "cached_tokens", "output_tokens")
        last = pl.col("start_block") + pl.col("block_count") - 1
        tops = blocks.group_by("request_key", "cache_domain").agg(
            last.max().alias("top"), pl.col("block_count").cast(pl.Int64).sum().alias("references")
        )
        ordered = tops.join(requests.select(names), on="request_key", how="inner").sort(
            "cache_domain", "arrived_at_ns", "request_key", nulls_last=True
        )
        ordered = ordered.with_columns(
            pl.col("top").cum_max().over("cache_domain").alias("last"),
            (
                pl.int_range(pl.len()).over("cache_domain") * 2 >= pl.len().over("cache_domain")
            ).alias("is_late"),
        ).with_columns(
            (pl.col("last").shift(1).over("cache_domain").fill_null(-1) + 1).alias("first_new")
        )
        runs = blocks.join(
            ordered.select("request_key", "first_new"), on="request_key", how="inner"
        )
        seen = (pl.col("first_new") - pl.col("start_block")).clip(0, pl.col("block_count"))
        known = runs.group_by("request_key").agg(seen.sum().alias("seen"))
        ordered = ordered.join(known, on="request_key", how="left", maintain_order="left")
        domain = ordered["cache_domain"].to_numpy().astype(np.int64)
        return BlockEvidence(
            rows=ordered.select("prompt_tokens", "cached_tokens", "output_tokens"),
            domain=domain,
            block_tokens=np.array([sizes[one] for one in domain.tolist()], dtype=np.int64),
            references=ordered["references"].to_numpy(),
            first_new=ordered["first_new"].to_numpy(),
            last=ordered["last"].to_numpy(),
            seen_blocks=ordered["seen"].to_numpy(),
            is_late=ordered["is_late"].to_numpy(),
            numbers=_numbers(keys, list(sizes)),
        )


def _numbers(keys: pl.DataFrame, domains: Sequence[int]) -> dict[int, IntArray]:
    found = {}
    for domain in domains:
        own = keys.filter(pl.col("cache_domain") == domain).sort("block")["chained_hash"]
        highest = own.max()
        if isinstance(highest, int) and len(own) and highest < len(own) / _SPARSEST:
            found[domain] = own.cast(pl.Int64).to_numpy()
    return found


@dataclass(frozen=True, slots=True)
class Numbered:
    """Blocks that their source numbered as they came, in the second half of the log."""

    numbered: int
    """Numbers given out from the first to the last new block."""
    missing: int
    """Of them, never used in the log."""
    taken: int
    """Of them, first used in the log by a later request than the one that they were given to,
    which is not in it."""
    lost: int
    """Blocks that a request uses first in the log although a missing one had computed them: reuse
    that the log does not show."""
    references: int
    """Blocks of the requests, one counted as often as it is used."""

    @property
    def kept_share(self) -> float:
        """Of the numbers, those given to a request of the log: the share that is logged."""
        return 1 - (self.missing + self.taken) / self.numbered

    @property
    def lost_share(self) -> float:
        """Of all block references."""
        return self.lost / self.references


def numbered_blocks(evidence: BlockEvidence | None) -> Numbered | None:
    """Gaps in the numbers of blocks; None where blocks are not numbered as they come, or too few.

    A source that numbers blocks by first appearance gives the new blocks of a request consecutive
    numbers that follow the last one. A number that is left out was given to a request that is not
    in the log; a block with a number out of that row, first seen here, was computed by one. A log
    that begins in the middle goes on with old numbers for a while: those up to the last one of its
    first request are not counted.
    """
    if evidence is None:
        return None
    numbered = given = taken = lost = references = requests = in_row = bringing = 0
    for domain, numbers in evidence.numbers.items():
        chosen = (evidence.domain == domain) & evidence.is_late
        if not chosen.any():
            continue
        low, high = evidence.first_new[chosen], evidence.last[chosen]
        start = int(low[0])
        highest = np.maximum.accumulate(numbers)
        if start == 0 or start >= len(numbers):
            continue
        has_new = high >= low
        low, high = low[has_new], high[has_new]
        bringing += len(low)
        in_row += int(np.sum(highest[high] > highest[low - 1]))
        numbered += int(highest[-1] - highest[start - 1])
        given += int(np.sum(numbers[start:] > highest[start - 1]))
        late = numbers[_late(numbers, low, high)]
        taken += int(np.sum(late > highest[start - 1]))
        lost += int(np.sum(late > highest[evidence.last[evidence.domain == domain][0]]))
        references += int(evidence.references[chosen].sum())
        requests += int(chosen.sum())
    if requests < _ENOUGH_REQUESTS or numbered < _ENOUGH_NUMBERS or in_row < _NUMBERED * bringing:
        return None
    return Numbered(numbered, numbered - given, taken, lost, references)


def _late(numbers: IntArray, low: IntArray, high: IntArray) -> IntArray:
    """Dense ids of new blocks that do not belong to the last consecutive numbers of their request.

    `low` and `high` are the first and the last new dense id of each request.
    """
    follows = np.zeros(len(numbers), dtype=bool)
    follows[1:] = numbers[1:] == numbers[:-1] + 1
    breaks = np.where(follows, 0, np.arange(len(numbers)))
    own_start = np.maximum(np.maximum.accumulate(breaks)[high], low)
    counts = own_start - low
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.asarray(np.arange(total) + np.repeat(low - (ends - counts), counts))


@dataclass(frozen=True, slots=True)
class Unexplained:
    """Hits of the running cache on blocks that no request of the log had brought."""

    cached: int
    unexplained: int


def unexplained_hits(evidence: BlockEvidence | None) -> Unexplained | None:
    """Cached tokens beyond what the log's earlier requests held; None where they are explained.

    In the second half of the log only, since the cache was warm when it began; up to a block and
    one long output a request are allowed (engines also cache what they generate).
    """
    if evidence is None:
        return None
    cached = evidence.rows["cached_tokens"]
    outputs = evidence.rows["output_tokens"].drop_nulls()
    is_known = cached.is_not_null().to_numpy() & evidence.is_late
    if int(is_known.sum()) < _ENOUGH_HITS or outputs.is_empty():
        return None
    allowed = int(outputs.quantile(_OUTPUT_QUANTILE) or 0)
    held = evidence.seen_blocks * evidence.block_tokens + evidence.block_tokens + allowed
    served = cached.fill_null(0).to_numpy()
    beyond = int(np.maximum(served - held, 0)[is_known].sum())
    total = int(served[is_known].sum())
    prompt = int(evidence.rows["prompt_tokens"].fill_null(0).to_numpy()[is_known].sum())
    is_clear = beyond >= _UNEXPLAINED * total and beyond >= _UNEXPLAINED_PROMPT * prompt
    return Unexplained(total, beyond) if total and is_clear else None
