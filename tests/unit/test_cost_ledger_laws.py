"""Laws of KV bytes and of the ledger, for every LLM, GPU and length."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.cost import (
    LEDGER_PATHS,
    Deployment,
    Hop,
    KvPlacement,
    MovePath,
    build_deployment,
    build_ledger,
    find_path,
    list_llms,
    load_llm,
)
from kvtrace.cost.dtypes import DTYPES
from kvtrace.cost.transfer import HopLink
from kvtrace.cost.ways import stall_layerwise_s

llms = st.sampled_from(list_llms())
dtypes = st.sampled_from(DTYPES)
lengths = st.integers(1, 1 << 20)
ranks = st.integers(1, 64)
paths = st.sampled_from((*LEDGER_PATHS, "s3_express_one_zone", "nvme_gen3_x4", "2x40Gb/s"))
deployments = st.tuples(
    st.sampled_from(("Llama-3.1-8B", "Llama-3.1-70B", "gpt-oss-120b", "DeepSeek-V3",
                     "Qwen3-30B-A3B", "Qwen3-Next-80B-A3B", "Kimi-Linear-48B-A3B")),
    st.sampled_from(("A100-SXM4-80GB", "H100-SXM5", "H20", "B200-SXM", "GB200", "L40S")),
    st.sampled_from((1, 2, 4, 8, 16)),
    st.sampled_from(("bf16", "fp8")),
)  # fmt: skip


@cache
def _deployment(llm: str, gpu: str, tp: int, kv_dtype: str) -> Deployment:
    return build_deployment(llm, gpu, tp=tp, kv_dtype=kv_dtype)


@given(llm=llms, dtype=dtypes, tokens=lengths, more=st.integers(0, 5_000), tp=ranks)
def test_more_tokens_never_take_fewer_bytes(
    llm: str, dtype: str, tokens: int, more: int, tp: int
) -> None:
    shape = load_llm(llm)
    fewer = shape.kv_bytes(tokens, kv_dtype=dtype, tp=tp)
    assert 0 < fewer <= shape.kv_bytes(tokens + more, kv_dtype=dtype, tp=tp)


@given(llm=llms, dtype=dtypes, tokens=lengths, tp=ranks)
def test_ranks_copy_entries_and_never_lose_one(llm: str, dtype: str, tokens: int, tp: int) -> None:
    shape = load_llm(llm)
    for group in shape.groups:
        assert 1 <= group.replicas(tp) <= tp
        assert group.replicas(tp) <= group.replicas(tp + 1)
    whole = shape.kv_bytes(tokens, kv_dtype=dtype)
    assert shape.kv_bytes(tokens, kv_dtype=dtype, tp=tp) >= whole


@given(llm=llms, tokens=lengths, tp=ranks)
def test_fp8_halves_what_is_no_state(llm: str, tokens: int, tp: int) -> None:
    shape = load_llm(llm)
    bf16, fp8 = (
        shape.kv_bytes(tokens, kv_dtype=dtype, tp=tp) - shape.state_bytes
        for dtype in ("bf16", "fp8")
    )
    assert fp8 == pytest.approx(bf16 / 2, abs=1)


@given(llm=llms, dtype=dtypes, tokens=lengths, block=st.integers(1, 2_048), tp=ranks)
def test_blocks_add_less_than_one_block(
    llm: str, dtype: str, tokens: int, block: int, tp: int
) -> None:
    shape = load_llm(llm)
    exact = shape.kv_bytes(tokens, kv_dtype=dtype, tp=tp)
    rounded = shape.kv_bytes(tokens, kv_dtype=dtype, tp=tp, block_size_tokens=block)
    assert exact <= rounded <= shape.kv_bytes(tokens + block - 1, kv_dtype=dtype, tp=tp)


@given(llm=llms, dtype=dtypes, tokens=lengths, tp=ranks, pp=st.integers(1, 16), dp=st.booleans())
def test_the_fullest_rank_holds_its_share_at_least(
    llm: str, dtype: str, tokens: int, tp: int, pp: int, dp: bool
) -> None:
    shape, place = load_llm(llm), KvPlacement(tp, pp, dp)
    fullest = place.bytes_fullest_rank(shape, tokens, kv_dtype=dtype)
    everything = place.bytes_all_ranks(shape, tokens, kv_dtype=dtype)
    holders = place.attention_tp * pp
    assert everything / holders <= fullest + 1
    assert fullest <= everything + 1


@given(llm=llms, cached=st.integers(0, 1 << 20), every=st.integers(1, 5_000))
def test_a_checkpoint_never_adds_tokens(llm: str, cached: int, every: int) -> None:
    shape = load_llm(llm)
    reusable = shape.reusable_tokens(cached, checkpoint_tokens=every)
    assert cached - every < reusable <= cached
    if shape.recurrent_layers:
        assert reusable % every == 0
    else:
        assert reusable == cached


@given(llm=llms, new=st.integers(1, 100_000), cached=st.integers(0, 500_000))
def test_a_hit_saves_flops_and_never_all(llm: str, new: int, cached: int) -> None:
    shape = load_llm(llm)
    if shape.knows_flops:
        after_hit = shape.prefill_flops(new, cached)
        assert shape.prefill_flops(new, 0) <= after_hit
        whole = shape.prefill_flops(new + cached, 0)
        assert after_hit <= whole
        # what is computed in two pieces is what is computed in one
        assert after_hit + shape.prefill_flops(cached, 0) == pytest.approx(whole, rel=1e-9)


@given(made=deployments, path=paths, new=st.integers(1, 20_000), cached=st.integers(1, 200_000))
def test_the_stages_sum_to_the_move_and_prices_follow(
    made: tuple[str, str, int, str], path: str, new: int, cached: int
) -> None:
    deployment = _deployment(*made)
    built = [find_path(deployment, path)]
    ledger = build_ledger(
        deployment, tokens=new + cached, cached_tokens=cached, paths=built, depth="figures"
    )
    (row,) = ledger.paths
    assert row.move_s == pytest.approx(row.lookup_s + row.pull_s + row.load_s, rel=1e-12)
    assert row.ttft_change_s == pytest.approx(row.move_s - ledger.recompute_s, abs=1e-12)
    assert 0 <= ledger.reusable_tokens <= cached
    assert row.lookup_s <= row.way("layerwise").stall_s + 1e-12
    assert row.way("layerwise").stall_s <= row.move_s * (1 + 1e-9)
    if ledger.kv_bytes:
        wins = row.path_bytes_per_s > (row.break_even_bytes_per_s or float("inf"))
        is_close = row.ttft_change_s == pytest.approx(0, abs=1e-9)
        assert is_close or (row.verdict == "move_wins") == wins
    else:
        assert row.verdict == "nothing_to_move"


@given(
    made=deployments,
    fixed_s=st.floats(0, 0.2),
    new=st.integers(1, 20_000),
    cached=st.integers(1, 200_000),
)
def test_at_the_break_even_rate_moving_takes_as_long_as_recomputing(
    made: tuple[str, str, int, str], fixed_s: float, new: int, cached: int
) -> None:
    deployment = _deployment(*made)

    def path(bytes_per_s: float) -> MovePath:
        hop = Hop("pull", (HopLink("link", bytes_per_s, 1.0),), fixed_s)
        return MovePath("pool_tcp", "read", 0.0, (hop,), ())

    def ledger(bytes_per_s: float) -> tuple[float, float | None, float]:
        account = build_ledger(
            deployment,
            tokens=new + cached,
            cached_tokens=cached,
            paths=[path(bytes_per_s)],
            depth="figures",
        )
        (row,) = account.paths
        return account.recompute_s, row.break_even_bytes_per_s, row.move_s

    recompute_s, needed, _ = ledger(1e9)
    if needed is None:
        assert recompute_s <= fixed_s or recompute_s == 0
    else:
        assert ledger(needed)[2] == pytest.approx(recompute_s, rel=1e-9)


@given(
    lookup=st.floats(0, 1), transfer=st.floats(0, 10), prefill=st.floats(0, 10),
    layers=st.integers(1, 200),
)  # fmt: skip
def test_overlap_hides_at_most_the_prefill(
    lookup: float, transfer: float, prefill: float, layers: int
) -> None:
    stall = stall_layerwise_s(
        lookup_s=lookup, transfer_s=transfer, prefill_s=prefill, layers=layers
    )
    assert stall <= lookup + transfer + 1e-9
    assert stall >= lookup + max(transfer / layers, transfer - prefill) - 1e-9
