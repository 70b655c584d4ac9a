"""Laws of tiers, load decisions and overlaps on random small traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.replay.engine import simulate
from kvtrace.replay.scenario import EvictionPolicy, Scenario, TierSpec, WriteMoment
from kvtrace.reuse.policies.blocks import Admission, block_trace
from kvtrace.reuse.policies.run import PolicyName, serve
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_S
from tests.property.test_replay_laws import BLOCK, asks, scenarios, total_hits
from tests.unit.replay_cases import (
    KV_BYTES,
    Ask,
    dram_tier,
    links,
    make_scenario,
    make_trace,
    pool_tier,
)

LAW = settings(deadline=None, max_examples=25)
BLOCK_BYTES = KV_BYTES * BLOCK


@st.composite
def special_tiers(draw: st.DrawFn, tier: TierSpec) -> TierSpec:
    """The tier with a cache, tails and failures of any kind."""
    is_exclusive = draw(st.booleans())
    moment = draw(st.sampled_from(WRITE_MOMENTS))
    high = draw(st.sampled_from([1.0, 0.7]))
    return replace(
        tier,
        policy=draw(st.sampled_from(POLICIES)),
        inclusion="exclusive" if is_exclusive else "inclusive",
        write_moment="on_evict" if is_exclusive else moment,
        admission_uses=draw(st.sampled_from([1, 2])),
        match_tokens=draw(st.sampled_from([0, 7, 20])),
        high_watermark=high,
        low_watermark=draw(st.sampled_from([high, 0.4])),
        lease_s=draw(st.sampled_from([0.0, 0.5])),
        ttl_s=draw(st.sampled_from([None, 1.0])),
        lookup_p99_s=draw(st.sampled_from([None, tier.lookup_s + 0.1])),
        read_delay_p99_s=draw(st.sampled_from([0.0, 0.2])),
        lookup_failure_share=draw(st.sampled_from([0.0, 0.3])),
        read_failure_share=draw(st.sampled_from([0.0, 0.3])),
        holds_hbm=not is_exclusive and moment == "on_compute" and draw(st.booleans()),
        timeout_s=draw(st.sampled_from([None, 0.05, 2.0])),
    )


POLICIES: list[EvictionPolicy] = [
    "lru", "leaf_lru", "fifo", "flat_fifo", "lfu", "length_aware", "arc", "s3_fifo",
]  # fmt: skip
WRITE_MOMENTS: list[WriteMoment] = ["on_compute", "on_evict"]


@st.composite
def special_scenarios(draw: st.DrawFn) -> Scenario:
    """Any scenario with tiers of any kind, and any way to decide about and overlap loads."""
    scenario = draw(scenarios())
    can_preempt = not scenario.prefill_instances
    return replace(
        scenario,
        tiers=tuple(draw(special_tiers(tier)) for tier in scenario.tiers),
        load_decision=draw(st.sampled_from(["always", "threshold", "arbiter", "split"])),
        load_threshold_tokens=draw(st.sampled_from([0, 15])),
        overlap=draw(st.sampled_from(["serial", "pipelined", "layerwise"])),
        layers=4,
        load_chunk_tokens=8,
        prefetch=draw(st.sampled_from(["wait", "best_effort", "off"])),
        kv_admission="as_needed" if can_preempt and draw(st.booleans()) else "whole",
    )


@LAW
@given(asks(), special_scenarios())
def test_every_request_is_served_and_its_times_add_up(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace(made)
    timeline = simulate(trace, scenario).timeline
    parts = (
        timeline.queue_s
        + timeline.lookup_s
        + timeline.pull_s
        + timeline.load_s
        + timeline.prefill_s
    )
    assert timeline.ttft_s == pytest.approx(parts, abs=1e-6)
    for seconds in (timeline.queue_s, timeline.lookup_s, timeline.stall_s, timeline.prefill_s):
        assert (seconds >= -1e-9).all()
    assert (timeline.stall_s <= timeline.prefill_s + 1e-9).all()
    assert (timeline.e2e_s >= timeline.ttft_s - 1e-9).all()


@LAW
@given(asks(), special_scenarios())
def test_hits_and_computed_tokens_make_up_the_prompt(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace(made)
    result = simulate(trace, scenario)
    hits = total_hits(result)
    assert (hits + result.timeline.computed_tokens == trace.prompt_tokens).all()
    assert (result.timeline.computed_tokens >= np.minimum(trace.prompt_tokens, 1)).all()


@LAW
@given(asks(), special_scenarios())
def test_no_chain_hits_more_than_exists(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace(made)
    bound = total_hits(simulate(trace, make_scenario(idealised=True)))
    assert total_hits(simulate(trace, scenario)).sum() <= bound.sum()
    ideal = simulate(trace, replace(scenario, idealised=True))
    assert (total_hits(ideal) <= bound).all()


@LAW
@given(asks(), special_scenarios())
def test_the_same_seed_gives_the_same_bits(made: list[Ask], scenario: Scenario) -> None:
    first, second = (simulate(make_trace(made), scenario) for _ in range(2))
    assert first.timeline.ttft_s.tobytes() == second.timeline.ttft_s.tobytes()
    assert first.link_use == second.link_use


@LAW
@given(asks(), special_scenarios())
def test_links_carry_what_requests_loaded(made: list[Ask], scenario: Scenario) -> None:
    # A read that fails, or is stopped, has moved bytes that served nothing.
    sound = replace(
        scenario,
        tiers=tuple(
            replace(tier, read_failure_share=0.0, timeout_s=None) for tier in scenario.tiers
        ),
        prefetch="wait",
    )
    result = simulate(make_trace(made), sound)
    below = sum(int(hits.sum()) for tier, hits in result.timeline.hit_tokens.items())
    below -= int(result.timeline.hit_tokens["hbm"].sum())
    assert result.timeline.moved_bytes.sum() == pytest.approx(KV_BYTES * below)
    uses = {use.link_id: use for use in result.link_use}
    if "pcie" in uses:
        assert uses["pcie"].bytes_read == pytest.approx(KV_BYTES * below)


def one_tier(trace: RequestTrace, tier: TierSpec, *, hbm_blocks: int = 0) -> list[int]:
    """Tokens that HBM of so many blocks and the tier serve each request, without time."""
    scenario = make_scenario(
        idealised=True,
        hbm_capacity_bytes=BLOCK_BYTES * hbm_blocks,
        tiers=(tier,),
        links=links(pcie=1e9, nic=1e9, pool=1e9),
    )
    hits: list[int] = total_hits(simulate(trace, scenario)).tolist()
    return hits


@LAW
@given(asks(), st.sampled_from(POLICIES), st.integers(1, 15), st.sampled_from([1, 2]))
def test_a_policy_serves_what_the_policy_facts_say(
    made: list[Ask], policy: EvictionPolicy, blocks: int, uses: int
) -> None:
    trace = make_trace(made)
    facts = block_trace(trace)
    name: PolicyName = policy
    admission: Admission = "all" if uses == 1 else "second_use"
    served = serve(facts, name, [blocks], admission=admission, mode="python")[0]
    tier = pool_tier(capacity_bytes=BLOCK_BYTES * blocks)
    hits = one_tier(trace, replace(tier, policy=policy, admission_uses=uses))
    assert hits == facts.tokens_of(served.hit_blocks).tolist()


@LAW
@given(asks(), st.integers(1, 15), st.integers(0, 40))
def test_a_lifetime_serves_what_the_policy_facts_say(
    made: list[Ask], blocks: int, tenths: int
) -> None:
    trace = make_trace(made)
    facts = block_trace(trace)
    ttl_s = tenths / 10 + 0.05
    ttl_ns = round(ttl_s * NS_PER_S)
    served = serve(facts, "ttl", [blocks], ttl_ns=ttl_ns, mode="python")[0]
    hits = one_tier(trace, replace(pool_tier(capacity_bytes=BLOCK_BYTES * blocks), ttl_s=ttl_s))
    assert hits == facts.tokens_of(served.hit_blocks).tolist()


@LAW
@given(asks(), st.lists(st.integers(0, 8), min_size=2, max_size=4))
def test_an_exclusive_chain_holds_as_much_as_its_tiers_together(
    made: list[Ask], blocks: list[int]
) -> None:
    trace = make_trace(made)
    rest = tuple(
        replace(
            dram_tier(capacity_bytes=BLOCK_BYTES * count),
            tier_id=f"tier_{index}",
            inclusion="exclusive",
            write_moment="on_evict",
        )
        for index, count in enumerate(blocks[1:])
    )
    scenario = make_scenario(
        idealised=True,
        hbm_capacity_bytes=BLOCK_BYTES * blocks[0],
        tiers=rest,
        links=links(pcie=1e9),
    )
    whole = make_scenario(idealised=True, hbm_capacity_bytes=BLOCK_BYTES * sum(blocks))
    assert total_hits(simulate(trace, scenario)).tolist() == (
        total_hits(simulate(trace, whole)).tolist()
    )


@LAW
@given(asks(), scenarios())
def test_a_tier_that_holds_nothing_is_no_tier(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace(made)
    empty = replace(pool_tier(capacity_bytes=BLOCK_BYTES / 2), tier_id="empty", policy="arc")
    with_it = simulate(trace, replace(scenario, tiers=(empty, *scenario.tiers)))
    without = simulate(trace, scenario)
    assert with_it.timeline.ttft_s.tobytes() == without.timeline.ttft_s.tobytes()
    assert with_it.link_use == without.link_use


@LAW
@given(asks(), scenarios())
def test_one_layer_is_serial_and_one_stage_has_no_pipeline(
    made: list[Ask], scenario: Scenario
) -> None:
    trace = make_trace(made)
    serial = simulate(trace, scenario).timeline.ttft_s
    layerwise = simulate(trace, replace(scenario, overlap="layerwise", layers=1)).timeline.ttft_s
    assert layerwise == pytest.approx(serial, abs=1e-9)
    if scenario.tiers == ():
        pipelined = simulate(trace, replace(scenario, overlap="pipelined")).timeline.ttft_s
        assert pipelined.tobytes() == serial.tobytes()
