"""Block keys to dense ids and runs, per cache domain.

The dense id of a key is the rank of its first (request, position), requests in order of arrival
(unknown arrivals last, ties by request_key), over all rows of the domain, whatever their status.
A prefix chain becomes consecutive ids, so that a request is a few runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

from kvtrace.ingest.hashing import UIntArray
from kvtrace.schema.arrays import BoolArray, IntArray
from kvtrace.schema.manifest import CacheDomain
from kvtrace.schema.tables import BLOCKS, KEYS

MISMATCH_FLAG: Final = "block_length_mismatch"
_DIRECT_TABLE_FACTOR: Final = 8
"""Ids below this × references are ranked through a table instead of a sort."""


@dataclass(frozen=True, slots=True)
class DomainSpec:
    """What the requests of one cache domain have in common."""

    cache_domain: int
    source_id: int
    scope: Literal["file", "session", "global"]
    block_size_tokens: int
    block_size_reason: str
    partial_tail: Literal["counted", "dropped", "none"]
    ids: Literal["chained", "content_chained"]


@dataclass(frozen=True, slots=True)
class DomainInput:
    """Requests of one domain in order of arrival, and their keys one after the other."""

    request_keys: IntArray
    """(requests,)"""
    prompt_tokens: IntArray
    """(requests,) -1 where unknown."""
    counts: IntArray
    """(requests,) blocks of each."""
    keys: UIntArray
    """(sum of counts,)"""


@dataclass(frozen=True, slots=True)
class DomainBlocks:
    """The tables of one domain, and its manifest entry."""

    blocks: pl.DataFrame
    keys: pl.DataFrame
    domain: CacheDomain


def agrees_with_length(
    prompt_tokens: IntArray,
    counts: IntArray,
    *,
    block_size_tokens: int,
    partial_tail: Literal["counted", "dropped", "none"],
) -> BoolArray:
    """(requests,) whether a request has exactly the blocks that its length implies.

    A prompt of unknown length (-1) is given the benefit of the doubt.
    """
    rounded = prompt_tokens if partial_tail == "dropped" else prompt_tokens + block_size_tokens - 1
    return np.asarray((rounded // block_size_tokens == counts) | (prompt_tokens < 0))


def gathered(keys: UIntArray, starts: IntArray, counts: IntArray) -> UIntArray:
    """The slices keys[start : start + count] of each request, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    index = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return np.asarray(keys[index])


def dense_ranks(keys: UIntArray) -> tuple[IntArray, UIntArray]:
    """(dense id of each key by first appearance, the distinct keys in that order)."""
    references = len(keys)
    if references == 0:
        return np.empty(0, dtype=np.int64), keys
    highest = int(keys.max())
    if highest < _DIRECT_TABLE_FACTOR * references + 1024:
        small = keys.astype(np.int64)
        first = np.full(highest + 1, references, dtype=np.int64)
        np.minimum.at(first, small, np.arange(references))
        distinct = np.flatnonzero(first < references)
        order = np.argsort(first[distinct], kind="stable")
        rank = np.empty(highest + 1, dtype=np.int64)
        rank[distinct[order]] = np.arange(len(order))
        return rank[small], distinct[order].astype(np.uint64)
    unique, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[inverse], unique[order]


def build_domain(spec: DomainSpec, rows: DomainInput) -> DomainBlocks:
    """Dense ids, runs and keys of one domain."""
    ids, distinct = dense_ranks(rows.keys)
    blocks = _runs(spec, rows, ids)
    keys = pl.DataFrame(
        {
            "cache_domain": np.full(len(distinct), spec.cache_domain, dtype=np.int32),
            "block": np.arange(len(distinct), dtype=np.int64),
            "chained_hash": distinct,
        },
        schema=KEYS.polars_schema(),
    )
    domain = CacheDomain(
        cache_domain=spec.cache_domain,
        source_id=spec.source_id,
        scope=spec.scope,
        block_size_tokens=spec.block_size_tokens,
        block_size_reason=spec.block_size_reason,
        partial_tail=spec.partial_tail,
        ids=spec.ids,
        block_refs=len(ids),
        distinct_blocks=len(distinct),
    )
    return DomainBlocks(blocks, keys, domain)


def _runs(spec: DomainSpec, rows: DomainInput, ids: IntArray) -> pl.DataFrame:
    """Maximal runs of consecutive ids inside each request."""
    offsets = np.concatenate(([0], np.cumsum(rows.counts)))
    starts_run = np.ones(len(ids), dtype=bool)
    starts_run[1:] = ids[1:] != ids[:-1] + 1
    starts_run[offsets[:-1][rows.counts > 0]] = True
    starts = np.flatnonzero(starts_run)
    lengths = np.diff(np.append(starts, len(ids)))
    request = np.searchsorted(offsets, starts, side="right") - 1
    frame = pl.DataFrame(
        {
            "request_key": rows.request_keys[request],
            "cache_domain": np.full(len(starts), spec.cache_domain, dtype=np.int32),
            "position": (starts - offsets[request]).astype(np.int32),
            "start_block": ids[starts],
            "block_count": lengths.astype(np.int32),
            "tail_tokens": _tails(spec, rows, request, starts + lengths == offsets[request + 1]),
        },
        schema=BLOCKS.polars_schema(),
    )
    return frame.sort("request_key", "position")


def _tails(
    spec: DomainSpec, rows: DomainInput, request: IntArray, is_last: BoolArray
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """(runs,) tokens of the partial last block where the run ends in it, else 0."""
    if spec.partial_tail != "counted":
        return np.zeros(len(request), dtype=np.int32)
    tail = rows.prompt_tokens - (rows.counts - 1) * spec.block_size_tokens
    is_partial = (rows.prompt_tokens >= 0) & (tail > 0) & (tail < spec.block_size_tokens)
    return np.where(is_last & is_partial[request], tail[request], 0).astype(np.int32)
