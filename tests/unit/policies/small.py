"""Small traces for the policies, and caches that are simulated the slow and obvious way."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from kvtrace.reuse.policies.blocks import BlockTrace, block_trace
from kvtrace.schema.arrays import RequestTrace

BLOCK = 4
Requests = Sequence[Sequence[int]]


def traced(
    requests: Requests, *, tails: Sequence[int] = (), arrived: Sequence[int] | None = None
) -> BlockTrace:
    """Requests of block names in blocks of 4 tokens; `tails`: tokens of each last block, 0 full."""
    dense: dict[int, int] = {}
    for name in (name for request in requests for name in request):
        dense.setdefault(name, len(dense))
    sizes = np.asarray([len(request) for request in requests], dtype=np.int64)
    ids = [dense[name] for request in requests for name in request]
    missing = [
        BLOCK - tail if tail and len(request) else 0
        for tail, request in zip([*tails] or [0] * len(requests), requests, strict=True)
    ]
    count = len(requests)
    return block_trace(
        RequestTrace(
            request_key=np.arange(count),
            arrived_at_ns=np.asarray(range(count) if arrived is None else arrived, dtype=np.int64),
            prompt_tokens=sizes * BLOCK - np.asarray(missing, dtype=np.int64),
            output_tokens=np.zeros(count, dtype=np.int64),
            session=np.full(count, -1, dtype=np.int64),
            run_offset=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes))),
            run_start=np.asarray(ids, dtype=np.int64),
            run_blocks=np.ones(len(ids), dtype=np.int64),
            block_size_tokens=BLOCK,
            distinct_blocks=len(dense),
            has_clock=True,
            output_known=False,
            clock_resolution_ns=1,
        )
    )


def named(trace: BlockTrace) -> list[list[int]]:
    """Block ids of each request."""
    return [
        trace.block[start:end].tolist()
        for start, end in zip(trace.offset[:-1], trace.offset[1:], strict=True)
    ]


def leading(request: Sequence[int], held: object) -> int:
    """Leading blocks of a request that a container holds."""
    count = 0
    while count < len(request) and request[count] in held:  # type: ignore[operator]
        count += 1
    return count


def slow_lru(
    trace: BlockTrace, weights: Sequence[int], room: int, *, is_second: bool, ttl: int | None
) -> list[int]:
    """Hit blocks of each request: look up, let what is too old go, touch tail to head, evict."""
    held: OrderedDict[int, int] = OrderedDict()
    seen: set[int] = set()
    hits = []
    for now, request in zip(trace.arrived_at_ns.tolist(), named(trace), strict=True):
        if ttl is not None:
            for block in [block for block, at in held.items() if now - at > ttl]:
                del held[block]
        hits.append(leading(request, held))
        for block in reversed(request):
            if not is_second or block in seen:
                held[block] = now
                held.move_to_end(block)
        while sum(weights[block] for block in held) > room:
            held.popitem(last=False)
        seen |= set(request)
    return hits


def slow_ranked(
    trace: BlockTrace, weights: Sequence[int], room: int, rule: str, *, is_second: bool
) -> tuple[list[int], list[int]]:
    """Hits and stored blocks under FIFO, LFU or length-aware, by searching for the worst leaf."""
    parent: dict[int, int | None] = {}
    entered: dict[int, int] = {}
    touched: dict[int, int] = {}
    uses: Counter[int] = Counter()
    depth: dict[int, int] = {}
    seen: set[int] = set()
    hits, stored, clock = [], [], 0

    def rank(block: int) -> tuple[int, int, int]:
        if rule == "fifo":
            return 0, 0, entered[block]
        far = -depth[block] if rule == "length_aware" else 0
        return uses[block], far, touched[block]

    for request in named(trace):
        size = len(request)
        hits.append(leading(request, parent))
        for place in range(size - 1, -1, -1):
            if request[place] in parent:
                touched[request[place]] = clock + size - 1 - place
                uses[request[place]] += 1
        kept, last = 0, None
        for place, block in enumerate(request):
            if block not in parent:
                if is_second and block not in seen:
                    break
                while sum(weights[one] for one in parent) + weights[block] > room:
                    leaves = set(parent) - set(parent.values()) - set(request)
                    if not leaves:
                        break
                    del parent[min(leaves, key=rank)]
                if sum(weights[one] for one in parent) + weights[block] > room:
                    break
                parent[block] = last
                entered[block] = touched[block] = clock + size - 1 - place
                uses[block], depth[block] = 1, place
            kept, last = place + 1, block
        stored.append(kept)
        clock += size
        seen |= set(request)
    return hits, stored


def best_possible(
    trace: BlockTrace, weights: Sequence[int], room: int, worth: Sequence[Sequence[int]]
) -> tuple[int, int]:
    """The most that any cache serves, by trying every way: with prefixes, and block by block.

    `worth` is what each block of each request counts. The cache after a request is any part of what
    was there and of the request that fits. Block by block only what an unlimited cache serves
    counts.
    """
    strict: dict[frozenset[int], int] = {frozenset(): 0}
    relaxed = dict(strict)
    seen: set[int] = set()
    for request, worths in zip(named(trace), worth, strict=True):
        reusable = leading(request, seen)
        strict = _step(strict, request, worths, weights, room, reusable, is_strict=True)
        relaxed = _step(relaxed, request, worths, weights, room, reusable, is_strict=False)
        seen |= set(request)
    return max(strict.values()), max(relaxed.values())


def _step(
    states: dict[frozenset[int], int],
    request: Sequence[int],
    worths: Sequence[int],
    weights: Sequence[int],
    room: int,
    reusable: int,
    *,
    is_strict: bool,
) -> dict[frozenset[int], int]:
    following: dict[frozenset[int], int] = {}
    for held, value in states.items():
        reach = leading(request, held) if is_strict else reusable
        gained = sum(worths[i] for i in range(reach) if request[i] in held)
        for kept in _parts(held | set(request)):
            if sum(weights[block] for block in kept) <= room:
                following[kept] = max(following.get(kept, 0), value + gained)
    return following


def _parts(blocks: frozenset[int] | set[int]) -> Iterator[frozenset[int]]:
    for size in range(len(blocks) + 1):
        for part in combinations(sorted(blocks), size):
            yield frozenset(part)
