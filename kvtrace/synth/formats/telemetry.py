"""vLLM's metrics page, scraped every 15 s: totals since the start, and what goes on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kvtrace.synth.formats.scene import START_NS, Scene
from kvtrace.synth.story import Served, seconds
from kvtrace.synth.ticks import Tick, ticks
from kvtrace.units import NS_PER_S

SCRAPE_INTERVAL_NS: Final = 15 * NS_PER_S
_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_S) + 1))
    total_ns: int = 0

    def add(self, duration_ns: int) -> None:
        self.counts[bisect_left(_BOUNDS_S, seconds(duration_ns))] += 1
        self.total_ns += duration_ns

    def lines(self, name: str, labels: str) -> Iterator[str]:
        reached = 0
        for bound, count in zip((*map(str, _BOUNDS_S), "+Inf"), self.counts, strict=True):
            reached += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {float(reached)}'
        yield f"{name}_sum{{{labels}}} {seconds(self.total_ns)}"
        yield f"{name}_count{{{labels}}} {float(reached)}"


_COUNTERS: Final = (
    "prefix_cache_queries_total",
    "prefix_cache_hits_total",
    "external_prefix_cache_queries_total",
    "external_prefix_cache_hits_total",
    "prompt_tokens_total",
    "generation_tokens_total",
)


class _Page:
    """The metrics page while the story goes on."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._labels = f'engine="0",model_name="{scene.engine.model}"'
        self._totals = dict.fromkeys(_COUNTERS, 0)
        self._succeeded = 0
        self._ttft, self._e2e = _Histogram(), _Histogram()

    def advance(self, tick: Tick) -> None:
        """Take in what happened since the last scrape."""
        for one in tick.looked_up:
            self._look_up(one)
        self._totals["prompt_tokens_total"] += tick.prompt_tokens()
        self._totals["generation_tokens_total"] += tick.generated_tokens()
        for one in tick.active:
            if tick.before_ns < one.first_token_at_ns <= tick.at_ns:
                self._ttft.add(one.ttft_ns)
        for one in tick.finished:
            self._succeeded += 1
            self._e2e.add(one.last_token_at_ns - one.arrived_at_ns)

    def _look_up(self, one: Served) -> None:
        totals = self._totals
        totals["prefix_cache_queries_total"] += one.request.prompt_tokens
        totals["prefix_cache_hits_total"] += one.device_tokens
        missed = one.request.prompt_tokens - one.device_tokens
        totals["external_prefix_cache_queries_total"] += missed
        totals["external_prefix_cache_hits_total"] += one.pulled_tokens

    def lines(self, at_ns: int, running: int, waiting: int, held_blocks: int) -> Iterator[str]:
        """The page as it is at a time of the story."""
        engine, size = self._scene.engine, self._scene.block_size_tokens
        labels, blocks = self._labels, engine.kv_capacity_tokens // size
        yield f"# scrape_ts {(START_NS + at_ns) // NS_PER_S}"
        for name, total in self._totals.items():
            yield f"# TYPE vllm:{name} counter"
            yield f"vllm:{name}{{{labels}}} {float(total)}"
        yield f'vllm:request_success_total{{{labels},finished_reason="stop"}} {self._succeeded}.0'
        yield f"vllm:num_requests_running{{{labels}}} {float(running)}"
        yield f"vllm:num_requests_waiting{{{labels}}} {float(waiting)}"
        yield f"vllm:kv_cache_usage_perc{{{labels}}} {held_blocks / blocks}"
        yield from self._ttft.lines("vllm:time_to_first_token_seconds", labels)
        yield from self._e2e.lines("vllm:e2e_request_latency_seconds", labels)
        yield (
            f'vllm:cache_config_info{{block_size="{size}",cache_dtype="auto",'
            f'enable_prefix_caching="True",engine="0",num_gpu_blocks="{blocks}"}} 1.0'
        )


def prometheus(scene: Scene) -> Iterator[str]:
    """Scrapes of the metrics page, one after the other, each behind a line with its time."""
    page = _Page(scene)
    yield from page.lines(0, 0, 0, 0)
    for tick in ticks(scene.served(), SCRAPE_INTERVAL_NS):
        page.advance(tick)
        held = tick.held_blocks(scene.block_size_tokens)
        yield from page.lines(tick.at_ns, tick.running, tick.waiting, held)
