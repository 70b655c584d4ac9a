"""A slow shared tier: reuse rises, and the service collapses under its loads and writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.replay.engine import simulate
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario, StageSpec, TierSpec
from kvtrace.replay.summary import hit_costs
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import KV_BYTES, Ask, PerToken, links, make_scenario, make_trace

BLOCK = 10
POOL = TierSpec(
    tier_id="pool",
    scope="shared",
    capacity_bytes=KV_BYTES * BLOCK * 1000,
    lookup_s=0.0,
    read=(StageSpec("pull", ("pool_read",), 0.0),),
    write=(StageSpec("pull", ("pool_write",), 0.0),),
    holds_hbm=True,
)


@pytest.fixture(scope="module")
def trace() -> RequestTrace:
    """20 requests/s; the first four of eight blocks are one of 25 roots, which change instances."""
    return make_trace(
        [
            Ask(
                index / 20,
                [(index % 25, i) for i in range(4)] + [(25 + index, i) for i in range(4)],
            )
            for index in range(400)
        ]
    )


@pytest.fixture(scope="module")
def poison() -> Scenario:
    # A prompt of 80 tokens: 0.08 s of prefill, 160 B. Four instances: 5 prompts/s each, 0.4 busy.
    # Written 400 B/s of the 3 200 B/s that are computed; read 500 B/s, half of it 0.16 s: a load of
    # four blocks (80 B) takes four times what computing them does.
    return make_scenario(
        instances=4,
        routing="round_robin",
        hbm_capacity_bytes=KV_BYTES * BLOCK * 60,
        tiers=(POOL,),
        links=links(pool_read=500.0, pool_write=400.0),
        prefill=PerToken(0.001),
    )


def reuse(result: ReplayResult) -> int:
    return sum(int(tokens.sum()) for tokens in result.timeline.hit_tokens.values())


def test_loading_every_hit_raises_reuse_and_ruins_latency(
    trace: RequestTrace, poison: Scenario
) -> None:
    pooled = simulate(trace, poison)
    alone = simulate(trace, replace(poison, tiers=()))
    assert reuse(pooled) > 2 * reuse(alone)
    assert pooled.timeline.ttft_s.mean() > 100 * alone.timeline.ttft_s.mean()
    costs = hit_costs(pooled)
    assert costs.net_negative_hits == costs.hits > 0


def test_an_arbiter_keeps_out_of_it(trace: RequestTrace, poison: Scenario) -> None:
    judged = simulate(trace, replace(poison, load_decision="arbiter"))
    alone = simulate(trace, replace(poison, tiers=()))
    assert judged.timeline.ttft_s.mean() <= 1.02 * alone.timeline.ttft_s.mean()
    (write,) = [use for use in judged.link_use if use.link_id == "pool_write"]
    assert write.bytes_written == 0.0


def test_loads_alone_can_ruin_latency(trace: RequestTrace, poison: Scenario) -> None:
    # 20 hits/s of 80 B ask for 1 600 B/s of 500.
    loose = simulate(trace, replace(poison, tiers=(replace(POOL, holds_hbm=False),)))
    alone = simulate(trace, replace(poison, tiers=()))
    assert loose.timeline.ttft_s.mean() > 50 * alone.timeline.ttft_s.mean()
