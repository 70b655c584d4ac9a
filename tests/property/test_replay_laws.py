"""Laws of the replay on random small traces."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.replay.blocks import LruCache, build_atoms
from kvtrace.replay.engine import simulate
from kvtrace.replay.links import FlowNet
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.replay.scenario import HandoffSpec, IsolationSpec, LinkSpec, Scenario, ThrottleSpec
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import (
    KV_BYTES,
    Ask,
    FlatStep,
    PerToken,
    dram_tier,
    links,
    make_scenario,
    make_trace,
    pool_tier,
)

BLOCK = 10
LAW = settings(deadline=None)


@st.composite
def asks(draw: st.DrawFn) -> list[Ask]:
    """Requests that walk a small tree from its root, so that they share prefixes of any length.

    A block's label is its path; the tail of a path that ends in 9 is a partial block.
    """
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(0, 30),  # tenths of a second since the last arrival
                st.lists(st.integers(0, 2), max_size=7),
                st.booleans(),
                st.integers(0, 20),
            ),
            min_size=1,
            max_size=14,
        )
    )
    at_s = 0.0
    made: list[Ask] = []
    for gap, path, has_tail, output in steps:
        at_s += gap / 10
        labels = [tuple(path[: depth + 1]) for depth in range(len(path))]
        prompt = len(labels) * BLOCK
        if has_tail:
            labels.append((*path, 9))
            prompt += 4
        made.append(Ask(at_s, labels, prompt, output))
    return made


class Steps:
    """Shared steps: an overhead for each step with a start, tokens at one price, and pairs."""

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        return 0.0001 * new_tokens * (cached_tokens + new_tokens / 2)

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        return (0.2 if is_start and new_tokens else 0.0) + 0.01 * new_tokens + work_s


STEPS = Steps()
ROUTINGS = ("round_robin", "least_loaded", "session_sticky", "prefix_affinity", "kv_centric")


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Any mix of tiers, modes and sizes; HBM from one block to plenty."""
    rate = st.sampled_from([15.0, 200.0, 1e6])
    tiers = draw(st.sampled_from([(), ("dram",), ("pool",), ("dram", "pool"), ("pool", "dram")]))
    capacity = KV_BYTES * BLOCK * draw(st.integers(0, 12))
    lookup = draw(st.sampled_from([0.0, 0.05]))
    chain = {
        "dram": dram_tier(capacity_bytes=capacity, lookup_s=lookup),
        "pool": pool_tier(capacity_bytes=4 * capacity, lookup_s=lookup, pull_latency_s=lookup),
    }
    instances = draw(st.integers(1, 3))
    kept_apart = [None, IsolationSpec(25), *([IsolationSpec(25, 1)] if instances > 1 else [])]
    isolation = draw(st.sampled_from(kept_apart))
    decoding = draw(st.integers(0, 2))
    nic = HandoffSpec(("nic", "pool"), ("nic",), draw(st.sampled_from([0.0, 0.02])))
    throttles = [ThrottleSpec("nic", 30.0), ThrottleSpec("pool", 50.0, "writes")]
    return make_scenario(
        instances=instances + decoding,
        prefill_instances=instances if decoding else 0,
        handoff=draw(st.sampled_from([None, nic])),
        isolation=isolation,
        throttles=tuple(draw(st.sampled_from([[], throttles[:1], throttles]))),
        request_bytes_per_s=draw(st.sampled_from([None, 100.0])),
        routing=draw(st.sampled_from(ROUTINGS)),
        metadata_age_s=draw(st.sampled_from([0.0, 0.3])),
        hbm_capacity_bytes=KV_BYTES * BLOCK * draw(st.integers(1, 20)),
        tiers=tuple(chain[name] for name in tiers),
        links=links(pcie=draw(rate), nic=draw(rate), pool=draw(rate)),
        load_mode=draw(st.sampled_from(["async", "sync"])),
        load_decision=draw(st.sampled_from(["always", "never", "arbiter"])),
        prefill=PerToken(0.01, 0.0001),
        decode=FlatStep(0.05, 0.01),
        prefill_chunk_tokens=draw(st.sampled_from([0, 16, 100])),
        decode_in_chunk=draw(st.booleans()),
        running_requests=draw(st.sampled_from([0, 0, 1, 3])),
        kv_admission="whole" if decoding else draw(st.sampled_from(["whole", "as_needed"])),
        kv_block_tokens=draw(st.sampled_from([1, 8])),
        step=draw(st.sampled_from([None, STEPS])),
        lookup_moment=draw(st.sampled_from(["on_schedule", "on_arrival"])),
        reuse=draw(st.sampled_from([True, True, True, False])),
    )


