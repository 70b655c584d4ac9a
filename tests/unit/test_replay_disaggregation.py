"""Prefill and decode on instances of their own, and the hand-off between them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.errors import ModelError
from kvtrace.replay.engine import simulate
from kvtrace.replay.scenario import (
    HandoffSpec,
    IsolationSpec,
    Scenario,
    StageSpec,
    ThrottleSpec,
    TierSpec,
)
from tests.unit.replay_cases import KV_BYTES, UNLIMITED, Ask, links, make_scenario, make_trace

BY_NIC = HandoffSpec(("nic",), ("nic",), latency_s=0.05)


def split(**changes: object) -> Scenario:
    """One instance prefills (0.01 s a token), one decodes (0.1 s a step)."""
    return make_scenario(**{"instances": 2, "prefill_instances": 1, **changes})


def test_the_kv_of_a_prompt_moves_before_it_is_decoded() -> None:
    # 10 tokens are computed until 0.1; 20 B cross both NICs (40 B/s) in 0.05 + 0.5 s; then 2 steps.
    scenario = split(handoff=BY_NIC, links=links(nic=40.0))
    result = simulate(make_trace([Ask(0, "a", output=3)]), scenario)
    timeline = result.timeline
    assert timeline.ttft_s == pytest.approx([0.1])
    assert timeline.handoff_s == pytest.approx([0.55])
    assert timeline.e2e_s == pytest.approx([0.85])
    assert timeline.tpot_s == pytest.approx([0.375])
    (nic,) = result.link_use
    assert (nic.links, nic.bytes_read) == (2, 40.0)


def test_handoffs_share_the_link_of_their_prefill_instance() -> None:
    # The first has sent 4 of 20 B when the second begins at 0.2; at 20 B/s each it ends at 1.0, and
    # the second, 16 B sent, at 1.1. The two decode on instances of their own.
    scenario = split(instances=3, handoff=replace(BY_NIC, latency_s=0.0), links=links(nic=40.0))
    timeline = simulate(
        make_trace([Ask(0, "a", output=2), Ask(0, "b", output=2)]), scenario
    ).timeline
    assert timeline.ttft_s == pytest.approx([0.1, 0.2])
    assert timeline.handoff_s == pytest.approx([0.9, 0.9])
    assert timeline.e2e_s == pytest.approx([1.1, 1.2])


def test_a_handoff_shares_links_with_the_traffic_of_the_pool() -> None:
    # Alone the hand-off takes 0.5 s. The write of the same 20 B to the pool takes half of the NIC.
    nic = StageSpec("pull", ("nic",), 0.0)
    pool = TierSpec("pool", "shared", UNLIMITED, 0.0, (nic,), (nic,))
    scenario = split(handoff=replace(BY_NIC, latency_s=0.0), links=links(nic=40.0), tiers=(pool,))
    timeline = simulate(make_trace([Ask(0, "a", output=2)]), scenario).timeline
    assert timeline.handoff_s == pytest.approx([1.0])


def test_a_throttle_holds_handoffs_back() -> None:
    spec = replace(BY_NIC, latency_s=0.0)
    slow = (ThrottleSpec("nic", 10.0, "handoffs"), ThrottleSpec("nic", 1.0, "reads"))
    scenario = split(handoff=spec, links=links(nic=40.0), throttles=slow)
    result = simulate(make_trace([Ask(0, "a", output=2)]), scenario)
    assert result.timeline.handoff_s == pytest.approx([2.0])
    assert [use.link_id for use in result.link_use] == ["nic"]


def test_a_prompt_waits_for_room_where_it_is_to_be_decoded() -> None:
    # The decode instance holds 30 tokens, each request takes 21. The first decodes ten steps from
    # 0.1 on; the second is computed at 0.2, finds room at 1.1 and ends at 2.1.
    asks = [Ask(0, "a", output=11), Ask(0, "b", output=11)]
    scenario = split(hbm_capacity_bytes=30 * KV_BYTES)
    timeline = simulate(make_trace(asks), scenario).timeline
    assert timeline.ttft_s == pytest.approx([0.1, 0.2])
    assert timeline.handoff_s == pytest.approx([0.0, 0.9])
    assert timeline.e2e_s == pytest.approx([1.1, 2.1])


def test_a_prompt_that_waits_keeps_its_room_where_it_was_computed() -> None:
    # The prefill instance holds 30 tokens. Two prompts of 10 wait there, a third of 20 finds no
    # room until the first one leaves at 1.1: the one that decodes (11 + 10 tokens) is done.
    asks = [Ask(0, "a", output=11), Ask(0, "b", output=11), Ask(0, "c", output=11), Ask(0.3, "de")]
    scenario = split(hbm_capacity_bytes=30 * KV_BYTES)
    timeline = simulate(make_trace(asks), scenario).timeline
    assert timeline.ttft_s[3] == pytest.approx(1.1 + 0.2 - 0.3)


def test_the_number_of_running_requests_limits_decode_instances() -> None:
    asks = [Ask(0, "a", output=11), Ask(0, "b", output=11)]
    two = split(instances=3, running_requests=1)
    timeline = simulate(make_trace(asks), two).timeline
    assert timeline.handoff_s == pytest.approx([0.0, 0.0])
    one = split(running_requests=1)
    assert simulate(make_trace(asks), one).timeline.handoff_s == pytest.approx([0.0, 0.9])


def test_one_token_needs_no_decode_instance() -> None:
    timeline = simulate(make_trace([Ask(0, "a", output=1)]), split(handoff=None)).timeline
    assert timeline.e2e_s == pytest.approx([0.1])
    assert timeline.handoff_s == pytest.approx([0.0])


def test_decode_does_not_slow_a_prefill_down() -> None:
    # On one mixed instance every step of the second prompt carries a decode step of 0.1 s.
    asks = [Ask(0, "a", output=50), Ask(1, prompt=50)]
    scenario = {"prefill_chunk_tokens": 10}
    mixed = simulate(make_trace(asks), make_scenario(**scenario)).timeline
    apart = simulate(make_trace(asks), split(**scenario)).timeline
    assert (mixed.ttft_s[1], apart.ttft_s[1]) == pytest.approx((1.0, 0.5))


def test_utilisation_and_load_are_those_of_either_group() -> None:
    # One of four instances prefills: 0.4 s in the span of 0.6 s. 59 + 59 steps on three instances
    # at the fullest batch of two (0.1 s) need 5.9 s; arrivals span 0.4 s.
    asks = [Ask(0, "ab", output=60), Ask(0.4, "cd", output=60)]
    scenario = split(instances=4, hbm_capacity_bytes=1000 * KV_BYTES)
    result = simulate(make_trace(asks), scenario)
    assert result.prefill_utilisation == pytest.approx(0.4 / 0.6)
    assert result.offered_load == pytest.approx(max(0.4 / 1, 5.9 / 3) / 0.4)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"prefill_instances": 2}, "2 of its 2 instances prefill, which leaves none to decode"),
        ({"prefill_instances": -1}, "-1 of its 2 instances prefill"),
        ({"kv_admission": "as_needed"}, "decode instances take the room of a request at once"),
        ({"handoff": BY_NIC}, "its hand-off crosses the unknown link `nic`"),
        (
            {"handoff": BY_NIC, "links": links(nic=0.0)},
            "its hand-off crosses `nic`, which moves nothing",
        ),
        ({"isolation": IsolationSpec(9, 1)}, "1 of its 1 instances for long prompts leave none"),
        ({"isolation": IsolationSpec(-1)}, "a negative number of tokens"),
        ({"throttles": (ThrottleSpec("nic", 1.0),)}, "a throttle is on the unknown link `nic`"),
        (
            {"throttles": (ThrottleSpec("nic", 0.0),), "links": links(nic=1.0)},
            "the throttle on `nic` is no positive rate",
        ),
        ({"request_bytes_per_s": 0.0}, "what one move may get is no positive rate"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ModelError, match=fault) as raised:
        simulate(make_trace([Ask(0, "a")]), split(**changes))
    assert raised.value.code == "KVT-R003"
