"""Which earlier request a request goes on from, by its blocks alone, and the chains this makes.

The full-block rule: a follow-up holds its parent's whole prompt, so all full blocks of the parent
are a prefix of its own. The parent's partial last block has another id once it is filled up, so
that it never matches and is no evidence for or against.

Two requests that only share a system prompt fit that too when one prompt is nothing but the shared
part. So a prompt is a parent only where it ends in a place of its own:

- the request that held the last full block first also ended in it: the block was made as the end of
  a prompt, and did not exist as the middle of a longer one (a prefix that others share already);
- at most `ROOT_BRANCHES` different blocks ever follow it, partial ones included: a prompt that more
  prompts go on from is a template, even if the first request of the trace was nothing else.

Of several parents the deepest counts, then the latest. Where both end in the same full block, the
parent's prompt has to be the shorter one: an equal prompt is a repeat, not a follow-up. What
remains undecided: a prefix that is the whole prompt of its first holder, with up to
`ROOT_BRANCHES` later prompts on top of it, may be a small template.

Ids are prefix-chained, so that equal ids of two blocks mean equal prompts up to there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.reuse.runs import Atoms, Runs, cut_runs, prefix_sums
from kvtrace.schema.arrays import BoolArray, IntArray, RequestTrace

ROOT_BRANCHES: Final = 16
"""Most different blocks that may follow the end of a parent.

On the Mooncake conversation trace every limit from 12 up gives the same links; 2 loses a sixth of
them, since each turn that ends inside the same block of 512 tokens is a branch (docs/sharing.md).
"""


@dataclass(frozen=True, slots=True)
class Conversations:
    """Requests as turns of conversations, in the order of the requests."""

    parent: IntArray
    """(requests,) index of the request that this one goes on from, always lower; -1: none."""
    conversation: IntArray
    """(requests,) dense number, in order of first appearance."""
    turn: IntArray
    """(requests,) requests above it along the parents; 0 opens a conversation."""


@dataclass(frozen=True, slots=True)
class CutPrompts:
    """Requests cut so that every prompt's full blocks end with an atom."""

    atoms: Atoms
    full_blocks: IntArray
    """(requests,) blocks of the prompt without a partial last one."""
    end_atom: IntArray
    """(requests,) atom of the last full block, -1: no full block."""


