"""vLLM's statistics line, every 10 s, computed from what the engine did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kvtrace.synth.story import Served, StoryEngine, seconds
from kvtrace.units import NS_PER_S

STATS_INTERVAL_NS: Final = 10 * NS_PER_S
WINDOW_REQUESTS: Final = 1000
"""vLLM V1 prints hit rates over the requests of its last 1 000 look-ups."""


def emitted_tokens(one: Served, at_ns: int) -> int:
    """Output tokens written by `at_ns`, spread evenly between the first and the last."""
    if at_ns < one.first_token_at_ns:
        return 0
    if at_ns >= one.last_token_at_ns:
        return one.request.output_tokens
    share = (at_ns - one.first_token_at_ns) / (one.last_token_at_ns - one.first_token_at_ns)
    return 1 + int((one.request.output_tokens - 1) * share)


def hit_ratios(looked_up: Sequence[Served]) -> tuple[float, float]:
    """(HBM hits / prompt tokens, pool hits / prompt tokens that HBM missed); 0 without queries."""
    prompt = sum(one.request.prompt_tokens for one in looked_up)
    device = sum(one.device_tokens for one in looked_up)
    pulled = sum(one.pulled_tokens for one in looked_up)
    missed = prompt - device
    return (device / prompt if prompt else 0.0), (pulled / missed if missed else 0.0)


def stats_lines(
    served: Sequence[Served],
    engine: StoryEngine,
    *,
    block_size_tokens: int,
    stamp: Callable[[int], str],
) -> Iterator[tuple[int, int, str]]:
    """(time in ns, order, text) of each statistics line; intervals without tokens print none."""
    if not served:
        return
    by_lookup = sorted(served, key=lambda one: (one.scheduled_at_ns, one.arrived_at_ns))
    last_ns = max(one.last_token_at_ns for one in served)
    for at_ns in range(STATS_INTERVAL_NS, last_ns + 2 * STATS_INTERVAL_NS, STATS_INTERVAL_NS):
        text = _stats(by_lookup, engine, at_ns, block_size_tokens)
        if text is not None:
            prefix = f"(APIServer pid=1) INFO {stamp(at_ns)} [loggers.py:236] Engine 000: "
            yield at_ns, 1, prefix + text


def _stats(
    by_lookup: Sequence[Served], engine: StoryEngine, at_ns: int, block_size_tokens: int
) -> str | None:
    before_ns = at_ns - STATS_INTERVAL_NS
    prompt = generated = running = waiting = blocks = 0
    for one in by_lookup:
        if before_ns < one.first_token_at_ns <= at_ns:
            prompt += one.request.prompt_tokens
        tokens = emitted_tokens(one, at_ns)
        generated += tokens - emitted_tokens(one, before_ns)
        waiting += one.queued_at_ns <= at_ns < one.scheduled_at_ns
        if one.scheduled_at_ns <= at_ns < one.last_token_at_ns:
            running += 1
            blocks += -(-(one.request.prompt_tokens + tokens) // block_size_tokens)
    if prompt == 0 and generated == 0:
        return None
    looked_up = [one for one in by_lookup if one.scheduled_at_ns <= at_ns][-WINDOW_REQUESTS:]
    device_ratio, pool_ratio = hit_ratios(looked_up)
    usage = blocks * block_size_tokens / engine.kv_capacity_tokens
    interval_s = seconds(STATS_INTERVAL_NS)
    return (
        f"Avg prompt throughput: {prompt / interval_s:.1f} tokens/s,"
        f" Avg generation throughput: {generated / interval_s:.1f} tokens/s,"
        f" Running: {running} reqs, Waiting: {waiting} reqs,"
        f" GPU KV cache usage: {usage * 100:.1f}%,"
        f" Prefix cache hit rate: {device_ratio * 100:.1f}%,"
        f" External prefix cache hit rate: {pool_ratio * 100:.1f}%"
    )
