"""Load decisions, overlaps, time-outs, tails and failures at times worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest

from kvtrace.errors import UsageError
from kvtrace.replay.blockmap import BlockMap
from kvtrace.replay.blocks import build_atoms
from kvtrace.replay.caches import BlockCache, Clock
from kvtrace.replay.engine import simulate
from kvtrace.replay.regret import regret_s
from kvtrace.replay.result import ReplayResult, Timeline
from kvtrace.replay.scenario import Overlap, Scenario, TierSpec
from kvtrace.replay.tails import draw_tails
from tests.unit.replay_cases import (
    KV_BYTES,
    Ask,
    dram_tier,
    links,
    make_scenario,
    make_trace,
    pool_tier,
)

# Four blocks (40 tokens, 80 B) are computed on instance 0 and asked for on instance 1 an hour
# later, with ten tokens more. 0.01 s a token: 0.4 s for the four blocks, 0.1 s for the rest.
# The pool serves 80 B/s (1 s), PCIe 200 B/s (0.4 s).
SHARED = ["a", "b", "c", "d"]
HIT = Ask(3600.0, [*SHARED, "x"])
TRACE = make_trace([Ask(0.0, SHARED), HIT])
LINKS = links(pcie=200.0, nic=100.0, pool=80.0)


def pooled(tier: TierSpec | None = None, **changes: object) -> Scenario:
    return make_scenario(
        instances=2,
        routing="round_robin",
        tiers=(tier or pool_tier(),),
        links=LINKS,
        **changes,
    )


def second(scenario: Scenario, *more: Ask) -> tuple[ReplayResult, Timeline]:
    result = simulate(make_trace([Ask(0.0, SHARED), HIT, *more]), scenario)
    return result, result.timeline


def test_stages_in_series_add_up() -> None:
    _, timeline = second(pooled())
    assert timeline.ttft_s[1] == pytest.approx(1.0 + 0.4 + 0.1)


def test_chunks_in_a_pipeline_are_bound_by_the_slowest_stage() -> None:
    # 80 B at 80 B/s, and one chunk of 20 B over PCIe: 1 + 0.1
    _, timeline = second(pooled(overlap="pipelined", load_chunk_tokens=10))
    assert timeline.ttft_s[1] == pytest.approx(1.0 + 0.1 + 0.1)
    assert timeline.pull_s[1] == pytest.approx(1.1)


@pytest.mark.parametrize("overlap", ["serial", "pipelined"])
def test_links_of_twice_the_rate_halve_a_load(overlap: Overlap) -> None:
    scenario = pooled(overlap=overlap, load_chunk_tokens=10)
    fast = replace(scenario, links=links(pcie=400.0, nic=200.0, pool=160.0))
    slow_s, fast_s = (
        float(timeline.pull_s[1] + timeline.load_s[1])
        for _, timeline in (second(scenario), second(fast))
    )
    assert fast_s == pytest.approx(slow_s / 2)


@pytest.mark.parametrize(
    ("rest", "ttft_s", "stall_s"),
    [
        # d = 0.35, c = 0.025: d + 3 d + c; the step of 0.1 s from 0.35 on waits until then
        (10, 4 * 0.35 + 0.025, 4 * 0.35 + 0.025 - 0.45),
        # c = 0.75 > d: d + 4 c, no wait
        (300, 0.35 + 3.0, 0.0),
    ],
)
def test_layers_load_while_those_before_compute(rest: int, ttft_s: float, stall_s: float) -> None:
    blocks = [*SHARED, *range(rest // 10)]
    trace = make_trace([Ask(0.0, SHARED), Ask(3600.0, blocks)])
    timeline = simulate(trace, pooled(overlap="layerwise", layers=4)).timeline
    assert timeline.ttft_s[1] == pytest.approx(ttft_s)
    assert timeline.stall_s[1] == pytest.approx(stall_s)
    assert timeline.hit_tokens["pool"][1] == 40
    assert timeline.moved_bytes[1] == pytest.approx(80.0)


def test_a_split_computes_the_head_while_the_tail_loads() -> None:
    # A token takes 0.01 s to compute and 2/80 + 2/200 = 0.035 s to load: with 30 of 40 computed
    # (0.3 s) the last ten load in 0.35 s, and then the other ten of the prompt take 0.1 s.
    _, timeline = second(pooled(load_decision="split"))
    assert timeline.hit_tokens["pool"][1] == 10
    assert timeline.computed_tokens[1] == 40
    assert timeline.ttft_s[1] == pytest.approx(0.35 + 0.1)
    assert timeline.stall_s[1] == pytest.approx(0.05)


def test_a_split_loads_all_where_a_block_takes_longer_to_compute() -> None:
    # At 8 000 and 20 000 B/s all 40 tokens load in 0.014 s, one block computes in 0.1 s.
    fast = replace(
        pooled(load_decision="split"), links=links(pcie=20_000.0, nic=10_000.0, pool=8_000.0)
    )
    _, timeline = second(fast)
    assert timeline.hit_tokens["pool"][1] == 40
    assert timeline.ttft_s[1] == pytest.approx(0.014 + 0.1)


def test_a_split_of_a_hopeless_load_is_none() -> None:
    slow = replace(pooled(load_decision="split"), links=links(pcie=200.0, nic=100.0, pool=0.5))
    _, timeline = second(slow)
    assert timeline.hit_tokens["pool"][1] == 0
    assert timeline.ttft_s[1] == pytest.approx(0.5)


@pytest.mark.parametrize(("threshold", "loaded"), [(40, 40), (41, 0)])
def test_a_threshold_counts_the_tokens_that_tiers_add(threshold: int, loaded: int) -> None:
    result, timeline = second(pooled(load_decision="threshold", load_threshold_tokens=threshold))
    assert timeline.hit_tokens["pool"][1] == loaded
    assert timeline.declined_tokens[1] == 40 - loaded
    if not loaded:
        assert timeline.declined_move_s[1] == pytest.approx(1.4)
        assert timeline.declined_recompute_s[1] == pytest.approx(0.4)
        assert regret_s(result)[1] == 0.0
    else:
        # the load took 1.4 s, computing 0.4 s
        assert regret_s(result)[1] == pytest.approx(1.0)


def test_declining_what_would_have_paid_is_regretted() -> None:
    # 0.014 s against 0.4 s
    fast = replace(
        pooled(load_decision="threshold", load_threshold_tokens=100),
        links=links(pcie=20_000.0, nic=10_000.0, pool=8_000.0),
    )
    result, _ = second(fast)
    assert regret_s(result)[1] == pytest.approx(0.4 - 0.014)


def test_a_load_that_times_out_on_the_network_brings_nothing() -> None:
    # 0.5 s of pull, then 50 tokens; the pool has moved 40 B of 80.
    result, timeline = second(pooled(replace(pool_tier(), timeout_s=0.5)))
    assert timeline.ttft_s[1] == pytest.approx(0.5 + 0.5)
    assert timeline.pull_s[1] == pytest.approx(0.5)
    assert timeline.hit_tokens["pool"][1] == 0
    assert timeline.moved_bytes[1] == 0.0
    uses = {use.link_id: use for use in result.link_use}
    assert uses["pool"].bytes_read == pytest.approx(40.0)


def test_a_load_that_times_out_keeps_the_whole_blocks_that_have_come() -> None:
    # 0.25 s over PCIe: 50 B, 25 tokens, two blocks; 30 tokens are left.
    _, timeline = second(pooled(replace(pool_tier(), timeout_s=1.25)))
    assert timeline.hit_tokens["pool"][1] == 20
    assert timeline.moved_bytes[1] == pytest.approx(40.0)
    assert timeline.ttft_s[1] == pytest.approx(1.25 + 0.3)


def test_a_load_within_its_time_is_not_stopped() -> None:
    _, timeline = second(pooled(replace(pool_tier(), timeout_s=1.5)))
    assert timeline.ttft_s[1] == pytest.approx(1.5)
    assert timeline.hit_tokens["pool"][1] == 40


def test_a_load_that_fails_costs_its_time_and_brings_nothing() -> None:
    _, timeline = second(pooled(replace(pool_tier(), read_failure_share=1.0)))
    assert timeline.ttft_s[1] == pytest.approx(1.4 + 0.5)
    assert timeline.hit_tokens["pool"][1] == 0


@pytest.mark.parametrize(("timeout_s", "waited_s"), [(None, 0.2), (0.3, 0.3)])
def test_a_lookup_that_fails_finds_nothing(timeout_s: float | None, waited_s: float) -> None:
    tier = replace(pool_tier(lookup_s=0.2), lookup_failure_share=1.0, timeout_s=timeout_s)
    _, timeline = second(pooled(tier))
    assert timeline.lookup_s[1] == pytest.approx(waited_s)
    assert timeline.ttft_s[1] == pytest.approx(waited_s + 0.5)


def test_tails_have_their_percentile_and_depend_on_the_row_alone() -> None:
    spec = replace(pool_tier(lookup_s=0.1), lookup_p99_s=0.6, read_failure_share=0.25)
    tails = draw_tails(spec, 0, seed=3, first=0, requests=20_000)
    assert tails is not None
    # an exponential of P99 0.5 has mean 0.5 / ln 100
    assert np.quantile(tails.lookup_s, 0.99) == pytest.approx(0.6, rel=0.05)
    assert np.mean(tails.lookup_s) == pytest.approx(0.1 + 0.5 / log(100), rel=0.05)
    assert np.mean(tails.read_fails) == pytest.approx(0.25, abs=0.01)
    later = draw_tails(spec, 0, seed=3, first=7, requests=5)
    assert later is not None
    assert later.lookup_s == tails.lookup_s[7:12]
    assert draw_tails(pool_tier(lookup_s=0.1), 0, seed=3, first=0, requests=5) is None


def test_a_delay_before_a_load_belongs_to_its_pull() -> None:
    tier = replace(pool_tier(), read_delay_p99_s=2.0)
    tails = draw_tails(tier, 0, seed=0, first=0, requests=2)
    assert tails is not None
    _, timeline = second(pooled(tier))
    assert timeline.pull_s[1] == pytest.approx(1.0 + tails.delay_s[1])


def test_the_best_effort_ends_when_the_gpu_is_idle() -> None:
    _, timeline = second(pooled(prefetch="best_effort"))
    assert timeline.hit_tokens["pool"][1] == 0
    assert timeline.ttft_s[1] == pytest.approx(0.5)


def test_a_stopped_lookup_never_took_less_than_no_time() -> None:
    # 3600.1 + 0.3 rounds up, so that what is left of the lookup is more than the lookup.
    late = replace(HIT, at_s=3600.1)
    assert (late.at_s + 0.3) - late.at_s > 0.3
    scenario = pooled(replace(pool_tier(), lookup_s=0.3), prefetch="best_effort")
    timeline = simulate(make_trace([Ask(0.0, SHARED), late]), scenario).timeline
    assert timeline.lookup_s[1] == 0.0


def test_the_best_effort_loads_while_others_compute() -> None:
    # Instance 1 computes 200 tokens (2 s) when the hit comes; its load takes 1.4 s of them.
    trace = make_trace(
        [Ask(0.0, SHARED), Ask(3600.0, range(20)), Ask(3600.0, []), replace(HIT, at_s=3600.0)]
    )
    timeline = simulate(trace, pooled(prefetch="best_effort")).timeline
    assert timeline.hit_tokens["pool"][3] == 40
    assert timeline.ttft_s[3] == pytest.approx(2.0 + 0.1)


@pytest.mark.parametrize(("prefetch", "ttft_s"), [("wait", 2.0 + 0.1), ("off", 2.0 + 1.4 + 0.1)])
def test_without_prefetch_the_load_begins_when_its_turn_comes(prefetch: str, ttft_s: float) -> None:
    trace = make_trace(
        [Ask(0.0, SHARED), Ask(3600.0, range(20)), Ask(3600.0, []), replace(HIT, at_s=3600.0)]
    )
    free = replace(pool_tier(), write=())
    timeline = simulate(trace, pooled(free, prefetch=prefetch)).timeline
    assert timeline.ttft_s[3] == pytest.approx(ttft_s)


def test_a_tier_matches_whole_units() -> None:
    # 30 of 40 tokens are shared; the pool knows them in units of 20.
    trace = make_trace([Ask(0.0, SHARED), Ask(3600.0, ["a", "b", "c", "x"])])
    timeline = simulate(trace, pooled(replace(pool_tier(), match_tokens=20))).timeline
    assert timeline.hit_tokens["pool"][1] == 20


def test_a_tier_below_evictions_is_written_what_hbm_evicts() -> None:
    # HBM holds five blocks: of a request of four and one of three, two of the first must go.
    tier = replace(dram_tier(), write_moment="on_evict", inclusion="exclusive")
    scenario = make_scenario(
        hbm_capacity_bytes=KV_BYTES * 50, tiers=(tier,), links=links(pcie=1000.0)
    )
    trace = make_trace(
        [Ask(0.0, SHARED), Ask(100.0, ["e", "f", "g"]), Ask(200.0, SHARED), Ask(300.0, ["e"])]
    )
    result = simulate(trace, scenario)
    (use,) = result.link_use
    # 2 blocks go, come back for the third request, and then two of the second go
    assert result.timeline.hit_tokens["host_dram"].tolist() == [0, 0, 19, 0]
    assert use.bytes_written == pytest.approx(80.0)


def cache(spec: TierSpec, blocks: int) -> tuple[BlockCache, Clock]:
    table = build_atoms(make_trace([Ask(0.0, range(start, start + 10)) for start in (0, 10)]))
    clock = Clock()
    return BlockCache(spec, blocks, BlockMap(table, block_tokens=10, pad=[0, 0]), clock), clock


def test_a_high_watermark_evicts_down_to_the_low_one() -> None:
    held, _ = cache(replace(pool_tier(), high_watermark=0.8, low_watermark=0.4), 10)
    held.store(range(8))
    assert (held.used, held.evicted) == (8, 0)
    held.store([10])
    # the ninth block finds 8 of 8: five go, tail first, and it is the fourth
    assert held.victims == [7, 6, 5, 4, 3]
    assert held.used == 4


def test_a_leased_block_is_not_evicted() -> None:
    held, clock = cache(replace(pool_tier(), lease_s=5.0), 2)
    held.store([0, 1])
    assert held.extend([0], 0, 0, 1) == (0, 2, 2)
    clock.now = 4.0
    assert held.store([10]) == [10]
    clock.now = 6.0
    assert held.store([10]) == []
    assert held.victims == [1]


@pytest.mark.parametrize(
    "changes",
    [
        {"inclusion": "exclusive"},
        {"high_watermark": 0.3, "low_watermark": 0.5},
        {"admission_uses": 0},
        {"read_failure_share": 1.5},
        {"timeout_s": -1.0},
        {"lookup_p99_s": -0.5},
        {"holds_hbm": True, "write_moment": "on_evict"},
    ],
)
def test_a_tier_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    tier = replace(pool_tier(), **changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="pool"):
        simulate(TRACE, pooled(tier))


def test_layers_and_chunks_are_counts() -> None:
    with pytest.raises(UsageError, match="layers"):
        simulate(TRACE, pooled(layers=0))
