"""Blocks of outputs that stay in caches, and what a pipeline's stages do to times."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.errors import ModelError
from kvtrace.replay.engine import simulate
from kvtrace.replay.generated import generated_runs
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario, StageSpec, TierSpec
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import KV_BYTES, UNLIMITED, Ask, ints, links, make_scenario, make_trace


def in_sessions(asks: list[Ask], sessions: list[int]) -> RequestTrace:
    return replace(make_trace(asks), session=ints(sessions))


def two_turns(*, output: int, prompt: int | None = None) -> RequestTrace:
    """Turn one asks `ab` (or `prompt` tokens of it) and is answered; turn two asks `abcde`."""
    first = Ask(0, "ab" if prompt is None or prompt >= 20 else "ap", prompt=prompt, output=output)
    return in_sessions([first, Ask(100, "abcde", output=1)], [0, 0])


def keeping(**changes: object) -> Scenario:
    return make_scenario(**{"keeps_generated": True, **changes})


def second_hit(result: ReplayResult, tier: str = "hbm") -> int:
    return int(result.timeline.hit_tokens[tier][1])


def test_an_output_fills_the_blocks_behind_its_prompt() -> None:
    # 20 prompt + 15 output tokens fill 3 blocks of 10: c is full, d is not.
    runs = generated_runs(two_turns(output=15))
    assert runs.start.tolist() == [2, 0]
    assert runs.blocks.tolist() == [1, 0]


def test_a_block_that_prompt_and_output_fill_together_is_generated() -> None:
    # 15 prompt tokens: the second block is partial (`p`), and full only once 5 tokens follow it.
    runs = generated_runs(two_turns(output=6, prompt=15))
    assert (int(runs.start[0]), int(runs.blocks[0])) == (2, 1)
    assert generated_runs(two_turns(output=4, prompt=15)).blocks.tolist() == [0, 0]


def test_no_more_is_generated_than_the_next_turn_shows() -> None:
    assert generated_runs(two_turns(output=1000)).blocks.tolist() == [3, 0]


def test_a_turn_that_does_not_repeat_the_prompt_shows_nothing() -> None:
    trace = in_sessions([Ask(0, "ab", output=30), Ask(1, "axcde")], [0, 0])
    assert generated_runs(trace).blocks.tolist() == [0, 0]


@pytest.mark.parametrize("sessions", [[0, 1], [-1, -1]])
def test_requests_of_no_common_session_show_nothing(sessions: list[int]) -> None:
    trace = replace(two_turns(output=30), session=ints(sessions))
    assert generated_runs(trace).blocks.tolist() == [0, 0]


def test_the_next_turn_hits_what_was_generated() -> None:
    trace = two_turns(output=15)
    assert second_hit(simulate(trace, make_scenario())) == 20
    assert second_hit(simulate(trace, keeping())) == 30


def test_generated_blocks_are_there_only_when_their_request_has_ended() -> None:
    # The answer of 15 tokens takes 14 steps of 0.1 s behind a prefill of 0.2 s: it ends at 1.6 s.
    asks = [Ask(0, "ab", output=15), Ask(1.5, "abcde")]
    trace = in_sessions(asks, [0, 0])
    assert second_hit(simulate(trace, keeping())) == 20


def test_generated_blocks_go_before_the_prompt_that_they_follow() -> None:
    # HBM of 5 blocks holds a, b and the output's c; three others push one of them out.
    asks = [Ask(0, "ab", output=15), Ask(50, "xyz"), Ask(100, "abcde")]
    trace = in_sessions(asks, [0, -1, 0])
    result = simulate(trace, keeping(hbm_capacity_bytes=5 * 10 * KV_BYTES))
    assert result.timeline.hit_tokens["hbm"].tolist() == [0, 0, 20]


def test_room_of_the_output_is_given_back_once() -> None:
    # Each pair of turns leaves blocks behind; were room lost, later requests would never enter.
    asks, sessions = [], []
    for turn in range(20):
        asks += [
            Ask(100 * turn, (f"{turn}a", f"{turn}b"), output=15),
            Ask(100 * turn + 50, tuple(f"{turn}{block}" for block in "abcde"), output=1),
        ]
        sessions += [turn, turn]
    scenario = keeping(hbm_capacity_bytes=6 * 10 * KV_BYTES)
    result = simulate(in_sessions(asks, sessions), scenario)
    assert result.timeline.hit_tokens["hbm"][1::2].tolist() == [30] * 20
    assert result.timeline.queue_s.tolist() == [0.0] * 40


def test_as_needed_admission_keeps_what_is_generated_too() -> None:
    scenario = keeping(kv_admission="as_needed", kv_block_tokens=10)
    assert second_hit(simulate(two_turns(output=15), scenario)) == 30


@pytest.mark.parametrize(("takes", "in_pool"), [(True, 30), (False, 20)])
def test_a_tier_holds_generated_blocks_where_it_takes_them(takes: bool, in_pool: int) -> None:
    # Two instances by turns: the second turn finds nothing in its own HBM.
    nic = StageSpec("pull", ("nic",), 0.0)
    pool = TierSpec("pool", "shared", UNLIMITED, 0.0, (nic,), (nic,), takes_generated=takes)
    scenario = keeping(instances=2, routing="round_robin", tiers=(pool,), links=links(nic=1000.0))
    result = simulate(two_turns(output=15), scenario)
    assert second_hit(result, "pool") == in_pool
    (nic_use,) = result.link_use
    # `ab`, later `cde`; with the output c on its own, later `de`.
    assert nic_use.bytes_written == 5 * 10 * KV_BYTES


def test_what_hbm_evicts_of_an_output_goes_down_the_chain() -> None:
    # HBM of 6 blocks; the long prompt in between evicts all; the host tier has c as well.
    pcie = StageSpec("load", ("pcie",), 0.0)
    host = TierSpec(
        "host_dram", "instance", UNLIMITED, 0.0, (pcie,), (pcie,), write_moment="on_evict"
    )
    asks = [Ask(0, "ab", output=15), Ask(50, "uvwxyz"), Ask(100, "abcde")]
    trace = in_sessions(asks, [0, -1, 0])
    scenario = keeping(
        hbm_capacity_bytes=6 * 10 * KV_BYTES, tiers=(host,), links=links(pcie=1000.0)
    )
    assert int(simulate(trace, scenario).timeline.hit_tokens["host_dram"][2]) == 30


def test_a_history_leaves_what_it_generated() -> None:
    result = simulate(two_turns(output=15), keeping(), warmup_requests=1)
    assert result.timeline.hit_tokens["hbm"].tolist() == [30]


@pytest.mark.parametrize("changes", [{"idealised": True}, {"instances": 2, "prefill_instances": 1}])
def test_it_has_no_effect_where_no_prompt_could_find_them(changes: dict[str, object]) -> None:
    trace = two_turns(output=15)
    kept, plain = (simulate(trace, s) for s in (keeping(**changes), make_scenario(**changes)))
    assert second_hit(kept) == second_hit(plain) == 20


@pytest.mark.parametrize(
    "changes",
    [
        {
            "keeps_generated": True,
            "tiers": (
                TierSpec("p", "shared", 1e6, 0.0, (), (), takes_generated=True, holds_hbm=True),
            ),
        },
        {"tiers": (TierSpec("pool", "shared", 1e6, 0.0, (), (), takes_generated=True),)},
        {"stages": 0},
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ModelError, match="cannot be replayed"):
        simulate(two_turns(output=15), make_scenario(**changes))


# --- pipelines -----------------------------------------------------------------------------------


def test_a_prompt_takes_the_way_through_all_stages_and_a_stage_a_part_of_it() -> None:
    # 20 tokens take 0.2 s through 2 stages; the first stage is free again after 0.1 s.
    trace = make_trace([Ask(0, "ab"), Ask(0, "cd")])
    result = simulate(trace, make_scenario(stages=2))
    assert result.timeline.ttft_s == pytest.approx([0.2, 0.3])
    assert result.timeline.gpu_busy_s == pytest.approx([0.1, 0.1])


def test_chunks_of_one_prompt_follow_one_another_through_the_stages() -> None:
    # 4 chunks of 10 tokens, 0.1 s each through 2 stages: 4 x 0.05 s, and 0.05 s for the last one.
    scenario = make_scenario(stages=2, prefill_chunk_tokens=10)
    result = simulate(make_trace([Ask(0, "abcd")]), scenario)
    assert result.timeline.ttft_s == pytest.approx([0.25])


def test_one_stage_is_no_pipeline() -> None:
    trace = make_trace([Ask(0, "ab", output=4), Ask(0.05, "cd", output=3)])
    one = simulate(trace, make_scenario(stages=1)).timeline
    none = simulate(trace, make_scenario()).timeline
    assert one.e2e_s.tolist() == none.e2e_s.tolist()
