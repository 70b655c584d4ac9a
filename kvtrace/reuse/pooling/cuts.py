"""Hits of routed requests at any capacity: each instance is a cache domain of its own.

One pass of LRU stack distances over all instances together, each with block ids of its own; a cut
at C blocks gives clamp(C - d + 1, 0, length) of each atom, and a request's hit is their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvtrace.reuse.distance import Distances, stack_distances
from kvtrace.reuse.runs import Atoms, Runs, cut_runs, prefix_sums
from kvtrace.schema.arrays import IntArray, RequestTrace


@dataclass(frozen=True, slots=True)
class Cuts:
    """The reusable atoms of routed requests with their distances."""

    offset: IntArray
    """(requests + 1,) atoms of the request at place i are offset[i] .. offset[i + 1]."""
    place: IntArray
    """(requests,) place of each request of the trace in that order."""
    distance: IntArray
    """(refs,) LRU stack distance of the atom's head in blocks, among its instance's blocks."""
    blocks: IntArray
    """(refs,) blocks of the atom."""

    def hit_blocks(self, capacity_blocks: int) -> IntArray:
        """(requests,) blocks that a cache of this capacity an instance serves of each request."""
        kept = prefix_sums(np.clip(capacity_blocks - self.distance + 1, 0, self.blocks))
        by_place = kept[self.offset[1:]] - kept[self.offset[:-1]]
        return np.asarray(by_place[self.place], dtype=np.int64)


def build_cuts(trace: RequestTrace, instance: IntArray) -> Cuts:
    """The distances of a trace whose request i is served by `instance[i]`."""
    order = np.argsort(instance, kind="stable")
    runs = _separate(trace, instance, order)
    atoms = cut_runs(runs)
    distances = stack_distances(atoms, atoms.blocks)
    singles = _singles(atoms, distances)
    if len(singles):
        atoms = cut_runs(runs, singles)
        distances = stack_distances(atoms, atoms.blocks)
    reusable = np.flatnonzero(distances.is_reusable)
    place = np.empty(trace.requests, dtype=np.int64)
    place[order] = np.arange(trace.requests)
    return Cuts(
        offset=np.searchsorted(reusable, atoms.offset),
        place=place,
        distance=distances.blocks[reusable],
        blocks=atoms.blocks[atoms.ref[reusable]],
    )


def _separate(trace: RequestTrace, instance: IntArray, order: IntArray) -> Runs:
    """The requests instance after instance, so that two instances share no block id."""
    counts = np.diff(trace.run_offset)[order]
    offset = prefix_sums(counts)
    within = np.arange(int(offset[-1])) - np.repeat(offset[:-1], counts)
    source = np.repeat(trace.run_offset[:-1][order], counts) + within
    shift = np.repeat(instance[order], counts) * trace.distinct_blocks
    return Runs(offset, trace.run_start[source] + shift, trace.run_blocks[source])


def _singles(atoms: Atoms, distances: Distances) -> IntArray:
    """The blocks of atoms whose hit grows by jumps; none where a prefix outlives its tail."""
    wide = np.unique(atoms.ref[distances.is_ragged & (atoms.blocks[atoms.ref] > 1)])
    lengths = atoms.blocks[wide]
    within = np.arange(int(lengths.sum())) - np.repeat(prefix_sums(lengths)[:-1], lengths)
    return np.repeat(atoms.start[wide], lengths) + within
