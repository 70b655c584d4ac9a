"""The classic failures of KV caches in small: each raises its finding and names its remedy."""

from __future__ import annotations

from typing import Any

import pytest

from kvtrace.replay.scenario import IsolationSpec, LinkSpec, Scenario, StageSpec, TierSpec
from kvtrace.schema.arrays import RequestTrace
from tests.unit.finding_cases import MS, found_by, found_in_rows, replayed, value
from tests.unit.replay_cases import (
    UNLIMITED,
    Ask,
    PerToken,
    links,
    make_scenario,
    make_trace,
)

# --- a full hit: compute 45 → 8 ms, TTFT 60 → 90 ms, the move grew by 67 ms ---------------------


def request(cached: int, ttft_ms: int, compute_ms: int) -> dict[str, Any]:
    """A prompt of 1 000 tokens; 7 ms in the queue."""
    return {
        "prompt_tokens": 1000,
        "cached_tokens": cached,
        "ttft_ns": ttft_ms * MS,
        "ttft_from": "arrival",
        "queue_ns": 7 * MS,
        "prefill_ns": compute_ms * MS,
    }


def test_a_full_hit_that_saves_compute_and_loses_time_names_the_move() -> None:
    # Without: 7 queue + 45 compute + 8 elsewhere = 60 ms. With: 7 + 8 + 75 = 90 ms.
    rows = [request(0, 60, 45)] * 30 + [request(992, 90, 8)] * 30
    finding = found_in_rows("hits_save_compute_lose_time", "latency/hit_price", requests=rows)
    assert finding is not None
    assert finding.title == "A hit saves compute and loses time"
    assert "shorten compute from 45 ms to 8 ms" in finding.message
    assert "lengthen TTFT from 60 ms to 90 ms" in finding.message
    assert "the move, grew by 67 ms" in finding.message
    assert value(finding, "other_change_ms") == pytest.approx(67.0)
    assert (finding.severity, finding.action_kind) == ("critical", "move_less")
    assert "Load only what is priced below recomputing" in finding.action


@pytest.mark.parametrize("ttft_ms", [30, 60])
def test_a_full_hit_that_is_sooner_or_equal_is_no_finding(ttft_ms: int) -> None:
    rows = [request(0, 60, 45)] * 30 + [request(992, ttft_ms, 8)] * 30
    assert found_in_rows("hits_save_compute_lose_time", "latency/hit_price", requests=rows) is None


def full_hits(bytes_per_s: float) -> tuple[RequestTrace, Scenario]:
    """A prompt of 1 000 tokens on one instance, then its full hit on the other, 25 times.

    Compute: 45 µs a token, 45 ms a prompt; the last token is always computed. KV: 1 MB a token.
    """
    asks = [Ask(at + turn / 2, [(at, i) for i in range(50)]) for at in range(25) for turn in (0, 1)]
    pull = (StageSpec("pull", ("nic_rdma_0",), 0.0),)
    scenario = make_scenario(
        option_id="pool_test",
        title="Pool",
        instances=2,
        routing="round_robin",
        kv_bytes_per_token=1e6,
        prefill=PerToken(45e-6),
        tiers=(TierSpec("pool", "shared", UNLIMITED, 0.0, pull, ()),),
        links=links(nic_rdma_0=bytes_per_s),
    )
    return make_trace(asks, block_size=20), scenario


def test_a_replayed_full_hit_is_net_negative_by_what_its_move_takes_beyond_compute() -> None:
    # 999 MB at 10 GB/s take 99.9 ms, 44.955 ms of compute are saved: each of 25 hits loses 55 ms.
    finding = found_by(replayed(*full_hits(10e9)), "net_negative_hits")
    assert finding is not None
    assert "25 of 25 loaded hits" in finding.message
    assert value(finding, "net_negative_share:pool_test:pool") == 1.0
    assert finding.action_kind == "move_less"
    # At 100 GB/s a move takes 10 ms.
    assert found_by(replayed(*full_hits(100e9)), "net_negative_hits") is None


# --- P99 of 500 ms: prompts over 6 000 tokens, 2 GB of KV at 10 GB/s ----------------------------

CACHED, NEW, SHORT = 6_250, 2_000, 1_000
"""6 250 tokens of 320 kB: 2 GB, 0.2 s at 10 GB/s; 2 000 new tokens: 0.2 s; short ones 0.1 s."""
CYCLES = 250
"""Four short prompts each: a P99 rests on 1 000."""


def mixed(**changes: Any) -> Scenario:
    """Two instances in turn; loads keep the GPU waiting."""
    stage = (StageSpec("pull", ("nic",), 0.0),)
    base: dict[str, Any] = {
        "option_id": "pool_mixed",
        "title": "Pool",
        "instances": 2,
        "routing": "round_robin",
        "kv_bytes_per_token": 320_000.0,
        "hbm_capacity_bytes": 320_000.0 * (CACHED + NEW),
        "prefill": PerToken(1e-4),
        "tiers": (TierSpec("pool", "shared", UNLIMITED, 0.0, stage, ()),),
        "links": links(nic=10e9),
        "load_mode": "sync",
    }
    return make_scenario(**{**base, **changes})


