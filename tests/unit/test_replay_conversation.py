"""The idealised replay of the Mooncake conversation trace against its known reuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.fleet import default_fleet
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.presets import build_scenarios, with_arbiter
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.window import slice_requests, spread_arrivals
from kvtrace.scenarios.build import build_scenario
from kvtrace.scenarios.document import load_scenario
from kvtrace.scenarios.plan import read_plan
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_S
from tests.unit.replay_cases import KV_BYTES, UNLIMITED, Ask, make_scenario, make_trace

BLOCK = 512
pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def conversation(shared_dir: Path) -> RequestTrace:
    from backports import zstd

    path = shared_dir / "traces" / "mooncake_conversation.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no {path.name} in the shared material")
    with zstd.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    asks = [
        Ask(row["timestamp"] / 1000, row["hash_ids"], row["input_length"], row["output_length"])
        for row in rows
    ]
    return make_trace(asks, block_size=BLOCK, resolution_ns=3 * NS_PER_S)


@pytest.mark.parametrize(
    ("blocks", "hit_ratio_tokens", "tolerance"),
    [(1_000, 0.0454, 0.002), (10_000, 0.2158, 0.002), (50_000, 0.3615, 0.002)],
)
def test_an_lru_cache_of_one_instance_hits_as_known(
    conversation: RequestTrace, blocks: int, hit_ratio_tokens: float, tolerance: float
) -> None:
    scenario = make_scenario(idealised=True, hbm_capacity_bytes=KV_BYTES * BLOCK * blocks)
    hits = simulate(conversation, scenario).timeline.hit_tokens["hbm"].sum()
    ratio = int(hits) / int(conversation.prompt_tokens.sum())
    assert ratio == pytest.approx(hit_ratio_tokens, abs=tolerance)


def test_an_unlimited_cache_hits_all_reuse_to_the_token(conversation: RequestTrace) -> None:
    scenario = make_scenario(idealised=True, hbm_capacity_bytes=UNLIMITED)
    hits = simulate(conversation, scenario).timeline.hit_tokens["hbm"].sum()
    assert (int(hits), int(conversation.prompt_tokens.sum())) == (54_098_411, 144_793_823)


DEPLOYED = ("Llama-3.1-70B", "H100-SXM5", 8)


@pytest.fixture(scope="module")
def options(conversation: RequestTrace) -> dict[int, dict[str, Scenario]]:
    llm, gpu, tp = DEPLOYED
    deployment = build_deployment(llm, gpu, tp=tp)
    return {
        instances: {
            scenario.option_id: scenario
            for scenario in build_scenarios(deployment, default_fleet(deployment, instances))
        }
        for instances in (5, 1)
    }


def test_a_pool_is_hit_however_few_instances_queue_for_it(
    conversation: RequestTrace, options: dict[int, dict[str, Scenario]]
) -> None:
    ratios = {}
    for instances, scenarios in options.items():
        result = simulate(conversation, scenarios["pool_dram_rdma_direct"])
        hits = sum(int(tokens.sum()) for tokens in result.timeline.hit_tokens.values())
        ratios[instances] = hits / int(conversation.prompt_tokens.sum())
        assert result.is_overloaded == (instances == 1)
    assert ratios[5] == pytest.approx(0.321, abs=0.01)
    assert ratios[1] == pytest.approx(ratios[5], abs=0.02)


def test_an_arbiter_over_tcp_costs_nothing(
    conversation: RequestTrace, options: dict[int, dict[str, Scenario]]
) -> None:
    scenarios = options[5]
    alone, pooled = (
        simulate(spread_arrivals(conversation, 0), scenario).timeline.ttft_s.mean()
        for scenario in (scenarios["hbm_only"], with_arbiter(scenarios["pool_dram_tcp"]))
    )
    assert pooled <= 1.02 * alone


def test_the_shipped_poison_ruins_the_conversation_and_an_arbiter_saves_it(
    conversation: RequestTrace,
) -> None:
    plan = read_plan(load_scenario("poison"))
    assert plan.load.requests == 2001
    llm, gpu, tp = DEPLOYED
    deployment = build_deployment(llm, gpu, tp=tp)
    poison = build_scenario(plan, deployment, default_fleet(deployment, 8), block_tokens=BLOCK)
    trace = spread_arrivals(slice_requests(conversation, 0, 2001), 0)
    pooled, judged, alone = (
        simulate(trace, scenario)
        for scenario in (
            poison,
            replace(poison, load_decision="arbiter"),
            replace(poison, tiers=poison.tiers[:1]),
        )
    )
    reuse = [sum(int(t.sum()) for t in r.timeline.hit_tokens.values()) for r in (pooled, alone)]
    assert reuse[0] > 2 * reuse[1]
    assert pooled.timeline.ttft_s.mean() > 100 * alone.timeline.ttft_s.mean()
    assert judged.timeline.ttft_s.mean() <= 1.02 * alone.timeline.ttft_s.mean()
