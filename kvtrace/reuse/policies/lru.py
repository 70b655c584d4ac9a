"""LRU, also with a time to live: every capacity from one pass over the stack distances.

A block is in an LRU cache of room C when a request arrives iff the weight of all that was touched
since its own last touch, its own included, is at most C. That sum only grows while the block is
not touched, so eviction from the old end and this rule agree at every size, for any weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvtrace.reuse.distance import Distances, stack_distances
from kvtrace.reuse.policies.blocks import Admission, BlockTrace, Served, Weight
from kvtrace.reuse.runs import Atoms, prefix_sums
from kvtrace.schema.arrays import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class LruFacts:
    """Per (request, atom) what LRU of any room and any time to live needs."""

    trace: BlockTrace
    atoms: Atoms
    held_before: IntArray
    """(blocks + 1,) weight of all blocks with a smaller id."""
    distance: IntArray
    """(refs,) stack distance of the head in the unit of the weights, running maximum along the
    request; -1: not reusable."""
    gap_ns: IntArray
    """(refs,) since the last touch by an earlier request, running maximum; 0 where not reusable."""
    storable: IntArray
    """(requests,) leading blocks that the admission lets in."""


def lru_facts(
    trace: BlockTrace, *, weight: Weight = "blocks", admission: Admission = "all"
) -> LruFacts:
    """The facts of a trace; ids that are no tree are taken block by block."""
    for is_single in (False, True):
        atoms = trace.atoms(is_single=is_single)
        held_before = prefix_sums(trace.weights(weight))
        held = held_before[atoms.start + atoms.blocks] - held_before[atoms.start]
        admitted = _admitted(atoms, trace, admission)
        distances, is_usable = _distances(atoms, held, admitted)
        if not distances.is_ragged.any():
            break
    refs, request = len(atoms.ref), atoms.request
    near = distances.tokens if weight == "tokens" else distances.blocks
    if is_single and weight == "tokens":
        # Whole blocks of different sizes: what counts is the room up to the end of each.
        extra = held[atoms.ref[admitted]] - 1
        near = near.copy()
        ends = distances.head_tokens[is_usable] + extra[is_usable]
        near[is_usable] = _running_maximum(ends, request[admitted][is_usable]) - extra[is_usable]
    gap = np.zeros(len(near), dtype=np.int64)
    known = distances.previous_request >= 0
    owner = request[admitted]
    gap[known] = (
        trace.arrived_at_ns[owner[known]] - trace.arrived_at_ns[distances.previous_request[known]]
    )
    distance, gap_ns = np.full(refs, -1, dtype=np.int64), np.zeros(refs, dtype=np.int64)
    places = np.flatnonzero(admitted)[is_usable]
    distance[places] = near[is_usable]
    gap_ns[places] = _running_maximum(gap[is_usable], request[places])
    return LruFacts(trace, atoms, held_before, distance, gap_ns, _storable(trace, admission))


def lru_served(facts: LruFacts, room: int, *, ttl_ns: int | None = None) -> Served:
    """What LRU of this room serves; with `ttl_ns` a block lives so long after its last touch."""
    atoms, trace = facts.atoms, facts.trace
    start = atoms.start[atoms.ref]
    alive = facts.distance >= 0
    if ttl_ns is not None:
        alive = alive & (facts.gap_ns <= ttl_ns)
    reach = facts.held_before[start] + room - facts.distance + 1
    within = np.searchsorted(facts.held_before, reach, side="right") - 1 - start
    blocks = np.where(alive, np.clip(within, 0, atoms.blocks[atoms.ref]), 0)
    hits = np.zeros(trace.requests, dtype=np.int64)
    np.add.at(hits, atoms.request, blocks)
    held = prefix_sums(np.diff(facts.held_before)[trace.block])
    fits = np.searchsorted(held, held[trace.offset[:-1]] + room, side="right") - 1
    stored = np.minimum(fits - trace.offset[:-1], facts.storable)
    return Served(hits, np.maximum(stored, hits))


def _admitted(atoms: Atoms, trace: BlockTrace, admission: Admission) -> BoolArray:
    """(refs,) whether the admission lets the atom in with this request."""
    refs = len(atoms.ref)
    if admission == "all":
        return np.ones(refs, dtype=np.bool_)
    first = np.full(len(atoms.start), trace.requests, dtype=np.int64)
    np.minimum.at(first, atoms.ref, atoms.request)
    return np.asarray(first[atoms.ref] < atoms.request, dtype=np.bool_)


def _distances(atoms: Atoms, held: IntArray, admitted: BoolArray) -> tuple[Distances, BoolArray]:
    """Distances among the admitted references, and which of them no hole comes before.

    A block that is not let in leaves no trace in the cache, so its reference counts for nobody's
    distance; but a request's hit ends at it.
    """
    taken = prefix_sums(admitted.astype(np.int64))
    kept = Atoms(taken[atoms.offset], atoms.ref[admitted], atoms.start, atoms.blocks)
    distances = stack_distances(kept, held)
    position = np.flatnonzero(admitted)
    starts = atoms.offset[:-1][atoms.request[position]]
    holes = (position - starts) - (taken[position] - taken[starts])
    return distances, np.asarray(distances.is_reusable & (holes == 0), dtype=np.bool_)


def _storable(trace: BlockTrace, admission: Admission) -> IntArray:
    sizes = np.diff(trace.offset)
    if admission == "all":
        return sizes
    owner = np.repeat(np.arange(trace.requests), sizes)
    refused = prefix_sums((~trace.is_second).astype(np.int64))
    leads = refused[1:] == refused[trace.offset[:-1]][owner]
    return np.bincount(owner[leads], minlength=trace.requests).astype(np.int64)


def _running_maximum(values: IntArray, owner: IntArray) -> IntArray:
    """(n,) largest value of the entries of the same owner up to here; owners are grouped."""
    if not len(values):
        return values
    distinct, rank = np.unique(values, return_inverse=True)
    # Ranks stay below `size`, so one offset per owner keeps the owners apart without overflow.
    size = len(distinct)
    return np.asarray(
        distinct[np.maximum.accumulate(rank + owner * size) - owner * size], dtype=np.int64
    )