def mixed_trace(*, cycles: int = CYCLES, later_s: float = 0.0) -> RequestTrace:
    """Every 2 s two long prompts with their KV in the pool, and four short ones.

    Two of the short ones come with the long ones, or so much later.
    """
    block = 250
    cached = [[(turn, i) for i in range(CACHED // block)] for turn in range(2 * cycles)]
    asks = [Ask(0, blocks) for blocks in cached]
    for cycle in range(cycles):
        at = 100.0 + 2 * cycle
        asks += [Ask(at, cached[turn], CACHED + NEW) for turn in (2 * cycle, 2 * cycle + 1)]
        asks += [Ask(at + later_s, prompt=SHORT), Ask(at + later_s + 0.05, prompt=SHORT)]
        asks += [Ask(at + 1.2, prompt=SHORT), Ask(at + 1.6, prompt=SHORT)]
    return make_trace(asks, block_size=block)


ISOLATED = mixed(
    option_id="isolation",
    title="Pool, long prompts apart",
    isolation=IsolationSpec(6_000, long_instances=1),
)
FASTER = mixed(option_id="pool_fast", title="Pool at 20 GB/s", links=links(nic=20e9))


def test_long_prompts_that_hurt_short_ones_are_cured_by_isolation_not_by_a_faster_link() -> None:
    # Behind a long prompt: 0.2 s load + 0.2 s + own 0.1 s = 0.5 s. On a link of twice the rate
    # 0.4 s. With an instance for long prompts 0.1 s, and 0.15 s for the one behind another.
    inputs = replayed(mixed_trace(), mixed(), FASTER, ISOLATED, warmup=2 * CYCLES)
    finding = found_by(inputs, "long_prompts_hurt_short")
    assert finding is not None
    assert value(finding, "short_tail_s_mixed") == pytest.approx(0.5)
    assert value(finding, "short_tail_s_isolated") == pytest.approx(0.15)
    assert value(finding, "short_tail_s_faster_links") == pytest.approx(0.4)
    assert "500 ms, and 150 ms where longer ones run apart" in finding.message
    assert "on faster links (Pool at 20 GB/s) it stays at 400 ms" in finding.message
    assert finding.action.startswith("Isolate long prompts")
    assert "faster links do not cure a queue" in finding.action


def test_isolation_is_not_advised_where_no_short_prompt_comes_beside_a_long_one() -> None:
    # 0.8 s after the long ones, which take 0.4 s: the short ones wait for each other only.
    trace = mixed_trace(cycles=50, later_s=0.8)
    inputs = replayed(trace, mixed(), FASTER, ISOLATED, warmup=100)
    assert found_by(inputs, "long_prompts_hurt_short") is None


# --- hit ratio 60 → 90 %, made of long contexts, latency up -------------------------------------


def thirds(last_prompt: int, last_cached: int, last_ttft_ms: int) -> list[dict[str, Any]]:
    """Three thirds of 30 requests: 1 000 tokens, 600 of them cached, 100 ms; the last as told."""
    kinds = [(1000, 600, 100), (1000, 600, 100), (last_prompt, last_cached, last_ttft_ms)]
    return [
        {
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "ttft_ns": ttft * MS,
            "ttft_from": "arrival",
            "queue_ns": 5 * MS,
            "prefill_ns": (ttft - 5) * MS,
            "arrived_at_ns": (30 * third + index) * 1000 * MS,
        }
        for third, (prompt, cached, ttft) in enumerate(kinds)
        for index in range(30)
    ]


def test_a_hit_ratio_made_of_long_contexts_names_the_length() -> None:
    # 8 000 tokens, 7 200 cached (90 %): 800 to compute instead of 400, and twelve times the bytes.
    rows = thirds(8000, 7200, 250)
    finding = found_in_rows(
        "high_hit_ratio_slow_ttft", "latency/hit_and_ttft_thirds", requests=rows
    )
    assert finding is not None
    assert "from 60.0 % to 90.0 %" in finding.message
    assert "from 100 ms to 250 ms" in finding.message
    assert "prompts got longer (1,000 to 8,000 tokens on average)" in finding.message
    assert "by bytes moved, not by its hit ratio" in finding.action


def test_a_hit_ratio_that_rises_with_equal_prompts_and_less_latency_is_no_finding() -> None:
    rows = thirds(1000, 900, 60)
    names = ("high_hit_ratio_slow_ttft", "latency/hit_and_ttft_thirds")
    assert found_in_rows(*names, requests=rows) is None


# --- shared PCIe at a half to a third of its rate ----------------------------------------------


def copies(at_once: int) -> list[dict[str, Any]]:
    """25 copies of 1 GB alone, 40 ms each, then 30 in groups that share the rate evenly."""
    rows = [(100 * i, 40) for i in range(25)]
    rows += [(10_000 + 1000 * group, 40 * at_once) for group in range(30) for _ in range(at_once)]
    return [
        {
            "transfer_key": key,
            "path": "host>device",
            "started_at_ns": start * MS,
            "duration_ns": took * MS,
            "moved_bytes": 10**9,
        }
        for key, (start, took) in enumerate(rows)
    ]


@pytest.mark.parametrize(("at_once", "share"), [(2, 1 / 2), (3, 1 / 3)])
def test_copies_that_share_pcie_are_found_at_a_half_and_at_a_third(
    at_once: int, share: float
) -> None:
    names = ("pcie_contention", "moves/alone_and_together")
    finding = found_in_rows(*names, transfers=copies(at_once))
    assert finding is not None
    assert value(finding, "alone_bytes_per_s:host>device") == pytest.approx(25e9)
    assert value(finding, "together_over_alone:host>device") == pytest.approx(share)
    assert finding.action_kind == "faster"
    assert "its own PCIe uplink" in finding.action


def test_copies_that_keep_their_rate_beside_others_are_no_contention() -> None:
    names = ("pcie_contention", "moves/alone_and_together")
    rows = [row | {"duration_ns": 40 * MS} for row in copies(2)]
    assert found_in_rows(*names, transfers=rows) is None


def shared_uplink(instances_per_link: int) -> tuple[RequestTrace, Scenario]:
    """Three instances load 100 MB each at the same moment over PCIe of 10 GB/s.

    HBM holds one prompt, so that the one before has left it when it comes again.
    """
    prompts = [[(name, i) for i in range(10)] for name in "abcdef"]
    asks = [Ask(turn, blocks) for turn, blocks in enumerate(prompts)]
    for turn in range(20):
        half = prompts[:3] if turn % 2 == 0 else prompts[3:]
        asks += [Ask(100 + 10 * turn, blocks) for blocks in half]
    load = (StageSpec("load", ("pcie",), 0.0),)
    scenario = make_scenario(
        option_id="dram_test",
        title="Idle DRAM",
        instances=3,
        routing="round_robin",
        kv_bytes_per_token=1e6,
        hbm_capacity_bytes=1e6 * 100,
        prefill=PerToken(1e-3),
        tiers=(TierSpec("host_dram", "instance", UNLIMITED, 0.0, load, load),),
        links={"pcie": LinkSpec("pcie", "instance", 10e9, instances_per_link)},
    )
    return make_trace(asks, block_size=10), scenario


def test_instances_behind_one_uplink_get_a_third_each() -> None:
    # 99 tokens of 1 MB: 9.9 ms alone, three at once 29.7 ms.
    finding = found_by(replayed(*shared_uplink(3)), "pcie_contention")
    assert finding is not None
    assert value(finding, "rate_over_alone:dram_test") == pytest.approx(1 / 3, rel=0.01)
    assert "which 3 instances share" in finding.message
    assert found_by(replayed(*shared_uplink(1)), "pcie_contention") is None


# --- RDMA in place, and the bottleneck moved to the load ----------------------------------------


def bounced(nic_bytes_per_s: float, pcie_bytes_per_s: float) -> tuple[RequestTrace, Scenario]:
    """Full hits of 1 GB, pulled into the host and loaded from there, one behind the other."""
    trace, scenario = full_hits(nic_bytes_per_s)
    stages = (StageSpec("pull", ("nic_rdma",), 0.0), StageSpec("load", ("pcie",), 0.0))
    tier = TierSpec("pool", "shared", UNLIMITED, 0.0, stages, ())
    rates = links(nic_rdma=nic_bytes_per_s, pcie=pcie_bytes_per_s)
    return trace, make_scenario(
        option_id="pool_bounced",
        title="Pool over RDMA",
        instances=2,
        routing="round_robin",
        kv_bytes_per_token=scenario.kv_bytes_per_token,
        prefill=PerToken(1e-4),
        tiers=(tier,),
        links=rates,
    )


def test_with_rdma_in_place_the_bottleneck_is_the_load() -> None:
    # 1 GB over 50 GB/s: 20 ms; into HBM at 12.5 GB/s: 80 ms, four fifths of the move.
    finding = found_by(replayed(*bounced(50e9, 12.5e9)), "load_is_what_is_left")
    assert finding is not None
    assert value(finding, "load_share_of_move:pool_bounced") == pytest.approx(0.8)
    assert "80 % of a move after its lookup is the load" in finding.message
    assert "GPU-direct RDMA" in finding.action
    assert finding.action_kind == "faster"


def test_a_slow_network_before_a_fast_load_is_not_the_loads_fault() -> None:
    assert found_by(replayed(*bounced(5e9, 50e9)), "load_is_what_is_left") is None
