"""Single requests of a replay, as the record holds them."""

from __future__ import annotations

from typing import Literal

import msgspec


class TracedRequest(msgspec.Struct, kw_only=True):
    """One request of one replayed option; seconds are modelled unless `measured_` says otherwise.

    ttft = queue + lookup + pull + load + prefill, where queue is what the move did not hide.
    """

    kind: Literal["lost", "slow"]
    """lost: loading took longer than recomputing | slow: among the longest TTFT of the others."""
    request_rank: int
    """Of the replayed requests by arrival, from 0."""
    file: str | None
    """Path of its log as it was given; null: the request is a copy that a raised load made."""
    line: int | None
    """Where its record starts: physical line from 1, or number of the frame or table row."""
    prompt_bucket: int
    """Tokens: lower bound of the half-open range up to twice this."""
    prompt_tokens: int
    hit_tokens: int
    """Served from any tier."""
    moved_bytes: float
    queue_s: float
    lookup_s: float
    pull_s: float
    load_s: float
    prefill_s: float
    ttft_s: float
    recompute_s: float
    """Computing what was loaded instead."""
    regret_s: float
    """lookup + pull + load and stalls, minus `recompute_s`; below zero the load was worth it."""
    without_s: float
    """ttft_s - regret_s: its TTFT, had it recomputed that at the same place in the queue."""
    measured_ttft_s: float | None = None
    """As logged, from arrival or at the client."""
    measured_queue_s: float | None = None
    measured_cached_tokens: int | None = None


class Drilldown(msgspec.Struct, kw_only=True):
    """The requests that lost most by loading, and the slowest of the others."""

    option: str
    title: str
    """Of the option whose replay this is."""
    why_option: Literal["weighed", "pool", "deployed"]
    """weighed: the pool that the verdict weighs | pool: the first replayed pool | deployed: nothing
    pooled was replayed."""
    requests: int
    """Replayed."""
    lost: int
    """Of these, the ones that lost by loading: `rows` holds the worst of them."""
    rows: list[TracedRequest]
    """Those that lost first, worst first; then the slowest others."""
    measured_ttft: int = 0
    """Replayed requests whose TTFT the log states."""
