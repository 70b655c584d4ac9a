"""Runs of dense block ids, and the atoms into which all runs together cut them.

A chain of new blocks gets consecutive ids, so a request is a few runs. Cutting at every start and
end of a run gives atoms: blocks that are always touched together, first to last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvtrace.schema.arrays import IntArray


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of each request, in prompt order; request i has offset[i] .. offset[i + 1]."""

    offset: IntArray
    """(requests + 1,)"""
    start: IntArray
    """(runs,) first block id of the run."""
    blocks: IntArray
    """(runs,) blocks in the run, at least 1."""

    @property
    def distinct_blocks(self) -> int:
        """Number of distinct blocks, where the ids are dense."""
        return int((self.start + self.blocks).max(initial=0))


@dataclass(frozen=True, slots=True)
class Atoms:
    """The atoms of each request, in prompt order; request i has offset[i] .. offset[i + 1]."""

    offset: IntArray
    """(requests + 1,)"""
    ref: IntArray
    """(refs,) atom of each reference."""
    start: IntArray
    """(atoms,) first block id of the atom, increasing."""
    blocks: IntArray
    """(atoms,) blocks of the atom."""

    @property
    def request(self) -> IntArray:
        """(refs,) index of the request of each reference."""
        return np.repeat(np.arange(len(self.offset) - 1), np.diff(self.offset))


def prefix_sums(values: IntArray) -> IntArray:
    """(n + 1,) sums of the first 0 .. n values."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values, dtype=np.int64)))


def cut_runs(runs: Runs, extra_edges: IntArray | None = None) -> Atoms:
    """The atoms of these runs; `extra_edges` are more ids to cut in front of."""
    ends = runs.start + runs.blocks
    more = extra_edges if extra_edges is not None else np.zeros(0, dtype=np.int64)
    edges = np.sort(np.concatenate((runs.start, ends, more)))
    edges = edges[np.diff(edges, prepend=-1) > 0]
    first = np.searchsorted(edges, runs.start)
    atoms_in_run = np.searchsorted(edges, ends) - first
    ref_offset = prefix_sums(atoms_in_run)
    ref = np.arange(ref_offset[-1]) + np.repeat(first - ref_offset[:-1], atoms_in_run)
    return Atoms(ref_offset[runs.offset], ref, edges[:-1], np.diff(edges))


def make_dense(runs: Runs) -> Runs:
    """The same requests with ids re-made: the rank of a block's first (request, position).

    The result does not depend on the ids that came in, only on which are equal; neighbouring runs
    whose new ids follow one another become one run.
    """
    atoms = cut_runs(runs)
    refs = len(atoms.ref)
    if refs == 0:
        return runs
    first_seen = np.full(len(atoms.start), refs, dtype=np.int64)
    np.minimum.at(first_seen, atoms.ref, np.arange(refs))
    by_appearance = np.argsort(first_seen, kind="stable")
    sizes = np.where(first_seen < refs, atoms.blocks, 0)[by_appearance]
    new_start = np.empty(len(atoms.start), dtype=np.int64)
    new_start[by_appearance] = np.cumsum(sizes) - sizes
    start, blocks = new_start[atoms.ref], atoms.blocks[atoms.ref]
    begins = np.ones(refs, dtype=np.bool_)
    begins[1:] = start[1:] != start[:-1] + blocks[:-1]
    begins[atoms.offset[atoms.offset < refs]] = True
    heads = np.flatnonzero(begins)
    return Runs(np.searchsorted(heads, atoms.offset), start[heads], np.add.reduceat(blocks, heads))
