"""The reuse facts: one row per (request, atom), exact for every LRU capacity.

At a capacity of C blocks the hit of an atom at distance d (from 1) is clamp(C - d + 1, 0, length);
a request's hit is the sum over its atoms, since the distance is a running maximum along it. The
facts are the idealised bound: a block is there as soon as the request that made it has arrived.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from kvtrace.errors import ModelError
from kvtrace.reuse.distance import Distances, Kernel, stack_distances
from kvtrace.reuse.runs import Atoms, Runs, cut_runs, prefix_sums
from kvtrace.reuse.trace import OrderedRequests, order_requests
from kvtrace.schema.arrays import IntArray
from kvtrace.schema.facts import REUSE
from kvtrace.schema.manifest import CacheDomain


def build_reuse(
    requests: pl.DataFrame,
    blocks: pl.DataFrame,
    domains: Sequence[CacheDomain],
    *,
    kernel: Kernel = "auto",
) -> pl.DataFrame:
    """The `reuse` table of these requests (only `ok` headline rows have facts).

    `kernel` picks the implementation of the distances; both give the same integers.

    Raises:
        ModelError: blocks of a domain that `domains` does not name.
    """
    return build_reuse_of(order_requests(requests, blocks), domains, kernel=kernel)


def build_reuse_of(
    ordered: OrderedRequests, domains: Sequence[CacheDomain], *, kernel: Kernel = "auto"
) -> pl.DataFrame:
    """The same of requests that are in order already; raises what `build_reuse` raises."""
    if len(ordered.runs.start) == 0:
        return REUSE.empty()
    block_size = block_sizes(ordered.rows["cache_domain"], domains)
    atoms = cut_runs(ordered.runs)
    position, token_count = _place(atoms, ordered, block_size)
    distances = stack_distances(atoms, _atom_tokens(atoms, token_count), kernel=kernel)
    singles = _ragged_blocks(atoms, distances)
    if len(singles):
        atoms = cut_runs(ordered.runs, singles)
        position, token_count = _place(atoms, ordered, block_size)
        distances = stack_distances(atoms, _atom_tokens(atoms, token_count), kernel=kernel)
    return _frame(ordered, atoms, position, token_count, distances)


def block_sizes(cache_domain: pl.Series, domains: Sequence[CacheDomain]) -> IntArray:
    """(requests,) block size in tokens of each request's domain; 0 for requests of no domain."""
    sizes = {domain.cache_domain: domain.block_size_tokens for domain in domains}
    unnamed = sorted(set(cache_domain.drop_nulls().unique().to_list()) - set(sizes))
    if unnamed:
        raise ModelError("KVT-F001", f"cache domain {unnamed[0]} has blocks but no block size")
    known = cache_domain.replace_strict(sizes, return_dtype=pl.Int64)
    return known.fill_null(0).to_numpy()


def _place(
    atoms: Atoms, ordered: OrderedRequests, block_size: IntArray
) -> tuple[IntArray, IntArray]:
    """(refs,) blocks in front of each reference, and its prompt tokens.

    A partial last block has its own length, and no block reaches past a known prompt length.
    """
    request = atoms.request
    count = atoms.blocks[atoms.ref]
    before = prefix_sums(count)
    position = before[:-1] - before[atoms.offset[:-1]][request]
    tail = ordered.ints("tail_tokens", unknown=0)
    prompt = ordered.ints("prompt_tokens", unknown=np.iinfo(np.int64).max)
    blocks_of_request = before[atoms.offset[1:]] - before[atoms.offset[:-1]]
    whole = blocks_of_request * block_size
    full = np.minimum(np.where(tail > 0, whole - block_size + tail, whole), prompt)[request]
    start_tokens = np.minimum(position * block_size[request], full)
    end_tokens = np.minimum((position + count) * block_size[request], full)
    return position, end_tokens - start_tokens


def _atom_tokens(atoms: Atoms, token_count: IntArray) -> IntArray:
    """(atoms,) weight of each atom in tokens: the most that any request has in it."""
    tokens = np.zeros(len(atoms.start), dtype=np.int64)
    np.maximum.at(tokens, atoms.ref, token_count)
    return tokens


def _ragged_blocks(atoms: Atoms, distances: Distances) -> IntArray:
    """Every block of the atoms whose hit would not grow block by block.

    In a trace whose ids are chained there is none: a prefix is always more recent than what follows
    it. Ids that are not a tree, or repeat inside a request, can put something deeper in front.
    """
    wide = distances.is_ragged & (atoms.blocks[atoms.ref] > 1)
    which = np.unique(atoms.ref[wide])
    lone = Runs(np.zeros(1, dtype=np.int64), atoms.start[which], atoms.blocks[which])
    within = np.arange(int(lone.blocks.sum()))
    return within + np.repeat(lone.start - prefix_sums(lone.blocks)[:-1], lone.blocks)


def _frame(
    ordered: OrderedRequests,
    atoms: Atoms,
    position: IntArray,
    token_count: IntArray,
    distances: Distances,
) -> pl.DataFrame:
    """The facts with the columns of the `reuse` table, in its order."""
    rows, request = ordered.rows, atoms.request
    keys = rows["request_key"]
    known_at = rows["known_at_ns"]
    domain = ordered.ints("cache_domain", unknown=np.iinfo(np.int64).max)
    ranks = np.arange(len(rows)) - np.searchsorted(domain, domain)
    _, first_ref = np.unique(domain[request], return_index=True)
    first_atom = np.repeat(atoms.ref[first_ref], np.diff(np.append(first_ref, len(request))))
    previous = pl.Series(distances.previous_request)
    previous = previous.set(previous < 0, None)
    frame = pl.DataFrame(
        {
            "request_key": keys.gather(request),
            "cache_domain": domain[request],
            "arrival_rank": ranks[request],
            "position": position,
            "atom": atoms.ref - first_atom,
            "block_count": atoms.blocks[atoms.ref],
            "token_count": token_count,
            "is_reusable": distances.is_reusable,
            "previous_request_key": keys.gather(previous),
            "reuse_gap_ns": known_at.gather(request) - known_at.gather(previous),
            "first_request_key": keys.gather(distances.first_request),
            "distance_blocks": distances.blocks,
            "distance_tokens": distances.tokens,
        }
    )
    reach = pl.col("distance_blocks", "distance_tokens")
    return (
        frame.with_columns(pl.when("is_reusable").then(reach).name.keep())
        .cast(pl.Schema(REUSE.polars_schema()))
        .sort(REUSE.order_by)
    )
