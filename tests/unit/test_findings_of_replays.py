"""Findings that rest on replays: each fires on a case that has its cause, and not without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtrace.audit.inputs import AuditInput
from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.tco.need import Need
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.scenario import LinkSpec, Scenario, StageSpec, TierSpec
from kvtrace.schema.arrays import RequestTrace
from tests.unit.audit_fakes import make_deployment, make_fleet, query, reuse_queries
from tests.unit.finding_cases import found_by, replayed, value
from tests.unit.replay_cases import (
    UNLIMITED,
    Ask,
    PerToken,
    links,
    make_scenario,
    make_trace,
)

MB = 1e6
PULL = (StageSpec("pull", ("nic",), 0.0),)


def pool(**changes: Any) -> TierSpec:
    """A pool behind a NIC; nothing delays a write."""
    base: dict[str, Any] = {"write": PULL, "read": PULL}
    made = TierSpec("pool", "shared", UNLIMITED, 0.0, (), ())
    return replace(made, **{**base, **changes})


def on_two(**changes: Any) -> Scenario:
    """Two instances in turn, 1 MB of KV and 1 ms of prefill a token, a NIC of 10 GB/s."""
    base: dict[str, Any] = {
        "option_id": "pool_test",
        "title": "Pool",
        "instances": 2,
        "routing": "round_robin",
        "kv_bytes_per_token": MB,
        "prefill": PerToken(1e-3),
        "tiers": (pool(),),
        "links": links(nic=10e9),
    }
    return make_scenario(**{**base, **changes})


def twice(prompts: int, *, blocks: int = 10) -> RequestTrace:
    """Each prompt once on each of two instances, a second apart; blocks of ten tokens."""
    asks = [
        Ask(2 * one + turn, [(one, i) for i in range(blocks)])
        for one in range(prompts)
        for turn in (0, 1)
    ]
    return make_trace(asks, block_size=10)


# --- net-negative hits by tier -------------------------------------------------------------------


def two_tiers(disk_bytes_per_s: float) -> AuditInput:
    """One instance whose HBM and DRAM hold one prompt each; the disk holds all.

    The last prompt comes back from DRAM, any earlier one from disk.
    """
    load = (StageSpec("load", ("pcie",), 0.0),)
    read = (StageSpec("load", ("disk",), 0.0),)
    dram = TierSpec("host_dram", "instance", 1.05 * 100 * MB, 0.0, load, load)
    disk = TierSpec("disk", "instance", UNLIMITED, 0.0, read, read)
    scenario = make_scenario(
        option_id="ssd_test",
        title="Local SSD",
        kv_bytes_per_token=MB,
        hbm_capacity_bytes=1.05 * 100 * MB,
        prefill=PerToken(1e-3),
        tiers=(dram, disk),
        links={
            "pcie": LinkSpec("pcie", "instance", 10e9),
            "disk": LinkSpec("disk", "instance", disk_bytes_per_s),
        },
    )
    order = [0, 1, 2, 3] + [0, 1, 2, 3] * 3
    asks = [Ask(10 * at, [(one, i) for i in range(10)]) for at, one in enumerate(order)]
    return replayed(make_trace(asks, block_size=10), scenario)


def test_net_negative_hits_are_counted_by_tier() -> None:
    # 99 MB over 0.5 GB/s take 198 ms, computing them 99 ms.
    finding = found_by(two_tiers(0.5e9), "net_negative_hits")
    assert finding is not None
    shares = {one.id: one.value for one in finding.evidence if one.id.count(":") == 2}
    assert shares["net_negative_share:ssd_test:disk"] == 1.0
    assert found_by(two_tiers(10e9), "net_negative_hits") is None


# --- what a pool is written and read ------------------------------------------------------------


def test_a_pool_that_is_written_and_never_read_is_found() -> None:
    once = make_trace([Ask(at, [(at, i) for i in range(10)]) for at in range(30)], block_size=10)
    finding = found_by(replayed(once, on_two()), "write_only_tier")
    assert finding is not None
    # 30 prompts of 100 tokens of 1 MB.
    assert "3 GB written, 0 B loaded" in finding.message
    assert value(finding, "read_over_written:pool_test") == 0.0
    assert found_by(replayed(twice(30), on_two()), "write_only_tier") is None


def drives(span_s: float, size_bytes: float) -> AuditInput:
    """A pool on drives of this size, written 30 times 100 MB within the span."""
    step = span_s / 30
    trace = make_trace(
        [Ask(step * at, [(at, i) for i in range(10)]) for at in range(31)], block_size=10
    )
    scenario = on_two()
    need = Need(pool_ssd_bytes=size_bytes)
    option = ReplayOption(scenario=scenario, family="pool", need=need)
    return replayed(trace, scenario, options=(option,))


def test_drives_that_are_written_over_more_than_once_a_day_wear_out() -> None:
    # 3.1 GB in an hour are 74.4 GB a day.
    finding = found_by(drives(3600, 10e9), "drives_wear_out")
    assert finding is not None
    assert value(finding, "drive_writes_per_day:pool_test") == pytest.approx(7.44, rel=0.01)
    assert found_by(drives(3600, 100e9), "drives_wear_out") is None
    assert found_by(drives(3600, 0.0), "drives_wear_out") is None


# --- tails --------------------------------------------------------------------------------------


def by_size(*, is_moved: bool) -> AuditInput:
    """200 prompts, one in ten of 1 000 tokens, others of 100; their KV in the pool, or nowhere.

    1 MB a token over 1 GB/s: the large ones take 1 s longer to load; computing takes 1 ms for all.
    """
    sizes = [100 if at % 10 == 0 else 10 for at in range(200)]
    prompts = [[(at, i) for i in range(size)] for at, size in enumerate(sizes)]
    asks = [Ask(0, blocks) for blocks in prompts] if is_moved else [Ask(0, ["x"])] * 200
    asks += [Ask(1000 + 10 * at, blocks) for at, blocks in enumerate(prompts)]
    return replayed(
        make_trace(asks, block_size=10),
        on_two(
            prefill=PerToken(1e-9 if is_moved else 1e-3),
            links=links(nic=1e9),
            hbm_capacity_bytes=1001 * MB,
        ),
        warmup=200,
    )


def test_a_tail_of_requests_that_move_more_is_made_of_bytes() -> None:
    # 20 of 200 load 999 MB and lie above the P90; the others load 99 MB.
    finding = found_by(by_size(is_moved=True), "tail_is_bytes")
    assert finding is not None
    assert value(finding, "tail_move_share:pool_test") == pytest.approx(1.0, abs=0.01)
    assert finding.action_kind == "move_less"
    assert found_by(by_size(is_moved=False), "tail_is_bytes") is None


# --- routing ------------------------------------------------------------------------------------


def routed(prompts: int, *, is_reused: bool) -> AuditInput:
    """Without tiers, by turns and by what the caches hold."""
    plain = on_two(option_id="hbm_only", title="HBM only", tiers=(), links={})
    near = replace(plain, option_id="kv_routing", title="KV routing", routing="kv_centric")
    once = [Ask(at, [(at, i) for i in range(10)]) for at in range(prompts)]
    trace = twice(prompts) if is_reused else make_trace(once, block_size=10)
    return replayed(trace, plain, near)


def test_hits_that_another_instance_holds_are_a_matter_of_routing() -> None:
    # Each second use goes to the other instance by turns; by caches it hits 99 of 100 tokens.
    finding = found_by(routed(20, is_reused=True), "routing_loses_local_hits")
    assert finding is not None
    assert value(finding, "routing_gain_tokens") == 20 * 99
    assert finding.action_kind == "nearer"
    assert found_by(routed(20, is_reused=False), "routing_loses_local_hits") is None


def test_tokens_that_another_instance_held_are_a_matter_of_routing() -> None:
    def seen(held: int) -> Any:
        row = {"computed_tokens": 1000, "other_instance_holds_tokens": held}
        queries = reuse_queries() | {"kv_events/restored_summary": query([row])}
        return found_by(replayed(twice(2), on_two(), queries=queries), "routing_loses_local_hits")

    assert value(seen(60), "held_elsewhere_ratio") == pytest.approx(0.06)
    assert seen(40) is None


# --- the size of the pool -----------------------------------------------------------------------


def sized(pool_blocks: int, curve: list[tuple[int, float]], enough_blocks: int) -> AuditInput:
    """Blocks of ten tokens of 1 MB; HBM of both instances holds 20 blocks, and a cache of
    `enough_blocks` keeps nearly all hits.
    """
    scenario = on_two(
        hbm_capacity_bytes=100 * MB, tiers=(pool(capacity_bytes=pool_blocks * 10 * MB),)
    )
    rows = [
        {
            "capacity_blocks": blocks,
            "capacity_bytes": blocks * 10 * MB,
            "hit_blocks": 0,
            "hit_tokens": 0,
            "hit_ratio_blocks": ratio,
            "hit_ratio_tokens": ratio,
        }
        for blocks, ratio in curve
    ]
    token_bytes = make_deployment().kv_bytes_per_token_unreplicated
    size = {"medium": "pool_dram", "nearly_all_cache_bytes": enough_blocks * 10 * token_bytes}
    queries = reuse_queries() | {
        "reuse/capacity_curve": query(rows),
        "sizing/pool_size": query([size]),
    }
    return replayed(twice(10), scenario, queries=queries)


@pytest.mark.parametrize(
    ("pool_blocks", "curve", "enough_blocks", "title"),
    [
        # 120 blocks hit 30 %, 1 000 would hit 60 % and 900 all but two points of it.
        (100, [(120, 0.3), (1000, 0.6)], 900, "The pool is too small"),
        # 1 020 blocks hit 50 %; 118 do, within two points: less than half of the pool.
        (1000, [(120, 0.49), (1000, 0.5)], 118, "The pool is too large"),
        # 320 blocks hit 50 %, and as many are enough: more than half of the pool of 300.
        (300, [(250, 0.48), (320, 0.5), (2000, 0.52)], 320, None),
    ],
)
def test_a_pool_off_its_size_is_named(
    pool_blocks: int, curve: list[tuple[int, float]], enough_blocks: int, title: str | None
) -> None:
    finding = found_by(sized(pool_blocks, curve, enough_blocks), "pool_size_is_off")
    assert (None if finding is None else finding.title) == title
    if finding is not None:
        # Tokens of 1 MB in the pool, whatever the queries count for one.
        assert value(finding, "nearly_all_cache_bytes") == pytest.approx(enough_blocks * 10 * MB)


# --- the memory of pool nodes -------------------------------------------------------------------


def served_by_pool(dram_bytes_per_s: float, pool_bytes_per_s: float) -> AuditInput:
    """25 GB/s of ports a node; every 10 ms an instance loads 99 MB of the other's."""
    fleet = make_fleet()

    def stated(constant: Any, to: float) -> Any:
        return constant.given(to, source="fleet.toml")

    fleet = replace(
        fleet,
        pool_nics_per_node=stated(fleet.pool_nics_per_node, 1),
        pool_nic_bytes_per_s=stated(fleet.pool_nic_bytes_per_s, 25e9),
        pool_dram_bytes_per_s=stated(fleet.pool_dram_bytes_per_s, dram_bytes_per_s),
    )
    pull = (StageSpec("pull", ("pool_port",), 0.0),)
    scenario = on_two(
        prefill=PerToken(1e-6),
        hbm_capacity_bytes=101 * MB,
        tiers=(pool(read=pull, write=()),),
        links=links(pool_port=pool_bytes_per_s),
    )
    prompts = [[(one, i) for i in range(10)] for one in range(8)]
    asks = [Ask(0.01 * at, prompts[at % 7]) for at in range(700)]
    return replayed(make_trace(asks, block_size=10), scenario, fleet=fleet)