def total_hits(result: ReplayResult) -> Any:
    return sum(result.timeline.hit_tokens.values())


@LAW
@given(asks(), scenarios())
def test_every_request_is_served_and_its_times_add_up(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace(made)
    result = simulate(trace, scenario)
    timeline = result.timeline
    parts = (
        timeline.queue_s
        + timeline.lookup_s
        + timeline.pull_s
        + timeline.load_s
        + timeline.prefill_s
    )
    assert timeline.ttft_s == pytest.approx(parts, abs=1e-6)
    for seconds in (timeline.queue_s, timeline.pull_s, timeline.load_s, timeline.prefill_s):
        assert (seconds >= 0).all()
    assert (timeline.e2e_s >= timeline.ttft_s - 1e-9).all()
    decoded = trace.output_tokens > 1
    assert (timeline.tpot_s[decoded] >= 0.06 - 1e-9).all()  # never faster than alone
    assert np.isnan(timeline.tpot_s[~decoded]).all()
    assert 0.0 <= result.prefill_utilisation <= 1.0


@LAW
@given(asks(), scenarios())
def test_the_gpu_is_busy_for_what_its_requests_took(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace([replace(ask, output=0) for ask in made])
    result = simulate(trace, scenario)
    prefilling = scenario.prefill_instances or scenario.instances
    busy_s = result.prefill_utilisation * prefilling * result.span_s
    waited = result.timeline.lookup_s.sum() if scenario.load_mode == "async" else 0.0
    took = result.timeline.gpu_busy_s.sum()
    assert took - 1e-6 <= busy_s <= took + waited + 1e-6


@LAW
@given(asks(), scenarios())
def test_hits_and_computed_tokens_make_up_the_prompt(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace(made)
    result = simulate(trace, scenario)
    hits = total_hits(result)
    assert (hits + result.timeline.computed_tokens == trace.prompt_tokens).all()
    assert (result.timeline.computed_tokens >= np.minimum(trace.prompt_tokens, 1)).all()


@LAW
@given(asks(), scenarios())
def test_hits_never_exceed_the_reuse_that_exists(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace(made)
    bound = simulate(trace, make_scenario(idealised=True))
    assert total_hits(simulate(trace, scenario)).sum() <= total_hits(bound).sum()


@LAW
@given(asks(), scenarios())
def test_bytes_in_the_ledger_are_the_bytes_moved(made: list[Ask], scenario: Scenario) -> None:
    result = simulate(make_trace(made), scenario)
    is_handed = scenario.prefill_instances and scenario.handoff is not None
    handed = KV_BYTES * sum(ask.prompt or 0 for ask in made if is_handed and ask.output > 1)
    below = {tier: int(hits.sum()) for tier, hits in result.timeline.hit_tokens.items()}
    uses = {use.link_id: use for use in result.link_use}
    moved = KV_BYTES * sum(hits for tier, hits in below.items() if tier != "hbm")
    assert result.timeline.moved_bytes.sum() == pytest.approx(moved)
    if "pcie" in uses:
        assert uses["pcie"].bytes_read == pytest.approx(moved)
    if "pool" in uses:
        assert uses["pool"].bytes_read == pytest.approx(KV_BYTES * below.get("pool", 0) + handed)
        # A hand-off crosses the NICs of both instances.
        assert uses["nic"].bytes_read == pytest.approx(uses["pool"].bytes_read + handed)
        assert uses["nic"].bytes_written == uses["pool"].bytes_written
        if "pcie" in uses:
            assert uses["pcie"].bytes_written >= uses["pool"].bytes_written
    assert all(0.0 <= use.utilisation <= 1.0 for use in result.link_use)


@LAW
@given(asks(), scenarios())
def test_the_same_input_gives_the_same_bits(made: list[Ask], scenario: Scenario) -> None:
    first, second = (simulate(make_trace(made), scenario) for _ in range(2))
    for name in ("ttft_s", "queue_s", "pull_s", "load_s", "tpot_s", "e2e_s", "recompute_hit_s"):
        ours, theirs = getattr(first.timeline, name), getattr(second.timeline, name)
        assert ours.tobytes() == theirs.tobytes()
    assert first.link_use == second.link_use


@LAW
@given(asks(), scenarios())
def test_recomputing_everything_moves_and_hits_nothing(made: list[Ask], scenario: Scenario) -> None:
    trace = make_trace(made)
    result = simulate(trace, replace(scenario, reuse=False, handoff=None))
    assert total_hits(result).sum() == 0
    assert result.timeline.moved_bytes.sum() == 0
    assert result.link_use == ()
    assert (result.timeline.computed_tokens == trace.prompt_tokens).all()
    assert (result.timeline.recompute_hit_s == 0).all()


@LAW
@given(asks(), st.sampled_from([0.25, 2.0, 10.0]))
def test_uncontended_moves_scale_with_all_link_speeds(made: list[Ask], factor: float) -> None:
    # An hour between arrivals: one flow at a time, nothing waits, no latency.
    spaced = [replace(ask, at_s=3600.0 * index, output=0) for index, ask in enumerate(made)]
    results = []
    for speed in (1.0, factor):
        scenario = make_scenario(
            instances=2,
            routing="round_robin",
            tiers=(pool_tier(),),
            links=links(pcie=300.0 * speed, nic=100.0 * speed, pool=80.0 * speed),
        )
        results.append(simulate(make_trace(spaced), scenario).timeline)
    slow, fast = results
    assert total_equal(slow.hit_tokens["pool"], fast.hit_tokens["pool"])
    assert fast.pull_s * factor == pytest.approx(slow.pull_s, abs=1e-6)
    assert fast.load_s * factor == pytest.approx(slow.load_s, abs=1e-6)


def total_equal(ours: Any, theirs: Any) -> bool:
    return bool((ours == theirs).all())


@LAW
@given(asks())
def test_latency_moves_when_bandwidth_moves(made: list[Ask]) -> None:
    spaced = [replace(ask, at_s=3600.0 * index, output=0) for index, ask in enumerate(made)]

    def mean_ttft_s(nic: float) -> tuple[float, float]:
        scenario = make_scenario(
            instances=2,
            routing="round_robin",
            tiers=(pool_tier(),),
            links=links(pcie=1e9, nic=nic, pool=1e9),
        )
        timeline = simulate(make_trace(spaced), scenario).timeline
        return float(timeline.ttft_s.mean()), float(timeline.moved_bytes.sum())

    slow_s, moved = mean_ttft_s(20.0)
    fast_s, _ = mean_ttft_s(40.0)
    # all bytes cross a NIC twice as fast: half of bytes / 20 is saved
    assert (slow_s - fast_s) * len(made) == pytest.approx(moved / 40, abs=1e-6)


@LAW
@given(asks(), st.integers(0, 12), st.integers(0, 24))
def test_idealised_hits_equal_a_step_by_step_lru(
    made: list[Ask], hbm_blocks: int, pool_blocks: int
) -> None:
    trace = make_trace(made)
    scenario = make_scenario(
        idealised=True,
        hbm_capacity_bytes=KV_BYTES * BLOCK * hbm_blocks,
        tiers=(pool_tier(capacity_bytes=KV_BYTES * BLOCK * pool_blocks),),
        links=links(pcie=1e9, nic=1e9, pool=1e9),
    )
    hits = simulate(trace, scenario).timeline.hit_tokens
    expected_hbm, expected_pool = naive_chain(made, hbm_blocks, pool_blocks)
    assert hits["hbm"].tolist() == expected_hbm
    assert hits["pool"].tolist() == expected_pool


def naive_chain(made: list[Ask], *capacities: int) -> tuple[list[int], ...]:
    """Hit tokens of each tier by single blocks, looked up whole and then touched tail to head."""
    caches: list[OrderedDict[Any, None]] = [OrderedDict() for _ in capacities]
    hits: tuple[list[int], ...] = tuple([] for _ in capacities)
    for ask in made:
        run = 0
        for cache, tier_hits in zip(caches, hits, strict=True):
            before = run
            while run < len(ask.blocks) and ask.blocks[run] in cache:
                run += 1
            tokens = [min(blocks * BLOCK, ask.prompt or 0) for blocks in (before, run)]
            tier_hits.append(tokens[1] - tokens[0])
        for cache, capacity in zip(caches, capacities, strict=True):
            for label in reversed(ask.blocks):
                cache.pop(label, None)
                cache[label] = None
                if len(cache) > capacity:
                    cache.popitem(last=False)
    return hits


@LAW
@given(asks(), st.integers(0, 15))
def test_the_atom_cache_holds_what_a_block_cache_holds(made: list[Ask], capacity: int) -> None:
    trace = make_trace(made)
    table = build_atoms(trace)
    cache = LruCache(capacity, table.blocks)
    blocks: OrderedDict[int, None] = OrderedDict()
    for request in range(trace.requests):
        cache.touch(table.atoms, table.offset[request], table.offset[request + 1])
        for block in reversed(block_ids(trace, request)):
            blocks.pop(block, None)
            blocks[block] = None
            if len(blocks) > capacity:
                blocks.popitem(last=False)
        first = np.concatenate(([0], np.cumsum(table.blocks)))
        held = {int(first[atom]) + i for atom, n in cache.stored.items() for i in range(n)}
        assert held == set(blocks)
        assert cache.used == len(blocks)


def block_ids(trace: RequestTrace, request: int) -> list[int]:
    runs = range(int(trace.run_offset[request]), int(trace.run_offset[request + 1]))
    return [
        int(trace.run_start[run]) + i for run in runs for i in range(int(trace.run_blocks[run]))
    ]


@LAW
@given(asks(), st.integers(0, 14), st.integers(0, 25), st.integers(1, 3))
def test_warm_caches_are_those_of_an_idealised_replay(
    made: list[Ask], warmup: int, capacity: int, instances: int
) -> None:
    trace = make_trace(made)
    warmup = min(warmup, trace.requests)
    scenario = make_scenario(
        idealised=True,
        instances=instances,
        routing="round_robin",
        hbm_capacity_bytes=KV_BYTES * BLOCK * capacity,
        tiers=(
            dram_tier(capacity_bytes=KV_BYTES * BLOCK * 2 * capacity),
            pool_tier(capacity_bytes=KV_BYTES * BLOCK * 3 * capacity),
        ),
        links=links(pcie=1e9, nic=1e9, pool=1e9),
    )
    whole = simulate(trace, scenario).timeline
    rest = simulate(trace, scenario, warmup_requests=warmup).timeline
    assert rest.instance.tolist() == whole.instance[warmup:].tolist()
    for tier, hits in whole.hit_tokens.items():
        assert rest.hit_tokens[tier].tolist() == hits[warmup:].tolist()


@LAW
@given(asks(), st.integers(0, 14), scenarios())
def test_a_warm_replay_serves_its_requests_alone(
    made: list[Ask], warmup: int, scenario: Scenario
) -> None:
    trace = make_trace(made)
    result = simulate(trace, scenario, warmup_requests=warmup)
    rows = max(0, trace.requests - warmup)
    assert len(result.timeline.ttft_s) == rows
    prompts = trace.prompt_tokens[trace.requests - rows :]
    assert (total_hits(result) + result.timeline.computed_tokens == prompts).all()
    assert (result.timeline.queue_s >= 0).all()


@LAW
@given(asks())
def test_reusable_tokens_are_what_an_unlimited_cache_hits(made: list[Ask]) -> None:
    trace = make_trace(made)
    hits = simulate(trace, make_scenario(idealised=True)).timeline.hit_tokens["hbm"]
    least = np.maximum(trace.prompt_tokens - 1, 0)
    assert reusable_tokens(trace).tolist() == np.minimum(hits, least).tolist()


FLOWS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=12
)
ROUTES = ((0,), (0, 1), (1, 2), (0, 1, 2))


@LAW
@given(FLOWS, st.tuples(*[st.integers(1, 9)] * 3))
def test_shared_links_conserve_bytes_and_never_run_above_their_rate(
    flows: list[tuple[int, int, int]], rates: tuple[int, int, int]
) -> None:
    net: FlowNet[int] = FlowNet([float(rate) for rate in rates], ROUTES)
    ended: dict[int, float] = {}
    crossed = [0.0, 0.0, 0.0]
    for owner, (at, route, size) in enumerate(sorted(flows)):
        while net.next_at <= at:
            now = net.next_at
            ended |= dict.fromkeys(net.finish(), now)
        net.start(float(at), route, float(size), owner, write=bool(owner % 2))
        for link in ROUTES[route]:
            crossed[link] += size
    while len(ended) < len(flows):
        now = net.next_at
        ended |= dict.fromkeys(net.finish(), now)
    for link, rate in enumerate(rates):
        assert net.read_bytes[link] + net.written_bytes[link] == crossed[link]
        assert crossed[link] <= net.busy_s[link] * rate * (1 + 1e-9) + 1e-9
    for owner, (at, route, size) in enumerate(sorted(flows)):
        assert ended[owner] >= at + size / min(rates[link] for link in ROUTES[route]) - 1e-6


@LAW
@given(FLOWS)
def test_a_busy_link_works_at_its_full_rate(flows: list[tuple[int, int, int]]) -> None:
    net: FlowNet[int] = FlowNet([7.0], [(0,)])
    for owner, (at, _, size) in enumerate(sorted(flows)):
        while net.next_at <= at:
            net.finish()
        net.start(float(at), 0, float(size), owner, write=False)
    while net.next_at < float("inf"):
        net.finish()
    assert net.busy_s[0] * 7.0 == pytest.approx(sum(size for _, _, size in flows))


@LAW
@given(asks())
def test_a_pool_without_bandwidth_is_no_pool(made: list[Ask]) -> None:
    trace = make_trace(made)
    bare = make_scenario(instances=2, hbm_capacity_bytes=KV_BYTES * BLOCK * 9)
    dead = replace(
        bare,
        tiers=(pool_tier(lookup_s=0.3),),
        links=links(pcie=1.0, nic=1.0) | {"pool": LinkSpec("pool", "shared", 0.0)},
    )
    ours, theirs = simulate(trace, dead), simulate(trace, bare)
    assert ours.timeline.ttft_s.tobytes() == theirs.timeline.ttft_s.tobytes()


@LAW
@given(asks(), scenarios())
def test_metadata_of_no_age_is_what_the_caches_hold(made: list[Ask], scenario: Scenario) -> None:
    """An age too small to tell makes the router keep a copy, change by change."""
    trace = make_trace(made)
    fresh = simulate(trace, replace(scenario, metadata_age_s=0.0))
    copied = simulate(trace, replace(scenario, metadata_age_s=1e-300))
    assert (copied.timeline.instance == fresh.timeline.instance).all()
    assert (copied.timeline.ttft_s == fresh.timeline.ttft_s).all()


@LAW
@given(asks(), scenarios(), st.sampled_from(["session_sticky", "kv_centric", "prefix_affinity"]))
def test_without_anything_to_follow_requests_go_to_the_least_loaded(
    made: list[Ask], scenario: Scenario, routing: Any
) -> None:
    """Without reuse no instance is nearer to the KV; sessions are unknown."""
    trace = make_trace(made)
    blind = replace(scenario, reuse=False, affinity_load_factor=100.0)
    followed = simulate(trace, replace(blind, routing=routing))
    loaded = simulate(trace, replace(blind, routing="least_loaded"))
    assert (followed.timeline.instance == loaded.timeline.instance).all()


@LAW
@given(asks(), scenarios())
def test_where_every_instance_reaches_everything_for_nothing_kv_centric_is_least_loaded(
    made: list[Ask], scenario: Scenario
) -> None:
    trace = make_trace(made)
    free = replace(pool_tier(), read=(), write=())
    plain = replace(scenario, tiers=(free,), load_decision="always", reuse=True, metadata_age_s=0.0)
    central = simulate(trace, replace(plain, routing="kv_centric"))
    loaded = simulate(trace, replace(plain, routing="least_loaded"))
    assert (central.timeline.instance == loaded.timeline.instance).all()


@LAW
@given(asks(), scenarios(), st.integers(1, 3))
def test_prefill_instances_with_room_know_nothing_of_decode(
    made: list[Ask], scenario: Scenario, prefilling: int
) -> None:
    """First tokens come as if every output ended there."""
    plain = replace(
        scenario,
        instances=prefilling,
        prefill_instances=0,
        handoff=None,
        isolation=None,
        hbm_capacity_bytes=1e9,
        tiers=(),
        kv_admission="whole",
        running_requests=0,
        decode_in_chunk=False,
    )
    apart = replace(plain, instances=prefilling + 2, prefill_instances=prefilling)
    short = make_trace([replace(ask, output=min(ask.output, 1)) for ask in made])
    expected = simulate(short, plain).timeline
    split = simulate(make_trace(made), apart).timeline
    assert (split.instance == expected.instance).all()
    assert (split.ttft_s == expected.ttft_s).all()
