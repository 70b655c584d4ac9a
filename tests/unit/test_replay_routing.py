"""Which instance takes a request, on hand-made traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kvtrace.errors import ModelError
from kvtrace.replay.blocks import split_atoms
from kvtrace.replay.engine import simulate
from kvtrace.replay.homes import homes_of
from kvtrace.replay.scenario import IsolationSpec, Scenario
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import (
    KV_BYTES,
    UNLIMITED,
    Ask,
    PerToken,
    dram_tier,
    ints,
    links,
    make_scenario,
    make_trace,
    pool_tier,
)

BLOCK_S = 2.5
"""Prefill of one block of ten tokens; a power of two a token, so that sums are exact."""


def routed(routing: str, **changes: object) -> Scenario:
    return make_scenario(
        **{"instances": 2, "routing": routing, "prefill": PerToken(0.25), **changes}
    )


def of_sessions(asks: Sequence[Ask], sessions: Sequence[int]) -> RequestTrace:
    return replace(make_trace(asks), session=ints(sessions))


def taken_by(trace: RequestTrace | Sequence[Ask], scenario: Scenario, first: int = 0) -> list[int]:
    if not isinstance(trace, RequestTrace):
        trace = make_trace(trace)
    return list(simulate(trace, scenario, warmup_requests=first).timeline.instance.tolist())


def test_a_session_stays_where_it_opened_and_strangers_go_to_the_least_loaded() -> None:
    # Session 0 opens on instance 0 and session 1, while 0 is busy, on 1. At 100 both are idle.
    # Session 0 comes twice and stays on 0, though 1 is idle by then; the request of no session
    # goes to 1, and so does session 1.
    trace = of_sessions(
        [
            Ask(0, "a"),
            Ask(0.1, "b"),
            Ask(100, "c"),
            Ask(100.1, "d"),
            Ask(100.2, "e"),
            Ask(101, "f"),
        ],
        [0, 1, 0, 0, -1, 1],
    )
    assert taken_by(trace, routed("session_sticky")) == [0, 1, 0, 0, 1, 1]
    assert taken_by(trace, routed("least_loaded")) == [0, 1, 0, 1, 0, 1]


def test_a_prefix_is_followed_until_too_many_queue_for_it() -> None:
    # "abcd" is on instance 0, "xyz" on 1. The fan of "abcd" that comes at 100 finds nobody queued:
    # 0 < 1.25 · 1 / 2. For the second one instance 0 has 1 < 1.25 · 2 / 2, for the third
    # 2 > 1.25 · 3 / 2 = 1.875: it has to go to instance 1. For the fourth 2 < 1.25 · 4 / 2 = 2.5.
    fans = [Ask(100 + i / 10, ("a", "b", "c", "d", i)) for i in range(4)]
    asks = [Ask(0, "abcd"), Ask(0.1, "xyz"), *fans]
    assert taken_by(asks, routed("prefix_affinity")) == [0, 1, 0, 0, 1, 0]
    # A factor of 3 lets all of them in: 3 < 3 · 4 / 2.
    eager = routed("prefix_affinity", affinity_load_factor=3.0)
    assert taken_by(asks, eager) == [0, 1, 0, 0, 0, 0]


def test_of_equal_prefixes_the_least_loaded_takes_the_request() -> None:
    # Both instances hold "ab". At 100 "abc" goes to the next in turn, 0. At 100.1 both hold as much
    # and have room (1 < 1.25 · 2 / 2 and 0): instance 1 has nothing queued.
    asks = [Ask(0, "ab"), Ask(0.1, "ab"), Ask(100, "abc"), Ask(100.1, "abd")]
    assert taken_by(asks, routed("prefix_affinity")) == [0, 1, 0, 1]


def test_kv_centric_takes_the_least_sum_of_queue_and_recompute() -> None:
    # "abcd" is on instance 0. A fan of it computes 1 block there (2.5 s) and 5 on instance 1
    # (12.5 s). With 0, 1, 2 and 3 fans queued, instance 0 asks for 2.5, 5, 7.5 and 10 s; the fifth
    # would wait 10 s: 12.5 s on both, and the least queue decides.
    fans = [Ask(100, ("a", "b", "c", "d", i)) for i in range(5)]
    asks = [Ask(0, "abcd"), Ask(0.1, "xy"), *fans]
    assert taken_by(asks, routed("kv_centric")) == [0, 1, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(("age_s", "expected"), [(0.0, 0), (2.0, 0), (2.5, 1), (9.0, 1)])
def test_a_prefix_is_known_once_the_metadata_tells_of_it(age_s: float, expected: int) -> None:
    # "abcd" is computed from 0 to 10; the fan comes at 12. In turn it would go to instance 1.
    asks = [Ask(0, "abcd"), Ask(12, "abcde")]
    for routing in ("kv_centric", "prefix_affinity"):
        assert taken_by(asks, routed(routing, metadata_age_s=age_s)) == [0, expected]


@pytest.mark.parametrize(("age_s", "expected", "hit"), [(0.0, 1, 0), (30.0, 0, 0)])
def test_old_metadata_tells_of_blocks_that_are_gone(age_s: float, expected: int, hit: int) -> None:
    # HBM holds six blocks. "abcd" is on 0 from 10 on; at 40 six other blocks push it out of there.
    # At 60 metadata of 30 s ago still names instance 0; fresh metadata knows no prefix, so the
    # request goes to the next in turn, 1. Nobody has it.
    asks = [Ask(0, "abcd"), Ask(20, "123456"), Ask(40, "uvwxyz"), Ask(60, "abcd")]
    scenario = routed("kv_centric", metadata_age_s=age_s, hbm_capacity_bytes=60 * KV_BYTES)
    result = simulate(make_trace(asks), scenario)
    assert result.timeline.instance.tolist() == [0, 1, 0, expected]
    assert result.timeline.hit_tokens["hbm"].tolist()[3] == hit


@pytest.mark.parametrize(("rate", "expected"), [(80.0, 0), (2.0, 1)])
def test_kv_centric_counts_the_move_from_a_private_tier(rate: float, expected: int) -> None:
    # As above "abcd" leaves HBM of instance 0, but its DRAM holds it: 40 tokens of 2 B.
    # At 80 B/s they take 1 s; with block e that is 3.5 s against 12.5 s. At 2 B/s they take 40 s.
    asks = [Ask(0, "abcd"), Ask(20, "123456"), Ask(100, "uvwxyz"), Ask(400, "abcde")]
    scenario = routed(
        "kv_centric",
        hbm_capacity_bytes=60 * KV_BYTES,
        tiers=(dram_tier(),),
        links=links(pcie=rate),
    )
    assert taken_by(asks, scenario) == [0, 1, 0, expected]


@pytest.mark.parametrize(("decision", "expected"), [("always", 0), ("arbiter", 1)])
def test_kv_centric_reckons_with_loads_as_the_engine_decides_them(
    decision: str, expected: int
) -> None:
    # "abcd" is in HBM of 0 and in the pool, 80 B behind a NIC of 1 B/s. At 500 eight more blocks
    # keep instance 0 busy for 20 s. Then "abcde" takes 22.5 s there. On instance 1 it takes 82.5 s
    # if the pool is always loaded from, and 12.5 s if what does not pay is computed.
    asks = [Ask(0, "abcd"), Ask(500, "abcd12345678"), Ask(500.5, "abcde")]
    scenario = routed(
        "kv_centric",
        tiers=(pool_tier(),),
        links=links(nic=1.0, pool=1.0, pcie=1e9),
        load_decision=decision,
    )
    assert taken_by(asks, scenario) == [0, 0, expected]


def test_a_free_pool_leaves_kv_centric_nothing_to_choose() -> None:
    asks = [Ask(i, ("a", "b", i % 3)) for i in range(12)]
    free = {
        "tiers": (replace(pool_tier(), read=(), write=()),),
        "links": links(nic=1.0, pool=1.0, pcie=1.0),
    }
    loaded = simulate(make_trace(asks), routed("least_loaded", **free)).timeline
    central = simulate(make_trace(asks), routed("kv_centric", **free)).timeline
    assert central.instance.tolist() == loaded.instance.tolist()
    assert central.ttft_s.tolist() == loaded.ttft_s.tolist()


def test_long_prompts_go_to_instances_of_their_own() -> None:
    # More than 20 tokens is long: they take the last instance, the others turn over the first two.
    asks = [Ask(0, "abc"), Ask(0, "d"), Ask(0, "ef"), Ask(0, "g"), Ask(0, "hijk")]
    scenario = routed("round_robin", instances=3, isolation=IsolationSpec(20, long_instances=1))
    assert taken_by(asks, scenario) == [2, 0, 1, 0, 2]


def test_sessions_of_a_history_are_at_home_where_it_left_their_blocks() -> None:
    # Sessions 5 and 6 opened on 0 and 1; after the history both come back in the other order.
    asks = [Ask(0, "ab"), Ask(1, "xy"), Ask(2, "pq"), Ask(100, "xyz"), Ask(100, "abc")]
    trace = of_sessions(asks, [5, 6, 5, 6, 5])
    scenario = routed("session_sticky")
    result = simulate(trace, scenario, warmup_requests=3)
    assert result.timeline.instance.tolist() == [1, 0]
    assert result.timeline.hit_tokens["hbm"].tolist() == [20, 20]


def test_a_history_is_spread_as_the_routing_would() -> None:
    # Requests 0 to 5: a and x open; "abc" knows two of three blocks and follows a; "xq" knows half
    # of its blocks and follows x; "arst" knows a quarter and takes a turn of its own.
    asks = [Ask(0, "ab"), Ask(1, "xy"), Ask(2, "abc"), Ask(3, "xq"), Ask(4, "arst"), Ask(5, "l")]
    trace = of_sessions(asks, [7, -1, 7, 8, 7, -1])
    history = split_atoms(trace, 6)[0]

    def homes(routing: str, **changes: object) -> list[int]:
        scenario = routed(routing, instances=3, **changes)
        return list(homes_of(scenario, trace, history).tolist())

    assert homes("round_robin") == homes("least_loaded") == [0, 1, 2, 0, 1, 2]
    assert homes("kv_centric") == homes("prefix_affinity") == [0, 1, 0, 1, 2, 0]
    # Session 7 opens with turn 0, the stranger takes 1, session 8 turn 2, the stranger turn 3.
    assert homes("session_sticky") == [0, 1, 0, 2, 0, 0]
    apart = IsolationSpec(30, long_instances=1)
    assert homes("kv_centric", isolation=apart) == [0, 1, 0, 1, 2, 0]
    assert homes("kv_centric", isolation=replace(apart, long_prompt_tokens=29)) == [
        0,
        1,
        2,
        1,
        2,
        0,
    ]


def test_one_instance_takes_everything_by_any_routing() -> None:
    asks = [Ask(0, "ab"), Ask(1, "abc"), Ask(2, "x")]
    for routing in ("session_sticky", "prefix_affinity", "kv_centric"):
        assert taken_by(asks, routed(routing, instances=1)) == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"metadata_age_s": -1.0}, "its metadata is -1 s old"),
        ({"metadata_age_s": UNLIMITED}, "its metadata is inf s old"),
        ({"affinity_load_factor": 0.5}, "its load factor of 0.5 is not 1 or more"),
    ],
)
def test_routing_that_cannot_be_is_refused(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ModelError, match=fault):
        simulate(make_trace([Ask(0, "a")]), routed("kv_centric", **changes))


@pytest.mark.parametrize(("queued", "expected"), [("xyz", 0), ("vwxyz", 1)])
def test_kv_centric_continues_from_a_private_tier_in_the_pool(queued: str, expected: int) -> None:
    # Block a is in DRAM of instance 0 (p has pushed it out of HBM, which holds one block); a and b
    # are in the pool. "ab" takes on instance 0 ten tokens from DRAM (20 B at 200 B/s: 0.1 s) and
    # nine from the pool, the last one being computed (18 B at 2 B/s over the NIC: 9 s, then 0.09 s
    # over PCIe), then 0.25 s: 9.44 s. On instance 1 the pool brings all 19: 19 + 0.19 + 0.25 s.
    # Behind 7.5 s of queue instance 0 is nearer (16.94 s), behind 12.5 s (21.94 s) it is not.
    asks = [Ask(0, "a"), Ask(20, "b"), Ask(50, "p"), Ask(70, "q"), Ask(100, queued), Ask(100, "ab")]
    scenario = routed(
        "kv_centric",
        hbm_capacity_bytes=10 * KV_BYTES,
        tiers=(dram_tier(), replace(pool_tier(), write=())),
        links=links(pcie=200.0, nic=2.0, pool=2.0),
    )
    assert taken_by(asks, scenario) == [0, 1, 0, 1, 0, expected]


def test_the_last_token_of_a_prompt_is_no_part_of_a_load() -> None:
    # "ab" without its last token (19) is in HBM of 0 as block a, and block b in the pool adds nine;
    # a prompt of 11 tokens over both blocks gains nothing from b: its last token is computed.
    asks = [Ask(0, "a"), Ask(20, "xb"), Ask(100, "ab", 11), Ask(200, "ab")]
    free = {
        "tiers": (replace(pool_tier(), read=(), write=()),),
        "links": links(nic=1, pool=1, pcie=1),
    }
    result = simulate(make_trace(asks), routed("kv_centric", **free))
    assert result.timeline.computed_tokens.tolist()[2:] == [1, 1]