def conversations_of(trace: RequestTrace) -> Conversations:
    """Conversations of a trace: by its sessions where it names them, else by blocks.

    In a session a request goes on from the parent that its blocks name if that is of the same
    session, else from the session's latest earlier request. The full blocks of a prompt are those
    that its length fills.
    """
    runs = Runs(trace.run_offset, trace.run_start, trace.run_blocks)
    full = np.minimum(trace.blocks_per_request(), trace.prompt_tokens // trace.block_size_tokens)
    by_blocks = find_parents(cut_prompts(runs, full), trace.prompt_tokens)
    parent = np.where(
        trace.session >= 0, parents_in_groups(trace.session, by_blocks), by_blocks
    ).astype(np.int64)
    return follow(parent)


def cut_prompts(runs: Runs, full_blocks: IntArray) -> CutPrompts:
    """The atoms of these runs, cut behind the last full block of each request too."""
    last = _last_full_block(runs, full_blocks)
    is_ended = last >= 0
    atoms = cut_runs(runs, last[is_ended] + 1)
    end_atom = np.full(len(last), -1, dtype=np.int64)
    end_atom[is_ended] = np.searchsorted(atoms.start, last[is_ended], side="right") - 1
    return CutPrompts(atoms, full_blocks, end_atom)


def _last_full_block(runs: Runs, full_blocks: IntArray) -> IntArray:
    """(requests,) id of the last full block, -1 where there is none."""
    before = prefix_sums(runs.blocks)
    place = before[runs.offset[:-1]] + full_blocks - 1
    run = np.searchsorted(before, place, side="right") - 1
    last = np.full(len(full_blocks), -1, dtype=np.int64)
    has_full = full_blocks > 0
    run, place = run[has_full], place[has_full]
    last[has_full] = runs.start[run] + place - before[run]
    return last


def find_parents(
    prompts: CutPrompts, prompt_tokens: IntArray, *, root_branches: int = ROOT_BRANCHES
) -> IntArray:
    """(requests,) index of the parent by the full-block rule, -1: none."""
    atoms, end = prompts.atoms, prompts.end_atom
    requests = len(end)
    if len(atoms.ref) == 0:
        return np.full(requests, -1, dtype=np.int64)
    ends_here = np.where(_is_parent_end(prompts, root_branches)[end] & (end >= 0), end, -1)
    is_end = np.zeros(len(atoms.start), dtype=np.bool_)
    is_end[ends_here[ends_here >= 0]] = True
    asked = np.flatnonzero(is_end[atoms.ref])
    request, atom = atoms.request[asked], atoms.ref[asked]
    shorter = _latest_shorter(ends_here, prompt_tokens)
    found = np.where(
        atom == end[request], shorter[request], latest_before(ends_here, atom, request)
    )
    known = found >= 0
    parent = np.full(requests, -1, dtype=np.int64)
    deepest = np.full(requests, -1, dtype=np.int64)
    np.maximum.at(deepest, request[known], np.flatnonzero(known))
    parent[deepest >= 0] = found[deepest[deepest >= 0]]
    return parent


def _is_parent_end(prompts: CutPrompts, root_branches: int) -> BoolArray:
    """(atoms,) the atom was made as the end of a prompt, and few different blocks follow it."""
    atoms = prompts.atoms
    refs = len(atoms.ref)
    first = np.full(len(atoms.start), refs, dtype=np.int64)
    np.minimum.at(first, atoms.ref, np.arange(refs))
    first = first[first < refs]
    request = atoms.request
    maker_ends = np.zeros(len(atoms.start), dtype=np.bool_)
    maker_ends[atoms.ref[first]] = prompts.end_atom[request[first]] == atoms.ref[first]
    inner = first[first > atoms.offset[request[first]]]
    branches = np.bincount(atoms.ref[inner - 1], minlength=len(atoms.start))
    return np.asarray(maker_ends & (branches <= root_branches), dtype=np.bool_)


def _latest_shorter(group: IntArray, prompt_tokens: IntArray) -> IntArray:
    """(requests,) the latest earlier request of the same group with a shorter prompt, -1: none.

    Each link jumps over requests that are at least as long, so links of links stay right.
    """
    link = latest_before(group, group, np.arange(len(group)))
    while True:
        longer = np.flatnonzero((link >= 0) & (prompt_tokens[link] >= prompt_tokens))
        if len(longer) == 0:
            return link
        link[longer] = link[link[longer]]


def latest_before(group: IntArray, asked_group: IntArray, asked: IntArray) -> IntArray:
    """(asked,) the latest request before request `asked` that is of its `asked_group`, -1: none.

    `group` (requests,) is the group of each request; -1 belongs to none.
    """
    requests = len(group)
    if requests == 0:
        return np.full(len(asked), -1, dtype=np.int64)
    order = np.argsort(group, kind="stable")
    place = np.searchsorted(group[order] * requests + order, asked_group * requests + asked) - 1
    found = order[np.maximum(place, 0)]
    is_found = (place >= 0) & (asked_group >= 0) & (group[found] == asked_group)
    return np.where(is_found, found, -1).astype(np.int64)


def parents_in_groups(group: IntArray, by_blocks: IntArray) -> IntArray:
    """(requests,) the parent by blocks if of the same group, else the latest of the group; or -1.

    `group` (requests,) is the session of each request; -1 belongs to none.
    """
    latest = latest_before(group, group, np.arange(len(group)))
    is_inside = (by_blocks >= 0) & (group >= 0) & (group[by_blocks] == group)
    return np.where(is_inside, by_blocks, latest).astype(np.int64)


def follow(parent: IntArray) -> Conversations:
    """The conversations of these parents (each lower than its child, -1: none)."""
    root = np.where(parent >= 0, parent, np.arange(len(parent)))
    above, turn = parent.copy(), (parent >= 0).astype(np.int64)
    while (has_more := above >= 0).any():
        turn += np.where(has_more, turn[above], 0)
        root = root[root]
        above = np.where(has_more, above[above], -1)
    numbers = np.cumsum(parent < 0) - 1
    return Conversations(parent, np.asarray(numbers[root], dtype=np.int64), turn)


def shared_blocks(prompts: CutPrompts, other: IntArray) -> IntArray:
    """(requests,) leading full blocks that each request has in common with request `other`.

    `other` (requests,) is an index, or -1: 0 blocks.
    """
    atoms = prompts.atoms
    request, place = atoms.request, np.arange(len(atoms.ref))
    partner = other[request]
    matched = atoms.offset[partner] + place - atoms.offset[request]
    is_there = (partner >= 0) & (matched < atoms.offset[partner + 1])
    is_equal = np.zeros(len(place), dtype=np.bool_)
    is_equal[is_there] = atoms.ref[place[is_there]] == atoms.ref[matched[is_there]]
    unequal = prefix_sums((~is_equal).astype(np.int64))
    is_leading = unequal[1:] == unequal[atoms.offset[:-1]][request]
    leading = prefix_sums(np.where(is_leading, atoms.blocks[atoms.ref], 0))
    shared = leading[atoms.offset[1:]] - leading[atoms.offset[:-1]]
    return np.asarray(np.minimum(shared, prompts.full_blocks), dtype=np.int64)
