"""vLLM's statistics line, every 10 s, computed from what the engine did."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from kvtrace.synth.story import Served, StoryEngine, seconds
from kvtrace.synth.ticks import Tick, ticks
from kvtrace.units import NS_PER_S

STATS_INTERVAL_NS: Final = 10 * NS_PER_S
WINDOW_REQUESTS: Final = 1000
"""vLLM V1 prints hit rates over the requests of its last 1 000 look-ups."""


def hit_ratios(looked_up: Collection[Served]) -> tuple[float, float]:
    """(HBM hits / prompt tokens, pool hits / prompt tokens that HBM missed); 0 without queries."""
    prompt = sum(one.request.prompt_tokens for one in looked_up)
    device = sum(one.device_tokens for one in looked_up)
    pulled = sum(one.pulled_tokens for one in looked_up)
    missed = prompt - device
    return (device / prompt if prompt else 0.0), (pulled / missed if missed else 0.0)


def stats_lines(
    served: Iterable[Served],
    engine: StoryEngine,
    *,
    block_size_tokens: int,
    stamp: Callable[[int], str],
) -> Iterator[tuple[int, int, str]]:
    """(time in ns, order, text) of each statistics line; intervals without tokens print none.

    The requests come in order of arrival.
    """
    window: deque[Served] = deque(maxlen=WINDOW_REQUESTS)
    for tick in ticks(served, STATS_INTERVAL_NS):
        window.extend(tick.looked_up)
        text = _stats(tick, window, engine, block_size_tokens)
        if text is not None:
            prefix = f"(APIServer pid=1) INFO {stamp(tick.at_ns)} [loggers.py:236] Engine 000: "
            yield tick.at_ns, 1, prefix + text


def _stats(
    tick: Tick, window: Collection[Served], engine: StoryEngine, block_size_tokens: int
) -> str | None:
    prompt, generated = tick.prompt_tokens(), tick.generated_tokens()
    if prompt == 0 and generated == 0:
        return None
    device_ratio, pool_ratio = hit_ratios(window)
    usage = tick.held_blocks(block_size_tokens) * block_size_tokens / engine.kv_capacity_tokens
    interval_s = seconds(STATS_INTERVAL_NS)
    return (
        f"Avg prompt throughput: {prompt / interval_s:.1f} tokens/s,"
        f" Avg generation throughput: {generated / interval_s:.1f} tokens/s,"
        f" Running: {tick.running} reqs, Waiting: {tick.waiting} reqs,"
        f" GPU KV cache usage: {usage * 100:.1f}%,"
        f" Prefix cache hit rate: {device_ratio * 100:.1f}%,"
        f" External prefix cache hit rate: {pool_ratio * 100:.1f}%"
    )