def test_a_busy_pool_whose_memory_is_slower_than_its_ports_is_bound_by_dram() -> None:
    # 9.9 GB/s of 12 GB/s are asked for.
    finding = found_by(served_by_pool(12e9, 12e9), "pool_node_bound_by_dram")
    assert finding is not None
    assert value(finding, "pool_busy:pool_test") == pytest.approx(0.82, abs=0.03)
    # Ports are the lesser; or the memory is, and nobody asks for so much.
    assert found_by(served_by_pool(60e9, 12e9), "pool_node_bound_by_dram") is None
    assert found_by(served_by_pool(12e9, 60e9), "pool_node_bound_by_dram") is None


# --- copies and pieces --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("llm", "tp", "copies"),
    [
        # One latent for all heads: every rank holds it.
        ("DeepSeek-V3", 16, 16.0),
        # Eight KV heads: two ranks share one at TP 16, none at TP 8.
        ("Meta-Llama-3.1-70B", 16, 2.0),
        ("Meta-Llama-3.1-70B", 8, None),
    ],
)
def test_ranks_that_hold_the_same_kv_are_found(llm: str, tp: int, copies: float | None) -> None:
    deployment = build_deployment(llm, "H100-SXM5", tp=tp)
    inputs = replayed(twice(2), on_two(), deployment=deployment)
    finding = found_by(inputs, "tp_replicates_kv")
    assert (None if finding is None else value(finding, "kv_copies")) == copies


