"""The `continuations` table: each request as a turn of a conversation, and how that is known.

What the logs say wins: the parent that the request names (`parent_key`), else the session
(`session_key`; the first request of a session has no parent, whatever its blocks look like). Only
where neither is known the full-block rule of `parents` decides (`blocks`). Its answer is kept
beside the others, so that the rule can be checked against logs that know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kvtrace.reuse.facts import block_sizes
from kvtrace.reuse.parents import (
    CutPrompts,
    cut_prompts,
    find_parents,
    follow,
    latest_before,
    parents_in_groups,
    shared_blocks,
)
from kvtrace.reuse.runs import prefix_sums
from kvtrace.reuse.trace import OrderedRequests
from kvtrace.schema.arrays import IntArray
from kvtrace.schema.facts import CONTINUATIONS
from kvtrace.schema.manifest import CacheDomain

KNOWN_FROM: Final = ("parent_key", "session_key", "blocks")
"""From the best evidence to the weakest."""


@dataclass(frozen=True, slots=True)
class _Parents:
    """Parents by every kind of evidence; arrays (requests,) of indices, -1: none."""

    chosen: IntArray
    known_from: IntArray
    """Index into `KNOWN_FROM`."""
    by_blocks: IntArray


def build_continuations(ordered: OrderedRequests, domains: Sequence[CacheDomain]) -> pl.DataFrame:
    """The `continuations` table of these requests: one row for each that is of a cache domain.

    Raises:
        ModelError: blocks of a domain that `domains` does not name.
    """
    if len(ordered.runs.start) == 0:
        return CONTINUATIONS.empty()
    size = block_sizes(ordered.rows["cache_domain"], domains)
    blocks = _sums(ordered.runs.blocks, ordered.runs.offset)
    tail = ordered.ints("tail_tokens", unknown=0)
    full = blocks - (tail > 0)
    tokens = ordered.ints("prompt_tokens", unknown=-1)
    tokens = np.where(tokens >= 0, tokens, full * size + tail)
    prompts = cut_prompts(ordered.runs, full)
    parents = _choose(ordered, find_parents(prompts, tokens))
    return _frame(ordered, prompts, parents, _repeats(prompts, tokens), size)


def _sums(values: IntArray, offset: IntArray) -> IntArray:
    """(requests,) sum of each request's values."""
    before = prefix_sums(values)
    return np.asarray(before[offset[1:]] - before[offset[:-1]], dtype=np.int64)


def _choose(ordered: OrderedRequests, by_blocks: IntArray) -> _Parents:
    """The parent of each request by the best evidence there is, inside its cache domain."""
    rows = ordered.rows
    ids = _numbers(rows, "request_id_key", "parent_key")
    request_id, parent_id = ids[: len(rows)], ids[len(rows) :]
    session = _numbers(rows, "session_key")
    named = latest_before(request_id, parent_id, np.arange(len(rows)))
    in_session = parents_in_groups(session, by_blocks)
    is_session = session >= 0
    known_from = np.where(named >= 0, 0, np.where(is_session, 1, 2))
    chosen = np.where(named >= 0, named, np.where(is_session, in_session, by_blocks))
    return _Parents(chosen.astype(np.int64), known_from.astype(np.int64), by_blocks)


def _numbers(rows: pl.DataFrame, *columns: str) -> IntArray:
    """(columns × requests,) one number for each distinct (cache domain, key); -1: unknown."""
    keys = pl.concat([rows.select("cache_domain", key=pl.col(column)) for column in columns])
    is_known = keys["key"].is_not_null().to_numpy()
    if not is_known.any():
        return np.full(len(keys), -1, dtype=np.int64)
    ranks = keys.select(pl.struct("cache_domain", "key").rank("dense")).to_series()
    numbers = ranks.cast(pl.Int64).fill_null(0).to_numpy() - 1
    return np.where(is_known, numbers, -1).astype(np.int64)


def _repeats(prompts: CutPrompts, prompt_tokens: IntArray) -> IntArray:
    """(requests,) the latest earlier request with the same blocks and length, -1: none.

    A partial last block counts where the source has an id for it.
    """
    atoms = prompts.atoms
    has_blocks = np.diff(atoms.offset) > 0
    group = np.full(len(has_blocks), -1, dtype=np.int64)
    last = atoms.ref[atoms.offset[1:][has_blocks] - 1]
    lengths = prompt_tokens[has_blocks]
    same = last * (int(lengths.max(initial=0)) + 1) + lengths
    group[has_blocks] = np.unique(same, return_inverse=True)[1]
    return latest_before(group, group, np.arange(len(group)))


def _frame(
    ordered: OrderedRequests,
    prompts: CutPrompts,
    parents: _Parents,
    repeat_of: IntArray,
    size: IntArray,
) -> pl.DataFrame:
    """The rows with the columns of the `continuations` table, in its order."""
    rows = ordered.rows
    talks = follow(parents.chosen)
    domain = ordered.ints("cache_domain", unknown=np.iinfo(np.int64).max)
    opens = talks.conversation[np.searchsorted(domain, domain)]
    parent = _place(parents.chosen)
    shared = pl.Series(shared_blocks(prompts, parents.chosen))
    is_child = pl.Series(parents.chosen >= 0)
    known_at = rows["known_at_ns"]
    frame = pl.DataFrame(
        {
            "request_key": rows["request_key"],
            "cache_domain": rows["cache_domain"],
            "conversation": talks.conversation - opens,
            "turn": talks.turn,
            "known_from": pl.Series(KNOWN_FROM).gather(parents.known_from),
            "parent_request_key": rows["request_key"].gather(parent),
            "block_parent_request_key": rows["request_key"].gather(_place(parents.by_blocks)),
            "repeat_of_request_key": rows["request_key"].gather(_place(repeat_of)),
            "full_blocks": prompts.full_blocks,
            "block_size_tokens": size,
            "parent_full_blocks": pl.Series(prompts.full_blocks).gather(parent),
            "shared_blocks": shared,
            "shared_tokens": shared * pl.Series(size),
            "gap_ns": known_at - known_at.gather(parent),
        }
    )
    with_parent = pl.col("shared_blocks", "shared_tokens")
    return (
        frame.with_columns(pl.when(is_child).then(with_parent).name.keep())
        .filter(pl.col("cache_domain").is_not_null())
        .cast(pl.Schema(CONTINUATIONS.polars_schema()))
        .sort(CONTINUATIONS.order_by)
    )


def _place(index: IntArray) -> pl.Series:
    """The indices, null in place of -1."""
    places = pl.Series(index)
    return places.set(places < 0, None)
