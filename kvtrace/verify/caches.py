"""Caches stepped through request by request: a set that forgets nothing, and LRU as a list."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvtrace.verify.rows import Request


@dataclass(slots=True)
class Seen:
    """What an unlimited cache would have served."""

    requests_with_reuse: int = 0
    block_refs: int = 0
    distinct_blocks: int = 0
    reusable_blocks: int = 0
    reusable_tokens: int = 0
    """Of requests whose prompt length is known."""


def unlimited(domains: Mapping[int, Sequence[Request]], sizes: Mapping[int, int]) -> Seen:
    """Each domain's requests in order: leading blocks that an earlier request held."""
    total = Seen()
    for domain, requests in domains.items():
        seen: set[int] = set()
        for request in requests:
            held = 0
            for block in request.ids():
                if block not in seen:
                    break
                held += 1
            total.block_refs += request.block_refs
            total.reusable_blocks += held
            total.requests_with_reuse += held > 0
            if request.prompt_tokens is not None:
                total.reusable_tokens += request.tokens_of(held, sizes[domain])
            seen.update(request.ids())
        total.distinct_blocks += len(seen)
    return total


def distinct_blocks(requests: Sequence[Request]) -> int | None:
    """Different block ids of all requests, each cache domain for itself; null without any."""
    ids: dict[int | None, set[int]] = {}
    for request in requests:
        ids.setdefault(request.domain, set()).update(request.ids())
    return sum(map(len, ids.values())) or None


def lru(
    domains: Mapping[int, Sequence[Request]], sizes: Mapping[int, int], capacity: int
) -> tuple[int, int]:
    """Blocks and tokens that an LRU cache of `capacity` blocks for each domain serves.

    A request is looked up whole, and only its leading hits count; then its blocks are touched from
    the last to the first, so that a prefix outlives what follows it.
    """
    hit_blocks = hit_tokens = 0
    for domain, requests in domains.items():
        cache: OrderedDict[int, None] = OrderedDict()
        for request in requests:
            ids = list(request.ids())
            held = next((i for i, block in enumerate(ids) if block not in cache), len(ids))
            hit_blocks += held
            if request.prompt_tokens is not None:
                hit_tokens += request.tokens_of(held, sizes[domain])
            for block in reversed(ids):
                if block in cache:
                    cache.move_to_end(block)
                    continue
                cache[block] = None
                if len(cache) > capacity:
                    cache.popitem(last=False)
    return hit_blocks, hit_tokens