def pieces(chunk_bytes: float) -> AuditInput:
    """An option over PCIe; the host link of H100 reaches half its rate at 183 400 bytes."""
    deployment = make_deployment()
    hardware = deployment.hardware
    chunk = hardware.chunk_bytes.given(chunk_bytes, source="hardware.toml")
    load = (StageSpec("load", ("pcie",), 0.0),)
    scenario = on_two(
        option_id="dram_test",
        tiers=(TierSpec("host_dram", "instance", UNLIMITED, 0.0, load, load),),
        links=links(pcie=10e9),
    )
    slow = replace(deployment, hardware=replace(hardware, chunk_bytes=chunk))
    return replayed(twice(2), scenario, deployment=slow)


def test_pieces_below_half_rate_are_fragmented_copies() -> None:
    # 64 KiB: 65 536 / (65 536 + 183 400) = 0.263 of what long pieces reach.
    finding = found_by(pieces(65_536), "fragmented_copies")
    assert finding is not None
    assert value(finding, "rate_over_long:pcie5_x16") == pytest.approx(0.263, abs=0.001)
    assert finding.action_kind == "faster"
    assert found_by(pieces(2_097_152), "fragmented_copies") is None


def moved_in(bytes_p50: float, timed: int = 100) -> AuditInput:
    row = {
        "direction": "load",
        "path": "host>device",
        "transfers": timed,
        "timed_transfers": timed,
        "moved_bytes": int(bytes_p50) * timed,
        "bytes_per_s": 1e9,
        "bytes_per_s_p10": 1e9,
        "bytes_p50": bytes_p50,
        "tokens_per_s": None,
    }
    queries = reuse_queries() | {"moves/measured_rates": query([row])}
    return replayed(twice(2), on_two(), queries=queries)


