"""The small engine behind the sample logs, by hand-worked cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.synth import Profile, Served, StoryEngine, SynthRequest, SynthTrace, serve
from kvtrace.synth.statslines import hit_ratios, stats_lines
from kvtrace.synth.ticks import emitted_tokens

# 1 ms a new token, nothing else: no overhead, no attention, no front end; 10 ms an output token.
ENGINE = StoryEngine(
    kv_bytes_per_token=1000,
    kv_capacity_tokens=64 * 100,
    weight_flops_per_token=1e6,
    attention_flops_per_token_pair=0.0,
    effective_flops_per_s=1e9,
    prefill_overhead_s=0.0,
    lookup_s=0.0,
    pool_bytes_per_s=1e6,
    pcie_bytes_per_s=4e6,
    pool_chunk_tokens=128,
    decode_s_per_token=0.010,
    frontend_s=0.0,
)
S = 1_000_000_000


def ask(
    session: int,
    *,
    at_s: float = 0.0,
    tokens: int = 128,
    blocks: tuple[int, ...] | None = None,
    output: int = 1,
    turn: int = 0,
    think_s: float = 0.0,
) -> SynthRequest:
    own = tuple(1000 * session + index for index in range(-(-tokens // 64)))
    return SynthRequest(
        request_id=f"r{session}-{turn}",
        workload="test",
        session=session,
        turn=turn,
        arrived_at_ns=round(at_s * S),
        think_ns=round(think_s * S),
        prompt_tokens=tokens,
        output_tokens=output,
        block_ids=own if blocks is None else blocks,
    )


def run(*requests: SynthRequest, engine: StoryEngine = ENGINE) -> tuple[Served, ...]:
    return serve(SynthTrace(Profile(1, 64, ()), requests), engine)


def test_prefill_adds_overhead_weights_and_attention() -> None:
    engine = replace(
        ENGINE,
        prefill_overhead_s=0.5,
        weight_flops_per_token=100.0,
        attention_flops_per_token_pair=2.0,
        effective_flops_per_s=1000.0,
    )
    # 10 new after 20: 100·10 + 2·(10·20 + 50) = 1500 FLOP at 1000/s, and 0.5 s.
    assert engine.prefill_s(new_tokens=10, cached_tokens=20) == 2.0


def test_pull_adds_its_hops() -> None:
    # 1000 tokens × 1000 bytes: 1 s at 1 MB/s, then 0.25 s at 4 MB/s.
    assert ENGINE.pull_s(1000) == 1.25
    assert replace(ENGINE, lookup_s=0.125).pull_s(0) == 0.125


def test_a_lone_request_waits_for_its_prefill_only() -> None:
    (one,) = run(ask(1, at_s=2, tokens=100, output=6))
    assert (one.queued_at_ns, one.scheduled_at_ns) == (2 * S, 2 * S)
    assert one.first_token_at_ns == 2 * S + S // 10  # 100 tokens at 1 ms
    assert one.last_token_at_ns == one.first_token_at_ns + S // 20  # 5 more tokens at 10 ms
    assert one.ttft_ns == S // 10


def test_the_second_request_queues_behind_the_first() -> None:
    first, second = run(ask(1, tokens=1000), ask(2, at_s=0.25, tokens=100))
    assert first.first_token_at_ns == S
    assert second.scheduled_at_ns == S
    assert second.ttft_ns == S + S // 10 - S // 4


def test_decoding_stands_still_while_another_prompt_is_computed() -> None:
    # First token at 0.1 s, then 10 tokens of 10 ms = 0.1 s, interrupted for 0.5 s from 0.15 s on.
    first, _ = run(ask(1, tokens=100, output=11), ask(2, at_s=0.15, tokens=500))
    assert first.last_token_at_ns == round(0.7 * S)


def test_an_equal_prompt_hits_all_but_the_block_of_its_last_token() -> None:
    _, second = run(ask(1, blocks=(1, 2)), ask(2, at_s=9, blocks=(1, 2)))
    assert (second.device_tokens, second.pulled_tokens) == (64, 0)
    assert second.ttft_ns == 64 * S // 1000


def test_a_partial_tail_is_no_hit() -> None:
    # 100 tokens are one full block and a tail; the same ids again find the full block only.
    _, second = run(ask(1, tokens=100, blocks=(1, 2)), ask(2, at_s=9, tokens=100, blocks=(1, 2)))
    assert second.device_tokens == 64


def test_what_hbm_forgot_is_pulled_in_whole_chunks() -> None:
    # HBM holds 4 blocks. A puts 1..4 there, B evicts them all, A comes back with 5 blocks:
    # 4 full blocks are in the pool = 256 tokens = 2 chunks of 128: 0.256 s + 0.064 s of moves,
    # then 65 new tokens: 65 ms. (321 tokens: the last block holds the 321st.)
    engine = replace(ENGINE, kv_capacity_tokens=4 * 64)
    back = ask(3, at_s=20, tokens=321, blocks=(1, 2, 3, 4, 9, 10))
    _, _, third = run(
        ask(1, tokens=256, blocks=(1, 2, 3, 4)),
        ask(2, at_s=10, tokens=256, blocks=(5, 6, 7, 8)),
        back,
        engine=engine,
    )
    assert (third.device_tokens, third.pulled_tokens) == (0, 256)
    assert third.ttft_ns == round(0.385 * S)


def test_a_pull_is_rounded_down_to_the_chunk() -> None:
    # Only 3 full blocks (192 tokens) are known: one chunk of 128 is found, the rest is computed.
    engine = replace(ENGINE, kv_capacity_tokens=2 * 64)
    *_, third = run(
        ask(1, tokens=192, blocks=(1, 2, 3)),
        ask(2, at_s=10, tokens=128, blocks=(5, 6)),
        ask(3, at_s=20, tokens=320, blocks=(1, 2, 3, 7, 8)),
        engine=engine,
    )
    assert third.pulled_tokens == 128


def test_prefixes_outlive_their_tails_in_hbm() -> None:
    # 3 blocks of room: after (1, 2) and (8, 9) the tail 2 is gone and the head 1 is still there.
    engine = replace(ENGINE, kv_capacity_tokens=3 * 64)
    *_, third = run(
        ask(1, tokens=128, blocks=(1, 2)),
        ask(2, at_s=10, tokens=128, blocks=(8, 9)),
        ask(3, at_s=20, tokens=192, blocks=(1, 2, 3)),
        engine=engine,
    )
    assert (third.device_tokens, third.pulled_tokens) == (64, 64)


def test_a_request_waits_until_hbm_has_room_beside_running_ones() -> None:
    # Room for 200 tokens: 100 + 51 are running until 0.1 + 0.5 s, then the second one fits.
    engine = replace(ENGINE, kv_capacity_tokens=200)
    first, second = run(ask(1, tokens=100, output=51), ask(2, at_s=0.2, tokens=100), engine=engine)
    assert first.last_token_at_ns == round(0.6 * S)
    assert second.scheduled_at_ns == first.last_token_at_ns


def test_the_next_turn_comes_a_pause_after_the_reply() -> None:
    first, second = run(
        ask(1, tokens=100, output=11), ask(1, tokens=100, turn=1, think_s=4, at_s=77)
    )
    assert second.arrived_at_ns == first.last_token_at_ns + 4 * S


def test_output_tokens_are_spread_between_first_and_last() -> None:
    one = replace(run(ask(1, output=11))[0], first_token_at_ns=100, last_token_at_ns=200)
    # 10 tokens over 100 ns after the first one.
    assert [emitted_tokens(one, at) for at in (99, 100, 149, 150, 200, 999)] == [0, 1, 5, 6, 11, 11]


def test_hit_ratios_have_the_denominators_of_vllm() -> None:
    one = replace(run(ask(1, tokens=100))[0], device_tokens=40, pulled_tokens=30)
    # 40 of 100 in HBM; 30 of the 60 that HBM missed in the pool.
    assert hit_ratios([one]) == (0.4, 0.5)
    assert hit_ratios([]) == (0.0, 0.0)


def test_statistics_agree_with_the_requests() -> None:
    # 500 prompt tokens and 51 output tokens end in the first 10 s; then nothing: no second line.
    served = run(ask(1, tokens=500, output=51))
    lines = list(stats_lines(served, ENGINE, block_size_tokens=64, stamp=lambda _: "T"))
    assert [text for _, _, text in lines] == [
        "(APIServer pid=1) INFO T [loggers.py:236] Engine 000:"
        " Avg prompt throughput: 50.0 tokens/s, Avg generation throughput: 5.1 tokens/s,"
        " Running: 0 reqs, Waiting: 0 reqs,"
        " GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%,"
        " External prefix cache hit rate: 0.0%"
    ]


def test_statistics_count_running_and_waiting_requests() -> None:
    # At 10 s the first prompt of 12 000 tokens is still computed and the second one waits.
    engine = replace(ENGINE, kv_capacity_tokens=24_000)
    served = run(ask(1, tokens=12_000), ask(2, at_s=5, tokens=100, output=2000), engine=engine)
    lines = list(stats_lines(served, engine, block_size_tokens=64, stamp=lambda _: "T"))
    # No tokens came out before 10 s, so the first line is that of 20 s: the second request runs,
    # with 100 + 1 + 790 tokens = 14 blocks = 896 of 24 000.
    assert lines[0][0] == 20 * S
    assert "Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.7%" in lines[0][2]


def test_no_requests_give_no_statistics() -> None:
    assert list(stats_lines((), ENGINE, block_size_tokens=64, stamp=str)) == []


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 128, 129])
def test_at_least_the_last_token_is_computed(tokens: int) -> None:
    blocks = tuple(range(-(-tokens // 64)))
    _, second = run(
        ask(1, tokens=tokens, blocks=blocks), ask(2, at_s=9, tokens=tokens, blocks=blocks)
    )
    assert second.device_tokens + second.pulled_tokens < tokens
