"""More or less traffic of the same kind: sessions superposed or thinned out, and time compressed.

Growth adds sessions, it does not speed them up: the turns of a session keep their gaps, and what a
session alone had in its prompts stays its own. Time compression keeps the requests and moves them
closer together, turns of one session included; it is another test and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from kvtrace.errors import ModelError
from kvtrace.replay.blocks import atom_arrays
from kvtrace.replay.window import densify, select_requests
from kvtrace.schema.arrays import BoolArray, IntArray, RequestTrace
from kvtrace.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class Grown:
    """A trace with more sessions than were logged."""

    trace: RequestTrace
    """`request_key` is negative for requests that nobody logged."""
    copies: int
    """Of every session, the logged one included."""
    root_blocks: int
    """Distinct blocks that the sessions of all copies share."""
    logged_blocks: int
    """Distinct blocks before; those that are no roots exist once a copy."""


def session_numbers(trace: RequestTrace) -> IntArray:
    """(requests,) dense session by first arrival; a request that names none is one of its own."""
    own = trace.session.max(initial=-1) + 1 + np.arange(trace.requests, dtype=np.int64)
    label = np.where(trace.session >= 0, trace.session, own)
    _, first, number = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return np.asarray(rank[number], dtype=np.int64)


def root_atoms(trace: RequestTrace, root_share: float) -> BoolArray:
    """(atoms,) whether the blocks of an atom (see `atom_arrays`) are in so many sessions.

    Formula: sessions that hold it >= max(2, ceil(root_share · sessions)).
    """
    offset, atoms, edges = atom_arrays(trace)
    session = session_numbers(trace)
    sessions = int(session.max(initial=-1)) + 1
    of_atom = np.repeat(session, np.diff(offset))
    pairs = np.unique(atoms * max(1, sessions) + of_atom)
    holders = np.bincount(pairs // max(1, sessions), minlength=max(0, len(edges) - 1))
    return np.asarray(holders >= max(2, ceil(root_share * sessions - 1e-9)), dtype=np.bool_)


def grow(
    trace: RequestTrace, copies: int, *, seed: int, spread_s: float, root_share: float
) -> Grown:
    """The trace with `copies` of every session, at the same rate curve but not at the same instant.

    The logged sessions stay as they are. Each session of a further copy is moved as a whole by up
    to `spread_s` either way (uniform, numpy's PCG64 on `seed`), but not before the trace begins.
    Blocks that at least `root_share` of the sessions have are roots, which all copies share; all
    others exist once a copy: inside a copy sessions share what the logged ones shared, between
    copies nothing but roots. So what is reused of private blocks stays the same share.

    Raises:
        ModelError: fewer than one copy, or a trace without a clock that is to grow.
    """
    if copies < 1:
        raise ModelError("KVT-R010", f"a growth of {copies} is none", hint="1 leaves it as it is")
    if copies > 1 and not trace.has_clock:
        raise ModelError("KVT-R011", "sessions cannot be superposed: the requests have no clock")
    is_root = root_atoms(trace, root_share)
    _, _, edges = atom_arrays(trace)
    root_blocks = int(np.diff(edges)[is_root].sum())
    if copies == 1 or not trace.requests:
        return Grown(trace, 1, root_blocks, trace.distinct_blocks)
    shifts = _shifts_ns(trace, copies, seed=seed, spread_ns=round(spread_s * NS_PER_S))
    stacked = _stack(trace, copies, is_root)
    arrived = np.tile(trace.arrived_at_ns, copies) + shifts
    return Grown(in_order(stacked, arrived), copies, root_blocks, trace.distinct_blocks)


def logged_index(request_key: int, requests: int) -> int:
    """The place among the `requests` that grew of the one that a copy's negative key is of."""
    return (-1 - request_key) % requests


def thin(trace: RequestTrace, share: float, *, seed: int) -> RequestTrace:
    """The trace with each session kept whole with probability `share` (numpy's PCG64 on `seed`).

    Formula: session kept where its draw < share, so that any sum over sessions is `share` of the
    whole in expectation, and a smaller share keeps a subset of what a larger one keeps.

    Raises:
        ModelError: the share is not in (0, 1].
    """
    if not 0 < share <= 1:
        raise ModelError("KVT-R012", f"a share of {share:g} is not in (0, 1]", hint="0.5 is half")
    if share == 1:
        return trace
    session = session_numbers(trace)
    draws = np.random.default_rng(seed).random(int(session.max(initial=-1)) + 1)
    return select_requests(trace, np.asarray(draws[session] < share, dtype=np.bool_))


def compress_time(trace: RequestTrace, factor: float) -> RequestTrace:
    """The same requests with all arrivals `factor` times as close together.

    Raises:
        ModelError: the factor is not above zero.
    """
    if not 0 < factor < float("inf"):
        raise ModelError("KVT-R013", f"time cannot be compressed by {factor:g}", hint="2 is twice")
    arrived = np.floor(trace.arrived_at_ns / factor).astype(np.int64)
    resolution = max(1, int(trace.clock_resolution_ns / factor))
    return replace(trace, arrived_at_ns=arrived, clock_resolution_ns=resolution)


def in_order(trace: RequestTrace, arrived_at_ns: IntArray) -> RequestTrace:
    """The requests at these arrivals instead, sorted by them (ties: as they were), ids dense."""
    order = np.argsort(arrived_at_ns, kind="stable")
    arrived = arrived_at_ns[order]
    counts = np.diff(trace.run_offset)[order]
    offset = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts)))
    within = np.arange(int(offset[-1]), dtype=np.int64) - np.repeat(offset[:-1], counts)
    runs = np.repeat(trace.run_offset[:-1][order], counts) + within
    moved = replace(
        trace,
        request_key=trace.request_key[order],
        arrived_at_ns=arrived - arrived[0] if len(arrived) else arrived,
        prompt_tokens=trace.prompt_tokens[order],
        output_tokens=trace.output_tokens[order],
        session=trace.session[order],
        run_offset=offset,
        run_start=trace.run_start[runs],
        run_blocks=trace.run_blocks[runs],
    )
    return densify(moved)


