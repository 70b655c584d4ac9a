"""The replay on traces that can be worked out by hand.

Unless said otherwise: blocks of 10 tokens, 2 B of KV per token, 0.01 s of prefill per token.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.errors import UsageError
from kvtrace.replay.engine import simulate
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import LinkSpec, Scenario, StageSpec, TierSpec
from tests.unit.replay_cases import (
    Ask,
    FlatStep,
    PerToken,
    dram_tier,
    links,
    make_scenario,
    make_trace,
    pool_tier,
)

FAST = 1e15
"""A link that takes no time worth mentioning."""


def ttft(result: ReplayResult) -> list[float]:
    return [round(seconds, 9) for seconds in result.timeline.ttft_s.tolist()]


def hits(result: ReplayResult, tier: str) -> list[int]:
    values: list[int] = result.timeline.hit_tokens[tier].tolist()
    return values


def pool_scenario(**changes: object) -> Scenario:
    """Two instances in turn, a shared pool behind fast links."""
    changes = {
        "instances": 2,
        "routing": "round_robin",
        "tiers": (pool_tier(),),
        "links": links(pcie=FAST, nic=FAST, pool=FAST),
        **changes,
    }
    return make_scenario(**changes)


def test_a_lone_request_takes_its_prefill() -> None:
    result = simulate(make_trace([Ask(0, "ab", 15)]), make_scenario())
    timeline = result.timeline
    assert ttft(result) == [0.15]
    assert timeline.e2e_s.tolist() == [0.15]
    assert np.isnan(timeline.tpot_s).all()
    assert timeline.computed_tokens.tolist() == [15]
    assert timeline.recompute_s.tolist() == [0.15]
    assert (result.span_s, result.prefill_utilisation) == (0.15, 1.0)


def test_one_instance_prefills_first_come_first_served() -> None:
    # 100 tokens = 1 s each; the second arrives at 0.5 and waits 0.5
    trace = make_trace([Ask(0, prompt=100), Ask(0.5, prompt=100), Ask(5, prompt=100)])
    result = simulate(trace, make_scenario())
    assert ttft(result) == [1.0, 1.5, 1.0]
    assert result.timeline.queue_s.tolist() == pytest.approx([0.0, 0.5, 0.0])
    assert result.prefill_utilisation == pytest.approx(3 / 6)


def test_a_whole_prompt_in_hbm_still_computes_its_last_token() -> None:
    result = simulate(make_trace([Ask(0, "abc"), Ask(1, "abc")]), make_scenario())
    assert hits(result, "hbm") == [0, 29]
    assert result.timeline.computed_tokens.tolist() == [30, 1]
    assert ttft(result) == [0.3, 0.01]


def test_without_reuse_everything_is_computed() -> None:
    result = simulate(make_trace([Ask(0, "abc"), Ask(1, "abc")]), make_scenario(reuse=False))
    assert hits(result, "hbm") == [0, 0]
    assert ttft(result) == [0.3, 0.3]


def test_a_block_is_usable_only_once_its_prefill_has_ended() -> None:
    # The second arrives on the other instance while the first still computes: nothing to find.
    # The third finds all in the pool: 29 tokens, 1 computed.
    trace = make_trace([Ask(0, "abc"), Ask(0.1, "abc"), Ask(0.35, "abcd")])
    result = simulate(trace, pool_scenario(instances=3))
    assert hits(result, "hbm") == [0, 0, 0]
    assert hits(result, "pool") == [0, 0, 30]
    assert ttft(result) == [0.3, 0.3, 0.1]


def test_a_queued_request_uses_what_was_computed_before_its_turn() -> None:
    result = simulate(make_trace([Ask(0, "abc"), Ask(0.1, "abcd")]), make_scenario())
    assert hits(result, "hbm") == [0, 30]
    assert ttft(result) == [0.3, 0.3]  # 0.2 queue, 0.1 for d


def test_a_pool_hit_pays_lookup_pull_and_load_in_turn() -> None:
    # 30 tokens = 60 B. lookup 0.1; pull 0.2 + 60 / min(30, 20) = 3.2; load 0.3 + 60 / 60 = 1.3;
    # 10 tokens computed = 0.1
    scenario = pool_scenario(
        tiers=(pool_tier(lookup_s=0.1, pull_latency_s=0.2, load_latency_s=0.3),),
        links=links(pcie=60.0, nic=30.0, pool=20.0),
    )
    result = simulate(make_trace([Ask(0, "abc"), Ask(100, "abcd")]), scenario)
    timeline = result.timeline
    assert timeline.lookup_s.tolist() == pytest.approx([0.1, 0.1])
    assert timeline.pull_s.tolist() == pytest.approx([0.0, 3.2])
    assert timeline.load_s.tolist() == pytest.approx([0.0, 1.3])
    assert timeline.prefill_s.tolist() == pytest.approx([0.3, 0.1])
    assert timeline.queue_s.tolist() == pytest.approx([0.0, 0.0])
    assert ttft(result) == [0.4, 0.1 + 3.2 + 1.3 + 0.1]
    assert timeline.moved_bytes.tolist() == [0.0, 60.0]
    assert timeline.recompute_s.tolist() == pytest.approx([0.3, 0.4])
    assert timeline.recompute_hit_s.tolist() == pytest.approx([0.0, 0.3])


def test_the_ledger_holds_reads_and_writes_of_each_kind_of_link() -> None:
    # written: abc = 60 B, then d = 20 B; read: abc = 60 B; over pcie, nic and pool alike
    scenario = pool_scenario(links=links(pcie=60.0, nic=60.0, pool=60.0))
    result = simulate(make_trace([Ask(0, "abc"), Ask(99.7, "abcd")]), scenario)
    uses = {use.link_id: use for use in result.link_use}
    assert set(uses) == {"pcie", "nic", "pool"}
    assert {(u.bytes_read, u.bytes_written) for u in uses.values()} == {(60.0, 80.0)}
    assert (uses["pcie"].links, uses["nic"].links, uses["pool"].links) == (2, 2, 1)
    # span: 99.7 + 1 + 1 + 0.1 = 101.8; pool could move 60 · 101.8 B
    assert result.span_s == pytest.approx(101.8)
    assert uses["pool"].utilisation == pytest.approx(140 / (60 * 101.8))
    assert uses["pcie"].utilisation == pytest.approx(140 / (2 * 60 * 101.8))
    assert uses["pool"].busy_s == pytest.approx(1 + 1 + 1 / 3)


def test_a_pool_hit_fills_hbm() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(1, "abc"), Ask(2, "x"), Ask(3, "abc")])
    result = simulate(trace, pool_scenario())
    assert hits(result, "pool") == [0, 29, 0, 0]
    assert hits(result, "hbm") == [0, 0, 0, 29]


def test_an_async_load_lets_others_use_the_gpu() -> None:
    # abcd pulls 60 B at 30 B/s from 10 on; x arrives at 10.5 and is served at once. From 10.6 on
    # x's write (20 B) takes half of the NIC: 42 B of the pull are left, 20 B go by 10.6 + 20 / 15,
    # the other 22 B take 22 / 30 s more: 12.667, and 0.1 s for d.
    scenario = pool_scenario(links=links(pcie=FAST, nic=30.0, pool=FAST), instances=2)
    trace = make_trace([Ask(0, "abc"), Ask(10, "abcd"), Ask(10.1, "-"), Ask(10.5, "x")])
    result = simulate(trace, scenario)
    assert result.timeline.instance.tolist() == [0, 1, 0, 1]
    assert ttft(result)[1:] == [2.766666667, 0.1, 0.1]


def test_a_load_hides_behind_the_queue() -> None:
    # Instance 1 computes 300 tokens from 9 to 12; the pool hit that arrives at 10 loads until 12
    # and then waits for nothing: queue 0, pull 2.
    scenario = pool_scenario(links=links(pcie=FAST, nic=30.0, pool=FAST))
    trace = make_trace([Ask(0, "abc"), Ask(9, prompt=350), Ask(9.5, "-"), Ask(10, "abcd")])
    result = simulate(trace, scenario)
    assert result.timeline.pull_s[3] == pytest.approx(2.0)
    assert result.timeline.queue_s[3] == pytest.approx(0.5)
    assert result.timeline.ttft_s[3] == pytest.approx(2.6)


def test_requests_that_are_ready_prefill_in_order_of_arrival() -> None:
    # Instance 1 is busy from 10 to 13; abcd (loaded by then) came before y, y before abce.
    trace = make_trace(
        [
            Ask(0, "abc"),
            Ask(10, prompt=300),
            Ask(10.1, "-"),
            Ask(10.5, "abcd"),
            Ask(10.6, "+"),
            Ask(11, "y"),
            Ask(11.1, "*"),
            Ask(11.5, "abce"),
        ]
    )
    result = simulate(trace, pool_scenario())
    assert result.timeline.instance.tolist() == [0, 1] * 4
    assert result.timeline.queue_s[[3, 5, 7]] == pytest.approx([2.5, 2.1, 1.7])


def test_a_sync_load_keeps_the_gpu_waiting() -> None:
    scenario = pool_scenario(
        links=links(pcie=FAST, nic=30.0, pool=FAST),
        load_mode="sync",
        tiers=(pool_tier(lookup_s=0.5),),
    )
    # abcd on instance 1: lookup 0.5, pull 2, prefill 0.1; x behind it: lookup 0.5 + 0.1
    trace = make_trace([Ask(0, "abc"), Ask(10, "abcd"), Ask(10.1, "-"), Ask(10.5, "x")])
    result = simulate(trace, scenario)
    timeline = result.timeline
    assert timeline.ttft_s.tolist() == pytest.approx([0.8, 2.6, 0.6, 2.1 + 0.6])
    assert timeline.queue_s.tolist() == pytest.approx([0.0, 0.0, 0.0, 2.1])
    assert timeline.gpu_busy_s.tolist() == pytest.approx([0.8, 2.6, 0.6, 0.6])


def test_decoders_make_no_token_while_the_gpu_waits_for_a_sync_load() -> None:
    scenario = make_scenario(
        tiers=(dram_tier(lookup_s=2.0),), links=links(pcie=FAST), load_mode="sync"
    )
    # First: lookup 2, prefill 0.1, then 10 steps of 0.1 s. The second stalls the GPU 2.1 s + one
    # step that rides along with its prefill (0.1 + 0.1).
    trace = make_trace([Ask(0, "a", output=11), Ask(2.5, "b")])
    result = simulate(trace, scenario)
    # 2.1 .. 2.5 four steps, 4.5 .. 4.7 one step (prefill 0.1 + step 0.1), five more: 5.2
    assert result.timeline.e2e_s[0] == pytest.approx(5.2)
    assert result.timeline.ttft_s[1] == pytest.approx(2.0 + 0.2)


def test_output_is_decoded_step_by_step() -> None:
    # 0.1 s prefill, then 10 more tokens at 0.1 s
    result = simulate(make_trace([Ask(0, "a", output=11)]), make_scenario())
    assert result.timeline.tpot_s.tolist() == pytest.approx([0.1])
    assert result.timeline.e2e_s.tolist() == pytest.approx([1.1])


def test_a_request_decodes_over_its_prompt_and_half_its_output() -> None:
    # context 10 + 12 / 2 = 16 tokens at 1 ms each, 11 steps
    scenario = make_scenario(decode=FlatStep(0.0, 0.0, 0.001))
    result = simulate(make_trace([Ask(0, "a", output=12)]), scenario)
    assert result.timeline.tpot_s.tolist() == pytest.approx([0.016])


def test_unknown_output_has_no_decode() -> None:
    trace = make_trace([Ask(0, "a", output=11)], output_known=False)
    timeline = simulate(trace, make_scenario()).timeline
    assert np.isnan(timeline.tpot_s).all()
    assert np.isnan(timeline.e2e_s).all()


def test_decode_steps_ride_along_with_each_chunk_of_a_prefill() -> None:
    # a decodes from 0.1 on, 0.1 s a token. At 0.5 (4 tokens) a prefill of 100 tokens in chunks of
    # 25 starts: 1 s + 4 · 0.1 s = 1.4 s, 4 tokens; 2 more tokens: 0.5 + 1.4 + 0.2 = 2.1
    trace = make_trace([Ask(0, "a", output=11), Ask(0.5, prompt=100)])
    result = simulate(trace, make_scenario(prefill_chunk_tokens=25))
    assert result.timeline.ttft_s[1] == pytest.approx(1.4)
    assert result.timeline.prefill_s[1] == pytest.approx(1.4)
    assert result.timeline.gpu_busy_s[1] == pytest.approx(1.0)
    assert result.timeline.e2e_s[0] == pytest.approx(2.1)


def test_an_unchunked_prefill_is_one_step() -> None:
    trace = make_trace([Ask(0, "a", output=11), Ask(0.5, prompt=100)])
    result = simulate(trace, make_scenario())
    assert result.timeline.ttft_s[1] == pytest.approx(1.1)


def test_a_request_waits_until_hbm_has_room_for_it() -> None:
    # HBM: 100 tokens. First: 30 + 41 = 71 until 0.3 + 40 · 0.1 = 4.3; second needs 40.
    scenario = make_scenario(hbm_capacity_bytes=200.0)
    trace = make_trace([Ask(0, prompt=30, output=41), Ask(1, prompt=40)])
    result = simulate(trace, scenario)
    assert result.timeline.queue_s.tolist() == pytest.approx([0.0, 3.3])
    assert result.oversized_requests == 0


def test_a_request_that_never_fits_is_served_and_counted() -> None:
    scenario = make_scenario(hbm_capacity_bytes=40.0)
    result = simulate(make_trace([Ask(0, "abc"), Ask(1, "abc"), Ask(2, "d")]), scenario)
    assert result.oversized_requests == 2
    assert ttft(result)[0] == 0.3
    # 20 tokens of HBM keep ab of the first; of the third 10 tokens fit beside a
    assert hits(result, "hbm") == [0, 20, 0]
    assert result.hbm_evicted_blocks == 3


def test_running_requests_keep_their_blocks_and_push_cached_ones_out() -> None:
    # HBM: 60 tokens. abc is cached (30); defg needs 40: evicts c. Then abc finds ab.
    scenario = make_scenario(hbm_capacity_bytes=120.0)
    result = simulate(make_trace([Ask(0, "abc"), Ask(1, "defg"), Ask(2, "abc")]), scenario)
    assert hits(result, "hbm") == [0, 0, 20]
    assert result.hbm_evicted_blocks == 1 + 1  # c for defg, then g for the new c


def test_evicted_blocks_come_back_from_host_dram() -> None:
    scenario = make_scenario(hbm_capacity_bytes=120.0, tiers=(dram_tier(),), links=links(pcie=FAST))
    result = simulate(make_trace([Ask(0, "abc"), Ask(1, "defg"), Ask(2, "abcx")]), scenario)
    assert hits(result, "hbm") == [0, 0, 20]
    assert hits(result, "host_dram") == [0, 0, 10]


def two_tiers(*, far_latency_s: float, **changes: object) -> Scenario:
    """HBM of 5 blocks, DRAM of 7 (0.01 s away), a pool of all."""
    near = TierSpec("host_dram", "instance", 140.0, 0.1, (StageSpec("load", (), 0.01),), ())
    far = TierSpec("pool", "shared", 1e9, 0.2, (StageSpec("pull", (), far_latency_s),), ())
    return make_scenario(hbm_capacity_bytes=100.0, tiers=(near, far), **changes)


TWO_TIERS_TRACE = make_trace([Ask(0, "abcd"), Ask(10, "jklmn"), Ask(20, "abcdx")])
"""At 20, HBM holds jklmn, DRAM ab and jklmn, the pool all."""


def test_tiers_extend_the_run_in_chain_order() -> None:
    result = simulate(TWO_TIERS_TRACE, two_tiers(far_latency_s=0.5))
    assert hits(result, "hbm") == [0, 0, 0]
    assert hits(result, "host_dram") == [0, 0, 20]
    assert hits(result, "pool") == [0, 0, 20]
    assert result.timeline.lookup_s.tolist() == pytest.approx([0.3, 0.3, 0.3])
    # lookups 0.3, DRAM 0.01, pool 0.5, 10 tokens computed
    assert ttft(result)[2] == 0.3 + 0.01 + 0.5 + 0.1


@pytest.mark.parametrize(("far_latency_s", "from_pool"), [(0.5, 0), (0.1, 20)])
def test_the_arbiter_takes_the_leading_tiers_that_are_worth_it(
    far_latency_s: float, from_pool: int
) -> None:
    # none: 0.5; DRAM: 0.01 + 0.3; DRAM and pool: 0.01 + 0.5 + 0.1 or 0.01 + 0.1 + 0.1
    scenario = two_tiers(far_latency_s=far_latency_s, load_decision="arbiter")
    result = simulate(TWO_TIERS_TRACE, scenario)
    assert hits(result, "host_dram") == [0, 0, 20]
    assert hits(result, "pool") == [0, 0, from_pool]


def test_blocks_that_spare_no_token_are_not_loaded() -> None:
    # the only token of the prompt is computed in any case
    result = simulate(make_trace([Ask(0, "a", 1), Ask(10, "a", 1)]), pool_scenario())
    assert hits(result, "pool") == [0, 0]
    assert result.timeline.moved_bytes.tolist() == [0.0, 0.0]


def test_no_further_tier_is_asked_once_all_is_found() -> None:
    scenario = make_scenario(
        instances=2,
        routing="round_robin",
        tiers=(
            replace(dram_tier(lookup_s=0.1), scope="shared"),
            pool_tier(lookup_s=0.2),
        ),
        links=links(pcie=FAST, nic=FAST, pool=FAST),
    )
    result = simulate(make_trace([Ask(0, "abc"), Ask(10, "abc")]), scenario)
    assert result.timeline.lookup_s.tolist() == pytest.approx([0.3, 0.1])
    assert hits(result, "host_dram") == [0, 29]


def test_a_whole_prompt_in_hbm_asks_no_tier() -> None:
    scenario = make_scenario(tiers=(dram_tier(lookup_s=0.1),), links=links(pcie=FAST))
    result = simulate(make_trace([Ask(0, "abc"), Ask(10, "ab")]), scenario)
    assert result.timeline.lookup_s.tolist() == pytest.approx([0.1, 0.0])


@pytest.mark.parametrize(
    "tier",
    [
        pytest.param(pool_tier(capacity_bytes=19.0), id="holds no block"),
        pytest.param(pool_tier(capacity_bytes=0.0), id="no capacity"),
    ],
)
def test_a_tier_that_holds_nothing_is_no_tier(tier: TierSpec) -> None:
    trace = make_trace([Ask(0, "abc"), Ask(10, "abc"), Ask(20, "abc")])
    result = simulate(trace, pool_scenario(tiers=(replace(tier, lookup_s=1.0),)))
    bare = simulate(trace, pool_scenario(tiers=()))
    assert result.timeline.ttft_s.tolist() == bare.timeline.ttft_s.tolist()
    assert hits(result, "pool") == [0, 0, 0]


def test_a_pool_without_bandwidth_is_no_pool() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(10, "abc"), Ask(20, "abc")])
    dead = pool_scenario(links=links(pcie=FAST, nic=FAST, pool=0.0))
    bare = pool_scenario(tiers=())
    assert (
        simulate(trace, dead).timeline.ttft_s.tolist()
        == simulate(trace, bare).timeline.ttft_s.tolist()
    )


def test_never_loading_is_hbm_alone() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(10, "abc"), Ask(20, "abc")])
    never = simulate(trace, pool_scenario(load_decision="never"))
    assert never.timeline.ttft_s.tolist() == pytest.approx([0.3, 0.3, 0.01])
    assert never.link_use == ()


@pytest.mark.parametrize(("nic", "loaded"), [(100.0, 0), (190.0, 0), (210.0, 30), (300.0, 30)])
def test_the_arbiter_loads_what_moves_faster_than_it_is_recomputed(nic: float, loaded: int) -> None:
    # recomputing 30 tokens takes 0.3 s; moving 60 B takes 60 / nic: 0.6, 0.32, 0.29, 0.2 s
    scenario = pool_scenario(load_decision="arbiter", links=links(pcie=FAST, nic=nic, pool=FAST))
    result = simulate(make_trace([Ask(0, "abc"), Ask(10, "abcd")]), scenario)
    assert hits(result, "pool") == [0, loaded]


def test_the_arbiter_leaves_a_token_to_compute() -> None:
    # the whole prompt is in the pool: 29 tokens would move in 0.193 s, and 1 token is computed
    scenario = pool_scenario(load_decision="arbiter", links=links(pcie=FAST, nic=300.0, pool=FAST))
    result = simulate(make_trace([Ask(0, "abc"), Ask(10, "abc")]), scenario)
    assert hits(result, "pool") == [0, 29]
    assert result.timeline.computed_tokens.tolist() == [30, 1]


def test_the_arbiter_counts_the_flows_on_the_links() -> None:
    # Alone, 60 B at 250 B/s = 0.24 s beats 0.3 s; beside one flow 0.48 s does not.
    scenario = pool_scenario(
        instances=3, load_decision="arbiter", links=links(pcie=FAST, nic=FAST, pool=250.0)
    )
    trace = make_trace([Ask(0, "abc"), Ask(10, "abcd"), Ask(10.1, "abce")])
    assert hits(simulate(trace, scenario), "pool") == [0, 30, 0]


def test_a_stage_without_links_takes_its_latency() -> None:
    tier = TierSpec("pool", "shared", 1e9, 0.0, (StageSpec("pull", (), 0.5),), ())
    result = simulate(make_trace([Ask(0, "abc"), Ask(10, "abcd")]), pool_scenario(tiers=(tier,)))
    assert result.timeline.pull_s.tolist() == [0.0, 0.5]
    assert hits(result, "pool") == [0, 30]


def test_a_stage_without_links_and_latency_takes_nothing() -> None:
    tier = TierSpec(
        "pool", "shared", 1e9, 0.0, (StageSpec("pull", (), 0.0),), (StageSpec("pull", (), 0.0),)
    )
    result = simulate(make_trace([Ask(0, "abc"), Ask(10, "abcd")]), pool_scenario(tiers=(tier,)))
    assert ttft(result) == [0.3, 0.1]


def test_a_tier_without_stages_costs_its_lookup_alone() -> None:
    tier = TierSpec("pool", "shared", 1e9, 0.25, (), ())
    result = simulate(make_trace([Ask(0, "abc"), Ask(10, "abcd")]), pool_scenario(tiers=(tier,)))
    assert ttft(result) == [0.55, 0.35]
    assert result.timeline.moved_bytes.tolist() == [0.0, 0.0]


def test_writes_take_their_share_from_reads() -> None:
    # pool 60 B/s. At 10 instance 1 reads abc (60 B); instance 0 has computed defghi by 10 and
    # writes 120 B: 30 B/s each, so the read takes 2 s instead of 1.
    scenario = pool_scenario(links=links(pcie=FAST, nic=FAST, pool=60.0))
    trace = make_trace([Ask(0, "abc"), Ask(5, "-"), Ask(9.4, "defghi"), Ask(10, "abcx")])
    result = simulate(trace, scenario)
    assert result.timeline.pull_s[3] == pytest.approx(2.0)


def test_writes_of_one_instance_wait_for_each_other() -> None:
    # pcie 20 B/s: abc (60 B) is written from 0.3 to 3.3, then xyz (60 B) until 6.3. Were they to
    # share the link, abc would not be there at 3.4.
    scenario = pool_scenario(links=links(pcie=20.0, nic=FAST, pool=FAST))
    trace = make_trace(
        [
            Ask(0, "abc"),
            Ask(0.1, "-"),
            Ask(0.4, "xyz"),
            Ask(3.4, "abcd"),
            Ask(6, "-"),
            Ask(6.2, "xyzw"),
        ]
    )
    result = simulate(trace, scenario)
    assert result.timeline.instance.tolist() == [0, 1, 0, 1, 0, 1]
    assert hits(result, "pool") == [0, 0, 0, 30, 9, 0]


def test_a_loaded_prefix_counts_as_used_in_its_tier() -> None:
    # The pool holds 6 blocks: abc, def. abc is loaded at 20 by a request that computes for 10 s;
    # ghi, written at 22.3, pushes out def, not abc. So of abcx only x is left to write.
    scenario = pool_scenario(instances=4, tiers=(pool_tier(capacity_bytes=120.0),))
    trace = make_trace([Ask(0, "abc"), Ask(10, "def"), Ask(20, "abcx", 1030), Ask(22, "ghi")])
    result = simulate(trace, scenario)
    assert hits(result, "pool") == [0, 0, 30, 0]
    assert result.link_use[0].bytes_written == 3 * 60 + 20


def test_what_a_tier_has_is_not_written_again() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(10, "abc"), Ask(20, "abc")])
    result = simulate(trace, pool_scenario())
    assert {use.bytes_written for use in result.link_use} == {60.0}


def test_a_partial_last_block_moves_the_tokens_it_has() -> None:
    trace = make_trace([Ask(0, "abc", 25), Ask(10, "abcd", 25 + 10)])
    result = simulate(trace, pool_scenario())
    assert result.link_use[0].bytes_written == 50.0 + 20.0 - 10.0
    assert result.timeline.moved_bytes.tolist() == [0.0, 60.0]


def test_the_least_loaded_instance_gets_the_request() -> None:
    # 3 s on instance 0; then 1 s and 1 s both go to instance 1; then 0.1 + … the lesser queue
    scenario = make_scenario(instances=2)
    trace = make_trace(
        [Ask(0, prompt=300), Ask(0.1, prompt=100), Ask(0.2, prompt=100), Ask(0.3, prompt=10)]
    )
    result = simulate(trace, scenario)
    assert result.timeline.instance.tolist() == [0, 1, 1, 1]


def test_equally_loaded_instances_take_turns() -> None:
    trace = make_trace([Ask(float(i), prompt=10) for i in range(4)])
    result = simulate(trace, make_scenario(instances=3))
    assert result.timeline.instance.tolist() == [0, 1, 2, 0]


def test_round_robin_ignores_load() -> None:
    trace = make_trace([Ask(0, prompt=300), Ask(0.1, prompt=10), Ask(0.2, prompt=10)])
    result = simulate(trace, make_scenario(instances=2, routing="round_robin"))
    assert result.timeline.instance.tolist() == [0, 1, 0]


def test_an_overloaded_fleet_ends_and_shows_it() -> None:
    # 100 requests of 1 s, ten a second, on one instance
    trace = make_trace([Ask(i / 10, prompt=100) for i in range(100)])
    result = simulate(trace, make_scenario())
    assert result.prefill_utilisation == pytest.approx(1.0)
    assert result.timeline.queue_s[-1] == pytest.approx(99 - 9.9)


def test_a_trace_without_a_clock_arrives_at_once() -> None:
    result = simulate(make_trace([Ask(0, "ab"), Ask(0, "ab")], has_clock=False), make_scenario())
    assert hits(result, "hbm") == [0, 19]


def test_an_empty_trace_gives_an_empty_result() -> None:
    result = simulate(make_trace([]), pool_scenario())
    assert len(result.timeline.ttft_s) == 0
    assert (result.span_s, result.prefill_utilisation) == (0.0, 0.0)
    assert {use.utilisation for use in result.link_use} == {0.0}


def test_an_empty_prompt_takes_no_prefill() -> None:
    result = simulate(make_trace([Ask(0, prompt=0)]), make_scenario())
    assert ttft(result) == [0.0]
    assert result.prefill_utilisation == 0.0


def test_loads_wait_for_their_turn_while_hbm_is_blocked() -> None:
    # One instance, HBM 100 tokens, DRAM below. abc is in DRAM and pushed out of HBM by the long
    # request (60 + 40 output) that decodes until 10.6 + 3.9; abcd needs 40 tokens and waits for
    # room, and so does everything behind it. Then both load, and prefill in order of arrival.
    scenario = make_scenario(hbm_capacity_bytes=200.0, tiers=(dram_tier(),), links=links(pcie=FAST))
    trace = make_trace(
        [Ask(0, "abc"), Ask(10, "efghij", output=40), Ask(11, "abcd"), Ask(12, "abcx")]
    )
    result = simulate(trace, scenario)
    end = 10.6 + 39 * 0.1
    assert hits(result, "host_dram") == [0, 0, 30, 30]
    assert result.timeline.queue_s[2:] == pytest.approx([end - 11, end - 12 + 0.1])
    assert result.timeline.ttft_s[2:] == pytest.approx([end - 11 + 0.1, end - 12 + 0.2])


def test_a_request_that_was_held_back_may_find_nothing_to_load() -> None:
    # as above, with y instead of abcx: its lookup waits too, finds nothing and costs nothing
    scenario = make_scenario(hbm_capacity_bytes=200.0, tiers=(dram_tier(),), links=links(pcie=FAST))
    trace = make_trace([Ask(0, "abc"), Ask(10, "efghij", output=40), Ask(11, "abcd"), Ask(12, "y")])
    result = simulate(trace, scenario)
    end = 10.6 + 39 * 0.1
    assert hits(result, "host_dram") == [0, 0, 30, 0]
    # y needs no load, so it takes the GPU while abc is on its way
    assert result.timeline.queue_s[3] == pytest.approx(end - 12)


def test_a_lookup_that_finds_nothing_new_delays_by_its_own_time() -> None:
    scenario = make_scenario(tiers=(dram_tier(lookup_s=0.2),), links=links(pcie=FAST))
    result = simulate(make_trace([Ask(0, "ab")]), scenario)
    assert ttft(result) == [0.2 + 0.2]
    assert result.timeline.queue_s.tolist() == pytest.approx([0.0])


def test_a_loaded_request_also_uses_what_reached_hbm_meanwhile() -> None:
    # HBM: 100 tokens; mno… pushed abc out. abcd pulls 60 B at 30 B/s from 20, abcde from 20.2:
    # 6 B alone, then 15 B/s each: abcd has its 60 B at 23.8 and computes d until 23.9. abcde has
    # 6 B left at 23.8, 3 B at 23.9 when the write of d takes half the link: ready at 24.1. It finds
    # d in HBM and computes the 5 tokens of e.
    scenario = make_scenario(
        hbm_capacity_bytes=200.0,
        tiers=(pool_tier(),),
        links=links(pcie=FAST, nic=30.0, pool=FAST),
    )
    trace = make_trace(
        [Ask(0, "abc"), Ask(9, "mnopqrstuv"), Ask(20, "abcd"), Ask(20.2, "abcde", 45)]
    )
    result = simulate(trace, scenario)
    assert hits(result, "pool") == [0, 0, 30, 30]
    assert hits(result, "hbm") == [0, 0, 0, 10]
    assert ttft(result)[2:] == [3.9, 3.95]


def test_instances_of_a_node_share_its_links() -> None:
    # Two instances, one NIC of 60 B/s: two pulls of 60 B at once take 2 s each.
    joint = {"nic": LinkSpec("nic", "instance", 60.0, 2)}
    scenario = pool_scenario(instances=4, links=links(pcie=FAST, pool=FAST) | joint)
    trace = make_trace([Ask(0, "abc"), Ask(1, "-"), Ask(10, "abcd"), Ask(10, "abce")])
    result = simulate(trace, scenario)
    assert result.timeline.pull_s.tolist() == pytest.approx([0.0, 0.0, 2.0, 2.0])
    assert {use.link_id: use.links for use in result.link_use}["nic"] == 2


def test_a_tier_that_keeps_one_copy_holds_more() -> None:
    # Two copies of each token in HBM (2 B), one in the pool (1 B): 30 B hold abc, not a alone.
    tier = replace(pool_tier(capacity_bytes=30.0), stored_bytes_per_token=1.0)
    trace = make_trace([Ask(0, "abc"), Ask(10, "abcd")])
    assert hits(simulate(trace, pool_scenario(tiers=(tier,))), "pool") == [0, 30]


@pytest.mark.parametrize(
    "changes",
    [
        {"instances": 0},
        {"links": links(pcie=FAST, nic=FAST)},
        {"links": links(pcie=FAST, nic=FAST, pool=float("inf"))},
        {"kv_bytes_per_token": 0.0},
        {"links": links(pcie=FAST, pool=1.0) | {"nic": LinkSpec("nic", "instance", 1.0, 0)}},
    ],
)
def test_a_scenario_that_means_nothing_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(make_trace([Ask(0, "a")]), pool_scenario(**changes))
    assert caught.value.code == "KVT-R001"


def test_prices_compare_with_what_hbm_alone_would_have_left() -> None:
    # pair cost: prefill of n after p = 0.01 n + 0.001 n p. abc in HBM of instance 1? No: in the
    # pool only. With nothing: 40 tokens = 0.4 s. After 30 loaded: 0.1 + 0.3 = 0.4 s: nothing won.
    scenario = pool_scenario(prefill=PerToken(0.01, 0.001))
    result = simulate(make_trace([Ask(0, "abc"), Ask(10, "abcd")]), scenario)
    assert result.timeline.recompute_hit_s.tolist() == pytest.approx([0.0, 0.0])
    assert result.timeline.recompute_s.tolist() == pytest.approx([0.3, 0.4])


def test_idealised_hits_are_there_as_soon_as_the_first_has_arrived() -> None:
    trace = make_trace([Ask(0, "abc"), Ask(0, "abc"), Ask(0, "abd")])
    result = simulate(trace, make_scenario(idealised=True))
    assert hits(result, "hbm") == [0, 30, 20]
    assert result.timeline.computed_tokens.tolist() == [30, 1, 10]


def test_idealised_tiers_extend_hbm() -> None:
    scenario = make_scenario(
        idealised=True,
        hbm_capacity_bytes=2.0 * 20,
        tiers=(dram_tier(lookup_s=0.1),),
        links=links(pcie=30.0),
        decode=FlatStep(1.0),
    )
    trace = make_trace([Ask(0, "abc", output=3), Ask(10, "abc"), Ask(20, "abx")])
    result = simulate(trace, scenario)
    # HBM keeps ab of abc
    assert hits(result, "hbm") == [0, 20, 20]
    assert hits(result, "host_dram") == [0, 10, 0]
    assert result.timeline.load_s.tolist() == pytest.approx([0.0, 20 / 30, 0.0])
    assert result.timeline.e2e_s[0] == pytest.approx(0.1 + 0.3 + 2.0)
