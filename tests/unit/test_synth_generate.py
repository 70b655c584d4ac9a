"""Drawing a trace from a profile: determinism, lengths, and block ids that chain."""

from __future__ import annotations

from dataclasses import replace

from kvtrace.synth import Profile, Spread, SynthRequest, Workload, generate, sample_profile


def fixed(value: float) -> Spread:
    return Spread(median=value, sigma=0, low=0, high=1e9)


PLAIN = Workload(
    name="plain",
    start_s=100,
    duration_s=40,
    sessions=2,
    arrivals="even",
    turns_mean=1.0,
    turns_max=1,
    shared_roots=1,
    root_tokens=fixed(130),
    first_tokens=fixed(70),
    turn_tokens=fixed(50),
    output_tokens=fixed(20),
    think_s=fixed(3),
    context_max_tokens=10_000,
)


def requests_of(workload: Workload, *, seed: int = 1) -> tuple[SynthRequest, ...]:
    return generate(Profile(seed=seed, block_size_tokens=64, workloads=(workload,))).requests


def test_equal_profiles_give_equal_traces() -> None:
    assert generate(sample_profile(3)) == generate(sample_profile(3))


def test_another_seed_gives_another_trace() -> None:
    assert generate(sample_profile(3)).requests != generate(sample_profile(4)).requests


def test_even_sessions_start_in_the_middle_of_equal_slots() -> None:
    # 2 sessions in [100 s, 140 s): slots of 20 s, middles at 110 s and 130 s.
    arrivals = [request.arrived_at_ns for request in requests_of(PLAIN)]
    assert arrivals == [110_000_000_000, 130_000_000_000]


def test_shared_root_gives_shared_full_blocks_only() -> None:
    # 130 + 70 = 200 tokens: 3 full blocks and a tail of 8. The root fills 2 blocks (128 tokens);
    # the third block holds 2 root tokens and 62 of the session's own, so it is not shared.
    first, second = requests_of(PLAIN)
    assert first.prompt_tokens == second.prompt_tokens == 200
    assert len(first.block_ids) == len(second.block_ids) == 4
    assert first.block_ids[:2] == second.block_ids[:2]
    assert not set(first.block_ids[2:]) & set(second.block_ids[2:])


def test_next_turn_repeats_full_blocks_and_never_the_partial_tail() -> None:
    chatty = replace(PLAIN, sessions=1, turns_mean=1e9, turns_max=2, duration_s=1000)
    first, second = requests_of(chatty)
    # Turn 2: 200 + 20 of the reply + 50 new = 270 tokens: 4 full blocks and a tail of 14.
    assert (first.turn, second.turn, second.prompt_tokens) == (0, 1, 270)
    assert second.block_ids[:3] == first.block_ids[:3]
    assert first.block_ids[3] not in second.block_ids
    assert len(second.block_ids) == 5
    # Open loop: a nominal reply of 6 s, then 3 s of thought.
    assert second.think_ns == 3_000_000_000
    assert second.arrived_at_ns - first.arrived_at_ns == 9_000_000_000


def test_session_ends_before_its_context_grows_too_long() -> None:
    # Prompts grow 200, 270, 340: with room for 339 the third turn is not sent.
    chatty = replace(
        PLAIN, sessions=1, turns_mean=1e9, turns_max=9, duration_s=1000, context_max_tokens=339
    )
    assert [request.prompt_tokens for request in requests_of(chatty)] == [200, 270]


def test_draws_stay_inside_their_limits() -> None:
    wild = replace(PLAIN, sessions=200, first_tokens=Spread(median=100, sigma=3, low=90, high=110))
    prompts = [request.prompt_tokens for request in requests_of(wild)]
    assert min(prompts) == 130 + 90
    assert max(prompts) == 130 + 110


def test_every_block_id_has_one_predecessor_and_one_position() -> None:
    places: dict[int, tuple[int, int | None]] = {}
    for request in generate(sample_profile(7)).requests:
        before = None
        for position, block in enumerate(request.block_ids):
            assert places.setdefault(block, (position, before)) == (position, before)
            before = block


def test_a_prompt_has_as_many_ids_as_started_blocks() -> None:
    for request in generate(sample_profile(7)).requests:
        assert len(request.block_ids) == -(-request.prompt_tokens // 64)


def test_request_ids_are_distinct() -> None:
    ids = [request.request_id for request in generate(sample_profile(7)).requests]
    assert len(set(ids)) == len(ids)