def _shifts_ns(trace: RequestTrace, copies: int, *, seed: int, spread_ns: int) -> IntArray:
    """(copies · requests,) what each arrival is moved by; zero in the first copy."""
    session = session_numbers(trace)
    _, first = np.unique(session, return_index=True)
    earliest = -np.minimum(trace.arrived_at_ns[first], spread_ns)
    generator = np.random.default_rng(seed)
    shifts = [np.zeros(trace.requests, dtype=np.int64)]
    for _ in range(copies - 1):
        moved = generator.integers(earliest, spread_ns, endpoint=True)
        shifts.append(np.asarray(moved[session], dtype=np.int64))
    return np.concatenate(shifts)


def _stack(trace: RequestTrace, copies: int, is_root: BoolArray) -> RequestTrace:
    """All copies one after the other; blocks that are no roots have ids of their own in each."""
    offset, atoms, edges = atom_arrays(trace)
    start, blocks = edges[atoms], np.diff(edges)[atoms]
    own = np.where(is_root[atoms], 0, trace.distinct_blocks)
    counts = np.diff(offset)
    requests, sessions = trace.requests, int(trace.session.max(initial=-1)) + 1
    logged = np.arange(requests, dtype=np.int64)
    copy = np.repeat(np.arange(copies, dtype=np.int64), requests)
    session = np.tile(trace.session, copies)
    return replace(
        trace,
        request_key=np.where(
            copy == 0,
            np.tile(trace.request_key, copies),
            -1 - copy * requests - np.tile(logged, copies),
        ),
        prompt_tokens=np.tile(trace.prompt_tokens, copies),
        output_tokens=np.tile(trace.output_tokens, copies),
        session=np.where(session >= 0, session + copy * sessions, -1),
        run_offset=np.concatenate(
            (np.zeros(1, dtype=np.int64), np.cumsum(np.tile(counts, copies)))
        ),
        run_start=np.concatenate([start + own * number for number in range(copies)]),
        run_blocks=np.tile(blocks, copies),
        distinct_blocks=trace.distinct_blocks * copies,
    )
