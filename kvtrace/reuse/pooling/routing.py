"""Which instance serves each request: by turn, by conversation, or by what is cached where.

Deterministic and in integers; requests come in arrival order (ties: request key), as in the trace.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import numpy as np

from kvtrace.reuse.parents import conversations_of
from kvtrace.reuse.pooling.kv_centric import MATCH_WEIGHT, route_kv_centric
from kvtrace.schema.arrays import IntArray, RequestTrace

Routing = Literal["round_robin", "session_sticky", "kv_centric", "kv_centric_exact"]
"""kv_centric: the router's index never sees an eviction; kv_centric_exact: it sees all."""

ROUTINGS: Final[tuple[Routing, ...]] = get_args(Routing)


def depends_on_capacity(routing: Routing) -> bool:
    """Whether requests go elsewhere when the caches are larger."""
    return routing == "kv_centric_exact"


def route(
    trace: RequestTrace,
    routing: Routing,
    instances: int,
    *,
    capacity_blocks: int | None = None,
    conversation: IntArray | None = None,
    match_weight: int = MATCH_WEIGHT,
) -> IntArray:
    """(requests,) the instance of each request, from 0.

    `capacity_blocks` is that of each instance's cache, for a routing that depends on it;
    `conversation` (requests,) are the conversations if they are known already; `match_weight` is
    that of `kv_centric`.

    Raises:
        ValueError: no instance, or no capacity for a routing that depends on it.
    """
    if instances < 1:
        raise ValueError(f"{instances} instances serve nothing")
    if routing == "round_robin":
        return np.arange(trace.requests, dtype=np.int64) % instances
    if routing == "session_sticky":
        if conversation is None:
            conversation = conversations_of(trace).conversation
        return _stick(conversation, trace.prompt_tokens, instances)
    is_exact = depends_on_capacity(routing)
    if is_exact and capacity_blocks is None:
        raise ValueError(f"{routing} needs the capacity of the caches")
    return route_kv_centric(
        trace,
        instances,
        capacity_blocks=capacity_blocks if is_exact else None,
        match_weight=match_weight,
    )


def _stick(conversation: IntArray, prompt_tokens: IntArray, instances: int) -> IntArray:
    """(requests,) a conversation opens where fewest prompt tokens were sent so far, and stays."""
    home: dict[int, int] = {}
    sent = [0] * instances
    chosen = np.zeros(len(conversation), dtype=np.int64)
    pairs = zip(conversation.tolist(), prompt_tokens.tolist(), strict=True)
    for request, (number, tokens) in enumerate(pairs):
        instance = home.get(number)
        if instance is None:
            instance = home[number] = sent.index(min(sent))
        sent[instance] += tokens
        chosen[request] = instance
    return chosen