def test_observed_moves_that_are_smaller_than_their_fixed_cost_are_fragmented() -> None:
    # 0.508 ms of fixed cost at 173 GB/s are worth 88 MB.
    finding = found_by(moved_in(20e6), "fragmented_copies")
    assert finding is not None
    assert value(finding, "bytes_p50:host>device") == 20e6
    assert found_by(moved_in(200e6), "fragmented_copies") is None
    assert found_by(moved_in(20e6, timed=19), "fragmented_copies") is None


# --- hits that the engine computes again --------------------------------------------------------


def matched(llm: str, *, drafter: str | None = None, block_size: int = 16) -> AuditInput:
    """A prompt of 8 000 tokens ten times, of which 7 990 match from the second on."""
    asks = [Ask(at, [*range(799), f"own{at}"]) for at in range(10)]
    facts: dict[str, str | int | float] = {"block_size": block_size}
    if drafter is not None:
        facts["speculative"] = drafter
    inputs = replayed(
        make_trace(asks, block_size=10),
        on_two(),
        deployment=build_deployment(llm, "H100-SXM5", tp=2, weight_dtype="fp8"),
    )
    for source in inputs.manifest.sources:
        source.engine_facts = facts
    return inputs


def test_a_state_that_is_kept_at_checkpoints_cancels_the_rest_of_a_hit() -> None:
    # A checkpoint every 1 056 tokens: 7 990 - 7 × 1 056 = 598 of each of nine hits.
    finding = found_by(matched("Qwen3-Next-80B-A3B"), "hits_cancelled")
    assert value(finding, "unit_tokens") == 1056
    assert value(finding, "lost_hit_tokens") == 9 * 598
    # A drafter costs one unit more a hit; an LLM that keeps KV in all layers loses nothing.
    drafted = found_by(matched("Qwen3-Next-80B-A3B", drafter="mtp"), "hits_cancelled")
    assert value(drafted, "lost_hit_tokens") == 9 * (598 + 1056)
    assert found_by(matched("Meta-Llama-3.1-8B"), "hits_cancelled") is None


def test_a_drafter_costs_one_block_a_hit_and_matters_where_blocks_are_large() -> None:
    # 7 990 tokens are 15 blocks of 512 and 310 tokens: 822 of each of nine hits, 9 % of 80 000.
    large = found_by(
        matched("Meta-Llama-3.1-8B", drafter="eagle", block_size=512), "hits_cancelled"
    )
    assert value(large, "lost_hit_tokens") == 9 * (512 + 310)
    assert "speculative decoding (eagle)" in (large.message.lower() if large else "")
    # Blocks of 16: 16 + 6 tokens of 8 000. And ngram needs no hidden states.
    assert found_by(matched("Meta-Llama-3.1-8B", drafter="eagle"), "hits_cancelled") is None
    other = matched("Meta-Llama-3.1-8B", drafter="ngram", block_size=512)
    assert found_by(other, "hits_cancelled") is None
