"""A trace block by block, as the kernels of the policies walk it, and what a run gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from kvtrace.reuse.runs import Atoms, Runs, cut_runs, prefix_sums
from kvtrace.schema.arrays import BoolArray, IntArray, RequestTrace

Admission = Literal["all", "second_use"]
Weight = Literal["blocks", "tokens"]


@dataclass(frozen=True, slots=True)
class BlockTrace:
    """The requests of one cache domain as references to single blocks.

    Dense ids: a block's id is the rank of its first (request, position), so an atom is a run of
    consecutive ids.
    """

    runs: Runs
    offset: IntArray
    """(requests + 1,) references of request i are offset[i] .. offset[i + 1]."""
    block: IntArray
    """(refs,) block id of each reference."""
    is_second: BoolArray
    """(refs,) an earlier request held the block."""
    block_tokens: IntArray
    """(blocks,) tokens that each block holds: the most that any request has in it, at least 1."""
    counted_tokens: IntArray
    """(requests,) prompt tokens that lie in blocks and count as hits if their blocks are there."""
    prompt_tokens: int
    """Prompt tokens of all requests."""
    arrived_at_ns: IntArray
    """(requests,) non-decreasing."""
    has_clock: bool
    block_size_tokens: int

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.offset) - 1

    @property
    def distinct_blocks(self) -> int:
        """Number of distinct blocks."""
        return len(self.block_tokens)

    def weights(self, weight: Weight) -> IntArray:
        """(blocks,) room that each block takes: 1, or its tokens."""
        if weight == "tokens":
            return self.block_tokens
        return np.ones(self.distinct_blocks, dtype=np.int64)

    def room(self, capacity_blocks: int, weight: Weight) -> int:
        """The capacity in the unit of the weights: blocks, or the tokens of so many full ones."""
        return capacity_blocks * self.block_size_tokens if weight == "tokens" else capacity_blocks

    def tokens_of(self, leading_blocks: IntArray) -> IntArray:
        """(requests,) counted tokens in so many leading blocks of each request."""
        reach = leading_blocks * self.block_size_tokens
        return np.asarray(np.minimum(self.counted_tokens, reach), dtype=np.int64)

    def atoms(self, *, is_single: bool = False) -> Atoms:
        """The atoms of the runs; `is_single`: every block an atom of its own."""
        edges = np.arange(self.distinct_blocks) if is_single else None
        return cut_runs(self.runs, edges)


@dataclass(frozen=True, slots=True)
class Served:
    """What one cache did with each request."""

    hit_blocks: IntArray
    """(requests,) leading blocks that were there when it arrived."""
    stored_blocks: IntArray
    """(requests,) the hit and the blocks written after it: the leading blocks that are there when
    it ends, in every policy that keeps prefixes."""


def block_trace(trace: RequestTrace, *, counted_tokens: IntArray | None = None) -> BlockTrace:
    """The blocks of a trace; `counted_tokens` (requests,) where not all prompt tokens count."""
    runs = Runs(trace.run_offset, trace.run_start, trace.run_blocks)
    before = prefix_sums(trace.run_blocks)
    within = np.arange(before[-1]) - np.repeat(before[:-1], trace.run_blocks)
    block = within + np.repeat(trace.run_start, trace.run_blocks)
    offset = before[trace.run_offset]
    sizes = np.diff(offset)
    owner = np.repeat(np.arange(trace.requests), sizes)
    inside = np.minimum(trace.prompt_tokens, sizes * trace.block_size_tokens)
    position = np.arange(len(block)) - offset[owner]
    tokens = np.clip(inside[owner] - position * trace.block_size_tokens, 1, trace.block_size_tokens)
    held = np.ones(trace.distinct_blocks, dtype=np.int64)
    np.maximum.at(held, block, tokens)
    first = np.full(trace.distinct_blocks, trace.requests, dtype=np.int64)
    np.minimum.at(first, block, owner)
    return BlockTrace(
        runs=runs,
        offset=offset,
        block=block,
        is_second=np.asarray(first[block] < owner, dtype=np.bool_),
        block_tokens=held,
        counted_tokens=inside if counted_tokens is None else np.minimum(inside, counted_tokens),
        prompt_tokens=int(trace.prompt_tokens.sum()),
        arrived_at_ns=trace.arrived_at_ns,
        has_clock=trace.has_clock,
        block_size_tokens=trace.block_size_tokens,
    )


def flat_trace(block: IntArray) -> BlockTrace:
    """Keys that are asked for one by one and know no prefix: each reference is a request of one.

    `block` (refs,) are dense ids in order of first appearance. Every policy then is its textbook
    self.
    """
    refs = len(block)
    one = np.ones(refs, dtype=np.int64)
    return block_trace(
        RequestTrace(
            request_key=np.arange(refs),
            arrived_at_ns=np.zeros(refs, dtype=np.int64),
            prompt_tokens=one,
            output_tokens=np.zeros(refs, dtype=np.int64),
            session=-one,
            run_offset=np.arange(refs + 1),
            run_start=block,
            run_blocks=one,
            block_size_tokens=1,
            distinct_blocks=int(block.max(initial=-1)) + 1,
            has_clock=False,
            output_known=False,
            clock_resolution_ns=1,
        )
    )
